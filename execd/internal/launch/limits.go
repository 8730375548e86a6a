package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"paddock/internal/proc"
	"paddock/spool"
)

// Foreign reports whether the shepherds that are started are not our program:
// then execd does for a job what they do not.
func (r *Runs) Foreign() bool { return r.AsUser != nil && r.AsUser.Shepherd != r.Shepherd }

// isForeign is Foreign for a run that was started some time ago.
func isForeign(c *spool.Config) bool {
	_, ok := c.Lookup(spool.KeyForeign)
	return ok
}

// TimeLimits are the wall clock limits of a run that execd has to enforce. Those
// of our own shepherds are none: they see to it themselves, also while there is
// no execd.
type TimeLimits struct{ Soft, Hard time.Duration } // 0: none

// TimeLimits reads them from the directory of a run, so that they stay what
// they were when it started.
func (r *Runs) TimeLimits(run spool.RunID) (TimeLimits, error) {
	c, err := r.Root.Active(run.ID()).Config()
	if err != nil {
		return TimeLimits{}, fmt.Errorf("cannot read limits of job %v: %w", run.ID(), err)
	}
	var t TimeLimits
	for key, to := range map[string]*time.Duration{spool.KeyForeignSRT: &t.Soft, spool.KeyForeignHRT: &t.Hard} {
		if _, ok := c.Lookup(key); !ok {
			continue
		}
		seconds, err := c.Int(key)
		if err != nil {
			return TimeLimits{}, fmt.Errorf("cannot read limits of job %v: %w", run.ID(), err)
		}
		*to = time.Duration(seconds) * time.Second
	}
	return t, nil
}

// Steered returns what the shepherd of a run was told last, STOP or CONT, and
// whether the job migrates instead of being stopped, as of when it started.
func (r *Runs) Steered(run spool.RunID) (stopped, migrates bool) {
	d := r.Root.Active(run.ID())
	signals, err := d.Signals()
	if err != nil {
		r.Log.Warn(fmt.Sprintf("job %v: cannot see what signals it got: %v", run.ID(), err))
	}
	for _, s := range signals {
		switch syscall.Signal(s.Signal) {
		case syscall.SIGSTOP, syscall.SIGTTOU:
			stopped = true
		case syscall.SIGCONT:
			stopped = false
		}
	}
	c, err := d.Config()
	if err != nil {
		r.Log.Warn(fmt.Sprintf("job %v: cannot see whether it migrates: %v", run.ID(), err))
		return stopped, false
	}
	_, migrates = c.Lookup(spool.KeyMigrates)
	return stopped, migrates
}

// Told reports whether the shepherd of a run was told to give the job a signal.
func (r *Runs) Told(run spool.RunID, sig syscall.Signal) bool {
	signals, err := r.Root.Active(run.ID()).Signals()
	return err == nil && slices.ContainsFunc(signals, func(s spool.Signal) bool { return s.Signal == int(sig) })
}

// JobPID returns the pid of the job of a run that has ended; 0: not known.
func (r *Runs) JobPID(run spool.RunID) int {
	pid, err := r.Root.Finished(run).JobPID()
	if err != nil {
		return 0
	}
	return pid
}

// JobOver reports whether the job of a run that is active has ended: its shepherd
// writes that down only when it has killed what is left.
func (r *Runs) JobOver(run spool.RunID) bool {
	d := r.Root.Active(run.ID())
	if over, err := d.Has(spool.FileUsage); over && err == nil {
		return true
	}
	pid, err := d.JobPID()
	if err != nil {
		return false // it has not begun
	}
	info, err := os.Lstat(d.Path(spool.FileJobPID))
	if err != nil {
		return false
	}
	_, there := proc.At(pid, info.ModTime())
	return !there
}

// Clock is what the directory of a run says about the time of its job.
type Clock struct {
	Started time.Time // zero: it has not started yet
	Ended   bool
	Warned  bool // it was sent USR1 on behalf of its soft limit
}

// Clock reads the clock of a run. A shepherd writes job_pid when it starts the
// job, however long the prolog took, and usage when the job has ended.
func (r *Runs) Clock(run spool.RunID) (Clock, error) {
	d := r.Root.Active(run.ID())
	var c Clock
	info, err := os.Lstat(d.Path(spool.FileJobPID))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return c, fmt.Errorf("cannot see when job %v started: %w", run.ID(), err)
	case info.Size() > 0: // else it is an earlier run's, emptied
		c.Started = info.ModTime()
		// While the job is there the kernel knows how old it is, whatever was
		// done to the clock.
		if pid, err := d.JobPID(); err == nil {
			if p, ok := proc.Get(pid); ok {
				c.Started = time.Now().Add(-p.Age())
			}
		}
	}
	_, err = d.Usage()
	c.Ended = err == nil
	signals, err := d.Signals()
	if err != nil {
		return c, fmt.Errorf("cannot see what signals job %v got: %w", run.ID(), err)
	}
	for _, s := range signals {
		c.Warned = c.Warned || s.Signal == int(syscall.SIGUSR1)
	}
	return c, nil
}

// Since returns when the run of a shepherd that lives was started, as far as can
// be told: the kernel knows how old a process is, and what was noted once is of no
// use when the clock was set since.
func (r *Runs) Since(run spool.RunID, noted time.Time) time.Time {
	if pid, err := r.Root.Active(run.ID()).PID(); err == nil {
		if p, ok := proc.Get(pid); ok {
			return time.Now().Add(-p.Age())
		}
	}
	return noted
}

// killAgain is after what time a job that is still there is killed again: its
// terminate_method may have been of no use.
const killAgain = 90 * time.Second

// Due says what limits ask for: the signal that the job is to get now, 0 for
// none, and after what time to look again, 0 for never.
func (t TimeLimits) Due(c Clock, now time.Time) (sig syscall.Signal, next time.Duration) {
	if c.Ended {
		return 0, 0
	}
	var ran time.Duration
	if !c.Started.IsZero() {
		ran = max(now.Sub(c.Started), 0) // somebody may have set the clock back
	}
	if t.Hard > 0 && ran >= t.Hard {
		return syscall.SIGKILL, killAgain
	}
	if t.Hard > 0 {
		next = t.Hard - ran
	}
	switch {
	case t.Soft == 0 || c.Warned:
	case ran >= t.Soft:
		sig = syscall.SIGUSR1
	case next == 0 || t.Soft-ran < next:
		next = t.Soft - ran
	}
	return sig, next
}
