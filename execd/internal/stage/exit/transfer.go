package exit

import (
	"errors"
	"fmt"
)

// MaxTransfers is how often a transfer that fails for a reason that may pass is
// tried before it is given up.
const MaxTransfers = 5

// Permanent is the error of a transfer that no second attempt would mend.
type Permanent struct {
	Errno int // why; 0: not known
	Err   error
}

func (e *Permanent) Error() string { return e.Err.Error() }
func (e *Permanent) Unwrap() error { return e.Err }

// Cancelled is the error of a transfer that was ended before its time. It counts as no
// attempt.
type Cancelled struct{ Err error }

func (e *Cancelled) Error() string { return e.Err.Error() }
func (e *Cancelled) Unwrap() error { return e.Err }

// GivenUp says what became of a transfer that did not succeed. It is written down
// with the step, so that it counts for the next execd as well.
type GivenUp struct {
	Hold    bool   `json:"hold,omitempty"` // else the job runs again
	Code    int    `json:"code,omitempty"` // of the hold
	Subcode int    `json:"subcode,omitempty"`
	Reason  string `json:"reason"`
}

// Transfer is a transfer as a step: it runs elsewhere, one at a time, and its end
// enters the pipeline again.
type Transfer struct {
	// Code is HoldOutput or HoldInput.
	Code int
	// Most is after how many attempts it is given up; 0: it never is, whatever the
	// failure is, and Lost decides when it is tried again.
	Most int
	// Start begins it and returns at once. It calls done, once, at its end.
	Start func(done func(error))
	// Event has something happen to the step, and enters the pipeline at its top
	// after it.
	Event func(func())
	// Lost is told of a failure for which it is not given up, the attempt's: nothing is
	// tried before Reconnected is called.
	Lost func(attempt int, err error)

	active, over, waits bool
	attempts            int
	failed              *GivenUp
}

// Step is the transfer's step.
func (t *Transfer) Step() (Result, error) {
	switch {
	case t.over:
		return Done, nil
	case t.active:
		return InProgress, nil
	case t.waits:
		return Failed, errors.New("waits: reconnect")
	}
	t.active = true
	t.attempts++
	t.Start(func(err error) { t.Event(func() { t.ended(err) }) })
	return InProgress, nil
}

// ended takes note of the end of an attempt.
func (t *Transfer) ended(err error) {
	t.active = false
	var permanent *Permanent
	var cancelled *Cancelled
	switch {
	case err == nil:
		t.over = true
	case errors.As(err, &cancelled):
		t.attempts-- // whether there is to be another one its caller knows
	case t.Most > 0 && errors.As(err, &permanent):
		t.over, t.failed = true, &GivenUp{Hold: true, Code: t.Code, Subcode: permanent.Errno, Reason: err.Error()}
	case t.Most > 0 && t.attempts >= t.Most:
		t.over, t.failed = true, &GivenUp{Reason: fmt.Sprintf("%v (after %d attempts)", err, t.attempts)}
	default:
		t.waits = true
		t.Lost(t.attempts, err)
	}
}

// Active reports whether an attempt is under way.
func (t *Transfer) Active() bool { return t.active }

// Reconnected is called when there is a connection again: the next step tries it.
func (t *Transfer) Reconnected() { t.waits = false }

// GivenUp returns what became of a transfer that is over and did not succeed;
// nil: it did.
func (t *Transfer) GivenUp() *GivenUp { return t.failed }

// Ending is what is known of a job when it is asked whether its output is
// transferred.
type Ending struct {
	SetUp      bool // all before the job was done, and it was started
	Word       Word
	OnEviction bool // the job wants it when it is evicted
	Final      bool // who removes it wants it
	Fast       bool // the host is in a hurry
}

// WantsOutput reports whether the output of a job is transferred.
func WantsOutput(e Ending) bool {
	switch {
	case !e.SetUp:
		return false
	case e.Word == WordExit:
		return true
	case e.Word == WordRemove:
		return e.Final
	}
	return e.OnEviction && !e.Fast
}
