package stage

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"paddock/execd/internal/launch"
	"paddock/spool"
)

func (l *life) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// enforce does what the wall clock limits of a run ask for now, and sets the timer
// for what they will. It is told nothing and remembers nothing: when the job
// started, whether it was warned and whether it has ended stands in its
// directory, so an execd that is started later goes on with it.
func (r *Runner) enforce(l *life) error {
	run := l.task.RunID()
	if l.limits == nil {
		of, err := r.Launcher.TimeLimits(run)
		if errors.Is(err, spool.ErrSyntax) {
			r.Log.Warn(fmt.Sprintf("job %v: runs without time limits: %v", l.task, err))
		} else if err != nil {
			return err
		}
		l.limits = &of
	}
	t := *l.limits
	if t == (launch.TimeLimits{}) {
		return nil
	}
	clock, err := r.Launcher.Clock(run)
	if err != nil {
		return err
	}
	sig, next := t.Due(clock, time.Now())
	switch sig {
	case sigkill:
		reason := fmt.Sprintf("job was killed: it ran longer than its limit h_rt, %d s", t.Hard/time.Second)
		r.Log.Info(fmt.Sprintf("job %v: %s", l.task, reason))
		// On a full disk the job's end may lack its reason, but not be late.
		if err := r.Store.Exceed(l.task, reason); err != nil {
			r.Log.Error(err.Error())
		}
		r.Signal(run, sigkill)
	case syscall.SIGUSR1:
		r.Log.Info(fmt.Sprintf("job %v: ran longer than its limit s_rt, %d s: SIGUSR1", l.task, t.Soft/time.Second))
		r.Signal(run, syscall.SIGUSR1)
	}
	l.stopTimer()
	if next > 0 {
		l.timer = time.AfterFunc(next, l.again)
	}
	return nil
}
