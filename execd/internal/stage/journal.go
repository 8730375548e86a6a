package stage

import (
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/exit"
	"paddock/spool"
)

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
	Warned    EventKind = "warned"    // a hook has something to say
	Held      EventKind = "held"      // it could not be prepared, and waits for somebody to look
	Postponed EventKind = "postponed" // it could not be prepared, and is tried again, or is nobody's to hold
	Over      EventKind = "over"      // it has ended
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
}

// outbox does what writes into files of users, one after the other, in a goroutine
// of its own: their file systems may hang.
type outbox struct {
	mu   sync.Mutex
	list []func() // guarded by mu
	busy bool     // guarded by mu
}

// maxWaiting is how many events of a run wait to be written. Its user decides how
// long a write takes, and how often he suspends his job.
const maxWaiting = 64

// put has something written. What may be missing is not when too much waits, and
// reports false.
func (o *outbox) put(write func(), mayBeMissing bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if mayBeMissing && len(o.list) >= maxWaiting {
		return false
	}
	o.list = append(o.list, write)
	if !o.busy {
		o.busy = true
		go o.work()
	}
	return true
}

func (o *outbox) work() {
	for {
		o.mu.Lock()
		if len(o.list) == 0 {
			o.busy = false
			o.mu.Unlock()
			return
		}
		write := o.list[0]
		o.list = o.list[1:]
		o.mu.Unlock()
		write()
	}
}

// happened tells the journal of an event of a run that goes on. One that cannot be
// written is not tried again: it is said in our log.
func (r *Runner) happened(l *life, of Event) {
	if !l.journal {
		return
	}
	e := of // what the write below refers to; most runs have none
	e.Task, e.Time, e.Scratch = l.task, time.Now(), r.scratch(l)
	_ = l.outbox.put(func() {
		if err := r.Journal.Record(e); err != nil {
			r.Log.Warn("job " + l.task.String() + ": event log: " + err.Error())
		}
	}, true)
}

// scratch is the scratch directory of a run; empty: it has none any more.
func (r *Runner) scratch(l *life) string {
	d, _, err := r.Launcher.Find(l.task.RunID())
	if err != nil {
		return ""
	}
	config, err := d.Config()
	if err != nil {
		return ""
	}
	path, _ := config.Lookup(spool.KeyTmpdir)
	return path
}

// writing is a write that a step of the end waits for.
type writing struct {
	step string
	done bool
	err  error
}

// write has the journal write for a step of the end, behind all that is still to be
// written of the run. l.mu is held.
func (l *life) write(step string, do func() error) (exit.Result, error) {
	w := l.writing
	switch {
	case w == nil || w.step != step:
		w = &writing{step: step}
		l.writing = w
		_ = l.outbox.put(func() {
			err := do()
			l.event(func() { w.done, w.err = true, err })
		}, false)
		return exit.InProgress, nil
	case !w.done:
		return exit.InProgress, nil
	}
	l.writing = nil
	if w.err != nil {
		return exit.Failed, &exit.Retry{Err: w.err}
	}
	return exit.Done, nil
}
