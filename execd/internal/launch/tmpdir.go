package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// makeTmpdir makes the job's scratch directory and notes its path in the order.
// Its parent may be /tmp, where everybody can put things, and where another
// execd may have a job of the same number: mkdir takes no existing name, one
// that is taken is left alone and a name nobody can guess is used instead, and
// the directory is given to the owner through a descriptor that cannot be a
// link.
func (l *Launcher) makeTmpdir(o *Order) error {
	if err := l.checkTmpdirParent(o.Queue.Tmpdir); err != nil {
		return err
	}
	if err := l.chooseScratch(o); err != nil {
		return err
	}
	path := o.tmpdir()
	if err := l.removeOldTmpdir(path, o.Owner); err != nil {
		l.Log.Warn(fmt.Sprintf("job %v: %v", o.Task, err)) // it is left alone
	}
	var err error
	// One that is limited is made for this run: a spare one is its owner's already.
	if o.scratch.limit > 0 || !l.spares.take(path, o.Owner.UID) {
		path, err = makeNew(path)
	}
	if err != nil {
		return fmt.Errorf("cannot make TMPDIR: %w", err)
	}
	o.chosen = path
	dir, err := openDir(path)
	if err == nil {
		dir, err = l.confine(o, dir)
	}
	if dir != nil {
		defer dir.Close()
	}
	if err != nil {
		return fmt.Errorf("cannot make TMPDIR %s: %w", path, err)
	}
	if l.Privileged {
		if err := dir.Chown(o.Owner.UID, o.Owner.GID); err != nil {
			return fmt.Errorf("cannot give TMPDIR %s to user %s: %w", path, o.Owner.Name, err)
		}
	}
	if err := dir.Chmod(0o755); err != nil {
		return fmt.Errorf("cannot set mode of TMPDIR %s: %w", path, err)
	}
	return nil
}

// openDir opens a directory, and no link to one.
func openDir(path string) (*os.File, error) {
	return os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// makeNew makes a directory that nobody else can enter, under another name if
// that one is taken.
func makeNew(name string) (path string, err error) {
	path, err = name, os.Mkdir(name, 0o700)
	for try := 0; errors.Is(err, fs.ErrExist) && try < 10; try++ {
		path = name + "." + strconv.FormatUint(rand.Uint64(), 36)
		err = os.Mkdir(path, 0o700)
	}
	return path, err
}

// checkTmpdirParent refuses a parent in which somebody else could rename or
// replace what root makes there.
func (l *Launcher) checkTmpdirParent(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("cannot use tmpdir of the queue: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir() || !ok:
		return fmt.Errorf("cannot use tmpdir %s of the queue: not a directory", dir)
	case l.Privileged && st.Uid != 0:
		return fmt.Errorf("cannot use tmpdir %s of the queue: it belongs to uid %d, not to root", dir, st.Uid)
	case l.Privileged && info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("cannot use tmpdir %s of the queue: others may write to it and it has no sticky bit", dir)
	}
	return nil
}

// removeTmpdir removes the scratch directory that a run's config names, and its
// private /tmp.
func (l *Launcher) removeTmpdir(config *spool.Config) error {
	return errors.Join(l.removePrivateTmp(config), l.removeScratch(config))
}

func (l *Launcher) removeScratch(config *spool.Config) error {
	path, err := config.String(spool.KeyTmpdir)
	if err != nil || !filepath.IsAbs(path) {
		return err
	}
	s := scratchOf(config)
	if s.tmpfs() {
		if err := unmount(path); err != nil {
			return err
		}
	}
	if err := l.removeFrom(config, path, s.limit == 0); err != nil {
		return err
	}
	return l.free(s, filepath.Dir(path))
}

// removeFrom removes the scratch directory of a run, or keeps it as a spare one.
func (l *Launcher) removeFrom(config *spool.Config, path string, keep bool) error {
	uid, err1 := config.Int(spool.KeyUID)
	// Most jobs leave it empty, and to keep or remove an empty directory needs
	// no rights of the owner's: rename and rmdir follow nothing.
	if keep && err1 == nil && l.spares.keep(path, uid) {
		return nil
	}
	err := unix.Rmdir(path)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	gid, err2 := config.Int(spool.KeyGID)
	groups, err3 := config.String(spool.KeyGroups)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	return l.clearTmpdir(path, uid, gid, groups)
}

// CleanOld removes the scratch directory of a run from an earlier life of the
// host, when power was cut before the config that names it was on the disk.
func (l *Launcher) CleanOld(id spool.ID, q *conf.Queue, owner *user.User) error {
	return l.removeOldTmpdir(usualTmpdir(id, q), owner)
}

// removeOldTmpdir removes a scratch directory of the owner's that has not been
// touched since the host started: whoever it was made for does not run any
// more.
func (l *Launcher) removeOldTmpdir(path string, owner *user.User) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cannot look at TMPDIR %s: %w", path, err)
	}
	booted, err := l.bootTime()
	if err != nil {
		return err
	}
	if !time.Unix(st.Ctim.Unix()).Before(booted.Add(battery)) || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	switch int(st.Uid) {
	case owner.UID:
		return l.clearTmpdir(path, owner.UID, owner.GID, groupList(owner))
	case os.Geteuid(): // the cut came before it was given to the owner
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("cannot remove TMPDIR %s: %w", path, err)
		}
	}
	return nil
}

// battery is by how much the clocks of two lives of the host may differ: what
// keeps the time while it is off counts seconds. Nothing is run as soon after
// the start of the kernel as that.
const battery = 2 * time.Second

// bootTime returns when the host started, by the clock that files were stamped
// with: the earliest time there is for it, since the clock may have been set
// meanwhile, and what is younger may be in use.
func (l *Launcher) bootTime() (time.Time, error) {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, fmt.Errorf("cannot tell when the host started: %w", err)
	}
	booted := time.Now().Round(0).Add(-time.Duration(up.Nano()))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.booted.IsZero() || booted.Before(l.booted) {
		l.booted = booted
	}
	return l.booted, nil
}

// clearTmpdir empties a scratch directory as its owner, then removes it.
func (l *Launcher) clearTmpdir(path string, uid, gid int, groups string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("cannot remove TMPDIR: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || l.Privileged && int(st.Uid) != uid {
		return fmt.Errorf("cannot remove TMPDIR %s: it is not a directory of uid %d", path, uid)
	}
	if !l.Privileged {
		return os.RemoveAll(path)
	}
	if err := l.aside(func() error { return l.asUser(context.Background(), nil, uid, gid, groups, "-remove", path) }); err != nil {
		return fmt.Errorf("cannot remove TMPDIR %s: %w", path, err)
	}
	err = unix.Rmdir(path)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove TMPDIR %s: %w", path, err)
	}
	return nil
}
