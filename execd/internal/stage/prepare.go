package stage

import (
	"errors"

	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/jobhook"
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
	switch {
	case errors.As(err, &l.unstarted):
		return r.putBack(l)
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
	result, g := l.end.Fetch()
	if g != nil {
		return exit.Failed, &jobhook.Unprepared{Hold: g.Hold, Code: g.Code, Subcode: g.Subcode, Text: "input transfer: " + g.Reason}
	}
	return result, nil
}
