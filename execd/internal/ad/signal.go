package ad

import (
	"fmt"
	"strings"
	"syscall"

	"paddock/execd/api"
)

// lastSignal is the highest number of a signal.
const lastSignal = 64

// signals are the names that KillSig may have, without SIG.
var signals = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "ILL": syscall.SIGILL,
	"TRAP": syscall.SIGTRAP, "ABRT": syscall.SIGABRT, "IOT": syscall.SIGIOT, "BUS": syscall.SIGBUS,
	"FPE": syscall.SIGFPE, "KILL": syscall.SIGKILL, "USR1": syscall.SIGUSR1, "SEGV": syscall.SIGSEGV,
	"USR2": syscall.SIGUSR2, "PIPE": syscall.SIGPIPE, "ALRM": syscall.SIGALRM, "TERM": syscall.SIGTERM,
	"STKFLT": syscall.SIGSTKFLT, "CHLD": syscall.SIGCHLD, "CLD": syscall.SIGCHLD, "CONT": syscall.SIGCONT,
	"STOP": syscall.SIGSTOP, "TSTP": syscall.SIGTSTP, "TTIN": syscall.SIGTTIN, "TTOU": syscall.SIGTTOU,
	"URG": syscall.SIGURG, "XCPU": syscall.SIGXCPU, "XFSZ": syscall.SIGXFSZ, "VTALRM": syscall.SIGVTALRM,
	"PROF": syscall.SIGPROF, "WINCH": syscall.SIGWINCH, "IO": syscall.SIGIO, "POLL": syscall.SIGIO,
	"PWR": syscall.SIGPWR, "SYS": syscall.SIGSYS,
}

// idle are signals that do not end a job: they stop or continue it, or are ignored by
// default.
var idle = map[syscall.Signal]bool{
	syscall.SIGSTOP: true, syscall.SIGTSTP: true, syscall.SIGTTIN: true, syscall.SIGTTOU: true,
	syscall.SIGCONT: true, syscall.SIGCHLD: true, syscall.SIGURG: true, syscall.SIGWINCH: true,
}

// signalNamed returns the signal of a name, with or without SIG, in any case.
func signalNamed(name string) (syscall.Signal, error) {
	if s, ok := signals[strings.TrimPrefix(strings.ToUpper(name), "SIG")]; ok {
		return s, nil
	}
	return 0, fmt.Errorf("%q is not the name of a signal", api.Short(name))
}

// signalNumbered returns the signal of a number.
func signalNumbered(n int64) (syscall.Signal, error) {
	if n < 1 || n > lastSignal {
		return 0, fmt.Errorf("%d is not a signal: want 1 to %d", n, lastSignal)
	}
	return syscall.Signal(n), nil
}
