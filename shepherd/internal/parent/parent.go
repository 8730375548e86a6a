// Package parent is the shepherd of a run: it prepares the job's directory,
// starts the parts of the run, each by a starter, waits, passes signals on, and
// writes down how the job ended. Only the shepherd's main package imports it.
package parent

import (
	"errors"
	"os"
	"runtime/debug"
	"strconv"
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
	heldFor    = time.Second           // until a job that has just begun gets what came before it
	sweepEvery = 20 * time.Millisecond // between looks at what does not die at once
	sweepLimit = 10 * time.Second      // until it is named and left to execd
	diskLimit  = 60 * time.Second      // that a full disk is waited for
	diskEvery  = 500 * time.Millisecond
)

// parent is the shepherd of one job.
type parent struct {
	dir      spool.Dir
	version  string
	noStock  string // see Options
	config   *spool.Config
	lock     *os.File
	assigned int // see Options

	log      *trace.Log
	results  results
	launcher launcher
	loop     reap.Loop
	timers   timers
	state    phase.State

	// The present part.
	part     phase.Part
	outcome  phase.Outcome    // of it, or of the one before
	starter  *starter.Process // of it
	order    starter.Order
	execing  bool         // the starter said that exec is next
	failed   bool         // it could not be started, and it is said why
	late     bool         // a procedure used up its time
	stopping bool         // and is being ended, for this or another reason
	working  *control.Job // a procedure's processes
	present  *planned     // the procedure that it is
	elders   bool         // procedures before the job may have left processes

	settings

	// What is wanted of the job.
	inbox     control.Inbox
	held      control.Held
	cancelled bool // it is not to begin
	expired   bool // it is ended with its lease
	unleased  bool // its lease counts no more
	migrating bool // it is to go on elsewhere
	arena     bool // there is a checkpoint

	job        job
	unreported bool     // its usage could not be written
	session    *session // nil unless the job is interactive, and then until its client is connected to
	companions companions
	coshepherd coshepherd
	woken      int // how often for orphans

	end []string // for the environment of what runs after the job
}

// ExitNotStarted is the exit code when the directory was not taken over and
// nothing in it was touched. All others are states of exit_status.
const ExitNotStarted = 1

// Options say what is to be done.
type Options struct {
	Dir       string   // of the job
	Version   string   // for the trace
	Argv      []string // as we were called
	Standby   bool     // Dir is yet to be assigned by execd, see spool.Assignment
	Detail    bool     // trace every step
	Restarted bool     // this is the second start of a foreign one
	NoStock   string   // why Grid Engine's own shepherd could not be started instead

	assigned int // socket by which Dir was, until the run has settled; 0: there is none
}

// Run runs the job of a directory and returns the exit code. Call it in an
// init function: all of them run on the first thread, and that one must wait,
// because the kernel sends SIGCHLD to it and not to whichever thread waits.
// Locking the thread would do as well, and costs a thread more.
func Run(o Options) int {
	foreign := !o.Standby && o.foreign()
	if foreign {
		o.handOver() // first, since what is ignored stays so
	}
	starter.Shield()
	if foreign {
		Complain(restart(o).Error())
		return ExitNotStarted
	}
	if o.Standby {
		if assigned, err := o.standby(); err != nil {
			Complain("cannot wait for a job of execd: " + err.Error())
			return ExitNotStarted
		} else if !assigned {
			return 0
		}
	}
	if err := unix.Chdir(o.Dir); err != nil {
		Complain("cannot work in " + strconv.Quote(o.Dir) + ": " + err.Error())
		return ExitNotStarted
	}
	log := trace.New(-1)
	if o.Detail {
		log.SetDetail()
	}
	dir := spool.OpenDir(".")
	p := &parent{
		dir: dir, version: o.Version, noStock: o.NoStock, log: log, assigned: o.assigned,
		results: results{dir: dir, log: log, admin: owner.User{UID: -1, GID: -1}},
	}
	lock, passed, err := takeLock(p.dir)
	switch {
	case errors.Is(err, spool.ErrLocked):
		Complain("cannot work in " + strconv.Quote(o.Dir) + ": another shepherd does")
		return ExitNotStarted
	case errors.Is(err, errNoJob):
		Complain("cannot work in " + strconv.Quote(o.Dir) + ": " + err.Error())
		return ExitNotStarted
	case err != nil:
		Complain(err.Error())
		return ExitNotStarted
	}
	p.lock = lock
	starter.CloseOnExec() // from now on nothing we start holds the lock
	if !passed {
		// sge_execd finds its shepherds again by this name.
		_ = starter.SetName("sge_shepherd")
	}
	if n, err := p.dir.ExitStatus(); err == nil && passed {
		Complain("the job in " + strconv.Quote(o.Dir) + " has ended already, with status " + strconv.Itoa(n))
		return ExitNotStarted
	}
	p.launcher = launcher{log: log, loop: &p.loop, group: group{log: log}, inherited: -1}
	p.job.log, p.job.timers = log, &p.timers
	p.coshepherd.launcher = &p.launcher
	if o.Restarted {
		p.launcher.inherited = inheritedFD
	}
	return p.run()
}

// Complain prints the one line for whoever started us by hand.
func Complain(text string) { _, _ = os.Stderr.WriteString("shepherd: " + text + "\n") }

