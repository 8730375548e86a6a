// Package starter is what the shepherd starts everything by, its own binary run
// again: it sets what Go cannot set from outside (limits, umask, nice value,
// processors, signal mask), becomes the job's user for good, opens the job's
// streams as that user and turns into what it was ordered to become: the job,
// one of the procedures around it, or a method beside it. The packages parent,
// which starts it, and main import it.
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

// starter is what this process knows.
type starter struct {
	order  Order
	dir    spool.Dir
	config *spool.Config
	places owner.Places
	root   bool // we may change ids

	daemon  bool // it becomes the daemon of an interactive job
	grouped bool // we are in the control group that config names

	given     []string // the file environment
	inherited []string // what the shepherd was started with, if the job is to have it
	env       environment

	owner  IDs    // the job's
	target *IDs   // whom it becomes: the owner, or the user of `user@command`
	shell  string // of the target's login, if it had to be looked up
	addGID int    // additional group, 0 for none

	request Request
	streams streams
	files   []int // that came with the order
	limits  []limit
	nice    int
	bound   string // processors it is bound to, "" for all

	log *trace.Log
}

// Main is the starter, with the arguments behind its name; it never returns.
// Call it on a locked thread or in an init function, with the job directory as
// working directory. Whatever it has to say goes to the shepherd by socket: the
// results are not its to write.
func Main(words []string) {
	s := &starter{dir: spool.OpenDir("."), log: trace.New(-1), root: unix.Geteuid() == 0}
	inherited := false
	for _, word := range words {
		inherited = inherited || word == wordInherit
		s.grouped = s.grouped || word == wordGroup
	}
	defer func() {
		if p := recover(); p != nil {
			s.die(&Failure{Number: s.state(), Text: "internal error: starter: " + panicText(p)})
		}
	}()
	CloseOnExec()
	_ = SetName(Arg0)
	// All that needs no leave is done before it comes: the shepherd is busy
	// with its own files meanwhile, on another processor.
	err := s.load(inherited)
	if s.root {
		if err := unprotect(fileOOM); err != nil {
			s.log.Line(err.Error())
		}
		if err := dropInheritable(); err != nil {
			s.log.Line(err.Error())
		}
	}
	noKeys := s.keyring()
	order, files, bad := mayGo()
	if order == nil {
		exit(0)
	}
	if fd, err := unix.Open(spool.FileTrace, unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0); err == nil {
		s.log.SetFile(fd)
	}
	s.order, s.files = *order, files
	if s.order.Detail {
		s.log.SetDetail()
	}
	if bad != nil {
		s.die(s.failed(bad))
	}
	s.introduce()
	s.detailStart()
	if err != nil {
		s.die(s.failed(err))
	}
	if noKeys != nil {
		s.die(s.noKeys(noKeys))
	}
	if fail := s.become(); fail != nil {
		s.die(fail)
	}
	exit(s.state()) // become does not return without a reason
}

// mayGo waits for the shepherd's leave. Without one (nil) it was refused, or the
// shepherd is dead.
func mayGo() (*Order, []int, error) {
	n, files, err := Receive(fdReport, ordered[:])
	if n <= 0 {
		return nil, nil, nil
	}
	o, bad := parseOrder(ordered[:n])
	return &o, files, firstOf(bad, err)
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
func (s *starter) say(text string) {
	if s.order.Kind != Method {
		s.log.Line(text)
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
	pid := unix.Getpid()
	pgrp, _ := unix.Getpgid(0)
	sid, _ := unix.Getsid(0)
	old, _ := unix.Getpgid(unix.Getppid())
	s.say("child: starting son(" + s.order.Name + ", " + what + ", 0, " + size + ");")
	s.say("pid=" + strconv.Itoa(pid) + " pgrp=" + strconv.Itoa(pgrp) + " sid=" + strconv.Itoa(sid) +
		" old pgrp=" + strconv.Itoa(old) + " getlogin()=<no login set>")
}

// load reads the files of the directory.
func (s *starter) load(inherited bool) error {
	var err error
	if s.config, err = s.dir.Config(); err != nil {
		return err
	}
	if s.given, err = s.dir.Environment(); err != nil {
		return err
	}
	if name, task := s.config.Lookup(spool.KeyPETaskID); task && !spool.IsInto(name) {
		// The hosts are the whole job's to use.
		s.given = filter(s.given, func(v string) bool { return !strings.HasPrefix(v, "PE_HOSTFILE=") })
	}
	if v, ok := s.config.Lookup(spool.KeyInheritEnv); inherited && (!ok || v != "0") {
		s.inherited, err = readInherited(fdInherited)
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
		s.say("setosjobid: uid = " + strconv.Itoa(unix.Getuid()) + ", euid = " + strconv.Itoa(unix.Geteuid()))
	}
	s.bind()
	if old := unix.Umask(0o022); s.log.Detailed() {
		s.log.Detail("umask was 0" + strconv.FormatInt(int64(old), 8) + ", is 022")
	}
	s.say("setting environment")
	s.say("Initializing error file")
	s.say("switching to intermediate/target user")
	if fail := s.asOwner(); fail != nil {
		return fail
	}
	s.say("closing all filedescriptors")
	s.say(`further messages are in "error" and "trace"`)
	s.log.Flush() // what follows may hang in a file system
	if s.order.Kind.procedure() {
		s.nameShell()
	}
	if err := s.streams.resolve(s.config); err != nil {
		return s.failed(err)
	}
	if fail := s.streams.open(s.say); fail != nil {
		if fail.Number == 0 {
			fail.Number = s.state()
		}
		return fail
	}
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
	if fail := s.look(cmd); fail != nil {
		return fail
	}
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
func (s *starter) look(cmd Command) *Failure {
	var st unix.Stat_t
	if cmd.Interpreter && unix.Stat(cmd.File, &st) != nil {
		return &Failure{Number: spool.FailedSearchingShell, Text: `unable to find shell "` + cmd.File + `"`}
	}
	if cmd.Script == "" || s.target != &s.owner {
		return nil
	}
	if unix.Stat(cmd.Script, &st) != nil {
		return &Failure{Number: s.state(), Text: "unable to find " + s.order.Name + ` file "` + cmd.Script + `"`}
	}
	if unix.Faccessat(unix.AT_FDCWD, cmd.Script, unix.X_OK, unix.AT_EACCESS) != nil {
		return &Failure{Number: s.state(), Text: s.order.Name + ` file "` + cmd.Script + `" is not executable`}
	}
	return nil
}

// die reports a failure and ends the starter.
func (s *starter) die(f *Failure) {
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

func panicText(p any) string {
	switch p := p.(type) {
	case error:
		return p.Error()
	case string:
		return p
	}
	return "panic"
}
