// Package ad writes the ClassAds of slots and of jobs, as they wait, run and end, turns the
// ads of fetched work into requests, and expands what a job refers to of its slot. job(5)
// has the names.
//
// Packages that evaluate policies, call hooks or show ads import it. It has no state:
// callers hand it what an ad says. An ad of work is not trusted, so that the cost of
// reading it is bounded.
//
// An ad has secrets in two places. Ids of claims are private attributes, which
// package classad prints only when asked for secrets. The environment of a job is
// in its ad only where JobInfo asks for it: for hooks of that job, and for root.
package ad

import (
	"math"
	"strings"
	"time"

	"paddock/classad"
)

// builder collects the attributes of an ad. The last one of a name, in any spelling,
// counts.
type builder struct {
	only  []string // that are wanted; nil: all
	attrs []classad.Attr
}

// newBuilder returns a builder of an ad with those attributes only; nil: all. It has room for as
// many as most ads have, since a list that grew would be copied again and again.
func newBuilder(only []string) builder {
	room := len(only)
	if only == nil {
		room = 96
	}
	return builder{only: only, attrs: make([]classad.Attr, 0, room)}
}

// wants reports whether an attribute is to be in the ad.
func (b *builder) wants(name string) bool {
	if b.only == nil {
		return true
	}
	for _, s := range b.only {
		if len(s) == len(name) && strings.EqualFold(s, name) {
			return true
		}
	}
	return false
}

func (b *builder) expr(name string, e classad.Expr) {
	if b.wants(name) {
		b.attrs = append(b.attrs, classad.Attr{Name: name, Expr: e})
	}
}

func (b *builder) value(name string, v classad.Value) {
	if b.wants(name) {
		b.attrs = append(b.attrs, classad.Attr{Name: name, Expr: v.Expr()})
	}
}

func (b *builder) integer(name string, n int64) { b.value(name, classad.Int(n)) }

func (b *builder) number(name string, n float64) { b.value(name, classad.Real(n)) }

func (b *builder) flag(name string, on bool) { b.value(name, classad.Bool(on)) }

// text adds a string unless it is empty.
func (b *builder) text(name, s string) {
	if s != "" {
		b.value(name, classad.String(s))
	}
}

// maxLine is the longest line of an ad that package classad reads.
const maxLine = 64 << 10

// long adds a string unless it is empty or too long for an ad to be read again. Half
// of it would be worse than none.
func (b *builder) long(name, s string) {
	if !b.wants(name) {
		return
	}
	if e := classad.String(s).Expr(); len(name)+len(" = ")+len(e.OldString()) <= maxLine {
		b.expr(name, e)
	}
}

// at adds a time in seconds since the epoch, unless it is zero.
func (b *builder) at(name string, t time.Time) {
	if !t.IsZero() {
		b.integer(name, t.Unix())
	}
}

// over returns a copy of base with the attributes set. base may be nil.
func (b *builder) over(base *classad.Ad) *classad.Ad {
	if base == nil {
		return classad.New(b.attrs...)
	}
	return base.With(b.attrs...)
}

// amount returns a number, as an integer if it is one.
func amount(n float64) classad.Value {
	if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
		return classad.Int(int64(n))
	}
	return classad.Real(n)
}
