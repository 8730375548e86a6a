package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"golang.org/x/sys/unix"

	"paddock/internal/backoff"
	"paddock/internal/proc"
	"paddock/spool"
)

// hierarchy is one of the host's trees of groups, and execd's place in it.
type hierarchy struct {
	key   string   // of config, under which the group of a run is named
	mount string   // where it is mounted
	root  *os.Root // the same, so that nothing outside is touched
	base  string   // the parent of all runs' groups, below mount
	has   []string // controllers that limit runs here
	swap  bool     // groups here can limit swap
	kernel

	subsystems []cgroup1.Subsystem // of the library, for has, in version 1
}

// kernel are the operations that a test without a kernel's hierarchy replaces.
type kernel struct {
	mkdir, rmdir func(*os.Root, string) error
}

// realKernel makes one system call each: the kernel's hierarchies have no links, and
// three groups are made and removed for every job.
var realKernel = kernel{
	mkdir: func(r *os.Root, name string) error { return os.Mkdir(path.Join(r.Name(), name), 0o755) },
	rmdir: func(r *os.Root, name string) error {
		if err := syscall.Rmdir(path.Join(r.Name(), name)); err != nil {
			return &fs.PathError{Op: "rmdir", Path: name, Err: err}
		}
		return nil
	},
}

// v2 reports whether the hierarchy is of version 2.
func (h *hierarchy) v2() bool { return h.key == spool.KeyCgroup }

// holds reports whether groups here hold whole runs, in leaves, and not jobs alone.
func (h *hierarchy) holds() bool { return h.v2() || h.key == spool.KeyCgroupFreezer }

func (h *hierarchy) with(controller string) bool { return slices.Contains(h.has, controller) }

// make makes the group of a run. It first removes what an earlier run of that name has
// left, whose counts must not become this one's.
func (h *hierarchy) make(name string) (dir string, err error) { return h.makeIn(h.base, name) }

func (h *hierarchy) makeIn(parent, name string) (dir string, err error) {
	dir = path.Join(parent, name)
	if err = h.mkdir(h.root, dir); errors.Is(err, fs.ErrExist) {
		if err = h.remove(dir); err == nil {
			err = h.mkdir(h.root, dir)
		}
	}
	if err != nil {
		return "", fmt.Errorf("cannot make control group: %w", err)
	}
	return dir, nil
}

// leaves makes the groups below the one that holds a run.
func (h *hierarchy) leaves(dir string) error {
	for _, leaf := range []string{spool.CgroupJob, spool.CgroupProcedures} {
		if err := h.mkdir(h.root, path.Join(dir, leaf)); err != nil {
			return fmt.Errorf("cannot make control group: %w", err)
		}
	}
	return nil
}

// take makes the parent of all runs' groups.
func (h *hierarchy) take(place, name string) error {
	h.base = path.Join(place, name)
	if err := h.mkdir(h.root, h.base); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot use control groups: %w", err)
	}
	return nil
}

// leave removes what take made, unless there are runs in it.
func (h *hierarchy) leave() {
	_ = h.rmdir(h.root, path.Join(h.base, helpers))
	_ = h.rmdir(h.root, path.Join(h.base, transfers))
	_ = h.rmdir(h.root, h.base)
	_ = h.root.Close()
}

// below returns the path below the mount of the group of a run, or of a task in one. It
// refuses any other.
func (h *hierarchy) below(group string) (string, error) {
	rel, ok := strings.CutPrefix(path.Clean(group), strings.TrimSuffix(h.mount, "/")+"/")
	name := path.Base(rel)
	_, err := spool.ParseID(name)
	if err != nil && name != spool.CgroupJob && name != spool.CgroupProcedures {
		_, err = spool.ParseID(path.Base(path.Dir(rel)) + "/" + name)
	}
	if !ok || err != nil {
		return "", fmt.Errorf("%s is not the control group of a run", group)
	}
	return rel, nil
}

func (h *hierarchy) kill(dir string) error {
	err := proc.KillGroup(unix.AT_FDCWD, path.Join(h.root.Name(), dir), !h.v2())
	if err != nil {
		return fmt.Errorf("cannot kill control group %s: %w", dir, err)
	}
	return nil
}

// remove removes a group and all below it. Killed processes may take a moment to leave
// it.
func (h *hierarchy) remove(dir string) error {
	// These are tried first, since listing a group costs a call for each of its files.
	if h.holds() {
		_ = h.rmdir(h.root, path.Join(dir, spool.CgroupJob))
		_ = h.rmdir(h.root, path.Join(dir, spool.CgroupProcedures))
	}
	if err := h.rmdir(h.root, dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	deadline := time.Now().Add(removeTimeout)
	for pause := removals.First; ; pause = removals.Next(pause) {
		err := h.each(dir, func(dir string) error { return ignore(h.rmdir(h.root, dir), fs.ErrNotExist) })
		if !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cannot remove control group: %w", err)
		}
		if err := h.kill(dir); err != nil && !errors.Is(err, proc.ErrNotFrozen) { // the next round kills what was forked
			return err
		}
		time.Sleep(pause)
	}
}

// removals are the pauses between attempts to remove a group.
var removals = backoff.Doubling{First: time.Millisecond, Most: 50 * time.Millisecond}

// removeTimeout bounds the wait for killed processes: those in a disk access that hangs
// do not die, and hundreds may take seconds until each has had a processor to die on.
const removeTimeout = 15 * time.Second

// each calls do for all groups below dir, then for dir, and returns the last
// error: where a child cannot be removed its parent cannot.
func (h *hierarchy) each(dir string, do func(string) error) error {
	names, err := h.children(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		err = errors.Join(err, h.each(path.Join(dir, name), do))
	}
	if err != nil {
		return err
	}
	return do(dir)
}

// children returns the names of the groups in a group.
func (h *hierarchy) children(dir string) ([]string, error) {
	entries, err := fs.ReadDir(h.root.FS(), dir)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// control enables controllers for the children of a group of version 2.
func (h *hierarchy) control(dir string, controllers ...string) error {
	for _, c := range controllers {
		if h.with(c) {
			if err := h.write(path.Join(dir, "cgroup.subtree_control"), "+"+c); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes a control file, which must exist.
func (h *hierarchy) write(name, text string) error {
	f, err := h.root.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot set control group: %w", err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot set control group to %s: %w", text, err)
	}
	return nil
}

// ignore returns nil for errors that are none.
func ignore(err error, none ...error) error {
	for _, n := range none {
		if errors.Is(err, n) {
			return nil
		}
	}
	return err
}