// run is the plot: wait for an event, do what the table says.
func (p *parent) run() (code int) {
	defer func() {
		if e := recover(); e != nil {
			code = p.panicked(e)
		}
	}()
	var err error
	mask := control.Mask()
	p.loop = reap.New()
	if p.loop.Signals, err = unix.Signalfd(-1, &mask, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK); err == nil {
		err = reap.Subreaper()
	}
	p.on(p.prepare(err))
	for p.state != phase.Done {
		woken, err := p.loop.Wait(p.timers.patience())
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
	why    string           // Lost
}

// events turns what woke the shepherd into events.
func (p *parent) events(w reap.Woken) {
	if w.Report {
		p.messages()
	}
	if w.Signals {
		p.signals()
	}
	if w.Memory {
		p.checkMemory(memoryChecks)
	}
	if w.Session {
		p.heard()
	}
	if w.Notes {
		overhear(p.loop.Notes)
	}
	if w.Lease {
		p.leaseDue()
	}
	if w.Ended && p.loop.Child >= 0 {
		p.on(event{what: phase.Ended})
	} else if p.state != phase.Sweeping { // whatever woke us: a zombie costs its number until then
		p.loop.Orphans()
		if w.Orphan {
			if p.woken++; p.woken%1024 == 0 && p.state == phase.Running { // whatever little each left
				p.job.litter()
			}
		}
	} else if w.Orphan || w.Beside {
		p.sweep()
	}
	p.companionsEnded()
	if p.state == phase.Parting && p.session.child.Ended {
		p.on(event{what: phase.Left})
	}
	now := time.Now()
	for which, ok := p.timers.due(now); ok; which, ok = p.timers.due(now) {
		p.elapsed(which)
	}
	p.log.Flush()
}

// elapsed does what a timer was set for.
func (p *parent) elapsed(which timer) {
	switch which {
	case timerQuiet:
		p.on(event{what: phase.Quiet})
	case timerSweep:
		p.sweep()
	case timerHeld:
		for _, sig := range p.held.Take() {
			p.request(sig)
		}
	case timerLate:
		p.on(event{what: phase.Late})
	case timerKill:
		p.log.Line(p.order.Name + " does not end, killing it")
		p.working.Signal(unix.SIGKILL)
		p.timers.after(timerKill, killAfter) // what it forked meanwhile
	case timerNotify:
		p.warned()
	case timerSoft, timerHard:
		p.tooLong(which)
	case timerCheckpoint:
		p.checkpoint()
	case timerHangup:
		p.job.killed = true
		p.job.deliver(unix.SIGKILL)
	case timerMemory:
		p.checkMemory(p.job.memoryChecks)
	case timerLease:
		p.job.forget()
		p.job.deliver(unix.SIGKILL)
	}
}

// messages reads what the starter says.
func (p *parent) messages() {
	for p.loop.Report >= 0 {
		m := p.starter.Next()
		switch {
		case m.Again:
			return
		case m.Exec:
			p.execing = true
		case m.Failure != nil:
			p.on(event{what: phase.Failed, fail: m.Failure})
		case m.Closed:
			p.starter.Close()
			p.loop.Report = -1
			if p.execing && !p.failed {
				p.on(event{what: phase.Executed})
			}
		}
	}
}

// on does what the table says about an event.
func (p *parent) on(e event) {
	step := phase.On(p.state, e.what)
	from := p.state
	p.state = step.Next
	if p.log.Detailed() {
		detailStep(p.log, e, from, step)
	}
	switch step.Do {
	case phase.Impossible:
		panic("internal error: event " + strconv.Quote(e.what.String()) + " in state " + from.String())
	case phase.Carry:
	case phase.Advance:
		p.step()
	case phase.Call:
		p.call()
	case phase.Connect:
		p.connect()
	case phase.Forgo:
		p.forgo(e)
	case phase.Cancel:
		p.hold(e.signal)
		p.step()
	case phase.Go:
		p.start()
	case phase.Fail:
		p.fail(e.fail)
	case phase.Settle:
		p.settle()
	case phase.Note:
		p.runs()
	case phase.Hold:
		p.hold(e.signal)
	case phase.Deliver:
		p.request(e.signal)
	case phase.Miss:
		p.miss(e.why)
	case phase.Greet:
		p.greet()
	case phase.Kill:
		p.ask(unix.SIGKILL) // it may be the job by now
		p.job.killed = true
		p.job.deliver(unix.SIGKILL)
	case phase.Stop:
		p.stop(e)
	case phase.Judge:
		p.judge()
	case phase.Collect:
		p.collect()
	case phase.Sweep:
		p.clearUp(e)
	case phase.Trim:
		p.trim()
	case phase.Finish:
		p.closeJob()
	case phase.Abandon:
		for _, pid := range p.job.Members() {
			p.log.Line("cannot kill pid " + strconv.Itoa(pid) + ", it is left behind")
		}
		p.closeJob()
	case phase.Farewell:
		p.farewell()
	case phase.HangUp:
		p.session.kill()
	}
	p.log.Flush()
}

// fail records what the starter says about why it cannot become what it should,
// or why nothing can be started at all.
func (p *parent) fail(f *starter.Failure) {
	p.failed = true
	if p.loop.Child >= 0 {
		p.log.LineOf(f.EUID, p.starter.PID, f.Text)
		p.results.blameOn(f.Number, f.EUID, p.starter.PID, f.Text)
		return
	}
	p.launcher.dismiss() // without a word
	p.results.notStarted(f.Number, f.Text)
}

// trim makes a shepherd that only waits a quiet one: with the collector off
// nothing wakes it every two minutes. Memory is given back only after a signal
// was delivered: looking through /proc takes some, but a collection leaves more
// dirty pages behind (60 kB) than a fresh shepherd has to give.
func (p *parent) trim() {
	p.settle()
	p.config, p.launcher.config = nil, nil
	debug.SetGCPercent(-1)
	if p.job.littered {
		p.job.littered = false
		debug.FreeOSMemory()
	}
}
