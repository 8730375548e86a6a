// Package hook is the parent of hooks: programs of the administrator's that execd
// runs as a user, for itself or around a job. It has become that user already,
// starts one hook at a time in a session of its own, and ends whatever descends
// from the hook when that ends or is to end, or when execd has ended. It has no
// files: it talks to execd by sockets. Only the shepherd's main package imports it.
package hook

import (
	"errors"
	"io"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/backoff"
	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/reap"
	"paddock/shepherd/internal/starter"
	"paddock/spool"
)

const (
	grace     = 3 * time.Second  // from SIGTERM to SIGKILL
	killLimit = 10 * time.Second // from SIGKILL until what lives still is named and left
	// firstLook is the time until the processes of a hook are counted first; the
	// time to the next count doubles. A count reads all processes of the host, and
	// most hooks end before the first.
	firstLook = 100 * time.Millisecond
	// busyLook and quietLook bound the time between two counts, while the number
	// changes and while it does not. A hook that asks for work may wait for minutes
	// in one read, on each slot of the host, and must not wake the host twice a
	// second. The count is for mistakes of the administrator's, as a loop that
	// starts processes and forgets them, which may be noticed after five seconds as
	// well. What is faster is held by the limits of its user and its control group.
	busyLook  = 500 * time.Millisecond
	quietLook = 5 * time.Second
	// Counting takes no more than one part in this many of the time.
	lookShare = 50
)

// Fail tells execd that the hook that it hands over cannot be started, and why.
func Fail(text string) {
	if c, err := receive(); err == nil {
		_ = c.tell((&spool.HookReport{Failed: text}).Append(nil))
	}
}

// Run runs the hooks that execd hands over and returns the shepherd's exit code: 0
// if there are no more, or if the last had to be ended and execd was told how. Call
// it in an init function, which stays on the first thread: a hook dies with the
// thread that started it.
func Run() int {
	if err := isolate(); err != nil {
		Fail(err.Error())
		return 1
	}
	born := observe()
	for first := true; ; first = false {
		c, err := receive()
		if errors.Is(err, io.EOF) {
			return 0
		}
		if err != nil {
			return 1
		}
		if !first && observe() != born {
			return 0 // it was not begun: execd has another parent run it
		}
		if again, code := c.run(); !again {
			return code
		}
	}
}

// run runs a hook. A parent that has seen its hook to a proper end, of which nothing
// was left and nobody had to be killed, is as good as new and may have another.
func (c *call) run() (again bool, code int) {
	h := &hook{processes: c.Processes}
	if err := c.tell(h.report.AppendTaken(nil)); err != nil {
		return false, 1 // execd is gone, or wants it no more
	}
	if err := h.start(c); err != nil {
		h.report.Failed = err.Error()
		_ = c.tell(h.report.Append(nil))
		return false, 1
	}
	_ = c.tell(h.report.AppendStarted(nil))
	h.watch()
	h.report.Waits = h.report.Ended && !h.stopping() && !h.loop.Orphans()
	h.sweep()
	_ = c.tell(h.report.Append(nil))
	if !h.report.Waits {
		return false, 0
	}
	unix.Close(h.signals)
	unix.Close(c.socket)
	// A signal that has come meanwhile ends us now. What execd may have handed over
	// already was not taken.
	starter.OpenSignals()
	return true, 0
}

// isolate protects this process from the other processes of the user whose rights
// it has: they cannot look into it or take its descriptors. They can still kill it,
// and then there is no report.
func isolate() error {
	starter.CloseOnExec()
	_ = starter.SetName("shepherd-hook")
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return errors.New("cannot protect the parent of the hook: " + err.Error())
	}
	if err := reap.Subreaper(); err != nil {
		return errors.New("cannot become the parent of orphans: " + err.Error())
	}
	_, _ = unix.Setsid() // fails where execd has done it
	starter.OpenSignals()
	return nil
}

// hook is a hook that runs.
type hook struct {
	processes int
	signals   int // a signalfd
	loop      reap.Loop
	job       *control.Job
	report    spool.HookReport

	// When it is to end: zero until then.
	killAt  time.Time
	killed  bool
	look    time.Time     // when its processes are counted next
	between time.Duration // two counts
	counted int           // processes, by the last
}

// start starts the program.
func (h *hook) start(c *call) error {
	defer c.letGo()
	if err := unix.Chdir(c.Dir); err != nil {
		return errors.New("cannot work in " + strconv.Quote(c.Dir) + ": " + err.Error())
	}
	unix.Umask(0o022)
	h.signals = -1
	h.loop = reap.New()
	h.loop.Report = c.socket
	attr := &syscall.ProcAttr{
		Env:   c.Env,
		Files: c.streams[:],
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL, PidFD: &h.loop.Child},
	}
	pid, err := syscall.ForkExec(c.Argv[0], c.Argv, attr)
	for try := 0; errors.Is(err, unix.ETXTBSY) && try < busyTries; try++ {
		time.Sleep(busyPause)
		pid, err = syscall.ForkExec(c.Argv[0], c.Argv, attr)
	}
	if err == nil && h.loop.Child < 0 {
		h.loop.Child, err = unix.PidfdOpen(pid, 0)
	}
	if err != nil {
		return errors.New("cannot execute " + strconv.Quote(c.Argv[0]) + ": " + reason(c.Argv[0], err))
	}
	h.loop.PID, h.report.PID = pid, pid
	h.job = control.NewJob(control.Job{PID: pid, Root: unix.Getpid()}, func(...string) {})
	h.between = firstLook
	h.look = time.Now().Add(firstLook)
	// Only now: a hook starts with an empty mask. A signal that came before has
	// ended us, and the hook with us.
	mask := control.Set(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &mask, nil); err == nil {
		if fd, err := unix.Signalfd(-1, &mask, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK); err == nil {
			h.signals, h.loop.Signals = fd, fd
		}
	}
	return nil
}

