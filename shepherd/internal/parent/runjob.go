package parent

import (
	"cmp"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/proc"
	"paddock/shepherd/internal/command"
	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/phase"
	"paddock/shepherd/internal/reap"
	"paddock/shepherd/internal/starter"
	"paddock/spool"
)

// readyJob makes ready for the job: a starter, the files that must be
// there before it starts, and what is to be known of it while it runs. It
// reports whether the job can be started.
func (p *parent) readyJob() bool {
	number, err := p.prepareJob()
	if err == nil {
		return true
	}
	p.outcome = phase.NotStarted
	p.results.notStarted(number, err.Error())
	p.log.Line("failed starting job")
	return false
}

// prepareJob returns what exit_status is to say together with the error.
func (p *parent) prepareJob() (int, error) {
	c := p.config
	if err := p.session.deserted(); err != nil {
		return spool.FailedBeforeStart, err
	}
	if err := p.launcher.ready(jobLeaf); err != nil {
		return lacking(spool.FailedBeforeStart, p.job.ran), err
	}
	child := p.launcher.waiting
	group, err := groupIn(c)
	if err != nil {
		return spool.FailedAddingGroup, err
	}
	pid := strconv.Itoa(child.PID)
	if err := p.results.write(spool.FileJobPID, child.PID); err != nil {
		return spool.FailedBeforeStart, err
	}
	if flagIn(c, spool.KeyWriteOSJobID) {
		// The group is set by the starter. Whoever waits for this file waits for
		// the number alone.
		if err := p.results.write(spool.FileAddGrpID, group); err != nil {
			return spool.FailedBeforeStart, err
		}
	}
	p.log.Line(`parent: forked "job" with pid `, pid)
	p.log.Line("parent: job-pid: ", pid)
	job := control.Job{PID: child.PID, Root: unix.Getpid(), Daemon: isDaemon(c)}
	if p.launcher.waitingIn >= 0 {
		job.Leaf = p.launcher.group.job
		p.log.Line("job is in the control group ", p.launcher.group.path)
	}
	if unix.Geteuid() == 0 {
		if flagIn(c, spool.KeyEnableAddGrpKill) {
			job.Group = group
		}
	} else {
		job.Mark = mark(p.dir)
	}
	if p.elders {
		job.Elders = control.Below(job.Root, child.PID)
		p.elders = len(job.Elders) > 0
	}
	p.job.Job = control.NewJob(job, p.log.Line)
	if p.session != nil && !p.elders {
		// It is the only one: there is no need to look through all of /proc.
		p.job.Spare(p.session.child.PID)
		p.elders = true
	}
	p.order = starter.Order{Name: "job", State: spool.FailedBeforeStart}
	p.expandMethods(c, pid)
	return 0, nil
}

// expandMethods expands, now that the job's number is known, what may have to
// be run beside it.
func (p *parent) expandMethods(c *spool.Config, pid string) {
	expand := func(text *string, scope command.Scope) {
		if *text == "" {
			return
		}
		expanded, err := command.Expand(*text, scope, c, pid)
		if err != nil {
			// The job can run, and be ended the usual way.
			p.log.Line("cannot use command " + strconv.Quote(*text) + ": " + err.Error())
			expanded = ""
		}
		*text = expanded
	}
	for i := range p.methods {
		p.raw[i] = p.methods[i].Command
		expand(&p.methods[i].Command, command.ForControl)
	}
	if p.ckpt.CanRestart() {
		// What comes back from a checkpoint has the number that it was taken of.
		pid, _ = c.Lookup(spool.KeyCkptPID)
	}
	for _, text := range []*string{&p.ckpt.Command, &p.ckpt.Migrate, &p.ckpt.Restart, &p.ckpt.Clean} {
		expand(text, command.ForCheckpoint)
	}
	if p.ckpt.CanRestart() {
		p.log.Line("restarting job from checkpoint arena")
		p.order.Argv = []string{p.ckpt.Restart}
	}
}

// start starts the job.
func (p *parent) start() {
	p.job.started, p.starter = time.Now(), p.launcher.take()
	if p.session == nil {
		p.tell()
		return
	}
	p.tell(p.session.streams...)
	p.session.passStreams()
}

// runs is called when the job runs.
func (p *parent) runs() {
	p.timers.after(timerQuiet, quietAfter)
	if p.soft > 0 {
		p.timers.after(timerSoft, p.soft-time.Since(p.job.started))
	}
	if p.hard > 0 {
		p.timers.after(timerHard, p.hard-time.Since(p.job.started))
	}
	if p.ckpt.Interval > 0 {
		p.timers.after(timerCheckpoint, p.ckpt.Interval)
	}
	if !p.held.Empty() {
		p.timers.after(timerHeld, heldFor)
	}
	if p.session != nil && p.session.missing != "" {
		p.miss(p.session.missing)
	}
}

// collect takes the job's exit.
func (p *parent) collect() {
	for which := range p.timers {
		p.timers.stop(timer(which))
	}
	p.endLease()
	// While the first process was not waited for, its number cannot be
	// another group's.
	_ = unix.Kill(-p.job.PID, unix.SIGKILL)
	p.job.status, p.job.rusage = p.take("job")
	p.starter.Close()
	p.starter = nil
	p.job.ended = time.Now()
	if p.session.hears() && p.byItself() {
		p.log.Line("waiting to be told how has ended what the daemon was wanted for")
		p.timers.after(timerLate, statusTime)
		return
	}
	p.on(event{what: phase.Told})
}

// byItself reports whether the job was there and has exited.
func (p *parent) byItself() bool { return p.job.status.Exited() && p.execing && !p.failed }

