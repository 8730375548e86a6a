package main

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/order"
)

// sum is what there is to be copied below a name.
type sum struct {
	bytes   int64
	files   int
	items   int  // as package pack counts them
	shared  int  // names of files that have several
	special bool // there is something in it that is not copied as it is
}

// scan adds up a file or directory and all below it.
func (w *worker) scan(from source, st *unix.Stat_t) (sum, error) {
	var s sum
	w.count(&s, st)
	if kind(st) != unix.S_IFDIR {
		return s, nil
	}
	return s, w.walk(from, func(_ int, _ string, st *unix.Stat_t) { w.count(&s, st) })
}

// walk calls do with all that is below a directory: with the directory that it is in, its
// name there and what it is.
func (w *worker) walk(from source, do func(dir int, name string, st *unix.Stat_t)) error {
	path := from.path
	fd, err := w.openTree(from)
	if err != nil {
		return fail("open", path, err)
	}
	t, err := newWalker(fd, w.stay)
	defer func() { t.close() }()
	if err != nil {
		return fail("look at", path, err)
	}
	for {
		name, err := t.next()
		if err != nil {
			return fail("read", path+"/"+string(t.path), err)
		}
		if name == "" {
			if t.depth() == 0 {
				return nil
			}
			if err := t.up(); err != nil {
				return fail("leave", path+"/"+string(t.path), err)
			}
			continue
		}
		st, err := lstat(t.fd, name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fail("look at", path+"/"+t.of(name), err)
		}
		do(t.fd, name, &st)
		if kind(&st) == unix.S_IFDIR && (identity{st.Dev, st.Ino}) != w.self {
			if err := t.down(name); err != nil {
				return fail("open", path+"/"+t.of(name), err)
			}
		}
	}
}

func (w *worker) count(s *sum, st *unix.Stat_t) {
	w.beat.Add(1)
	if st.Mode&(unix.S_ISUID|unix.S_ISGID|unix.S_ISVTX) != 0 {
		s.special = true
	}
	switch kind(st) {
	case unix.S_IFREG:
		s.files++
		s.items++
		s.bytes += volume(st)
		if st.Nlink > 1 {
			s.shared++
		}
	case unix.S_IFLNK:
		s.items++
	case unix.S_IFDIR:
		s.items += 2 // it is entered and left
	default:
		s.special = true
	}
}

// skip notes something that is neither a file nor a directory nor a link.
func (w *worker) skip(st *unix.Stat_t, path string) {
	w.result.Skipped++
	if len(w.result.Skips) < order.MaxSkips {
		w.result.Skips = append(w.result.Skips, kinds[kind(st)]+" "+quote(path))
	}
}

var kinds = map[uint32]string{
	unix.S_IFIFO: "pipe", unix.S_IFSOCK: "socket", unix.S_IFCHR: "device", unix.S_IFBLK: "device",
	unix.S_IFREG: "file", unix.S_IFDIR: "directory", unix.S_IFLNK: "link",
}

// copyName copies a name of a directory, and all below it, to a name of another. With
// staged, what of that was brought in and has not changed since is left out.
func (w *worker) copyName(s source, st *unix.Stat_t, dir int, name string, staged *table) error {
	w.beat.Add(1)
	switch kind(st) {
	case unix.S_IFREG:
		return w.copyFile(s, st, dir, name)
	case unix.S_IFLNK:
		return copyLink(s.dir, s.name, s.path, dir, name)
	case unix.S_IFDIR:
		return w.copyTree(s, dir, name, staged)
	}
	w.skip(st, s.path)
	return nil
}

