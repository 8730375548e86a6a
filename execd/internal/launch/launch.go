// Package launch makes the directory of a run, starts its shepherd, watches it
// by pidfd, finds it again after a restart of execd, passes signals to it and
// collects what it left. It knows files and processes, and nothing of queues
// or accounting. Package stage uses it; it imports spool, job, conf and user.
package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/cgroup"
	"paddock/internal/backoff"
	"paddock/spool"
)

// Launcher starts shepherds for one spool. The exported fields are set before
// first use and not changed.
type Launcher struct {
	tmpdirs
	Host       string // name of this host as config, environment and accounting have it
	BinDir     string // directory of the commands: SGE_BINARY_PATH
	SGERoot    string // SGE_ROOT of the jobs; Init makes it
	PaddockDir string // PADDOCK_DIR of the jobs; empty outside of -dev
	// Session is the path of qrsh-session, for interactive jobs.
	Session string
	Groups  *cgroup.Tree // control groups of the runs; nil: the host has none for us
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

// New returns a launcher of these runs, whose other fields are to be set.
func New(r Runs) *Launcher { return &Launcher{tmpdirs: tmpdirs{Runs: r}} }

// Runs reads what the directories of runs say, and has what all that is done to them
// needs.
type Runs struct {
	Root       *spool.Root
	Log        *slog.Logger
	Privileged bool   // root mode: files and TMPDIR are given to the owners
	Shepherd   string // path of the shepherd that runs jobs
	// AsUser does what is not the runs' with the rights of users, by our own shepherd,
	// also when another is configured to run jobs (shepherd_cmd).
	AsUser *asuser.Starter
	// Aside does something for which a user may have others wait, so that nobody but
	// its caller waits; nil: it is done.
	Aside func(do func())
}

// shepherd is one that runs.
type shepherd struct {
	pidfd   int  // guarded by Launcher.mu
	child   bool // ours to reap; false after a restart of execd
	foreign bool // not our program

	telling sync.Mutex // held by who writes what it is told
	signal  int        // guarded by telling; sequence number of the last signal
}

// Init prepares what Run serves.
func (l *Launcher) Init() error {
	if err := l.linkCommands(); err != nil {
		l.Log.Warn(fmt.Sprintf("execd: what looks for commands below SGE_ROOT in a job finds none: %v", err))
	}
	w, err := newWatcher(l.gone, func(run spool.RunID) { l.Noticed(run) })
	if err != nil {
		return err
	}
	l.watch = w
	l.running = map[spool.RunID]*shepherd{}
	l.bootTime() // as of the clock now
	l.forks.jobs = make(chan *fork)
	return nil
}

// Run serves forks and watches shepherds until stop is closed. Those that run
// then go on running.
func (l *Launcher) Run(stop <-chan struct{}) {
	var wg sync.WaitGroup
	wg.Go(func() { l.forks.run(stop) })
	wg.Go(l.watch.run)
	<-stop
	l.watch.stop()
	wg.Wait()
}

// Build makes the run's directory in staging/ with everything the shepherd
// reads, and the job's TMPDIR.
func (l *Launcher) Build(o *Order) (err error) {
	run := o.Task.RunID()
	d, err := l.Root.Stage(run)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Root.Remove(d))
			l.abandon(o)
			if o.closed != "" {
				_ = l.removeClosed(o.closed, o.Owner.UID)
			}
			err = errors.Join(err, l.Groups.Remove(o.group))
		}
	}()
	tmpdir, err := l.makeTmpdir(o)
	if err != nil {
		return err
	}
	defer tmpdir.Close()
	if err := l.makePrivateTmp(o); err != nil {
		return err
	}
	config, args, err := l.config(o)
	if err != nil {
		return &Unfit{fmt.Sprintf("cannot write config: %v", err)}
	}
	if err := l.makeGroup(o, config); err != nil {
		return err
	}
	env := l.environment(o, l.Root.Active(run.ID()).Path())
	if err := l.fill(d, o, config, args, spool.AppendPEHosts(nil, l.hosts(o)), env); err != nil {
		return err
	}
	return l.giveTmpdir(o, tmpdir)
}

// fill writes what the shepherd reads into a directory.
func (l *Launcher) fill(d spool.Dir, o *Order, config *spool.Config, args, hosts []byte, env []string) error {
	o.Measured = l.Measured(o.run(), config, time.Now())
	// In sge_execd's order; config last, as nothing starts without it.
	files := []struct {
		name string
		data []byte
	}{
		{spool.FilePEHostfile, hosts},
		{spool.FileEnvironment, spool.AppendEnvironment(nil, env)},
		{spool.FileArgs, args},
		{spool.FileSession, sessionFile(o)},
		{spool.FileLock, nil},
		{spool.FileConfig, config.Append(nil)},
	}
	for _, f := range files {
		if f.data == nil && f.name != spool.FileLock {
			continue
		}
		if err := d.WriteNew(f.name, f.data); err != nil {
			return err
		}
	}
	gid := -1
	if l.Privileged {
		gid = o.Owner.GID
	}
	// The job may pass through to what the files' modes show it.
	return d.Admit(gid)
}

