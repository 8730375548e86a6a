// Package daemon is the composition root of execd: it builds the managers, recovers
// what an earlier execd has left, runs, and stops in order. Only main imports it.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/account"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/aside"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/cgroup"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/drain"
	"paddock/execd/internal/eventlog"
	"paddock/execd/internal/follow"
	"paddock/execd/internal/history"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/journal"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/mail"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/output"
	"paddock/execd/internal/peer"
	"paddock/execd/internal/policy"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/sandbox"
	"paddock/execd/internal/server"
	"paddock/execd/internal/shadow"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source"
	"paddock/execd/internal/source/fetch"
	"paddock/execd/internal/source/program"
	"paddock/execd/internal/stage"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/timeline"
	"paddock/execd/internal/usage"
	"paddock/execd/internal/user"
	"paddock/internal/hint"
	"paddock/internal/proc"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// Options say how execd is run.
type Options struct {
	Places   api.Places
	RootMode bool // runs jobs of all users, each as its owner; needs root
	Version  string
	Debug    bool // log more
	// HangUp brings SIGHUP, which must not end execd when its terminal closes.
	HangUp chan os.Signal
	// Foreground writes the log to standard error, for a person to read, as well as to
	// the file messages.
	Foreground bool
	// Shepherd is the path of the shepherd; empty: as it is installed or built.
	Shepherd string
	// HookVariables are further ones in the environment of hooks of execd's own.
	HookVariables []string
	// FetchFailing is called when a hook that brings work has failed, or works again; nil: nobody
	// wants to know.
	FetchFailing func()
	// Accounted is called when there are more lines in the accounting file; nil: nobody wants to know.
	Accounted func()
}

// A UsageError is a mistake of the administrator: execd exits with 78.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// ErrRunning is matched when another execd has the spool.
var ErrRunning = errors.New("another execd is running")

// Check reads the configuration and returns what is wrong with it, or with the format of
// the spool. With a UsageError it
// also returns what could be read, for its warnings.
func Check(o Options) (*conf.Config, error) {
	files, err := files(o)
	if err != nil {
		return nil, err
	}
	c, err := conf.Check(files)
	broken := errors.Join(checkHooks(c, o.RootMode), refused(c, sandbox.Problems(c.Knobs)), checkPeers(o, c), refused(c, history.Problems(c.Knobs)))
	if err == nil { // with mistakes it is not known what devices and directories are for
		_, without := launch.ScratchReport(c, o.RootMode)
		for _, text := range slices.Concat(without, launch.DeviceProblems(c)) {
			c.Warnings = append(c.Warnings, conf.Problem{File: o.Places.Config, Text: text})
		}
		c.Warnings = append(c.Warnings, missing(c, o.Places.Tmp, os.Stat)...)
	}
	if err := errors.Join(err, broken); err != nil {
		return c, &UsageError{err}
	}
	return c, checkFormat(o, c)
}

// checkFormat refuses the spool of a later version, on which this one would not start. It
// may be in use. Where there is none, or the caller may not read it, it is not known.
func checkFormat(o Options, c *conf.Config) error {
	dir, err := spoolDir(o, c)
	if err != nil {
		return err
	}
	root, err := spool.OpenRoot(dir, false)
	if err != nil {
		return nil //nolint:nilerr // a start would make or mend it
	}
	if err := root.CheckFormat(); errors.Is(err, spool.ErrFormat) {
		return &UsageError{err}
	}
	return nil
}

// open reads the configuration for the first time.
func open(o Options) (*conf.Live, error) {
	files, err := files(o)
	if err != nil {
		return nil, err
	}
	l, err := conf.Open(files)
	if err == nil {
		return l, nil
	}
	data, keptErr := readKept(o)
	if keptErr == nil {
		l, keptErr = conf.OpenKept(files, data)
	}
	switch {
	case errors.Is(keptErr, fs.ErrNotExist): // none was in force yet
		return nil, &UsageError{err}
	case keptErr != nil:
		return nil, &UsageError{errors.Join(err, fmt.Errorf("cannot use the last configuration in force, %s: %w", keptPath(o), keptErr))}
	}
	return l, nil
}

