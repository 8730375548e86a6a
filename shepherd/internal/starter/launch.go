package starter

import (
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// Arg0 is the name of the starter in the process list, by which main
// knows that it is meant.
const Arg0 = "shepherd-starter"

// Mark begins the variable by which what runs for a job is known, by its
// directory, to the shepherd and to execd.
const Mark = "SGE_JOB_SPOOL_DIR="

// Arguments of the starter.
const (
	wordInherit = "inherit" // there is an environment
	wordGroup   = "group"   // it is in the run's control group
)

// Descriptors of the starter.
const (
	fdReport    = 3 // socket to the shepherd
	fdInherited = 4 // the environment that a foreign execd gave us, if there is one
)

// self survives the replacement of the binary while the shepherd runs.
const self = "/proc/self/exe"

// Process is a starter as the shepherd sees it.
type Process struct {
	PID    int
	PIDFD  int
	Socket int // nonblocking
}

// Launch starts a starter in a session of its own. It reads the job
// directory at once, and does nothing that anybody could see before Go.
// inherited is a descriptor with an environment, and group one of the control
// group that it is born in; -1 is none. grouped says that it is in a group when
// it gets its order.
func Launch(inherited, group int, grouped bool) (*Process, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errors.New("cannot make a socket for the starter: " + errnoText(err))
	}
	defer unix.Close(pair[1])
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(pair[0])
		return nil, errors.New("cannot open /dev/null: " + errnoText(err))
	}
	defer unix.Close(null)
	files := []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(pair[1])}
	argv := []string{Arg0}
	if inherited >= 0 {
		files = append(files, uintptr(inherited))
		argv = append(argv, wordInherit)
	}
	if grouped {
		argv = append(argv, wordGroup)
	}
	// Until it is something else it has the mark of what it becomes: if the
	// shepherd dies, it may hang in a file system, with the job still to come.
	env := spool.StartEnvironment
	if dir, err := unix.Getwd(); err == nil {
		env = append(slices.Clip(env), Mark+dir)
	}
	s := &Process{PIDFD: -1, Socket: pair[0]}
	s.PID, err = syscall.ForkExec(self, argv, &syscall.ProcAttr{
		Env:   env,
		Files: files,
		// The session is made here and not by the starter, so that its process
		// group can be killed from the first moment.
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &s.PIDFD, UseCgroupFD: group >= 0, CgroupFD: max(group, 0)},
	})
	if err == nil && s.PIDFD < 0 {
		s.PIDFD, err = unix.PidfdOpen(s.PID, 0)
	}
	if err != nil {
		unix.Close(pair[0])
		return nil, errors.New("cannot start the starter: " + errnoText(err))
	}
	_ = unix.SetNonblock(s.Socket, true)
	return s, nil
}

// Go tells the starter what to become, and gives it descriptors: a Job its standard
// streams, or a terminal for all of them, a Session those from
// spool.SessionSocket on. An order that cannot be sent is cut down to
// one that the starter refuses, with the order's state: whoever waits for the
// starter waits for an end in any case.
func (s *Process) Go(o Order, files ...int) error {
	b := o.message()
	bad := o.check(b)
	if bad != nil {
		b = b[:orderHead]
	}
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	err := ignoringEINTR(func() error { return unix.Sendmsg(s.Socket, b, rights, nil, 0) })
	return firstOf(bad, err)
}

// Close closes the socket: a starter that was not told to go ends without a
// trace.
func (s *Process) Close() {
	if s.Socket >= 0 {
		unix.Close(s.Socket)
		s.Socket = -1
	}
}

// Dismiss ends a starter that was not told to go, and waits for it.
func (s *Process) Dismiss() {
	s.Close()
	unix.Close(s.PIDFD)
	_, _ = unix.Wait4(s.PID, nil, 0, nil)
}

// The first byte of a message tells its kind.
const (
	kindGo   = 'G' // to the starter: an Order
	kindExec = 'X' // from it: the next thing is exec
	kindFail = 'F' // number, effective uid in four bytes, text
)

// Failure says why a job cannot be started: the state for exit_status and the
// line for error.
type Failure struct {
	Number int
	Text   string
	EUID   int // of the process that failed, for the stamp
}

// Message is what a starter said.
type Message struct {
	Exec    bool     // it is about to exec
	Failure *Failure // it failed
	Closed  bool     // it is gone, by exec or death: nothing more will come
	Again   bool     // nothing yet
}

// received is where messages are read to. It is not on the stack, which would
// grow for it and stay so.
var received [maxText + 16]byte

// Next returns the next message of the starter.
func (s *Process) Next() Message {
	b := &received
	var n int
	err := ignoringEINTR(func() (err error) {
		n, err = unix.Read(s.Socket, b[:])
		return err
	})
	switch {
	case errors.Is(err, unix.EAGAIN):
		return Message{Again: true}
	case err != nil || n == 0:
		return Message{Closed: true}
	case b[0] == kindExec:
		return Message{Exec: true}
	case b[0] == kindFail && n >= 6:
		euid := int(b[2]) | int(b[3])<<8 | int(b[4])<<16 | int(b[5])<<24
		return Message{Failure: &Failure{Number: int(b[1]), EUID: euid, Text: string(b[6:n])}}
	}
	return Message{Failure: &Failure{Number: 11, Text: "internal error: bad message from the starter"}}
}

// maxText is how much of a failure's text is passed on: arguments may be long.
const maxText = 8 << 10

// appendFailure appends the message for a failure; it allocates nothing if b
// has room.
func appendFailure(b []byte, number, euid int, text []byte) []byte {
	b = append(b, kindFail, byte(number), byte(euid), byte(euid>>8), byte(euid>>16), byte(euid>>24))
	return append(b, text[:min(len(text), maxText)]...)
}
