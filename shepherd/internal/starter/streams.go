package starter

import (
	"errors"
	"strings"

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

// resolve appends the default names to streams that are directories. It must
// be called with the rights of the owner.
func (s *streams) resolve(c *spool.Config) error {
	for _, f := range []*stream{&s.in, &s.out, &s.err} {
		if f.suffix == "" {
			continue
		}
		var st unix.Stat_t
		dir := unix.Stat(f.path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
		if !dir {
			continue
		}
		name, err := defaultName(c, f.suffix)
		if err != nil {
			return err
		}
		f.path = strings.TrimRight(f.path, "/") + "/" + name
	}
	return nil
}

// open opens the streams as descriptors 0 to 2 and enters the job's directory,
// in Grid Engine's order. It must be called with the rights of the owner. A
// failure without number is one before exec.
func (s *streams) open(say func(string)) *Failure {
	if err := openAs(0, s.in.path, unix.O_RDONLY); err != nil {
		switch {
		case s.script:
			return &Failure{Text: `error: can't open job script file "` + s.in.path + `": ` + errnoText(err)}
		case errors.Is(err, unix.EISDIR):
			return &Failure{Number: spool.FailedOpeningStream, Text: `"` + s.in.path + `" is a directory not a file`}
		}
		return &Failure{Number: spool.FailedOpeningStream, Text: "error: can't open " + s.in.path + " as dummy input file: " + errnoText(err)}
	}
	if err := ignoringEINTR(func() error { return unix.Chdir(s.cwd) }); err != nil {
		return &Failure{Number: spool.FailedChangingDir, Text: "error: can't chdir to " + s.cwd + ": " + errnoText(err)}
	}
	if err := openAs(1, s.out.path, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND); err != nil {
		return &Failure{Number: spool.FailedOpeningStream, Text: `error: can't open output file "` + s.out.path + `": ` + errnoText(err)}
	}
	if sameFile(0, 1) {
		return &Failure{Number: spool.FailedOpeningStream, Text: `same paths given for stdin ("` + s.in.path + `") and stdout ("` + s.out.path + `")`}
	}
	if s.merge {
		say("using stdout as stderr")
		if err := ignoringEINTR(func() error { return unix.Dup3(1, 2, 0) }); err != nil {
			return &Failure{Number: spool.FailedOpeningStream, Text: "error: can't use stdout as stderr: " + errnoText(err)}
		}
		return nil
	}
	if err := openAs(2, s.err.path, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND); err != nil {
		return &Failure{Number: spool.FailedOpeningStream, Text: `error: can't open output file "` + s.err.path + `": ` + errnoText(err)}
	}
	if sameFile(0, 2) {
		return &Failure{Number: spool.FailedOpeningStream, Text: `same paths given for stdin ("` + s.in.path + `") and stderr ("` + s.err.path + `")`}
	}
	return nil
}

// sameFile reports whether two descriptors are of one regular file, by whatever
// names it was opened: a job that reads what it appends to would not end.
func sameFile(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Mode&unix.S_IFMT == unix.S_IFREG &&
		x.Dev == y.Dev && x.Ino == y.Ino
}

// openAs opens path as the descriptor to. A directory opened for reading is
// refused: a job could do nothing with it.
func openAs(to int, path string, flags int) error {
	var fd int
	err := ignoringEINTR(func() (err error) {
		fd, err = unix.Open(path, flags|unix.O_NOCTTY|unix.O_CLOEXEC, 0o644)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if flags == unix.O_RDONLY && unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.EISDIR
	}
	return ignoringEINTR(func() error { return unix.Dup3(fd, to, 0) })
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