// files returns from where the configuration is read.
func files(o Options) (conf.Options, error) {
	host, err := os.Hostname()
	if err != nil {
		return conf.Options{}, fmt.Errorf("cannot get the name of this host: %w", err)
	}
	mode := conf.PosixCompliant
	if !o.RootMode {
		// The user made no configuration, and expects a script to run as when he runs it
		// himself.
		mode = conf.UnixBehavior
	}
	return conf.Options{
		Dir: o.Places.Config, Tmpdir: o.Places.Tmp, Host: host, ShellStartMode: mode,
		Environ: os.Environ(), //nolint:forbidigo // it is read, and passed on to no program
	}, nil
}

// Run serves until ctx is done. Jobs continue after it.
func Run(ctx context.Context, o Options) error {
	if o.Places.Dev {
		if err := o.Places.Prepare(o.RootMode); err != nil {
			return &UsageError{err}
		}
	}
	live, err := configured(o)
	if err != nil {
		return err
	}
	if err := mkdirs(o); err != nil {
		return err
	}
	root, err := openSpool(o, live.Current())
	if err != nil {
		return err
	}
	// The lock is held to the end of the process: two execds on one spool would start
	// jobs twice.
	lock, err := lockSpool(root)
	if err != nil {
		return err
	}
	defer lock.Close()

	h := newLog(o, live.Current(), root.Path(spool.FileMessages), live.Current().Hostname)
	d, err := build(o, live, root, slog.New(h))
	if errors.Is(err, spool.ErrFormat) {
		return &UsageError{err}
	}
	if err != nil {
		return err
	}
	d.logs = h
	return d.run(ctx)
}

// lockPatience is how long to wait for the lock of the spool, and deadPatience how long
// when the last execd was killed: if it was starting a shepherd, its child holds the
// lock until it has become the shepherd, which may take long on a busy host.
const (
	lockPatience = time.Second
	deadPatience = time.Minute
)

// lockSpool takes the lock of the spool.
func lockSpool(root *spool.Root) (*os.File, error) {
	path := root.Path(spool.FileExecdLock)
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		lock, err := spool.LockFile(path)
		if !errors.Is(err, spool.ErrLocked) {
			return lock, err
		}
		patience := lockPatience
		if lastIsGone(root) {
			patience = deadPatience
		}
		if time.Since(begin) > patience {
			return nil, fmt.Errorf("%w on spool %s", ErrRunning, root.Path())
		}
	}
}

// lastIsGone reports whether the last execd was killed: one that stops removes its pid
// file.
func lastIsGone(root *spool.Root) bool {
	path := root.Path(spool.FileExecdPID)
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	pid, err := spool.ParseNumber(data)
	if err != nil || pid <= 0 {
		return false
	}
	_, there := proc.At(pid, info.ModTime())
	return !there
}

// configured reads the configuration and makes the directories of execd.
func configured(o Options) (*conf.Live, error) {
	live, err := open(o)
	if err != nil {
		return nil, err
	}
	if o.RootMode && os.Geteuid() != 0 {
		return nil, &UsageError{errors.New("root mode needs root")}
	}
	return live, nil
}

// mkdirs makes execd's own directories.
func mkdirs(o Options) error {
	for _, dir := range []string{o.Places.State, filepath.Dir(o.Places.Accounting), o.Places.Tmp} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("cannot make directory: %w", err)
		}
	}
	return nil
}

// openSpool opens this host's spool.
func openSpool(o Options, c *conf.Config) (*spool.Root, error) {
	dir, err := spoolDir(o, c)
	if err != nil {
		return nil, err
	}
	return spool.OpenRoot(dir, true)
}

// spoolDir returns the path of this host's spool.
func spoolDir(o Options, c *conf.Config) (string, error) {
	dir := o.Places.Spool
	if c.Global.SpoolDir != "" && !o.Places.Dev {
		dir = c.Global.SpoolDir
	}
	if o.RootMode && !o.Places.Dev {
		short, _, _ := strings.Cut(c.Hostname, ".")
		dir = filepath.Join(dir, short)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("cannot find spool: %w", err)
	}
	return dir, nil
}

// claimSpool refuses a spool of an execd of another format, and marks others as of this
// format.
func claimSpool(root *spool.Root, log *slog.Logger) error {
	err := root.CheckFormat()
	if errors.Is(err, spool.ErrFormat) || spool.Unread(err) {
		return err
	}
	if err != nil {
		if err := aside.Put(root, log, root.Path(spool.FileFormat), err); err != nil {
			return err
		}
	}
	return root.MarkFormat()
}

