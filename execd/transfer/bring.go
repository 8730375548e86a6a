package main

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/order"
)

// bring copies what the user has named into the sandbox, and notes what came. An attempt
// begins anew: what an earlier one has left is replaced.
func (w *worker) bring() error {
	var self unix.Stat_t
	if err := unix.Fstat(order.Files, &self); err != nil {
		return fail("look at", "the sandbox", err)
	}
	w.self = identity{self.Dev, self.Ino}
	for _, n := range w.orders.Bring {
		if order.Scheme(n.From) != "" {
			continue
		}
		s, st, err := w.input(n)
		if err != nil {
			return err
		}
		sum, err := w.scan(s, &st)
		if err != nil {
			return err
		}
		w.total.Add(sum.bytes)
	}
	if total := w.total.Load(); w.orders.Max > 0 && total > w.orders.Max {
		return w.tooMuch(total)
	}
	if err := w.turn(); err != nil {
		return err
	}
	if err := w.openLinks(); err != nil {
		return err
	}
	fetch := plugins{worker: w}
	for _, n := range w.orders.Bring {
		if err := w.bringOne(&fetch, n); err != nil {
			return err
		}
	}
	if err := fetch.flush(); err != nil {
		return err
	}
	if err := w.removeAll(order.Say, dirLinks); err != nil {
		return err
	}
	return w.note()
}

// dirLinks is below Say, for files with several names.
const dirLinks = "links"

func (w *worker) openLinks() error {
	err := w.removeAll(order.Say, dirLinks)
	if err == nil {
		err = unix.Mkdirat(order.Say, dirLinks, 0o700)
	}
	if err == nil {
		w.links, err = openDir(order.Say, dirLinks, true)
	}
	return fail("make", dirLinks, err)
}

// input finds what the user has named.
func (w *worker) input(n order.Named) (source, unix.Stat_t, error) {
	s := source{path: w.path(n.From), follow: true}
	var st unix.Stat_t
	if err := unix.Stat(s.path, &st); err != nil {
		return s, st, fail("read", s.path, err)
	}
	if k := kind(&st); k != unix.S_IFREG && k != unix.S_IFDIR {
		return s, st, never(unix.EINVAL, "cannot bring %s: it is a %s", quote(s.path), kinds[k])
	}
	return s, st, nil
}

// path returns a path of the user's.
func (w *worker) path(name string) string { return below(w.orders.Base, name) }

// below returns a path that may begin in a directory.
func below(dir, name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

func (w *worker) bringOne(fetch *plugins, n order.Named) error {
	isURL := order.Scheme(n.From) != ""
	var s source
	var st unix.Stat_t
	if !isURL {
		var err error
		if s, st, err = w.input(n); err != nil {
			return err
		}
	}
	place := n.Place()
	if err := w.makeParents(order.Files, place, nil); err != nil {
		return err
	}
	dir, last, err := openParent(order.Files, place)
	if err != nil {
		return fail("open", place, err)
	}
	defer unix.Close(dir)
	if kind(&st) != unix.S_IFDIR {
		if old, err := lstat(dir, last); err == nil && kind(&old) == unix.S_IFDIR {
			if err := w.removeAll(dir, last); err != nil {
				return err
			}
		}
	}
	if isURL {
		if err := unix.Unlinkat(dir, last, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return fail("replace", place, err)
		}
		top, err := os.Readlink("/proc/self/fd/" + itoa(order.Files))
		if err != nil {
			return fail("find", "the sandbox", err)
		}
		return fetch.add(item{url: n.From, local: top + "/" + place})
	}
	return w.copyName(s, &st, dir, last, nil)
}

// makeParents makes the directories that a name is in. like, if it is not nil, says of a
// path what its mode is to be.
func (w *worker) makeParents(dir int, name string, like func(path string) uint32) error {
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		mode := uint32(0o700)
		if like != nil {
			mode = like(name[:i])
		}
		parent, last, err := openParent(dir, name[:i])
		if err == nil {
			err = unix.Mkdirat(parent, last, mode|0o700)
			unix.Close(parent)
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fail("make", name[:i], err)
		}
	}
	return nil
}

// note writes down what is in the sandbox, by which Send knows later what is new: the
// last act, since a name that a file gets changes its signature.
func (w *worker) note() error {
	names := 0
	err := w.each(func(*walker, string, *unix.Stat_t) error { names++; return nil })
	if err != nil {
		return err
	}
	t, err := newTable(order.Say, names)
	if err == nil {
		defer t.close()
		err = w.each(func(at *walker, name string, st *unix.Stat_t) error {
			if kind(st) == unix.S_IFDIR {
				st = nil
			}
			return t.add(at.spot(name).entry(st))
		})
	}
	if err != nil {
		return fail("note in", order.FileInputs, err)
	}
	return nil
}

// each calls do with every name in the sandbox.
func (w *worker) each(do func(t *walker, name string, st *unix.Stat_t) error) error {
	fd, err := openDir(order.Files, ".", true)
	if err != nil {
		return fail("open", "the sandbox", err)
	}
	return walk(fd, spot{}, func(t *walker, name string, st *unix.Stat_t) error {
		w.beat.Add(1)
		return do(t, name, st)
	})
}

// walk calls do with every name below a directory, which it closes, where it is. The
// directory has a spot.
func walk(fd int, at spot, do func(t *walker, name string, st *unix.Stat_t) error) error {
	t, err := newWalker(fd, true)
	defer func() { t.close() }()
	t.levels[0].spot = at
	for err == nil {
		var name string
		if name, err = t.next(); err != nil {
			break
		}
		if name == "" {
			if t.depth() == 0 {
				return nil
			}
			err = t.up()
			continue
		}
		var st unix.Stat_t
		if st, err = lstat(t.fd, name); err != nil {
			break
		}
		if err = do(t, name, &st); err == nil && kind(&st) == unix.S_IFDIR {
			err = t.down(name)
		}
	}
	return fail("read", t.of(""), err)
}