// openTree opens a directory that is to be copied.
func (w *worker) openTree(s source) (int, error) {
	if s.follow {
		return unix.Open(s.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	return openDir(s.dir, s.name, w.stay)
}

// copyTree copies a directory. Directories that were brought in are made at the
// destination when there is something for them.
func (w *worker) copyTree(s source, dir int, name string, staged *table) error {
	fd, err := w.openTree(s)
	if err != nil {
		return fail("open", s.path, err)
	}
	c := copying{worker: w, start: s.path, as: name, table: staged}
	c.from, err = newWalker(fd, w.stay)
	defer func() { c.from.close() }()
	if err != nil {
		return fail("look at", s.path, err)
	}
	c.from.levels[0].spot = spotOf(s.path)
	if fd, err = unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return fail("open", s.path, err)
	}
	c.to, err = newCursor(fd, false)
	defer func() { c.to.close() }()
	if err != nil {
		return fail("look at", s.path, err)
	}
	return c.run()
}

// copying is a tree that is being copied. The place at the destination is the same as at
// the source, or above it as long as directories were not made yet.
type copying struct {
	*worker
	start string // path of the source's first directory
	as    string // name of the destination's, which begins one directory above
	from  *walker
	to    *cursor
	table *table // of what was brought in
}

// path returns the path of a name here, "": of the directory itself, for messages. A tree
// may be so deep that it would take longer to write the whole path of each of its files
// than to copy them.
func (c *copying) path(name string) string {
	if n := len(c.from.path); n > maxQuoted {
		return string(c.from.path[n-maxQuoted-1:]) + suffix(name)
	}
	return c.start + suffix(string(c.from.path)) + suffix(name)
}

func suffix(path string) string {
	if path == "" {
		return ""
	}
	return "/" + path
}

// staged reports whether a name here was brought in and has not changed since.
func (c *copying) staged(name string, st *unix.Stat_t) bool {
	return c.table != nil && c.table.has(c.from.spot(name), st)
}

func (c *copying) run() error {
	if err := c.entered(); err != nil {
		return err
	}
	for {
		name, err := c.from.next()
		if err != nil {
			return fail("read", c.path(""), err)
		}
		if name == "" {
			if err := c.leave(); err != nil {
				return err
			}
			if c.from.depth() == 0 {
				return nil
			}
			if err := c.from.up(); err != nil {
				return fail("leave", c.path(""), err)
			}
			continue
		}
		st, err := lstat(c.from.fd, name)
		switch {
		case errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return fail("look at", c.path(name), err)
		case identity{st.Dev, st.Ino} == c.self:
			continue
		case kind(&st) == unix.S_IFDIR:
			if err := c.from.down(name); err != nil {
				return fail("open", c.path(name), err)
			}
			if err := c.entered(); err != nil {
				return err
			}
			continue
		case c.staged(name, &st):
			c.beat.Add(1)
			continue
		}
		if err := c.follow(); err != nil {
			return err
		}
		if err := c.copyName(source{dir: c.from.fd, name: name, path: c.path(name)}, &st, c.to.fd, name, nil); err != nil {
			return err
		}
	}
}

// entered is called in a directory of the source.
func (c *copying) entered() error {
	c.beat.Add(1)
	if c.table.has(c.from.levels[c.from.depth()].spot, nil) {
		return nil
	}
	return c.follow()
}

// follow has the destination come to where the source is.
func (c *copying) follow() error {
	for c.to.depth() <= c.from.depth() {
		name := c.as
		if d := c.to.depth(); d > 0 {
			name = c.from.name(d)
		}
		if err := makeDir(c.to.fd, name); err != nil {
			return fail("make", c.path(""), err)
		}
		if err := c.to.down(name); err != nil {
			return fail("open", c.path(""), err)
		}
	}
	return nil
}

// leave gives the directory at the destination its mode, when all is in it.
func (c *copying) leave() error {
	if c.to.depth() <= c.from.depth() {
		return nil
	}
	var st unix.Stat_t
	err := unix.Fstat(c.from.fd, &st)
	if err == nil {
		err = finish(c.to.fd, &st)
	}
	if err == nil && c.syncs {
		err = unix.Fsync(c.to.fd)
	}
	if err != nil {
		return fail("finish", c.path(""), err)
	}
	if err := c.to.up(); err != nil {
		return fail("leave", c.path(""), err)
	}
	return nil
}

// makeDir makes a directory in the place of what is there, unless that is one, in which
// we may work.
func makeDir(dir int, name string) error {
	err := unix.Mkdirat(dir, name, 0o700)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	fd, err := openBeneath(dir, name, unix.O_PATH, 0, false)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch {
	case kind(&st) != unix.S_IFDIR:
		if err := unix.Unlinkat(dir, name, 0); err != nil {
			return err
		}
		return unix.Mkdirat(dir, name, 0o700)
	case st.Mode&0o700 != 0o700:
		// By descriptor: the name may be a link by now.
		return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), st.Mode&0o777|0o700)
	}
	return nil
}

// removeAll removes a name of a directory and all below it, however deep that is.
func (w *worker) removeAll(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err := makeDir(dir, name); err != nil { // so that we may read it
		return fail("remove", name, err)
	}
	fd, err := openDir(dir, name, true)
	if err != nil {
		return fail("remove", name, err)
	}
	t, err := newWalker(fd, true)
	defer func() { t.close() }()
	if err != nil {
		return fail("remove", name, err)
	}
	for {
		inner, err := t.next()
		if err != nil {
			return fail("remove", name, err)
		}
		w.beat.Add(1)
		if inner != "" {
			if unix.Unlinkat(t.fd, inner, 0) == nil {
				continue
			}
			if err := makeDir(t.fd, inner); err != nil {
				return fail("remove", inner, err)
			}
			if err := t.down(inner); err != nil {
				return fail("remove", inner, err)
			}
			continue
		}
		if t.depth() == 0 {
			break
		}
		left := t.name(t.depth())
		if err := t.up(); err != nil {
			return fail("remove", name, err)
		}
		if err := unix.Unlinkat(t.fd, left, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
			return fail("remove", left, err)
		}
	}
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fail("remove", name, err)
	}
	return nil
}
