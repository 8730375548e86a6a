package starter

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// RemoveContents removes everything in the directory path, but not the
// directory itself, which is not the user's. It follows no link, not even in
// path's last part, and stays on the directory's mount. It removes what it can and
// returns the first error. Call it with the rights of the user only, or as root for a
// directory of root's into which nothing can be moved from outside: who still has
// directories in it open is kept from adding to them.
func RemoveContents(path string) error {
	fd, err := openReadable(unix.AT_FDCWD, path)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return errors.New("cannot open " + strconv.Quote(path) + ": " + err.Error())
	}
	w := walk{fd: fd, root: unix.Geteuid() == 0}
	defer func() { unix.Close(w.fd) }()
	here, err := look(fd)
	if err != nil {
		return errors.New("cannot look at " + strconv.Quote(path) + ": " + err.Error())
	}
	w.arrive(path, here)
	w.all()
	return w.err
}

// inode is a directory, and the mount by which it was come to; 0: older than Linux
// 5.8, which does not tell.
type inode struct{ dev, ino, mount uint64 }

func look(fd int) (inode, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	var more unix.Statx_t
	_ = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &more)
	return inode{st.Dev, st.Ino, more.Mnt_id}, err
}

// walk removes a tree with one descriptor however deep it is, since its depth
// is its owner's to choose: it goes down by name and up by "..", and makes
// sure that up is where it came from, in case somebody moves directories under
// it. Nor does it keep more than some names, however many there are.
type walk struct {
	fd     int // where we are
	buf    [32 << 10]byte
	root   bool    // we have root's rights
	levels []level // from the start to here
	err    error
}

// level is a directory on the way from the start to where we are.
type level struct {
	inode
	name  string
	names []string        // that were read last, and not tried yet
	left  map[string]bool // that cannot be removed
	fewer bool            // some were removed since the directory was read from its beginning
}

// Bounds of what is kept in memory.
const (
	maxNamed = 32   // levels that keep the names which were read: further down they are read again
	maxLeft  = 1000 // names in a directory that cannot be removed, before it is given up
)

func (w *walk) failed(what, name string, err error) {
	if w.err == nil {
		var path []string
		for _, l := range w.levels {
			path = append(path, l.name)
		}
		w.err = errors.New("cannot " + what + " " + strconv.Quote(strings.Join(append(path, name), "/")) + ": " + err.Error())
	}
}

// leaves is failed for a name here that is left where it is.
func (w *walk) leaves(what, name string, err error) {
	w.failed(what, name, err)
	w.here().left[name] = true
}

func (w *walk) here() *level { return &w.levels[len(w.levels)-1] }

// arrive begins with a directory that is open now, to which nobody adds a name if we
// are root.
func (w *walk) arrive(name string, here inode) {
	if w.root {
		_ = unix.Fchown(w.fd, 0, 0) // unless the file system has no owners
		_ = unix.Fchmod(w.fd, 0o700)
	}
	w.levels = append(w.levels, level{inode: here, name: name, left: map[string]bool{}})
}

func (w *walk) all() {
	for {
		here := w.here()
		if len(here.names) == 0 && !w.read() {
			if len(w.levels) == 1 || !w.leave() {
				return
			}
			continue
		}
		name := here.names[len(here.names)-1]
		here.names = here.names[:len(here.names)-1]
		err := w.unlink(name, 0)
		switch {
		case err == nil:
			here.fewer = true
		case errors.Is(err, unix.ENOENT):
		case errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) && w.isDir(name):
			// An empty one goes at once; a full one is entered.
			if err := w.unlink(name, unix.AT_REMOVEDIR); err == nil {
				here.fewer = true
			} else if !errors.Is(err, unix.ENOENT) {
				w.enter(name)
			}
		default:
			w.leaves("remove", name, err)
		}
	}
}

// unlink removes a name here. A directory that its owner made unwritable is
// made writable again.
func (w *walk) unlink(name string, flags int) error {
	err := unix.Unlinkat(w.fd, name, flags)
	if errors.Is(err, unix.EACCES) && unix.Fchmod(w.fd, 0o700) == nil {
		err = unix.Unlinkat(w.fd, name, flags)
	}
	return err
}

func (w *walk) isDir(name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(w.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// enter goes down into name, or records why it cannot.
func (w *walk) enter(name string) {
	fd, err := openReadable(w.fd, name)
	if err != nil {
		w.leaves("open", name, err)
		return
	}
	here, err := look(fd)
	if start := w.levels[0]; err == nil && (here.dev != start.dev || here.mount != start.mount) {
		err = unix.EXDEV
	}
	if err != nil {
		unix.Close(fd)
		w.leaves("remove", name, err)
		return
	}
	if len(w.levels) > maxNamed {
		w.here().names = nil
	}
	unix.Close(w.fd)
	w.fd = fd
	w.arrive(name, here)
}

// openReadable opens a directory for reading, making it readable if its owner may.
func openReadable(at int, name string) (int, error) {
	const flags = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, unix.O_RDONLY|flags, 0)
	if !errors.Is(err, unix.EACCES) {
		return fd, err
	}
	// By descriptor: the name may be a link by now.
	handle, perr := unix.Openat(at, name, unix.O_PATH|flags, 0)
	if perr != nil {
		return -1, err
	}
	defer unix.Close(handle)
	if unix.Chmod("/proc/self/fd/"+strconv.Itoa(handle), 0o700) != nil {
		return -1, err
	}
	return unix.Openat(at, name, unix.O_RDONLY|flags, 0)
}

// leave goes up and removes the directory that was just emptied. It reports
// whether up is where we came from.
func (w *walk) leave() bool {
	last := len(w.levels) - 1
	fd, err := unix.Openat(w.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		w.failed("leave", "", err)
		return false
	}
	if up, err := look(fd); err != nil || up != w.levels[last-1].inode {
		unix.Close(fd)
		w.failed("leave", "", errors.New("it was moved meanwhile"))
		return false
	}
	unix.Close(w.fd)
	name := w.levels[last].name
	w.fd, w.levels = fd, w.levels[:last]
	if err := w.unlink(name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		w.leaves("remove", name, err)
	} else {
		w.here().fewer = true
	}
	return true
}

// read reads some names here and reports whether there are any: none is left but those
// that cannot be removed. Whoever reads a directory while names of it are removed may
// miss others, so that it is read again until nothing more goes.
func (w *walk) read() bool {
	here := w.here()
	for len(here.left) < maxLeft {
		n, err := unix.ReadDirent(w.fd, w.buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && n <= 0 && here.fewer:
			here.fewer = false
			_, err = unix.Seek(w.fd, 0, unix.SEEK_SET)
		case err == nil && n <= 0:
			return false
		}
		if err != nil {
			w.failed("read", "", err)
			return false
		}
		_, _, names := unix.ParseDirent(w.buf[:max(n, 0)], -1, nil)
		here.names = slices.DeleteFunc(names, func(name string) bool { return here.left[name] })
		if len(here.names) > 0 {
			return true
		}
	}
	return false
}
