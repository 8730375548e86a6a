// Package starter is the second stage of the shepherd, its own binary run
// again: it sets what Go cannot set from outside (limits, umask, nice value,
// signal mask), becomes the job's user for good, opens the job's streams as that
// user and turns into the job. Only the shepherd's main package imports it.
package starter

import (
	"errors"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/owner"
	"paddock/shepherd/internal/trace"
	"paddock/spool"
)

// stage is what the second stage knows.
type stage struct {
	order  Order
	dir    spool.Dir
	config *spool.Config
	env    environment
	ids    IDs
	root   bool // we may change ids
	addGID int  // additional group, 0 for none

	script  string
	request Request
	streams streams
	limits  []limit
	nice    int

	log *trace.Log
}

// Main is the second stage; it never returns. Call it on a locked thread or in
// an init function, with the job directory as working directory. Whatever it
// has to say goes to the shepherd by socket: the results are not its to write.
func Main(inherited bool) {
	s := &stage{dir: spool.OpenDir("."), log: trace.New(-1), root: unix.Geteuid() == 0}
	defer func() {
		if p := recover(); p != nil {
			s.die(&Failure{Number: spool.FailedBeforeStart, Text: "internal error: starter stage: " + panicText(p)})
		}
	}()
	CloseOnExec()
	_ = SetName(Arg0)
	// All that needs no leave is done before it comes: the shepherd is busy
	// with its own files meanwhile, on another processor.
	fail := s.read(inherited)
	order, err := mayGo()
	if order == nil && err == nil {
		exit(0)
	}
	if fd, err := unix.Open(spool.FileTrace, unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0); err == nil {
		s.log.SetFile(fd)
	}
	if err != nil {
		s.die(beforeJob(err))
	}
	s.order = *order
	s.introduce()
	if fail != nil {
		s.die(fail)
	}
	if fail := s.become(); fail != nil {
		s.die(fail)
	}
	exit(spool.FailedBeforeStart) // become does not return without a reason
}

// mayGo waits for the shepherd's leave. Without one (nil) it was refused, or the
// shepherd is dead.
func mayGo() (*Order, error) {
	b := &ordered
	var n int
	err := ignoringEINTR(func() (err error) {
		n, err = unix.Read(fdReport, b[:])
		return err
	})
	if err != nil || n == 0 {
		return nil, nil
	}
	o, err := parseOrder(b[:n])
	return &o, err
}

// CloseOnExec marks every descriptor from 3 on, so that nothing of the shepherd's
// or of who started it is left open in what is started from here.
func CloseOnExec() {
	if unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	var lim unix.Rlimit // before Linux 5.11
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		for fd := 3; fd < int(min(lim.Max, 1<<16)); fd++ {
			unix.CloseOnExec(fd)
		}
	}
}

// SetName sets the name by which ps shows this process; what was started as
// /proc/self/exe is called exe otherwise.
func SetName(name string) error {
	var b [16]byte
	copy(b[:15], name)
	return unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
}

// introduce traces who we are, as the sons of Grid Engine's shepherd do.
func (s *stage) introduce() {
	pid := unix.Getpid()
	pgrp, _ := unix.Getpgid(0)
	sid, _ := unix.Getsid(0)
	old, _ := unix.Getpgid(unix.Getppid())
	s.log.Line("child: starting son(job, " + s.script + ", 0, 4096);")
	s.log.Line("pid=" + strconv.Itoa(pid) + " pgrp=" + strconv.Itoa(pgrp) + " sid=" + strconv.Itoa(sid) +
		" old pgrp=" + strconv.Itoa(old) + " getlogin()=<no login set>")
}