// daemon has the managers.
type daemon struct {
	began  time.Time
	opts   Options
	host   string
	log    *slog.Logger
	logs   *logHandler
	root   *spool.Root
	config *conf.Live
	hooks  atomic.Pointer[hook.Table] // of the configuration in force
	calls  *hook.Runner               // of hooks
	users  *user.Directory
	store  *job.Store
	states *queue.States
	launch *launch.Launcher
	queue  *queue.Queue
	stages *stage.Runner
	book   *account.Book
	mail   *mail.Sender
	usage  *usage.Sampler
	load   *usage.Load
	drain  *drain.Drain
	health lookout
	gauge  *usage.Gauge // for the ads of slots
	counts metrics.Counts
	lately timeline.Timeline
	server *server.Server

	slotAds *slotAds
	// sandboxes has the directories of jobs that ask for one.
	sandboxes *sandbox.Manager
	queueLog  history.Log
	sources   source.Sources
	fetch     *fetch.Layer
	followed  *follow.Activations

	loading sync.Mutex // held while load is configured

	peers *peer.Keeper // what other hosts may do here, and this one there
	watch *peer.Watch  // of those that execute
	// policies looks at the policies of jobs that wait.
	policies *policy.Keeper
	// shadows has the jobs that run on other hosts.
	shadows *shadow.Shadows
	// listening has listen look again at what is configured, and deaf is why other hosts
	// are not answered; empty: they are, or are not to be.
	listening hint.Chan
	deaf      atomic.Pointer[string]

	serviceTold atomic.Pointer[string] // what was logged last of the account of mailers and load sensors
}

