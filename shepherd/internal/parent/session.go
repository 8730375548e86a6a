package parent

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/owner"
	"paddock/shepherd/internal/phase"
	"paddock/shepherd/internal/reap"
	"paddock/shepherd/internal/starter"
	"paddock/spool"
)

// sessionName is what traces call it.
const sessionName = "qrsh-session"

const (
	// clientTime is how long a job waits for its client to be connected.
	clientTime = 60 * time.Second
	// hangupTime is how long a job has after the SIGHUP that tells it of the
	// loss of its client.
	hangupTime = 5 * time.Second
)

// session is qrsh-session, which carries the streams of an interactive job to a
// client, and whatever else there is between the two.
type session struct {
	companion
	socket  int
	streams []int // the job's, until it has them: standard streams, or a terminal
	client  int   // the number of the client that it was told of
	ready   bool  // there has been a client
	lost    bool  // the client, for good
}

// openSession starts qrsh-session if the job is interactive, and waits until it
// has found the client.
func (p *parent) openSession(c *spool.Config) error {
	path, ok := c.Lookup(spool.KeySession)
	if !ok {
		return nil
	}
	grace, err := c.Int(spool.KeySessionGrace)
	if err != nil {
		return err
	}
	argv := []string{path, strconv.Itoa(grace)}
	var mine, far []int
	if flagIn(c, spool.KeyPTY) {
		argv = append(argv, spool.SessionWithTerminal)
		mine, far, err = openTerminal(c)
	} else {
		mine, far, err = openPipes()
	}
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		closeAll(mine, far)
		return errors.New("cannot make a socket for " + sessionName + ": " + err.Error())
	}
	far = append([]int{pair[1]}, far...)
	stage, _, err := p.begin(procedureLeaf)
	if err != nil {
		closeAll(mine, far, pair[:1])
		return err
	}
	p.session = &session{
		companion: companion{name: sessionName, stage: stage, child: &reap.Child{PID: stage.PID, FD: stage.PIDFD}},
		socket:    pair[0], streams: mine,
	}
	p.loop.Session = pair[0]
	p.watchBeside()
	p.elders = true
	p.log.Line("starting " + sessionName)
	p.release(stage, starter.Order{Kind: starter.Session, Name: sessionName, State: spool.FailedBeforeStart, Argv: argv}, far...)
	closeAll(far)
	if err := p.newClient(); err != nil {
		return err
	}
	return p.awaitClient()
}

func closeAll(lists ...[]int) {
	for _, list := range lists {
		for _, fd := range list {
			unix.Close(fd)
		}
	}
}

// openPipes makes the job's standard streams, and their far ends.
func openPipes() (mine, far []int, err error) {
	for to := range 3 {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			closeAll(mine, far)
			return nil, nil, errors.New("cannot make a pipe for the job: " + err.Error())
		}
		if to == 0 {
			mine, far = append(mine, pipe[0]), append(far, pipe[1])
		} else {
			mine, far = append(mine, pipe[1]), append(far, pipe[0])
		}
	}
	return mine, far, nil
}

// openTerminal makes a terminal that belongs to the job's owner. Its slave is
// opened through the master: no name is used that somebody could change.
func openTerminal(c *spool.Config) (slave, master []int, err error) {
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, errors.New("cannot open a terminal: " + err.Error())
	}
	fail := func(do string, err error) ([]int, []int, error) {
		unix.Close(m)
		return nil, nil, errors.New("cannot " + do + " a terminal: " + err.Error())
	}
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlock", err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(m), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return fail("open the other side of", errno)
	}
	s := int(fd)
	if unix.Geteuid() == 0 {
		ids, err := starter.Owner(c, owner.Places{})
		if err == nil {
			err = unix.Fchown(s, ids.UID, -1)
		}
		if err == nil {
			err = unix.Fchmod(s, 0o620)
		}
		if err != nil {
			unix.Close(s)
			return fail("give away", err)
		}
	}
	return []int{s}, []int{m}, nil
}

// tell tells qrsh-session something. One that does not listen is dead, or will
// be soon.
func (s *session) tell(words ...string) {
	_ = unix.Send(s.socket, []byte(strings.Join(words, " ")), unix.MSG_NOSIGNAL)
}

// newClient tells qrsh-session of the client in the file session, unless it
// knows that one.
func (p *parent) newClient() error {
	b, err := p.dir.Read(spool.FileSession)
	if err != nil {
		return err
	}
	client, err := spool.ParseSession(b)
	if err != nil {
		return errors.New("cannot read " + spool.FileSession + ": " + err.Error())
	}
	if s := p.session; client.Number > s.client {
		s.client = client.Number
		p.log.Line("the client is number " + strconv.Itoa(client.Number) + ", at " + client.Address)
		s.tell(spool.SessionClient, string(b))
	}
	return nil
}

