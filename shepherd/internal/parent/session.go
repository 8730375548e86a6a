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
	"paddock/shepherd/internal/trace"
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
	log     *trace.Log
	loop    *reap.Loop
	socket  int
	streams []int // the job's, until it has them: standard streams, or a terminal
	client  int   // the number of the client that it was told of
	policy  string
	notes   int    // where procedures write what has no file: the job's standard error, or a pipe beside its terminal
	guard   int    // its other end while procedures write, so that nobody's loss is theirs; or -1
	missing string // why there is no client, which is not waited for any longer
	deaf    bool   // nobody reads the notes
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
		return
	}
	p.settle() // the client may take long
}

// forgo gives up a job whose client was not found: nothing of it is begun.
func (p *parent) forgo(e event) {
	if e.what == phase.Late {
		e.why = "no connection to the client after " + seconds(clientTime)
	}
	p.part, p.outcome, p.results.begun = phase.Prolog, phase.NotStarted, true
	p.results.notStarted(spool.FailedBeforeStart, e.why)
	p.log.Line("failed starting job")
	p.step()
}

// openSession starts qrsh-session and tells it of the client.
func (p *parent) openSession(c *spool.Config) error {
	argv, err := sessionCommand(c)
	if err != nil {
		return err
	}
	mine, far, err := openStreams(c)
	if err != nil {
		return err
	}
	policy, _ := c.Lookup(spool.KeySessionLost)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		closeAll(mine, far)
		return errors.New("cannot make a socket for " + sessionName + ": " + err.Error())
	}
	far = append([]int{pair[1]}, far...)
	child, err := p.launcher.companion(sessionName)
	if err != nil {
		closeAll(mine, far, pair[:1])
		return err
	}
	p.session = &session{
		log: p.log, loop: &p.loop, companion: *child,
		socket: pair[0], streams: mine, policy: policy, notes: -1, guard: -1, daemon: isDaemon(c), told: -1,
	}
	if s := p.session; s.daemon {
		s.deaf = true // it has a connection of its own
	} else {
		last := len(mine) - 1
		s.streams, s.notes = mine[:last], mine[last]
	}
	p.loop.Session = pair[0]
	p.log.Line("starting " + sessionName)
	p.launcher.release(child.starter, starter.Order{Kind: starter.Session, Name: sessionName, State: spool.FailedBeforeStart, Argv: argv}, far...)
	closeAll(far)
	return p.session.newClient(p.dir)
}

// sessionCommand returns qrsh-session with its arguments.
func sessionCommand(c *spool.Config) ([]string, error) {
	path, err := c.String(spool.KeySession)
	if err != nil {
		return nil, err
	}
	grace, err := c.Int(spool.KeySessionGrace)
	argv := []string{path, strconv.Itoa(grace)}
	switch {
	case isDaemon(c):
		argv = append(argv, daemonWords(c)...)
	case flagIn(c, spool.KeyPTY):
		argv = append(argv, spool.SessionWithTerminal)
	}
	return argv, err
}

// openStreams makes the job's streams, and their far ends, which are qrsh-session's.
func openStreams(c *spool.Config) (mine, far []int, err error) {
	switch {
	case isDaemon(c):
		return openDaemon()
	case flagIn(c, spool.KeyPTY):
		return openTerminal(c)
	}
	return openPipes()
}

func closeAll(lists ...[]int) {
	for _, list := range lists {
		for _, fd := range list {
			unix.Close(fd)
		}
	}
}

// openPipes makes the job's standard streams, and their far ends. The last of
// them stays ours when the job has the others.
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
	notes, err := unix.FcntlInt(uintptr(mine[2]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		closeAll(mine, far)
		return nil, nil, errors.New("cannot keep a pipe of the job: " + err.Error())
	}
	return append(mine, notes), far, nil
}

// openTerminal makes a terminal that belongs to the job's owner, and a pipe for
// what procedures say beside it. Its slave is opened through the master: no name
// is used that somebody could change.
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
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		unix.Close(s)
		return fail("make a pipe beside", err)
	}
	return []int{s, pipe[1]}, []int{m, pipe[0]}, nil
}

// tell tells qrsh-session something. One that does not listen is dead, or will
// be soon.
func (s *session) tell(words ...string) {
	_ = unix.Send(s.socket, []byte(strings.Join(words, " ")), unix.MSG_NOSIGNAL)
}

// newClient tells qrsh-session of the client in the file session, unless it
// knows that one.
func (s *session) newClient(dir spool.Dir) error {
	b, err := dir.Read(spool.FileSession)
	if err != nil {
		return err
	}
	client, err := spool.ParseSession(b)
	if err != nil {
		return errors.New("cannot read " + spool.FileSession + ": " + err.Error())
	}
	if client.Number > s.client {
		s.client = client.Number
		s.log.Line("the client is number " + strconv.Itoa(client.Number) + ", at " + client.Address)
		s.tell(spool.SessionClient, string(b))
	}
	return nil
}

// sessionGone stands for the word of a session that is gone.
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
func (s *session) passStreams() {
	if s != nil {
		closeAll(s.streams)
		s.streams = nil
		s.unguard()
	}
}

