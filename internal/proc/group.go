package proc

import (
	"bytes"
	"errors"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotFrozen says that a control group was not frozen while its processes were
// killed one by one, so that some may have forked away.
var ErrNotFrozen = errors.New("cannot freeze it")

// KillGroup kills everything in a control group and in those below it; at and dir
// are as unix.Openat takes them. A group that is not there has nothing to kill. The
// processes end when the kernel says so, and perhaps after KillGroup has returned.
func KillGroup(at int, dir string, v1 bool) error {
	err := WriteFile(at, path.Join(dir, "cgroup.kill"), "1")
	switch {
	case errors.Is(err, unix.ENODEV):
		return nil
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	// Version 1, or before Linux 5.14. What is frozen cannot fork away, and can be
	// killed.
	file, freeze, thaw := "cgroup.freeze", "1", "0"
	if v1 {
		file, freeze, thaw = "freezer.state", "FROZEN", "THAWED"
	}
	frozen := WriteFile(at, path.Join(dir, file), freeze) == nil && awaitFrozen(at, dir, v1)
	there, err := killBelow(at, dir, file, thaw)
	if there && !frozen {
		err = errors.Join(err, ErrNotFrozen)
	}
	return err
}

// freezeTries bounds, in milliseconds, the wait for what cannot be frozen: what
// is in the middle of a disk access that hangs.
const freezeTries = 300

// awaitFrozen waits until a group is frozen: a process that still runs forks.
func awaitFrozen(at int, dir string, v1 bool) bool {
	file, word := "cgroup.events", "frozen 1"
	if v1 {
		file, word = "freezer.state", "FROZEN"
	}
	for range freezeTries {
		b, _ := ReadFile(at, path.Join(dir, file), nil)
		if bytes.Contains(append([]byte("\n"), b...), []byte("\n"+word+"\n")) {
			return true
		}
		_, _ = unix.Poll(nil, 1)
	}
	return false
}

// killBelow kills the processes of a group and of those below it one by one and
// thaws each group, the lowest first: the first of them holds all until it is
// thawed, and a shepherd that was killed itself may have frozen one below. It
// reports whether the group is there.
func killBelow(at int, dir, file, thaw string) (there bool, err error) {
	return visit(at, dir, func(group int) error {
		err := pids(group, func(pid int) { _ = unix.Kill(pid, unix.SIGKILL) })
		return errors.Join(err, unless(WriteFile(group, file, thaw), unix.ENOENT, unix.ENODEV))
	})
}

// Members returns the numbers of the processes in a control group and in those below
// it, as far as they can be read; at and dir are as unix.Openat takes them.
func Members(at int, dir string) map[int]bool {
	in := make(map[int]bool)
	_, _ = visit(at, dir, func(group int) error { return pids(group, func(pid int) { in[pid] = true }) })
	return in
}

// visit calls do with the descriptors of a group and of those below it, the lowest
// first, and reports whether the group is there.
func visit(at int, dir string, do func(group int) error) (there bool, err error) {
	fd, err := unix.Openat(at, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, unless(err, unix.ENOENT)
	}
	defer unix.Close(fd)
	var below []string
	err = list(fd, make([]byte, 4<<10), func(_ uint64, kind byte, name []byte) {
		if kind == unix.DT_DIR && string(name) != "." && string(name) != ".." {
			below = append(below, string(name))
		}
	})
	for _, name := range below {
		_, inner := visit(fd, name, do)
		err = errors.Join(err, inner)
	}
	return true, errors.Join(err, do(fd))
}

// pids calls do with the number of each process of a group.
func pids(group int, do func(pid int)) error {
	b, err := ReadFile(group, "cgroup.procs", nil)
	for word := range bytes.FieldsSeq(b) {
		if pid, err := strconv.Atoi(string(word)); err == nil && pid > 0 { // 0: not in our namespace
			do(pid)
		}
	}
	// What a threaded group has is listed by the one above it.
	return unless(err, unix.ENOENT, unix.ENODEV, unix.EOPNOTSUPP)
}

// unless returns an error that is none of those.
func unless(err error, none ...error) error {
	for _, n := range none {
		if errors.Is(err, n) {
			return nil
		}
	}
	return err
}

// WriteFile writes to a file below an open directory, which is there.
func WriteFile(dir int, name, text string) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}