// read reads the directory.
func (s *stage) read(inherited bool) *Failure {
	var err error
	if s.config, err = s.dir.Config(); err != nil {
		return beforeJob(err)
	}
	c := s.config
	if s.script, err = c.String(spool.KeyScriptFile); err != nil {
		return beforeJob(err)
	}
	if s.request, err = readRequest(c, s.dir); err != nil {
		return beforeJob(err)
	}
	if s.limits, err = readLimits(c); err != nil {
		return beforeJob(err)
	}
	if s.nice, err = c.Int(spool.KeyPriority); err != nil {
		return beforeJob(err)
	}
	if s.streams, err = readStreams(c, s.request.Mode, s.script); err != nil {
		return beforeJob(err)
	}
	if v, ok := c.Lookup(spool.KeyAddGrpID); ok && v != "" {
		if s.addGID, err = parseID(v); err != nil {
			return &Failure{Number: spool.FailedAddingGroup, Text: "cannot add group: " + err.Error()}
		}
	}
	list, err := s.dir.Environment()
	if err != nil {
		return beforeJob(err)
	}
	var base []string
	if v, ok := c.Lookup(spool.KeyInheritEnv); inherited && (!ok || v != "0") {
		if base, err = readInherited(fdInherited); err != nil {
			return beforeJob(err)
		}
	}
	s.env = newEnvironment(base, list)
	return nil
}

// readInherited reads the environment that was kept for the job.
func readInherited(fd int) ([]string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.New("cannot read the inherited environment: " + errnoText(err))
	}
	b := make([]byte, st.Size)
	if _, err := unix.Pread(fd, b, 0); err != nil {
		return nil, errors.New("cannot read the inherited environment: " + errnoText(err))
	}
	return spool.ParseArgs(b)
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
	if IsNone(r.Starter) {
		r.Starter = ""
	}
	var err error
	r.Args, err = dir.Arguments(c)
	return r, err
}

// IsNone reports whether a value means that nothing is set.
func IsNone(v string) bool { return v == "" || strings.EqualFold(v, "none") }

// become turns into the job; it returns only with a failure.
func (s *stage) become() *Failure {
	var err error
	name, _ := s.config.Lookup(spool.KeyJobOwner)
	s.log.Line("reading passwd information for user '" + name + "'")
	if s.ids, err = Owner(s.config, owner.Places{}); err != nil {
		return beforeJob(err)
	}
	if err := s.mayRun(); err != nil {
		return beforeJob(err)
	}
	if v, _ := s.config.Lookup(spool.KeyWriteOSJobID); v == "1" {
		s.log.Line("setosjobid: uid = " + strconv.Itoa(unix.Getuid()) + ", euid = " + strconv.Itoa(unix.Geteuid()))
	}
	unix.Umask(0o022)
	s.log.Line("setting environment")
	if s.request.Starter != "" {
		s.env.set("SGE_STARTER_SHELL_PATH", s.request.Shell)
		s.env.set("SGE_STARTER_SHELL_START_MODE", s.request.Mode)
		s.env.set("SGE_STARTER_USE_LOGIN_SHELL", strconv.FormatBool(s.request.LoginShell))
	}
	s.log.Line("Initializing error file")
	s.log.Line("switching to intermediate/target user")
	if fail := s.asOwner(); fail != nil {
		return fail
	}
	s.log.Line("closing all filedescriptors")
	s.log.Line(`further messages are in "error" and "trace"`)
	s.log.Flush() // what follows may hang in a file system
	if err := s.streams.resolve(s.config); err != nil {
		return beforeJob(err)
	}
	if fail := s.streams.open(s.log.Line); fail != nil {
		return fail
	}
	s.env.set("SGE_STDIN_PATH", s.streams.in)
	s.env.set("SGE_STDOUT_PATH", s.streams.out)
	stderr := s.streams.err
	if s.streams.merge {
		stderr = s.streams.out
	}
	s.env.set("SGE_STDERR_PATH", stderr)
	s.env.set("SGE_CWD_PATH", s.streams.cwd)
	cmd := s.request.Command()
	if fail := s.look(cmd); fail != nil {
		return fail
	}
	return s.exec(cmd)
}

// mayRun checks the owner against the queue's minimums and against what an
// ordinary user can do.
func (s *stage) mayRun() error {
	for _, m := range []struct {
		key, what string
		id        int
	}{{spool.KeyMinUID, "uid", s.ids.UID}, {spool.KeyMinGID, "gid", s.ids.GID}} {
		least, err := s.config.Int(m.key)
		if err != nil {
			return err
		}
		if m.id < least {
			return errors.New(m.what + " of user " + s.ids.Name + " (" + strconv.Itoa(m.id) +
				") less than minimum allowed in conf (" + strconv.Itoa(least) + ")")
		}
	}
	if !s.root && s.ids.UID != unix.Geteuid() {
		return errors.New("cannot run a job of user " + s.ids.Name + " (uid " + strconv.Itoa(s.ids.UID) +
			"): the shepherd runs as uid " + strconv.Itoa(unix.Geteuid()) + ", not as root")
	}
	return nil
}

