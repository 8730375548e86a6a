// Package parent is the first stage of the shepherd: it prepares the job's
// directory, starts the starter stage, waits, passes signals on, and writes down
// how the job ended. Only the shepherd's main package imports it.
package parent

import (
	"errors"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/owner"
	"paddock/shepherd/internal/phase"
	"paddock/shepherd/internal/reap"
	"paddock/shepherd/internal/starter"
	"paddock/shepherd/internal/trace"
	"paddock/spool"
)

const (
	quietAfter = 50 * time.Millisecond // a job that lives longer is worth preparing for a long wait
	sweepEvery = 20 * time.Millisecond // between looks at what does not die at once
	sweepLimit = 10 * time.Second      // until it is named and left to execd
	diskLimit  = 60 * time.Second      // that a full disk is waited for
	diskEvery  = 500 * time.Millisecond
)

// parent is the shepherd of one job.
type parent struct {
	dir     spool.Dir
	version string
	config  *spool.Config
	foreign bool // the directory is not our execd's
	admin   owner.User
	lock    *os.File

	log       *trace.Log
	traceFile *os.File
	stage     *starter.Stage
	loop      reap.Loop
	job       *control.Job
	inbox     control.Inbox
	held      control.Held

	state   phase.State
	execing bool // the stage said that exec is next
	killed  bool // somebody wanted the job's end
	failed  bool // the job could not be started, and it is said why
	trimmed bool // see trim

	littered bool // there is garbage to collect
	woken    int  // how often for orphans

	started, ended time.Time
	status         syscall.WaitStatus
	rusage         syscall.Rusage
	ran            bool  // there was a job, and status and rusage are its
	verdicts       []int // for exit_status, in order

	// What config says of the job's exit codes 99 and 100: ordinary ones.
	forbidReschedule, forbidApperror bool
}

// ExitNotStarted is the exit code when the directory was not taken over and
// nothing in it was touched. All others are states of exit_status.
const ExitNotStarted = 1

// Options say what is to be done.
type Options struct {
	Dir       string // of the job
	Version   string // for the trace
	Restarted bool   // this is the second start of a foreign one
}

// Run runs the job of a directory and returns the exit code. Call it in an
// init function: all of them run on the first thread, and that one must wait,
// because the kernel sends SIGCHLD to it and not to whichever thread waits.
// Locking the thread would do as well, and costs a thread more.
func Run(o Options) int {
	control.Shield()
	if err := restart(o); err != nil {
		complain(err.Error())
		return ExitNotStarted
	}
	if err := unix.Chdir(o.Dir); err != nil {
		complain("cannot work in " + strconv.Quote(o.Dir) + ": " + err.Error())
		return ExitNotStarted
	}
	p := &parent{dir: spool.OpenDir("."), version: o.Version, log: trace.New(-1), admin: owner.User{UID: -1, GID: -1}}
	lock, passed, err := takeLock(p.dir)
	if errors.Is(err, spool.ErrLocked) {
		complain("cannot work in " + strconv.Quote(o.Dir) + ": another shepherd does")
		return ExitNotStarted
	}
	if err != nil {
		complain(err.Error())
		return ExitNotStarted
	}
	p.lock = lock
	starter.CloseOnExec() // from now on nothing we start holds the lock
	if !passed {
		// sge_execd finds its shepherds again by this name.
		_ = starter.SetName("sge_shepherd")
	}
	if n, err := p.dir.ExitStatus(); err == nil && passed {
		complain("the job in " + strconv.Quote(o.Dir) + " has ended already, with status " + strconv.Itoa(n))
		return ExitNotStarted
	}
	inherited := -1
	if o.Restarted {
		inherited = inheritedFD
	}
	return p.run(inherited)
}

// complain prints the one line for whoever started us by hand.
func complain(text string) { _, _ = os.Stderr.WriteString("shepherd: " + text + "\n") }

// run is the plot: wait for an event, do what the table says.
func (p *parent) run(inherited int) (code int) {
	defer func() {
		if e := recover(); e != nil {
			code = p.panicked(e)
		}
	}()
	var err error
	mask := control.Mask()
	p.loop = reap.Loop{Child: -1, Report: -1}
	if p.loop.Signals, err = unix.Signalfd(-1, &mask, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK); err == nil {
		err = reap.Subreaper()
	}
	if err == nil {
		// First of all, since its start-up is the longest part of ours.
		p.stage, err = starter.Launch(inherited)
	}
	p.on(p.prepare(err))
	for p.state != phase.Done {
		woken, err := p.loop.Wait(p.patience())
		if err != nil {
			panic("cannot wait: " + err.Error())
		}
		p.events(woken)
	}
	return p.finish()
}

