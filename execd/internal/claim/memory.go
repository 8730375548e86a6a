package claim

import (
	"slices"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
)

// The scheduler asks for thousands of jobs, again and again, whether slots are
// willing to run them. So a refusal by a slot's START is remembered for all jobs that
// are alike as far as START looks at them, until something that START looks at
// changes in the slot. All other answers are good until something happens.

// Likeness is what a job that waits is like: the ads of two jobs of the same one are
// the same.
type Likeness struct {
	Needs         job.Needs
	Owner, Group  string
	Name, Account string
	Priority      int
	Number        int
	Submitted     int64 // Unix time in nanoseconds
}

// Alike is a job that may know its likeness.
type Alike interface {
	// Like returns it; false: there is no other like it.
	Like() (Likeness, bool)
	// AdOf returns the ad of one that does, with some of its attributes at least.
	AdOf(names []string) *classad.Ad
}

// aspects are parts of a likeness.
type aspects uint8

const (
	ofNeeds aspects = 1 << iota
	ofOwner
	ofGroup
	ofName
	ofAccount
	ofPriority
	ofNumber
	ofTime
	ofAll = ^aspects(0)
)

// aspectOf are the parts behind attributes of jobs, beside Request and the name of a
// resource. Any other attribute is taken to differ from job to job.
var aspectOf = map[string]aspects{
	"owner": ofOwner, "user": ofOwner, "ownergroup": ofGroup, "jobbatchname": ofName, "accountinggroup": ofAccount,
	"jobprio": ofPriority, "clusterid": ofNumber, "jobid": ofNumber, "qdate": ofTime,
	"pe": ofNeeds, "checkpoint": ofNeeds, "reserve": ofNeeds,
	"jobuniverse": 0, "jobstatus": 0, "procid": 0, "mytype": 0, "targettype": 0,
}

// about returns the parts of a likeness that an expression looks at.
func about(r *classad.References) aspects {
	if r.Any {
		return ofAll
	}
	var a aspects
	for _, name := range r.Target {
		name = strings.ToLower(name)
		of, ok := aspectOf[name]
		switch {
		case ok:
		case strings.HasPrefix(name, "request"):
			of = ofNeeds
		default:
			of = ofAll
		}
		a |= of
	}
	return a
}

// only returns a likeness with nothing but some parts.
func (l *Likeness) only(a aspects) Likeness {
	var some Likeness
	if a&ofNeeds != 0 {
		some.Needs = l.Needs
	}
	if a&ofOwner != 0 {
		some.Owner = l.Owner
	}
	if a&ofGroup != 0 {
		some.Group = l.Group
	}
	if a&ofName != 0 {
		some.Name = l.Name
	}
	if a&ofAccount != 0 {
		some.Account = l.Account
	}
	if a&ofPriority != 0 {
		some.Priority = l.Priority
	}
	if a&ofNumber != 0 {
		some.Number = l.Number
	}
	if a&ofTime != 0 {
		some.Submitted = l.Submitted
	}
	return some
}

// freshness is how long answers are good when nothing happens.
const freshness = time.Second

// maxRefusals bounds what is remembered of the slots of one queue.
const maxRefusals = 1 << 19

// round is a time in which nothing happens: its answers are good until it ends.
type round struct {
	number   int       // of the last one, from 1
	until    time.Time // zero: it is over
	versions int       // how often what START looks at has changed in any slot
	short    bool      // what is left of the host's disk, which others use as well, was too little
}

// begin returns the number of the round, of a new one if the last is over.
func (r *round) begin(now time.Time) int {
	if !now.Before(r.until) || now.Before(r.until.Add(-freshness)) {
		r.number++
		r.short = false
		r.until = now.Add(freshness)
	}
	return r.number
}

// end ends the round: something has happened.
func (r *round) end() { r.until = time.Time{} }

// asked is what the slots of a queue have answered.
type asked struct {
	round   int                         // of answers
	looks   aspects                     // at which START looks, of any of the slots
	names   []string                    // of the attributes behind them, in lower case; not nil
	any     bool                        // it may look at others as well
	bases   []*looked                   // what slots were found to be like in the round, the first few
	answers map[Likeness]answer         // of all slots together
	refused map[Likeness][]startRefused // by START, of each slot
}

// answer is how many slots are willing.
type answer struct {
	n, most int
	why     string
}

// startRefused is that START of a slot has refused a job.
type startRefused struct {
	version int // of the slot then; 0: it has not
	text    string
}

