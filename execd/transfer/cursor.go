package main

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// identity is what a directory is known by while it may be moved.
type identity struct{ dev, ino uint64 }

func identify(fd int) (identity, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return identity{st.Dev, st.Ino}, err
}

// maxDepth is how deep a tree may be.
const maxDepth = 20000

// errMoved is that a directory is not where it was when it was entered.
var errMoved = errors.New("it was moved meanwhile")

// cursor is a place in a tree, with one descriptor however deep it is: the depth is its
// owner's to choose. It goes down by name and up by "..", and makes sure that up is where
// it came from.
type cursor struct {
	fd     int
	stay   bool // do not come to another mount
	path   []byte
	levels []place
}

// place is a directory on the way from the start, which has no name.
type place struct {
	identity
	path int // length of its path
	spot spot
}

// newCursor returns a place that begins at a directory, whose descriptor it owns from
// now on.
func newCursor(fd int, stay bool) (*cursor, error) {
	id, err := identify(fd)
	return &cursor{fd: fd, stay: stay, levels: []place{{identity: id}}}, err
}

func (c *cursor) close() { unix.Close(c.fd) }

// depth is 0 at the start.
func (c *cursor) depth() int { return len(c.levels) - 1 }

// name returns the name of the directory here, or of one above it.
func (c *cursor) name(depth int) string {
	from := c.levels[depth-1].path
	if from > 0 {
		from++
	}
	return string(c.path[from:c.levels[depth].path])
}

// of returns the path of a name here.
func (c *cursor) of(name string) string {
	if len(c.path) == 0 {
		return name
	}
	return string(c.path) + "/" + name
}

// spot returns the spot of a name here, if the start is the sandbox.
func (c *cursor) spot(name string) spot { return c.levels[c.depth()].spot.of(name) }

func (c *cursor) down(name string) error {
	if c.depth() >= maxDepth {
		return unix.ENAMETOOLONG
	}
	fd, err := openDir(c.fd, name, c.stay)
	if err != nil {
		return err
	}
	id, err := identify(fd)
	if err != nil {
		unix.Close(fd)
		return err
	}
	unix.Close(c.fd)
	if len(c.path) > 0 {
		c.path = append(c.path, '/')
	}
	c.path = append(c.path, name...)
	c.fd, c.levels = fd, append(c.levels, place{id, len(c.path), c.spot(name)})
	return nil
}

func (c *cursor) up() error {
	fd, err := unix.Openat(c.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	last := c.levels[len(c.levels)-2]
	if id, err := identify(fd); err != nil || id != last.identity {
		unix.Close(fd)
		return errMoved
	}
	unix.Close(c.fd)
	c.fd, c.levels, c.path = fd, c.levels[:len(c.levels)-1], c.path[:last.path]
	return nil
}

// walker goes through a tree in the order in which directories are read. It keeps a
// block of names of some levels, and further down the place where to read on.
type walker struct {
	cursor
	reads []reading
	buf   [16 << 10]byte
}

// reading is how far a directory was read.
type reading struct {
	names []dirent
	next  int64 // where to read on
}

type dirent struct {
	name string
	next int64
}

// maxNamed is how many levels keep names. Further down they are read again.
const maxNamed = 16

func newWalker(fd int, stay bool) (*walker, error) {
	c, err := newCursor(fd, stay)
	return &walker{cursor: *c, reads: make([]reading, 1)}, err
}

// next returns the next name here, "" at the end.
func (w *walker) next() (string, error) {
	here := &w.reads[len(w.reads)-1]
	for len(here.names) == 0 {
		n, err := unix.ReadDirent(w.fd, w.buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "", err
		}
		if n <= 0 {
			return "", nil
		}
		here.names = parse(here.names, w.buf[:n])
	}
	d := here.names[0]
	here.names, here.next = here.names[1:], d.next
	return d.name, nil
}

// parse reads directory entries, as getdents64 returns them.
func parse(names []dirent, b []byte) []dirent {
	names = names[:0]
	for len(b) >= 19 {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size < 19 || size > len(b) {
			break
		}
		name := b[19:size]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		if s := string(name); s != "." && s != ".." {
			names = append(names, dirent{s, int64(binary.NativeEndian.Uint64(b[8:]))})
		}
		b = b[size:]
	}
	return names
}

func (w *walker) down(name string) error {
	if err := w.cursor.down(name); err != nil {
		return err
	}
	if len(w.reads) > maxNamed {
		w.reads[len(w.reads)-1].names = nil
	}
	w.reads = append(w.reads, reading{})
	return nil
}

func (w *walker) up() error {
	if err := w.cursor.up(); err != nil {
		return err
	}
	w.reads = w.reads[:len(w.reads)-1]
	here := &w.reads[len(w.reads)-1]
	at := here.next
	if n := len(here.names); n > 0 {
		at = here.names[n-1].next
	}
	_, err := unix.Seek(w.fd, at, unix.SEEK_SET)
	return err
}