// A file that somebody is writing is tried again, as the starter does.
const (
	busyTries = 50
	busyPause = 10 * time.Millisecond
)

// reason says more about an error of execve where the kernel's number misleads.
func reason(path string, err error) string {
	switch {
	case errors.Is(err, unix.ENOENT) && unix.Access(path, unix.F_OK) == nil:
		return "its interpreter is missing"
	case errors.Is(err, unix.ENOEXEC):
		return "no program, and no script with a line #! at its beginning"
	}
	return err.Error()
}

// watch waits until nothing of the hook is left, or what is left is to be
// killed: its first process has ended and was not told to.
func (h *hook) watch() {
	for h.loop.Orphans() {
		now := time.Now()
		switch over := h.stopping() && !now.Before(h.killAt); {
		case h.report.Ended && (!h.stopping() || over):
			return
		case over && h.killed:
			return // it does not die
		case over:
			h.job.Signal(unix.SIGKILL)
			h.killed, h.killAt = true, now.Add(killLimit)
		case !h.stopping() && h.counts() && !now.Before(h.look):
			h.count()
			continue
		}
		wait := max(h.look.Sub(now), 0)
		switch {
		case h.stopping():
			wait = max(h.killAt.Sub(now), 0)
		case !h.counts():
			wait = -1
		}
		w, err := h.loop.Wait(wait)
		if err != nil {
			h.stop("cannot wait: "+err.Error(), 0)
		}
		if w.Ended { // of itself, whatever else has come
			h.take()
			continue
		}
		if w.Signals {
			for sig, _, ok := h.loop.Signal(); ok; sig, _, ok = h.loop.Signal() {
				h.stop("its parent got signal "+control.Name(sig), grace)
			}
		}
		if w.Report {
			// Nothing is sent but the end.
			h.loop.Report = -1
			h.stop("told to", grace)
		}
	}
}

func (h *hook) stopping() bool { return !h.killAt.IsZero() }

// stop begins the end of a hook, of which SIGKILL is the latest after a time.
func (h *hook) stop(why string, after time.Duration) {
	if h.stopping() {
		return
	}
	h.report.Stopped = why
	h.killAt = time.Now().Add(after)
	if after > 0 {
		h.job.Signal(unix.SIGTERM)
		h.job.Signal(unix.SIGCONT) // what is stopped could not obey
	}
}

// take takes the exit of the first process.
func (h *hook) take() {
	ws, _, err := h.loop.Take()
	h.report.Ended = err == nil
	switch {
	case err != nil:
		h.stop("cannot take its exit: "+err.Error(), 0)
	case ws.Signaled():
		h.report.Status = -int(ws.Signal())
	default:
		h.report.Status = ws.ExitStatus()
	}
}

// counts reports whether the hook may have only so many processes. A hook server may have any
// number: it stays, and counting would wake the host every few seconds.
func (h *hook) counts() bool { return h.processes > 0 }

// count ends a hook that has more processes than it may.
func (h *hook) count() {
	begun := time.Now()
	n := len(control.Below(unix.Getpid(), 0))
	h.between = pace(h.between, n != h.counted, time.Since(begun))
	h.look, h.counted = time.Now().Add(h.between), n
	if n > h.processes {
		h.stop("more than "+strconv.Itoa(h.processes)+" processes", 0)
	}
}

// pace returns the time to the next count: before is the time to the last one, changed
// whether that found another number of processes, and took how long it took.
func pace(before time.Duration, changed bool, took time.Duration) time.Duration {
	most := quietLook
	if changed {
		most = busyLook
	}
	return max(min(2*before, most), lookShare*took)
}

// sweep kills what is left, until nothing is.
func (h *hook) sweep() {
	limit, pause := time.Now().Add(killLimit), sweeps.First
	if h.killed { // that time was given already
		limit = time.Now().Add(time.Second)
	}
	// Unread data would end every wait.
	h.loop.Report, h.loop.Signals = -1, -1
	for h.loop.Orphans() {
		if h.loop.Child >= 0 {
			h.job.Signal(unix.SIGKILL)
		}
		hit := h.job.Sweep()
		if time.Now().After(limit) {
			h.report.Left = h.job.Members()
			return
		}
		if hit > manyHit {
			continue // what forks must not get the time to
		}
		w, _ := h.loop.Wait(pause)
		if w.Ended {
			h.take()
		}
		pause = sweeps.Next(pause)
	}
}

// sweeps are the pauses between two looks for what is left.
var sweeps = backoff.Doubling{First: time.Millisecond, Most: 50 * time.Millisecond}

// manyHit is how many processes of a hook that is being killed show that it
// forks.
const manyHit = 8