// build puts the managers together. It starts none of them.
func build(o Options, live *conf.Live, root *spool.Root, log *slog.Logger) (*daemon, error) {
	config := live.Current()
	host := config.Hostname
	d := &daemon{began: time.Now(), opts: o, host: host, log: log, root: root, config: live, users: &user.Directory{}, health: lookout{stat: os.Stat, statfs: syscall.Statfs}, listening: hint.New()}
	d.hooks.Store(hook.NewTable(config.Knobs))
	d.peers = peer.NewKeeper(func() peer.Files { return peerFiles(o, live.Current()) })
	hosts := peer.NewClients(d.peers)
	d.watch = &peer.Watch{Keeper: d.peers, Clients: hosts, Log: log}
	if err := claimSpool(root, log); err != nil {
		return nil, err
	}
	if err := root.SweepDots(); err != nil {
		return nil, err
	}
	var err error
	d.store, err = job.Open(root, o.RootMode, log)
	if err != nil {
		return nil, err
	}
	d.store.Keep(config.Global.FinishedJobs, config.Global.EndedJobs)
	drained, err := drain.Open(root)
	if err != nil {
		return nil, err
	}
	d.drain = drained
	if d.states, err = queue.OpenStates(root, config.Queues, log); err != nil {
		return nil, err
	}
	if err := d.buildLauncher(config); err != nil {
		return nil, err
	}
	cores := d.buildLoad()
	d.usage = &usage.Sampler{Log: log}
	d.usage.SetInterval(config.Global.UsageInterval)
	d.mail = mail.New(d.config.Current, host, log)
	d.mail.Starter, d.mail.Account = d.launch.AsUser, d.service
	d.book = account.New(o.Places.Accounting, d.store)
	d.book.Accounted = o.Accounted
	boot, err := spool.BootID()
	if err != nil {
		return nil, err
	}
	var ranges []conf.Range
	if o.RootMode {
		ranges = config.Global.GIDRange
	}
	gids := queue.NewGIDs(ranges)
	streams := output.New(root)
	d.sources = source.Sources{}
	d.stages = &stage.Runner{Streams: streams, Host: base.Host{
		Sources: d.sources, Store: d.store, Launcher: d.launch, GIDs: gids, Book: d.book, Users: d.users, Config: d.config.Current,
		Usage: d.usage, Mail: d.mail, Counts: &d.counts, Timeline: &d.lately, Name: host, Boot: boot, Log: log,
	}}
	logs := &journal.Journal{
		Log: &eventlog.Writer{Files: d.launch.AsUser}, Store: d.store, Users: d.users, Config: d.config.Current, Host: host, Err: log,
	}
	d.stages.Journal = logs
	d.store.OnNotice(logs.Notice)
	d.calls = &hook.Runner{
		Starter: d.launch.AsUser, Privileged: o.RootMode, Users: d.users, Host: host, Variables: o.HookVariables, Spool: root.Path(), Log: log,
	}
	d.calls.Serve(d.hooks.Load())
	d.stages.Hooks, d.stages.HookTable = d.calls, d.hooks.Load
	d.launch.Exited, d.launch.Noticed, d.launch.Aside = d.stages.Exited, d.stages.Noticed, d.stages.Aside
	d.usage.Exceeded = d.stages.Exceeded
	d.buildSandboxes(boot)
	d.buildShadows(hosts)
	d.buildHistories()
	d.shadows.Journal = logs
	table := claim.NewTable(config.Queues, queue.Holder)
	d.stages.SlotOf, d.stages.Judges = d.slotOf(table), table.Managed
	d.stages.JobAd = d.taskAd
	d.slotAds = &slotAds{d: d, platform: ad.ThisPlatform(osRelease()), address: "<" + host + ">"}
	d.policies = &policy.Keeper{Store: d.store, Config: d.config.Current, Ad: d.slotAds.waitingAd, Log: log}
	d.policies.Init()
	d.store.OnWait(d.policies.Waits)
	d.queue = queue.New(queue.Options{
		Slots: queue.Slots{JobAd: d.slotAds.jobAd, Look: d.gauge.Look, Evict: d.evict, Lease: d.stages.Lease}, Sources: d.sources,
		Store: d.store, Claims: table, GIDs: gids, Cores: cores, Boot: boot,
		Config: config, States: d.states, Log: log, Start: d.stages.Start, Suspend: d.stages.Suspend,
		NeedLoad: func(bool) { d.configureLoad() },
		Hold: func() string {
			if drained.On() {
				return "the host is being drained"
			}
			return ""
		},
		Room: d.room, Passed: d.shadows.Wake, Elsewhere: d.shadows.Elsewhere,
	})
	only := -1
	if !o.RootMode {
		only = os.Geteuid()
	}
	d.buildFetch(table, only, o.FetchFailing)
	programs := &program.Programs{
		Slots: d.queue, Sources: d.sources, Store: d.store, Users: d.users, Config: d.config.Current, Host: host, Log: log,
		ClaimOver: d.sandboxes.ClaimOver,
		Accept: func(c job.Caller, owner *user.User, gid int, r *api.SubmitRequest) (*job.Job, error) {
			return d.server.Rules().Accept(c, owner, gid, r)
		},
	}
	d.sources[slot.FetchHolder], d.sources[source.Users] = d.fetch, programs
	if err := d.manageSlots(table, boot); err != nil {
		return nil, err
	}
	d.followed = &follow.Activations{
		Root: root, Log: log, Lease: func() time.Duration { return source.Lease(d.config.Current().Knobs) },
		Claimed: func(public string) bool {
			_, ok := d.queue.Lease(public)
			return ok
		},
	}
	if err := d.followed.Open(); err != nil {
		return nil, err
	}
	programs.Followed, d.stages.Followers = d.followed, d.followed
	d.sandboxes.Claimed, d.sandboxes.Lease, d.sandboxes.Wake = d.followed.Claimed, d.followed.Lease, d.stages.Changed
	d.shadows.Foremost, d.shadows.Changed, d.shadows.Queues = d.queue.Foremost, d.queue.Add, d.queue.FindQueues
	d.shadows.Depart, d.shadows.Back, d.shadows.Files = d.queue.Depart, d.queue.Back, d.sandboxes
	d.stages.Queue, d.sandboxes.Changed = d.queue, d.queue.Traffic
	d.store.OnWork(d.queue.Add)
	d.server = &server.Server{
		Store: d.store, Book: d.book, Users: d.users, Config: d.config.Current, Queue: d.queue, Programs: programs, Stages: d.stages,
		Usage: d.usage, Timeline: &d.lately, Load: d.load.Values, Metrics: d.metrics, Reload: d.reload, Drain: drained, Groups: d.launch.Groups.Tier(), Host: host, Version: o.Version, Log: log,
		Started: d.began, Problems: d.problems,
		OwnerOnly: only, Streams: streams, Configure: d.change, Saved: live.Saved, Template: live.Template,
		Peers: d.peers, Hosts: hosts, Watch: d.watch, Followed: d.followed, Shadows: d.shadows,
		Hooks: d.hooks.Load, Fetch: d.fetch.Wake, Renew: d.fetch.RenewNow, Boxes: d.sandboxes, Transfers: d.sandboxes.Accept,
	}
	return d, nil
}

