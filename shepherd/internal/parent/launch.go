package parent

import (
	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/reap"
	"paddock/shepherd/internal/starter"
	"paddock/shepherd/internal/trace"
)

// launcher starts starter stages, one for each child of the shepherd. One of them
// may wait to be told what to become.
type launcher struct {
	log       *trace.Log
	loop      *reap.Loop
	group     group
	inherited int // descriptor of the environment of a foreign start, or -1

	waiting   *starter.Stage // nil for none
	waitingIn int            // the control group that it is in, -1 for none
	ahead     *reap.Child    // the same, if it may wait for long
}

// begin starts a stage in a leaf or, where that cannot be, outside of it; in
// says where it is, -1 for outside.
func (l *launcher) begin(where leaf) (stage *starter.Stage, in int, err error) {
	if in = l.group.fd(where); in < 0 {
		stage, err = starter.Launch(l.inherited, -1, false)
		return stage, in, err
	}
	if !l.group.job.V1 {
		stage, err = starter.Launch(l.inherited, in, true)
	} else if stage, err = starter.Launch(l.inherited, -1, true); err == nil {
		if err = control.Take(in, stage.PID); err != nil {
			stage.Dismiss()
		}
	}
	if err == nil {
		return stage, in, nil
	}
	l.log.Line("cannot start in the control group, going on without: " + err.Error())
	l.group.failed[where] = true
	stage, err = starter.Launch(l.inherited, -1, false)
	return stage, -1, err
}

// ready starts the stage that waits, unless there is one in that place.
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

// readyAhead starts the stage of a job that is to come later. If it cannot, or
// the stage dies meanwhile, it is started when its time comes.
func (l *launcher) readyAhead() {
	if l.ready(jobLeaf) == nil {
		l.ahead = l.loop.Watch(l.waiting.PID, l.waiting.PIDFD)
	}
}

// endAhead ends the watch over a stage that was started ahead.
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

// take returns the stage that waits, and waits no longer; nil if there is none.
func (l *launcher) take() *starter.Stage {
	stage := l.waiting
	l.waiting = nil
	return stage
}

// dismiss ends a stage that was not told to go.
func (l *launcher) dismiss() {
	l.endAhead()
	if stage := l.take(); stage != nil {
		stage.Dismiss()
	}
}

// companion starts the stage of something that runs beside the job, and watches it.
func (l *launcher) companion(name string) (*companion, error) {
	stage, _, err := l.begin(procedureLeaf)
	if err != nil {
		return nil, err
	}
	return &companion{name: name, stage: stage, child: l.loop.Watch(stage.PID, stage.PIDFD)}, nil
}

// release tells a stage what to become. If it is dead already, its end says so.
func (l *launcher) release(stage *starter.Stage, order starter.Order, files ...int) {
	order.Detail = l.log.Detailed()
	l.log.Flush() // before the stage adds to the trace
	_ = stage.Go(order, files...)
}
