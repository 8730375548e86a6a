package starter

import (
	"errors"
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
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return errors.New("cannot open " + strconv.Quote(path) + ": " + err.Error())
	}
	w := walk{fd: fd, path: []string{path}, root: unix.Geteuid() == 0}
	defer func() { unix.Close(w.fd) }()
	here, err := look(fd)
	if err != nil {
		return errors.New("cannot look at " + strconv.Quote(path) + ": " + err.Error())
	}
	w.up = []inode{here}
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
// it.
type walk struct {
	fd   int      // where we are
	root bool     // we have root's rights
	path []string // names from the start to here, for messages
	up   []inode  // what these are
	// pending are the names still to be removed in each directory from the
	// start to here. A name is in it until it is gone or given up.
	pending [][]string
	err     error
}

func (w *walk) failed(what, name string, err error) {
	if w.err == nil {
		w.err = errors.New("cannot " + what + " " + strconv.Quote(strings.Join(append(w.path, name), "/")) + ": " + err.Error())
	}
}

func (w *walk) all() {
	w.pending = [][]string{w.list()}
	for len(w.pending) > 0 {
		top := len(w.pending) - 1
		names := w.pending[top]
		if len(names) == 0 {
			if top == 0 || !w.leave() {
				return
			}
			continue
		}
		name := names[len(names)-1]
		w.pending[top] = names[:len(names)-1]
		err := w.unlink(name, 0)
		switch {
		case err == nil || errors.Is(err, unix.ENOENT):
		case errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) && w.isDir(name):
			// An empty one goes at once; a full one is entered.
			if err := w.unlink(name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
				w.enter(name)
			}
		default:
			w.failed("remove", name, err)
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
	fd, err := w.open(name)
	if err != nil {
		w.failed("open", name, err)
		return
	}
	here, err := look(fd)
	if start := w.up[0]; err == nil && (here.dev != start.dev || here.mount != start.mount) {
		err = unix.EXDEV
	}
	if err != nil {
		unix.Close(fd)
		w.failed("remove", name, err)
		return
	}
	unix.Close(w.fd)
	w.fd = fd
	w.path = append(w.path, name)
	w.up = append(w.up, here)
	w.pending = append(w.pending, w.list())
}

// open opens a directory here for reading, making it readable if its owner
// may.
func (w *walk) open(name string) (int, error) {
	const flags = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(w.fd, name, unix.O_RDONLY|flags, 0)
	if !errors.Is(err, unix.EACCES) {
		return fd, err
	}
	// By descriptor: the name may be a link by now.
	handle, perr := unix.Openat(w.fd, name, unix.O_PATH|flags, 0)
	if perr != nil {
		return -1, err
	}
	defer unix.Close(handle)
	if unix.Chmod("/proc/self/fd/"+strconv.Itoa(handle), 0o700) != nil {
		return -1, err
	}
	return unix.Openat(w.fd, name, unix.O_RDONLY|flags, 0)
}

// leave goes up and removes the directory that was just emptied. It reports
// whether up is where we came from.
func (w *walk) leave() bool {
	last := len(w.path) - 1
	name, want := w.path[last], w.up[last-1]
	fd, err := unix.Openat(w.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		w.failed("leave", "", err)
		return false
	}
	if here, err := look(fd); err != nil || here != want {
		unix.Close(fd)
		w.failed("leave", "", errors.New("it was moved meanwhile"))
		return false
	}
	unix.Close(w.fd)
	w.fd, w.path, w.up, w.pending = fd, w.path[:last], w.up[:last], w.pending[:last]
	if err := w.unlink(name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		w.failed("remove", name, err)
	}
	return true
}

// list returns the names here, to which nobody adds another if we are root.
func (w *walk) list() []string {
	if w.root {
		_ = unix.Fchown(w.fd, 0, 0) // unless the file system has no owners
		_ = unix.Fchmod(w.fd, 0o700)
	}
	var (
		names []string
		buf   = make([]byte, 32<<10)
	)
	for {
		n, err := unix.ReadDirent(w.fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			w.failed("read", "", err)
			return names
		}
		if n <= 0 {
			return names
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}
