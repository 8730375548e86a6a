package stage

import (
	"errors"
	"fmt"
	"time"

	"paddock/execd/internal/slot"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/finish"
	"paddock/execd/internal/stage/jobhook"
	"paddock/execd/internal/stage/notice"
)

// The steps of the stage prepare, as the file hooks has them.
const (
	prepareStep = "prepare: "

	stepActivate = prepareStep + "begin"
	stepBefore   = prepareStep + "before transfer"
	stepInput    = prepareStep + "input"
	stepPrepare  = prepareStep + "prepare"
	stepPre      = prepareStep + "pre script"
)

// prepare runs hooks, transfers the files of the job and runs the script before it. Each
// step is noted when it is done, so that an execd that is started later goes on behind it.
func (r *Runner) prepare(l *life) error {
	x := &l.hooks
	if !x.Any() {
		return nil
	}
	if l.unprepared != nil { // and that could not be recorded
		return r.unprepared(l, l.unprepared)
	}
	step := func(name string, has bool, do func() (exit.Result, error)) exit.Step {
		return exit.Step{Name: name, Do: func() (exit.Result, error) {
			switch {
			case !has:
				return exit.Nothing, nil
			case r.Store.Want(l.task) != nil:
				return exit.Failed, &jobhook.Unprepared{}
			}
			return do()
		}}
	}
	result, err := l.prep.Run([]exit.Step{
		step(stepActivate, true, func() (exit.Result, error) { return r.activate(l) }),
		step(stepBefore, x.Before != nil, func() (exit.Result, error) { return x.PrepareBy(x.Before, stepBefore) }),
		step(stepInput, x.StageIn, func() (exit.Result, error) { return r.fetch(l) }),
		step(stepPrepare, x.Prepare != nil, func() (exit.Result, error) { return x.PrepareBy(x.Prepare, stepPrepare) }),
		step(stepPre, x.Pre != nil, func() (exit.Result, error) {
			return x.RunPre(stepPre, func(s exit.Status) { l.flow.Reap(childPre, s) })
		}),
	})
	var not *jobhook.Unprepared
	switch {
	case errors.As(err, &not):
		return r.unprepared(l, not)
	case err != nil:
		return err
	case !result.Over():
		return errWait
	}
	return nil
}

// activate brings the directory of the run to where hooks work on it.
func (r *Runner) activate(l *life) (exit.Result, error) {
	if err := r.Launcher.Activate(l.task.RunID()); err != nil {
		return exit.Failed, err
	}
	if err := l.hooks.Lend(); err != nil {
		return exit.Failed, err
	}
	return exit.Done, nil
}

// fetch transfers the files of the job to where it runs.
func (r *Runner) fetch(l *life) (exit.Result, error) {
	if l.input == nil {
		l.input = l.end.NewTransfer("input", exit.HoldInput, func(done func(error)) { r.Input.Fetch(l.task, done) })
	}
	result := finish.Try(l.input)
	if g := l.input.GivenUp(); g != nil {
		return exit.Failed, &jobhook.Unprepared{Hold: g.Hold, Code: g.Code, Subcode: g.Subcode, Text: "input transfer: " + g.Reason}
	}
	return result, nil
}

// unprepared ends the life of a run that is not started.
func (r *Runner) unprepared(l *life, u *jobhook.Unprepared) error {
	t := l.task
	l.unprepared = u
	if err := r.Launcher.Discard(t.RunID()); err != nil {
		return err
	}
	if u.Late && !u.Hold && r.Store.Late(t) > 0 {
		u.Hold, u.Code = true, exit.HoldHook
		u.Text += " (for the second time on this host)"
	}
	a := notice.Event{Kind: notice.Held, Text: u.Text, Code: u.Code, Subcode: u.Subcode}
	var err error
	switch {
	case r.Store.Unwanted(t):
		err = r.Store.Withdraw(t)
		r.Log.Info(fmt.Sprintf("job %v: deleted while it was prepared", t))
	case r.Store.Want(t) != nil: // it is to begin anew
		err = r.Store.Withdraw(t)
	case !r.From(t).Queued():
		// Nobody would start it again.
		if !u.Told {
			a.Kind = notice.Postponed // it has no queue in which it would be held
			l.notices.Happened(a)
			r.From(t).Abandoned(t.Job, slot.Hold{Code: u.Code, Subcode: u.Subcode, Text: u.Text})
			r.Log.Error(fmt.Sprintf("job %v: not started: %s", t, u.Text))
		}
		u.Told = true // on a full disk this is entered again
		err = r.Store.Abandon(t)
	case u.Hold:
		if !u.Told {
			l.notices.Happened(a)
			r.Log.Error(fmt.Sprintf("job %v: cannot start: %s", t, u.Text))
		}
		u.Told = true
		err = r.Store.Fail(t, u.Text)
	default:
		var until time.Time
		if until, err = r.Store.Postpone(t, u.Text, u.Late); err == nil && !until.IsZero() {
			a.Kind = notice.Postponed
			l.notices.Happened(a)
			r.Log.Error(fmt.Sprintf("job %v: cannot start: %s (tried again in %v)", t, u.Text, time.Until(until).Round(time.Second)))
		}
	}
	if err != nil {
		return fmt.Errorf("cannot give it back: %w", err)
	}
	r.giveBack(l)
	return errOver
}