// buildLauncher makes the launcher, with the control groups that the host allows.
func (d *daemon) buildLauncher(config *conf.Config) error {
	bin, err := BinDir()
	if err != nil {
		return err
	}
	shepherd := cmp.Or(d.opts.Shepherd, filepath.Join(helperDir(bin), "shepherd"))
	l := launch.New(launch.Runs{Root: d.root, Log: d.log, Privileged: d.opts.RootMode, Shepherd: shepherd})
	l.Host, l.BinDir, l.SGERoot = d.host, CommandDir(bin), filepath.Join(d.opts.Places.State, "sge")
	l.Session = filepath.Join(filepath.Dir(shepherd), "qrsh-session")
	d.launch = l
	if cmd := config.Global.ShepherdCmd; cmd != "" && !sameFile(cmd, shepherd) {
		l.Shepherd = cmd
	}
	if d.opts.Places.Dev {
		l.PaddockDir = d.opts.Places.State
	}
	if err := l.Check(); err != nil {
		return &UsageError{err}
	}
	if l.Groups, err = cgroup.Open(groupName(d.opts, d.root.Path()), shepherd, "-version"); err != nil {
		d.log.Info(fmt.Sprintf("execd: control groups: none: %v", err))
	} else {
		d.log.Info(fmt.Sprintf("execd: control groups: %v", l.Groups))
	}
	l.AsUser = &asuser.Starter{Shepherd: shepherd, Group: l.Groups.OpenHelpers}
	return nil
}

// groupName is the name of the control group above those of the jobs. It differs
// between spools, so that no execd removes the groups of another.
func groupName(o Options, dir string) string {
	if !o.Places.Dev {
		return "paddock"
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(dir))
	return fmt.Sprintf("paddock-%08x", h.Sum32())
}

// sameFile reports whether two paths lead to the same file.
func sameFile(a, b string) bool {
	infoA, err1 := os.Stat(a)
	infoB, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(infoA, infoB)
}

// BinDir returns the directory of execd.
func BinDir() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find own program: %w", err)
	}
	// Where the program itself is, and not a link to it, the others are to be found from.
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return "", fmt.Errorf("cannot find own program: %w", err)
	}
	return filepath.Dir(exe), nil
}

// CommandDir returns the directory of the commands: that of execd, as they are built,
// or bin beside it, as they are installed.
func CommandDir(execd string) string {
	return dirWith("qsub", execd, filepath.Join(filepath.Dir(execd), "bin"))
}

// helperDir returns the directory of the programs that execd starts: lib/paddock beside
// that of execd, as they are installed, or that of execd, as they are built.
func helperDir(execd string) string {
	return dirWith("shepherd", filepath.Join(filepath.Dir(execd), "lib", "paddock"), execd)
}

// dirWith returns the first of the directories that has a file of this name, or the
// first when none has.
func dirWith(name string, dirs ...string) string {
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return dir
		}
	}
	return dirs[0]
}

