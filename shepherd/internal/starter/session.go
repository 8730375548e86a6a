package starter

import (
	"errors"
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
			return s.takeNotes()
		}
		for to := range 3 {
			if err := moveTo(s.files[0], to); err != nil {
				return err
			}
		}
		// The starter leads a session of its own, which has no terminal yet.
		if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
			return failedTo("take the terminal", err)
		}
		return nil
	case 3:
		for to, fd := range s.files {
			if err := moveTo(fd, to); err != nil {
				return err
			}
		}
		return nil
	}
	return errBadOrder
}

// takeNotes has a procedure around an interactive job write to its client what
// has no file.
func (s *starter) takeNotes() error {
	v, _ := s.config.Lookup(spool.KeySessionNotes)
	noted := strings.Fields(v)
	out, diag := slices.Contains(noted, spool.NotedStdout), slices.Contains(noted, spool.NotedStderr)
	if s.streams.merge {
		diag = out
	}
	for to, noted := range []bool{1: out, 2: diag} {
		if !noted {
			continue
		}
		if err := moveTo(s.files[0], to); err != nil {
			return err
		}
	}
	return nil
}

// moveTo makes a descriptor another one, which stays open over exec.
func moveTo(fd, to int) error {
	if err := ignoringEINTR(func() error { return unix.Dup3(fd, to, 0) }); err != nil {
		return failedTo("place a stream", err)
	}
	return nil
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
	unix.Umask(0o022)
	if fail := s.asOwner(); fail != nil {
		return fail
	}
	s.streams = streams{in: nowhere, out: nowhere, err: nowhere, cwd: "/"}
	if fail := s.streams.open(s.say); fail != nil {
		return s.failed(errors.New(fail.Text))
	}
	for i, fd := range s.files {
		// First out of the way of the others.
		high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, spool.SessionSocket+len(s.files))
		if err != nil {
			return s.failed(failedTo("keep a stream", err))
		}
		s.files[i] = high
	}
	for i, fd := range s.files {
		if err := moveTo(fd, spool.SessionSocket+i); err != nil {
			return s.failed(err)
		}
	}
	return s.execFromNothing()
}
