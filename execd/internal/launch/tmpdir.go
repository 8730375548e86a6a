package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/user"
	"paddock/internal/proc"
	"paddock/spool"
)

// tmpdirs makes and removes what runs have outside of their directories: TMPDIR, what
// limits it, and a /tmp of their own.
type tmpdirs struct {
	*Runs
	shared   sync.Once // says why PRIVATE_TMP is without effect
	projects projects

	mu     sync.Mutex
	booted time.Time // guarded by mu; see bootTime
}

// makeTmpdir makes the job's scratch directory and notes its path in the order.
// Its parent may be /tmp, where everybody can put things, and where another
// execd may have a job of the same number: mkdir takes no existing name, one
// that is taken is left alone and a name nobody can guess is used instead. It is
// made for this run: what a user had before could be another directory by the time
// it is given away again. Until give it is closed, empty and ours.
func (t *tmpdirs) makeTmpdir(o *Order) (dir *os.File, err error) {
	parent, err := t.openParent(o.Queue.Tmpdir)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if err := t.chooseScratch(o, parent); err != nil {
		return nil, err
	}
	path := o.tmpdir()
	if err := t.removeOldTmpdir(path, o.Owner); err != nil {
		t.Log.Warn(fmt.Sprintf("job %v: %v", o.Task, err)) // it is left alone
	}
	dir, name, err := makeNew(parent, filepath.Base(path))
	if err == nil {
		o.chosen = filepath.Join(o.Queue.Tmpdir, name)
		dir, err = t.confine(o, parent, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make TMPDIR %s: %w", path, err)
	}
	return dir, nil
}

// giveTmpdir gives the owner his scratch directory, once config names it: from then
// on it is removed with the run, whoever is killed meanwhile.
func (t *tmpdirs) giveTmpdir(o *Order, dir *os.File) error {
	if t.Privileged {
		if err := dir.Chown(o.Owner.UID, o.Owner.GID); err != nil {
			return fmt.Errorf("cannot give TMPDIR %s to user %s: %w", o.chosen, o.Owner.Name, err)
		}
	}
	if err := dir.Chmod(0o755); err != nil {
		return fmt.Errorf("cannot set mode of TMPDIR %s: %w", o.chosen, err)
	}
	return nil
}

// makeNew makes a directory that nobody else can enter, under another name if
// that one is taken, and opens it.
func makeNew(parent *os.File, base string) (dir *os.File, name string, err error) {
	at := int(parent.Fd())
	name, err = base, unix.Mkdirat(at, base, 0o700)
	for try := 0; errors.Is(err, fs.ErrExist) && try < 10; try++ {
		name = base + "." + strconv.FormatUint(rand.Uint64(), 36)
		err = unix.Mkdirat(at, name, 0o700)
	}
	if err != nil {
		return nil, "", err
	}
	if dir, err = openOwn(parent, name); err != nil {
		_ = unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	}
	return dir, name, err
}

// openOwn opens a directory that was made by us and is still closed to all others:
// what is done to it by its descriptor is done to no other.
func openOwn(parent *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), filepath.Join(parent.Name(), name))
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && !isClosed(&st) {
		err = errors.New("somebody has put another directory in its place")
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// isClosed reports whether a directory is ours and open to nobody else.
func isClosed(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Geteuid() && st.Mode&0o077 == 0
}

// openParent opens a parent of scratch directories. It refuses one in which somebody
// else could rename or replace what root makes there.
func (t *tmpdirs) openParent(dir string) (*os.File, error) {
	parent, err := os.OpenFile(dir, unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("cannot use tmpdir %s of the queue: not a directory", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot use tmpdir of the queue: %w", err)
	}
	var st unix.Stat_t
	err = unix.Fstat(int(parent.Fd()), &st)
	switch {
	case err != nil:
	case t.Privileged && st.Uid != 0:
		err = fmt.Errorf("it belongs to uid %d, not to root", st.Uid)
	case t.Privileged && st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0:
		err = errors.New("others may write to it and it has no sticky bit")
	}
	if err != nil {
		parent.Close()
		return nil, fmt.Errorf("cannot use tmpdir %s of the queue: %w", dir, err)
	}
	return parent, nil
}

// removeTmpdir removes the scratch directory that the config of a run names, and its
// private /tmp.
func (t *tmpdirs) removeTmpdir(run spool.Dir, config *spool.Config) error {
	return errors.Join(t.removePrivateTmp(config), t.removeScratch(run, config))
}

func (t *tmpdirs) removeScratch(run spool.Dir, config *spool.Config) error {
	path, err := config.String(spool.KeyTmpdir)
	if err != nil || !filepath.IsAbs(path) {
		return err
	}
	s := scratchOf(config)
	if t.isYounger(path, run) {
		t.Log.Warn(fmt.Sprintf("TMPDIR %s was made after the host had started, and is not that of a run before: it is left alone", path))
		return t.free(s, filepath.Dir(path))
	}
	if s.tmpfs() {
		if err := unmount(path); err != nil {
			return err
		}
	}
	if err := t.removeFrom(config, path); err != nil {
		return err
	}
	return t.free(s, filepath.Dir(path))
}

// isYounger reports whether a directory was made in this life of the host, and config
// of the run that names it in an earlier one: /tmp was emptied meanwhile, and another
// execd, or somebody, has made one of the same name.
func (t *tmpdirs) isYounger(path string, run spool.Dir) bool {
	info, err := os.Lstat(run.Path(spool.FileConfig))
	started := t.bootTime().Add(battery)
	if err != nil || !info.ModTime().Before(started) {
		return false
	}
	var st unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st)
	// A file system that does not know when it was made cannot tell them apart.
	return err == nil && st.Mask&unix.STATX_BTIME != 0 && !time.Unix(st.Btime.Sec, int64(st.Btime.Nsec)).Before(started)
}

// removeFrom removes the scratch directory of a run.
func (t *tmpdirs) removeFrom(config *spool.Config, path string) error {
	// Most jobs leave it empty, and to remove an empty directory needs no rights of
	// the owner's: rmdir follows nothing.
	err := unix.Rmdir(path)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	uid, err1 := config.Int(spool.KeyUID)
	gid, err2 := config.Int(spool.KeyGID)
	groups, err3 := config.String(spool.KeyGroups)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	return t.clearTmpdir(path, uid, gid, groups)
}

// CleanOld removes the scratch directory of a run from an earlier life of the
// host, when power was cut before the config that names it was on the disk.
func (t *tmpdirs) CleanOld(id spool.ID, q *conf.Queue, owner *user.User) error {
	return t.removeOldTmpdir(usualTmpdir(id, q), owner)
}

// removeOldTmpdir removes a scratch directory of the owner's that has not been
// touched since the host started: whoever it was made for does not run any
// more.
func (t *tmpdirs) removeOldTmpdir(path string, owner *user.User) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cannot look at TMPDIR %s: %w", path, err)
	}
	booted := t.bootTime()
	if !isOlder(&st, booted) {
		return nil
	}
	switch int(st.Uid) {
	case owner.UID:
		return t.clearTmpdir(path, owner.UID, owner.GID, asuser.GroupList(owner))
	case os.Geteuid(): // the cut came before it was given to the owner
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("cannot remove TMPDIR %s: %w", path, err)
		}
	}
	return nil
}

