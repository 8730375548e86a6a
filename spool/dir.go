package spool

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool/atomicfile"
)

// maxFile is the size up to which files are read. An environment, which is 2 MB at
// most, fits in; execd and shepherd write nothing larger.
const maxFile = 16 << 20

// errTooLarge is the error of a file that is larger than maxFile.
var errTooLarge = errors.New("too large for a file of ours")

// A Dir is a job directory, or the directory of a parallel job's task below
// one. The zero value is no directory: every operation on it fails.
type Dir struct{ path string }

// OpenDir returns the job directory of a path, which may be relative: the
// shepherd's is ".".
func OpenDir(path string) Dir { return Dir{path: path} }

// Path returns the path of the directory, or of something below it.
func (d Dir) Path(elem ...string) string { return join(d.path, elem) }

func join(path string, elem []string) string {
	for _, e := range elem {
		path += "/" + e
	}
	return path
}

// file returns the path of a file of the directory.
func (d Dir) file(verb, name string) (string, error) {
	if d.path == "" {
		return "", cannot(verb, name, errors.New("no job directory"))
	}
	if !plainName(name) {
		return "", cannot(verb, name, errors.New("not the name of a file"))
	}
	return d.path + "/" + name, nil
}

// plainName reports whether a name stays in its directory.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// Read returns the content of a file. It reads regular files alone, follows no
// link, and refuses what is larger than 16 MiB.
func (d Dir) Read(name string) ([]byte, error) {
	path, err := d.file("read", name)
	if err != nil {
		return nil, err
	}
	b, err := ReadFile(path, maxFile)
	if err != nil {
		return nil, cannot("read", path, err)
	}
	return b, nil
}

