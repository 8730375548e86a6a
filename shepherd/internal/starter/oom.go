package starter

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// fileOOM says how soon the kernel kills this process when memory runs out.
const fileOOM = "/proc/self/oom_score_adj"

// unprotect takes away the protection from being killed that an execd may have,
// and that everything it starts inherits: the job is what is to be killed. It
// is root's to do, whose number is also the least that a job can set again.
func unprotect(path string) error {
	v, err := readSmall(path)
	if err != nil || !strings.HasPrefix(v, "-") {
		return nil // without /proc nobody is protected
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte("0\n"))
		unix.Close(fd)
	}
	if err != nil {
		return errors.New("cannot set oom_score_adj from " + v + " to 0: " + errnoText(err))
	}
	return nil
}

// readSmall returns the beginning of a file that the kernel makes, without its
// newline.
func readSmall(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var b [4096]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(string(b[:n]), "\n"), nil
}
