package launch

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/backoff"
	"paddock/spool"
)

// shepherds starts the shepherds of runs, knows those that run, and tells them what is
// to be done.
type shepherds struct {
	*Runs
	// Exited is called when a shepherd that was started or found again is
	// gone. It must not block.
	Exited func(spool.RunID)
	// Noticed is called when Lost may say something else of a run that Attend was
	// called for. It must not block.
	Noticed func(spool.RunID)

	forks forker
	watch *watcher

	// mu is held for a moment: who needs it must not wait for a disk. Of two locks
	// of this package that of a shepherd is taken first, and mu last.
	mu      sync.Mutex
	running map[spool.RunID]*shepherd // guarded by mu
}

// shepherd is one that runs.
type shepherd struct {
	pidfd   int  // guarded by shepherds.mu
	child   bool // ours to reap; false after a restart of execd
	foreign bool // not our program

	telling sync.Mutex // held while what it is told is written
	signal  int        // guarded by telling; sequence number of the last signal
}

func (ss *shepherds) fork(run spool.RunID, d spool.Dir) (int, error) {
	if err := d.Whole(); err != nil {
		return 0, fmt.Errorf("cannot start shepherd: its directory was made or removed by halves: %w", err)
	}
	lock, err := d.Lock()
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	s := &shepherd{child: true, foreign: ss.Foreign()}
	// Known before it exists: it may be gone before fork returns.
	ss.mu.Lock()
	ss.running[run] = s
	ss.mu.Unlock()
	pid, pidfd, err := ss.forks.start(&fork{
		path: ss.Shepherd,
		name: shepherdName(run),
		dir:  d.Path(),
		lock: lock,
		own:  ss.AsUser != nil && !s.foreign,
	})
	if err != nil {
		ss.mu.Lock()
		delete(ss.running, run)
		ss.mu.Unlock()
		return 0, fmt.Errorf("cannot start shepherd %s: %w", ss.Shepherd, err)
	}
	ss.mu.Lock()
	s.pidfd = pidfd
	ss.mu.Unlock()
	ss.watch.add(run, pidfd)
	return pid, nil
}

// errNoPID is the error of Reattach when the shepherd has not written its pid
// yet: it lives, and soon will.
var errNoPID = errors.New("the shepherd has not written its pid yet")

// Reattach watches the shepherd of a run that lives. It is found by its pid
// file, which only it writes: when the lock is held after the pidfd was
// opened, the pid was its own.
func (ss *shepherds) Reattach(run spool.RunID) error {
	d := ss.Root.Active(run.ID())
	pid, err := d.PID()
	if err != nil {
		return fmt.Errorf("%w: %v", errNoPID, err)
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("cannot find shepherd %d: %w", pid, err)
	}
	held, err := d.Held()
	if err != nil || !held {
		unix.Close(pidfd)
		return errors.Join(fmt.Errorf("shepherd %d has just ended", pid), err)
	}
	seq := 0
	if signals, err := d.Signals(); err == nil && len(signals) > 0 {
		seq = signals[len(signals)-1].Seq
	}
	// Which program it is may have been configured otherwise when it started.
	c, err := d.Config()
	foreign := err == nil && isForeign(c)
	ss.mu.Lock()
	ss.running[run] = &shepherd{pidfd: pidfd, foreign: foreign, signal: seq}
	ss.mu.Unlock()
	ss.watch.add(run, pidfd)
	return nil
}

// questions are the pauses between two questions for a shepherd that has not written
// its pid.
var questions = backoff.Doubling{First: 20 * time.Millisecond, Most: time.Minute}

// Await watches the shepherd of a run, which lived, and calls up, or gone when it has
// ended. One that has only just been started has not written its pid yet: then it is
// asked for again after a time, and less and less often, since one that is stopped
// before may stay so for long.
func (ss *shepherds) Await(run spool.RunID, later func(after time.Duration, do func()), up, gone func()) {
	ss.await(run, questions.First, later, up, gone)
}

