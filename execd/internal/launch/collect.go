package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// Evidence is what the directory of a run tells about it. Nothing else is
// asked: memory may be wrong, and after a restart there is none.
type Evidence struct {
	Held   bool // the lock: the shepherd lives
	Status bool // exit_status is whole: the shepherd has given its verdict
	Usage  bool // usage is whole: the job itself has ended
	PID    bool // pid is there: the shepherd had begun
}

// Verdict says what is to be done with a directory in active_jobs/.
type Verdict int

// The verdicts, one for each row of the table in Evidence.Verdict.
const (
	NeverStarted Verdict = iota // start it, or give it back
	Lives                       // find the shepherd again and watch it
	HasEnded                    // collect
	Unreported                  // the job has ended and the shepherd died after it: collect from usage, never run it again
	ShepherdDied                // kill what is left; the job's rerun rule decides
)

func (v Verdict) String() string {
	return [...]string{"never started", "lives", "has ended", "ended, not reported", "shepherd died"}[v]
}

// Verdict is the table of recovery, first row that fits:
//
//	lock  exit_status  usage  pid
//	held  -            -      -      lives
//	free  whole        -      -      has ended
//	free  -            whole  -      ended, not reported
//	free  -            -      there  shepherd died
//	free  -            -      -      never started
func (e Evidence) Verdict() Verdict {
	switch {
	case e.Held:
		return Lives
	case e.Status:
		return HasEnded
	case e.Usage:
		return Unreported
	case e.PID:
		return ShepherdDied
	}
	return NeverStarted
}

// Look gathers the evidence of a directory. What cannot be read now is no evidence.
func Look(d spool.Dir) (Evidence, error) {
	held, err := d.Held()
	if err != nil {
		return Evidence{}, err
	}
	// The lock is looked at first: a shepherd that ends meanwhile has then
	// written all it ever will.
	e := Evidence{Held: held}
	if held {
		return e, nil
	}
	_, statusErr := d.ExitStatus()
	_, usageErr := d.Usage()
	_, pidErr := d.PID()
	for _, err := range []error{statusErr, usageErr, pidErr} {
		if spool.Unread(err) {
			return Evidence{}, err
		}
	}
	e.Status, e.Usage, e.PID = statusErr == nil, usageErr == nil, !errors.Is(pidErr, fs.ErrNotExist)
	return e, nil
}

// copyLives bounds for how long a process that execd is about to start may have a copy
// of a lock.
const copyLives = time.Second

// lookBack is Look at the directory of a shepherd whose end was seen. Its lock may be
// held a moment longer: what execd started beside it has a copy until it is another
// program.
func lookBack(d spool.Dir) (Evidence, error) {
	e, err := Look(d)
	if err != nil || !e.Held {
		return e, err
	}
	if _, err := d.Released(copyLives); err != nil {
		return Evidence{}, err
	}
	return Look(d)
}

// Find returns the directory of a run, wherever in its life it is, and whether
// it is in finished/ already.
func (r *Runs) Find(run spool.RunID) (d spool.Dir, finished bool, err error) {
	d = r.Root.Active(run.ID())
	if _, err = os.Lstat(d.Path()); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return d, false, err
	}
	d = r.Root.Finished(run)
	_, err = os.Lstat(d.Path())
	return d, true, err
}

const hostRestarted = "the host was restarted while the job ran"

// Collect reads what a shepherd that is gone has left, kills what it may have
// left running, and moves the directory to finished/. A directory that is
// there already, or is not there at all, is no error. Rebooted says that the
// run was started in another life of the host: then nothing of its directory
// was ever synced, and what is missing proves nothing; and a host that stops ends jobs,
// after execd. gid is the additional
// group of the run, 0 for none.
func (l *Launcher) Collect(run spool.RunID, gid int, rebooted bool) (spool.Outcome, error) {
	d, finished, err := l.Find(run)
	if errors.Is(err, fs.ErrNotExist) {
		// Whether its shepherd came to the end of its work nobody can say.
		l.KillLeft(run, gid)
		out := spool.Outcome{
			Failed: spool.FailedNoExitStatus, Blame: spool.BlameOf(spool.FailedNoExitStatus),
			Reason: "the job's spool directory is gone",
		}
		if rebooted {
			out.Reason = hostRestarted
		}
		return out, nil
	}
	if err != nil {
		return spool.Outcome{}, err
	}
	e, err := lookBack(d)
	if err != nil {
		return spool.Outcome{}, err
	}
	var out spool.Outcome
	v := e.Verdict()
	if rebooted && (v == NeverStarted || v == HasEnded && isTorn(d) || fell(d)) {
		v = ShepherdDied
	}
	switch v {
	case Lives:
		return spool.Outcome{}, fmt.Errorf("cannot collect job %v: its shepherd lives", run)
	case HasEnded:
		out, err = d.Outcome()
		if errors.Is(err, spool.ErrSyntax) {
			return l.unreadable(run, d, err)
		}
		if err != nil {
			return spool.Outcome{}, err
		}
	default:
		l.killGroup(d)
		if !finished { // else that was done before it was moved
			l.KillLeft(run, gid)
		}
		out = abnormal(d, v)
		if rebooted {
			out.Reason = hostRestarted
		}
	}
	if !finished {
		if _, err := l.Root.Finish(run); err != nil {
			return spool.Outcome{}, err
		}
	}
	return out, nil
}

