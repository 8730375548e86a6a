package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/sandbox/order"
	"paddock/internal/backoff"
	"paddock/spool/atomicfile"
)

// cleans are the pauses before attempts at removing what could not be removed: what was
// killed may still have written there a moment ago, but what its owner has made immutable,
// or has mounted there, may stay for ever.
var cleans = backoff.Doubling{First: time.Second, Most: 24 * time.Hour}

// left is a directory in the place of sandboxes that no run has any more.
type left struct {
	why   string // what was in the way
	tries int    // how often it could not be removed
	alone bool   // nobody tries
	waits bool   // for the next attempt
}

// Remove removes the sandbox of a run that needs it no more. There may be none. What
// cannot be removed now is tried again later, and its job does not wait for that.
func (m *Manager) Remove(t *job.Task) {
	if s := t.Start.Sandbox; s != nil {
		m.shut(t)
		m.try(s.Dir, m.Aside)
	}
}

// Left returns the directories in the place of sandboxes that no run has any more.
func (m *Manager) Left() (all []api.SandboxStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(m.left)) {
		l := m.left[path]
		s := api.SandboxStatus{Dir: path, State: api.SandboxLeft, Tries: l.tries, Error: l.why}
		if l.alone {
			s.State = api.SandboxAlone
		}
		all = append(all, s)
	}
	return all
}

// Unbox removes a sandbox that was kept for a run that will not be.
func (m *Manager) Unbox(s *job.Sandbox) {
	m.Later(0, func() { m.try(s.Dir, alone) })
}

// try removes a directory that no run has any more, or has it tried again later. What the
// owner may hold up is done by aside.
func (m *Manager) try(path string, aside func(do func())) {
	err := m.remove(path, aside)
	if err == nil && m.out.remove(path) {
		m.Changed()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.left[path]
	if err == nil {
		if l != nil && !strings.HasPrefix(filepath.Base(path), spared) {
			m.Log.Info(fmt.Sprintf("execd: sandbox %s is removed", path))
		}
		delete(m.left, path)
		m.free(path)
		return
	}
	if l == nil {
		l = m.leave(path)
	}
	l.why = err.Error()
	l.tries++
	after := cleans.After(l.tries)
	m.Log.Warn(fmt.Sprintf("execd: cannot remove sandbox %s: %v (tried again in %v)", path, err, after))
	if l.waits { // it was to be removed twice
		return
	}
	l.waits = true
	m.Later(after, func() {
		m.mu.Lock()
		l.waits = false
		m.mu.Unlock()
		m.try(path, alone)
	})
}

// alone is aside for who has no place in a pool.
func alone(do func()) { do() }

// leave notes a directory that no run has any more. m.mu is held.
func (m *Manager) leave(path string) *left {
	if m.left == nil {
		m.left = map[string]*left{}
	}
	l := &left{}
	m.left[path] = l
	return l
}

// errBusy says that a worker has the sandbox, of an execd before this one.
var errBusy = errors.New("a transfer is under way")

func (m *Manager) remove(path string, aside func(do func())) error {
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
	} else if m.save(dir, aside) {
		return nil
	}
	dropStreams(dir)
	for _, name := range []string{order.DirFiles, order.DirSay} {
		if err := atomicfile.Step(atomicfile.OpRemove, filepath.Join(path, name)); err != nil {
			return err
		}
		if err := m.clear(dir, name, aside); err != nil {
			return err
		}
	}
	if err := unix.Unlinkat(int(dir.Fd()), order.FileLock, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := atomicfile.Step(atomicfile.OpRemove, path); err != nil {
		return err
	}
	return unix.Rmdir(path)
}

// dropStreams removes the files of standard streams into which nothing was written: most jobs
// on other hosts leave nothing else there, and would cost a process with the rights of
// their owner. What may take time, or is no such file any more, is left to that one.
func dropStreams(dir *os.File) {
	eachStream(dir, func(say int, name string, st *unix.Stat_t) {
		if st.Size == 0 && st.Mode&unix.S_IFMT == unix.S_IFREG {
			_ = unix.Unlinkat(say, name, 0)
		}
	})
}

// clear removes one of the directories that belong to the owner of the job. Root does not
// look into it: rmdir follows nothing, and all else is done with the owner's rights.
func (m *Manager) clear(dir *os.File, name string, aside func(do func())) error {
	at := int(dir.Fd())
	err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%s: %w", name, err)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	path := filepath.Join(dir.Name(), name)
	aside(func() { err = m.AsUser.Empty(int(st.Uid), int(st.Gid), strconv.Itoa(int(st.Gid)), path) })
	if err == nil {
		err = unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	}
	return err
}

// Recover removes the sandboxes that no run has: a power cut may bring back one whose run
// was settled. It removes what is surely execd's alone, and tells of the rest. Call it
// before anything is started.
func (m *Manager) Recover() {
	used := map[string]bool{}
	m.mu.Lock()
	for _, s := range m.Store.Boxes() {
		used[s.Dir] = true
		m.hold(s.Sandbox)
	}
	m.mu.Unlock()
	place := m.Place()
	if err := m.check(place); err != nil {
		m.Log.Warn("execd: " + err.Error())
		return
	}
	names, err := os.ReadDir(place)
	if err != nil {
		m.Log.Warn(fmt.Sprintf("execd: cannot look for sandboxes: %v", err))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range names {
		path := filepath.Join(place, e.Name())
		if used[path] || e.Name() == fileOurs {
			continue
		}
		l := m.leave(path)
		if err := m.isLitter(place, e.Name()); err != nil {
			l.why, l.alone = err.Error(), true
			m.Log.Warn(fmt.Sprintf("execd: %s has no run, and is left alone: %v", path, err))
			continue
		}
		if !strings.HasPrefix(e.Name(), spared) {
			m.Log.Info(fmt.Sprintf("execd: sandbox %s has no run any more", path))
		}
		m.Later(0, func() { m.try(path, alone) })
	}
}

// isLitter refuses what execd may not have made, or does not own alone.
func (m *Manager) isLitter(place, name string) error {
	run, _, ok := parse(strings.TrimPrefix(name, spared))
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