// event is something that happened, with what belongs to it.
type event struct {
	what   phase.Event
	signal unix.Signal      // WantSignal
	fail   *starter.Failure // Refused, Failed
}

// patience returns how long the next wait may last, negative for ever: an
// idle shepherd is never woken by a clock.
func (p *parent) patience() time.Duration {
	switch {
	case p.state == phase.Sweeping:
		return sweepEvery
	case p.state == phase.Running && !p.trimmed:
		return quietAfter
	}
	return -1
}

// events turns what woke the shepherd into events.
func (p *parent) events(w reap.Woken) {
	if w.Report {
		p.messages()
	}
	if w.Signals {
		p.signals()
	}
	if w.Ended && p.loop.Child >= 0 {
		p.on(event{what: phase.Ended})
		return
	}
	if p.state == phase.Sweeping {
		switch left := p.loop.Orphans(); {
		case !left:
			p.on(event{what: phase.Empty})
		case time.Since(p.ended) > sweepLimit:
			p.on(event{what: phase.TimedOut})
		default:
			p.job.Sweep()
		}
		return
	}
	p.loop.Orphans() // whatever woke us: a zombie costs its number until then
	if w.Orphan {
		if p.woken++; p.woken%1024 == 0 { // whatever little each left
			p.littered, p.trimmed = true, false
		}
	}
	if w.Timeout {
		p.on(event{what: phase.Quiet})
	}
}

// messages reads what the starter stage says.
func (p *parent) messages() {
	for p.loop.Report >= 0 {
		m := p.stage.Next()
		switch {
		case m.Again:
			return
		case m.Exec:
			p.execing = true
		case m.Failure != nil:
			p.on(event{what: phase.Failed, fail: m.Failure})
		case m.Closed:
			p.stage.Close()
			p.loop.Report = -1
			if p.execing && !p.failed {
				p.on(event{what: phase.Executed})
			}
		}
	}
}

// signals reads the signals that the shepherd got.
func (p *parent) signals() {
	for {
		sig, uid, ok := p.loop.Signal()
		if !ok {
			return
		}
		p.log.Line("wait3 returned -1")
		number := strconv.Itoa(int(sig)) + " " + control.Name(sig)
		switch meaning, to := control.Carrier(sig); meaning {
		case control.Ignore:
			p.log.Line("ignored signal " + number + " of uid " + strconv.Itoa(int(uid)) + ": the job would be left alone")
		case control.Forward:
			p.mapped(sig, to)
			p.want(to)
		case control.Migrate:
			p.log.Line("forward_signal_to_job(): mapping signal " + number)
			p.log.Line("no need to map signal " + control.Name(sig))
			p.want(to) // without a checkpoint interface all of it that is left
		case control.Read:
			for _, to := range p.inbox.Take() {
				p.mapped(sig, to)
				p.want(to)
			}
		}
	}
}

// mapped traces what a carrier signal stands for, in Grid Engine's words.
func (p *parent) mapped(sig, to unix.Signal) {
	p.log.Line("forward_signal_to_job(): mapping signal " + strconv.Itoa(int(sig)) + " " + control.Name(sig))
	if sig == to {
		p.log.Line("no need to map signal " + control.Name(sig))
		return
	}
	p.log.Line("mapped signal " + control.Name(sig) + " to signal " + control.Name(to))
}

// want raises the event for a signal the job is to get.
func (p *parent) want(sig unix.Signal) {
	p.log.Line("queued signal " + control.Name(sig))
	if sig == unix.SIGKILL {
		p.on(event{what: phase.WantKill, signal: sig})
		return
	}
	p.on(event{what: phase.WantSignal, signal: sig})
}

// on does what the table says about an event.
func (p *parent) on(e event) {
	step := phase.On(p.state, e.what)
	from := p.state
	p.state = step.Next
	switch step.Do {
	case phase.Impossible:
		panic("internal error: event " + strconv.Quote(e.what.String()) + " in state " + from.String())
	case phase.Carry:
	case phase.Go:
		p.start()
	case phase.Fail:
		p.fail(e.fail)
	case phase.Note:
		for _, sig := range p.held.Take() {
			p.deliver(sig)
		}
	case phase.Hold:
		p.held.Add(e.signal)
	case phase.Deliver:
		p.deliver(e.signal)
	case phase.Kill:
		p.killed = true
		p.deliver(unix.SIGKILL)
	case phase.Collect:
		p.collect()
	case phase.Trim:
		p.trim()
	case phase.Finish:
	case phase.Abandon:
		for _, pid := range p.job.Members() {
			p.log.Line("cannot kill pid " + strconv.Itoa(pid) + ", it is left behind")
		}
	}
	p.log.Flush()
}