func (ss *shepherds) await(run spool.RunID, after time.Duration, later func(after time.Duration, do func()), up, gone func()) {
	if err := ss.Reattach(run); err == nil {
		up()
	} else if e, err := Look(ss.Root.Active(run.ID())); err == nil && !e.Held {
		gone()
	} else {
		later(after, func() { ss.await(run, questions.Next(after), later, up, gone) })
	}
}

// gone is told by the watcher that the process of a pidfd has ended.
func (ss *shepherds) gone(run spool.RunID) {
	ss.mu.Lock()
	s := ss.running[run]
	delete(ss.running, run)
	ss.mu.Unlock()
	if s == nil {
		return
	}
	if s.child {
		reap(s.pidfd, unix.WNOHANG)
	}
	unix.Close(s.pidfd)
	ss.watch.neglect(run)
	ss.Exited(run)
}

// reap takes the exit status of a child, which must not stay a zombie: of one that has
// ended with WNOHANG, else when it has. The status itself is in the file exit_status.
func reap(pidfd, options int) {
	for {
		err := unix.Waitid(unix.P_PIDFD, pidfd, nil, unix.WEXITED|options, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// Signal asks the shepherd of a run to give the job a signal: the number goes
// into `signals` (so that no two are lost) and `signal` (where Grid Engine's
// shepherd looks), and SIGTTIN says so. Grid Engine's knows but the last number
// in `signal`, so what has a carrier of its own goes by that.
func (ss *shepherds) Signal(run spool.RunID, sig syscall.Signal) error {
	s := ss.shepherd(run)
	if s == nil {
		return fmt.Errorf("cannot signal job %v: no shepherd runs", run)
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	d := ss.Root.Active(run.ID())
	s.signal++
	carrier := unix.SIGTTIN
	if c, ok := carriers[sig]; ok && s.foreign {
		carrier = c
	}
	err := d.Append(spool.FileSignals, spool.AppendSignals(nil, []spool.Signal{{Signal: int(sig), Seq: s.signal}}))
	if err == nil && carrier == unix.SIGTTIN {
		err = d.Write(spool.FileSignal, spool.AppendSignal(nil, int(sig), s.signal))
	}
	if c, ok := carriers[sig]; ok && err != nil {
		// The disk is full, or the directory was removed under the shepherd:
		// a job must end all the same.
		carrier, err = c, nil
	}
	if err != nil {
		return fmt.Errorf("cannot signal job %v: %w", run, err)
	}
	if err := ss.poke(run, s, carrier); err != nil {
		return fmt.Errorf("cannot signal job %v: %w", run, err)
	}
	return nil
}

// shepherd returns the shepherd of a run that can be told something, nil if there is
// none.
func (ss *shepherds) shepherd(run spool.RunID) *shepherd {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s := ss.running[run]; s != nil && s.pidfd != 0 {
		return s
	}
	return nil
}

// poke sends a signal to the shepherd of a run itself. The end of one that is gone is
// on its way.
func (ss *shepherds) poke(run spool.RunID, s *shepherd, sig unix.Signal) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.running[run] != s { // what the descriptor is by now
		return nil
	}
	if err := unix.PidfdSendSignal(s.pidfd, sig, nil, 0); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// carriers are the signals that Grid Engine's execd sends to a shepherd so that
// the job gets another (shepherd(8)).
var carriers = map[syscall.Signal]syscall.Signal{
	unix.SIGKILL: unix.SIGTSTP,
	unix.SIGXCPU: unix.SIGUSR2,
	unix.SIGUSR1: unix.SIGUSR1,
	unix.SIGCONT: unix.SIGCONT,
}

// Running returns how many jobs have a shepherd that runs.
func (ss *shepherds) Running() (n int) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for run := range ss.running {
		if run.PETask == "" {
			n++
		}
	}
	return n
}
