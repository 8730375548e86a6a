package parent

import (
	"errors"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/command"
	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/owner"
	"paddock/shepherd/internal/phase"
	"paddock/shepherd/internal/starter"
	"paddock/shepherd/internal/trace"
	"paddock/spool"
)

// prepare reads and checks the directory and writes everything that must be
// there before the job starts. It returns the event that this makes. failed is
// what went wrong before.
func (p *parent) prepare(failed error) event {
	refuse := func(number int, err error) event {
		return event{what: phase.Refused, fail: &starter.Failure{Number: number, Text: err.Error()}}
	}
	if err := p.results.open(); err != nil {
		return refuse(spool.FailedBeforeProlog, err)
	}
	p.log.Line("shepherd called with uid = ", strconv.Itoa(unix.Getuid()), ", euid = ", strconv.Itoa(unix.Geteuid()))
	if failed != nil {
		return refuse(spool.FailedBeforeProlog, failed)
	}
	var err error
	p.config, err = p.dir.Config()
	if err != nil {
		return refuse(blameForConfig(p.dir, err), err)
	}
	p.launcher.config = p.config
	if v, _ := p.config.Lookup(spool.KeyTrace); v == spool.TraceDetail {
		p.log.SetDetail()
	}
	p.loop.Note = func(pid int, ws syscall.WaitStatus, ru *syscall.Rusage) { detailUsage(p.log, pid, ws, ru) }
	if p.foreign = starter.Foreign(p.config); p.foreign {
		if err := p.results.giveTo(p.config); err != nil {
			return refuse(spool.FailedBeforeProlog, err)
		}
	}
	p.loop.Memory = p.launcher.group.useAll(p.config)
	p.log.Line("starting up ", p.version)
	pid := strconv.Itoa(unix.Getpid())
	if err := unix.Setpgid(0, 0); err == nil {
		p.log.Line("setpgid(", pid, ", ", pid, ") returned 0")
	} else { // the leader of a session stays what it is
		p.log.Line("setpgid(", pid, ", ", pid, ") failed: ", err.Error())
	}
	_, p.task = p.config.Lookup(spool.KeyPETaskID)
	_, p.interactive = p.config.Lookup(spool.KeySession)
	_, client := p.config.Lookup(spool.KeyQrshControlPort)
	p.results.announced = p.task || client
	if u := unsupported(p.config, p.noStock); u != nil {
		return event{what: phase.Refused, fail: u}
	}
	traceUnheeded(p.log, p.config)
	if err = p.readLease(); errors.Is(err, spool.ErrSyntax) {
		return refuse(spool.FailedReadConfig, err)
	}
	if err == nil {
		err = p.settings.read(p.config)
	}
	if err == nil {
		err = p.results.write(spool.FilePID, unix.Getpid())
	}
	if err != nil {
		return refuse(spool.FailedBeforeProlog, err)
	}
	if starter.UsesAFS(p.config) {
		token, err := p.coshepherd.plan(p.dir, p.config)
		if err != nil {
			return refuse(spool.FailedAFS, err)
		}
		p.planned = append(p.planned, token)
	}
	p.inbox = control.Inbox{Dir: p.dir}
	return event{what: phase.Ready}
}

// blameForConfig returns the state for a config that cannot be read. A key that
// has two values, or a line that is none, can only come from a newline in an
// argument if a foreign execd wrote it: that job's fault, and by no means the
// host's.
func blameForConfig(dir spool.Dir, err error) int {
	if _, ok := errors.AsType[*spool.DuplicateError](err); ok {
		return spool.FailedOpeningStream
	}
	if !errors.Is(err, spool.ErrSyntax) {
		return spool.FailedBeforeProlog
	}
	if b, err := dir.Read(spool.FileConfig); err == nil && !strings.HasPrefix(string(b), spool.KeyFormat) {
		return spool.FailedOpeningStream
	}
	return spool.FailedReadConfig
}

// groupIn returns the additional group id, 0 if there is none.
func groupIn(c *spool.Config) (int, error) {
	v, ok := c.Lookup(spool.KeyAddGrpID)
	if !ok || v == "" {
		return 0, nil
	}
	n, err := owner.ParseID(v)
	if err != nil {
		return 0, errors.New("cannot use " + spool.KeyAddGrpID + " " + strconv.Quote(v))
	}
	return n, nil
}

// mark returns what every process of the job has in its environment: the
// directory, by which it is known where it has no group of its own.
func mark(dir spool.Dir) string {
	env, err := dir.Environment()
	if err != nil {
		return ""
	}
	for _, v := range env {
		if strings.HasPrefix(v, starter.Mark) {
			return v
		}
	}
	return ""
}

// unsupported returns why a job cannot be run as config wants it, nil if it
// can. What is asked for and not done would be worse than a job that does not
// start. Keys that the queue sets fail with the queue's state, those of the job
// with the job's.
func unsupported(c *spool.Config, noStock string) *starter.Failure {
	for _, k := range unsupportedKeys {
		v, ok := c.Lookup(k.key)
		if !ok || !k.asks(v) {
			continue
		}
		if _, ours := c.Lookup(spool.KeySession); ours && k.key == spool.KeyScriptFile {
			continue
		}
		text := "cannot run the job: this shepherd does not support " + k.key + "=" + v
		if k.key == spool.KeyScriptFile && noStock != "" {
			text += ", and Grid Engine's own cannot be started: " + noStock
		}
		return &starter.Failure{Number: k.number, Text: text}
	}
	if v, ok := c.Lookup(spool.KeyFormat); ok && v != strconv.Itoa(spool.Format) {
		return &starter.Failure{
			Number: spool.FailedReadConfig,
			Text:   "cannot run the job: its directory has format " + v + ", this shepherd knows " + strconv.Itoa(spool.Format),
		}
	}
	return nil
}

var unsupportedKeys = []struct {
	key    string
	number int
	asks   func(string) bool
}{
	{spool.KeyScriptFile, spool.FailedApplication, interactive},
	{spool.KeyDevicesAllow, spool.FailedApplication, func(v string) bool { return !command.IsNone(v) }},
}

// traceUnheeded traces what config asks for that is done otherwise or means nothing
// to us. A job without its systemd scope is limited and killed by the shepherd
// all the same; what it used is in usage.
func traceUnheeded(log *trace.Log, c *spool.Config) {
	if v, _ := c.Lookup(spool.KeyEnableSystemd); v != "" && v != "0" {
		scope, _ := c.Lookup(spool.KeySystemdScope)
		log.Line("the job runs without a systemd scope: this shepherd does not make " + strconv.Quote(scope) + " (" + spool.KeyEnableSystemd + ")")
	}
	if unknown := c.Unknown(); len(unknown) > 0 {
		log.Line("keys in config that are not known here: " + strings.Join(unknown, " "))
	}
}

func interactive(v string) bool {
	for _, kind := range []string{"QRSH", "QLOGIN", "QRLOGIN", "INTERACTIVE"} {
		if strings.EqualFold(v, kind) {
			return true
		}
	}
	return false
}
