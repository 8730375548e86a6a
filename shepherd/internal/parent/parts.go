package parent

import (
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/command"
	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/phase"
	"paddock/shepherd/internal/starter"
	"paddock/spool"
)

// killAfter is how long a procedure that was told to end has until it is killed.
const killAfter = 5 * time.Second

// step finds the part to go on with and raises its event.
func (p *parent) step() {
	p.timers.stop(timerLate)
	p.on(event{what: p.next()})
}

// next returns the event of the part that follows. Parts that are not there and
// parts that cannot be begun are passed on the way. The first procedure has to
// wait for the client, who hears what it says: so far there is nothing to undo.
func (p *parent) next() phase.Event {
	for {
		if p.cancelled && p.part < phase.Job {
			p.cancel()
		}
		part := phase.After[p.part][p.outcome]
		if part == phase.Prolog && p.interactive && p.session == nil {
			return phase.ClientNext
		}
		p.part, p.outcome, p.results.begun = part, phase.Fine, true
		switch p.part {
		case phase.End:
			if p.session != nil && !p.session.child.Ended {
				return phase.FarewellNext
			}
			return phase.NothingNext
		case phase.Job:
			if p.nothing {
				continue
			}
			if p.readyJob() {
				return phase.JobNext
			}
		case phase.Clean:
			if p.readyClean() {
				return phase.ProcedureNext
			}
		default:
			if p.readyProcedure() {
				return phase.ProcedureNext
			}
		}
	}
}

// cancel ends a run whose job has not begun and is not wanted any more.
func (p *parent) cancel() {
	p.outcome = phase.Cancelled
	if p.expired {
		p.results.blame(spool.FailedLease, spool.LeaseOver)
	}
	if p.migrating {
		p.log.Line("got SIGMIGR before job start")
		p.results.checkpointed(p.arena, p.foreign)
		return
	}
	p.log.Line("got SIGKILL before job start")
}

// readyProcedure makes ready the procedure of the present part and reports
// whether there is one to be called.
func (p *parent) readyProcedure() bool {
	for i := range p.planned {
		plan := &p.planned[i]
		if plan.part != p.part {
			continue
		}
		err, before := plan.err, plan.before
		if err == nil {
			if err = p.launcher.ready(procedureLeaf); err != nil {
				before = lacking(before, p.job.ran)
			}
		}
		if err != nil {
			p.outcome = phase.NotStarted
			p.results.blame(before, err.Error())
			p.log.Line("failed starting " + p.part.String())
			return false
		}
		if plan.scope == command.ForPE {
			p.log.Line(plan.raw)
			p.log.Line(strings.Join(plan.command.Argv, " "))
		}
		p.present = plan
		p.order = starter.Order{
			Kind: plan.kind, Name: p.part.String(), State: plan.before,
			User: plan.command.User, Argv: plan.command.Argv, Env: p.end,
		}
		return true
	}
	if p.part != phase.Token && (p.parallel || p.part == phase.Prolog || p.part == phase.Epilog) {
		p.log.Line("no " + p.part.String() + " script to start")
	}
	return false
}

// readyClean makes ready what the checkpoint interface wants run after a job.
func (p *parent) readyClean() bool {
	if p.ckpt.Clean == "" || !p.job.ran || p.launcher.ready(procedureLeaf) != nil {
		return false
	}
	p.log.Line("starting clean command: " + p.ckpt.Clean)
	p.order = starter.Order{
		Kind: starter.Method, Name: p.part.String(), State: spool.FailedBeforePEStop,
		Argv: []string{p.ckpt.Clean},
	}
	return true
}

// tell tells the starter what to become.
func (p *parent) tell(files ...int) {
	p.execing, p.failed, p.late, p.stopping = false, false, false, false
	p.loop.PID, p.loop.Child, p.loop.Report = p.starter.PID, p.starter.PIDFD, p.starter.Socket
	p.launcher.release(p.starter, p.order, files...)
}

// call starts the procedure.
func (p *parent) call() {
	p.starter = p.launcher.take()
	pid := strconv.Itoa(p.starter.PID)
	p.log.Line("parent: forked " + strconv.Quote(p.order.Name) + " with pid " + pid)
	if p.limit > 0 {
		p.log.Line("using signal delivery delay of " + strconv.Itoa(int(p.limit/time.Second)) + " seconds")
		p.timers.after(timerLate, p.limit)
	}
	p.log.Line("parent: " + p.order.Name + "-pid: " + pid)
	// Everything below us is this procedure's but for what earlier ones have left.
	working := control.Job{PID: p.starter.PID, Root: unix.Getpid()}
	if p.elders || p.session != nil {
		working.Elders = control.Below(working.Root, p.starter.PID)
	}
	p.working = control.NewJob(working, p.log.Line)
	p.tell(p.session.noteFiles(&p.order)...)
}