// isOlder reports whether what was found is a directory that nobody has touched since
// the host started.
func isOlder(st *unix.Stat_t, booted time.Time) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFDIR && time.Unix(st.Ctim.Unix()).Before(booted.Add(battery))
}

// battery is by how much the clocks of two lives of the host may differ: what
// keeps the time while it is off counts seconds. Nothing is run as soon after
// the start of the kernel as that.
const battery = 2 * time.Second

// bootTime returns when the host started, by the clock that files were stamped
// with: the earliest time there is for it, since the clock may have been set
// meanwhile, and what is younger may be in use.
func (t *tmpdirs) bootTime() time.Time {
	booted := time.Now().Round(0).Add(-proc.Uptime())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.booted.IsZero() || booted.Before(t.booted) {
		t.booted = booted
	}
	return t.booted
}

// clearTmpdir empties a scratch directory as its owner, then removes it.
func (t *tmpdirs) clearTmpdir(path string, uid, gid int, groups string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("cannot remove TMPDIR: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || t.Privileged && int(st.Uid) != uid {
		return fmt.Errorf("cannot remove TMPDIR %s: it is not a directory of uid %d", path, uid)
	}
	if !t.Privileged {
		return os.RemoveAll(path)
	}
	if err := t.aside(func() error { return t.AsUser.Empty(uid, gid, groups, path) }); err != nil {
		return fmt.Errorf("cannot remove TMPDIR %s: %w", path, err)
	}
	err = unix.Rmdir(path)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove TMPDIR %s: %w", path, err)
	}
	return nil
}

// aside does what a user may hold up for as long as he likes.
func (t *tmpdirs) aside(do func() error) (err error) {
	if t.Aside == nil {
		return do()
	}
	t.Aside(func() { err = do() })
	return err
}
