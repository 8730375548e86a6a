package parent

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/phase"
	"paddock/shepherd/internal/reap"
	"paddock/shepherd/internal/starter"
	"paddock/shepherd/internal/trace"
	"paddock/spool"
)

// companion is a command that runs beside the job.
type companion struct {
	name    string
	starter *starter.Process
	child   *reap.Child
	then    func(fine bool) // when it has ended by itself, nil for nothing
}

// besideName returns Grid Engine's name in traces for the command that a key of config names.
// A map would be made at the start of every shepherd.
func besideName(key string) string {
	switch key {
	case spool.KeySuspendMethod:
		return "suspend"
	case spool.KeyResumeMethod:
		return "resume"
	case spool.KeyTerminateMethod:
		return "terminate"
	case spool.KeyCkptCommand:
		return "checkpoint"
	case spool.KeyCkptMigrCommand:
		return "migration checkpoint"
	}
	return key
}

// failure returns why a command that has ended could not be started, nil if it
// was.
func (c *companion) failure(log *trace.Log) (fail *starter.Failure) {
	for m := c.starter.Next(); !m.Closed && !m.Again; m = c.starter.Next() {
		if fail = m.Failure; fail != nil {
			log.LineOf(fail.EUID, c.starter.PID, fail.Text)
			break
		}
	}
	c.starter.Close()
	return fail
}

// companions are the control methods and the commands of a checkpoint interface that
// run.
type companions []*companion

// find returns the one of a name, nil if it does not run.
func (cs companions) find(name string) *companion {
	for _, c := range cs {
		if c.name == name {
			return c
		}
	}
	return nil
}

// ended returns those that have ended, and keeps the others.
func (cs *companions) ended() (ended companions) {
	var left companions
	for _, c := range *cs {
		if c.child.Ended {
			ended = append(ended, c)
		} else {
			left = append(left, c)
		}
	}
	*cs = left
	return ended
}

// kill kills those that do not come to their end.
func (cs companions) kill(log *trace.Log) {
	for _, c := range cs {
		log.Line(c.name + " does not end, killing it")
		_ = unix.Kill(-c.child.PID, unix.SIGKILL)
	}
}

// beside runs a command beside the job, unless it runs still. The job goes on
// whatever becomes of it.
func (p *parent) beside(name, text string, then func(fine bool)) {
	if c := p.companions.find(name); c != nil {
		p.log.Line("Skipped start of " + besideName(name) + ": previous command (pid= " + strconv.Itoa(c.child.PID) + ") is still active")
		return
	}
	c, err := p.launcher.companion(name)
	if err != nil {
		p.cannotRun(name, err.Error())
		if then != nil {
			then(false)
		}
		return
	}
	c.then = then
	p.companions = append(p.companions, c)
	// What it does is not the job's doing, though it is done as the same user.
	p.job.Spare(c.child.PID)
	p.elders = true
	p.log.Line("starting " + name + " command: " + text)
	p.launcher.release(c.starter, starter.Order{Kind: starter.Method, Name: name, State: spool.FailedBeforeStart, Argv: []string{text}})
	p.job.litter()
}

// cannotRun traces that a command could not be started. The job goes on, unless
// it was to be ended: it may be the job's own doing that nothing can be started.
func (p *parent) cannotRun(name, text string) {
	p.log.Line("cannot run " + name + ": " + text)
	if name == methodKeys[terminateMethod] && p.state == phase.Running {
		p.job.deliver(unix.SIGKILL)
	}
}

// companionsEnded sees to those that have ended.
func (p *parent) companionsEnded() {
	p.coshepherd.ended()
	ended := p.companions.ended()
	if len(ended) == 0 {
		return
	}
	for _, c := range ended {
		fine := c.child.Status == 0
		if fail := c.failure(p.log); fail != nil {
			fine = false
			p.cannotRun(c.name, fail.Text)
		}
		p.log.Line("reaped " + besideName(c.name) + " command")
		if strings.HasPrefix(c.name, "ckpt_") && c.child.Status.Exited() {
			p.log.Line("checkpoint command exited normally")
		}
		if c.then != nil {
			c.then(fine)
		}
	}
	p.job.litter()
}
