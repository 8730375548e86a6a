// Package starter is how the shepherd starts everything. It forks a process that
// works through a plan which the shepherd has made: the process sets what Go cannot
// set from outside (limits, umask, signal mask), becomes the job's user for good,
// opens the job's streams as that user and turns into what it was ordered to
// become: the job, one of the procedures around it, or a method beside it. The
// packages parent, which starts it, hook and main import it.
package starter

import (
	"errors"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/owner"
	"paddock/spool"
)

// starter makes the plan of one process, by the job directory that is the working
// directory.
type starter struct {
	*plan
	process *Process
	order   Order
	dir     spool.Dir
	config  *spool.Config
	places  owner.Places
	root    bool // we may change ids
	euid    int  // of the process where the plan has come to

	daemon bool // it becomes the daemon of an interactive job

	given     []string // the file environment
	inherited []string // what the shepherd was started with, if the job is to have it
	env       environment
	turns     []turn // of it
	words     words  // of other texts

	owner  IDs    // the job's
	target *IDs   // whom it becomes: the owner, or the user of `user@command`
	shell  string // of the target's login, if it had to be looked up
	addGID int    // additional group, 0 for none

	request Request
	streams streams
	files   []uintptr // registers of the descriptors that come with the order
	limits  []limit
	table   [len(resources)]limit // of which they are a part
	nice    int
	bound   string // processors it is bound to, "" for all
}

// making is the one at work. It is not on the heap, where an object of its size would
// take pages of its own from every shepherd.
var making starter

// newStarter begins a plan.
func newStarter(s *Process, o Order) *starter {
	euid := unix.Geteuid()
	s.plan.now = time.Now()
	making = starter{plan: s.plan, process: s, order: o, dir: spool.OpenDir("."), root: euid == 0, euid: euid}
	return &making
}

// make makes the plan for a process that gets so many descriptors.
func (s *starter) make(files int) {
	if fail := s.begin(files); fail != nil {
		s.giveUp(fail)
		return
	}
	if fail := s.become(); fail != nil {
		s.giveUp(fail)
	}
}

