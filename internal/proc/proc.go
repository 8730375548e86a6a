// Package proc is the table of processes, and what it takes to signal exactly
// those that were meant: which process a number stands for, what has ended, who
// descends from whom, and how a control group is killed. The shepherd imports it
// as execd does, so that it has nothing but the standard library and x/sys.
package proc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// list calls do with the inode, the kind (unix.DT_DIR, say) and the name of all
// that is in an open directory. The standard library does not tell the inode
// without another system call for each.
func list(fd int, buf []byte, do func(inode uint64, kind byte, name []byte)) error {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	for {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		for b := buf[:n]; len(b) > 0; {
			// struct linux_dirent64: inode, offset, length, type, name.
			inode, length := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint16(b[16:])
			name, _, _ := bytes.Cut(b[19:length], []byte{0})
			do(inode, b[18], name)
			b = b[length:]
		}
	}
}

// maxText bounds a file of /proc: status grows with the groups of a process, of
// which there may be 65536.
const maxText = 1 << 20

// ReadFile returns what a file below an open directory holds, in buf or in what
// buf had to grow to: the kernel says the size of its files only by ending them.
func ReadFile(dir int, name string, buf []byte) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for b := slices.Grow(buf[:0], 1<<10); ; {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		}
		b = b[:len(b)+n]
		if n == 0 || len(b) >= maxText {
			return b, nil
		}
	}
}

// Ends waits for the end of the process of a pidfd, and reports whether it came in
// time.
func Ends(pidfd int, limit time.Duration) bool {
	for end := time.Now().Add(limit); ; {
		left := max(time.Until(end).Milliseconds(), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(left))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n == 1
		}
	}
}
