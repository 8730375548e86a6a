package parent

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/command"
	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/phase"
	"paddock/spool"
)

// patienceWithMethod is how often a terminate_method is tried before the job is
// killed all the same, and hardGrace how long one has once h_rt is over.
const (
	patienceWithMethod = 2
	hardGrace          = 60 * time.Second
)

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
			if to == unix.SIGXCPU {
				// So a batch system says, to all processes of a job of its own, that it is to end.
				// An execd sends its own by files, unless the disk is full.
				p.ask(to)
			}
			p.want(to)
		case control.Read:
			if p.session != nil {
				if err := p.session.newClient(p.dir); err != nil {
					p.log.Line(err.Error())
				}
			}
			p.findLease()
			list, err := p.inbox.Take()
			if err != nil {
				p.log.Line("error reading signal file: " + err.Error())
			}
			for _, to := range list {
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

// want raises the event for a signal the job is to get. SIGTTOU stands for a
// migration: the job is to end here.
func (p *parent) want(sig unix.Signal) {
	p.log.Line("queued signal " + control.Name(sig))
	what := phase.WantSignal
	if sig == unix.SIGKILL || sig == unix.SIGTTOU {
		what = phase.WantKill
	}
	p.on(event{what: what, signal: sig})
}

// hold keeps a signal for the job. One by which the job is to end means that it
// is not to begin.
func (p *parent) hold(sig unix.Signal) {
	switch sig {
	case unix.SIGKILL:
		p.cancelled, p.migrating = true, false
	case unix.SIGTTOU:
		if !p.cancelled {
			// Without a checkpoint interface as well: the job has not begun.
			p.cancelled, p.migrating = true, true
		}
	default:
		p.held.Add(sig)
	}
}

// request does what is configured for a signal that the running job is to get.
func (p *parent) request(sig unix.Signal) {
	if sig != unix.SIGKILL && sig != unix.SIGTTOU && p.timers.running(timerHeld) {
		p.held.Add(sig) // behind those that came before
		return
	}
	if sig == unix.SIGKILL || sig == p.endSignal {
		p.ask(sig)
	}
	switch sig {
	case unix.SIGKILL:
		p.job.killed = true
		p.job.kills++
		if !p.job.warn(sig, p.notice) {
			p.terminate()
		}
	case unix.SIGTTOU:
		p.migrate()
	case unix.SIGSTOP:
		if !p.job.warn(sig, p.notice) {
			p.suspend()
		}
	case unix.SIGCONT:
		if p.job.pending == unix.SIGSTOP {
			p.job.forget()
		}
		p.resume()
	default:
		p.job.deliver(sig)
	}
}

// ask notes that the job is asked to end, unless it has ended already. What it makes
// of that is its business: it may well exit with 0, and has not come to its own end.
func (p *parent) ask(sig unix.Signal) {
	if !p.loop.Over() {
		p.job.asked = sig
	}
}

// warned delivers what the job was warned of.
func (p *parent) warned() {
	sig := p.job.pending
	p.job.forget()
	p.log.Line(p.job.killLine(sig) + " -> delivering postponed signal")
	if sig == unix.SIGKILL {
		p.terminate()
		return
	}
	p.suspend()
}

// terminate ends the job, by the terminate_method if there is one. A method
// that does not end it is tried again; the third time the job is killed, unless
// a foreign execd repeats itself by the clock, which says nothing of patience.
func (p *parent) terminate() {
	if p.job.kills > patienceWithMethod && !p.foreign {
		p.job.deliver(unix.SIGKILL)
		return
	}
	p.apply(terminateMethod, unix.SIGKILL)
	if p.job.suspended && p.methods[terminateMethod].Signal != 0 { // it could not act upon it
		p.job.deliver(unix.SIGCONT)
	}
}

func (p *parent) suspend() {
	p.job.suspended = true
	p.session.tellState(true)
	p.apply(suspendMethod, unix.SIGSTOP)
}

func (p *parent) resume() {
	p.job.suspended = false
	p.session.found()
	p.session.tellState(false)
	p.apply(resumeMethod, unix.SIGCONT)
}

// apply runs a control method, sends its signal, or the usual one.
func (p *parent) apply(method int, usual unix.Signal) {
	switch m := p.methods[method]; {
	case m.Command != "":
		p.job.override(usual, p.raw[method])
		p.beside(methodKeys[method], m.Command, nil)
	case m.Signal != 0:
		p.job.override(usual, p.job.killLine(m.Signal))
		p.job.send(m.Signal)
	default:
		p.job.deliver(usual)
	}
}

// tooLong is called when s_rt or h_rt is over.
func (p *parent) tooLong(which timer) {
	if which == timerSoft {
		p.log.Line("job exceeded soft wallclock time - initiate soft notify method")
		p.job.deliver(unix.SIGUSR1)
		return
	}
	p.log.Line("job exceeded hard wallclock time - initiate terminate method")
	if p.job.overdue {
		p.job.forget()
		p.job.deliver(unix.SIGKILL)
		return
	}
	p.job.overdue = true
	p.timers.after(timerHard, p.notice.After+hardGrace)
	p.request(unix.SIGKILL)
}

// checkpoint takes the checkpoint that is due. The next one is counted from
// its end.
func (p *parent) checkpoint() {
	again := func() {
		if p.state == phase.Running { // the job may have ended meanwhile
			p.timers.after(timerCheckpoint, p.ckpt.Interval)
		}
	}
	switch {
	case p.ckpt.ByCommand() && p.ckpt.Command != "":
		p.log.Line("initiate regular kernel level checkpoint")
		p.beside(spool.KeyCkptCommand, p.ckpt.Command, func(fine bool) {
			if p.arena = fine; fine {
				p.log.Line("checkpoint is in the arena after regular checkpoint")
			}
			if p.migrating && p.state == phase.Running {
				p.job.killed = true
				p.job.deliver(unix.SIGKILL)
				return
			}
			again()
		})
		return
	case !p.ckpt.ByCommand():
		kind := "transparent"
		if p.ckpt.Class == command.UserDefined {
			kind = "userdefined"
		}
		p.log.Line("send checkpointing signal to " + kind + " checkpointing job")
		if p.ckpt.Signal != 0 {
			p.job.send(p.ckpt.Signal)
		}
	}
	again()
}

// migrate has the job checkpointed and ended, to go on elsewhere.
func (p *parent) migrate() {
	p.migrating = p.ckpt.Class != command.NoCheckpoint
	p.timers.stop(timerCheckpoint)
	if !p.ckpt.ByCommand() || p.ckpt.Migrate == "" {
		p.job.killed = true
		p.job.send(unix.SIGKILL)
		p.log.Line(p.job.killLine(unix.SIGKILL) + " -> checkpoint initiation -> killing job")
		return
	}
	if p.companions.find(spool.KeyCkptCommand) != nil {
		return // the checkpoint that is being taken will do
	}
	p.log.Line("initiate checkpoint due to migration request")
	p.beside(spool.KeyCkptMigrCommand, p.ckpt.Migrate, func(fine bool) {
		if p.arena = fine; fine {
			p.log.Line("checkpoint is in the arena after migration request")
		}
	})
}
