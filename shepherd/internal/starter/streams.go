package starter

import (
	"errors"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/command"
	"paddock/spool"
)

// streams are the paths of what is to be the standard streams, and the
// directory.
type streams struct {
	in, out, err stream
	merge        bool // stderr goes where stdout goes
	cwd          string
	script       bool // in is the script, read by a shell
}

// stream is the path of one of them.
type stream struct {
	path string
	// suffix is what a file in a directory has behind the job's name: if the path
	// is a directory, that file is meant. "" if it cannot be.
	suffix string
	// inDir is the path of that file, and isDir the register that is 1 if it is
	// meant. 0 if it cannot be.
	inDir string
	isDir uintptr
}

// nowhere is the stream of what has none.
var nowhere = stream{path: "/dev/null"}

// readStreams returns the streams config asks for; directories among them are
// still what they are, since only their owner may look.
func readStreams(c *spool.Config, kind Kind) (streams, error) {
	s := streams{in: nowhere, out: nowhere, err: nowhere}
	var errs [5]error
	s.cwd, errs[0] = c.String(spool.KeyCwd)
	if kind == Method {
		return s, errs[0]
	}
	s.merge, errs[1] = c.Bool(spool.KeyMergeStderr)
	if kind == PEStart || kind == PEStop {
		s.out.path, errs[2] = c.String(spool.KeyPEStdoutPath)
		s.err.path, errs[3] = c.String(spool.KeyPEStderrPath)
		s.out.suffix, s.err.suffix = "po", "pe"
		return s, firstOf(errs[:]...)
	}
	if kind == Job {
		s.in, errs[2] = readStream(c, spool.KeyFSStdinStaging, spool.KeyStdinPath)
	}
	s.out, errs[3] = readStream(c, spool.KeyFSStdoutStaging, spool.KeyStdoutPath)
	s.err, errs[4] = readStream(c, spool.KeyFSStderrStaging, spool.KeyStderrPath)
	s.out.suffix, s.err.suffix = "o", "e"
	return s, firstOf(errs[:]...)
}

// readStream returns a stream: if the file is staged, by prolog and epilog, it
// is opened in the job's TMPDIR, where they leave or fetch it.
func readStream(c *spool.Config, staging, key string) (stream, error) {
	staged, err1 := c.Bool(staging)
	path, err2 := c.String(key)
	if err := firstOf(err1, err2); err != nil || !staged {
		return stream{path: path}, err
	}
	tmpdir, err := c.String(spool.KeyTmpdir)
	return stream{path: command.Staged(tmpdir, path)}, err
}

// defaultName returns the name of a stream's file in a directory.
func defaultName(c *spool.Config, suffix string) (string, error) {
	name, err1 := c.String(spool.KeyJobName)
	job, err2 := c.String(spool.KeyJobID)
	task, err3 := c.String(spool.KeyTaskID)
	if err := firstOf(err1, err2, err3); err != nil {
		return "", err
	}
	name += "." + suffix + job
	if task != "0" && task != "" {
		name += "." + task
	}
	return name, nil
}

// resolve finds out which streams are directories. It must be with the rights of
// the owner.
func (s *starter) resolve() {
	for _, f := range []*stream{&s.streams.in, &s.streams.out, &s.streams.err} {
		if f.suffix == "" || s.streams.merge && f == &s.streams.err {
			continue
		}
		f.isDir = s.reg()
		s.set(f.isDir, 0)
		st := s.stat(f.path)
		s.either(s.errno(), 0, func() {
			s.either(s.mode(st), unix.S_IFDIR, func() {
				name, err := defaultName(s.config, f.suffix)
				if err != nil {
					s.giveUp(s.failed(err))
				}
				f.inDir = strings.TrimRight(f.path, "/") + "/" + name
				s.set(f.isDir, 1)
			}, nil)
		}, nil)
	}
}

// mode returns the register with the type of a file that was looked at.
func (s *starter) mode(st uintptr) uintptr {
	return s.load(st+unsafe.Offsetof(unix.Stat_t{}.Mode), 4, unix.S_IFMT)
}

// each adds steps for the path of a stream, whichever it is.
func (s *starter) each(f *stream, do func(path string)) {
	if f.isDir == 0 {
		do(f.path)
		return
	}
	s.either(f.isDir, 1, func() { do(f.inDir) }, func() { do(f.path) })
}

