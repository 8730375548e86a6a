package sandbox

import (
	"slices"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/sandbox/order"
)

// outbox has the runs that are over and whose output is still in their sandboxes. Its lock
// is held for a moment, since those who ask hold others.
type outbox struct {
	mu   sync.Mutex
	runs []*leaving // guarded by mu; in the order in which they ended
}

// leaving is one of them.
type leaving struct {
	job.Leaving
	task    *job.Task
	counted bool      // KiB is what the file system counts
	arrived bool      // and its sandbox is still there
	told    time.Time // when somebody was told of its size
}

// Freeze notes that a run is over and that its output leaves its sandbox from now on. Slot
// is its first one, by its number in the queue. A second call for a run does nothing.
func (m *Manager) Freeze(t *job.Task, slot int) {
	s := t.Start.Sandbox
	l := job.Leaving{Task: t.String(), ID: s.ID, Claim: t.Start.Claim, Queue: t.Start.Queue, Slot: slot}
	for _, c := range t.Start.Carved {
		if c.Queue == l.Queue {
			l.Dynamic = c.Slot
			break
		}
	}
	bytes, counted := m.used(s)
	if counted {
		l.KiB = (bytes + 1023) >> 10
	} else if stuck := m.Store.Stuck(t); stuck != nil {
		l.KiB = min(max(stuck.KiB, 0), mostKiB)
	}
	m.out.mu.Lock()
	defer m.out.mu.Unlock()
	if m.out.of(t) == nil {
		m.out.runs = append(m.out.runs, &leaving{Leaving: l, task: t, counted: counted})
	}
}

// Refreeze freezes the runs again whose output was leaving when the execd before ended, by
// job and task. Call it before any of them goes on.
func (m *Manager) Refreeze() {
	for _, t := range m.Store.Unfinished() {
		s := t.Start.Sandbox
		if s == nil || t.Start.Remote != nil {
			continue
		}
		if m.Store.State(t) == job.Over {
			m.Freeze(t, s.Slot)
		}
		if carriage(t) == nil {
			continue
		}
		g := m.gate(t)
		if !m.Claimed(t.Start.Claim) { // whoever it was may still come for it
			m.gates.mu.Lock()
			m.detach(g)
			m.gates.mu.Unlock()
		}
	}
}

// of returns the entry of a run, nil if it has none. o.mu is held.
func (o *outbox) of(t *job.Task) *leaving {
	for _, l := range o.runs {
		if l.task == t {
			return l
		}
	}
	return nil
}

// Arrived notes that the output of a run travels no more: it is where it belongs, or nobody
// wants it. Its sandbox is still there.
func (m *Manager) Arrived(t *job.Task) {
	m.heard(t)
	m.out.mu.Lock()
	defer m.out.mu.Unlock()
	if l := m.out.of(t); l != nil {
		l.arrived = true
	}
}

// mostKiB bounds what a transfer, which has the rights of a user, may say of its size.
const mostKiB = 1 << 40

// measured takes over what a transfer has found that it transfers, which is all that is
// known of the size where nothing else measures it.
func (m *Manager) measured(t *job.Task, p order.Progress) {
	if m.out.measured(t, p.Total, time.Now()) {
		m.Changed()
	}
}

// retold is the least time between two changes of one size of which anybody is told: a
// process of the user's reports them.
const retold = time.Second

// measured takes over a size, and reports whether that is to be told.
func (o *outbox) measured(t *job.Task, bytes int64, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.of(t)
	if l == nil || l.counted || bytes <= 0 {
		return false
	}
	kib := min((bytes-1)>>10+1, mostKiB)
	if kib == l.KiB {
		return false
	}
	l.KiB = kib
	if now.Sub(l.told) < retold {
		return false
	}
	l.told = now
	return true
}

// remove notes that a sandbox is gone, and reports whether output has left it.
func (o *outbox) remove(dir string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.runs)
	o.runs = slices.DeleteFunc(o.runs, func(l *leaving) bool { return l.task.Start.Sandbox.Dir == dir })
	return len(o.runs) < n
}

// size returns how many bytes of a run that is over leave its sandbox; 0: it is not known.
func (o *outbox) size(dir string) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.runs {
		if l.task.Start.Sandbox.Dir == dir {
			return l.KiB << 10
		}
	}
	return 0
}

// Leaving returns the runs that are over and whose output is still in their sandboxes, in the
// order in which they ended. It takes the lock of the Store for a moment, and blocks on
// nothing else.
func (m *Manager) Leaving() []job.Leaving {
	m.out.mu.Lock()
	defer m.out.mu.Unlock()
	var list []job.Leaving
	for _, l := range m.out.runs {
		one := l.Leaving
		one.Travels = !l.arrived && m.Store.Stuck(l.task) == nil
		list = append(list, one)
	}
	return list
}

// Pending returns how many runs that are, and how many KiB their sandboxes take as far as
// that is known.
func (m *Manager) Pending() (n int, kib int64) {
	m.out.mu.Lock()
	defer m.out.mu.Unlock()
	for _, l := range m.out.runs {
		kib += l.KiB
	}
	return len(m.out.runs), kib
}

// The knobs of hooks.conf that say for how long a run has its slots.
const (
	knobAsync = "ASYNC_STAGEOUT"
	knobMost  = "MAX_OUTPUT_TRANSFERS_PER_CLAIM"
)

// attrAsync is the attribute by which a job says that it keeps its slot.
const attrAsync = "AsyncStageout"

// Most returns how much output of a claim may be on its way while the next of its jobs
// runs; 0: none.
func (m *Manager) Most() int {
	knobs := m.Config().Knobs
	if !knobs.Bool(knobAsync, true) {
		return 0
	}
	return knobs.Int(knobMost, 2)
}

// Async reports whether the slots of a run are free before its output has arrived.
func (m *Manager) Async(t *job.Task) bool {
	if m.Most() == 0 {
		return false
	}
	r, err := m.Store.Request(t.Job)
	if err != nil { // it would keep its slot for as long as nobody can read its record
		return true
	}
	var said *classad.Ad
	if r.Work != nil {
		said, err = classad.ParseOld(r.Work.Ad)
	} else if len(r.Attributes) > 0 {
		said, err = ad.Attributes(r.Attributes)
	}
	if said == nil || err != nil {
		return true
	}
	is, ok := (&classad.Env{My: said}).Attr(attrAsync).Bool()
	return is || !ok
}
