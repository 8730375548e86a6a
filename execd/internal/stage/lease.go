package stage

import (
	"paddock/execd/internal/job"
)

// Lease has the shepherd of a task go by the lease of its claim as that is now. What is
// started later is given it then.
func (r *Runner) Lease(t *job.Task) error {
	l := r.lifeOf(t)
	if l == nil {
		return nil
	}
	l.steer.asking.Lock()
	defer l.steer.asking.Unlock()
	if !l.steer.begun {
		return nil
	}
	return r.setLease(l)
}

// setLease is Lease. l.steer.asking is held.
func (r *Runner) setLease(l *life) error {
	lease, ok := r.Queue.Lease(l.task.Start.Claim)
	if !ok { // it has none, or it is over: then the lease that the run was given stays
		return nil
	}
	return r.Launcher.SetLease(l.task.RunID(), lease)
}

// fork starts the shepherd of a run, with the lease that its claim has now.
func (r *Runner) fork(l *life) (pid int, err error) {
	l.steer.asking.Lock()
	defer l.steer.asking.Unlock()
	if run := l.task.RunID(); l.task.Start.Claim != "" {
		if err := r.Launcher.Activate(run); err != nil {
			return 0, err
		}
		if err := r.setLease(l); err != nil {
			return 0, err
		}
	}
	l.steer.begun = true
	return r.Launcher.Start(l.task.RunID())
}
