package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/daemon"
	"paddock/execd/internal/pilot"
	"paddock/internal/hint"
	"paddock/spool"
)

// pilotFlags are those of -pilot.
var pilotFlags = []string{"grace", "end", "config"}

// runPilot runs execd as a job of a batch system.
func runPilot(c *cli.Context, o daemon.Options) (err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	grace := c.Duration("grace")
	if c.IsSet("dev") || c.IsSet("root") || grace < 0 {
		return cli.Exit("execd: -pilot has its own directory, and -grace is no time below 0", exitUsage)
	}
	var end time.Time
	if text := c.String("end"); text != "" {
		var err error
		if end, err = time.Parse(time.RFC3339, text); err != nil {
			return cli.Exit(fmt.Sprintf("execd: -end %q is no time such as 2027-01-31T18:00:00+01:00", text), exitUsage)
		}
	}
	from, err := filepath.Abs(cmp.Or(c.String("config"), filepath.Join(api.UserPlaces().Config, "pilot")))
	if err != nil {
		return fmt.Errorf("cannot find configuration: %w", err)
	}
	host, err := thisHost()
	if err != nil {
		return err
	}
	a, warnings := pilot.Find(host, end)
	var until time.Time
	if !a.End.IsZero() {
		if until = a.End.Add(-grace); time.Until(until) <= 0 {
			return &daemon.UsageError{Err: fmt.Errorf("the allocation ends at %s, and -grace %v leaves no time before", a.End.Format(time.RFC3339), grace)}
		}
	}
	o.Places, o.RootMode = api.DevPlaces(pilot.Dir(os.TempDir(), &a)), false
	o.HookVariables = pilot.Variables(&o.Places, &a, until)
	_, err = os.Lstat(o.Places.State)
	made := errors.Is(err, fs.ErrNotExist)
	// Of a pilot whose configuration is wrong no directory stays. One that was there is of another, or of an earlier one.
	defer func() {
		if _, wrong := errors.AsType[*daemon.UsageError](err); wrong && made {
			err = errors.Join(err, os.RemoveAll(o.Places.State))
		}
	}()
	if err := pilot.Configure(&o.Places, from, &a, until); err != nil {
		return &daemon.UsageError{Err: err}
	}
	configured, err := daemon.Check(o)
	if configured == nil {
		return err // else the execd says what is wrong, or does without it
	}
	say := func(text string) { fmt.Fprintln(os.Stderr, "execd: pilot: "+text) }
	for _, w := range warnings {
		say("warning: " + w)
	}
	usable := "for ever"
	if !until.IsZero() {
		usable = fmt.Sprintf("until %s, %v of %v", until.Format(time.RFC3339), time.Until(until).Round(time.Second), time.Until(a.End).Round(time.Second))
	}
	say(fmt.Sprintf("scheduler=%s job=%s cores=%d memory=%dM gpus=%d directory=%s: takes work %s", a.Scheduler, a.Job, a.Cores, a.Memory>>20, len(a.GPUs), o.Places.State, usable))

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	leave, err := share(ctx, &o.Places, say)
	if err != nil {
		return &daemon.UsageError{Err: err}
	}
	dirs := []string{filepath.Join(o.Places.Spool, spool.DirReports), filepath.Join(o.Places.Spool, spool.DirEvictions)}
	failing, accounted := hint.New(), hint.New()
	o.FetchFailing, o.Accounted = failing.Give, accounted.Give
	life := &pilot.Life{
		Call: api.NewClient(o.Places.Socket).Call, Accounted: accounted, Ended: pilot.Ended(o.Places.Accounting), Told: pilot.Told(dirs...),
		Failing: failing, Until: until, Idle: configured.Knobs.Duration(knob.NoClaimShutdown, pilot.Idle), Signals: signals, Log: say,
	}
	status := make(chan int, 1)
	go func() {
		status <- life.Run(ctx)
		stop()
	}()
	if err := daemon.Run(ctx, o); err != nil {
		return err
	}
	stop()
	code := <-status
	leave()
	if n := pilot.Untold(dirs...); n > 0 {
		say(fmt.Sprintf("%d ends were not told: they stay in %s", n, o.Places.Spool))
	} else if err := os.RemoveAll(o.Places.State); err != nil {
		say(err.Error())
	}
	say(fmt.Sprintf("ends: status=%d", code))
	if code != 0 {
		return cli.Exit("", code)
	}
	return nil
}

// share has the ends of work told that pilots before could not tell, if there is a directory that they
// share, and returns what leaves those of this one there, when the execd has ended and ctx is done.
func share(ctx context.Context, places *api.Places, say func(string)) (leave func(), err error) {
	dir := os.Getenv(pilot.SharedVariable)
	if dir == "" {
		return func() {}, nil
	}
	root, err := spool.OpenRoot(places.Spool, true)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	s, err := pilot.OpenShared(dir, root.Path(spool.DirReports), host+"."+filepath.Base(places.State), say)
	if err != nil {
		return nil, err
	}
	if err := s.Take(); err != nil {
		say(err.Error())
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		s.Follow(ctx)
	}()
	return func() {
		<-followed
		s.Leave()
	}, nil
}

// thisHost is what is known of this process and its host.
func thisHost() (*pilot.Host, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, fmt.Errorf("cannot get the memory of the host: %w", err)
	}
	var cores unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cores); err != nil {
		return nil, fmt.Errorf("cannot get the processors: %w", err)
	}
	return &pilot.Host{
		Env: os.Getenv, Read: os.ReadFile, Ask: ask,
		Mtime: func(path string) (time.Time, error) {
			info, err := os.Stat(path)
			if err != nil {
				return time.Time{}, err
			}
			return info.ModTime(), nil
		},
		Cores: max(cores.Count(), 1), Memory: int64(info.Totalram) * int64(info.Unit), //nolint:gosec // no host has that much
	}, nil
}

// ask calls a program of a batch system.
func ask(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), statusPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		if said, _, _ := strings.Cut(strings.TrimSpace(errs.String()), "\n"); said != "" {
			err = errors.New(said)
		}
		return "", fmt.Errorf("cannot call %s: %w", name, err)
	}
	return string(out), nil
}
