package starter

import (
	"errors"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// exec is the last act: limits, the final user with proof, signals, exec. It
// returns only with a failure, and from the first limit on it does not return
// at all.
//
// From there on it must not allocate: the Go runtime has more than a gigabyte
// of address space, so that with a smaller RLIMIT_AS any growth of the heap ends
// the process (the same for RLIMIT_DATA, and for a thread under RLIMIT_NPROC).
// So everything is made ready before, and only raw system calls follow, during
// which the runtime has no reason to start a thread either.
func (s *starter) exec(cmd Command) *Failure {
	uid, gid := s.target.UID, s.target.GID
	groups := gids(s.target.Groups)
	room := make([]uint32, len(groups)+1)

	argv, err := pointers(cmd.Argv)
	if err != nil {
		return s.cannotExecute(cmd, err)
	}
	envp, err := pointers(s.env.list)
	if err != nil {
		return s.cannotExecute(cmd, err)
	}
	paths, err := pointers(candidates(cmd.File, s.env))
	if err != nil {
		return s.cannotExecute(cmd, err)
	}
	// A script without interpreter line: /bin/sh with the script and its arguments.
	sh, err := syscall.BytePtrFromString("/bin/sh")
	if err != nil {
		return s.cannotExecute(cmd, err)
	}
	shArgv := append([]*byte{sh, nil}, argv[1:]...)

	line := cmd.String()
	failed := []byte(line + " failed: ")
	errnos := errnoTexts()
	proofFailed := []byte("cannot become user " + s.target.Name + ", or rights were left")
	state, notExecuted := s.state(), s.notExecuted()
	now, pid := time.Now(), unix.Getpid()
	prefix := spool.AppendTrace(nil, now, unix.Getuid(), pid, "")
	prefix = prefix[:len(prefix)-1]
	last := spool.AppendTrace(nil, now, uid, pid, "now running with uid="+strconv.Itoa(uid)+", euid="+strconv.Itoa(uid))
	last = spool.AppendTrace(last, now, uid, pid, line)
	s.say("setting limits")
	s.log.Flush()
	traced := s.order.Kind == Job || s.log.Detailed() // Grid Engine traces the limits of jobs alone
	tracefd := s.log.File()
	text := make([]byte, 0, len(s.limits)*(maxLimitLine+len(prefix)))
	message := make([]byte, 0, maxText+16)
	failText := make([]byte, 0, len(failed)+maxErrno)
	failTrace := spool.AppendTrace(make([]byte, 0, 2*len(failed)+2*maxErrno), now, uid, pid, string(failed))
	dispositions := resetters()

	// Go raises the soft limit on descriptors at its start and puts it back in
	// syscall.Exec only. One that fails does so, too: it is the way to give the
	// job execd's value if config has none.
	_ = syscall.Exec("", nil, nil)
	s.detailLimits()
	if len(envp)*16+len(last) > 64<<10 {
		runtime.GC() // a collection under way would start threads later
	}

	if s.root {
		// Back to root for a moment: hard limits may have to be raised.
		if err := setResUID(0, 0, 0); err != nil {
			return s.failed(errors.New("cannot go back to set limits: " + errnoText(err)))
		}
	}
	dispositions.ignore(unix.SIGXFSZ) // the trace may be longer than the job's files may be
	limits := s.limits
	if s.privileged() {
		limits = nil // a small h_fsize of the user's must not make root's epilog fail
	}
	for i := range limits {
		text = limits[i].set(text, prefix)
		if !traced {
			text = text[:0]
		}
	}
	if s.root {
		// The owner's groups once more, or those of the user of a procedure.
		u, g := uint32(uid), uint32(gid)
		if setGroups(groups) != nil || setResGID(g, g, g) != nil || setResUID(u, u, u) != nil || !prove(u, g, groups, room) {
			report(state, proofFailed, message)
			exit(state)
		}
	}
	_ = rawWrite(tracefd, text)
	_ = rawWrite(tracefd, last)
	dispositions.reset()
	if s.order.Kind != Session { // which is a Go program, too
		_ = setTimerSlack(defaultTimerSlack)
	}
	message = append(message, kindExec)
	_ = rawWrite(fdReport, message)
	emptyMask()

	errno := unix.ENOENT
	for _, path := range paths[:len(paths)-1] {
		e := execve(path, argv, envp)
		if e == unix.ENOEXEC {
			shArgv[1] = path
			e = execve(sh, shArgv, envp)
		}
		// A directory that has it not, or may not be searched, is passed by; what
		// is found and may not be run is remembered, as execvp does.
		if e == unix.ENOENT || e == unix.ENOTDIR {
			continue
		}
		errno = e
		if e != unix.EACCES {
			break
		}
	}
	failText = append(failText, failed...)
	failTrace = failTrace[:len(failTrace)-1]
	if int(errno) < len(errnos) {
		failText = append(failText, errnos[errno]...)
		failTrace = append(failTrace, errnos[errno]...)
	}
	report(notExecuted, failText, message[:0])
	_ = rawWrite(tracefd, append(failTrace, '\n'))
	exit(notExecuted)
	return nil
}

// Exec turns this process into a program that works beside execd: nothing that was
// open or blocked before is so in it. Its first word is the path.
func Exec(argv []string) error {
	CloseOnExec()
	unix.Umask(0o022)
	OpenSignals()
	err := syscall.Exec(argv[0], argv, unix.Environ())
	return errors.New("cannot execute " + strconv.Quote(argv[0]) + ": " + errnoText(err))
}

// What Run leaves to its program: descriptors up to lastPassed, and time that nobody
// else wants.
const (
	lastPassed  = 8
	niceOfRun   = 10
	ioOfRun     = 2<<13 | 7 // best effort, the last of eight
	ioOfProcess = 1         // IOPRIO_WHO_PROCESS
)

// Run is Exec for a program of execd's that works through the files of a user for as long
// as it takes: it keeps the descriptors that execd has given it, gives way to the jobs, and
// gets no right by any program that it could execute.
func Run(argv []string) error {
	closeOnExec(lastPassed + 1)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return errors.New("cannot refuse new rights: " + errnoText(err))
	}
	_ = setPriority(niceOfRun) // one that execd was started with may be higher
	_ = raw(unix.SYS_IOPRIO_SET, ioOfProcess, 0, ioOfRun)
	unix.Umask(0o022)
	OpenSignals()
	err := syscall.Exec(argv[0], argv, unix.Environ())
	return errors.New("cannot execute " + strconv.Quote(argv[0]) + ": " + errnoText(err))
}

