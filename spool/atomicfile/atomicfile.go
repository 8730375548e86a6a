// Package atomicfile is the only code that creates, replaces and removes files
// of a spool: whole or not at all, with the mode that was asked for whatever
// the umask is, and synced when the caller's promise needs it. It may be
// imported by everything that owns files on disk: spool, shepherd and execd.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Options of WriteOwned.
type Options struct {
	UID, GID int  // the owner and group of the file; -1 keeps the process's
	Durable  bool // as WriteDurable
}

// keepOwner leaves owner and group alone.
var keepOwner = Options{UID: -1, GID: -1}

// Write replaces the content of a file, or creates it: whoever opens the path
// finds all of the old content or all of the new. After a power cut it may be
// the old, or nothing.
func Write(path string, data []byte, perm fs.FileMode) error {
	return WriteOwned(path, data, perm, keepOwner)
}

// WriteDurable is Write that returns only when the new content would survive a
// power cut.
func WriteDurable(path string, data []byte, perm fs.FileMode) error {
	o := keepOwner
	o.Durable = true
	return WriteOwned(path, data, perm, o)
}

// WriteOwned is Write or WriteDurable for a file of another owner.
func WriteOwned(path string, data []byte, perm fs.FileMode, o Options) error {
	f, err := writeTemp(path, data, perm, o)
	if err != nil {
		return cannot("write", path, err)
	}
	if o.Durable {
		err = sync(f)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		discard(f.Name())
		return cannot("write", path, err)
	}
	if err := rename(f.Name(), path, 0); err != nil {
		discard(f.Name())
		return cannot("write", path, err)
	}
	if o.Durable {
		if err := syncDir(dirOf(path)); err != nil {
			return cannot("write", path, err)
		}
	}
	return nil
}

// writeTemp writes the data to a new file beside path, with mode and owner.
// No deferred clean-up here and in the callers: a crash that a test injects
// must leave behind what a real one would.
func writeTemp(path string, data []byte, perm fs.FileMode, o Options) (*os.File, error) {
	f, err := createTemp(path)
	if err != nil {
		return nil, err
	}
	err = write(f, data)
	if err == nil && (o.UID != -1 || o.GID != -1) {
		err = f.Chown(o.UID, o.GID)
	}
	if err == nil {
		// Last, since chown clears set-id bits.
		err = f.Chmod(perm)
	}
	if err != nil {
		f.Close()
		discard(f.Name())
		return nil, err
	}
	return f, nil
}

// tempMark is in the names of temporary files, which start with a dot.
const tempMark = ".tmp-"

var tempCount atomic.Uint64

// IsTemp reports whether a name is that of a temporary file of this package.
// Without a living writer it is a left-over of a crash.
func IsTemp(name string) bool {
	return strings.HasPrefix(name, ".") && strings.Contains(name, tempMark)
}

func createTemp(path string) (*os.File, error) {
	dir, base := split(path)
	if err := Step(OpCreate, path); err != nil {
		return nil, err
	}
	prefix := dir + "." + base + tempMark + strconv.Itoa(os.Getpid()) + "-"
	for {
		name := prefix + strconv.FormatUint(tempCount.Add(1), 10)
		f, err := open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		// A process of the same number died here before.
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		return f, err
	}
}

// Create creates a file that must not exist yet, open for appending. It costs
// a fraction of Write, and is right for files whose readers expect them to
// grow, or do not look before another file says so.
func Create(path string, perm fs.FileMode) (*os.File, error) {
	if err := Step(OpCreate, path); err != nil {
		return nil, cannot("create", path, err)
	}
	f, err := open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return nil, cannot("create", path, err)
	}
	if err := f.Chmod(perm); err != nil {
		f.Close()
		return nil, cannot("create", path, err)
	}
	return f, nil
}

// Refill opens a file to append to it, as Create does, which must not exist yet, or be a plain one
// of ours, empty and without another name. Others may have rights to that.
func Refill(path string, perm fs.FileMode) (*os.File, error) {
	fd, err := openEmpty(path, ours)
	switch {
	case err == nil:
		if err := unix.SetNonblock(fd, false); err != nil { // as in open
			return nil, cannot("open", path, errors.Join(err, unix.Close(fd)))
		}
		return os.NewFile(uintptr(fd), path), nil
	case !errors.Is(err, unix.ENOENT):
		return nil, cannot("create", path, err)
	}
	return Create(path, perm)
}

// WriteNew creates a file with its content, which must not exist yet, or be
// our own, empty and of the same mode: then it is filled, which spares the file
// system to find a new inode. Readers may see it before it is whole.
func WriteNew(path string, data []byte, perm fs.FileMode) error {
	fd, err := openEmpty(path, oursAlone(perm))
	switch {
	case err == nil:
		err = errors.Join(fill(fd, path, data), unix.Close(fd))
		if err != nil {
			return cannot("write", path, err)
		}
		return nil
	case !errors.Is(err, unix.ENOENT):
		return cannot("create", path, err)
	}
	f, err := Create(path, perm)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f, data), f.Close()); err != nil {
		return cannot("write", path, err)
	}
	return nil
}