// Unfit is the error of a job that cannot be started, whenever it is tried.
type Unfit struct{ Reason string }

func (u *Unfit) Error() string { return u.Reason }

// Start moves the staged directory of a run to active_jobs/ and starts its
// shepherd, which holds the lock of the directory from its first instant.
func (l *Launcher) Start(run spool.RunID) (pid int, err error) {
	if err := l.Activate(run); err != nil {
		return 0, err
	}
	return l.fork(run, l.Root.Active(run.ID()))
}

// Discard removes the directory of a run that no shepherd was started for,
// staged or active, and its TMPDIR.
func (l *Launcher) Discard(run spool.RunID) error {
	return errors.Join(l.DiscardStaged(run), l.discard(l.Root.Active(run.ID())))
}

// DiscardStaged is Discard for a directory that was never moved to
// active_jobs/: what is there under the same name may be of another run.
func (l *Launcher) DiscardStaged(run spool.RunID) error {
	return l.discard(l.Root.Staging(run))
}

func (l *Launcher) discard(d spool.Dir) error {
	if err := l.strip(d); spool.Scarce(err) {
		return err
	} else if err != nil {
		l.Log.Warn(err.Error())
	}
	return l.Root.Remove(d)
}

// strip removes what a run has beside its directory: control groups and TMPDIR.
func (l *Launcher) strip(d spool.Dir) error {
	config, err := d.Config()
	if spool.Unread(err) {
		return err
	}
	if err != nil {
		return nil //nolint:nilerr // nobody knows of any
	}
	l.removeGroup(config)
	return l.removeTmpdir(config)
}

// SetAside moves the directory of a run to corrupt/, where a human looks at it, and
// removes what it has beside it.
func (l *Launcher) SetAside(d spool.Dir) (kept string, err error) {
	if err := l.strip(d); err != nil {
		l.Log.Warn(err.Error())
	}
	return l.Root.SetAside(d.Path())
}

func (l *Launcher) fork(run spool.RunID, d spool.Dir) (int, error) {
	if err := d.Whole(); err != nil {
		return 0, fmt.Errorf("cannot start shepherd: its directory was made or removed by halves: %w", err)
	}
	lock, err := d.Lock()
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	s := &shepherd{child: true, foreign: l.Foreign()}
	// Known before it exists: it may be gone before fork returns.
	l.mu.Lock()
	l.running[run] = s
	l.mu.Unlock()
	pid, pidfd, err := l.forks.start(&fork{
		path: l.Shepherd,
		argv: []string{shepherdName(run), "-bg"},
		dir:  d.Path(),
		lock: lock,
	})
	if err != nil {
		l.mu.Lock()
		delete(l.running, run)
		l.mu.Unlock()
		return 0, fmt.Errorf("cannot start shepherd %s: %w", l.Shepherd, err)
	}
	l.mu.Lock()
	s.pidfd = pidfd
	l.mu.Unlock()
	l.watch.add(run, pidfd)
	return pid, nil
}

// errNoPID is the error of Reattach when the shepherd has not written its pid
// yet: it lives, and soon will.
var errNoPID = errors.New("the shepherd has not written its pid yet")

// Reattach watches the shepherd of a run that lives. It is found by its pid
// file, which only it writes: when the lock is held after the pidfd was
// opened, the pid was its own.
func (l *Launcher) Reattach(run spool.RunID) error {
	d := l.Root.Active(run.ID())
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
	l.mu.Lock()
	l.running[run] = &shepherd{pidfd: pidfd, foreign: foreign, signal: seq}
	l.mu.Unlock()
	l.watch.add(run, pidfd)
	return nil
}

// Scratch is the scratch directory of a run; empty: it has none any more.
func (l *Launcher) Scratch(run spool.RunID) string {
	d, _, err := l.Find(run)
	if err != nil {
		return ""
	}
	config, err := d.Config()
	if err != nil {
		return ""
	}
	path, _ := config.Lookup(spool.KeyTmpdir)
	return path
}

// questions are the pauses between two questions for a shepherd that has not written
// its pid.
var questions = backoff.Doubling{First: 20 * time.Millisecond, Most: time.Minute}

// Await watches the shepherd of a run, which lived, and calls up, or gone when it has
// ended. One that has only just been started has not written its pid yet: then it is
// asked for again after a time, and less and less often, since one that is stopped
// before may stay so for long.
func (l *Launcher) Await(run spool.RunID, later func(after time.Duration, do func()), up, gone func()) {
	l.await(run, questions.First, later, up, gone)
}

