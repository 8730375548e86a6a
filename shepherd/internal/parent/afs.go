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

// planAFS reads what is to be done about the owner's AFS token, which execd has
// put into the directory: set_token_cmd sets it before all other parts, and the
// coshepherd renews it until the run is over.
func (p *parent) planAFS() error {
	if !starter.UsesAFS(p.config) {
		return nil
	}
	p.log.Line("beginning AFS setup")
	if err := p.shareKeyring(); err != nil {
		return err
	}
	var values [3]string
	for i, key := range []string{spool.KeyCoshepherd, spool.KeySetTokenCmd, spool.KeyJobOwner} {
		v, ok := p.config.Lookup(key)
		if !ok {
			return errIncompleteAFS
		}
		values[i] = v
	}
	if _, ok := p.config.Lookup(spool.KeyTokenExtend); !ok {
		return errIncompleteAFS
	}
	seconds, err := p.config.Int(spool.KeyTokenExtend)
	if err != nil {
		return err
	}
	user, err := command.Expand("$"+spool.KeyJobOwner, command.ForControl, p.config, p.vars) // quoted
	if err != nil {
		return err
	}
	if has, err := p.dir.Has(starter.TokenFile); err != nil || !has {
		return errors.New("can't read AFS token")
	}
	text := values[1] + " " + user + " " + strconv.Itoa(seconds)
	p.planned = append(p.planned, planned{procedure: &setToken, raw: text, command: command.Procedure{Argv: []string{text}}})
	p.renewer = []string{values[0], values[1], values[2], strconv.Itoa(seconds)}
	return nil
}

// shareKeyring gives all parts of the run one session keyring: the token that
// set_token_cmd sets is kept there, and is for the others. A stage that was started
// before has none of it.
func (p *parent) shareKeyring() error {
	note, err := starter.OwnKeyring()
	if note != "" {
		p.log.Line(note)
	}
	p.launcher.dismiss()
	return err
}

var errIncompleteAFS = errors.New("AFS with incomplete specification requested")

// tokenIsSet starts the coshepherd. Without one the job runs as long as its
// token lasts.
func (p *parent) tokenIsSet() {
	p.log.Line(p.order.Argv[0])
	p.log.Line("successfully set AFS token")
	stage, _, err := p.launcher.begin(procedureLeaf)
	if err != nil {
		p.log.Line("can't start coshepherd: " + err.Error())
		return
	}
	p.coshepherd = &companion{name: coshepherdName, stage: stage, child: p.loop.Watch(stage.PID, stage.PIDFD)}
	p.elders = true
	p.launcher.release(stage, starter.Order{Kind: starter.Coshepherd, Name: coshepherdName, State: spool.FailedAFS, Argv: p.renewer})
	p.log.Line("AFS setup done")
}

// coshepherdEnded notes that the coshepherd has ended, if it has.
func (p *parent) coshepherdEnded() {
	c := p.coshepherd
	if c == nil || !c.child.Ended {
		return
	}
	if fail := c.failure(); fail != nil {
		p.log.Line("can't start coshepherd: " + fail.Text)
	}
	p.log.Line("reaped " + coshepherdName)
	p.coshepherd = nil
}

// endCoshepherd ends the coshepherd with the run.
func (p *parent) endCoshepherd() {
	p.loop.Orphans()
	p.coshepherdEnded()
	c := p.coshepherd
	if c == nil {
		return
	}
	p.log.Line("sending SIGTERM to " + coshepherdName)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		_ = unix.Kill(-c.child.PID, sig)
		_ = unix.Kill(-c.child.PID, unix.SIGCONT)
		until := time.Now().Add(killAfter)
		for n := 0; n <= 0 && time.Now().Before(until); {
			ts := unix.NsecToTimespec(int64(max(time.Until(until), 0)))
			n, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(c.child.FD), Events: unix.POLLIN}}, &ts, nil)
		}
	}
	c.stage.Close()
	unix.Close(c.child.FD)
	_, _ = unix.Wait4(c.child.PID, nil, unix.WNOHANG, nil) // it may hang in a file system
	p.coshepherd = nil
}