// looked is what a managed slot is like, for START.
type looked struct {
	round   int         // in which it was looked at
	ad      *classad.Ad // in the round
	basis   *classad.Ad // what START looks at of it
	version int         // of that: slots of the same one refuse the same
	value   string      // of the last refusal
	text    string      // the same in words, kept once
}

// opinion is what START of a slot says of a job.
type opinion struct {
	version int // of the slot; 0: it was not asked
	refused bool
	value   string // of START
}

// question is one that is asked of the slots of a queue.
type question struct {
	job       slot.Job
	ad        *classad.Ad // that START looks at; nil: it was not made yet
	has       int         // so many of asked.names are in it
	like      Likeness
	alike     bool
	near, far Likeness       // with what START looks at, and with all that slots look at
	refused   []startRefused // by START, of each slot; nil: it is not remembered
	last      opinion        // of the slot that was asked last
	others    bool           // a slot has answered otherwise than by START
}

// sameFor reports whether what was asked is answered alike for all jobs of an owner
// that need the same and have the same priority.
func (a *asked) sameFor(q *question) bool {
	return q.alike && a.looks&^(ofNeeds|ofOwner|ofPriority) == 0
}

// recall returns the answer to a question if it is known in this round, of a queue of so
// many slots.
func (a *asked) recall(round, slots int, q *question, most int) (answer, bool) {
	if a.round != round {
		a.round = round
		a.bases = a.bases[:0]
		clear(a.answers)
	}
	if !q.alike {
		return answer{}, false
	}
	if a.answers == nil {
		a.answers, a.refused = map[Likeness]answer{}, map[Likeness][]startRefused{}
	}
	q.near, q.far = q.like.only(a.looks), q.like.only(a.looks|ofNeeds)
	for _, key := range []*Likeness{&q.near, &q.far} {
		if known, ok := a.answers[*key]; ok && (known.n < known.most || most <= known.n) {
			return known, true
		}
	}
	q.refused = a.refused[q.near]
	if len(q.refused) < slots {
		if (len(a.refused)+1)*(slots+4) > maxRefusals {
			clear(a.refused)
		}
		q.refused = append(q.refused, make([]startRefused, slots-len(q.refused))...)
		a.refused[q.near] = q.refused
	}
	return answer{}, false
}

// keep remembers the answer to a question.
func (a *asked) keep(q *question, got answer) answer {
	if q.alike {
		key := q.near
		if q.others {
			key = q.far
		}
		a.answers[key] = got
	}
	return got
}

// maxBases is how many slots another is compared with.
const maxBases = 8

// look notes what a slot is like in the round, by its ad and what START refers to there. It
// reports whether START looks at more of a job than is known of the queue.
func (a *asked) look(r *round, l *looked, ad *classad.Ad, refs *classad.References) (more bool) {
	l.round, l.ad = r.number, ad
	var attrs []classad.Attr
	for _, name := range refs.My {
		if e, ok := ad.Lookup(name); ok {
			attrs = append(attrs, classad.Attr{Name: name, Expr: e})
		}
	}
	basis := classad.New(attrs...)
	changing := refs.Time || refs.Random || refs.Any
	if l.basis == nil || changing || !basis.Equal(l.basis) {
		r.versions++
		l.version = r.versions
	}
	l.basis = basis
	if !changing {
		a.liken(l)
	}
	looks := about(refs)
	more = looks&^a.looks != 0
	a.looks |= looks
	a.any = a.any || refs.Any
	if a.names == nil {
		a.names = []string{}
	}
	for _, name := range refs.Target {
		if name = strings.ToLower(name); !slices.Contains(a.names, name) {
			a.names = append(a.names, name)
		}
	}
	return more
}

// liken gives a slot the version of another for which START is the same.
func (a *asked) liken(l *looked) {
	for _, other := range a.bases {
		if other.basis.Equal(l.basis) {
			l.version = other.version
			return
		}
	}
	if len(a.bases) < maxBases {
		a.bases = append(a.bases, l)
	}
}

// jobAd returns the ad of the job for START. Thousands of jobs wait, with dozens of
// attributes: only those that START can look at are made.
func (a *asked) jobAd(q *question) *classad.Ad {
	alike, ok := q.job.(Alike)
	if !ok || !q.alike || a.any {
		return q.job.Ad()
	}
	if q.ad == nil || q.has < len(a.names) {
		q.ad, q.has = alike.AdOf(a.names), len(a.names)
	}
	return q.ad
}
