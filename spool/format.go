package spool

import (
	"errors"
	"io/fs"
	"strconv"

	"paddock/spool/atomicfile"
)

// RootFormat is the number of the format of the spool as a whole: of its
// directories and of what their names mean. Records and job directories have
// numbers of their own; with each of them this one is raised, which execd -t looks at before
// another version is started. Format 2 has runs with sandboxes and on other hosts, which an
// execd of format 1 would start anew, and forget, and leases that shepherds enforce, which it would not
// renew; what it has left is read.
const RootFormat = 2

// ErrFormat is matched when a spool is of another format than RootFormat.
var ErrFormat = errors.New("format not supported")

// CheckFormat returns an error that matches ErrFormat when an execd of a later
// format has used the spool. One without a number is of format 1. Any other
// error means that the number cannot be read.
func (r *Root) CheckFormat() error {
	data, err := ReadFile(r.Path(FileFormat), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	n := 0
	if err == nil {
		n, err = ParseNumber(data)
	}
	if err != nil {
		return cannot("read format of spool", r.path, err)
	}
	if n < 1 || n > RootFormat {
		return cannot("use spool", r.path, &formatError{n})
	}
	return nil
}

// MarkFormat writes the number for execds to come, unless it is there.
func (r *Root) MarkFormat() error {
	if data, err := ReadFile(r.Path(FileFormat), maxFile); err == nil {
		if n, err := ParseNumber(data); err == nil && n == RootFormat {
			return nil
		}
	}
	return atomicfile.WriteDurable(r.Path(FileFormat), AppendNumber(nil, RootFormat), ModeOf(FileFormat))
}

type formatError struct{ has int }

func (e *formatError) Error() string {
	return ErrFormat.Error() + ": the spool has " + strconv.Itoa(e.has) + ", this execd uses " + strconv.Itoa(RootFormat)
}

func (e *formatError) Unwrap() error { return ErrFormat }
