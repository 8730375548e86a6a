package starter

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/internal/proc"
)

// fileOOM says how soon the kernel kills this process when memory runs out.
const fileOOM = "/proc/self/oom_score_adj"

// unprotect takes away the protection from being killed that an execd may have,
// and that everything it starts inherits: the job is what is to be killed. It
// is root's to do, whose number is also the least that a job can set again.
func unprotect(path string) error {
	var b [16]byte
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // without /proc nobody is protected
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, b[:])
	if err != nil || n <= 0 || b[0] != '-' {
		return nil //nolint:nilerr // nor if nobody can say so
	}
	if _, err := unix.Pwrite(fd, []byte("0\n"), 0); err != nil {
		return errors.New("cannot set oom_score_adj from " + strings.TrimSpace(string(b[:n])) + " to 0: " + errnoText(err))
	}
	return nil
}

// readSmall returns what is in a file that the kernel makes, without the last newline.
func readSmall(path string) (string, error) {
	b, err := proc.ReadFile(unix.AT_FDCWD, path, nil)
	return strings.TrimSuffix(string(b), "\n"), err
}