// noteFiles returns where a procedure writes whose output has no file; nothing
// if nobody reads it.
func (s *session) noteFiles(order *starter.Order) []int {
	if s == nil || s.gone || s.deaf || order.Kind == starter.Method {
		return nil
	}
	if s.guard < 0 {
		// qrsh-session is the user's to kill, and root's procedure would end of that.
		fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(s.notes), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			s.log.Line("cannot keep the output of " + order.Name + ": " + err.Error())
			return nil
		}
		s.guard = fd
	}
	return []int{s.notes}
}

// unguard leaves the notes to qrsh-session alone: the job's loss is its own.
func (s *session) unguard() {
	if s.guard >= 0 {
		s.loop.Notes = -1
		unix.Close(s.guard)
		s.guard = -1
	}
}

// overhear reads what procedures say to nobody: they would wait for ever.
func overhear(notes int) {
	var b [4 << 10]byte
	for range 16 { // a full pipe
		if n, err := unix.Read(notes, b[:]); n < len(b) || err != nil {
			return
		}
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
			if err == nil && n > 0 && n < 64 {
				p.clientSends(unix.Signal(n))
			}
		case spool.SessionDeaf:
			p.session.deaf = true
			p.loop.Notes = p.session.guard
		case spool.SessionReady:
			p.on(event{what: phase.Connected})
		case spool.SessionStatus:
			p.session.heardStatus(rest)
			if p.state == phase.Hearing && p.session.told >= 0 {
				p.on(event{what: phase.Told})
			}
		case spool.SessionLost:
			p.on(event{what: phase.Lost, why: rest})
		case sessionGone:
			p.loop.Session = -1
			p.session.gone = true
			p.loop.Notes = p.session.guard
			why := sessionName + " has ended"
			if fail := p.session.failure(p.log); fail != nil {
				why = fail.Text
			}
			p.on(event{what: phase.Lost, why: why})
			return
		}
	}
}

// clientSends has the job get a signal, when it runs.
func (p *parent) clientSends(sig unix.Signal) {
	switch {
	case p.state == phase.Running:
		p.log.Line("the client sends signal " + control.Name(sig))
		p.job.killed = p.job.killed || sig == unix.SIGKILL
		p.job.deliver(sig)
	case sig == unix.SIGTTOU: // which has another meaning here
	case p.part < phase.Job, p.state == phase.Starting:
		p.log.Line("the client sends signal " + control.Name(sig) + ", ahead of the job")
		p.want(sig)
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
		p.log.Line("the client is lost: " + why)
		return // deserted and runs come back to it
	case s.keeps() && s.policy == spool.LostKeep:
		p.log.Line("the job goes on without its client: " + why)
		return
	case s.keeps():
		p.log.Line("the job is to be stopped, it has lost its client: " + why)
		err := p.dir.Write(spool.FileLost, []byte(why+"\n"))
		if err == nil {
			return
		}
		p.log.Line("cannot have it stopped, and end it: " + err.Error())
	}
	s.ending = true
	p.results.explain("job was ended: it has lost its client: " + why)
	p.job.deliver(unix.SIGHUP)
	p.job.deliver(unix.SIGCONT)
	p.timers.after(timerHangup, hangupTime)
}

// keeps reports whether a job may be there without its client.
func (s *session) keeps() bool {
	return !s.gone && (s.policy == spool.LostKeep || s.policy == spool.LostStop)
}

// deserted returns why a job is not to begin that has lost its client before.
func (s *session) deserted() error {
	if s != nil && s.missing != "" && !s.keeps() {
		return errors.New("job was not started: it has lost its client: " + s.missing)
	}
	return nil
}

// greet takes note of a client that has come back.
func (p *parent) greet() {
	if p.session.missing != "" {
		p.session.missing = ""
		p.log.Line("the client is there again")
		p.session.found()
	}
	if p.job.suspended && p.part == phase.Job {
		p.session.tellState(true)
	}
}

// found takes back that the job is to be stopped.
func (s *session) found() {
	if s != nil && s.policy == spool.LostStop {
		_ = unix.Unlink(spool.FileLost)
	}
}

// tellState tells the client whether the job is suspended.
func (s *session) tellState(suspended bool) {
	if s == nil {
		return
	}
	state := "run"
	if suspended {
		state = "stop"
	}
	s.tell(spool.SessionState, state)
}

// farewell tells the client how the job has ended. qrsh-session stays until it
// knows: as long as it is there, and if it is lost as long as it is waited for, which
// it is not if somebody has ended the job.
func (p *parent) farewell() {
	p.results.announce()
	p.session.passStreams()
	if fd := p.session.notes; fd >= 0 {
		unix.Close(fd) // that it ends with what was left running
	}
	status, why := 1, p.results.why
	if p.job.ran {
		status = spool.NewUsage(p.job.status, p.job.started, p.job.ended, &p.job.rusage).ExitStatus
	}
	why = strings.ReplaceAll(why, "\n", " ")
	if p.job.asked == unix.SIGKILL {
		p.session.tell(spool.SessionDeleted)
	}
	p.session.tell(spool.SessionExit, strconv.Itoa(status), why[:min(len(why), 1<<10)])
	p.log.Line("waiting for " + sessionName)
}

// kill ends qrsh-session without a word.
func (s *session) kill() {
	if s != nil && !s.child.Ended {
		s.log.Line("killing " + sessionName)
		_ = unix.Kill(-s.child.PID, unix.SIGKILL)
	}
}
