package parent

import (
	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/reap"
	"paddock/shepherd/internal/starter"
	"paddock/shepherd/internal/trace"
	"paddock/spool"
)

// launcher starts starters, one for each child of the shepherd. One of them
// may wait to be told what to become.
type launcher struct {
	log       *trace.Log
	loop      *reap.Loop
	group     group
	config    *spool.Config // nil while it is given up
	inherited int           // descriptor of the environment of a foreign start, or -1
	keyring   bool          // all parts have the session keyring of the shepherd

	waiting   *starter.Process // nil for none
	waitingIn int              // the control group that it is in, -1 for none
}

// begin starts a starter in a leaf or, where that cannot be, outside of it; in
// says where it is, -1 for outside.
func (l *launcher) begin(where leaf) (child *starter.Process, in int, err error) {
	place := starter.Place{Group: -1, Inherited: l.inherited, Keyring: l.keyring}
	if in = l.group.fd(where); in < 0 {
		child, err = starter.Launch(place)
		return child, in, err
	}
	grouped := place
	grouped.Grouped = true
	if !l.group.job.V1 {
		grouped.Group = in
		child, err = starter.Launch(grouped)
	} else if child, err = starter.Launch(grouped); err == nil {
		if err = control.Take(in, child.PID); err != nil {
			child.Dismiss()
		}
	}
	if err == nil {
		return child, in, nil
	}
	l.log.Line("cannot start in the control group, going on without: " + err.Error())
	l.group.failed[where] = true
	child, err = starter.Launch(place)
	return child, -1, err
}

// ready starts the starter that waits, unless there is one in that place.
func (l *launcher) ready(where leaf) (err error) {
	if l.waiting != nil && l.waitingIn != l.group.fd(where) {
		l.dismiss()
	}
	if l.waiting == nil {
		l.waiting, l.waitingIn, err = l.begin(where)
	}
	return err
}

// take returns the starter that waits, and waits no longer; nil if there is none.
func (l *launcher) take() *starter.Process {
	child := l.waiting
	l.waiting = nil
	return child
}

// dismiss ends a starter that was not told to go.
func (l *launcher) dismiss() {
	if child := l.take(); child != nil {
		child.Dismiss()
	}
}

// companion starts the starter of something that runs beside the job, and watches it.
func (l *launcher) companion(name string) (*companion, error) {
	if err := l.ready(procedureLeaf); err != nil {
		return nil, err
	}
	child := l.take()
	return &companion{name: name, starter: child, child: l.loop.Watch(child.PID, child.PIDFD)}, nil
}

// release tells a starter what to become. If it is dead already, its end says so.
func (l *launcher) release(child *starter.Process, order starter.Order, files ...int) {
	order.Config = l.config
	if l.log.Detailed() {
		order.Detail = func(step string) {
			l.log.Detail(step)
			l.log.Flush()
		}
	}
	l.log.Flush() // before the starter adds to the trace
	_ = child.Go(order, files...)
}
