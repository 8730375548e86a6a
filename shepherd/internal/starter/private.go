package starter

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// privateTmp gives this thread, and so what it becomes, the /tmp and /var/tmp
// that config names, in a mount namespace of its own. What the starter has opened
// before stays open: the job's streams and its directory are the host's.
//
// Directories are held by descriptors, since one mount may cover the next, and
// no name is used that the job can have made: where its TMPDIR is mounted was
// made by execd, root's, in a directory with the sticky bit.
func (s *starter) privateTmp() error {
	dir, ok := s.config.Lookup(spool.KeyPrivateTmp)
	if !ok {
		return nil
	}
	tmpdir, err := s.config.String(spool.KeyTmpdir)
	if err == nil {
		// Root's rights again, for this and for the limits that follow.
		err = setResUID(0, 0, 0)
	}
	if err == nil {
		err = mountPrivate(dir, tmpdir)
	}
	if err != nil {
		return errors.New("cannot have a private /tmp: " + errnoText(err))
	}
	s.say("/tmp is in " + dir)
	return nil
}

func mountPrivate(dir, tmpdir string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return failedTo("unshare mounts", err)
	}
	// What the host mounts later is still seen here, and nothing of ours there.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return failedTo("part mounts from the host's", err)
	}
	scratch, err := handle(tmpdir)
	if err != nil {
		return failedTo("open "+tmpdir, err)
	}
	defer unix.Close(scratch)
	places := make([]int, len(spool.PrivateTmp))
	for i, p := range spool.PrivateTmp {
		if places[i], err = handle(dir + "/" + p.Name); errors.Is(err, unix.ENOENT) {
			places[i] = -1
		} else if err != nil {
			return failedTo("open "+dir+"/"+p.Name, err)
		} else {
			defer unix.Close(places[i])
		}
	}
	for i, p := range spool.PrivateTmp {
		if places[i] < 0 {
			continue
		}
		if err := bindTo(places[i], p.Place); err != nil {
			return failedTo("mount "+p.Place, err)
		}
		flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV)
		var st unix.Statfs_t
		if err := unix.Fstatfs(places[i], &st); err != nil {
			return failedTo("look at "+p.Place, err)
		}
		flags |= uintptr(st.Flags) & unix.ST_NOEXEC
		if err := unix.Mount("", p.Place, "", flags, ""); err != nil {
			return failedTo("mount "+p.Place, err)
		}
	}
	var was, is unix.Stat_t
	if err := unix.Fstat(scratch, &was); err != nil {
		return failedTo("look at "+tmpdir, err)
	}
	if err := unix.Stat(tmpdir, &is); err == nil && is.Dev == was.Dev && is.Ino == was.Ino {
		return nil // not covered
	}
	if err := bindTo(scratch, tmpdir); err != nil {
		return failedTo("mount "+tmpdir, err)
	}
	return nil
}

// handle opens a directory, and no link to one, to mount it.
func handle(path string) (fd int, err error) {
	err = ignoringEINTR(func() error {
		fd, err = unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

func bindTo(fd int, path string) error {
	return unix.Mount("/proc/thread-self/fd/"+strconv.Itoa(fd), path, "", unix.MS_BIND, "")
}

func failedTo(do string, err error) error { return errors.New("cannot " + do + ": " + errnoText(err)) }
