// Package policy evaluates the expressions by which a job says itself what is to become of
// it, the attributes PeriodicHold, OnExitRemove and others of qsub -attr: see job(5). Who
// supervises a run has a Watch of it, and of jobs that wait a Keeper does the same, so that
// of a job there is always one who evaluates.
//
// Users write the expressions. What one look at a job may cost is bounded, and what is no
// value of the right kind is not true. Nothing here knows where a run is, or carries a
// verdict out. Packages of execd import it.
package policy

import (
	"slices"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/api"
)

// The attributes that are evaluated. Each but the three that are numbers may have its reason
// and the subcode of a hold beside it: PeriodicHoldReason, PeriodicHoldSubCode.
const (
	TimerRemove            = "TimerRemove"            // seconds since 1970 after which the job is deleted
	AllowedJobDuration     = "AllowedJobDuration"     // seconds that a run may last
	AllowedExecuteDuration = "AllowedExecuteDuration" // seconds that its processes may
	PeriodicHold           = "PeriodicHold"
	PeriodicRelease        = "PeriodicRelease"
	PeriodicRemove         = "PeriodicRemove"
	OnExitHold             = "OnExitHold"
	OnExitRemove           = "OnExitRemove" // false: the job runs again
)

var rules = []string{
	TimerRemove, AllowedJobDuration, AllowedExecuteDuration, PeriodicHold, PeriodicRelease, PeriodicRemove, OnExitHold, OnExitRemove,
}

// HTCondor's codes of holds.
const (
	CodeJob       = 3  // the policy of the job wants it
	CodeUndefined = 5  // an expression of the policy has no value
	codeDuration  = 46 // longer than AllowedJobDuration
	codeExecuting = 47 // longer than AllowedExecuteDuration
)

// Action is what is to become of a job.
type Action int

// The actions.
const (
	Stay    Action = iota // it goes on as it does
	Hold                  // it waits until it is released
	Release               // it does not wait any more
	Remove                // it is deleted or, if it has ended, is over
	Again                 // it has ended, and runs again
)

// Verdict is what the policy of a job says.
type Verdict struct {
	Action
	Rule          string // the attribute that says so
	Reason        string // the reason that the job gives, or what was found; one line
	Code, Subcode int    // of Hold
}

// By is who does it, as one who deletes a job is named.
func (v *Verdict) By() string { return v.Rule + " (" + v.Reason + ")" }

// Any reports whether there is a policy among the attributes of qsub -attr.
func Any(attributes []string) bool {
	return slices.ContainsFunc(attributes, func(text string) bool {
		name, _, _ := api.CutAttribute(text)
		return slices.ContainsFunc(rules, func(rule string) bool { return strings.EqualFold(rule, name) })
	})
}

// Times are when a run was begun, and its processes; zero: they are not yet.
type Times struct{ Started, Executing time.Time }

// maxSteps bounds what one look at a job costs.
const maxSteps = 50_000

// look is one look at a job.
type look struct {
	env classad.Env
}

func newLook(job *classad.Ad, now time.Time) *look {
	steps := maxSteps
	return &look{classad.Env{My: job, Now: now, Steps: &steps}}
}

// running judges a job that runs, and says when to look again.
func running(job *classad.Ad, t Times, now time.Time, every time.Duration) (Verdict, time.Time) {
	l := newLook(job, now)
	for _, d := range l.deadlines(t) {
		if !now.Before(d.at) {
			return d.verdict, time.Time{}
		}
	}
	if v := l.periodic(); v.Action != Stay {
		return v, time.Time{}
	}
	return Verdict{}, l.next(t, every, PeriodicHold, PeriodicRemove)
}

// Ended judges a job that has come to its own end, which its ad tells.
func Ended(job *classad.Ad, now time.Time) Verdict {
	l := newLook(job, now)
	if at, ok := l.timerRemove(); ok && !now.Before(at) {
		return l.removed(at)
	}
	if v := l.periodic(); v.Action != Stay {
		return v
	}
	if v := l.value(OnExitHold); v.True() {
		return l.verdict(Hold, OnExitHold)
	} else if _, ok := v.Bool(); !ok && l.has(OnExitHold) {
		return l.undefined(OnExitHold, v)
	}
	switch v := l.value(OnExitRemove); {
	case !l.has(OnExitRemove), v.True():
		return Verdict{}
	case v.Kind() == classad.UndefinedKind, v.Kind() == classad.ErrorKind:
		return l.undefined(OnExitRemove, v)
	}
	return l.verdict(Again, OnExitRemove)
}