// isTorn reports whether what a run has left of its end makes no sense: a power cut leaves
// files of which the disk has the length, and not all of the content.
func isTorn(d spool.Dir) bool {
	_, err := d.Outcome()
	return errors.Is(err, spool.ErrSyntax)
}

// fell reports whether a job has ended by what a host that stops sends to all processes,
// and nobody has asked it to end. It has died of that, or heeded it and exited. Its
// shepherd may live long enough to report the end.
func fell(d spool.Dir) bool {
	u, err := d.Usage()
	if err != nil {
		return false
	}
	asked, known := u.Asked()
	return known && asked == 0 && (u.FellWithHost() || u.Signal == int(unix.SIGTERM) || u.Signal == int(unix.SIGHUP))
}

// KillLeft kills what a run has left whose shepherd is gone, or whose directory
// is, and reports whether there was anything.
func (r *Runs) KillLeft(run spool.RunID, gid int) bool {
	n, err := r.killLeft(run, gid)
	if err != nil {
		r.Log.Warn(fmt.Sprintf("job %v: %v", run.ID(), err))
	}
	return n > 0 || errors.Is(err, fs.ErrPermission)
}

// unreadable is the outcome of a run that has ended and whose results make no
// sense. A human must look at them; the job is not run again.
func (l *Launcher) unreadable(run spool.RunID, d spool.Dir, cause error) (spool.Outcome, error) {
	kept, err := l.SetAside(d)
	if err != nil {
		return spool.Outcome{}, err
	}
	l.Log.Warn(fmt.Sprintf("job %v: %v: kept in %s", run.ID(), cause, kept))
	out := spool.ShepherdDied(true, &spool.Usage{})
	out.Reason = fmt.Sprintf("the results of the job cannot be read, see %s", kept)
	return out, nil
}

// abnormal is the outcome of a run whose shepherd left no verdict.
func abnormal(d spool.Dir, v Verdict) spool.Outcome {
	var usage *spool.Usage
	if v == Unreported {
		usage, _ = d.Usage() // whole: the verdict says so
	}
	out := spool.ShepherdDied(v != NeverStarted, usage)
	if usage != nil {
		// What the job itself had asked for still counts.
		migrates, checkpoint, _ := d.Migrates()
		switch {
		case migrates:
			out.Failed, out.Checkpoint = spool.FailedMigrating, checkpoint
		case usage.Signal == 0 && usage.ExitStatus == exitReschedule && !forbidsReschedule(d):
			out.Failed = spool.FailedRescheduling
		}
		out.Blame = spool.BlameOf(out.Failed)
	}
	if reason, _, err := d.ErrorText(); err == nil && reason != "" {
		out.Reason += ": " + reason
	}
	return out
}

// exitReschedule is the exit code by which a job asks to be run again.
const exitReschedule = 99

// forbidsReschedule reports whether that exit code means nothing for a run.
func forbidsReschedule(d spool.Dir) bool {
	c, err := d.Config()
	if err != nil {
		return true
	}
	forbidden, err := c.Bool(spool.KeyForbidReschedule)
	return err != nil || forbidden
}

// StderrPaths returns where the standard error of a run that has ended may
// have gone, likeliest first: what stands in its config may be a directory,
// and whether it is only its owner may look. There is always one.
func (r *Runs) StderrPaths(run spool.RunID) []string {
	c, err := r.Root.Finished(run).Config()
	if err != nil {
		return []string{os.DevNull}
	}
	key, letter := spool.KeyStderrPath, "e"
	if merged, _ := c.Bool(spool.KeyMergeStderr); merged {
		key, letter = spool.KeyStdoutPath, "o"
	}
	path, _ := c.Lookup(key)
	name, _ := c.Lookup(spool.KeyJobName)
	task, _ := c.Int(spool.KeyTaskID)
	return []string{filepath.Join(path, defaultName(name, letter, run.Job, task)), path}
}
