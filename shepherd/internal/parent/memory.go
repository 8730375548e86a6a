package parent

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/phase"
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