// waiting judges a job that does not run, and says when to look again. One that is held is not
// released sooner than expressions that change with the time are looked at: it may be held
// again at once.
func waiting(job *classad.Ad, held, now time.Time, every time.Duration) (Verdict, time.Time) {
	l := newLook(job, now)
	var again time.Time
	at, ok := l.timerRemove()
	switch due := held.Add(every); {
	case ok && !now.Before(at):
		return l.removed(at), again
	case !held.IsZero() && !now.Before(due) && l.value(PeriodicRelease).True():
		return l.verdict(Release, PeriodicRelease), again
	case l.value(PeriodicRemove).True():
		return l.verdict(Remove, PeriodicRemove), again
	case held.IsZero():
		again = l.next(Times{}, every, PeriodicRemove)
	case now.Before(due) && l.has(PeriodicRelease):
		again = sooner(due, l.next(Times{}, every, PeriodicRemove))
	default:
		again = l.next(Times{}, every, PeriodicRelease, PeriodicRemove)
	}
	return Verdict{}, again
}

// next is when another look at a job may say something else though nothing happens, by some
// of its rules; zero: never. Every is how often one looks that changes with the time.
func (l *look) next(t Times, every time.Duration, rules ...string) (next time.Time) {
	for _, d := range l.deadlines(t) {
		next = sooner(next, d.at)
	}
	if slices.ContainsFunc(rules, l.timed) {
		next = sooner(next, l.env.Now.Add(every))
	}
	return next
}

// sooner returns the sooner of two times, of which zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// timed reports whether an expression changes with the time.
func (l *look) timed(rule string) bool {
	e, ok := l.env.My.Lookup(rule)
	return ok && e.References(l.env.My, nil).Time
}

// deadline is a time at which something becomes of a job.
type deadline struct {
	at      time.Time
	verdict Verdict
}

// deadlines are those of the attributes that are numbers, in the order in which they count.
func (l *look) deadlines(t Times) (list []deadline) {
	if at, ok := l.timerRemove(); ok {
		list = append(list, deadline{at, l.removed(at)})
	}
	for _, d := range []struct {
		rule  string
		since time.Time
		code  int
	}{{AllowedJobDuration, t.Started, codeDuration}, {AllowedExecuteDuration, t.Executing, codeExecuting}} {
		n, ok := l.seconds(d.rule)
		if ok && !d.since.IsZero() {
			length := time.Duration(n) * time.Second
			list = append(list, deadline{d.since.Add(length), Verdict{Action: Hold, Rule: d.rule, Reason: d.rule + ": it has run for " + length.String(), Code: d.code}})
		}
	}
	return list
}

// maxSeconds bounds numbers of seconds, of which a time.Duration holds 292 years: more are for ever.
const maxSeconds = 1 << 33

// seconds returns the value of an attribute that is a number of seconds.
func (l *look) seconds(rule string) (int64, bool) {
	f, ok := l.value(rule).Number()
	return int64(f), ok && f >= 0 && f < maxSeconds
}

// timerRemove is from when on the job is to be deleted: the second after TimerRemove.
func (l *look) timerRemove() (time.Time, bool) {
	n, ok := l.seconds(TimerRemove)
	return time.Unix(n+1, 0), ok
}

func (l *look) removed(at time.Time) Verdict {
	return Verdict{Action: Remove, Rule: TimerRemove, Reason: at.Add(-time.Second).Format(time.DateTime)}
}

// periodic judges a job that runs by the expressions that are looked at time and again.
func (l *look) periodic() Verdict {
	switch {
	case l.value(PeriodicHold).True():
		return l.verdict(Hold, PeriodicHold)
	case l.value(PeriodicRemove).True():
		return l.verdict(Remove, PeriodicRemove)
	}
	return Verdict{}
}

func (l *look) value(name string) classad.Value { return l.env.Attr(name) }

func (l *look) has(name string) bool {
	_, ok := l.env.My.Lookup(name)
	return ok
}

// verdict is one for a rule, with the reason that the job gives for it.
func (l *look) verdict(do Action, rule string) Verdict {
	v := Verdict{Action: do, Rule: rule}
	if text, ok := l.value(rule + "Reason").Str(); ok && text != "" {
		v.Reason = api.Visible(text[:min(len(text), maxReason)])
	} else {
		word := " is true: "
		if do == Again {
			word = " is false: "
		}
		v.Reason = rule + word + l.text(rule)
	}
	if do == Hold {
		v.Code = CodeJob
		if n, ok := l.value(rule + "SubCode").Int(); ok && n == int64(int32(n)) {
			v.Subcode = int(n)
		}
	}
	return v
}

// undefined holds a job of which nobody knows what it wants.
func (l *look) undefined(rule string, v classad.Value) Verdict {
	reason := rule + " has no value: " + l.text(rule)
	if why := v.Reason(); why != "" {
		reason += ": " + why
	}
	return Verdict{Action: Hold, Rule: rule, Reason: api.Visible(reason), Code: CodeUndefined}
}

// maxReason bounds the reason that a job gives, in bytes.
const maxReason = 1024

// text returns an expression as it stands in the ad.
func (l *look) text(rule string) string {
	e, _ := l.env.My.Lookup(rule)
	return api.Visible(api.Short(e.String()))
}
