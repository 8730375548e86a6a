package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/order"
)

// What another host has sent lies below the destination, if that is a directory, in
//
//	.paddock-ID.in.part
//
// and from there it is output as from a sandbox.

func (w *worker) besideName() string { return ".paddock-" + w.orders.ID + ".in.part" }

// enter makes that directory the one in which the job has worked.
func (w *worker) enter() (err error) {
	dir := w.path(w.orders.Beside)
	name := dir + "/" + w.besideName()
	const flags = unix.O_DIRECTORY | unix.O_CLOEXEC
	w.beside, err = unix.Open(dir, unix.O_RDONLY|flags, 0)
	if errors.Is(err, unix.EACCES) {
		w.beside, err = unix.Open(dir, unix.O_PATH|flags, 0) // it may be written to all the same
	}
	if err != nil {
		w.beside = -1
		if errors.Is(err, unix.ENOENT) && w.orders.Discard {
			return nil // so that nothing of it is there
		}
		return fail("open", dir, err)
	}
	fd, err := openDir(w.beside, w.besideName(), true)
	if errors.Is(err, unix.ENOENT) {
		if _, arrived := recorded(w.orders.ID); arrived || w.orders.Discard {
			return nil
		}
		u := w.orders.Unpack
		if u == nil {
			return &failure{quote(name) + " is gone: all of it is sent once more", unix.ENOENT, false}
		}
		// What was said to have come is not there.
		if err := unix.Unlinkat(order.Say, order.FileReceived+u.Part, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return fail("remove", order.FileReceived+u.Part, err)
		}
		if u.Look {
			return nil
		}
		if err = unix.Mkdirat(w.beside, w.besideName(), 0o700); err == nil {
			fd, err = openDir(w.beside, w.besideName(), true)
		}
	}
	if err != nil {
		return fail("make", name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || int(st.Uid) != os.Geteuid() {
		return never(unix.EACCES, "%s is not ours", quote(name))
	}
	return fail("open", name, unix.Dup3(fd, order.Files, unix.O_CLOEXEC))
}

// leave removes the directory when all of it is where it belongs.
func (w *worker) leave() error {
	if w.orders.Beside == "" || w.beside < 0 {
		return nil
	}
	return w.removeAll(w.beside, w.besideName())
}

// attach appends what has come of standard streams to the files of the user's.
func (w *worker) attach() error {
	for i := range w.orders.Send.Append {
		if err := w.attachOne(&w.orders.Send.Append[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) attachOne(a *order.Append) error {
	st, err := lstat(order.Files, a.From)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil // or an earlier attempt has done it
	case err == nil && kind(&st) != unix.S_IFREG:
		w.skip(&st, a.From)
		return nil
	}
	fd := -1
	if err == nil {
		fd, err = openBeneath(order.Files, a.From, unix.O_RDONLY|unix.O_NONBLOCK, 0, true)
	}
	if err != nil {
		return fail("open", a.From, err)
	}
	from := os.NewFile(uintptr(fd), a.From)
	defer from.Close()
	if err := unix.Fstat(fd, &st); err != nil {
		return fail("look at", a.From, err)
	}
	if err := w.attachFile(a, from, &st); err != nil {
		return err
	}
	return fail("remove", a.From, unix.Unlinkat(order.Files, a.From, 0))
}

func (w *worker) attachFile(a *order.Append, from *os.File, st *unix.Stat_t) error {
	path := w.path(a.To)
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_APPEND | unix.O_NOCTTY | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Open(path, flags, 0o644)
	if errors.Is(err, unix.EISDIR) {
		path += "/" + a.Name
		fd, err = unix.Open(path, flags, 0o644)
	}
	if err != nil {
		return fail("append to", path, err)
	}
	to := os.NewFile(uintptr(fd), path)
	defer to.Close()
	var there unix.Stat_t
	if err := unix.Fstat(fd, &there); err != nil {
		return fail("look at", path, err)
	}
	if kind(&there) == unix.S_IFREG {
		if err := w.behind(a, from, path, st, &there); err != nil {
			return err
		}
	}
	if st.Size > order.Brief && !w.orders.Turn {
		return errTurn
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return fail("append to", path, err)
			}
			w.beat.Add(1)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if err := to.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EROFS) {
		return fail("sync", path, err)
	}
	return nil
}

// behind passes over what an earlier attempt has appended, unless somebody else has written
// behind it: then all of it is.
func (w *worker) behind(a *order.Append, from *os.File, path string, st, there *unix.Stat_t) error {
	note := order.FileAppend + a.From[1:]
	var dev, ino uint64
	var was int64
	if _, err := fmt.Sscan(readSmall(order.Say, note), &dev, &ino, &was); err == nil && dev == there.Dev && ino == there.Ino {
		if done := there.Size - was; done > 0 && done <= st.Size && same(from, path, was, done) {
			_, err := from.Seek(done, io.SeekStart)
			return err
		} else if done == 0 {
			return nil
		}
	}
	return fail("write", note, writeSmall(order.Say, note, fmt.Sprintln(there.Dev, there.Ino, there.Size), true))
}

// same reports whether a file has at an offset what another begins with.
func same(of *os.File, path string, at, n int64) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	a, b := io.NewSectionReader(of, 0, n), io.NewSectionReader(f, at, n)
	bufs := [2][32 << 10]byte{}
	for left := n; left > 0; {
		one, two := bufs[0][:min(left, 32<<10)], bufs[1][:min(left, 32<<10)]
		if _, err := io.ReadFull(a, one); err != nil {
			return false
		}
		if _, err := io.ReadFull(b, two); err != nil || string(one) != string(two) {
			return false
		}
		left -= int64(len(one))
	}
	return true
}
