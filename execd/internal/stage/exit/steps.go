// Package exit is what follows the end of a job: the list of the processes of
// one activation (List), and the steps from the last of their ends to the last
// trace of the job (Pipeline), which an adapter carries out for whoever the job
// came from (Controller). It is a machine and nothing else: no clock, no file,
// no goroutine. Every event enters it at the top; what was done answers at
// once, so that a retry reaches the step that failed without a second side
// effect. Package stage, those below it and those of the steps themselves use it:
// journal, sandbox and shadow. It imports nothing of the project but the pauses of
// internal/backoff.
package exit

import (
	"errors"
	"time"

	"paddock/internal/backoff"
)

// Result is how a step stands.
type Result int

// The results.
const (
	// Done: the step was carried out, and is never to be carried out again.
	Done Result = iota
	// Nothing: there was nothing to do. It counts as done, and is not worth to
	// be written down.
	Nothing
	// InProgress: it was begun, and an event will tell of its end. No later
	// step may begin.
	InProgress
	// Failed: it may be tried again, when something enters the machine.
	Failed
)

func (r Result) String() string {
	switch r {
	case Done:
		return "done"
	case Nothing:
		return "nothing to do"
	case InProgress:
		return "in progress"
	case Failed:
		return "failed"
	}
	return "unknown"
}

// Over reports whether the next step may begin.
func (r Result) Over() bool { return r == Done || r == Nothing }

// Step is a part of the work with a name, by which it is remembered.
type Step struct {
	Name string
	// Do carries it out. The error says why it failed, or, of a step that waits
	// for something outside, what it waits for.
	Do func() (Result, error)
}

// StepError is the error of a step.
type StepError struct {
	Step string
	Err  error
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// Retry is the error of what failed for a reason that may pass: it is to be tried again.
type Retry struct{ Err error }

func (e *Retry) Error() string { return e.Err.Error() }

// Again reports whether what failed is worth another attempt, after so many that failed:
// half a minute in all, as name services may be busy, or be started anew. But what is
// wrong with one user must not hold up the slots of all.
func Again(err error, attempts int) bool {
	_, retry := errors.AsType[*Retry](err)
	return retry && attempts < 5
}

// Retries are the pauses before attempts at what has failed.
var Retries = backoff.Doubling{First: time.Second, Most: time.Minute}

// Marks remembers which steps are over. The zero value knows of none.
type Marks struct {
	// Keep writes down that a step is done, before the next one begins; nil:
	// memory is enough. It is called again until it succeeds.
	Keep func(step string) error

	over map[string]bool // false: done, and not kept yet
}

// Set marks a step that an earlier execd has done.
func (m *Marks) Set(step string) { m.set(step, true) }

// Over reports whether a step is done, or had nothing to do.
func (m *Marks) Over(step string) bool {
	_, ok := m.over[step]
	return ok
}

func (m *Marks) set(step string, kept bool) {
	if m.over == nil {
		m.over = map[string]bool{}
	}
	m.over[step] = kept
}

// Run carries out the steps that are not over, in their order, up to the first
// that is not over then. Of that it returns the result.
func (m *Marks) Run(steps []Step) (Result, error) {
	for _, s := range steps {
		kept, over := m.over[s.Name]
		if !over {
			result, err := s.Do()
			switch {
			case err != nil && result.Over():
				return Failed, &StepError{s.Name, err}
			case err != nil:
				return result, &StepError{s.Name, err}
			case !result.Over():
				return result, nil
			}
			kept = result == Nothing || m.Keep == nil
			m.set(s.Name, kept)
		}
		if kept {
			continue
		}
		if err := m.Keep(s.Name); err != nil {
			return Failed, &StepError{s.Name, err}
		}
		m.set(s.Name, true)
	}
	return Done, nil
}
