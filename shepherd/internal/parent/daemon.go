package parent

import (
	"errors"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// statusTime is how long the client has to say how its program has ended, once
// the daemon has.
const statusTime = 30 * time.Second

// isDaemon reports whether a job is a daemon, like sshd.
func isDaemon(c *spool.Config) bool {
	_, ok := c.Lookup(spool.KeySessionDaemon)
	return ok
}

// daemonWords are qrsh-session's words for such a job.
func daemonWords(c *spool.Config) []string {
	host, _ := c.Lookup(spool.KeyHost)
	return []string{spool.SessionWithDaemon, host}
}

// openDaemon makes the socket between the job's starter stage and qrsh-session.
func openDaemon() (mine, far []int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, errors.New("cannot make a socket for the daemon: " + err.Error())
	}
	return pair[:1], pair[1:], nil
}

// heardStatus takes how has ended what the client wanted. It is the word of the
// owner about himself, and nothing but a code.
func (s *session) heardStatus(text string) {
	n, err := strconv.ParseUint(text, 10, 16)
	if ws := syscall.WaitStatus(n); err == nil && (ws.Exited() || ws.Signaled()) {
		s.told = int(n)
	}
}

// statusOf returns how a job has ended. A daemon that ends by itself says nothing
// of what it was wanted for: the client, or who was started in its name, does.
func (p *parent) statusOf(ws syscall.WaitStatus) syscall.WaitStatus {
	s := p.session
	if s == nil || !s.daemon || !ws.Exited() || !p.execing || p.failed {
		return ws
	}
	for until := time.Now().Add(statusTime); p.hearsStatus(); {
		left := time.Until(until)
		if left <= 0 {
			break
		}
		ts := unix.NsecToTimespec(int64(left))
		fds := []unix.PollFd{{Fd: int32(s.socket), Events: unix.POLLIN}}
		_, _ = unix.Ppoll(fds, &ts, nil)
	}
	if s.told < 0 {
		p.log.Line("nobody says how has ended what the daemon was wanted for")
		return ws
	}
	p.log.Line("the daemon has ended with " + strconv.Itoa(ws.ExitStatus()) + ", what it was wanted for with wait status " + strconv.Itoa(s.told))
	return syscall.WaitStatus(s.told)
}

// hearsStatus takes what qrsh-session has said, and reports whether it may still
// say how has ended what the daemon was wanted for.
func (p *parent) hearsStatus() bool {
	s := p.session
	for {
		word, rest := s.next()
		switch word {
		case "":
			return s.told < 0 && s.missing == "" && p.loop.Session >= 0
		case spool.SessionStatus:
			s.heardStatus(rest)
		case spool.SessionLost:
			s.missing = rest
		case sessionGone:
			p.loop.Session, s.gone = -1, true
			return false
		}
	}
}
