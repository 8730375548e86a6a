package sandbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/job"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// The directory of a sandbox is execd's, and users pass through it: nobody else renames
// or replaces what is in it, so that what execd has made there stays what it is.
const modeOfSandbox = 0o711

// fileOurs in the place of sandboxes has the id of the spool whose they are: two execds
// never share one, and none takes the sandboxes of another for its own.
const fileOurs = ".paddock"

// check finds out whether sandboxes can be made in a directory.
func (m *Manager) check(place string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.places[place] {
		return nil
	}
	dir, err := m.open(place)
	if err != nil {
		return err
	}
	defer dir.Close()
	id, err := m.id()
	if err != nil {
		return err
	}
	path := filepath.Join(place, fileOurs)
	there, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := atomicfile.WriteDurable(path, []byte(id+"\n"), 0o600); err != nil {
			return fmt.Errorf("cannot use %s for sandboxes: %w", place, err)
		}
	case err != nil:
		return fmt.Errorf("cannot use %s for sandboxes: %w", place, err)
	case string(there) != id+"\n":
		return fmt.Errorf("cannot use %s for sandboxes: another execd does, as %s says", place, fileOurs)
	}
	if m.places == nil {
		m.places = map[string]bool{}
	}
	m.places[place] = true
	return nil
}

// id returns what tells the spool from all others. It is made when it is first asked for.
func (m *Manager) id() (string, error) {
	path := m.Root.Path(spool.FileID)
	data, err := os.ReadFile(path)
	if id := strings.TrimSuffix(string(data), "\n"); err == nil && id != "" {
		return id, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	id := rand.Text()
	return id, atomicfile.WriteDurable(path, []byte(id+"\n"), spool.ModeOf(spool.FileID))
}

// open opens a directory of sandboxes. It refuses one in which somebody else could rename
// what root makes there.
func (m *Manager) open(place string) (*os.File, error) {
	dir, err := os.OpenFile(place, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot use directory of sandboxes: %w", err)
	}
	var st unix.Stat_t
	err = unix.Fstat(int(dir.Fd()), &st)
	switch {
	case err != nil:
	case int(st.Uid) != os.Geteuid():
		err = fmt.Errorf("it belongs to uid %d", st.Uid)
	case st.Mode&0o022 != 0:
		err = errors.New("others may write to it")
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("cannot use %s for sandboxes: %w", place, err)
	}
	return dir, nil
}

// make makes a sandbox. What an execd before has made of it stays.
func (m *Manager) make(s *job.Sandbox, owner *user.User) error {
	place, err := m.open(filepath.Dir(s.Dir))
	if err != nil {
		return err
	}
	defer place.Close()
	dir, err := mkdir(place, filepath.Base(s.Dir))
	if err == nil {
		defer dir.Close()
		err = m.fill(dir, owner)
	}
	if err != nil {
		return fmt.Errorf("cannot make sandbox %s: %w", s.Dir, err)
	}
	return nil
}

func (m *Manager) fill(dir *os.File, owner *user.User) error {
	if err := isOwn(dir); err != nil {
		return err
	}
	for _, name := range []string{order.DirFiles, order.DirSay} {
		if err := m.makeOwners(dir, name, owner); err != nil {
			return err
		}
	}
	return dir.Chmod(modeOfSandbox)
}

func (m *Manager) makeOwners(dir *os.File, name string, owner *user.User) error {
	d, err := mkdir(dir, name)
	if err != nil {
		return err
	}
	defer d.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return err
	}
	if !m.Privileged || int(st.Uid) == owner.UID && int(st.Gid) == owner.GID {
		return nil
	}
	if err := isOwn(d); err != nil {
		return err
	}
	return d.Chown(owner.UID, owner.GID)
}

// mkdir makes a directory that is closed to others, unless it is there, and opens it.
func mkdir(parent *os.File, name string) (*os.File, error) {
	at := int(parent.Fd())
	if err := unix.Mkdirat(at, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	return openAt(parent, name)
}

func openAt(parent *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(parent.Name(), name)), nil
}

