package parent

import (
	"errors"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/phase"
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

// openDaemon makes the socket between the job's starter and qrsh-session.
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

// hears reports whether it is still to be heard how the job has ended. A daemon
// that ends by itself says nothing of what it was wanted for: the client, or who
// was started in its name, does.
func (s *session) hears() bool {
	return s != nil && s.daemon && s.told < 0 && s.missing == "" && !s.gone
}

// judge takes for the end of a daemon that has ended by itself that of what it was
// wanted for, as far as that was heard when the wait for it ended.
func (s *session) judge(own syscall.WaitStatus, why phase.Event) syscall.WaitStatus {
	switch {
	case s.told >= 0:
		s.log.Line("the daemon has ended with " + strconv.Itoa(own.ExitStatus()) + ", what it was wanted for with wait status " + strconv.Itoa(s.told))
		return syscall.WaitStatus(s.told)
	case why == phase.Late:
		s.log.Line("nobody has said in " + seconds(statusTime) + " how has ended what the daemon was wanted for")
	default:
		s.log.Line("nobody says how has ended what the daemon was wanted for")
	}
	return own
}
