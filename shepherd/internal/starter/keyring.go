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
const (
	keyringWait  = 10 * time.Second
	keyringPause = 50 * time.Millisecond
)

const (
	noKeyring   = "no session keyring of its own: "
	haveKeyring = "have a session keyring of its own"
)

func isScarce(err error) bool { return errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOMEM) }

func ownKeyring(wait time.Duration, join func() error) (note string, err error) {
	for until := time.Now().Add(wait); ; time.Sleep(keyringPause) {
		err := join()
		switch {
		case err == nil:
			return "", nil
		case !isScarce(err):
			return noKeyring + errnoText(err), nil
		case time.Now().After(until):
			return "", failedTo(haveKeyring, err)
		}
	}
}

// keyring says what came of the keyring that the process was to have, and reports
// whether it is to be tried again. In a run with an AFS token the shepherd has one
// for all of its parts, since the token is kept in it.
func (s *starter) keyring() (scarce bool) {
	if s.process.keys == 0 {
		return false
	}
	errno := unix.Errno(s.value(s.process.keys))
	if errno == 0 || isScarce(errno) {
		return errno != 0
	}
	s.line(noKeyring + errnoText(errno))
	return false
}

// retryKeyring tries again, as ownKeyring does.
func (s *starter) retryKeyring() {
	left, pause := s.reg(), store(s.plan, unix.NsecToTimespec(int64(keyringPause)))
	s.set(left, uintptr(keyringWait/keyringPause))
	again := s.steps
	s.barrier = again
	s.call(unix.SYS_NANOSLEEP, pause, 0)
	s.call(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING)
	errno := s.errno()
	s.either(errno, 0, func() {}, func() {
		s.add(doLoop, uintptr(again))
		s.last().to = uint8(left &^ regTag)
		s.add(doFail, errno, 0)
		s.or(s.noKeys(nil).Number, "cannot "+haveKeyring+": ")
	})
}

// noKeys is the failure of a process for which there was no keyring. Before the job
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
