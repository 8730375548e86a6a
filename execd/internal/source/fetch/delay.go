package fetch

import (
	"fmt"
	"time"

	"paddock/classad"
	"paddock/execd/internal/conf/knob"
	"paddock/internal/backoff"
)

const (
	// defaultDelay is between two questions where FetchWorkDelay is not set or
	// makes no sense (REQ-HOOK-75).
	defaultDelay = 300 * time.Second
	// maxDelay keeps a number of seconds a duration.
	maxDelay = 365 * 24 * time.Hour
	// emptyPace is the least time between the beginnings of two questions of a slot in
	// the same state when the first brought nothing: with a delay of 0 a hook that has
	// nothing to say would run without a break. One that waits for work itself does not
	// notice.
	emptyPace = time.Second
	// clockPace is after how long a delay is evaluated again that depends on more
	// than the slot's state, while it lasts.
	clockPace = time.Minute
)

// delay evaluates FetchWorkDelay with the slot's ad as MY and that of the running
// job as TARGET: the time from the end of one question to the next (REQ-HOOK-71,
// -72). problem says why the default was taken although it is set. changing says
// that it may be another one by the time alone.
func delay(knobs *knob.Set, slot, job *classad.Ad, now time.Time) (d time.Duration, changing bool, problem string) {
	e, ok := knobs.Expr("FetchWorkDelay")
	if !ok {
		return defaultDelay, false, ""
	}
	refs := e.References(slot, job)
	changing = refs.Time || refs.Any
	for _, name := range []string{"MyCurrentTime", "ClockMin", "ClockDay", "LoadAvg", "CondorLoadAvg", "KeyboardIdle", "ConsoleIdle", "CpusUsage"} {
		changing = changing || refs.Has(name)
	}
	env := &classad.Env{My: slot, Target: job, Now: now}
	v := env.Eval(e)
	n, ok := v.Int()
	switch {
	case !ok && v.Kind() == classad.ErrorKind:
		return defaultDelay, changing, fmt.Sprintf("FetchWorkDelay is an error: %s", v.Reason())
	case !ok && v.Kind() == classad.UndefinedKind:
		return defaultDelay, changing, ""
	case !ok:
		return defaultDelay, changing, fmt.Sprintf("FetchWorkDelay is %v, and not a whole number of seconds", v)
	}
	return min(time.Duration(min(max(n, 0), int64(maxDelay/time.Second)))*time.Second, maxDelay), changing, ""
}

// pauses are how long a hook that fails again and again is left alone when its delay
// is shorter.
var pauses = backoff.Doubling{First: time.Second, Most: 300 * time.Second}
