package main

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A file that is renamed stays in the project by whose quota it is limited. It would count
// in that of the sandbox for ever, and where all that is made in a directory is in a project
// the kernel has nothing else come there. The owner of a file may say to which project it
// belongs, unless he is in a user namespace.

// attributes is struct fsxattr, which package unix lacks.
type attributes struct {
	flags, extent, extents, project, cow uint32
	_                                    [8]byte
}

const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	inherit       = 0x200      // FS_XFLAG_PROJINHERIT, of directories
)

func attribute(fd int, request uintptr, a *attributes) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(a))); errno != 0 {
		return errno
	}
	return nil
}

// project returns the attributes of a directory as far as they say in which project it is
// and what is made in it; nothing: in none.
func project(dir int) (a attributes) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return a
	}
	defer unix.Close(fd)
	if attribute(fd, getAttributes, &a) != nil {
		return attributes{}
	}
	return attributes{flags: a.flags & inherit, project: a.project}
}

// errProject is that something cannot be put into another project.
var errProject = errors.New("it stays in its project")

// adopt puts a name of a directory, and all below it, into the project of another, as it
// would have been made there.
func (w *worker) adopt(from int, name string, st *unix.Stat_t, to attributes) error {
	if kind(st) != unix.S_IFDIR {
		return w.adoptFile(from, name, st, to, false)
	}
	fd, err := openDir(from, name, true)
	if err != nil {
		return err
	}
	t, err := newWalker(fd, true)
	defer func() { t.close() }()
	if err == nil {
		err = assign(t.fd, to)
	}
	for err == nil {
		var inner string
		if inner, err = t.next(); err != nil {
			break
		}
		if inner == "" {
			if t.depth() == 0 {
				return nil
			}
			err = t.up()
			continue
		}
		var st unix.Stat_t
		if st, err = lstat(t.fd, inner); err != nil {
			break
		}
		w.beat.Add(1)
		if kind(&st) != unix.S_IFDIR {
			err = w.adoptFile(t.fd, inner, &st, to, true)
		} else if err = t.down(inner); err == nil {
			err = assign(t.fd, to)
		}
	}
	return err
}

// adoptFile is adopt for what is no directory. A link cannot be opened: one that takes no
// block counts nowhere, and may stay in its project if it is moved with its directory.
func (w *worker) adoptFile(dir int, name string, st *unix.Stat_t, to attributes, within bool) error {
	switch kind(st) {
	case unix.S_IFREG:
	case unix.S_IFLNK:
		if within && st.Blocks == 0 {
			return nil
		}
		return errProject
	default:
		return errProject
	}
	fd, err := source{dir: dir, name: name}.open(true)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return assign(fd, to)
}

// assign puts an open file or directory into a project.
func assign(fd int, to attributes) error {
	var st unix.Stat_t
	var a attributes
	if err := errors.Join(unix.Fstat(fd, &st), attribute(fd, getAttributes, &a)); err != nil {
		return err
	}
	want := a
	want.project = to.project
	if kind(&st) == unix.S_IFDIR {
		want.flags = a.flags&^inherit | to.flags
	}
	if want == a {
		return nil
	}
	return attribute(fd, setAttributes, &want)
}