// awaitClient waits until the client is connected.
func (p *parent) awaitClient() error {
	s := p.session
	for until := time.Now().Add(clientTime); ; {
		left := time.Until(until)
		if left <= 0 {
			return errors.New("no connection to the client after " + seconds(clientTime))
		}
		ts := unix.NsecToTimespec(int64(left))
		fds := []unix.PollFd{{Fd: int32(s.socket), Events: unix.POLLIN}}
		if _, err := unix.Ppoll(fds, &ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return errors.New("cannot wait for " + sessionName + ": " + err.Error())
		}
		for word, rest := s.next(); word != ""; word, rest = s.next() {
			switch word {
			case spool.SessionReady:
				s.ready = true
				return nil
			case spool.SessionLost:
				return errors.New(rest)
			case sessionGone:
				if fail := s.failure(); fail != nil {
					return errors.New(fail.Text)
				}
				return errors.New(sessionName + " has ended")
			}
		}
	}
}

// sessionGone stands for what one says who is not there any more.
const sessionGone = "gone"

// next returns what qrsh-session has said, "" for nothing.
func (s *session) next() (word, rest string) {
	b := make([]byte, spool.MaxSessionMessage)
	n, err := unix.Read(s.socket, b)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return "", ""
	case err != nil || n == 0:
		return sessionGone, ""
	}
	word, rest, _ = strings.Cut(string(b[:n]), " ")
	return word, rest
}

// passStreams is called when the job has its streams: nobody else may keep them
// open, or they would not end with it.
func (p *parent) passStreams() {
	if p.session != nil {
		closeAll(p.session.streams)
		p.session.streams = nil
	}
}

// heard does what qrsh-session says.
func (p *parent) heard() {
	for {
		word, rest := p.session.next()
		switch word {
		case "":
			return
		case spool.SessionSignal:
			n, err := strconv.Atoi(rest)
			if err == nil && n > 0 && n < 64 && p.state == phase.Running {
				p.log.Line("the client sends signal " + control.Name(unix.Signal(n)))
				p.killed = p.killed || n == int(unix.SIGKILL)
				p.deliver(unix.Signal(n))
			}
		case spool.SessionLost:
			p.clientLost(rest)
		case sessionGone:
			p.loop.Session = -1
			p.clientLost(sessionName + " has ended")
			return
		}
	}
}

// clientLost ends a job whose client does not come back, as the loss of a
// terminal does.
func (p *parent) clientLost(why string) {
	if p.session.lost || p.state != phase.Running {
		return
	}
	p.session.lost = true
	p.explain("job was ended: it has lost its client: " + why)
	p.deliver(unix.SIGHUP)
	p.deliver(unix.SIGCONT)
	p.timers.after(timerHangup, hangupTime)
}

// tellState tells the client whether the job is suspended.
func (p *parent) tellState() {
	if p.session == nil {
		return
	}
	state := "run"
	if p.suspended {
		state = "stop"
	}
	p.session.tell(spool.SessionState, state)
}

// endSession tells the client how the job has ended, and waits until it knows: as
// long as it is there, and if it is lost as long as it is waited for. The job
// is over; who wants its end now means this.
func (p *parent) endSession() {
	s := p.session
	if s == nil {
		return
	}
	p.passStreams()
	status, why := 1, p.why
	if p.ran {
		status = spool.NewUsage(p.status, p.started, p.ended, &p.rusage).ExitStatus
	}
	why = strings.ReplaceAll(why, "\n", " ")
	s.tell(spool.SessionExit, strconv.Itoa(status), why[:min(len(why), 1<<10)])
	p.log.Line("waiting for " + sessionName)
	p.log.Flush()
	for !p.sessionEnded() {
		fds := []unix.PollFd{{Fd: int32(s.child.FD), Events: unix.POLLIN}, {Fd: int32(p.loop.Signals), Events: unix.POLLIN}}
		_, _ = unix.Ppoll(fds, nil, nil)
		if fds[1].Revents == 0 {
			continue
		}
		for sig, _, ok := p.loop.Signal(); ok; sig, _, ok = p.loop.Signal() {
			if meaning, _ := control.Carrier(sig); meaning != control.Read {
				continue
			}
			_ = p.newClient()
			wanted, _ := p.inbox.Take()
			for _, to := range wanted {
				if to == unix.SIGKILL {
					p.killSession()
				}
			}
		}
	}
}

// killSession ends qrsh-session without a word.
func (p *parent) killSession() {
	if p.session != nil && !p.session.child.Ended {
		p.log.Line("killing " + sessionName)
		_ = unix.Kill(-p.session.child.PID, unix.SIGKILL)
	}
}

// sessionEnded reports whether qrsh-session has ended.
func (p *parent) sessionEnded() bool {
	p.loop.Orphans()
	return p.session.child.Ended
}
