package parent

import (
	"cmp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/command"
	"paddock/shepherd/internal/phase"
	"paddock/shepherd/internal/starter"
	"paddock/spool"
)

// settings are what config wants of the run. They are read before anything is
// started, since config is given up while the job runs.
type settings struct {
	foreign     bool // the directory is not our execd's
	task        bool // of a parallel job, with no procedures of its own
	interactive bool // its streams are a client's
	nothing     bool // there is no job (script_file none)
	parallel    bool // there is a parallel environment

	planned []planned
	limit   time.Duration // of a procedure's time, 0 for none

	methods    [methodCount]command.Method
	raw        [methodCount]string // their commands as config has them
	notice     command.Notification
	ckpt       command.Checkpoint
	soft, hard time.Duration // the job's own limits of time, 0 for none
	endSignal  unix.Signal   // by which execd asks the job to end

	// The job's exit codes 99 and 100 are ordinary ones.
	forbidReschedule, forbidApperror bool
}

// read reads what is to be done around the job, beside it and to it.
func (s *settings) read(c *spool.Config) error {
	s.forbidReschedule = flagIn(c, spool.KeyForbidReschedule)
	s.forbidApperror = flagIn(c, spool.KeyForbidApperror)
	script, err := c.String(spool.KeyScriptFile)
	if err != nil {
		return err
	}
	s.nothing = strings.EqualFold(script, "none")
	if err := s.readControl(c); err != nil {
		return err
	}
	return s.readProcedures(c)
}

// readControl reads what is to be done to suspend, resume, end, warn and
// checkpoint the job.
func (s *settings) readControl(c *spool.Config) (err error) {
	for i, key := range methodKeys {
		if s.methods[i], err = command.ReadMethod(key, c); err != nil {
			return err
		}
	}
	if s.notice, err = command.ReadNotification(c); err != nil {
		return err
	}
	if s.ckpt, err = command.ReadCheckpoint(c); err != nil {
		return err
	}
	end, err1 := numberIn(c, spool.KeyEndSignal, int(unix.SIGTERM))
	soft, err2 := numberIn(c, spool.KeySRT, 0)
	hard, err3 := numberIn(c, spool.KeyHRT, 0)
	s.endSignal = unix.Signal(end)
	s.soft, s.hard = time.Duration(soft)*time.Second, time.Duration(hard)*time.Second
	return cmp.Or(err1, err2, err3)
}

// numberIn returns a number that need not be there.
func numberIn(c *spool.Config, key string, otherwise int) (int, error) {
	if _, ok := c.Lookup(key); !ok {
		return otherwise, nil
	}
	return c.Int(key)
}

// The control methods.
const (
	suspendMethod = iota
	resumeMethod
	terminateMethod
	methodCount
)

var methodKeys = [methodCount]string{spool.KeySuspendMethod, spool.KeyResumeMethod, spool.KeyTerminateMethod}

// procedure is a part that is a command of the administrator's.
type procedure struct {
	part  phase.Part
	kind  starter.Kind
	key   string
	scope command.Scope
	// What exit_status says if it cannot be started, and if it fails.
	before, in int
}

var procedures = []procedure{
	{phase.Prolog, starter.Prolog, spool.KeyProlog, command.ForProcedure, spool.FailedBeforeProlog, spool.FailedProlog},
	{phase.PEStart, starter.PEStart, spool.KeyPEStart, command.ForPE, spool.FailedBeforePEStart, spool.FailedPEStart},
	{phase.PEStop, starter.PEStop, spool.KeyPEStop, command.ForPE, spool.FailedBeforePEStop, spool.FailedPEStop},
	{phase.Epilog, starter.Epilog, spool.KeyEpilog, command.ForProcedure, spool.FailedBeforeEpilog, spool.FailedEpilog},
}

// planned is a procedure of this run, read before anything is started: what is
// wrong with it is told when its time comes, and config may be gone by then.
type planned struct {
	*procedure
	raw     string
	command command.Procedure
	err     error
}

// readProcedures reads the procedures.
func (s *settings) readProcedures(c *spool.Config) error {
	seconds, err := c.Int(spool.KeyScriptTimeout)
	if err != nil {
		return err
	}
	s.limit = time.Duration(seconds) * time.Second
	pe, err := c.String(spool.KeyPE)
	if err != nil {
		return err
	}
	s.parallel = !command.IsNone(pe)
	for i := range procedures {
		proc := &procedures[i]
		if s.task || proc.scope == command.ForPE && !s.parallel {
			continue
		}
		raw, err := c.String(proc.key)
		if err != nil {
			return err
		}
		text, ok, err := command.ReadProcedure(proc.key, proc.scope, c)
		if ok || err != nil {
			s.planned = append(s.planned, planned{proc, raw, text, err})
		}
	}
	return nil
}

// flagIn reports whether a key is there and 1.
func flagIn(c *spool.Config, key string) bool {
	v, _ := c.Lookup(key)
	return v == "1"
}