// isOwn refuses a directory that is not execd's.
func isOwn(dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to uid %d", filepath.Base(dir.Name()), st.Uid)
	}
	return nil
}

// isEmpty reports whether the run has left nothing in its sandbox.
func (m *Manager) isEmpty(s *job.Sandbox) (bool, error) {
	dir, err := openDir(filepath.Join(s.Dir, order.DirFiles))
	if err != nil {
		return false, err
	}
	defer dir.Close()
	_, err = dir.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// openDir opens a directory that nobody but execd can have made there.
func openDir(path string) (*os.File, error) {
	return os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// Remove removes the sandbox of a run. There may be none any more.
func (m *Manager) Remove(t *job.Task) error {
	if t.Start.Sandbox == nil {
		return nil
	}
	if err := m.remove(t.Start.Sandbox.Dir); err != nil {
		return fmt.Errorf("cannot remove sandbox %s: %w", t.Start.Sandbox.Dir, err)
	}
	return nil
}

// errBusy says that a worker has the sandbox, of an execd before this one.
var errBusy = errors.New("a transfer is under way")

func (m *Manager) remove(path string) error {
	dir, err := openDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := isOwn(dir); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(path, order.FileLock), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err == nil {
		defer lock.Close()
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return errBusy
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range []string{order.DirFiles, order.DirSay} {
		if err := m.clear(dir, name); err != nil {
			return err
		}
	}
	if err := unix.Unlinkat(int(dir.Fd()), order.FileLock, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return unix.Rmdir(path)
}

// clear removes one of the directories that belong to the owner of the job. Root does not
// look into it: rmdir follows nothing, and all else is done with the owner's rights.
func (m *Manager) clear(dir *os.File, name string) error {
	at := int(dir.Fd())
	err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return err
	}
	path := filepath.Join(dir.Name(), name)
	if !m.Privileged {
		return os.RemoveAll(path)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	m.Aside(func() { err = m.AsUser.Empty(int(st.Uid), int(st.Gid), strconv.Itoa(int(st.Gid)), path) })
	if err != nil {
		return err
	}
	return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
}

// Recover removes the sandboxes that no run has: a power cut may bring back one whose run
// was settled. It removes what is surely execd's alone, and tells of the rest. Call it
// before anything is started.
func (m *Manager) Recover() {
	used := map[string]bool{}
	for _, t := range m.Store.Unfinished() {
		if s := t.Start.Sandbox; s != nil {
			used[s.Dir] = true
		}
	}
	place := m.place()
	if err := m.check(place); err != nil {
		m.Log.Warn("execd: " + err.Error())
		return
	}
	names, err := os.ReadDir(place)
	if err != nil {
		m.Log.Warn(fmt.Sprintf("execd: cannot look for sandboxes: %v", err))
		return
	}
	for _, e := range names {
		path := filepath.Join(place, e.Name())
		if used[path] || e.Name() == fileOurs {
			continue
		}
		err := m.isLitter(place, e.Name())
		if err == nil {
			err = m.remove(path)
		}
		if err != nil {
			m.Log.Warn(fmt.Sprintf("execd: %s has no run, and is left alone: %v", path, err))
			continue
		}
		m.Log.Info(fmt.Sprintf("execd: sandbox %s had no run any more: removed", path))
	}
}

// isLitter refuses what execd may not have made, or does not own alone.
func (m *Manager) isLitter(place, name string) error {
	run, _, ok := parse(name)
	if !ok {
		return errors.New("it has no name of a sandbox")
	}
	if run.Job > m.Store.Last() {
		return errors.New("no job had that number")
	}
	var parent unix.Stat_t
	if err := unix.Stat(place, &parent); err != nil {
		return err
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, filepath.Join(place, name), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return errors.New("it is no directory")
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to uid %d", st.Uid)
	case st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, unix.Mkdev(st.Dev_major, st.Dev_minor) != parent.Dev:
		return errors.New("it is a mount point")
	}
	return nil
}