// run recovers, serves, and stops in order.
func (d *daemon) run(ctx context.Context) error {
	coalesceTimers()
	if err := d.launch.Init(); err != nil {
		return err
	}
	mode := os.FileMode(0o600)
	if d.opts.RootMode {
		mode = 0o666 // all users may connect; the kernel says who asks
	}
	listener, err := server.Listen(d.opts.Places.Socket, mode)
	if err != nil {
		d.launch.Groups.Leave()
		return err
	}
	defer listener.Close()

	// The parts stop in this order: what a part needs to finish stops after it.
	var queueDone, bookDone, launchDone sync.WaitGroup
	bookCtx, stopBook := context.WithCancel(context.Background())
	defer stopBook()
	fetchCtx, stopFetch := context.WithCancel(ctx)
	stopLaunch := make(chan struct{})
	launchDone.Go(func() { d.launch.Run(stopLaunch) })
	bookDone.Go(func() { d.book.Run(bookCtx) })
	bookDone.Go(func() { d.mail.Run(bookCtx) })
	stop := func() {
		stopFetch() // its hooks may run though nothing else was started
		queueDone.Wait()
		d.queue.Stop()
		d.stages.Stop()
		d.stopHooks()
		d.sandboxes.StopPlugins()
		stopBook()
		bookDone.Wait()
		close(stopLaunch)
		launchDone.Wait()
		d.launch.Groups.Leave()
	}

	d.queue.SetLoad(d.load.Values())
	err = d.loadShares()
	if err == nil {
		d.fetch.Recover(fetchCtx)
		d.followed.Recover(d.store.Claimed())
		err = d.shadows.Load()
	}
	if err == nil {
		d.sandboxes.Refreeze()
		err = d.stages.Recover()
	}
	if err != nil {
		stop()
		return err
	}
	d.queue.Adopted()
	if err := errors.Join(d.launch.SweepGroups(), d.launch.Sweep(d.config.Current().Queues)); err != nil {
		d.log.Warn(err.Error())
	}
	d.sandboxes.Recover()
	d.queue.Traffic()
	for _, j := range d.store.Pending() {
		d.sources.Of(j.Source).Stray(j)
	}
	if s := d.drain.State(); s.On && s.Speed != "" {
		d.queue.Drain(claim.Speed(s.Speed)) // as an earlier execd was told
	}
	d.reportKept()
	d.config.Tell(d.keep)
	d.report()
	d.configureLoad()
	queueDone.Go(func() { d.queue.Run(ctx) })
	for _, j := range d.store.WithAttributes() {
		d.policies.Waits(j)
	}
	queueDone.Go(func() { d.policies.Run(ctx) })
	queueDone.Go(func() { d.fetch.Run(fetchCtx) })
	queueDone.Go(func() { d.load.Run(ctx, d.queue.SetLoad) })
	queueDone.Go(func() { d.usage.Run(ctx) })
	queueDone.Go(func() { d.keepShares(ctx) })
	queueDone.Go(func() { d.queueLog.Run(ctx) })
	queueDone.Go(func() {
		if err := watchClock(ctx, d.queue.ClockSet); err != nil {
			d.log.Warn(fmt.Sprintf("execd: %v: jobs with a start time may be late after the clock is set", err))
		}
	})
	d.queue.Wake()

	pid := d.root.Path(spool.FileExecdPID)
	if err := atomicfile.Write(pid, spool.AppendNumber(nil, os.Getpid()), 0o644); err != nil {
		d.log.Warn(err.Error())
	}
	d.log.Info(fmt.Sprintf("execd: ready: socket=%s spool=%s version=%s", d.opts.Places.Socket, d.root.Path(), d.opts.Version))
	d.logs.configure(d.config.Current())
	queueDone.Go(func() { d.hangUps(ctx) })
	if addr := d.config.Current().Global.Metrics; addr != "" {
		queueDone.Go(func() { d.serveMetrics(ctx, addr) })
	}
	queueDone.Go(func() {
		if err := d.config.Watch(ctx, d.reloaded, d.reloadPeers); err != nil {
			d.log.Warn(fmt.Sprintf("execd: %v: a change takes effect with qconf -reload or SIGHUP", err))
		}
	})
	d.reportWarnings(d.config.Current())
	d.reportHooks()
	d.reportService(d.config.Current())
	d.server.Open(ctx)
	d.reloadPeers()
	queueDone.Go(func() { d.pool(ctx) })
	queueDone.Go(func() { d.shadows.Run(ctx) })
	notify("READY=1")
	queueDone.Go(func() { d.watchdog(ctx) })
	queueDone.Go(debug.FreeOSMemory) // what only the start has needed
	err = d.server.Serve(ctx, listener)
	notify("STOPPING=1")
	stop()
	d.log.Info(fmt.Sprintf("execd: stopped; %d jobs go on running", d.launch.Running()))
	_ = atomicfile.Remove(pid) // a stale one harms nobody
	return err
}

// reportWarnings logs what was accepted in the configuration and does less than it
// seems to.
func (d *daemon) reportWarnings(c *conf.Config) {
	for i := range c.Warnings {
		d.log.Warn(fmt.Sprintf("execd: configuration: %v", &c.Warnings[i]))
	}
}

// report logs how scratch directories are limited, and which devices are kept from
// jobs.
func (d *daemon) report() {
	d.launch.ReportDevices(d.config.Current())
	active, without := launch.ScratchReport(d.config.Current(), d.opts.RootMode)
	for _, text := range active {
		d.log.Info("execd: " + text)
	}
	for _, text := range without {
		d.log.Warn("execd: " + text)
	}
}
