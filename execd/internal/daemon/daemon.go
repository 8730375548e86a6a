// Package daemon is the composition root of execd: it builds the managers,
// recovers what an earlier execd has left, runs, and stops in order. Nobody
// imports it but main.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"paddock/execd/api"
	"paddock/execd/internal/account"
	"paddock/execd/internal/cgroup"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/drain"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/server"
	"paddock/execd/internal/stage"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// Options say how execd is run.
type Options struct {
	Places   api.Places
	RootMode bool // jobs of all users, each as its owner; needs root
	Version  string
	Debug    bool // log more
	// HangUp brings SIGHUP, which must not end execd when its terminal closes.
	HangUp chan os.Signal
	// Foreground writes the log to standard error for a person to read, as
	// well as to the file messages.
	Foreground bool
	// Shepherd is the path of the shepherd; empty: beside execd.
	Shepherd string
}

// A UsageError is the administrator's mistake: execd exits with 78.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// ErrRunning is matched when another execd has the spool.
var ErrRunning = errors.New("another execd is running")

// Check reads the configuration and says what is wrong with it.
func Check(o Options) (*conf.Config, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot get the name of this host: %w", err)
	}
	c, err := conf.Load(conf.Options{Dir: o.Places.Config, Tmpdir: o.Places.Tmp, Host: host, Root: o.RootMode})
	if err != nil {
		return nil, &UsageError{err}
	}
	return c, nil
}

// Run serves until ctx is done. Jobs go on running after it.
func Run(ctx context.Context, o Options) error {
	config, host, err := configured(o)
	if err != nil {
		return err
	}
	if err := mkdirs(o); err != nil {
		return err
	}
	root, err := openSpool(o, config, host)
	if err != nil {
		return err
	}
	// Held to the end of the process: two execds on one spool would start
	// jobs twice.
	lock, err := spool.LockFile(root.Path(spool.FileExecdLock))
	if err != nil {
		if errors.Is(err, spool.ErrLocked) {
			return fmt.Errorf("%w on spool %s", ErrRunning, root.Path())
		}
		return err
	}
	defer lock.Close()

	h := newLog(o, config, root.Path(spool.FileMessages), host)
	d, err := build(o, config, root, host, slog.New(h))
	if err != nil {
		return err
	}
	d.logs = h
	return d.run(ctx)
}

// configured returns what must be known first of all.
func configured(o Options) (config *conf.Config, host string, err error) {
	if config, err = Check(o); err != nil {
		return nil, "", err
	}
	if host, err = os.Hostname(); err != nil {
		return nil, "", fmt.Errorf("cannot get the name of this host: %w", err)
	}
	if o.RootMode && os.Geteuid() != 0 {
		return nil, "", &UsageError{errors.New("root mode needs root")}
	}
	return config, host, nil
}

// mkdirs makes the directories that are execd's own.
func mkdirs(o Options) error {
	for _, dir := range []string{o.Places.State, filepath.Dir(o.Places.Accounting), o.Places.Tmp} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("cannot make directory: %w", err)
		}
	}
	return nil
}

// openSpool opens this host's spool.
func openSpool(o Options, c *conf.Config, host string) (*spool.Root, error) {
	dir, err := spoolDir(o, c, host)
	if err != nil {
		return nil, err
	}
	return spool.OpenRoot(dir, true)
}

// spoolDir returns the path of this host's spool.
func spoolDir(o Options, c *conf.Config, host string) (string, error) {
	dir := o.Places.Spool
	if c.Global.SpoolDir != "" && !o.Places.Dev {
		dir = c.Global.SpoolDir
	}
	if o.RootMode && !o.Places.Dev {
		short, _, _ := strings.Cut(host, ".")
		dir = filepath.Join(dir, short)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("cannot find spool: %w", err)
	}
	return dir, nil
}

// claimSpool refuses the spool of an execd of another format and marks it as
// one of this.
func claimSpool(root *spool.Root, log *slog.Logger) error {
	err := root.CheckFormat()
	if errors.Is(err, spool.ErrFormat) {
		return &UsageError{err}
	}
	if err != nil {
		kept, asideErr := root.SetAside(root.Path(spool.FileFormat))
		if asideErr != nil {
			return asideErr
		}
		log.Warn(fmt.Sprintf("%v: kept in %s", err, kept))
	}
	return root.MarkFormat()
}

// daemon has the managers.
type daemon struct {
	opts   Options
	log    *slog.Logger
	logs   *logHandler
	root   *spool.Root
	launch *launch.Launcher
	queue  *queue.Queue
	stages *stage.Runner
	book   *account.Book
	server *server.Server

	tmpdirs []string // of the queues
}

