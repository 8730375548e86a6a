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
	policy  string
	missing string // why there is no client, which is not waited for any longer
	gone    bool   // qrsh-session
	ending  bool   // the job, for want of a client

	daemon bool // the job is one
	told   int  // how ended what the client wanted, as wait(2) has it; -1: nobody has said yet
}

// connect starts qrsh-session and has it connect to the client.
func (p *parent) connect() {
	p.timers.after(timerLate, clientTime)
	if err := p.openSession(p.config); err != nil {
		p.on(event{what: phase.Lost, why: err.Error()})
	}
}

// forgo gives up a job whose client was not found.
func (p *parent) forgo(e event) {
	if e.what == phase.Late {
		e.why = "no connection to the client after " + seconds(clientTime)
	}
	p.part, p.outcome = phase.Job, phase.NotStarted
	p.notStarted(spool.FailedBeforeStart, e.why)
	p.log.Line("failed starting job")
	p.step()
}

// openSession starts qrsh-session and tells it of the client.
func (p *parent) openSession(c *spool.Config) error {
	path, err := c.String(spool.KeySession)
	if err != nil {
		return err
	}
	grace, err := c.Int(spool.KeySessionGrace)
	if err != nil {
		return err
	}
	policy, _ := c.Lookup(spool.KeySessionLost)
	argv := []string{path, strconv.Itoa(grace)}
	var mine, far []int
	if isDaemon(c) {
		argv = append(argv, daemonWords(c)...)
		mine, far, err = openDaemon()
	} else if flagIn(c, spool.KeyPTY) {
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
		socket:    pair[0], streams: mine, policy: policy, daemon: isDaemon(c), told: -1,
	}
	p.loop.Session = pair[0]
	p.watchBeside()
	p.elders = true
	p.log.Line("starting " + sessionName)
	p.release(stage, starter.Order{Kind: starter.Session, Name: sessionName, State: spool.FailedBeforeStart, Argv: argv}, far...)
	closeAll(far)
	return p.newClient()
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
		case spool.SessionReady:
			p.on(event{what: phase.Connected})
		case spool.SessionStatus:
			p.session.heardStatus(rest)
		case spool.SessionLost:
			p.on(event{what: phase.Lost, why: rest})
		case sessionGone:
			p.loop.Session = -1
			p.session.gone = true
			why := sessionName + " has ended"
			if fail := p.session.failure(); fail != nil {
				why = fail.Text
			}
			p.on(event{what: phase.Lost, why: why})
			return
		}
	}
}

// miss sees to a job whose client does not come back: it goes on without, is
// stopped until there is one, which execd does, or ends as by the loss of a
// terminal. Without qrsh-session there is no way back.
func (p *parent) miss(why string) {
	s := p.session
	s.missing = why
	switch {
	case p.state != phase.Running || s.ending:
		return // runs comes back to it
	case !s.gone && s.policy == spool.LostKeep:
		p.log.Line("the job goes on without its client: " + why)
		return
	case !s.gone && s.policy == spool.LostStop:
		p.log.Line("the job is to be stopped, it has lost its client: " + why)
		err := p.dir.Write(spool.FileLost, []byte(why+"\n"))
		if err == nil {
			return
		}
		p.log.Line("cannot have it stopped, and end it: " + err.Error())
	}
	s.ending = true
	p.explain("job was ended: it has lost its client: " + why)
	p.deliver(unix.SIGHUP)
	p.deliver(unix.SIGCONT)
	p.timers.after(timerHangup, hangupTime)
}

// greet takes note of a client that has come back.
func (p *parent) greet() {
	if p.session.missing != "" {
		p.session.missing = ""
		p.log.Line("the client is there again")
		p.found()
	}
	if p.suspended {
		p.tellState()
	}
}

// found takes back that the job is to be stopped.
func (p *parent) found() {
	if p.session != nil && p.session.policy == spool.LostStop {
		_ = unix.Unlink(spool.FileLost)
	}
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

// farewell tells the client how the job has ended. qrsh-session stays until it
// knows: as long as it is there, and if it is lost as long as it is waited for.
func (p *parent) farewell() {
	p.announce()
	p.passStreams()
	status, why := 1, p.why
	if p.ran {
		status = spool.NewUsage(p.status, p.started, p.ended, &p.rusage).ExitStatus
	}
	why = strings.ReplaceAll(why, "\n", " ")
	p.session.tell(spool.SessionExit, strconv.Itoa(status), why[:min(len(why), 1<<10)])
	p.log.Line("waiting for " + sessionName)
}

// killSession ends qrsh-session without a word.
func (p *parent) killSession() {
	if p.session != nil && !p.session.child.Ended {
		p.log.Line("killing " + sessionName)
		_ = unix.Kill(-p.session.child.PID, unix.SIGKILL)
	}
}
