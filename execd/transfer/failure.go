package main

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// failure is why something could not be done.
type failure struct {
	text      string
	errno     unix.Errno // 0: not known
	permanent bool       // a second attempt would fail as well
}

func (f *failure) Error() string { return f.text }

// fail returns that something cannot be done with a path of the user's. Whether it may
// pass is the error number's to say: what the user, the administrator or the disk would
// have to change does not pass by itself.
func fail(what, path string, err error) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	errno, _ := errors.AsType[unix.Errno](err)
	return &failure{fmt.Sprintf("cannot %s %s: %v", what, quote(path), err), errno, lasting[errno] || errors.Is(err, errMoved)}
}

// never returns a failure that no second attempt would mend.
func never(errno unix.Errno, format string, args ...any) error {
	return &failure{fmt.Sprintf(format, args...), errno, true}
}

// errTurn is that many bytes are to be moved, and it is not our turn. What was done until
// then is the beginning of the next attempt.
var errTurn = &failure{text: "it waits for its turn"}

var lasting = map[unix.Errno]bool{
	unix.EACCES: true, unix.EPERM: true, unix.EROFS: true,
	unix.ENOENT: true, unix.ENOTDIR: true, unix.EISDIR: true, unix.EEXIST: true, unix.ENOTEMPTY: true,
	unix.ENOSPC: true, unix.EDQUOT: true, unix.EFBIG: true, unix.EMLINK: true,
	unix.ENAMETOOLONG: true, unix.ELOOP: true, unix.EILSEQ: true, unix.EINVAL: true, unix.EXDEV: true,
	unix.ENODEV: true, unix.ENXIO: true, unix.EOVERFLOW: true, unix.EOPNOTSUPP: true,
}

// maxQuoted is how much of a path is shown.
const maxQuoted = 300

// quote returns a path for a message: names may have any bytes, and be long.
func quote(path string) string {
	if len(path) > maxQuoted {
		path = "..." + path[len(path)-maxQuoted:]
	}
	return strconv.Quote(path)
}
