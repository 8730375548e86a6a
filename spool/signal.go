package spool

import (
	"bytes"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

type signalName struct {
	sys  int
	ge   uint32
	name string
}

// signals is sorted by the system's number. Grid Engine numbers signals for
// all its systems alike; those without a number of that kind have noSignal.
var signals = [...]signalName{
	{1, 901, "HUP"},
	{2, 902, "INT"},
	{3, 903, "QUIT"},
	{4, 904, "ILL"},
	{5, 905, "TRAP"},
	{6, 906, "ABRT"},
	{7, 911, "BUS"},
	{8, 909, "FPE"},
	{9, 910, "KILL"},
	{10, 931, "USR1"},
	{11, 912, "SEGV"},
	{12, 932, "USR2"},
	{13, 914, "PIPE"},
	{14, 915, "ALRM"},
	{15, 916, "TERM"},
	{16, noSignal, "STKFLT"},
	{17, 921, "CHLD"},
	{18, 920, "CONT"},
	{19, 918, "STOP"},
	{20, 919, "TSTP"},
	{21, 922, "TTIN"},
	{22, 923, "TTOU"},
	{23, 917, "URG"},
	{24, 925, "XCPU"},
	{25, 926, "XFSZ"},
	{26, 927, "VTALRM"},
	{27, 928, "PROF"},
	{28, 929, "WINCH"},
	{29, 924, "IO"},
	{30, noSignal, "PWR"},
	{31, noSignal, "SYS"},
}

const noSignal = 1<<32 - 1

// SignalName returns the name of a signal of the system without SIG, or its
// number if it has no name.
func SignalName(sys int) string {
	if 1 <= sys && sys <= len(signals) {
		return signals[sys-1].name
	}
	return strconv.Itoa(sys)
}

// SignalNumber returns the signal of a name, with or without SIG.
func SignalNumber(name string) (int, bool) {
	name = strings.TrimPrefix(name, "SIG")
	for i := range signals {
		if signals[i].name == name {
			return signals[i].sys, true
		}
	}
	switch name { // other names of the same signals
	case "IOT":
		return 6, true
	case "CLD":
		return 17, true
	case "POLL":
		return 29, true
	}
	return 0, false
}

// GESignal returns Grid Engine's number of a signal of the system, all ones if
// it has none.
func GESignal(sys int) uint32 {
	if 1 <= sys && sys <= len(signals) {
		return signals[sys-1].ge
	}
	return noSignal
}

// A WaitStatus is Grid Engine's own encoding of how a process ended.
type WaitStatus uint32

const (
	waitExited   = 1
	waitSignaled = 2
	waitCore     = 4
)

// MakeWaitStatus translates the status that wait4 returned.
func MakeWaitStatus(ws syscall.WaitStatus) WaitStatus {
	switch {
	case ws.Exited():
		return WaitStatus(ws.ExitStatus())<<4 | waitExited
	case ws.Signaled():
		// Its field is 16 bits wide for a signal that has no number.
		w := WaitStatus(GESignal(int(ws.Signal()))&0xffff)<<12 | waitSignaled
		if ws.CoreDump() {
			w |= waitCore
		}
		return w
	}
	return 0
}

// Signaled reports whether a signal ended the process.
func (w WaitStatus) Signaled() bool { return w&waitSignaled != 0 }

// CoreDump reports whether the process left a core.
func (w WaitStatus) CoreDump() bool { return w&waitCore != 0 }

// Signal returns the system's number of the signal that ended the process, 0
// if there is none or Grid Engine has no number for it.
func (w WaitStatus) Signal() int {
	if w.Signaled() {
		for i := range signals {
			if signals[i].ge == uint32(w>>12) {
				return signals[i].sys
			}
		}
	}
	return 0
}

// A Signal is one that execd wants delivered to a job.
type Signal struct {
	Signal int
	Seq    int // counted from 1; 0 when a foreign execd wrote it
}

func parseSignal(line []byte) (Signal, bool) {
	num, seq, numbered := bytes.Cut(line, []byte{' '})
	n, ok := decimal(string(num), maxID)
	if !ok || n == 0 {
		return Signal{}, false
	}
	s := Signal{Signal: int(n)}
	if numbered {
		q, ok := decimal(string(seq), maxInt)
		if !ok || q == 0 {
			return Signal{}, false
		}
		s.Seq = int(q)
	}
	return s, true
}

func appendSignal(b []byte, sig, seq int) []byte {
	b = strconv.AppendInt(b, int64(sig), 10)
	if seq > 0 {
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(seq), 10)
	}
	return append(b, '\n')
}

// ParseSignal parses the file signal: "19" as Grid Engine writes it, or "19 7"
// with our sequence number.
func ParseSignal(b []byte) (sig, seq int, err error) {
	line, rest, ok := cutLine(b)
	s, good := parseSignal(line)
	if !ok || !good || len(rest) > 0 {
		return 0, 0, syntax(FileSignal, 0, "want a signal, got "+short(b))
	}
	return s.Signal, s.Seq, nil
}

// AppendSignal appends the content of the file signal. Without a sequence
// number, 0, it is Grid Engine's.
func AppendSignal(b []byte, sig, seq int) []byte { return appendSignal(b, sig, seq) }

// ParseSignals parses the file signals, whose lines are a signal and its
// sequence number. A torn last line is ignored: its writer is still at it, and
// pokes the reader when it is whole.
func ParseSignals(b []byte) ([]Signal, error) {
	var list []Signal
	for n := 1; ; n++ {
		line, rest, ok := cutLine(b)
		if !ok {
			return list, nil
		}
		s, ok := parseSignal(line)
		if !ok || s.Seq == 0 {
			return list, syntax(FileSignals, n, "want a signal and its sequence number, got "+short(line))
		}
		list = append(list, s)
		b = rest
	}
}

// AppendSignals appends lines of the file signals.
func AppendSignals(b []byte, list []Signal) []byte {
	for _, s := range list {
		b = appendSignal(b, s.Signal, s.Seq)
	}
	return b
}

// CaughtSignals are those a shepherd takes by signalfd and that must be blocked
// when it starts: execd's carriers, and others that would end or stop the
// shepherd and leave its job without a parent.
var CaughtSignals = []unix.Signal{
	unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM, unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN,
	unix.SIGTTOU, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGWINCH, unix.SIGIO, unix.SIGPWR,
}

// IgnoredSignals would end a shepherd and cannot be kept blocked: the Go
// runtime unblocks in every thread what it takes for deadly. Execd blocks them
// all the same, for the first instants.
var IgnoredSignals = []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}