func (s *starter) cannotExecute(cmd Command, err error) *Failure {
	return &Failure{Number: s.notExecuted(), Text: cmd.String() + " failed: " + errnoText(err)}
}

// execve tries a program. One that somebody is still writing is tried again: a
// process forked in the middle of writing a script holds it open for an
// instant, which is nobody's mistake (golang.org/issue/22315). On a host that is
// busy an instant may be long.
func execve(path *byte, argv, envp []*byte) unix.Errno {
	for try := 0; ; try++ {
		_, _, errno := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(path)),
			uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envp[0])))
		if errno != unix.ETXTBSY || try == 500 {
			return errno
		}
		ts := unix.Timespec{Nsec: 10e6}
		unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
	}
}

// pointers returns the strings as execve wants them.
func pointers(list []string) ([]*byte, error) {
	size := 0
	for _, s := range list {
		size += len(s) + 1
	}
	var (
		out = make([]*byte, len(list)+1)
		all = make([]byte, 0, size)
	)
	for i, s := range list {
		for j := range len(s) {
			if s[j] == 0 {
				return nil, unix.EINVAL
			}
		}
		at := len(all)
		all = append(append(all, s...), 0)
		out[i] = &all[at]
	}
	return out, nil
}

// maxErrno is the length of the longest text of an error number, and more.
const maxErrno = 128

// errnoTexts returns the texts of all errors, since making one allocates.
func errnoTexts() []string {
	out := make([]string, 134)
	for i := 1; i < len(out); i++ {
		out[i] = errnoText(unix.Errno(i))
	}
	return out
}

// sigaction is the kernel's, not the C library's.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// dispositions are the signals that were ignored when we were started. Those
// that Go catches become default by exec, but it leaves alone what it finds
// ignored, and ignored stays ignored in the job.
type dispositions struct {
	ignored []int
	action  sigaction
}

func resetters() *dispositions {
	d := &dispositions{ignored: make([]int, 0, 65)}
	for sig := 1; sig <= 64; sig++ {
		var old sigaction
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&old)), 8, 0, 0)
		if errno == 0 && old.handler == sigIgn {
			d.ignored = append(d.ignored, sig)
		}
	}
	return d
}

// ignore ignores one signal until reset.
func (d *dispositions) ignore(sig unix.Signal) {
	d.action.handler = sigIgn
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&d.action)), 0, 8, 0, 0)
	d.ignored = append(d.ignored, int(sig))
}

func (d *dispositions) reset() {
	d.action.handler = sigDfl
	for _, sig := range d.ignored {
		unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&d.action)), 0, 8, 0, 0)
	}
}

const (
	sigDfl = 0
	sigIgn = 1
)

// Shield makes this process ignore spool.IgnoredSignals. That is inherited by
// exec, and the starter undoes it for the job. Package os/signal could
// catch them instead, at the price of two threads in every shepherd.
func Shield() {
	var d dispositions
	for _, sig := range spool.IgnoredSignals {
		d.ignore(sig)
	}
}

// OpenSignals makes every signal of this thread, and of what it starts, one that
// is neither blocked nor ignored.
func OpenSignals() {
	resetters().reset()
	emptyMask()
}

// emptyMask unblocks every signal of this thread, whose mask is the job's.
func emptyMask() {
	var none uint64
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&none)), 0, 8, 0, 0)
}

// setPriority sets the nice value of this thread, which is the job's.
func setPriority(nice int) error {
	if nice == 0 {
		return nil
	}
	return raw(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, uintptr(nice))
}

// defaultTimerSlack is what the kernel gives its first process and so everybody,
// in nanoseconds.
const defaultTimerSlack = 50e3

// QuietRuntime gives what this thread executes next a shepherd's timer slack.
// Without it all is the same but slower.
func QuietRuntime() { _ = setTimerSlack(spool.StartTimerSlack) }

func setTimerSlack(ns uintptr) error { return raw(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, ns, 0) }

func rawWrite(fd int, b []byte) unix.Errno {
	if len(b) == 0 || fd < 0 {
		return 0
	}
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return errno
}

// exit ends the process at once; the runtime has nothing to tidy up.
func exit(code int) {
	for {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(code), 0, 0)
	}
}