// stop ends a procedure: at the end of its time, or because the job is not
// wanted any more.
func (p *parent) stop(e event) {
	name := p.part.String()
	switch {
	case e.what == phase.Late:
		p.late = true
		p.log.Line(name + " has used up its time, ending it")
	case p.part < phase.Job:
		p.hold(e.signal)
		p.log.Line(name + " is ended, the job is not wanted any more")
	case p.foreign:
		// sge_execd repeats a kill until the job is gone: what comes now may
		// mean the job that has ended.
		p.log.Line("ignored signal " + control.Name(e.signal) + ": " + name + " runs to its end")
		return
	}
	if p.stopping {
		return
	}
	p.stopping = true
	p.working.Signal(unix.SIGTERM)
	p.working.Signal(unix.SIGCONT)
	p.timers.after(timerKill, killAfter)
}

// judge takes the exit of a procedure.
func (p *parent) judge() {
	p.timers.stop(timerKill)
	if p.stopping {
		p.working.Signal(unix.SIGKILL)
	}
	ws, _ := p.take(p.order.Name)
	p.starter.Close()
	p.starter = nil
	// What it has left goes on otherwise, as under Grid Engine: prolog or
	// pe_start may start what epilog or pe_stop ends.
	if p.stopping {
		p.clear()
	}
	p.elders = true
	p.outcome = p.verdictOn(ws)
	p.step()
}

// clear kills what is left of a procedure that had to be ended.
func (p *parent) clear() {
	ts := unix.NsecToTimespec(int64(time.Millisecond))
	for until := time.Now().Add(time.Second); time.Now().Before(until); {
		hit := p.working.Sweep()
		if left := p.loop.Orphans(); !left || hit == 0 {
			return
		}
		_, _ = unix.Ppoll(nil, &ts, nil)
	}
}

// verdictOn returns how a procedure ended, and writes down what is wrong.
func (p *parent) verdictOn(ws syscall.WaitStatus) phase.Outcome {
	name := p.order.Name
	if p.part == phase.Clean {
		return phase.Fine // nobody asks how it went
	}
	in := p.present.in
	switch {
	case p.failed:
		p.results.traceNotBegun(p.order.Name)
		return phase.NotStarted
	case p.late:
		p.results.blame(in, name+" was ended: it took longer than script_timeout, "+strconv.Itoa(int(p.limit/time.Second))+" s")
		return phase.Failing
	case p.stopping && p.part < phase.Job:
		return phase.Cancelled
	case p.stopping:
		p.results.blame(in, name+" was ended: a kill was asked for")
		return phase.Failing
	case !p.execing:
		p.results.blame(p.order.State, starterEnded(name, ws))
		return phase.NotStarted
	}
	code := ws.ExitStatus()
	if ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	if p.part == phase.Token {
		if code == 0 {
			p.coshepherd.start(p.order.Argv[0])
			return phase.Fine
		}
		text := `failed to set AFS token - set_token_command "` + p.present.raw + `" returned with exit status ` + strconv.Itoa(code)
		p.log.Line(text)
		p.results.blame(in, text)
		return phase.Failing
	}
	switch code {
	case 0:
		return phase.Fine
	case exitReschedule:
		in = spool.FailedRescheduling
	case exitApperror:
		in = spool.FailedApplication
	}
	text := "exit_status of " + name + " = " + strconv.Itoa(code)
	p.log.Line(text)
	p.results.blame(in, text)
	return phase.Failing
}

// Exit codes by which job and procedures ask for something.
const (
	exitReschedule = 99
	exitApperror   = 100
)

// take takes the exit of the present child and traces it.
func (p *parent) take(name string) (syscall.WaitStatus, syscall.Rusage) {
	ws, ru, err := p.loop.Take()
	if err != nil {
		panic("cannot take the exit of " + name + ": " + err.Error())
	}
	detailUsage(p.log, p.loop.PID, ws, &ru)
	traceExit(p.log, name, p.loop.PID, ws)
	if ws.CoreDump() {
		p.log.Line(core(p.dir, p.loop.PID))
	}
	return ws, ru
}

// starterEnded is what is said of a starter that has not said why it is no more.
func starterEnded(name string, ws syscall.WaitStatus) string {
	return "internal error: the starter ended before " + name + " was started, " + ending(ws)
}

// lacking is the number of what could not be started because the host lacked
// something, which before the job has run is no mistake of job or queue.
func lacking(own int, ran bool) int {
	if ran {
		return own
	}
	return spool.FailedBeforeProlog
}

func ending(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "by signal " + control.Name(ws.Signal())
	}
	return "with status " + strconv.Itoa(ws.ExitStatus())
}