// open opens the streams as descriptors 0 to 2 and enters the job's directory,
// in Grid Engine's order. It must be with the rights of the owner. What fails has
// a number of its own if that is asked for.
func (s *starter) open(own bool) {
	s.dieWithShepherd()
	number := func(n int) int {
		if own {
			return n
		}
		return s.state()
	}
	const appended = unix.O_WRONLY | unix.O_CREAT | unix.O_APPEND
	f := &s.streams
	opening := number(spool.FailedOpeningStream)
	if f.script {
		s.openAs(0, f.in.path, unix.O_RDONLY, s.state(), `error: can't open job script file "`, `": `)
	} else {
		s.openAs(0, f.in.path, unix.O_RDONLY, opening, "error: can't open ", " as dummy input file: ")
	}
	s.call(unix.SYS_CHDIR, s.path(f.cwd))
	s.or(number(spool.FailedChangingDir), "error: can't chdir to ", f.cwd, ": ")
	output := func(to int, of *stream, name string) {
		s.each(of, func(path string) { s.openAs(to, path, appended, opening, `error: can't open output file "`, `": `) })
		s.either(s.sameFile(0, to), 1, func() {
			s.each(of, func(path string) {
				s.add(doFail)
				s.orSay(opening, `same paths given for stdin ("`, f.in.path, `") and `, name, ` ("`, path, `")`)
			})
		}, nil)
	}
	output(1, &f.out, "stdout")
	if f.merge {
		s.say("using stdout as stderr")
		s.call(unix.SYS_DUP3, 1, 2, 0)
		s.or(opening, "error: can't use stdout as stderr: ")
		return
	}
	output(2, &f.err, "stderr")
}

// dieWithShepherd has the kernel kill the process if the shepherd dies while it may
// hang in a file system: nobody would know whose it is. A change of rights undoes it.
func (s *starter) dieWithShepherd() {
	s.call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL))
	s.call(unix.SYS_GETPPID)
	s.either(s.result(), uintptr(unix.Getpid()), func() {}, func() { s.add(doExit, 0) })
}

// sameFile returns the register that is 1 if two descriptors are of one regular
// file, by whatever names it was opened: a job that reads what it appends to would
// not end.
func (s *starter) sameFile(a, b int) uintptr {
	var looked [2]uintptr
	both := s.reg()
	s.set(both, 0)
	for i, fd := range []int{a, b} {
		looked[i] = s.room(unsafe.Sizeof(unix.Stat_t{}))
		s.call(unix.SYS_FSTAT, uintptr(fd), looked[i])
	}
	s.either(s.mode(looked[0]), unix.S_IFREG, func() {
		s.either(s.sameInode(looked[0], looked[1]), 1, func() { s.set(both, 1) }, nil)
	}, nil)
	return both
}

// sameInode adds the step whose result is 1 if two files that were looked at are one.
func (s *starter) sameInode(a, b uintptr) uintptr {
	const first, last = unsafe.Offsetof(unix.Stat_t{}.Dev), unsafe.Offsetof(unix.Stat_t{}.Ino) + unsafe.Sizeof(unix.Stat_t{}.Ino)
	return s.same(a+first, b+first, last-first)
}

// openAs opens path as the descriptor to, or fails with the path between two texts. A
// directory opened for reading is refused: a job could do nothing with it.
func (s *starter) openAs(to int, path string, flags uintptr, number int, before, after string) {
	s.call(unix.SYS_OPENAT, atCwd, s.path(path), flags|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_LARGEFILE, 0o644)
	s.or(number, before, path, after)
	fd := s.result()
	if flags == unix.O_RDONLY {
		st := s.room(unsafe.Sizeof(unix.Stat_t{}))
		s.call(unix.SYS_FSTAT, fd, st)
		s.either(s.mode(st), unix.S_IFDIR, func() {
			s.add(doFail, uintptr(unix.EISDIR))
			if s.streams.script {
				s.or(number, before, path, after)
			} else {
				s.orSay(number, `"`, path, `" is a directory not a file`)
			}
		}, nil)
	}
	s.call(unix.SYS_DUP3, fd, uintptr(to), 0)
	s.or(number, before, path, after)
	s.call(unix.SYS_CLOSE, fd)
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