// begin is what everything begins with.
func (s *starter) begin(files int) *Failure {
	if s.root {
		if err := unprotect("/proc/" + strconv.Itoa(s.process.PID) + "/oom_score_adj"); err != nil {
			s.line(err.Error())
		}
		if err := s.process.caps; err != nil {
			s.line(err.Error())
		}
	}
	scarce := s.keyring()
	s.call(unix.SYS_OPENAT, atCwd, s.path(spool.FileTrace), unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
	s.last().to = traceReg
	if err := s.order.check(); err != nil {
		return s.failed(err)
	}
	err := s.readFiles()
	s.introduce()
	s.detailStart()
	if err != nil {
		return s.failed(err)
	}
	s.takeFiles(files)
	if scarce {
		s.retryKeyring()
	}
	return nil
}

// takeFiles finds the descriptors that came with the order.
func (s *starter) takeFiles(n int) {
	if n == 0 {
		return
	}
	m := s.process.order
	s.unlessEqual(s.load(m.length(), lengthSize, ^uintptr(0)), uintptr(unix.CmsgLen(4*n)), s.failed(errBadOrder))
	for i := range n {
		s.files = append(s.files, s.load(m.descriptor(i), 4, ^uintptr(0)))
	}
}

// unlessEqual has the plan fail unless a register has a value.
func (s *starter) unlessEqual(reg, v uintptr, f *Failure) {
	s.either(reg, v, func() {}, func() { s.giveUp(f) })
}

// line adds a line to the trace, stamped as of the process.
func (s *starter) line(text ...string) {
	s.plan.line(s.euid, s.process.PID, true, text...)
}

// detail adds a line of the detailed level.
func (s *starter) detail(text string) {
	if s.order.Detail != nil {
		s.line("detail: " + text)
	}
}

// Receive reads a message from a socket, and the descriptors that come with it.
func Receive(socket int, b []byte) (n int, files []int, err error) {
	var rights [64]byte // four descriptors with their head, and more
	size := 0
	err = ignoringEINTR(func() (err error) {
		n, size, _, _, err = unix.Recvmsg(socket, b, rights[:], unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil || size == 0 {
		return n, nil, err
	}
	list, err := unix.ParseSocketControlMessage(rights[:size])
	if err == nil && len(list) == 1 {
		files, err = unix.ParseUnixRights(&list[0])
	}
	if err != nil || len(list) != 1 {
		return n, nil, errBadOrder
	}
	return n, files, nil
}

// CloseOnExec marks every descriptor from 3 on, so that a program that is executed from
// here inherits no file of the shepherd, or of the process that started the shepherd.
func CloseOnExec() { closeOnExec(3) }

func closeOnExec(first int) {
	if unix.CloseRange(uint(first), ^uint(0), unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	var lim unix.Rlimit // before Linux 5.11
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		for fd := first; fd < int(min(lim.Max, 1<<16)); fd++ {
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

// say traces what Grid Engine's shepherd traces, which is silent about methods
// until it executes them.
func (s *starter) say(text ...string) {
	if s.order.Kind != Method {
		s.line(text...)
	}
}

// introduce traces who we are, as the sons of Grid Engine's shepherd do. The
// last number is the size of the buffer that theirs has for the command.
func (s *starter) introduce() {
	what, size := strings.Join(s.order.Argv, " "), "10000"
	if s.order.Kind == Job && what == "" {
		size = "4096"
		if s.config != nil {
			what, _ = s.config.Lookup(spool.KeyScriptFile)
		}
	}
	pid := strconv.Itoa(s.process.PID) // it leads a session
	s.say("child: starting son(", s.order.Name, ", ", what, ", 0, ", size, ");")
	s.say("pid=", pid, " pgrp=", pid, " sid=", pid, " old pgrp=", strconv.Itoa(unix.Getpgrp()), " getlogin()=<no login set>")
}

// readFiles reads the files of the directory.
func (s *starter) readFiles() error {
	var err error
	if s.config = s.order.Config; s.config == nil {
		if s.config, err = s.dir.Config(); err != nil {
			return err
		}
	}
	if s.given, err = s.dir.Environment(); err != nil {
		return err
	}
	if name, task := s.config.Lookup(spool.KeyPETaskID); task && !spool.IsInto(name) {
		// The hosts are the whole job's to use.
		s.given = filter(s.given, func(v string) bool { return !strings.HasPrefix(v, "PE_HOSTFILE=") })
	}
	if v, ok := s.config.Lookup(spool.KeyInheritEnv); s.process.place.Inherited >= 0 && (!ok || v != "0") {
		s.inherited, err = readInherited(s.process.place.Inherited)
	}
	return err
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

// become turns into what was ordered; it returns only with a failure.
func (s *starter) become() *Failure {
	switch s.order.Kind {
	case Token, Coshepherd:
		return s.becomeOurs()
	case Session:
		return s.becomeSession()
	}
	if fail := s.read(); fail != nil {
		return fail
	}
	if err := s.who(); err != nil {
		return s.failed(err)
	}
	if err := s.mayRun(); err != nil {
		return s.failed(err)
	}
	if v, _ := s.config.Lookup(spool.KeyWriteOSJobID); v == "1" && s.order.Kind == Job {
		s.say("setosjobid: uid = ", strconv.Itoa(unix.Getuid()), ", euid = ", strconv.Itoa(unix.Geteuid()))
	}
	s.bind()
	s.call(unix.SYS_UMASK, 0o022)
	if s.order.Detail != nil {
		old := s.result()
		s.begins("detail: umask was 0")
		s.number(old, 8)
		s.ends(", is 022")
	}
	s.say("setting environment")
	s.say("Initializing error file")
	s.say("switching to intermediate/target user")
	if fail := s.asOwner(); fail != nil {
		return fail
	}
	s.say("closing all filedescriptors")
	s.say(`further messages are in "error" and "trace"`)
	s.flush() // what follows may hang in a file system
	if s.order.Kind.procedure() {
		s.nameShell()
	}
	s.resolve()
	s.open(true)
	if command, ok := s.config.Lookup(spool.KeySessionDaemon); ok && s.order.Kind == Job {
		return s.becomeDaemon(command)
	}
	if err := s.takeStreams(); err != nil {
		return s.failed(err)
	}
	s.environment()
	s.detailReady()
	cmd, err := s.command()
	if err != nil {
		return s.failed(err)
	}
	s.look(cmd)
	if err := s.privateTmp(); err != nil {
		return s.failed(err)
	}
	return s.exec(cmd)
}

// command returns what to run.
func (s *starter) command() (Command, error) {
	argv := s.order.Argv
	switch kind := s.order.Kind; {
	case kind.procedure(), kind == Coshepherd, kind == Session:
		return procedure(s.order.Name, argv)
	case kind == Job && len(argv) == 0:
		return s.request.Command(), nil
	case len(argv) == 1 && argv[0] != "":
		return textCommand(argv[0]), nil
	}
	return Command{}, errBadOrder
}

// look checks what is to be run, as the owner: of what runs as another user the
// owner may not be able to see anything.
func (s *starter) look(cmd Command) {
	if cmd.Interpreter {
		s.stat(cmd.File)
		s.orSay(spool.FailedSearchingShell, `unable to find shell "`, cmd.File, `"`)
	}
	if cmd.Script == "" || s.target != &s.owner {
		return
	}
	s.stat(cmd.Script)
	s.orSay(s.state(), "unable to find ", s.order.Name, ` file "`, cmd.Script, `"`)
	no := s.order.Name + ` file "` + cmd.Script + `" is not executable`
	path := s.path(cmd.Script)
	s.call(unix.SYS_FACCESSAT2, atCwd, path, unix.X_OK, unix.AT_EACCESS)
	errno := s.errno()
	s.either(errno, 0, func() {}, func() {
		old := func() { s.askReal(path, no) }
		refused := func() { s.giveUp(&Failure{Number: s.state(), Text: no}) }
		// Before Linux 5.8, or in a sandbox made before.
		s.either(errno, uintptr(unix.ENOSYS), old, func() { s.either(errno, uintptr(unix.EPERM), old, refused) })
	})
}

// askReal has the real user be the owner for as long as it takes to ask whether he
// may execute a file, where the kernel can be asked about no other.
func (s *starter) askReal(path uintptr, no string) {
	uid := uintptr(s.owner.UID)
	if s.root {
		s.call(unix.SYS_SETRESUID, uid, uid, 0)
		s.or(s.state(), "cannot look at the file as its user: ")
	}
	s.call(unix.SYS_FACCESSAT, atCwd, path, unix.X_OK)
	s.orSay(s.state(), no)
	if s.root {
		s.call(unix.SYS_SETRESUID, 0, uid, 0)
		s.or(s.state(), "cannot look at the file as its user: ")
	}
}

// stat adds the step that looks at a path, and returns what is there.
func (s *starter) stat(path string) uintptr {
	st := s.room(unsafe.Sizeof(unix.Stat_t{}))
	s.call(unix.SYS_NEWFSTATAT, atCwd, s.path(path), st, 0)
	return st
}

// or gives the last step a meaning for when it fails, in front of the text of the
// error number, and orSay one without.
func (s *starter) or(number int, text ...string) { s.fails(fail, number, s.euid, true, text...) }

func (s *starter) orSay(number int, text ...string) { s.fails(fail, number, s.euid, false, text...) }

// giveUp ends the plan with a failure.
func (s *starter) giveUp(f *Failure) {
	s.add(doFail)
	s.orSay(f.Number, f.Text)
}

// state returns the number for what fails before exec.
func (s *starter) state() int {
	if s.order.State == 0 {
		return spool.FailedBeforeStart
	}
	return s.order.State
}

// failed returns the failure of something that has no number of its own.
func (s *starter) failed(err error) *Failure {
	if _, ok := errors.AsType[*spool.DuplicateError](err); ok {
		return &Failure{Number: spool.FailedOpeningStream, Text: err.Error()}
	}
	return &Failure{Number: s.state(), Text: err.Error()}
}

// notExecuted returns the number for what cannot be executed. A shell or
// program that is missing is the job's or the queue's mistake (27); that a
// procedure cannot be started is what its own state says.
func (s *starter) notExecuted() int {
	switch {
	case s.daemon:
		return spool.FailedDaemons
	case s.order.Kind == Job:
		return spool.FailedSearchingShell
	}
	return s.state()
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
