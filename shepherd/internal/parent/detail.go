package parent

import (
	"strconv"
	"syscall"

	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/phase"
	"paddock/shepherd/internal/trace"
)

// detailStep traces an event and what is done about it: also each signal that
// came.
func detailStep(log *trace.Log, e event, from phase.State, step phase.Step) {
	text := from.String() + ", " + e.what.String()
	if e.signal != 0 {
		text += " " + control.Name(e.signal)
	}
	log.Detail(text + ": " + step.Do.String() + ", then " + step.Next.String())
}

// detailUsage traces what a child that was waited for has used.
func detailUsage(log *trace.Log, pid int, ws syscall.WaitStatus, ru *syscall.Rusage) {
	if !log.Detailed() {
		return
	}
	n := func(name string, v int64) string { return ", " + name + " " + strconv.FormatInt(v, 10) }
	log.Detail("process " + strconv.Itoa(pid) + " ended " + ending(ws) +
		n("utime", ru.Utime.Nano()/1000) + " us" + n("stime", ru.Stime.Nano()/1000) + " us" + n("maxrss", ru.Maxrss) + " KiB" +
		n("minflt", ru.Minflt) + n("majflt", ru.Majflt) + n("inblock", ru.Inblock) + n("oublock", ru.Oublock) +
		n("nvcsw", ru.Nvcsw) + n("nivcsw", ru.Nivcsw))
}
