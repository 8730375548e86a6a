package starter

import (
	"errors"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// exec is the last act: limits, the final user with proof, signals, exec. It
// returns only with a failure.
func (s *starter) exec(cmd Command) *Failure {
	argv, err := s.list(cmd.Argv)
	if err != nil {
		return s.cannotExecute(cmd, err)
	}
	envp, err := s.list(s.env.list)
	if err != nil {
		return s.cannotExecute(cmd, err)
	}
	for _, t := range s.turns {
		s.either(t.isDir, 1, func() { s.add(doStore, envp+uintptr(t.index)*wordSize, s.path(t.inDir)) }, nil)
	}
	paths, err := s.list(candidates(cmd.File, s.env))
	if err != nil {
		return s.cannotExecute(cmd, err)
	}
	// A script without interpreter line: /bin/sh with the script and its arguments.
	shell := append([]string{"/bin/sh", ""}, cmd.Argv[1:]...)
	shArgv, err := s.list(shell)
	if err != nil {
		return s.cannotExecute(cmd, err)
	}
	s.say("setting limits")
	if s.root {
		// Back to root for a moment: hard limits may have to be raised.
		s.asRoot("cannot go back to set limits: ")
	}
	s.setIgnored(unix.SIGXFSZ, true) // the trace may be longer than the job's files may be
	limits := s.limits
	if s.privileged() {
		limits = nil // a small h_fsize of the user's must not make root's epilog fail
	}
	s.detailLimits()
	s.setLimits(limits, s.order.Kind == Job || s.order.Detail != nil) // Grid Engine traces the limits of jobs alone
	if s.root {
		s.asTarget()
	}
	uid := strconv.Itoa(s.target.UID)
	s.euid = s.target.UID
	s.line("now running with uid=", uid, ", euid=", uid)
	line := s.words.written(cmd.appendTo)
	s.line(line)
	s.flush()
	for _, sig := range ignored() {
		s.setIgnored(sig, false)
	}
	s.setIgnored(unix.SIGXFSZ, false)
	if s.order.Kind != Session { // which is a Go program
		s.call(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, defaultTimerSlack)
	}
	s.call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, 0)
	s.tell(kindExec)
	s.call(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, s.room(8), 0, 8)
	s.add(doExec, paths, argv, envp, s.path("/bin/sh"), shArgv, s.room(interpreterSize))
	s.or(s.notExecuted(), line, " failed: ")
	return nil
}

// setIgnored has the process ignore a signal, or not.
func (s *starter) setIgnored(sig unix.Signal, yes bool) {
	action := sigaction{handler: sigDfl}
	if yes {
		action.handler = sigIgn
	}
	s.call(unix.SYS_RT_SIGACTION, uintptr(sig), store(s.plan, action), 0, 8)
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
	_ = setPriority(0, niceOfRun) // one that execd was started with may be higher
	_ = raw(unix.SYS_IOPRIO_SET, ioOfProcess, 0, ioOfRun)
	unix.Umask(0o022)
	OpenSignals()
	err := syscall.Exec(argv[0], argv, unix.Environ())
	return errors.New("cannot execute " + strconv.Quote(argv[0]) + ": " + errnoText(err))
}

func (s *starter) cannotExecute(cmd Command, err error) *Failure {
	return &Failure{Number: s.notExecuted(), Text: cmd.String() + " failed: " + errnoText(err)}
}

// sigaction is the kernel's, not the C library's.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// ignored returns the signals that this process ignores. Those that Go catches
// become default by fork or exec, but it leaves alone what it finds ignored, and
// ignored stays ignored in the job.
func ignored() []unix.Signal {
	var list []unix.Signal
	for sig := unix.Signal(1); sig <= 64; sig++ {
		var old sigaction
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&old)), 8, 0, 0)
		if errno == 0 && old.handler == sigIgn {
			list = append(list, sig)
		}
	}
	return list
}

// dispose sets what this process does about a signal.
func dispose(sig unix.Signal, handler uintptr) {
	action := sigaction{handler: handler}
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

const (
	sigDfl = 0
	sigIgn = 1
)

// Shield makes this process ignore spool.IgnoredSignals. That is inherited by
// fork and exec, and undone for the job. Package os/signal could
// catch them instead, at the price of two threads in every shepherd.
func Shield() {
	for _, sig := range spool.IgnoredSignals {
		dispose(sig, sigIgn)
	}
}

// OpenSignals makes every signal of this thread, and of what it starts, one that
// is neither blocked nor ignored.
func OpenSignals() {
	for _, sig := range ignored() {
		dispose(sig, sigDfl)
	}
	emptyMask()
}

// emptyMask unblocks every signal of this thread, whose mask is the job's.
func emptyMask() {
	var none uint64
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&none)), 0, 8, 0, 0)
}

// setPriority sets the nice value of a process, 0 is this one.
func setPriority(pid, nice int) error {
	return raw(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, uintptr(pid), uintptr(nice))
}

// defaultTimerSlack is what the kernel gives its first process and so everybody,
// in nanoseconds.
const defaultTimerSlack = 50e3

// QuietRuntime gives what this thread executes next a shepherd's timer slack.
// Without it all is the same but slower.
func QuietRuntime() { _ = setTimerSlack(spool.StartTimerSlack) }

func setTimerSlack(ns uintptr) error { return raw(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, ns, 0) }

// asGiven gives this process, and so what it forks, the limit on descriptors that it was
// started with. Go raises the soft limit at its start and puts it back in syscall.Exec
// only. One that fails does so, too: it is the way to give the job execd's value if
// config has none.
func asGiven() { _ = syscall.Exec("", nil, nil) }
