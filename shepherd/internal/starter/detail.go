package starter

import (
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What follows is traced for an administrator who hunts something: the state
// that the steps of a start begin with and leave. Of the environment there
// are names alone, since values may be secrets.

// detailStart traces what the process was born with.
func (s *starter) detailStart() {
	if s.order.Detail == nil {
		return
	}
	for _, field := range []string{"SigBlk", "SigIgn", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Cpus_allowed_list"} {
		s.detail("born with " + field + " " + s.statusField(field))
	}
	if v, err := readSmall(s.proc("oom_score_adj")); err == nil {
		s.detail("oom_score_adj is " + v)
	}
	if v, err := readSmall(s.proc("cgroup")); err == nil {
		s.detail("control groups: " + v)
	}
	s.detail("ordered user " + strconv.Quote(s.order.User) + ", variables added: " + names(s.order.Env))
}

// detailIDs traces whose rights the process has.
func (s *starter) detailIDs(when string, groups []int) {
	if s.order.Detail == nil {
		return
	}
	s.begins("detail: " + when + " the switch of users: uid ")
	s.three(unix.SYS_GETRESUID)
	s.plan.say(", gid ")
	s.three(unix.SYS_GETRESGID)
	nice, _ := unix.Getpriority(unix.PRIO_PROCESS, s.process.PID)
	s.ends(", groups " + joinInts(groups) + ", nice " + strconv.Itoa(20-nice)) // the system call counts from 40 down
}

// three adds to the line the three ids that a system call tells.
func (s *starter) three(trap uintptr) {
	at := s.room(3 * 4)
	s.call(trap, at, at+4, at+8)
	for i := range uintptr(3) {
		if i > 0 {
			s.plan.say(" ")
		}
		s.number(s.load(at+4*i, 4, ^uintptr(0)), 10)
	}
}

// detailReady traces what is open and known before the exec.
func (s *starter) detailReady() {
	if s.order.Detail == nil {
		return
	}
	s.begins("detail: directory ")
	s.linked("cwd")
	s.ends("")
	for fd := range 3 {
		s.begins("detail: descriptor " + strconv.Itoa(fd) + ": ")
		s.linked("fd/" + strconv.Itoa(fd))
		s.plan.say(", flags 0")
		s.call(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFL)
		s.number(s.result(), 8)
		s.ends("")
	}
	s.detail("environment: " + names(s.env.list))
}

// linked adds to the line where a link of the process's leads.
func (s *starter) linked(name string) {
	at := s.room(unix.PathMax)
	s.call(unix.SYS_READLINKAT, atCwd, s.path("/proc/self/"+name), at, unix.PathMax)
	s.add(doText, at, s.result())
	s.most += unix.PathMax
}

// detailLimits traces the limits that are still in force.
func (s *starter) detailLimits() {
	if s.order.Detail == nil {
		return
	}
	regs := s.regs
	for _, l := range s.limits {
		s.regs = regs
		was := s.room(unsafe.Sizeof(unix.Rlimit{}))
		s.call(unix.SYS_PRLIMIT64, 0, uintptr(l.resource), 0, was)
		s.begins("detail: " + l.name + " was: ")
		s.sayLimit(was)
		s.ends("")
	}
}

// begins begins a line of which more follows, and ends ends it.
func (s *starter) begins(text string) {
	s.plan.line(s.euid, s.process.PID, false, text)
}

func (s *starter) ends(text string) { s.plan.say(text + "\n") }

// names returns the names of variables.
func names(list []string) string {
	var out []string
	for _, v := range list {
		name, _, _ := strings.Cut(v, "=")
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

// proc returns the name of a file that the kernel keeps of the process.
func (s *starter) proc(name string) string {
	return "/proc/" + strconv.Itoa(s.process.PID) + "/" + name
}

// statusField returns a line of the status of the process.
func (s *starter) statusField(name string) string {
	text, err := readSmall(s.proc("status"))
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// describe returns a step for the trace: the system call with its arguments, of which rN
// is a register, or what else it does.
func (s *step) describe() string {
	text := actionNames[s.do]
	if s.do == doCall {
		text = callName(s.trap)
	}
	text += "("
	n := len(s.args)
	for n > 0 && s.args[n-1] == 0 {
		n--
	}
	for i, a := range s.args[:n] {
		if i > 0 {
			text += ", "
		}
		switch {
		case s.regs>>i&1 != 0:
			text += "r" + strconv.Itoa(int(a))
		case a > 1<<32:
			text += "0x" + strconv.FormatUint(uint64(a), 16)
		default:
			text += strconv.Itoa(int(a))
		}
	}
	text += ")"
	if s.to != wasteReg {
		text = "r" + strconv.Itoa(int(s.to)) + " = " + text
	}
	switch s.on {
	case fail:
		text += ", or fails with " + strconv.Itoa(int(s.number))
	case mustFail:
		text += " must fail, or fails with " + strconv.Itoa(int(s.number))
	}
	return text
}

var actionNames = [...]string{
	doSet: "set", doLoad: "load", doSame: "same", doJump: "jump", doUnless: "unless", doLoop: "loop", doStore: "store",
	doText: "text", doNumber: "number", doDigits: "digits", doExec: "execve", doFail: "give up", doExit: "exit",
}

// callName returns the name of a system call that plans have.
func callName(trap uint16) string {
	for _, c := range [...]struct {
		trap uint16
		name string
	}{
		{unix.SYS_CHDIR, "chdir"},
		{unix.SYS_CLOSE, "close"},
		{unix.SYS_DUP3, "dup3"},
		{unix.SYS_FACCESSAT, "faccessat"},
		{unix.SYS_FACCESSAT2, "faccessat2"},
		{unix.SYS_FCNTL, "fcntl"},
		{unix.SYS_FSTAT, "fstat"},
		{unix.SYS_GETGROUPS, "getgroups"},
		{unix.SYS_GETPPID, "getppid"},
		{unix.SYS_GETRESGID, "getresgid"},
		{unix.SYS_GETRESUID, "getresuid"},
		{unix.SYS_GETSOCKOPT, "getsockopt"},
		{unix.SYS_IOCTL, "ioctl"},
		{unix.SYS_KEYCTL, "keyctl"},
		{unix.SYS_MOUNT, "mount"},
		{unix.SYS_NANOSLEEP, "nanosleep"},
		{unix.SYS_NEWFSTATAT, "newfstatat"},
		{unix.SYS_OPENAT, "openat"},
		{unix.SYS_PRCTL, "prctl"},
		{unix.SYS_PRLIMIT64, "prlimit64"},
		{unix.SYS_READLINKAT, "readlinkat"},
		{unix.SYS_RECVMSG, "recvmsg"},
		{unix.SYS_RT_SIGACTION, "rt_sigaction"},
		{unix.SYS_RT_SIGPROCMASK, "rt_sigprocmask"},
		{unix.SYS_SENDTO, "sendto"},
		{unix.SYS_SETGROUPS, "setgroups"},
		{unix.SYS_SETRESGID, "setresgid"},
		{unix.SYS_SETRESUID, "setresuid"},
		{unix.SYS_SETSOCKOPT, "setsockopt"},
		{unix.SYS_UMASK, "umask"},
		{unix.SYS_UNSHARE, "unshare"},
		{unix.SYS_WRITE, "write"},
	} {
		if c.trap == trap {
			return c.name
		}
	}
	return "system call " + strconv.Itoa(int(trap))
}