// clearUp kills what the job has left, once it is known how it has ended.
func (p *parent) clearUp(e event) {
	p.timers.stop(timerLate)
	if s := p.session; s != nil && s.daemon && p.byItself() {
		p.job.status = s.judge(p.job.status, e.what)
	}
	p.log.Line("now sending signal KILL to pid -" + strconv.Itoa(p.job.PID))
	left := p.left()
	if left {
		p.job.Sweep()
		left = p.left()
	}
	switch {
	case p.failed:
	case p.execing, p.job.killed && p.job.status.Signaled():
		p.job.ran = true
	default:
		p.failed = true
		p.results.blameOn(spool.FailedBeforeStart, unix.Geteuid(), p.job.PID, starterEnded("the job", p.job.status))
	}
	if p.failed {
		p.results.traceNotBegun(p.order.Name)
	}
	if !left {
		p.on(event{what: phase.Empty})
		return
	}
	p.timers.after(timerSweep, sweepEvery)
}

// left reports whether anything of the job is alive, or a command beside it that
// is to come to its end. All orphans below us are ours, so that without a child
// there is nothing; where there are children of others, /proc has to be read.
func (p *parent) left() bool {
	children := p.loop.Orphans()
	p.companionsEnded()
	if !children {
		return p.job.Leaf.Populated()
	}
	if p.job.Leaf != nil && p.elders && len(p.companions) == 0 {
		return p.job.Leaf.Populated()
	}
	return len(p.companions) > 0 || !p.elders || len(p.job.Members()) > 0
}

// sweep looks again at what the job has left.
func (p *parent) sweep() {
	if !p.left() {
		p.on(event{what: phase.Empty})
		return
	}
	waited := time.Since(p.job.ended)
	switch hit := p.job.Sweep(); {
	case len(p.companions) > 0 && hit == 0:
		// A method may have more to do than to end the job, as long as a
		// procedure may take.
		if p.limit > 0 && waited > p.limit {
			p.companions.kill(p.log)
		}
		p.timers.after(timerSweep, max(p.limit-waited, sweepEvery))
	case waited > sweepLimit:
		p.on(event{what: phase.TimedOut})
	default:
		p.timers.after(timerSweep, sweepEvery)
	}
}

// hostStops reports whether the host is about to stop: systemd has stopped execd and
// become the program that sends all that is left SIGTERM.
func hostStops() bool {
	name, err := proc.Process{ID: proc.ID{PID: 1}}.Read("comm")
	return err == nil && string(name) == "systemd-shutdow\n" // the kernel keeps that much of it
}

// closeJob writes down how the job ended and finds the next part.
func (p *parent) closeJob() {
	p.timers.stop(timerSweep)
	p.timers.stop(timerQuiet)
	if !p.job.ran {
		p.outcome = phase.NotStarted
		p.step()
		return
	}
	p.job.traceCheckpointing(&p.ckpt, p.migrating)
	p.assess()
	orphans := p.loop.OrphanUsage()
	reap.Add(&p.job.rusage, &orphans)
	usage := spool.NewUsage(p.job.status, p.job.started, p.job.ended, &p.job.rusage)
	if !p.foreign {
		usage.Ask(int(p.job.asked))
		if hostStops() {
			usage.FallWithHost()
		}
		if p.job.limited {
			usage.Because(spool.CauseResource)
		}
	}
	p.end = []string{"SGE_JOBEXIT_STAT=" + strconv.Itoa(usage.ExitStatus)}
	p.log.Line(`writing usage file to "usage"`)
	b := usage.Append(nil)
	// A torn usage is known as such.
	err := p.results.persist(func() error { return p.results.put(spool.FileUsage, b) })
	if err != nil {
		// A verdict without usage would say that the job never ran.
		p.results.explain("the job ended with exit status " + strconv.Itoa(usage.ExitStatus) + ", and its usage is lost: " + err.Error())
		p.log.Flush()
		p.unreported = true
	} else {
		p.results.give(spool.FileUsage)
	}
	if p.migrating {
		p.outcome = phase.Migrating
		p.results.checkpointed(p.arena, p.foreign)
	}
	p.step()
}

// assess looks at why the job ended: a limit of its own time, or an exit code by
// which it asks for something.
func (p *parent) assess() {
	if !p.job.status.Signaled() && p.job.Leaf.KilledOne() {
		// The rest of it was over before checkMemory could kill it, whatever it made of that.
		p.log.Line("the job is out of memory")
		p.job.status = syscall.WaitStatus(unix.SIGKILL)
	}
	switch {
	case p.expired:
		p.results.blame(spool.FailedLease, spool.LeaseOver)
		return
	case p.job.overdue:
		p.results.blame(spool.FailedEnforcedLimit, "job was killed: it ran longer than its limit h_rt, "+seconds(p.hard))
		return
	case p.job.status.Signaled():
		why := ""
		if c, err := p.dir.Config(); err == nil {
			why = p.job.limitReached(c)
		}
		p.job.limited = why != ""
		if p.job.status.CoreDump() {
			why = cmp.Or(why, "job was ended by signal "+control.Name(p.job.status.Signal())) + " (core dumped)"
		}
		if why != "" && !p.foreign {
			// Under a foreign execd a text without a number is a failure (20).
			p.results.explain(why)
		}
		return
	}
	code := p.job.status.ExitStatus()
	number := 0
	switch {
	case code == exitReschedule && !p.forbidReschedule:
		number = spool.FailedRescheduling
	case code == exitApperror && !p.forbidApperror:
		number = spool.FailedApplication
	default:
		return
	}
	text := "exit_status of job start = " + strconv.Itoa(code)
	p.log.Line(text)
	p.results.blame(number, text)
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d/time.Second)) + " s" }
