package parent

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/phase"
	"paddock/spool"
)

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
	case p.state != phase.Running || p.starved:
	case killed > 0:
		p.starved = true
		p.log.Line("the job is out of memory")
		p.job.Signal(unix.SIGKILL)
	case left > 0:
		p.memoryChecks = left - 1
		p.timers.after(timerMemory, memoryEvery)
	}
}

// outOfMemory returns why the kernel ended the job if it did so for want of
// memory.
func outOfMemory(job *control.Group, c *spool.Config) string {
	if job == nil {
		return ""
	}
	killed, limit := job.Killed()
	if killed == 0 {
		return ""
	}
	text := "job was killed: the host is out of memory"
	if limit > 0 {
		v, _ := c.Lookup(spool.KeyHVmem)
		text = "job was killed: out of memory, limit " + spool.KeyHVmem + " " + v
	}
	if peak := job.Peak(); peak > 0 {
		text += " (peak " + size(peak) + ")"
	}
	return text
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
