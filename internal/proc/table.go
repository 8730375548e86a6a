package proc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// A Table reads the processes of the host again and again, into buffers that it
// keeps.
type Table struct {
	Dir           int // descriptor of /proc
	entries, text []byte
}

// Open opens the table that is at a path, such as /proc.
func Open(path string) (*Table, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.New("cannot open " + path + ": " + err.Error())
	}
	return &Table{Dir: fd, entries: make([]byte, 32<<10), text: make([]byte, 4<<10)}, nil
}

// Close closes it.
func (t *Table) Close() { unix.Close(t.Dir) }

// List calls do with the number of every process, and the inode of its directory:
// another one is another process with the same number.
func (t *Table) List(do func(pid int, inode uint64)) error {
	return list(t.Dir, t.entries, func(inode uint64, _ byte, name []byte) {
		if name[0] >= '1' && name[0] <= '9' {
			do(int(Number(name)), inode)
		}
	})
}

// Stat returns what the kernel says of a process, and of one that has ended and
// nobody has waited for yet as well.
func (t *Table) Stat(pid int) (p Process, ok bool) {
	b, err := t.Read(strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, false
	}
	return parse(pid, b)
}

// Read returns what a file of the table holds, good until the next call.
func (t *Table) Read(name string) (b []byte, err error) {
	b, err = ReadFile(t.Dir, name, t.text)
	if cap(b) > cap(t.text) {
		t.text = b
	}
	return b, err
}

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
