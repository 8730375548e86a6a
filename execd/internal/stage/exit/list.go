package exit

import "slices"

// Status is how a process has ended.
type Status struct {
	Code   int  // exit status
	Signal int  // the signal that ended it; 0: none
	Core   bool // it left a core file
}

// OK reports whether it ended well.
func (s Status) OK() bool { return s.Code == 0 && s.Signal == 0 }

// Process is a process of an activation that is not finished with: the job, a
// script before or after it, or a companion that lives beside it.
type Process interface {
	// Name is its own among those of the activation.
	Name() string
	// Reaped is told of each process of the activation that has ended, its own
	// or another's, and reports whether it is over itself.
	Reaped(child string, s Status) bool
	// Exit does what is to be done at its end, when all have ended. What is
	// not over is called again.
	Exit(c Controller) (Result, error)
}

// List has the processes of one activation. The zero value is empty.
type List struct {
	// Next returns what is to be started, as one is over and these are still
	// active; nil: nothing. It is asked before anybody hears that none is left.
	Next func(over Process, active []Process) Process

	active []Process
	reaped []Process // in the order in which they ended
}

// Spawned enters a process.
func (l *List) Spawned(p Process) { l.active = append(l.active, p) }

// Reap tells all active processes that the process named child has ended. Those that are
// over by that move to the reaped ones. Known reports whether child was one of them.
func (l *List) Reap(child string, s Status) (known bool) {
	// A process that is told may not change the list that is gone through.
	told := slices.Clone(l.active)
	var over []Process
	for _, p := range told {
		known = known || p.Name() == child
		if p.Reaped(child, s) {
			over = append(over, p)
		}
	}
	for _, p := range over {
		if i := slices.Index(l.active, p); i >= 0 {
			l.active = slices.Delete(l.active, i, i+1)
			l.reaped = append(l.reaped, p)
		}
	}
	if l.Next != nil {
		for _, p := range over {
			if next := l.Next(p, l.Active()); next != nil {
				l.Spawned(next)
			}
		}
	}
	return known || len(over) > 0
}

// Active returns those that are not over, in the order in which they began.
func (l *List) Active() []Process { return slices.Clone(l.active) }

// Reaped returns those that are over and still have something to do at their
// end, in the order in which they ended.
func (l *List) Reaped() []Process { return slices.Clone(l.reaped) }

// Idle reports whether none is active.
func (l *List) Idle() bool { return len(l.active) == 0 }

// remove forgets a process whose end is done with.
func (l *List) remove(p Process) {
	if i := slices.Index(l.reaped, p); i >= 0 {
		l.reaped = slices.Delete(l.reaped, i, i+1)
	}
}

// Script is an ordinary process that nobody is told of: a script before or after
// the job.
type Script struct {
	Of     string // its name
	Status Status // from its end on
}

// Name returns its name.
func (p *Script) Name() string { return p.Of }

// Reaped acts on its own end alone.
func (p *Script) Reaped(child string, s Status) bool {
	if child != p.Of {
		return false
	}
	p.Status = s
	return true
}

// Exit has nothing to do.
func (p *Script) Exit(Controller) (Result, error) { return Nothing, nil }

// Job is the process that the controller is told of.
type Job struct{ Script }

// Exit tells the controller.
func (p *Job) Exit(c Controller) (Result, error) { return c.Notify(p) }

// Companion lives beside the job, and ends by it.
type Companion struct {
	Of string // its name
	// Other is told of every end that is not its own, and reports whether the
	// companion is over by that.
	Other func(child string, s Status) bool
}

// Name returns its name.
func (p *Companion) Name() string { return p.Of }

// Reaped acts on its own end and on others'.
func (p *Companion) Reaped(child string, s Status) bool { return child == p.Of || p.Other(child, s) }

// Exit has nothing to do.
func (p *Companion) Exit(Controller) (Result, error) { return Nothing, nil }
