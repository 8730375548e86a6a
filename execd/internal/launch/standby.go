package launch

import (
	"os"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// standby is a shepherd that waits for its job, see spool.Assignment.
type standby struct {
	pid, pidfd int
	socket     int // nonblocking; the shepherd closes its end when its run has settled
	path       string
	program    unix.Stat_t // the file of path when it was started
}

// newStandby starts one, and returns nil if that cannot be done: then the next job waits
// for the start of its shepherd, and hears of what is wrong.
func (f *forker) newStandby(path string) *standby {
	s := &standby{path: path}
	if unix.Stat(path, &s.program) != nil {
		return nil
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	far := os.NewFile(uintptr(ends[1]), "standby")
	defer far.Close()
	s.socket = ends[0]
	s.pid, s.pidfd, err = f.fork(far, "/", path, spool.StandbyArgs()...)
	if err == nil {
		err = unix.SetNonblock(s.socket, true)
	}
	if err != nil {
		unix.Close(s.socket)
		return nil
	}
	return s
}

// assign gives the shepherd on standby a job, and reports whether it is done there.
func (f *forker) assign(job *fork, stop <-chan struct{}) bool {
	s := f.standby
	if s == nil || !job.own {
		return false
	}
	a := spool.Assignment{Name: job.name, Dir: job.dir}
	if !s.isCurrent() || unix.Sendmsg(s.socket, a.Append(nil), unix.UnixRights(int(job.lock.Fd())), nil, unix.MSG_NOSIGNAL) != nil {
		f.dismiss() // it may be gone
		return false
	}
	job.pid, job.pidfd = s.pid, s.pidfd
	f.standby, f.pending = nil, true
	go func() {
		socket := os.NewFile(uintptr(s.socket), "standby")
		_, _ = socket.Read(make([]byte, 1))
		socket.Close()
		select {
		case f.settled <- struct{}{}:
		case <-stop:
		}
	}()
	return true
}

// isCurrent reports whether it is of the program that is installed.
func (s *standby) isCurrent() bool {
	var now unix.Stat_t
	return unix.Stat(s.path, &now) == nil && now.Dev == s.program.Dev && now.Ino == s.program.Ino && now.Ctim == s.program.Ctim
}

// dismiss ends the shepherd on standby, which has nothing to lose.
func (f *forker) dismiss() {
	s := f.standby
	if s == nil {
		return
	}
	f.standby = nil
	unix.Close(s.socket)
	_ = unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0)
	reap(s.pidfd, 0)
	unix.Close(s.pidfd)
}
