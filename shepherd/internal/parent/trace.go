package parent

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/phase"
	"paddock/shepherd/internal/trace"
	"paddock/spool"
)

// traceExit traces the exit of a child in Grid Engine's words.
func traceExit(log *trace.Log, name string, child int, ws syscall.WaitStatus) {
	bit := map[bool]string{true: "1", false: "0"}
	pid := strconv.Itoa(child)
	log.Line("wait3 returned " + pid + " (status: " + strconv.Itoa(int(ws)) +
		"; WIFSIGNALED: " + bit[ws.Signaled()] + ",  WIFEXITED: " + bit[ws.Exited()] +
		", WEXITSTATUS: " + strconv.Itoa(max(ws.ExitStatus(), 0)) + ")")
	log.Line(name + " exited with exit status " + strconv.Itoa(max(ws.ExitStatus(), 0)))
	log.Line("reaped " + strconv.Quote(name) + " with pid " + pid)
	if ws.Signaled() {
		log.Line(name + " exited due to signal")
		line := name + " signaled: " + strconv.Itoa(int(ws.Signal()))
		if ws.CoreDump() {
			line += " (core dumped)"
		}
		log.Line(line)
	} else {
		log.Line(name + " exited not due to signal")
		line := name + " exited with status " + strconv.Itoa(ws.ExitStatus())
		if code := ws.ExitStatus(); code == exitReschedule || code == exitApperror {
			line += " -> rescheduling" // for both, and the job's even if that is forbidden
		}
		log.Line(line)
	}
}

// core says where the kernel has put the core dump of a process of the run in
// dir.
func core(dir spool.Dir, pid int) string {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		return "cannot find out where the core dump is: " + err.Error()
	}
	usesPID, _ := os.ReadFile("/proc/sys/kernel/core_uses_pid")
	cwd := ""
	if c, err := dir.Config(); err == nil {
		cwd, _ = c.Lookup(spool.KeyCwd)
	}
	return corePlace(strings.TrimSuffix(string(pattern), "\n"), strings.HasPrefix(string(usesPID), "1"), cwd, pid)
}

// corePlace says where the kernel puts a core dump by its core_pattern
// (core(5)). What is not known of the process stays a %-letter.
func corePlace(pattern string, usesPID bool, cwd string, pid int) string {
	number := strconv.Itoa(pid)
	if usesPID && !strings.Contains(pattern, "%p") {
		pattern += ".%p"
	}
	file := strings.NewReplacer("%%", "%", "%p", number, "%P", number).Replace(pattern)
	switch pattern[:min(len(pattern), 1)] {
	case "|":
		program, _, _ := strings.Cut(pattern[1:], " ")
		return "the core dump was given to " + program
	case "@":
		return "the core dump was given to the socket " + strings.TrimLeft(pattern, "@")
	case "/":
		return "the core dump is " + file
	}
	return "the core dump is " + file + " in the working directory, which was " + cwd + " at the start"
}

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
