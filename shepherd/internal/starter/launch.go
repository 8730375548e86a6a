package starter

import (
	"errors"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mark begins the variable by which what runs for a job is known, by its
// directory, to the shepherd and to execd.
const Mark = "SGE_JOB_SPOOL_DIR="

// name is what a process is called that is nothing yet.
const name = "shepherd-starter"

// fdReport is the socket to the shepherd, in the process.
const fdReport = 3

// A Place is where a process is started, and with what.
type Place struct {
	Group     int  // descriptor of the control group that it is born in, -1 for none
	Grouped   bool // it is in the run's control group when it gets its order
	Inherited int  // descriptor of the environment that a foreign execd gave us, -1 for none
	Keyring   bool // it has the session keyring that is there
}

// Process is what the shepherd has forked, and what is to become a part of the run.
type Process struct {
	PID    int
	PIDFD  int
	Socket int // nonblocking

	place Place
	plan  *plan
	keys  uintptr  // register: why it has no keyring of its own, 0 if it tries none
	order *message // with its descriptors
	caps  error    // why it has inheritable capabilities
}

// Launch forks a process, in a session of its own, that waits for its order. It
// does nothing before that anybody could see.
func Launch(place Place) (*Process, error) {
	p, err := newPlan()
	if err != nil {
		return nil, errors.New("cannot start the starter: " + errnoText(err))
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		p.close()
		return nil, errors.New("cannot make a socket for the starter: " + errnoText(err))
	}
	defer unix.Close(pair[1])
	s := &Process{Socket: pair[0], place: place, plan: p}
	if unix.Geteuid() == 0 {
		s.caps = dropInheritable()
	}
	asGiven()
	s.begin(pair)
	s.PID, s.PIDFD, err = p.start(place.Group)
	if err == nil && s.PIDFD < 0 {
		s.PIDFD, err = unix.PidfdOpen(s.PID, 0)
	}
	if err != nil {
		s.Close()
		return nil, errors.New("cannot start the starter: " + errnoText(err))
	}
	_ = unix.SetNonblock(s.Socket, true)
	return s, nil
}

// begin makes the first steps, up to the wait for the order.
func (s *Process) begin(pair [2]int) {
	p := s.plan
	var mask unix.Sigset_t // of now: all are blocked while a process forks
	if unix.PthreadSigmask(unix.SIG_BLOCK, nil, &mask) == nil {
		p.call(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, store(p, mask), 0, 8)
	}
	if pair[1] != fdReport {
		p.call(unix.SYS_DUP3, uintptr(pair[1]), fdReport, unix.O_CLOEXEC)
		p.fails(fail, 1, 0, false)
	}
	// Nothing of the shepherd's is in it: not the lock, by which it would live on,
	// and not its own end of the socket, whose end says that the shepherd is dead.
	if unix.CloseRange(^uint(0)>>33, ^uint(0)>>33, 0) == nil {
		p.call(unix.SYS_CLOSE_RANGE, fdReport+1, uintptr(^uint32(0)), 0)
	} else { // before Linux 5.9
		for fd := uintptr(fdReport + 1); fd < 64; fd++ {
			p.call(unix.SYS_CLOSE, fd)
		}
	}
	p.call(unix.SYS_SETSID)
	p.call(unix.SYS_PRCTL, unix.PR_SET_NAME, p.path(name))
	if unix.Geteuid() == 0 && !s.place.Keyring {
		p.call(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING)
		s.keys = p.errno()
	}
	p.tell(kindReady)
	s.order = p.receive(fdReport, p.room(8), 8)
	// Without an order it was refused, or the shepherd is dead.
	p.either(p.result(), 1, func() {}, func() { p.add(doExit, 0) })
}

// tell sends a message without more.
func (p *plan) tell(kind rune) {
	at := p.put(string(kind))
	p.call(unix.SYS_WRITE, fdReport, at, 1)
}

// Messages have a byte that tells their kind.
const (
	kindReady = 'R' // it waits for its order
	kindGo    = 'G' // to it: the plan is made
	kindExec  = 'X' // the next thing is exec
	kindFail  = 'F' // see report
)

// Failure says why a job cannot be started: the state for exit_status and the
// line for error.
type Failure struct {
	Number int
	Text   string
	EUID   int // of the process that failed, for the stamp
}

// Message is what a process said.
type Message struct {
	Exec    bool     // it is about to exec
	Failure *Failure // it failed
	Closed  bool     // it is gone, by exec or death: nothing more will come
	Again   bool     // nothing yet
}

// received is where messages are read to. It is not on the stack, which would
// grow for it and stay so.
var received [reportHead + maxText]byte

// Next returns the next message of the process.
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
	case b[0] == kindFail && n >= int(reportHead):
		r := (*report)(unsafe.Pointer(b))
		text := string(b[reportHead:n])
		if r.errno != 0 {
			text += errnoText(unix.Errno(r.errno))
		}
		return Message{Failure: &Failure{Number: int(r.number), EUID: int(r.euid), Text: text[:min(len(text), maxText)]}}
	}
	return Message{Failure: &Failure{Number: 11, Text: "internal error: bad message from the starter"}}
}

// readyTime is how long a process may take to be ready: one that is frozen does not
// hold up the shepherd for ever.
const readyTime = time.Minute

// await waits until the process is ready for its order.
func (s *Process) await() error {
	fds := []unix.PollFd{{Fd: int32(s.Socket), Events: unix.POLLIN}}
	n := 0
	err := ignoringEINTR(func() (err error) {
		n, err = unix.Poll(fds, int(readyTime/time.Millisecond))
		return err
	})
	if err == nil && n == 0 {
		_ = unix.PidfdSendSignal(s.PIDFD, unix.SIGKILL, nil, 0)
		err = unix.ETIMEDOUT
	}
	if err == nil {
		n, err = unix.Read(s.Socket, received[:])
	}
	if err == nil && (n == 0 || received[0] != kindReady) {
		err = unix.EPIPE
	}
	return err
}

// Go makes the plan by which the process becomes what is ordered, and has it
// begin. It gets descriptors: a Job its standard streams, or a terminal for all
// of them, a Session those from spool.SessionSocket on.
func (s *Process) Go(o Order, files ...int) error {
	if err := s.await(); err != nil {
		return err
	}
	s.make(o, len(files))
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	err := ignoringEINTR(func() error { return unix.Sendmsg(s.Socket, []byte{kindGo}, rights, nil, 0) })
	s.plan.close()
	return err
}

// make makes the plan behind the first steps, which wait for it.
func (s *Process) make(o Order, files int) {
	p := s.plan
	first, used := p.steps, p.used
	st := newStarter(s, o)
	st.make(files)
	p.finish()
	if p.full {
		p.steps, p.used, p.full, p.most = first, used, false, 0
		st.giveUp(&Failure{Number: st.state(), Text: "cannot start " + o.Name + ": the command with its variables is too long"})
		p.finish()
	}
	*st = starter{}
	if o.Detail != nil {
		for i := first; i < p.steps; i++ {
			o.Detail("step " + strconv.Itoa(i) + ": " + p.area.steps[i].describe())
		}
	}
}

// Close closes the socket: a process that has no order ends without a trace.
func (s *Process) Close() {
	s.plan.close()
	if s.Socket >= 0 {
		unix.Close(s.Socket)
		s.Socket = -1
	}
}

// Dismiss ends a process that has no order, and waits for it.
func (s *Process) Dismiss() {
	s.Close()
	unix.Close(s.PIDFD)
	_, _ = unix.Wait4(s.PID, nil, 0, nil)
}
