package parent

import (
	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/reap"
	"paddock/shepherd/internal/starter"
	"paddock/shepherd/internal/trace"
)

// launcher starts starters, one for each child of the shepherd. One of them
// may wait to be told what to become.
type launcher struct {
	log       *trace.Log
	loop      *reap.Loop
	group     group
	inherited int // descriptor of the environment of a foreign start, or -1

	waiting   *starter.Process // nil for none
	waitingIn int              // the control group that it is in, -1 for none
	ahead     *reap.Child      // the same, if it may wait for long
}

// begin starts a starter in a leaf or, where that cannot be, outside of it; in
// says where it is, -1 for outside.
func (l *launcher) begin(where leaf) (child *starter.Process, in int, err error) {
	if in = l.group.fd(where); in < 0 {
		child, err = starter.Launch(l.inherited, -1, false)
		return child, in, err
	}
	if !l.group.job.V1 {
		child, err = starter.Launch(l.inherited, in, true)
	} else if child, err = starter.Launch(l.inherited, -1, true); err == nil {
		if err = control.Take(in, child.PID); err != nil {
			child.Dismiss()
		}
	}
	if err == nil {
		return child, in, nil
	}
	l.log.Line("cannot start in the control group, going on without: " + err.Error())
	l.group.failed[where] = true
	child, err = starter.Launch(l.inherited, -1, false)
	return child, -1, err
}

// ready starts the starter that waits, unless there is one in that place.
func (l *launcher) ready(where leaf) (err error) {
	l.endAhead()
	if l.waiting != nil && l.waitingIn != l.group.fd(where) {
		l.dismiss()
	}
	if l.waiting == nil {
		l.waiting, l.waitingIn, err = l.begin(where)
	}
	return err
}

// readyAhead starts the starter of a job that is to come later. If it cannot, or
// the starter dies meanwhile, it is started when its time comes.
func (l *launcher) readyAhead() {
	if l.ready(jobLeaf) == nil {
		l.ahead = l.loop.Watch(l.waiting.PID, l.waiting.PIDFD)
	}
}

// endAhead ends the watch over a starter that was started ahead.
func (l *launcher) endAhead() {
	if l.ahead == nil {
		return
	}
	if l.ahead.Ended {
		l.waiting.Close()
		l.waiting = nil
	}
	l.loop.Forget(l.ahead)
	l.ahead = nil
}

// take returns the starter that waits, and waits no longer; nil if there is none.
func (l *launcher) take() *starter.Process {
	child := l.waiting
	l.waiting = nil
	return child
}

// dismiss ends a starter that was not told to go.
func (l *launcher) dismiss() {
	l.endAhead()
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
	order.Detail = l.log.Detailed()
	l.log.Flush() // before the starter adds to the trace
	_ = child.Go(order, files...)
}
