package main

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// signature is what changes when somebody writes to a file.
type signature struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func sign(st *unix.Stat_t) signature {
	return signature{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}
}

// maxChanges is how often a file is sent that changes meanwhile.
const maxChanges = 3

var errChanged = errors.New("it changed while it was sent")

// source is a file to be copied.
type source struct {
	dir    int
	name   string
	path   string // for messages; and what is opened, with follow
	follow bool   // the user has named it, and it may be a link
}

func (s source) open(stay bool) (int, error) {
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	if s.follow {
		return unix.Open(s.path, flags|unix.O_CLOEXEC, 0)
	}
	return openBeneath(s.dir, s.name, flags, 0, stay)
}

// look returns what a source is.
func (s source) look() (st unix.Stat_t, err error) {
	if s.follow {
		err = unix.Stat(s.path, &st)
		return st, err
	}
	return lstat(s.dir, s.name)
}

// copyFile copies a regular file to a name in a directory. st is what it was when it was
// found.
func (w *worker) copyFile(s source, st *unix.Stat_t, dir int, name string) error {
	if st.Nlink > 1 && w.links >= 0 {
		if done, err := w.linked(st, dir, name); done || err != nil {
			return err
		}
	}
	for range maxChanges {
		before := w.bytes.Load()
		err := w.copyOnce(s, dir, name)
		switch {
		case err == nil:
			w.files.Add(1)
			return w.keepLink(st, dir, name)
		case errors.Is(err, errChanged):
			w.bytes.Store(before)
		default:
			return fail("copy", s.path, err)
		}
	}
	return never(unix.ETXTBSY, "%s changed while it was sent", quote(s.path))
}

func (w *worker) copyOnce(s source, dir int, name string) error {
	from, err := s.open(w.stay)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return errChanged // it was a regular file a moment ago
	}
	if err != nil {
		return err
	}
	defer unix.Close(from)
	var before, after unix.Stat_t
	if err := unix.Fstat(from, &before); err != nil {
		return err
	}
	if kind(&before) != unix.S_IFREG {
		return errChanged
	}
	if w.resumes && had(dir, name, &before) {
		w.bytes.Add(volume(&before))
		return nil
	}
	to, err := create(dir, name, before.Mode&0o777)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if err := w.copyData(to, from, &before); err != nil {
		return err
	}
	if err := unix.Fstat(from, &after); err != nil {
		return err
	}
	if sign(&before) != sign(&after) {
		return errChanged
	}
	if err := setTime(to, &before); err != nil {
		return err
	}
	if w.syncs {
		w.waits.Store(syncTime)
		defer w.waits.Store(0)
		return unix.Fsync(to)
	}
	return nil
}

// had reports whether an earlier attempt has copied a file: its time is set when all of
// it is there.
func had(dir int, name string, want *unix.Stat_t) bool {
	got, err := lstat(dir, name)
	return err == nil && kind(&got) == unix.S_IFREG && got.Size == want.Size && got.Mtim == want.Mtim && got.Mode&0o777 == want.Mode&0o777
}

// create makes a file in the place of what is there.
func create(dir int, name string, mode uint32) (int, error) {
	for range maxChanges {
		fd, err := openBeneath(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, mode, false)
		if !errors.Is(err, unix.EEXIST) {
			return fd, err
		}
		if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return -1, err
		}
	}
	return -1, unix.EEXIST
}

// finish gives a file or directory the mode and the time of another.
func finish(fd int, st *unix.Stat_t) error {
	if err := unix.Fchmod(fd, st.Mode&0o777); err != nil {
		return err
	}
	return setTime(fd, st)
}

func setTime(fd int, st *unix.Stat_t) error {
	times := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, st.Mtim}
	if _, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// volume is how much of a file there is to copy: holes are none.
func volume(st *unix.Stat_t) int64 { return min(st.Size, st.Blocks*512) }

// copyData copies what a file has, without its holes. Where the file system can, both
// files have the same blocks afterwards.
func (w *worker) copyData(to, from int, st *unix.Stat_t) error {
	size := st.Size
	if size == 0 {
		return nil
	}
	if w.noClone && size <= small && volume(st) == size { // without holes
		for at := int64(0); at < size; {
			n, err := w.copyPart(to, from, at, size-at)
			if err != nil {
				return err
			}
			at += n
			w.add(n)
		}
		w.pace(size)
		return w.enough()
	}
	if !w.noClone {
		if unix.IoctlFileClone(to, from) == nil {
			w.bytes.Add(volume(st)) // as in the total: sizes of files with holes have no sum
			return nil
		}
		w.noClone = true
	}
	if err := unix.Ftruncate(to, size); err != nil {
		return err
	}
	behind := int64(0) // what the disk was not told to write yet
	return eachExtent(from, 0, size, func(at, end int64) error {
		for at < end {
			n, err := w.copyPart(to, from, at, min(end-at, w.portion()))
			if err != nil {
				return err
			}
			at += n
			w.add(n)
			if err := w.enough(); err != nil {
				return err
			}
			w.pace(n)
			if at-behind >= window { // so that the sync at the end is short
				_ = unix.SyncFileRange(to, behind, at-behind, unix.SYNC_FILE_RANGE_WRITE)
				behind = at
			}
		}
		return nil
	})
}

