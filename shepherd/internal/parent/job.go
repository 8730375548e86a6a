package parent

import (
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/command"
	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/phase"
	"paddock/shepherd/internal/trace"
	"paddock/spool"
)

// job is the job of the run: what is done to it while it runs, and how it has ended.
type job struct {
	*control.Job // nil until it is about to start
	log          *trace.Log
	timers       *timers

	pending   unix.Signal // comes when the time after a warning is over, 0 for none
	kills     int         // how often somebody wanted its end
	asked     unix.Signal // by which it was asked to end before it had, 0 for none
	suspended bool
	killed    bool // somebody wanted its end
	overdue   bool // h_rt is over
	limited   bool // the kernel ended it at a limit
	littered  bool // there is garbage to collect, see trim

	// Of one in a group of version 1 whose memory has run out.
	starved      bool // it is being ended
	memoryChecks int  // how often it is still looked whether a process was killed

	started, ended time.Time
	status         syscall.WaitStatus
	rusage         syscall.Rusage
	ran            bool // it was there, and status and rusage are its
}

// deliver sends a signal to all of the job.
func (j *job) deliver(sig unix.Signal) {
	j.log.Line(j.killLine(sig))
	j.send(sig)
}

func (j *job) send(sig unix.Signal) {
	j.Signal(sig)
	j.litter()
}

// killLine is what a trace calls a signal to the job.
func (j *job) killLine(sig unix.Signal) string {
	return "kill(-" + strconv.Itoa(j.PID) + ", " + control.Name(sig) + ")"
}

// override traces what is done in the place of a signal.
func (j *job) override(usual unix.Signal, by string) {
	j.log.Line(by + " -> overrides " + j.killLine(usual))
}

// litter says that there is garbage to collect once it is quiet again.
func (j *job) litter() {
	j.littered = true
	j.timers.after(timerQuiet, quietAfter)
}

// warn sends the warning ahead of a KILL or STOP and reports whether the
// signal itself is to wait. A job that is being warned of its end is not warned
// again, and a KILL takes the place of a STOP.
func (j *job) warn(sig unix.Signal, notice command.Notification) (wait bool) {
	warning := notice.Suspend
	if sig == unix.SIGKILL {
		warning = notice.Kill
	}
	switch {
	case j.pending == sig:
		j.log.Line("ignoring repeated " + control.Name(sig) + " notification")
		return true
	case j.pending == unix.SIGKILL:
		j.log.Line("termination in progress - ignoring " + control.Name(sig) + " notification")
		return true
	case notice.After > 0 && warning == 0:
		j.log.Line("No notif. signal -> notification for delayed (" + seconds(notice.After) + ") signal " + control.Name(sig))
		j.forget()
		return false
	case notice.After <= 0, sig == unix.SIGKILL && j.kills > 1:
		j.forget()
		return false
	}
	j.pending = sig
	j.log.Line(j.killLine(warning) + " -> notification for delayed (" + seconds(notice.After) + ") signal " + control.Name(sig))
	j.send(warning)
	j.timers.after(timerNotify, notice.After)
	return true
}

// forget drops a signal that was to come after a warning.
func (j *job) forget() {
	j.pending = 0
	j.timers.stop(timerNotify)
}

// limitReached names the limit by which the kernel ended the job, as far as
// that can be told from the signal.
func (j *job) limitReached(c *spool.Config) string {
	cpu := syscall.TimevalToNsec(j.rusage.Utime) + syscall.TimevalToNsec(j.rusage.Stime)
	// Signals may be sent by anybody, also where there is no limit.
	finite := func(key string) (spool.Limit, bool) {
		text, _ := c.Lookup(key)
		l, err := spool.ParseLimit(text)
		return l, err == nil && l != spool.Infinity && l != spool.Undefined
	}
	reached := func(what string, keys ...string) string {
		for _, key := range keys {
			if _, ok := finite(key); ok {
				text, _ := c.Lookup(key)
				return "job " + what + ": limit " + key + " " + text
			}
		}
		return ""
	}
	const cpuUsed = "used up its processor time"
	switch j.status.Signal() {
	case unix.SIGXCPU:
		return reached(cpuUsed, spool.KeySCPU, spool.KeyHCPU)
	case unix.SIGXFSZ:
		return reached("wrote a file larger than it may", spool.KeySFsize, spool.KeyHFsize)
	case unix.SIGKILL:
		if why := j.outOfMemory(c); why != "" {
			return why
		}
		l, ok := finite(spool.KeyHCPU)
		// For the limit the kernel counts ticks, for the usage it measures: on a
		// busy host a fifth less was seen.
		if ok && !j.killed && cpu/2*3 >= int64(l)*int64(time.Second) {
			return reached(cpuUsed, spool.KeyHCPU)
		}
	}
	return ""
}

// outOfMemory returns why the kernel ended the job if it did so for want of
// memory.
func (j *job) outOfMemory(c *spool.Config) string {
	if j.Leaf == nil {
		return ""
	}
	killed, limit := j.Leaf.Killed()
	if killed == 0 {
		return ""
	}
	text := "job was killed: the host is out of memory"
	if limit > 0 {
		v, _ := c.Lookup(spool.KeyHVmem)
		text = "job was killed: out of memory, limit " + spool.KeyHVmem + " " + v
	}
	if peak := j.Leaf.Peak(); peak > 0 {
		text += " (peak " + size(peak) + ")"
	}
	return text
}

// traceCheckpointing traces what the end of a job means that is checkpointed.
func (j *job) traceCheckpointing(ckpt *command.Checkpoint, migrating bool) {
	switch {
	case ckpt.Class == command.NoCheckpoint:
		return
	case j.status.Signaled():
		if !migrating {
			j.log.Line("job exited due to signal but not due to checkpoint")
		}
	default:
		j.log.Line("checkpointing job exited normally")
	}
	if migrating || !ckpt.ByCommand() {
		return
	}
	j.log.Line("starting ckpt clean command")
	if ckpt.Clean == "" {
		j.log.Line("no checkpointing clean command to start")
	}
}

// How long a process is waited for that the kernel is to kill.
const (
	memoryEvery  = 10 * time.Millisecond
	memoryChecks = 100
)

// checkMemory is called when the kernel says that the memory of a group of
// version 1 has run out, and then some times more, as left says. The kernel speaks
// before it kills a process of the job, which may take a moment and, if there is
// memory again, never comes. The rest of the job is ours to kill: half of it is worth
// nothing, and would have no reason to end.
func (p *parent) checkMemory(left int) {
	killed, _ := p.launcher.group.job.Killed() // takes the event, too
	switch {
	case p.state != phase.Running || p.job.starved:
	case killed > 0:
		p.job.starved = true
		p.log.Line("the job is out of memory")
		p.job.Signal(unix.SIGKILL)
	case left > 0:
		p.job.memoryChecks = left - 1
		p.timers.after(timerMemory, memoryEvery)
	}
}

// size writes a number of bytes with one decimal and the letter that limits
// have.
func size(n uint64) string {
	const units = "KMGT"
	i, tenths := -1, n*10
	for tenths >= 10240 && i < len(units)-1 {
		tenths = (tenths + 512) / 1024
		i++
	}
	if i < 0 {
		return strconv.FormatUint(n, 10)
	}
	return strconv.FormatUint(tenths/10, 10) + "." + strconv.FormatUint(tenths%10, 10) + units[i:i+1]
}
