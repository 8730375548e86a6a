package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"paddock/spool"
)

// leaf is the group that execd itself goes to where the groups of its jobs need
// controllers: a group whose children have some may hold no processes. A unit
// of systemd has it there from the start (DelegateSubgroup).
const leaf = "execd"

// Open finds the place for groups of runs and makes the group name there, which
// is to be of one execd alone. The error says why the host has none for us.
func Open(name string) (*Tree, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cannot find control groups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("cannot find control groups: %w", err)
	}
	mount, group, err := locate(string(mounts), string(own))
	if err != nil {
		return nil, err
	}
	return open(mount, group, name, os.Getpid(), os.Geteuid() == 0, mkdir, rmdir)
}

func mkdir(r *os.Root, name string) error { return r.Mkdir(name, 0o755) }
func rmdir(r *os.Root, name string) error { return r.Remove(name) }

// locate returns where the hierarchy is mounted and the group we are in, below
// it, from mountinfo and cgroup of /proc/self.
func locate(mountinfo, own string) (mount, group string, err error) {
	var top string
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		f, kind := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(kind) == 0 {
			continue
		}
		switch kind[0] {
		case "cgroup":
			return "", "", errors.New("this host has control groups of version 1")
		case "cgroup2":
			if mount == "" && !strings.Contains(f[4], `\`) {
				top, mount = f[3], f[4]
			}
		}
	}
	if mount == "" {
		return "", "", errors.New("no control groups of version 2 are mounted")
	}
	group, ok := strings.CutPrefix(strings.TrimSuffix(own, "\n"), "0::/")
	if ok && top != "/" {
		group, ok = strings.CutPrefix("/"+group, top)
	}
	if !ok || strings.HasPrefix(group, "../") || group == ".." || strings.Contains(group, "\n") {
		return "", "", fmt.Errorf("the group of this process is not below %s", mount)
	}
	return mount, path.Join(".", group), nil
}

// open tries the places there may be, best first.
func open(mount, own, name string, pid int, privileged bool, mkdir, rmdir func(*os.Root, string) error) (*Tree, error) {
	root, err := os.OpenRoot(mount)
	if err != nil {
		return nil, fmt.Errorf("cannot find control groups: %w", err)
	}
	t := &Tree{mount: mount, root: root, mkdir: mkdir, rmdir: rmdir}
	_, err = root.Lstat("cgroup.type") // which the root of the host has not
	top := errors.Is(err, fs.ErrNotExist)
	switch {
	case path.Base(own) == leaf:
		err = t.take(path.Dir(own), name, 0)
	case own == "." && top:
		err = t.take(own, name, 0)
	case strings.HasSuffix(own, ".service") && privileged && top:
		// Below a unit without a subgroup of ours the next start would fail as
		// long as jobs run: its group may then hold no process.
		err = t.take(".", name, 0)
	default:
		if err = t.take(own, name, pid); err != nil && privileged && top {
			err = t.take(".", name, 0)
		}
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return t, nil
}

// Probe starts a program in a group, as shepherds will from the group that this
// process is in. A sandbox may forbid it. And a newer Linux (seen with 6.18)
// kills at birth what is started in a group that has seen a cgroup.kill more, or
// fewer, than the group of who starts it: no job must meet that.
func (t *Tree) Probe(program string, args ...string) error {
	group, err := t.Make("probe", Limits{})
	if err != nil {
		return err
	}
	defer func() { _ = t.remove(path.Join(t.base, path.Base(group))) }()
	dir, err := t.root.Open(path.Join(t.base, "probe", spool.CgroupJob))
	if err != nil {
		return fmt.Errorf("cannot open control group: %w", err)
	}
	defer dir.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = spool.StartEnvironment
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot start a process in a control group: %w", err)
	}
	return nil
}

// take makes the group for runs below place, and goes out of the way, into a
// leaf, if pid is not 0 and nothing else will do.
func (t *Tree) take(place, name string, pid int) error {
	text, err := t.root.ReadFile(path.Join(place, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("cannot use control groups: %w", err)
	}
	t.enable = nil
	for _, c := range wanted {
		if slices.Contains(strings.Fields(string(text)), c) {
			t.enable = append(t.enable, c)
		}
	}
	t.base = path.Join(place, name)
	// First of all, as it shows whether we may.
	if err := t.mkdir(t.root, t.base); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot use control groups: %w", err)
	}
	err = t.control(place, t.enable...)
	if errors.Is(err, syscall.EBUSY) && pid != 0 {
		err = t.move(place, pid)
	}
	if err == nil {
		err = t.control(t.base, t.enable...)
	}
	if err != nil {
		_ = t.rmdir(t.root, t.base) // unless there are runs in it
	}
	return err
}

// move moves this process to a leaf, so that place can have children with
// controllers, and back if it does not help: others are in place, too.
func (t *Tree) move(place string, pid int) error {
	to := path.Join(place, leaf)
	if err := t.mkdir(t.root, to); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot use control groups: %w", err)
	}
	err := t.write(path.Join(to, "cgroup.procs"), strconv.Itoa(pid))
	if err == nil {
		if err = t.control(place, t.enable...); err != nil {
			_ = t.write(path.Join(place, "cgroup.procs"), strconv.Itoa(pid))
		}
	}
	if err != nil {
		_ = t.rmdir(t.root, to)
	}
	return err
}