// eachExtent calls do with each part of a file from an offset on that is no hole.
func eachExtent(fd int, from, size int64, do func(at, end int64) error) error {
	for at := from; at < size; {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO):
			return nil // the rest is a hole
		case err != nil:
			data = at // no file system has to know its holes
		}
		end, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil || end > size {
			end = size
		}
		if err := do(data, end); err != nil {
			return err
		}
		at = end
	}
	return nil
}

const (
	small  = 64 << 10 // a file of which it is not asked where its holes are
	part   = 4 << 20  // most that is copied at once
	window = 16 << 20 // what the disk is told to write at once
)

// enough refuses more than the orders allow, if files have grown since they were added up.
func (w *worker) enough() error {
	if n := w.bytes.Load(); w.orders.Max > 0 && n > w.orders.Max {
		return w.tooMuch(n)
	}
	return nil
}

func (w *worker) tooMuch(n int64) error {
	return never(unix.EFBIG, "there are %d bytes or more to copy, and at most %d may be", n, w.orders.Max)
}

// copyPart copies some bytes, in the kernel if it can.
func (w *worker) copyPart(to, from int, at, n int64) (int64, error) {
	for !w.noRange {
		in, out := at, at
		done, err := unix.CopyFileRange(from, &in, to, &out, int(n), 0)
		switch {
		case err == nil && done > 0:
			return int64(done), nil
		case err == nil:
			return 0, errChanged // it is shorter by now
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EIO), errors.Is(err, unix.EFBIG):
			return 0, err
		default:
			w.noRange = true // two file systems, or an old kernel
		}
	}
	if w.buf == nil {
		w.buf = make([]byte, 256<<10)
	}
	got, err := unix.Pread(from, w.buf[:min(n, int64(len(w.buf)))], at)
	switch {
	case errors.Is(err, unix.EINTR):
		return 0, nil
	case err != nil:
		return 0, err
	case got == 0:
		return 0, errChanged
	}
	for done := 0; done < got; {
		n, err := unix.Pwrite(to, w.buf[done:got], at+int64(done))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
		done += max(n, 0)
	}
	return int64(got), nil
}

// copyLink copies a symbolic link, as it is.
func copyLink(from int, name, path string, dir int, as string) error {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(from, name, buf[:])
	if err != nil {
		return fail("read the link", path, err)
	}
	if err := makeLink(string(buf[:n]), dir, as); err != nil {
		return fail("copy the link", path, err)
	}
	if st, err := lstat(from, name); err == nil {
		setLinkTime(dir, as, st.Mtim)
	}
	return nil
}

// makeLink makes a symbolic link in the place of what is there.
func makeLink(target string, dir int, as string) error {
	err := unix.Symlinkat(target, dir, as)
	if errors.Is(err, unix.EEXIST) {
		var buf [unix.PathMax]byte
		if n, err := unix.Readlinkat(dir, as, buf[:]); err == nil && string(buf[:n]) == target {
			return nil
		}
		if err := unix.Unlinkat(dir, as, 0); err != nil {
			return err
		}
		err = unix.Symlinkat(target, dir, as)
	}
	return err
}

func setLinkTime(dir int, name string, mtime unix.Timespec) {
	times := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime}
	_ = unix.UtimesNanoAt(dir, name, times[:], unix.AT_SYMLINK_NOFOLLOW)
}

// A file that has several names has one at the destination, too, for all of them that
// are sent: the first is kept in a directory of its own under its number, on the disk
// and not in memory, since there may be any number of them.

func linkName(st *unix.Stat_t) string { return fmt.Sprintf("%x-%x", st.Dev, st.Ino) }

// linked gives a file that was copied already another name.
func (w *worker) linked(st *unix.Stat_t, dir int, name string) (bool, error) {
	first := linkName(st)
	if !had(w.links, first, st) {
		return false, nil
	}
	kept, _ := lstat(w.links, first)
	err := unix.Linkat(w.links, first, dir, name, 0)
	if errors.Is(err, unix.EEXIST) {
		if got, err := lstat(dir, name); err == nil && got.Ino == kept.Ino && got.Dev == kept.Dev {
			w.files.Add(1)
			return true, nil
		}
		if err := unix.Unlinkat(dir, name, 0); err != nil {
			return false, fail("replace", name, err)
		}
		err = unix.Linkat(w.links, first, dir, name, 0)
	}
	if err != nil {
		return false, nil // too many names: it is copied once more //nolint:nilerr
	}
	w.files.Add(1)
	return true, nil
}

// keepLink keeps a file that has other names.
func (w *worker) keepLink(st *unix.Stat_t, dir int, name string) error {
	if st.Nlink < 2 || w.links < 0 {
		return nil
	}
	first := linkName(st)
	err := unix.Linkat(dir, name, w.links, first, 0)
	if errors.Is(err, unix.EEXIST) {
		_ = unix.Unlinkat(w.links, first, 0)
		err = unix.Linkat(dir, name, w.links, first, 0)
	}
	if err != nil && !errors.Is(err, unix.EMLINK) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fail("link", name, err)
	}
	return nil
}
