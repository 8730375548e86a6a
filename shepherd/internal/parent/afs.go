package parent

import (
	"errors"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/command"
	"paddock/shepherd/internal/phase"
	"paddock/shepherd/internal/starter"
	"paddock/spool"
)

// setToken is the part that runs set_token_cmd, which is not another thing than
// a procedure but for whom it runs as and what it reads.
var setToken = procedure{
	part: phase.Token, kind: starter.Token, key: spool.KeySetTokenCmd,
	before: spool.FailedAFS, in: spool.FailedAFS,
}

// coshepherdName is what traces call it, as Grid Engine's do.
const coshepherdName = "sge_coshepherd"

// coshepherd is the program that renews the owner's AFS token until the run is over.
// execd has put the token into the directory, and set_token_cmd sets it before all
// other parts.
type coshepherd struct {
	launcher *launcher
	argv     []string
	runs     *companion // nil if there is none
}

// plan reads what is to be done about the token, and returns the part that sets it.
func (s *coshepherd) plan(dir spool.Dir, c *spool.Config) (planned, error) {
	s.launcher.log.Line("beginning AFS setup")
	if err := s.shareKeyring(); err != nil {
		return planned{}, err
	}
	var values [3]string
	for i, key := range []string{spool.KeyCoshepherd, spool.KeySetTokenCmd, spool.KeyJobOwner} {
		v, ok := c.Lookup(key)
		if !ok {
			return planned{}, errIncompleteAFS
		}
		values[i] = v
	}
	if _, ok := c.Lookup(spool.KeyTokenExtend); !ok {
		return planned{}, errIncompleteAFS
	}
	seconds, err := c.Int(spool.KeyTokenExtend)
	if err != nil {
		return planned{}, err
	}
	user, err := command.Expand("$"+spool.KeyJobOwner, command.ForControl, c, "") // quoted
	if err != nil {
		return planned{}, err
	}
	if has, err := dir.Has(starter.TokenFile); err != nil || !has {
		return planned{}, errors.New("can't read AFS token")
	}
	s.argv = []string{values[0], values[1], values[2], strconv.Itoa(seconds)}
	text := values[1] + " " + user + " " + strconv.Itoa(seconds)
	return planned{procedure: &setToken, raw: text, command: command.Procedure{Argv: []string{text}}}, nil
}

// shareKeyring gives all parts of the run one session keyring: the token that
// set_token_cmd sets is kept there, and is for the others. A starter that was started
// before has none of it.
func (s *coshepherd) shareKeyring() error {
	note, err := starter.OwnKeyring()
	if note != "" {
		s.launcher.log.Line(note)
	}
	s.launcher.dismiss()
	s.launcher.keyring = true
	return err
}

var errIncompleteAFS = errors.New("AFS with incomplete specification requested")

// start starts it once the token is set, by the command that is told. Without a
// coshepherd the job runs as long as its token lasts.
func (s *coshepherd) start(command string) {
	log := s.launcher.log
	log.Line(command)
	log.Line("successfully set AFS token")
	c, err := s.launcher.companion(coshepherdName)
	if err != nil {
		log.Line("can't start coshepherd: " + err.Error())
		return
	}
	s.runs = c
	s.launcher.release(c.starter, starter.Order{Kind: starter.Coshepherd, Name: coshepherdName, State: spool.FailedAFS, Argv: s.argv})
	log.Line("AFS setup done")
}

// ended notes that it has ended, if it has.
func (s *coshepherd) ended() {
	c := s.runs
	if c == nil || !c.child.Ended {
		return
	}
	if fail := c.failure(s.launcher.log); fail != nil {
		s.launcher.log.Line("can't start coshepherd: " + fail.Text)
	}
	s.launcher.log.Line("reaped " + coshepherdName)
	s.runs = nil
}

// end ends it with the run.
func (s *coshepherd) end() {
	s.launcher.loop.Orphans()
	s.ended()
	c := s.runs
	if c == nil {
		return
	}
	s.launcher.log.Line("sending SIGTERM to " + coshepherdName)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		_ = unix.Kill(-c.child.PID, sig)
		_ = unix.Kill(-c.child.PID, unix.SIGCONT)
		until := time.Now().Add(killAfter)
		for n := 0; n <= 0 && time.Now().Before(until); {
			ts := unix.NsecToTimespec(int64(max(time.Until(until), 0)))
			n, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(c.child.FD), Events: unix.POLLIN}}, &ts, nil)
		}
	}
	c.starter.Close()
	unix.Close(c.child.FD)
	_, _ = unix.Wait4(c.child.PID, nil, unix.WNOHANG, nil) // it may hang in a file system
	s.runs = nil
}