// start tells the stage to become the job.
func (p *parent) start() {
	p.started = time.Now()
	p.loop.PID, p.loop.Child, p.loop.Report = p.stage.PID, p.stage.PIDFD, p.stage.Socket
	p.log.Flush()                                                              // before the stage adds to the trace
	_ = p.stage.Go(starter.Order{Name: "job", State: spool.FailedBeforeStart}) // if it is dead already, its end says so
}

// deliver sends a signal to all of the job.
func (p *parent) deliver(sig unix.Signal) {
	p.log.Line("kill(-" + strconv.Itoa(p.job.PID) + ", " + control.Name(sig) + ")")
	p.job.Signal(sig)
	p.littered, p.trimmed = true, false
}

// fail records why the job was not started.
func (p *parent) fail(f *starter.Failure) {
	p.failed = true
	if p.loop.Child < 0 && p.stage != nil { // it was not told to go and leaves without a word
		p.dismiss()
	}
	pid := unix.Getpid()
	euid := unix.Geteuid()
	if p.loop.Child >= 0 { // the stage traced it itself
		pid, euid = p.stage.PID, f.EUID
	} else {
		p.log.Line(f.Text)
		// sge_execd takes a directory without pid for one whose shepherd never
		// came so far (4), whatever exit_status says.
		if has, err := p.dir.Has(spool.FilePID); err == nil && !has {
			_ = p.write(spool.FilePID, pid)
		}
	}
	p.blame(f.Number, euid, pid, f.Text)
}

// dismiss ends a stage that was not told to go.
func (p *parent) dismiss() {
	p.stage.Close()
	unix.Close(p.stage.PIDFD)
	_, _ = unix.Wait4(p.stage.PID, nil, 0, nil)
	p.stage = nil
}

// blame adds a failure to the verdict and its reason to error.
func (p *parent) blame(number, euid, pid int, text string) {
	p.verdicts = append(p.verdicts, number)
	line := spool.AppendTrace(nil, time.Now(), euid, pid, text)
	_ = p.dir.Append(spool.FileError, line) // without it, the number still tells
	p.give(spool.FileError)
}

// collect takes the job's exit and kills what it left.
func (p *parent) collect() {
	// While the first process was not waited for, its number cannot be
	// another group's.
	_ = unix.Kill(-p.job.PID, unix.SIGKILL)
	ws, ru, err := p.loop.Take()
	if err != nil {
		panic("cannot take the exit of the job: " + err.Error())
	}
	p.ended, p.status, p.rusage = time.Now(), ws, ru
	pid := strconv.Itoa(p.job.PID)
	p.log.Line("wait3 returned " + pid + " (status: " + strconv.Itoa(int(ws)) +
		"; WIFSIGNALED: " + bit(ws.Signaled()) + ",  WIFEXITED: " + bit(ws.Exited()) +
		", WEXITSTATUS: " + strconv.Itoa(max(ws.ExitStatus(), 0)) + ")")
	p.log.Line("job exited with exit status " + strconv.Itoa(max(ws.ExitStatus(), 0)))
	p.log.Line(`reaped "job" with pid ` + pid)
	if ws.Signaled() {
		p.log.Line("job exited due to signal")
		line := "job signaled: " + strconv.Itoa(int(ws.Signal()))
		if ws.CoreDump() {
			line += " (core dumped)"
		}
		p.log.Line(line)
	} else {
		p.log.Line("job exited not due to signal")
		p.log.Line("job exited with status " + strconv.Itoa(ws.ExitStatus()))
	}
	p.log.Line("now sending signal KILL to pid -" + pid)

	left := p.loop.Orphans()
	if left {
		p.job.Sweep()
		left = p.loop.Orphans()
	}
	switch {
	case p.failed:
	case p.execing, p.killed && ws.Signaled():
		p.ran = true
	default:
		p.failed = true
		p.blame(spool.FailedBeforeStart, unix.Geteuid(), p.job.PID,
			"internal error: the starter stage ended before the job was started, "+ending(ws))
	}
	if p.failed {
		p.log.Line("failed starting job")
	}
	if !left {
		p.on(event{what: phase.Empty})
	}
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func ending(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "by signal " + control.Name(ws.Signal())
	}
	return "with status " + strconv.Itoa(ws.ExitStatus())
}

// trim makes a shepherd that only waits a quiet one: with the collector off
// nothing wakes it every two minutes. Memory is given back only after a signal
// was delivered: looking through /proc takes some, but a collection leaves more
// dirty pages behind (60 kB) than a fresh shepherd has to give.
func (p *parent) trim() {
	p.trimmed = true
	p.config = nil
	debug.SetGCPercent(-1)
	if p.littered {
		p.littered = false
		debug.FreeOSMemory()
	}
}