// openEmpty opens a file without content that may be filled. It stays a plain descriptor:
// package os would take O_NONBLOCK for a reason to set up its poller.
func openEmpty(path string, may func(*unix.Stat_t) bool) (int, error) {
	// O_NONBLOCK: a pipe in the place of the file must not hold us. On a file
	// it means nothing, and stays.
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if errors.Is(err, unix.ENOENT) {
		return -1, err
	}
	if err != nil { // a link, a directory, a pipe without a reader
		return -1, unix.EEXIST
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Size > 0 || !may(&st)) {
		err = unix.EEXIST
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// fill writes all the data to an empty file, or leaves it empty.
func fill(fd int, path string, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if err := Step(OpWrite, path); err != nil {
		return err
	}
	for rest := data; len(rest) > 0; {
		n, err := unix.Write(fd, rest)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return errors.Join(err, unix.Ftruncate(fd, 0))
		}
		rest = rest[max(n, 0):]
	}
	return nil
}

// ours reports whether a file is a plain one of ours, without another name.
func ours(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink == 1 && int(st.Uid) == unix.Geteuid()
}

// oursAlone is ours for a file that has a mode as well.
func oursAlone(perm fs.FileMode) func(*unix.Stat_t) bool {
	return func(st *unix.Stat_t) bool { return ours(st) && st.Mode == unix.S_IFREG|uint32(perm) }
}

// Empty takes all content from a file that is a plain one of ours with a mode, and without
// another name, and reports whether it was.
func Empty(path string, perm fs.FileMode) (bool, error) {
	return takeContent(path, oursAlone(perm))
}

// EmptyShared is Empty for a file to which others may have rights.
func EmptyShared(path string) (bool, error) { return takeContent(path, ours) }

func takeContent(path string, may func(*unix.Stat_t) bool) (bool, error) {
	if err := Step(OpWrite, path); err != nil {
		return false, cannot("empty", path, err)
	}
	f, err := open(path, unix.O_WRONLY, 0)
	if err != nil {
		return false, cannot("empty", path, err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, cannot("empty", path, err)
	}
	if !may(&st) {
		return false, nil
	}
	if st.Size > 0 {
		if err := f.Truncate(0); err != nil {
			return false, cannot("empty", path, cause(err))
		}
	}
	return true, nil
}

// OpenAppend opens a file for appending and creates it if there is none. An
// existing file keeps its mode. Anything but a regular file is refused, links
// included.
func OpenAppend(path string, perm fs.FileMode) (*os.File, error) {
	for {
		f, err := openExisting(path)
		if !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return nil, cannot("open", path, err)
			}
			return f, nil
		}
		f, err = Create(path, perm)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// ErrNotRegular means that a path leads to a directory, device or pipe where a
// file should be.
var ErrNotRegular = errors.New("not a regular file")

func openExisting(path string) (*os.File, error) {
	// O_NONBLOCK: a pipe in the place of the file must not hold us.
	f, err := open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR) {
			err = ErrNotRegular
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Append appends the data to a file, which is created if there is none. What a
// failed write left behind is cut off again, so that the next line starts
// where a line starts; this needs that the file has one writer.
func Append(path string, data []byte, perm fs.FileMode) error {
	f, err := OpenAppend(path, perm)
	if err != nil {
		return err
	}
	err = AppendTo(f, data)
	if err := errors.Join(err, f.Close()); err != nil {
		return cannot("append to", path, err)
	}
	return nil
}

// AppendTo is Append for an open file.
func AppendTo(f *os.File, data []byte) error {
	before, err := f.Stat()
	if err != nil {
		return err
	}
	if err := write(f, data); err != nil {
		if after, serr := f.Stat(); serr == nil && after.Size() > before.Size() {
			err = errors.Join(err, f.Truncate(before.Size()))
		}
		return err
	}
	return nil
}

// Mkdir creates a directory with a mode that the umask does not change.
func Mkdir(path string, perm fs.FileMode) error {
	if err := Step(OpMkdir, path); err != nil {
		return cannot("create directory", path, err)
	}
	// Closed until it has its mode: umask can only take away.
	if err := retry(func() error { return unix.Mkdir(path, 0o700) }); err != nil {
		return cannot("create directory", path, err)
	}
	return Chmod(path, -1, -1, perm)
}

// Chmod gives a file or directory its owner, group and mode, unless they are
// so already. -1 keeps an owner or group. Links are refused.
func Chmod(path string, uid, gid int, perm fs.FileMode) error {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return cannot("open", path, err)
	}
	// A plain descriptor: package os would set up its poller for one that was
	// opened with O_NONBLOCK.
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return cannot("stat", path, err)
	}
	changed := uid != -1 && uint32(uid) != st.Uid || gid != -1 && uint32(gid) != st.Gid
	if changed {
		if err := Step(OpChmod, path); err != nil {
			return cannot("change owner of", path, err)
		}
		if err := unix.Fchown(fd, uid, gid); err != nil {
			return cannot("change owner of", path, err)
		}
	}
	if changed || fs.FileMode(st.Mode&0o7777) != perm {
		if err := Step(OpChmod, path); err != nil {
			return cannot("change mode of", path, err)
		}
		if err := unix.Fchmod(fd, uint32(perm.Perm())); err != nil {
			return cannot("change mode of", path, err)
		}
	}
	return nil
}

// Rename renames a file or directory, in place of a file that has the new
// name.
func Rename(oldpath, newpath string) error {
	if err := rename(oldpath, newpath, 0); err != nil {
		return cannot("rename", oldpath, err)
	}
	return nil
}

// RenameNew renames a file or directory to a name that must be free; else the
// error matches fs.ErrExist.
func RenameNew(oldpath, newpath string) error {
	err := rename(oldpath, newpath, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// A file system that knows no such flag (NFS). The directory is our
		// own, so nobody takes the name in between.
		var st unix.Stat_t
		if err = unix.Lstat(newpath, &st); err == nil {
			err = unix.EEXIST
		} else if errors.Is(err, unix.ENOENT) {
			err = retry(func() error { return unix.Rename(oldpath, newpath) })
		}
	}
	if err != nil {
		return cannot("rename", oldpath, err)
	}
	return nil
}

func rename(oldpath, newpath string, flags uint) error {
	if err := Step(OpRename, newpath); err != nil {
		return err
	}
	return retry(func() error {
		return unix.Renameat2(unix.AT_FDCWD, oldpath, unix.AT_FDCWD, newpath, flags)
	})
}

// Remove removes a file, or a directory that is empty. That there is none is
// no error.
func Remove(path string) error {
	if err := Step(OpRemove, path); err != nil {
		return cannot("remove", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cannot("remove", path, cause(err))
	}
	return nil
}

// RemoveAll removes a file, or a directory with all that is in it, without
// following links. That there is none is no error.
func RemoveAll(path string) error {
	fd, err := openDir(path)
	if err == nil {
		d := os.NewFile(uintptr(fd), path)
		names, err := d.Readdirnames(-1)
		if err = errors.Join(err, d.Close()); err != nil {
			return cannot("remove", path, cause(err))
		}
		for _, name := range names {
			// One step each, so that tests stop in the middle.
			if err := Step(OpRemove, path+"/"+name); err != nil {
				return cannot("remove", path, err)
			}
			if err := os.RemoveAll(path + "/" + name); err != nil {
				return cannot("remove", path, cause(err))
			}
		}
	}
	return Remove(path)
}

// SyncDir returns when the names in a directory are on disk.
func SyncDir(path string) error {
	if err := syncDir(path); err != nil {
		return cannot("sync", path, err)
	}
	return nil
}

func syncDir(path string) error {
	fd, err := openDir(path)
	if err != nil {
		return err
	}
	err = Step(OpSync, path)
	if err == nil {
		err = retry(func() error { return unix.Fsync(fd) })
	}
	return errors.Join(err, unix.Close(fd))
}

// sync syncs all of a file, its mode and owner included.
func sync(f *os.File) error {
	return onFD(f, unix.Fsync)
}

// syncData syncs the content of a file and what is needed to find it.
func syncData(f *os.File) error {
	return onFD(f, unix.Fdatasync)
}

func onFD(f *os.File, call func(fd int) error) error {
	if err := Step(OpSync, f.Name()); err != nil {
		return err
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := conn.Control(func(fd uintptr) {
		serr = retry(func() error { return call(int(fd)) })
	}); err != nil {
		return os.ErrClosed // all that Control itself can find, in words of its own
	}
	return serr
}

func write(f *os.File, data []byte) error {
	if err := Step(OpWrite, f.Name()); err != nil {
		return err
	}
	_, err := f.Write(data)
	return cause(err)
}

// discard removes a temporary file after a failure that is reported already.
func discard(path string) { _ = unix.Unlink(path) }

// open opens without following a link in the last place. The plain system call
// spares small processes the set-up of Go's poller.
func open(path string, flags int, perm uint32) (*os.File, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(path, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	if flags&unix.O_NONBLOCK != 0 {
		if err := unix.SetNonblock(fd, false); err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func openDir(path string) (int, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR { //nolint:errorlint // a bare number here, and the hot path
			return err
		}
	}
}

// split cuts a path behind its last slash.
func split(path string) (dir, base string) {
	i := strings.LastIndexByte(path, '/')
	return path[:i+1], path[i+1:]
}

func dirOf(path string) string {
	dir, _ := split(path)
	if dir == "" {
		return "."
	}
	return dir
}

// cause strips what package os says about operation and path: our own errors
// say it already.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// opError reads `cannot verb "path": cause`.
type opError struct {
	verb, path string
	err        error
}

func (e *opError) Error() string {
	return "cannot " + e.verb + " " + strconv.Quote(e.path) + ": " + e.err.Error()
}

func (e *opError) Unwrap() error { return e.err }

func cannot(verb, path string, err error) error {
	return &opError{verb: verb, path: path, err: err}
}
