// Package launch makes the directory of a run, starts its shepherd, watches it
// by pidfd, finds it again after a restart of execd, passes signals to it and
// collects what it left. It knows files and processes, and nothing of queues
// or accounting. Package stage runs jobs with it, and others of execd look at runs.
package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/cgroup"
	"paddock/spool"
)

// Launcher starts shepherds for one spool. The exported fields are set before
// first use and not changed.
type Launcher struct {
	Runs
	tmpdirs
	shepherds
	Host       string // name of this host as config, environment and accounting have it
	BinDir     string // directory of the commands: SGE_BINARY_PATH
	SGERoot    string // SGE_ROOT of the jobs; Init makes it
	PaddockDir string // PADDOCK_DIR of the jobs; empty outside of -dev
	// Session is the path of qrsh-session, for interactive jobs.
	Session string
	Groups  *cgroup.Tree // control groups of the runs; nil: the host has none for us

	searches searches
}

// New returns a launcher of these runs, whose other fields are to be set.
func New(r Runs) *Launcher {
	l := &Launcher{Runs: r}
	l.tmpdirs.Runs, l.shepherds.Runs = &l.Runs, &l.Runs
	return l
}

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
	// SandboxProjects returns the numbers of the projects that sandboxes have; nil: none has.
	SandboxProjects func() []uint32
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
	l.forks = newForker()
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
	// A try that could not be taken back has left its directory, which names its TMPDIR.
	if err := l.DiscardStaged(run); err != nil {
		return err
	}
	reader := -1
	if o.Slot != "" {
		reader = o.Owner.UID // of the ads
	}
	d, err := l.Root.Stage(run, reader)
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
	return l.removeTmpdir(d, config)
}

// SetAside moves the directory of a run to corrupt/, where a human looks at it, and
// removes what it has beside it.
func (l *Launcher) SetAside(d spool.Dir) (kept string, err error) {
	if err := l.strip(d); err != nil {
		l.Log.Warn(err.Error())
	}
	return l.Root.SetAside(d.Path())
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
		if err := l.shed(d, config); err != nil {
			return err
		}
	}
	if keep {
		return d.WriteNew(spool.FileKept, nil)
	}
	owner := 0
	if err == nil {
		owner, err = config.Int(spool.KeyUID)
	}
	if err != nil { // nobody can say whose it was
		return l.Root.Remove(d)
	}
	return l.Root.Recycle(d, owner)
}

// Shed gives back what a run that has ended holds of what is scarce, while its directory
// stays: its control groups and its scratch directory. Clean does so as well.
func (l *Launcher) Shed(run spool.RunID) error {
	d := l.Root.Finished(run)
	config, err := d.Config()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.shed(d, config)
}

func (l *Launcher) shed(d spool.Dir, config *spool.Config) error {
	l.removeGroup(config)
	if err := l.removeTmpdir(d, config); err != nil {
		return fmt.Errorf("%w: %w", ErrTmpdir, err)
	}
	return nil
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
