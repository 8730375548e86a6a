package main

import (
	"errors"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// old is set where the kernel has no openat2, or a container forbids it.
var old atomic.Bool

// openBeneath opens a name below a directory. It follows no link in any part of it, and
// does not leave the directory, whatever moves meanwhile; with stay it does not come to
// another mount either.
func openBeneath(dir int, name string, flags int, mode uint32, stay bool) (int, error) {
	if !old.Load() {
		how := unix.OpenHow{
			Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Mode: uint64(mode),
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		}
		if stay {
			how.Resolve |= unix.RESOLVE_NO_XDEV
		}
		for {
			fd, err := unix.Openat2(dir, name, &how)
			switch {
			case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // something was renamed meanwhile
				continue
			case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM) && flags&unix.O_CREAT == 0 && !refused(dir, name, flags):
				old.Store(true)
			default:
				return fd, err
			}
			break
		}
	}
	return openByParts(dir, name, flags, mode)
}

// refused reports whether plain openat is refused as well, so that it is not openat2
// that is forbidden.
func refused(dir int, name string, flags int) bool {
	fd, err := openByParts(dir, name, flags, 0)
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, unix.EPERM)
}

// openByParts is openBeneath where the kernel cannot do it at once.
func openByParts(dir int, name string, flags int, mode uint32) (int, error) {
	at := dir
	defer func() {
		if at != dir {
			unix.Close(at)
		}
	}()
	for {
		part, rest, more := strings.Cut(name, "/")
		if part == "" || part == "." && more || part == ".." {
			return -1, unix.EXDEV
		}
		if !more {
			return unix.Openat(at, part, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, mode)
		}
		fd, err := unix.Openat(at, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		if at != dir {
			unix.Close(at)
		}
		at, name = fd, rest
	}
}

// openDir opens a directory below another for reading.
func openDir(dir int, name string, stay bool) (int, error) {
	return openBeneath(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0, stay)
}

// openParent opens the directory that a name is in, and returns it with the name's last
// part.
func openParent(dir int, name string) (fd int, last string, err error) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		fd, err = unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
		return fd, name, err
	}
	fd, err = openBeneath(dir, name[:i], unix.O_PATH|unix.O_DIRECTORY, 0, true)
	return fd, name[i+1:], err
}

// lstat looks at a name in a directory; a link is not followed.
func lstat(dir int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// kind returns what a file is, as a constant unix.S_IF.
func kind(st *unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }
