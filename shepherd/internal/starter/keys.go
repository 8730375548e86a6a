package starter

import (
	"paddock/shepherd/internal/command"
	"paddock/shepherd/internal/owner"
	"paddock/spool"
)

// read reads of config what a process of its kind needs, and nothing else: a key
// that is missing fails only what cannot do without it.
func (s *starter) read() *Failure {
	var (
		c    = s.config
		kind = s.order.Kind
		err  error
	)
	if kind == Job && len(s.order.Argv) == 0 {
		if s.request, err = readRequest(c, s.dir); err != nil {
			return s.failed(err)
		}
	}
	if s.limits, err = readLimits(c, s.table[:0]); err != nil {
		return s.failed(err)
	}
	held, err := s.join()
	if err != nil {
		return s.failed(err)
	}
	if held {
		s.limits = leaveVmem(c, s.limits)
	}
	if s.nice, err = c.Int(spool.KeyPriority); err != nil {
		return s.failed(err)
	}
	if s.streams, err = readStreams(c, kind); err != nil {
		return s.failed(err)
	}
	if kind == Job && s.request.Mode == modeStdin {
		s.streams.in.path, s.streams.script = s.request.Script, true
	}
	if v, ok := c.Lookup(spool.KeyAddGrpID); ok && v != "" && kind.ofJob() {
		if s.addGID, err = owner.ParseID(v); err != nil {
			return &Failure{Number: spool.FailedAddingGroup, Text: "cannot add group: " + err.Error()}
		}
	}
	return nil
}

// readRequest returns what config asks to be run.
func readRequest(c *spool.Config, dir spool.Dir) (Request, error) {
	var (
		r    Request
		errs [7]error
	)
	r.Script, errs[0] = c.String(spool.KeyScriptFile)
	r.Shell, errs[1] = c.String(spool.KeyShellPath)
	r.Mode, errs[2] = c.String(spool.KeyShellStartMode)
	r.Starter, errs[3] = c.String(spool.KeyStarterMethod)
	r.Binary, errs[4] = c.Bool(spool.KeyHandleAsBinary)
	r.NoShell, errs[5] = c.Bool(spool.KeyNoShell)
	r.LoginShell, errs[6] = c.Bool(spool.KeyUseLoginShell)
	if err := firstOf(errs[:]...); err != nil {
		return Request{}, err
	}
	if command.IsNone(r.Starter) {
		r.Starter = ""
	}
	if _, ours := c.Lookup(spool.KeySession); ours {
		r.Login = r.Script == spool.ScriptLogin
	}
	var err error
	r.Args, err = dir.Arguments(c)
	return r, err
}
