package starter

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// streams are the paths of a job's standard streams and its directory.
type streams struct {
	in, out, err string
	merge        bool // stderr goes where stdout goes
	cwd          string
	script       bool // in is the script, read by a shell
}

// readStreams returns the streams config asks for; directories among them are
// still what they are, since only their owner may look.
func readStreams(c *spool.Config, mode, script string) (streams, error) {
	var (
		s    streams
		errs [5]error
	)
	s.in, errs[0] = c.String(spool.KeyStdinPath)
	s.out, errs[1] = c.String(spool.KeyStdoutPath)
	s.err, errs[2] = c.String(spool.KeyStderrPath)
	s.cwd, errs[3] = c.String(spool.KeyCwd)
	s.merge, errs[4] = c.Bool(spool.KeyMergeStderr)
	if mode == modeStdin {
		s.in, s.script = script, true
	}
	return s, firstOf(errs[:]...)
}

// defaultName returns the name of a stream's file in a directory: kind is o, e
// or i.
func defaultName(c *spool.Config, kind string) (string, error) {
	name, err1 := c.String(spool.KeyJobName)
	job, err2 := c.String(spool.KeyJobID)
	task, err3 := c.String(spool.KeyTaskID)
	if err := firstOf(err1, err2, err3); err != nil {
		return "", err
	}
	name += "." + kind + job
	if task != "0" && task != "" {
		name += "." + task
	}
	return name, nil
}

// resolve appends the default names to streams that are directories. It must
// be called with the rights of the owner.
func (s *streams) resolve(c *spool.Config) error {
	for _, f := range []struct {
		path *string
		kind string
	}{{&s.out, "o"}, {&s.err, "e"}} {
		var st unix.Stat_t
		if unix.Stat(*f.path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		name, err := defaultName(c, f.kind)
		if err != nil {
			return err
		}
		*f.path = strings.TrimRight(*f.path, "/") + "/" + name
	}
	return nil
}

// open opens the streams as descriptors 0 to 2 and enters the job's directory,
// in Grid Engine's order. It must be called with the rights of the owner.
func (s *streams) open(say func(string)) *Failure {
	if err := openAs(0, s.in, unix.O_RDONLY); err != nil {
		switch {
		case s.script:
			return &Failure{Number: spool.FailedBeforeStart, Text: `error: can't open job script file "` + s.in + `": ` + errnoText(err)}
		case errors.Is(err, unix.EISDIR):
			return &Failure{Number: spool.FailedOpeningStream, Text: `"` + s.in + `" is a directory not a file`}
		}
		return &Failure{Number: spool.FailedOpeningStream, Text: "error: can't open " + s.in + " as dummy input file: " + errnoText(err)}
	}
	if err := ignoringEINTR(func() error { return unix.Chdir(s.cwd) }); err != nil {
		return &Failure{Number: spool.FailedChangingDir, Text: "error: can't chdir to " + s.cwd + ": " + errnoText(err)}
	}
	if err := openAs(1, s.out, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND); err != nil {
		return &Failure{Number: spool.FailedOpeningStream, Text: `error: can't open output file "` + s.out + `": ` + errnoText(err)}
	}
	if s.merge {
		say("using stdout as stderr")
		if err := ignoringEINTR(func() error { return unix.Dup3(1, 2, 0) }); err != nil {
			return &Failure{Number: spool.FailedOpeningStream, Text: "error: can't use stdout as stderr: " + errnoText(err)}
		}
		return nil
	}
	if err := openAs(2, s.err, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND); err != nil {
		return &Failure{Number: spool.FailedOpeningStream, Text: `error: can't open output file "` + s.err + `": ` + errnoText(err)}
	}
	return nil
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
