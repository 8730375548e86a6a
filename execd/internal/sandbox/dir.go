package sandbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/job"
	"paddock/execd/internal/quota"
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
	dir, err := openPlace(place)
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

// Problems returns what hooks.conf says of sandboxes that cannot be used, and why.
func Problems(k *knob.Set) []knob.Problem { return append(pluginProblems(k), placeProblems(k)...) }

// placeProblems returns why the place of hooks.conf for sandboxes cannot be used: then no job is
// started.
func placeProblems(k *knob.Set) []knob.Problem {
	place, _ := k.Lookup(knobExecute)
	if place == "" {
		return nil
	}
	dir, err := openPlace(filepath.Clean(place))
	if err != nil {
		where := k.Get(knobExecute)
		return []knob.Problem{{File: where.File, Line: where.Line, Text: fmt.Sprintf("%s: %v", knobExecute, err)}}
	}
	dir.Close()
	return nil
}

// openPlace opens a directory of sandboxes. It refuses one in which somebody else could rename
// what root makes there.
func openPlace(place string) (*os.File, error) {
	if !filepath.IsAbs(place) {
		return nil, fmt.Errorf("cannot use directory of sandboxes: %q is no absolute path", place)
	}
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
	place, err := openPlace(filepath.Dir(s.Dir))
	if err != nil {
		return err
	}
	defer place.Close()
	m.useSpare(s, owner)
	dir, err := mkdir(place, filepath.Base(s.Dir))
	if err == nil {
		defer dir.Close()
		err = m.fill(dir, s.Project, owner)
	}
	if err != nil {
		return fmt.Errorf("cannot make sandbox %s: %w", s.Dir, err)
	}
	return nil
}

func (m *Manager) fill(dir *os.File, project uint32, owner *user.User) error {
	if err := isOwn(dir); err != nil {
		return err
	}
	if err := m.makeOwners(dir, order.DirFiles, project, owner); err != nil {
		return err
	}
	return dir.Chmod(modeOfSandbox)
}

// makeSay makes the directory in which the workers of a sandbox say what they have done.
// Most sandboxes of a large array need none.
func (m *Manager) makeSay(s *job.Sandbox, owner *user.User) error {
	dir, err := openDir(s.Dir)
	if err == nil {
		defer dir.Close()
		err = m.makeOwners(dir, order.DirSay, s.Project, owner)
	}
	if err != nil {
		return fmt.Errorf("cannot use sandbox %s: %w", s.Dir, err)
	}
	return nil
}

func (m *Manager) makeOwners(dir *os.File, name string, project uint32, owner *user.User) error {
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
	if project > 0 {
		if err := quota.Assign(d, project); err != nil {
			return err
		}
	}
	if err := atomicfile.Step(atomicfile.OpChmod, d.Name()); err != nil {
		return err
	}
	return d.Chown(owner.UID, owner.GID)
}

// mkdir makes a directory that is closed to others, unless it is there, and opens it.
func mkdir(parent *os.File, name string) (*os.File, error) {
	if err := atomicfile.Step(atomicfile.OpMkdir, filepath.Join(parent.Name(), name)); err != nil {
		return nil, err
	}
	if err := unix.Mkdirat(int(parent.Fd()), name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	return openAt(parent, name)
}

// openAt opens a directory, and nothing that its owner may have mounted there: root would
// wait for his file system.
func openAt(parent *os.File, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat2(int(parent.Fd()), name, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // Linux before 5.6, or a filter that does not know it
		fd, err = unix.Openat(int(parent.Fd()), name, flags, 0)
	}
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

// isEmpty reports whether a run has left nothing in its sandbox.
func isEmpty(box *os.File) (bool, error) {
	dir, err := openAt(box, order.DirFiles)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	return hasNothing(dir)
}

// hasNothing reports whether a directory is empty.
func hasNothing(dir *os.File) (bool, error) {
	_, err := dir.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// openDir opens a directory that nobody but execd can have made there.
func openDir(path string) (*os.File, error) {
	return os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}
