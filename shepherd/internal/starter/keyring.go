package starter

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// OwnKeyring gives this thread, and what it starts or becomes, a session keyring
// that nobody else has and that leads to no other. Such a keyring is inherited like
// a descriptor, and a process that has it may use every key that is found from it,
// whosever the key is: with that of execd, or of whoever started it, all jobs of the host
// would share their owners' tickets and pass phrases, and root's. Call it before
// rights are given up: the keyring is root's then and counted with root's, so that
// no user runs out of keys by having jobs, and a process that has it may use it like its
// own.
// An ordinary user's processes stay in the session in which he started execd.
//
// The note says that the kernel, or a sandbox, has no keyrings for us: then nothing
// is shared. The error is that of a kernel which is short of keys, and stays so.
func OwnKeyring() (note string, err error) {
	if unix.Geteuid() != 0 {
		return "", nil
	}
	return ownKeyring(keyringWait, func() error {
		// Without a name, which would be that of a keyring to be shared.
		return raw(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	})
}

// keyringWait is how long the kernel may be short of keys. Those of what has ended
// are given back a little later.
const keyringWait = 10 * time.Second

func ownKeyring(wait time.Duration, join func() error) (note string, err error) {
	for until := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		err := join()
		switch {
		case err == nil:
			return "", nil
		case !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOMEM):
			return "no session keyring of its own: " + errnoText(err), nil
		case time.Now().After(until):
			return "", failedTo("have a session keyring of its own", err)
		}
	}
}

// keyring gives the starter a keyring of its own. In a run with an AFS token the
// shepherd has one for all of its parts, since the token is kept in it.
func (s *starter) keyring() error {
	if s.config != nil && UsesAFS(s.config) {
		return nil
	}
	note, err := OwnKeyring()
	if note != "" {
		s.log.Line(note)
	}
	return err
}

// noKeys is the failure of a starter for which there was no keyring. Before the job
// nothing was begun and nobody is to blame: it is tried again.
func (s *starter) noKeys(err error) *Failure {
	f := s.failed(err)
	if k := s.order.Kind; k == Job || k == Prolog || k == PEStart {
		f.Number = spool.FailedRescheduling
	}
	return f
}

// UsesAFS reports whether config wants an AFS token to be set for the run.
func UsesAFS(c *spool.Config) bool {
	v, _ := c.Lookup(spool.KeyUseAFS)
	return v != "" && v != "0"
}