func (l *Launcher) await(run spool.RunID, after time.Duration, later func(after time.Duration, do func()), up, gone func()) {
	if err := l.Reattach(run); err == nil {
		up()
	} else if e, err := Look(l.Root.Active(run.ID())); err == nil && !e.Held {
		gone()
	} else {
		later(after, func() { l.await(run, questions.Next(after), later, up, gone) })
	}
}

// gone is told by the watcher that the process of a pidfd has ended.
func (l *Launcher) gone(run spool.RunID) {
	l.mu.Lock()
	s := l.running[run]
	delete(l.running, run)
	l.mu.Unlock()
	if s == nil {
		return
	}
	if s.child {
		reap(s.pidfd)
	}
	unix.Close(s.pidfd)
	l.watch.neglect(run)
	l.Exited(run)
}

// reap takes the exit status of a child that has ended, which must not stay a zombie.
// The status itself is in the file exit_status.
func reap(pidfd int) {
	for {
		err := unix.Waitid(unix.P_PIDFD, pidfd, nil, unix.WEXITED|unix.WNOHANG, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// Signal asks the shepherd of a run to give the job a signal: the number goes
// into `signals` (so that no two are lost) and `signal` (where Grid Engine's
// shepherd looks), and SIGTTIN says so. Grid Engine's knows but the last number
// in `signal`, so what has a carrier of its own goes by that.
func (l *Launcher) Signal(run spool.RunID, sig syscall.Signal) error {
	s := l.shepherd(run)
	if s == nil {
		return fmt.Errorf("cannot signal job %v: no shepherd runs", run)
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	d := l.Root.Active(run.ID())
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
	if err := l.poke(run, s, carrier); err != nil {
		return fmt.Errorf("cannot signal job %v: %w", run, err)
	}
	return nil
}

// shepherd returns the shepherd of a run that can be told something, nil if there is
// none.
func (l *Launcher) shepherd(run spool.RunID) *shepherd {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.running[run]; s != nil && s.pidfd != 0 {
		return s
	}
	return nil
}

// poke sends a signal to the shepherd of a run itself. The end of one that is gone is
// on its way.
func (l *Launcher) poke(run spool.RunID, s *shepherd, sig unix.Signal) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[run] != s { // what the descriptor is by now
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
func (l *Launcher) Running() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for run := range l.running {
		if run.PETask == "" {
			n++
		}
	}
	return n
}

// Clean removes what is left of a run: its TMPDIR, and its directory in
// finished/. With keep that one stays and is marked, so that no later call
// removes it either. As long as TMPDIR cannot be removed the directory stays, which
// names it: the error matches ErrTmpdir.
func (l *Launcher) Clean(run spool.RunID, keep bool) error {
	d := l.Root.Finished(run)
	if kept, err := d.Has(spool.FileKept); kept || err != nil && !errors.Is(err, unix.ENOTDIR) {
		return err
	}
	config, err := d.Config()
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(d.Path()); errors.Is(err, fs.ErrNotExist) {
			return nil // done before
		}
	}
	if spool.Scarce(err) {
		return err
	}
	if err == nil {
		l.removeGroup(config)
		if err := l.removeTmpdir(config); err != nil {
			return fmt.Errorf("%w: %w", ErrTmpdir, err)
		}
	}
	if keep {
		return d.WriteNew(spool.FileKept, nil)
	}
	return l.Root.Recycle(d)
}

// ErrTmpdir is matched when the scratch directory of a run is left.
var ErrTmpdir = errors.New("its scratch directory is left")

// reachable checks that the job's owner can reach the scripts: every directory
// above must let him pass. An administrator who moves the spool below a closed
// directory learns it at the start, not from failing jobs.
func reachable(path string) error {
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("users cannot reach the spool: directory %s does not let others through, mode %04o", dir, info.Mode().Perm())
		}
		if dir == "/" {
			return nil
		}
	}
}

// Check reports what would make every job fail.
func (r *Runs) Check() error {
	if err := executable("shepherd", r.Shepherd); err != nil || !r.Privileged {
		return err
	}
	return reachable(r.Root.Path())
}

// executable refuses what is not there or no program.
func executable(what, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("cannot find %s: %w", what, err)
	}
	if info.Mode()&0o111 == 0 || !info.Mode().IsRegular() {
		return fmt.Errorf("cannot use %s %s: not an executable file", what, path)
	}
	return nil
}

// BootID returns the kernel's id of this boot: processes of another are gone.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(b) < 36 {
		return "", fmt.Errorf("cannot read boot id: %w", err)
	}
	return string(b[:36]), nil
}
