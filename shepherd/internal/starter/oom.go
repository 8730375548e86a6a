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
	v, err := readSmall(path)
	if err != nil || !strings.HasPrefix(v, "-") {
		return nil // without /proc nobody is protected
	}
	if err := proc.WriteFile(unix.AT_FDCWD, path, "0\n"); err != nil {
		return errors.New("cannot set oom_score_adj from " + v + " to 0: " + errnoText(err))
	}
	return nil
}

// readSmall returns what is in a file that the kernel makes, without the last newline.
func readSmall(path string) (string, error) {
	b, err := proc.ReadFile(unix.AT_FDCWD, path, nil)
	return strings.TrimSuffix(string(b), "\n"), err
}
