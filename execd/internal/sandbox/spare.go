package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/job"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/user"
	"paddock/spool/atomicfile"
)

// A spare is a sandbox in which a run has left nothing, and which the next run of its owner
// gets. To make and remove two directories for each task is most of what an empty sandbox
// costs: the journal of the file system has to take each of them before a start is durable.
type spare struct {
	path     string
	uid, gid int
}

// maxSpares bounds how many there are. The oldest is removed when there is another one.
const maxSpares = 64

// spared begins the name of a spare. That of its last run comes after it.
const spared = ".spare-"

// save makes a spare of the sandbox of a run that is over, and reports whether it did.
// Without privileges a process of the run may be left that nobody finds, and which would
// write into the sandbox of the next one.
func (m *Manager) save(box *os.File, aside func(do func())) bool {
	path := box.Name()
	m.mu.Lock()
	limited := m.held[path] > 0
	m.mu.Unlock()
	if !m.Privileged || limited || strings.HasPrefix(filepath.Base(path), spared) {
		return false
	}
	s, err := asMade(box)
	if err != nil {
		return false
	}
	s.path = filepath.Join(filepath.Dir(path), spared+filepath.Base(path))
	if err := atomicfile.RenameNew(path, s.path); err != nil {
		return false
	}
	m.mu.Lock()
	var oldest string
	if m.spares = append(m.spares, s); len(m.spares) > maxSpares {
		oldest, m.spares = m.spares[0].path, m.spares[1:]
	}
	m.mu.Unlock()
	if oldest != "" {
		m.try(oldest, aside)
	}
	return true
}

// useSpare makes a spare the sandbox of a run, if there is one.
func (m *Manager) useSpare(s *job.Sandbox, owner *user.User) {
	if s.Project > 0 || s.Kept {
		return
	}
	path := m.takeSpare(filepath.Dir(s.Dir), owner)
	if path == "" {
		return
	}
	box, err := openDir(path)
	if err == nil {
		_, err = asMade(box)
		box.Close()
	}
	if err == nil {
		err = atomicfile.RenameNew(path, s.Dir)
	}
	if err != nil { // what it was kept for makes a new one
		m.Later(0, func() { m.try(path, alone) })
	}
}

// takeSpare returns a spare of a user in a place, which is nobody's any more; empty: there is
// none.
func (m *Manager) takeSpare(place string, owner *user.User) (path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.spares, func(s spare) bool {
		return s.uid == owner.UID && s.gid == owner.GID && filepath.Dir(s.path) == place
	})
	if i >= 0 {
		path = m.spares[i].path
		m.spares = slices.Delete(m.spares, i, i+1)
	}
	return path
}

// asMade returns whose a sandbox is. It refuses one that is not as it was made.
func asMade(box *os.File) (spare, error) {
	if names, err := box.Readdirnames(2); err != nil || len(names) != 1 || names[0] != order.DirFiles {
		return spare{}, fmt.Errorf("%s has %q: %w", box.Name(), names, err)
	}
	dir, err := openAt(box, order.DirFiles)
	if err != nil {
		return spare{}, err
	}
	defer dir.Close()
	var st unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st); err != nil {
		return spare{}, err
	}
	_, acl := unix.Fgetxattr(int(dir.Fd()), "system.posix_acl_default", nil)
	switch empty, err := hasNothing(dir); {
	case st.Mode != unix.S_IFDIR|0o700, st.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0, acl == nil:
		return spare{}, errors.New("its owner has changed it")
	case err != nil:
		return spare{}, err
	case !empty:
		return spare{}, errors.New("it is not empty")
	}
	return spare{uid: int(st.Uid), gid: int(st.Gid)}, nil
}
