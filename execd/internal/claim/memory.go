package claim

import (
	"slices"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
)

// The scheduler asks again and again whether slots are willing to run thousands of jobs.
// A refusal by START of a slot is therefore remembered for all jobs whose attributes that
// START refers to are the same, until an attribute of the slot that START refers to
// changes. All other answers are good until something happens.

// Likeness is what the ad of a waiting job is made from: jobs with the same likeness have
// the same ad.
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
	// Like returns the likeness; false: no other job is alike.
	Like() (Likeness, bool)
	// AdOf returns the ad of a job with a likeness, with at least the named attributes.
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

// aspectOf has the parts from which attributes of jobs are made, besides Request and the
// name of a resource. Any other attribute is taken to differ from job to job.
var aspectOf = map[string]aspects{
	"owner": ofOwner, "user": ofOwner, "ownergroup": ofGroup, "jobbatchname": ofName, "accountinggroup": ofAccount,
	"jobprio": ofPriority, "clusterid": ofNumber, "jobid": ofNumber, "qdate": ofTime,
	"pe": ofNeeds, "checkpoint": ofNeeds, "reserve": ofNeeds,
	"jobuniverse": 0, "jobstatus": 0, "procid": 0, "mytype": 0, "targettype": 0,
}

// about returns the parts of a likeness that an expression refers to.
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

// only returns the likeness with only some of its parts.
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

// freshness is how long answers are good if nothing happens.
const freshness = time.Second

// maxRefusals bounds the refusals that are remembered for one queue.
const maxRefusals = 1 << 19

// round is a time in which nothing happens: its answers are good until it ends.
type round struct {
	number   int       // of the last one, from 1
	until    time.Time // zero: it is over
	versions int       // how often attributes that START refers to have changed in any slot
	short    bool      // too little was left of the disk, which others use as well
}

// begin returns the number of the round, and begins a new one if the last is over.
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

// asked has the answers of the slots of a queue.
type asked struct {
	round   int                         // to which answers belong
	looks   aspects                     // to which START refers in any of the slots
	names   []string                    // of the attributes behind them, in lower case; not nil
	any     bool                        // START may refer to others as well
	bases   []*looked                   // the first few slots of the round, to compare others with
	answers map[Likeness]answer         // of all slots together
	refused map[Likeness][]startRefused // by START, of each slot
}

// answer is how many slots are willing.
type answer struct {
	n, most int
	why     string
}

// startRefused is a refusal of a job by START of a slot.
type startRefused struct {
	version int // of the slot then; 0: it has not
	text    string
}

// looked is what START sees of a managed slot.
type looked struct {
	round   int         // in which it was looked at
	ad      *classad.Ad // in the round
	basis   *classad.Ad // the attributes to which START refers
	version int         // of basis: slots with the same version refuse the same jobs
	value   string      // of the last refusal
	text    string      // the same in words, kept once
}

// opinion is the value of START of a slot for a job.
type opinion struct {
	version int // of the slot; 0: it was not asked
	refused bool
	value   string // of START
}

// question is a job for which the slots of a queue are asked.
type question struct {
	job       slot.Job
	ad        *classad.Ad // for START; nil: it was not made yet
	has       int         // how many of asked.names are in it
	like      Likeness
	alike     bool
	near, far Likeness       // with the parts for START, and with the parts for all of a slot's rules
	refused   []startRefused // by START, of each slot; nil: it is not remembered
	last      opinion        // of the slot that was asked last
	others    bool           // a slot has answered by another rule than START
}

// sameFor reports whether a question has the same answer for all jobs of an owner that
// need the same and have the same priority.
func (a *asked) sameFor(ask *question) bool {
	return ask.alike && a.looks&^(ofNeeds|ofOwner|ofPriority) == 0
}

// recall returns the answer to a question if it is known in this round. Slots is the number
// of slots of the queue.
func (a *asked) recall(round, slots int, ask *question, most int) (answer, bool) {
	if a.round != round {
		a.round = round
		a.bases = a.bases[:0]
		clear(a.answers)
	}
	if !ask.alike {
		return answer{}, false
	}
	if a.answers == nil {
		a.answers, a.refused = map[Likeness]answer{}, map[Likeness][]startRefused{}
	}
	ask.near, ask.far = ask.like.only(a.looks), ask.like.only(a.looks|ofNeeds)
	for _, key := range []*Likeness{&ask.near, &ask.far} {
		if known, ok := a.answers[*key]; ok && (known.n < known.most || most <= known.n) {
			return known, true
		}
	}
	ask.refused = a.refused[ask.near]
	if len(ask.refused) < slots {
		if (len(a.refused)+1)*(slots+4) > maxRefusals {
			clear(a.refused)
		}
		ask.refused = append(ask.refused, make([]startRefused, slots-len(ask.refused))...)
		a.refused[ask.near] = ask.refused
	}
	return answer{}, false
}

// keep remembers the answer to a question.
func (a *asked) keep(ask *question, got answer) answer {
	if ask.alike {
		key := ask.near
		if ask.others {
			key = ask.far
		}
		a.answers[key] = got
	}
	return got
}

// maxBases is the number of slots with which another is compared.
const maxBases = 8

// look notes what START sees of a slot in the round, by its ad and the attributes to which
// START refers. It reports whether START refers to more attributes of a job than is known
// for the queue.
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

// liken gives a slot the version of another one that START cannot distinguish from it.
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
// attributes, so only those to which START can refer are made.
func (a *asked) jobAd(ask *question) *classad.Ad {
	alike, ok := ask.job.(Alike)
	if !ok || !ask.alike || a.any {
		return ask.job.Ad()
	}
	if ask.ad == nil || ask.has < len(a.names) {
		ask.ad, ask.has = alike.AdOf(a.names), len(a.names)
	}
	return ask.ad
}