// ReadFile returns the content of a regular file of at most most bytes. It follows
// no link.
func ReadFile(path string, most int) ([]byte, error) {
	if err := atomicfile.Reading(path); err != nil {
		return nil, err
	}
	fd, size, err := openFD(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if size > int64(most) {
		return nil, errTooLarge
	}
	// One byte more than expected: the read that fills up to there and the
	// one that finds the end are all.
	b := make([]byte, 0, size+1)
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		case n == 0:
			return b, nil
		}
		b = b[:len(b)+n]
		if len(b) > most {
			return nil, errTooLarge
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// openFD opens a regular file for reading. It goes by plain system calls: a
// file of package os would set up Go's poller, in every shepherd.
func openFD(path string) (fd int, size int64, err error) {
	for {
		// O_NONBLOCK: a pipe in the place of the file must not hold us.
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return -1, 0, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = atomicfile.ErrNotRegular
	}
	if err != nil {
		unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Size, nil
}

func openRegular(path string) (*os.File, error) {
	fd, _, err := openFD(path)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// cause strips the verb and object of an error that gets others.
func cause(err error) error {
	if c := errors.Unwrap(err); c != nil {
		return c
	}
	return err
}

// Write writes a file atomically, with the mode of the table of files.
func (d Dir) Write(name string, data []byte) error {
	path, err := d.file("write", name)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, data, ModeOf(name))
}

// WriteDurable is Write for a file that is on disk when it returns.
func (d Dir) WriteDurable(name string, data []byte) error {
	path, err := d.file("write", name)
	if err != nil {
		return err
	}
	return atomicfile.WriteDurable(path, data, ModeOf(name))
}

// WriteNew writes a file that must not exist yet, or be empty, with the mode of
// the table.
// It is cheaper than Write, and right where no reader looks before another
// file, or a rename, says so.
func (d Dir) WriteNew(name string, data []byte) error {
	path, err := d.file("write", name)
	if err != nil {
		return err
	}
	return atomicfile.WriteNew(path, data, ModeOf(name))
}

// Refill is WriteNew for a file to which others may have rights, and returns it open.
func (d Dir) Refill(name string, data []byte) (*os.File, error) {
	path, err := d.file("write", name)
	if err != nil {
		return nil, err
	}
	f, err := atomicfile.Refill(path, ModeOf(name))
	if err != nil {
		return nil, err
	}
	if err := atomicfile.AppendTo(f, data); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Append appends to a file, which is created with the mode of the table if
// there is none.
func (d Dir) Append(name string, data []byte) error {
	path, err := d.file("append to", name)
	if err != nil {
		return err
	}
	return atomicfile.Append(path, data, ModeOf(name))
}

// OpenAppend opens a file for appending, as Append does.
func (d Dir) OpenAppend(name string) (*os.File, error) {
	path, err := d.file("open", name)
	if err != nil {
		return nil, err
	}
	return atomicfile.OpenAppend(path, ModeOf(name))
}

// Admit lets the job's owner pass through the directory, which gets the owner's
// group and mode 0711. A gid of -1 keeps the group.
func (d Dir) Admit(gid int) error {
	if d.path == "" {
		return cannot("open to its owner", "", errors.New("no job directory"))
	}
	return atomicfile.Chmod(d.path, -1, gid, 0o711)
}

// Lock takes the lock of the directory, which says that a shepherd lives.
func (d Dir) Lock() (*os.File, error) {
	path, err := d.file("lock", FileLock)
	if err != nil {
		return nil, err
	}
	return LockFile(path)
}

// Held reports whether somebody holds the lock of the directory.
func (d Dir) Held() (bool, error) {
	path, err := d.file("look at", FileLock)
	if err != nil {
		return false, err
	}
	return Held(path)
}

// Released waits until nobody holds the lock of the directory, at most for within,
// and reports whether it is free.
func (d Dir) Released(within time.Duration) (bool, error) {
	path, err := d.file("look at", FileLock)
	if err != nil {
		return false, err
	}
	return released(path, within)
}

// Has reports whether the directory has a file of that name.
func (d Dir) Has(name string) (bool, error) {
	path, err := d.file("look for", name)
	if err != nil {
		return false, err
	}
	var st unix.Stat_t
	err = unix.Lstat(path, &st)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) { // damage: a file is in its place
		return false, nil
	}
	if err != nil {
		return false, cannot("look for", path, err)
	}
	return true, nil
}

// Whole returns an error unless there is a config with something in it, which is
// written last of all that a shepherd reads.
func (d Dir) Whole() error {
	var st unix.Stat_t
	err := unix.Lstat(d.Path(FileConfig), &st)
	if err == nil && st.Size == 0 {
		err = unix.ENOENT
	}
	if err != nil {
		return cannot("read", d.Path(FileConfig), err)
	}
	return nil
}

// parsed reads and parses a file. An empty one says the same as none: a
// directory that is used again has empty files (see Root.Recycle).
func parsed[T any](d Dir, name string, parse func([]byte) (T, error)) (T, error) {
	b, err := d.Read(name)
	if err == nil && len(b) == 0 {
		err = cannot("read", d.Path(name), unix.ENOENT)
	}
	if err != nil {
		var zero T
		return zero, err
	}
	v, err := parse(b)
	if err != nil {
		return v, cannot("read", d.Path(name), err)
	}
	return v, nil
}

// Config reads config.
func (d Dir) Config() (*Config, error) { return parsed(d, FileConfig, ParseConfig) }

// Run reads the number of the run from config. Paddock's own keys stand first in there, so
// that the others are not looked at.
func (d Dir) Run() (int, error) {
	b, err := d.Read(FileConfig)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		key, value, _ := bytes.Cut(line, []byte{'='})
		if !bytes.HasPrefix(key, []byte(ownPrefix)) {
			break
		}
		if string(key) == KeyRun {
			return strconv.Atoi(string(bytes.TrimSuffix(value, []byte{'\n'})))
		}
	}
	return 0, cannot("read", d.Path(FileConfig), &MissingError{Key: KeyRun})
}

// Environment reads environment.
func (d Dir) Environment() ([]string, error) { return parsed(d, FileEnvironment, ParseEnvironment) }

// Usage reads usage.
func (d Dir) Usage() (*Usage, error) { return parsed(d, FileUsage, ParseUsage) }

// PID reads pid, the shepherd's.
func (d Dir) PID() (int, error) { return parsed(d, FilePID, ParseNumber) }

// JobPID reads job_pid.
func (d Dir) JobPID() (int, error) { return parsed(d, FileJobPID, ParseNumber) }

// Args reads args.
func (d Dir) Args() ([]string, error) { return parsed(d, FileArgs, ParseArgs) }

// Signal reads signal.
func (d Dir) Signal() (Signal, error) {
	return parsed(d, FileSignal, func(b []byte) (Signal, error) {
		sig, seq, err := ParseSignal(b)
		return Signal{Signal: sig, Seq: seq}, err
	})
}

// Signals reads signals. Without the file there are none.
func (d Dir) Signals() ([]Signal, error) {
	list, err := parsed(d, FileSignals, ParseSignals)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return list, err
}

// ExitStatus reads the shepherd's verdict: the first number of exit_status.
// The error matches ErrNoStatus while there is none.
func (d Dir) ExitStatus() (int, error) {
	n, err := parsed(d, FileExitStatus, func(b []byte) (int, error) {
		first, _, err := ParseExitStatus(b)
		return first, err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return 0, cannot("read", d.Path(FileExitStatus), ErrNoStatus)
	}
	return n, err
}

// ErrorText reads the first and last reason in error. Without the file there
// is none.
func (d Dir) ErrorText() (first, last string, err error) {
	b, err := d.Read(FileError)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	first, last = ParseError(b)
	return first, last, nil
}

// Arguments returns the job's arguments, from config or, if config says so,
// from args.
func (d Dir) Arguments(c *Config) ([]string, error) {
	n, err := c.Int(KeyNJobArgs)
	if err != nil {
		return nil, err
	}
	if _, ok := c.Lookup(KeyArgs); ok {
		own, err := c.Bool(KeyArgs)
		if err != nil {
			return nil, err
		}
		if own {
			args, err := d.Args()
			if err == nil && len(args) != n {
				err = cannot("read", d.Path(FileArgs), syntax(FileArgs, 0,
					"want "+strconv.Itoa(n)+" arguments, got "+strconv.Itoa(len(args))))
			}
			return args, err
		}
	}
	return c.Strings(KeyJobArg, n)
}

// Outcome reads how the run ended. The error matches ErrNoStatus while the
// shepherd has not given its verdict.
func (d Dir) Outcome() (Outcome, error) {
	failed, err := d.ExitStatus()
	if err != nil {
		return Outcome{}, err
	}
	o := Outcome{Failed: failed}
	first, last, err := d.ErrorText()
	if err != nil {
		return Outcome{}, err
	}
	o.Reason = first
	if o.Usage, err = d.Usage(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Outcome{}, err
	}
	migrates, checkpoint, err := d.Migrates()
	if err != nil {
		return Outcome{}, err
	}
	switch o.Failed {
	case FailedBeforePEStop, FailedPEStop, FailedBeforeEpilog, FailedEpilog:
		// A job that ended in order to go on is not over because of what failed
		// after it.
		if migrates {
			o.Failed, o.Checkpoint = FailedMigrating, checkpoint
		}
	case FailedNone:
		// Without a failure of its own our shepherd ends with why the job did.
		told := o.Reason != "" && d.ours()
		if told {
			o.Reason = last
		}
		switch {
		case migrates:
			o.Failed, o.Checkpoint = FailedMigrating, checkpoint
		case o.Reason != "" && !told:
			o.Failed = FailedUnexpectedError
		case o.Usage != nil && o.Usage.Signal != 0:
			o.Failed = FailedAfterJob
			if !told {
				o.Reason = d.jobName() + " died through signal " + SignalName(o.Usage.Signal) +
					" (" + strconv.Itoa(o.Usage.Signal) + ")"
			}
		}
	}
	o.Blame = BlameOf(o.Failed)
	return o, nil
}

// Migrates reports whether the job ended in order to run again, and left a
// checkpoint to go on from. Our shepherd writes 1 or 0 into checkpointed, and an
// empty file is as good as none. Grid Engine's writes 1, or leaves the file empty.
func (d Dir) Migrates() (migrates, checkpoint bool, err error) {
	b, err := d.Read(FileCheckpointed)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, false, nil
	case err != nil:
		return false, false, err
	case len(b) == 0:
		return !d.ours(), false, nil
	}
	n, err := ParseNumber(b)
	return true, err == nil && n == 1, nil
}

// ours reports whether the shepherd of the run was our own, and execd too.
// Without a config nobody knows.
func (d Dir) ours() bool {
	c, err := d.Config()
	if err != nil {
		return false
	}
	_, own := c.Lookup(KeyFormat)
	_, foreign := c.Lookup(KeyForeign)
	return own && !foreign
}

// jobName returns "job 42.1" for a message, as far as config tells.
func (d Dir) jobName() string {
	c, err := d.Config()
	if err != nil {
		return "job"
	}
	job, err := c.Int(KeyJobID)
	if err != nil {
		return "job"
	}
	task, err := c.Int(KeyTaskID)
	if err != nil || task < 1 {
		task = 1 // no array
	}
	return "job " + ID{Job: job, Task: task}.String()
}
