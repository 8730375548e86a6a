package starter

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// privateTmp gives the process, and so what it becomes, the /tmp and /var/tmp
// that config names, in a mount namespace of its own. What it has opened
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
	if err != nil {
		return errors.New(noPrivateTmp + errnoText(err))
	}
	// Root's rights again, for this and for the limits that follow.
	s.asRoot(noPrivateTmp)
	if err := s.mountPrivate(dir, tmpdir); err != nil {
		return errors.New(noPrivateTmp + errnoText(err))
	}
	s.say("/tmp is in " + dir)
	return nil
}

const noPrivateTmp = "cannot have a private /tmp: "

func (s *starter) mountPrivate(dir, tmpdir string) error {
	or := func(do string) { s.or(s.state(), noPrivateTmp+"Cannot "+do+": ") }
	none := s.path("")
	s.call(unix.SYS_UNSHARE, unix.CLONE_NEWNS)
	or("unshare mounts")
	// What the host mounts later is still seen here, and nothing of ours there.
	s.call(unix.SYS_MOUNT, none, s.path("/"), none, unix.MS_REC|unix.MS_SLAVE, none)
	or("part mounts from the host's")
	scratch := s.handle(tmpdir)
	or("open " + tmpdir)
	places := make([]uintptr, len(spool.PrivateTmp))
	flags := make([]uintptr, len(spool.PrivateTmp))
	for i, p := range spool.PrivateTmp {
		// The directory is root's, and so what there is in it does not change.
		var st unix.Statfs_t
		err := ignoringEINTR(func() error { return unix.Statfs(dir+"/"+p.Name, &st) })
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return failedTo("look at "+p.Place, err)
		}
		flags[i] = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | uintptr(st.Flags)&unix.ST_NOEXEC
		places[i] = s.handle(dir + "/" + p.Name)
		or("open " + dir + "/" + p.Name)
	}
	for i, p := range spool.PrivateTmp {
		if places[i] == 0 {
			continue
		}
		place := s.path(p.Place)
		s.bindTo(places[i], place)
		or("mount " + p.Place)
		s.call(unix.SYS_MOUNT, none, place, none, flags[i], none)
		or("mount " + p.Place)
	}
	was := s.room(unsafe.Sizeof(unix.Stat_t{}))
	s.call(unix.SYS_FSTAT, scratch, was)
	or("look at " + tmpdir)
	cover := func() {
		s.bindTo(scratch, s.path(tmpdir))
		or("mount " + tmpdir)
	}
	is := s.stat(tmpdir)
	s.either(s.errno(), 0, func() {
		s.either(s.sameInode(was, is), 1, func() {}, cover)
	}, cover)
	return nil
}

// handle opens a directory, and no link to one, to mount it.
func (s *starter) handle(path string) uintptr {
	s.call(unix.SYS_OPENAT, atCwd, s.path(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return s.result()
}

func (s *starter) bindTo(fd, path uintptr) {
	const files = "/proc/thread-self/fd/"
	from := s.put(files)
	s.bytesAt(maxDigits)
	s.add(doDigits, fd, from+uintptr(len(files)))
	none := s.path("")
	s.call(unix.SYS_MOUNT, from, path, none, unix.MS_BIND, none)
}

func failedTo(do string, err error) error { return errors.New("cannot " + do + ": " + errnoText(err)) }