// maxGroups is how many supplementary groups a process may have.
const maxGroups = 65536

// asOwner takes the groups for good and the uid for a while: the way back to
// root is needed once more, for the limits, but what is the user's is opened as
// the user. The real uid stays root's so that the user cannot signal us.
func (s *stage) asOwner() *Failure {
	if err := setPriority(s.nice); err != nil {
		s.log.Line("setpriority failed: " + errnoText(err))
	}
	if !s.root {
		s.log.Line("setting additional gid=0")
		return nil
	}
	groups := gids(s.ids.Groups)
	add := s.addGID
	if add != 0 && len(groups) >= maxGroups {
		if v, _ := s.config.Lookup(spool.KeySkipNGroups); v != "yes" {
			return &Failure{
				Number: spool.FailedAddingGroup,
				Text:   "cannot set additional group id " + strconv.Itoa(add) + ": the user has " + strconv.Itoa(len(groups)) + " groups",
			}
		}
		add = 0
	}
	if add != 0 {
		s.ids.Groups = append(s.ids.Groups, add)
		groups = gids(s.ids.Groups)
	}
	s.log.Line("setting additional gid=" + strconv.Itoa(add))
	if err := setGroups(groups); err != nil {
		return &Failure{
			Number: spool.FailedAddingGroup,
			Text:   "cannot set the groups of user " + s.ids.Name + ", additional group id " + strconv.Itoa(add) + ": " + errnoText(err),
		}
	}
	gid, uid := uint32(s.ids.GID), uint32(s.ids.UID)
	if err := setResGID(gid, gid, gid); err != nil {
		return beforeJob(errors.New("cannot set group " + strconv.Itoa(s.ids.GID) + ": " + errnoText(err)))
	}
	if err := setResUID(0, uid, 0); err != nil {
		return beforeJob(errors.New("cannot set user " + strconv.Itoa(s.ids.UID) + ": " + errnoText(err)))
	}
	return nil
}

// look checks what is to be run, as the user.
func (s *stage) look(cmd Command) *Failure {
	var st unix.Stat_t
	if cmd.Interpreter && unix.Stat(cmd.File, &st) != nil {
		return &Failure{Number: spool.FailedSearchingShell, Text: `unable to find shell "` + cmd.File + `"`}
	}
	if cmd.NeedScript && unix.Stat(s.script, &st) != nil {
		return &Failure{Number: spool.FailedBeforeStart, Text: `unable to find job file "` + s.script + `"`}
	}
	if cmd.NeedExec && unix.Faccessat(unix.AT_FDCWD, s.script, unix.X_OK, unix.AT_EACCESS) != nil {
		return &Failure{Number: spool.FailedBeforeStart, Text: `job file "` + s.script + `" is not executable`}
	}
	return nil
}

// die reports a failure and ends the stage.
func (s *stage) die(f *Failure) {
	s.log.Line(f.Text)
	s.log.Flush()
	report(f.Number, []byte(f.Text), nil)
	exit(f.Number)
}

// report sends a failure to the shepherd. room, if it is not nil, is used
// instead of allocating.
func report(number int, text, room []byte) {
	b := appendFailure(room[:0], number, unix.Geteuid(), text)
	for {
		if errno := rawWrite(fdReport, b); errno != unix.EINTR {
			return
		}
	}
}

func beforeJob(err error) *Failure {
	if _, ok := errors.AsType[*spool.DuplicateError](err); ok {
		return &Failure{Number: spool.FailedOpeningStream, Text: err.Error()}
	}
	return &Failure{Number: spool.FailedBeforeStart, Text: err.Error()}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// errnoText returns what is wrong in the C library's words, which have a
// capital at the start and Go's do not.
func errnoText(err error) string {
	t := err.Error()
	if t != "" && t[0] >= 'a' && t[0] <= 'z' {
		t = string(t[0]-'a'+'A') + t[1:]
	}
	return t
}

func panicText(p any) string {
	switch p := p.(type) {
	case error:
		return p.Error()
	case string:
		return p
	}
	return "panic"
}
