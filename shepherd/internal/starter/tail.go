package starter

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// MaxTail is the most that Tail copies, in bytes.
const MaxTail = 64 << 10

// Tail copies the last bytes of a file, at most n of them and MaxTail, to a
// descriptor. The path may be a link, but must lead to a regular file: to open
// a pipe or a device may hang, or set something off. Call it with the rights of
// the user only.
func Tail(to int, path string, n int) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.New("cannot open " + strconv.Quote(path) + ": " + err.Error())
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errors.New("not a regular file")
	}
	b := make([]byte, min(max(n, 0), MaxTail))
	at, got := max(st.Size-int64(len(b)), 0), 0
	for err == nil && got < len(b) {
		n, err = unix.Pread(fd, b[got:], at+int64(got))
		if n <= 0 && err == nil {
			break
		}
		got += max(n, 0)
		if errors.Is(err, unix.EINTR) {
			err = nil
		}
	}
	if err != nil {
		return errors.New("cannot read " + strconv.Quote(path) + ": " + err.Error())
	}
	for b = b[:got]; len(b) > 0; {
		n, err := unix.Write(to, b)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return errors.New("cannot pass on what was read: " + err.Error())
		}
		b = b[max(n, 0):]
	}
	return nil
}