// build puts the managers together. None of them runs yet.
func build(o Options, config *conf.Config, root *spool.Root, host string, log *slog.Logger) (*daemon, error) {
	boot, err := launch.BootID()
	if err != nil {
		return nil, err
	}
	bin, err := binDir()
	if err != nil {
		return nil, err
	}
	if err := claimSpool(root, log); err != nil {
		return nil, err
	}
	if err := root.SweepDots(); err != nil {
		return nil, err
	}
	store, err := job.Open(root, o.RootMode, log)
	if errors.Is(err, job.ErrFormat) {
		return nil, &UsageError{err}
	}
	if err != nil {
		return nil, err
	}
	if err := store.Sweep(); err != nil {
		return nil, err
	}
	drained, err := drain.Open(root)
	if err != nil {
		return nil, err
	}
	current := func() *conf.Config { return config }
	users := &user.Directory{}
	slots := claim.NewTable(config.Queues, queue.Holder)
	var ranges []conf.Range
	if o.RootMode {
		ranges = config.Global.GIDRange
	}
	gids := queue.NewGIDs(ranges)
	book := account.New(o.Places.Accounting, store)

	shepherd := o.Shepherd
	if shepherd == "" {
		shepherd = filepath.Join(bin, "shepherd")
	}
	l := &launch.Launcher{
		Root: root, Log: log, Host: host, BinDir: bin, ConfigDir: o.Places.Config,
		Shepherd: shepherd, Privileged: o.RootMode,
	}
	if cmd := config.Global.ShepherdCmd; cmd != "" {
		if sameFile(cmd, shepherd) {
			config.Global.ShepherdCmd = "" // by another name
		} else {
			l.Shepherd, l.OwnShepherd = cmd, l.Shepherd
		}
	}
	if o.Places.Dev {
		l.PaddockDir = o.Places.State
	}
	if err := l.Check(); err != nil {
		return nil, &UsageError{err}
	}
	if l.Groups, err = cgroup.Open(groupName(o, root.Path()), shepherd, "-version"); err != nil {
		log.Info(fmt.Sprintf("execd: control groups: none: %v", err))
	} else {
		log.Info(fmt.Sprintf("execd: control groups: %v", l.Groups))
	}
	stages := &stage.Runner{
		Store: store, Launcher: l, Claims: slots, GIDs: gids, Book: book,
		Users: users, Config: current, Host: host, Boot: boot, Log: log,
	}
	l.Exited = stages.Exited
	q := queue.New(store, slots, boot, gids, stages.Start)
	q.Hold = func() string {
		if drained.On() {
			return "the host is being drained"
		}
		return ""
	}
	stages.Queue = q
	store.OnWork(q.Add)

	var tmpdirs []string
	for _, q := range config.Queues {
		tmpdirs = append(tmpdirs, q.Tmpdir)
	}
	only := -1
	if !o.RootMode {
		only = os.Geteuid()
	}
	return &daemon{
		opts: o, log: log, root: root, launch: l, queue: q, stages: stages, book: book, tmpdirs: tmpdirs,
		server: &server.Server{
			Store: store, Book: book, Users: users, Config: current, Reasons: q.Reasons, Kill: stages.Kill,
			Drain: drained, Settle: q.Settle,
			Slots: slots.Slots, Groups: l.Groups.Tier(), Host: host, Version: o.Version, Log: log, OwnerOnly: only,
		},
	}, nil
}

// groupName is the name of the control group that has those of the jobs. Those
// of another execd, of another spool, must not be taken for left over.
func groupName(o Options, dir string) string {
	if !o.Places.Dev {
		return "paddock"
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(dir))
	return fmt.Sprintf("paddock-%08x", h.Sum32())
}

// sameFile reports whether two paths lead to the same program.
func sameFile(a, b string) bool {
	infoA, err1 := os.Stat(a)
	infoB, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(infoA, infoB)
}

// binDir is where execd is, and with it the shepherd and the commands.
func binDir() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find own program: %w", err)
	}
	// Also through a link: the shepherd is beside the program itself.
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return "", fmt.Errorf("cannot find own program: %w", err)
	}
	return filepath.Dir(exe), nil
}

// run recovers, serves, and stops in order.
func (d *daemon) run(ctx context.Context) error {
	if err := d.launch.Init(d.tmpdirs); err != nil {
		return err
	}
	mode := os.FileMode(0o600)
	if d.opts.RootMode {
		mode = 0o666 // everybody may ask; who asks says the kernel
	}
	listener, err := server.Listen(d.opts.Places.Socket, mode)
	if err != nil {
		return err
	}
	defer listener.Close()

	// In the order of stopping: what a part needs to come to its end stops
	// after it.
	var queueDone, bookDone, launchDone sync.WaitGroup
	bookCtx, stopBook := context.WithCancel(context.Background())
	defer stopBook()
	stopLaunch := make(chan struct{})
	launchDone.Go(func() { d.launch.Run(stopLaunch) })
	bookDone.Go(func() { d.book.Run(bookCtx) })
	stop := func() {
		queueDone.Wait()
		d.stages.Stop()
		stopBook()
		bookDone.Wait()
		close(stopLaunch)
		launchDone.Wait()
		d.launch.Groups.Leave()
	}

	if err := d.stages.Recover(); err != nil {
		stop()
		return err
	}
	if err := d.launch.SweepGroups(); err != nil {
		d.log.Warn(err.Error())
	}
	queueDone.Go(func() { d.queue.Run(ctx) })
	d.queue.Wake()

	pid := d.root.Path(spool.FileExecdPID)
	if err := atomicfile.Write(pid, spool.AppendNumber(nil, os.Getpid()), 0o644); err != nil {
		d.log.Warn(err.Error())
	}
	d.log.Info(fmt.Sprintf("execd: ready: socket=%s spool=%s version=%s", d.opts.Places.Socket, d.root.Path(), d.opts.Version))
	d.logs.configure(d.server.Config())
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-d.opts.HangUp:
				d.log.Warn("execd: SIGHUP: the configuration is read at the start only; restart execd to read it again, jobs go on")
			}
		}
	}()
	notify("READY=1")
	err = d.server.Serve(ctx, listener)
	notify("STOPPING=1")
	stop()
	d.log.Info(fmt.Sprintf("execd: stopped; %d jobs go on running", d.launch.Running()))
	_ = atomicfile.Remove(pid) // a stale one harms nobody
	return err
}
