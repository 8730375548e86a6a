package starter

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// takeStreams gives an interactive job the standard streams that came with the
// order, or the terminal that takes the place of all three.
func (s *starter) takeStreams() error {
	switch len(s.files) {
	case 0:
		return nil
	case 1:
		if s.order.Kind.procedure() {
			s.takeNotes()
			return nil
		}
		for to := range 3 {
			s.moveTo(s.files[0], to)
		}
		// It leads a session of its own, which has no terminal yet.
		s.call(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0)
		s.or(s.state(), "cannot take the terminal: ")
		return nil
	case 3:
		for to, fd := range s.files {
			s.moveTo(fd, to)
		}
		return nil
	}
	return errBadOrder
}

// takeNotes has a procedure around an interactive job write to its client what
// has no file.
func (s *starter) takeNotes() {
	v, _ := s.config.Lookup(spool.KeySessionNotes)
	noted := strings.Fields(v)
	out, diag := slices.Contains(noted, spool.NotedStdout), slices.Contains(noted, spool.NotedStderr)
	if s.streams.merge {
		diag = out
	}
	for to, noted := range []bool{1: out, 2: diag} {
		if noted {
			s.moveTo(s.files[0], to)
		}
	}
}

// moveTo makes a descriptor another one, which stays open over exec.
func (s *starter) moveTo(fd uintptr, to int) {
	s.call(unix.SYS_DUP3, fd, uintptr(to), 0)
	s.or(s.state(), "cannot place a stream: ")
}

// becomeSession turns into what carries the job's streams to its client: as the
// owner, whose job it is, and beside it, without its limits and its environment.
func (s *starter) becomeSession() *Failure {
	if err := s.who(); err != nil {
		return s.failed(err)
	}
	if err := s.mayRun(); err != nil {
		return s.failed(err)
	}
	s.call(unix.SYS_UMASK, 0o022)
	if fail := s.asOwner(); fail != nil {
		return fail
	}
	s.streams = streams{in: nowhere, out: nowhere, err: nowhere, cwd: "/"}
	s.open(false)
	for i, fd := range s.files {
		// First out of the way of the others.
		s.call(unix.SYS_FCNTL, fd, unix.F_DUPFD_CLOEXEC, uintptr(spool.SessionSocket+len(s.files)))
		s.or(s.state(), "cannot keep a stream: ")
		s.files[i] = s.result()
	}
	for i, fd := range s.files {
		s.moveTo(fd, spool.SessionSocket+i)
	}
	return s.execFromNothing()
}
