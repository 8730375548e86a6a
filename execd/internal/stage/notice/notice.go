// Package notice tells the owner of a job what happens to its runs: by the event log that
// the job asks for, by its ad when it has ended, and by mail. Nobody waits for his files
// or for the name services but the steps of the end. Package stage and its packages use
// it, and package journal writes the files.
package notice

import (
	"time"

	"paddock/classad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/serial"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
)

// Notices are those of one run.
type Notices struct {
	host  *base.Host
	of    *job.Task
	event func(func()) // has something happen to the run, and leads it on

	journal Journal // nil: nothing is written into files of its owner
	events  serial.Queue
	letters serial.Queue // mails while it goes on
	writing *writing     // nil: none is waited for
}

// maxWaiting is how many events of a run wait to be written into files of its user,
// whose file systems may hang. He decides how long a write takes, and how often he
// suspends his job.
const maxWaiting = 64

// Init makes them those of a run. Event has something happen to it, and leads it on.
func (n *Notices) Init(h *base.Host, of *job.Task, event func(func())) {
	n.host, n.of, n.event = h, of, event
}

// Find finds out whether the job wants an event log or its ad of a journal, or of nil.
func (n *Notices) Find(j Journal) {
	if j != nil && !j.Wants(n.of) {
		j = nil
	}
	n.journal = j
}

// On reports whether it does.
func (n *Notices) On() bool { return n.journal != nil }

// Happened tells the journal of an event of a run that goes on. One that cannot be
// written is not tried again: it is said in our log.
func (n *Notices) Happened(of Event) {
	if !n.On() {
		return
	}
	e, j := of, n.journal // what the write below refers to; most runs have none
	e.Task, e.Time, e.Scratch = n.of, time.Now(), n.host.Launcher.Scratch(n.of.RunID())
	_ = n.events.AddBelow(maxWaiting, func() {
		if err := j.Record(e); err != nil {
			n.host.Log.Warn("job " + n.of.String() + ": event log: " + err.Error())
		}
	})
}

// writing is a write that a step of the end waits for.
type writing struct {
	step string
	done bool
	err  error
}

// Write has the journal write, behind all that is still to be written of the run, as a step
// of its end. The list of steps is entered again when it has.
func (n *Notices) Write(step string, e Event, do func(Journal, Event) error) (exit.Result, error) {
	w := n.writing
	switch {
	case w == nil || w.step != step:
		w = &writing{step: step}
		n.writing = w
		j := n.journal
		n.events.Add(func() {
			err := do(j, e)
			n.event(func() { w.done, w.err = true, err })
		})
		return exit.InProgress, nil
	case !w.done:
		return exit.InProgress, nil
	}
	n.writing = nil
	if w.err != nil {
		return exit.Failed, &exit.Retry{Err: w.err}
	}
	return exit.Done, nil
}

// Journal writes what happens to jobs into files of their owners: the event log
// that a job asks for, and its ad when it has ended. A failure is tried again, for
// as long as it takes; what returned nil is not repeated.
type Journal interface {
	// Wants reports whether anything is written of a job. It is asked once for
	// each run and must be cheap for a job that asks for nothing.
	Wants(t *job.Task) bool
	// Record writes an event of a run. Events of one run come one after the other.
	Record(e Event) error
	// WriteAd writes the ad of a run that has ended, if the job wants it.
	WriteAd(e Event) error
}

// EventKind says what has happened.
type EventKind string

// What happens to a run.
const (
	Executing EventKind = "executing" // its process was started
	Suspended EventKind = "suspended"
	Resumed   EventKind = "resumed"
	Warned    EventKind = "warned"    // a hook or a transfer has something to say
	Held      EventKind = "held"      // it could not be prepared, and waits for somebody to look
	Postponed EventKind = "postponed" // it could not be prepared, and is tried again, or is nobody's to hold
	Grown     EventKind = "grown"     // it uses more memory than was told before
	Travels   EventKind = "travels"   // its files do, into its sandbox or out of it
	Over      EventKind = "over"      // it has ended

	Disconnected    EventKind = "disconnected"     // its host does not answer
	Reconnected     EventKind = "reconnected"      // it does again
	ReconnectFailed EventKind = "reconnect failed" // it is not waited for any more
)

// Event is one entry of an event log.
type Event struct {
	Kind          EventKind
	Task          *job.Task
	Time          time.Time
	Text          string      // why, in words
	Code, Subcode int         // of Held: why, as a hold says it; of Over: why it had to leave its slot, 0 if it had not
	Ad            *classad.Ad // of the job, as it is then
	End           *job.End    // of Over
	Scratch       string      // its scratch directory; empty: it is gone
	Exit          exit.Code   // of Over: how it ended
	Status        exit.Status // of Over: of the job's process; the zero Status when it never ran
	Travel        Travel      // of Travels
}

// Travel is how files travel.
type Travel struct {
	Output bool // out of the sandbox
	Phase  Phase
	Waited time.Duration // of Began: for its turn
}

// Phase is how far they are.
type Phase int

// The phases.
const (
	NotYet Phase = iota
	Queued       // they wait for their turn
	Began        // they are on their way
	Arrived
)
