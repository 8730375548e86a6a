package starter

import (
	"errors"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
	"paddock/spool/atomicfile"
)

// MaxWrite is the most that Append and Replace write, in bytes.
const MaxWrite = 1 << 20

// modeWritten is the mode of files that they make: a log is read by other
// programs of its user, who may narrow it afterwards.
const modeWritten = 0o644

// lockTime is how long Append waits for the lock on a file. Then it writes
// all the same: a record is one write at the file's end, which is whole without
// a lock on every local file system, and a process that never gives up its lock would
// otherwise lose its records and hold up those of others.
const lockTime = 3 * time.Second

// Append adds all that comes from a descriptor to the end of a file, in one
// write, and syncs it. The file is made if it is not there. A last line without
// an end, which a crash has left, is ended first. The path may be a link: it is
// followed with the rights of the user, who could do as much himself. But it
// must lead to a regular file: to open a pipe or a device may hang, or set
// something off. What does not fit is taken back. Call it with the rights of the
// user only.
func Append(from int, path string) error {
	data, err := readAll(from)
	if err != nil {
		return err
	}
	cannot := func(err error) error { return &writeError{"cannot append to " + strconv.Quote(path), err} }
	unix.Umask(0o022)
	const flags = unix.O_APPEND | unix.O_CREAT | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Open(path, unix.O_RDWR|flags, modeWritten)
	if errors.Is(err, unix.EACCES) {
		// He may have made it unreadable, even to himself.
		fd, err = unix.Open(path, unix.O_WRONLY|flags, modeWritten)
	}
	if err != nil {
		return cannot(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return cannot(err)
	}
	lock(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return cannot(err)
	}
	var last [1]byte
	if n, err := unix.Pread(fd, last[:], st.Size-1); st.Size > 0 && n == 1 && err == nil && last[0] != '\n' {
		data = append([]byte{'\n'}, data...)
	}
	n := 0
	err = ignoringEINTR(func() (err error) {
		n, err = unix.Write(fd, data)
		return err
	})
	if err == nil && n < len(data) {
		err = unix.ENOSPC
	}
	if err != nil {
		takeBack(fd, st.Size, n)
		return cannot(err)
	}
	if err := unix.Fsync(fd); err != nil {
		return cannot(err)
	}
	return nil
}

// writeError is that a file cannot be written.
type writeError struct {
	what string
	err  error
}

func (e *writeError) Error() string { return e.what + ": " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// Passing reports whether what Append or Replace could not write they may in a moment:
// the disk was full, or the host or a server lacked something.
func Passing(err error) bool {
	for _, errno := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.ESTALE} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return spool.Scarce(err)
}

// takeBack cuts off what was written of a record that did not fit, unless
// somebody has written behind it.
func takeBack(fd int, size int64, n int) {
	var st unix.Stat_t
	if n > 0 && unix.Fstat(fd, &st) == nil && st.Size == size+int64(n) {
		_ = unix.Ftruncate(fd, size)
	}
}

// lock locks a whole file for writing, or gives up after lockTime.
func lock(fd int) {
	// Of the open file, not of the process: that conflicts with the locks which
	// other programs take of a log, and goes with the descriptor.
	l := unix.Flock_t{Type: unix.F_WRLCK}
	for until := time.Now().Add(lockTime); ; time.Sleep(10 * time.Millisecond) {
		err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l)
		taken := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES)
		if !taken && !errors.Is(err, unix.EINTR) || time.Now().After(until) {
			return // also where the file system has no locks
		}
	}
}

// Replace puts all that comes from a descriptor into a file in the place of what
// was in it: who reads it finds all of the old or all of the new. A link is
// replaced, not followed; what is neither a link nor a regular file is left
// alone. Call it with the rights of the user only.
func Replace(from int, path string) error {
	data, err := readAll(from)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	err = unix.Lstat(path, &st)
	if kind := st.Mode & unix.S_IFMT; err == nil && kind != unix.S_IFREG && kind != unix.S_IFLNK {
		return errors.New("cannot write " + strconv.Quote(path) + ": not a regular file")
	}
	return atomicfile.WriteDurable(path, data, modeWritten)
}

// readAll reads a descriptor to its end.
func readAll(from int) ([]byte, error) {
	var data []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(from, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, errors.New("cannot read what is to be written: " + err.Error())
		case n == 0:
			return data, nil
		}
		if data = append(data, buf[:n]...); len(data) > MaxWrite {
			return nil, errors.New("cannot write more than " + strconv.Itoa(MaxWrite) + " bytes")
		}
	}
}
