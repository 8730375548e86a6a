// Package cgroup makes, limits and removes the control groups of runs where
// the host has cgroup v2 and nothing else, and execd the right to it. Below a
// place of execd's own each run has a group with two leaves: job, which holds
// the job's processes, and procedures, for what is run around and beside it.
// Launch and the daemon use it; it imports spool alone. The shepherd, which
// joins and kills, needs no more than the path.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"paddock/spool"
)

// Tree is execd's place among the groups of the host. Its methods do nothing
// on a nil Tree, which stands for a host without.
type Tree struct {
	mount  string   // where the hierarchy is mounted
	root   *os.Root // the same: nothing outside is touched
	base   string   // the parent of all runs' groups, below mount
	enable []string // controllers that runs have

	// The kernel's doing, which a test has to do itself elsewhere.
	mkdir, rmdir func(*os.Root, string) error
}

// Limits are those of one run. Zero is no limit.
type Limits struct {
	Memory uint64 // bytes, resident and swap together
	Procs  uint64 // processes and threads of the job
	CPUs   int    // processors' time
}

// wanted are the controllers that are enabled as far as they are there.
var wanted = []string{"memory", "pids", "cpu"}

// String says what there is, for a line of the log.
func (t *Tree) String() string {
	return "v2 at " + path.Join(t.mount, t.base) + " (" + strings.Join(t.enable, " ") + ")"
}

// Has reports whether runs can be limited by a controller.
func (t *Tree) Has(controller string) bool { return t != nil && slices.Contains(t.enable, controller) }

// Make makes the group of a run and returns its path. What an earlier run of
// that name has left is removed first: its counts must not become this one's.
func (t *Tree) Make(name string, l Limits) (_ string, err error) {
	dir := path.Join(t.base, name)
	if err = t.mkdir(t.root, dir); errors.Is(err, fs.ErrExist) {
		if err = t.remove(dir); err == nil {
			err = t.mkdir(t.root, dir)
		}
	}
	if err != nil {
		return "", fmt.Errorf("cannot make control group: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.remove(dir))
		}
	}()
	if err := t.limit(dir, l); err != nil {
		return "", err
	}
	if err := t.control(dir, "memory", "pids"); err != nil {
		return "", err
	}
	for _, leaf := range []string{spool.CgroupJob, spool.CgroupProcedures} {
		if err := t.mkdir(t.root, path.Join(dir, leaf)); err != nil {
			return "", fmt.Errorf("cannot make control group: %w", err)
		}
	}
	job := path.Join(dir, spool.CgroupJob)
	if t.Has("memory") {
		// Half a job is worth nothing, and would have no reason to end.
		if err := t.write(path.Join(job, "memory.oom.group"), "1"); err != nil {
			return "", err
		}
	}
	if t.Has("pids") && l.Procs > 0 {
		// Of the job alone: when it has used up its number, the method that is
		// to end it must still be started.
		if err := t.write(path.Join(job, "pids.max"), strconv.FormatUint(l.Procs, 10)); err != nil {
			return "", err
		}
	}
	return path.Join(t.mount, dir), nil
}

// limit limits the group of a run as a whole.
func (t *Tree) limit(dir string, l Limits) error {
	if t.Has("memory") && l.Memory > 0 {
		if err := t.write(path.Join(dir, "memory.max"), strconv.FormatUint(l.Memory, 10)); err != nil {
			return err
		}
		// Resident and swap are one limit. The file is missing where the kernel
		// does not count swap.
		if err := t.write(path.Join(dir, "memory.swap.max"), "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if t.Has("cpu") && l.CPUs > 0 {
		return t.write(path.Join(dir, "cpu.max"), strconv.Itoa(l.CPUs*cpuPeriod)+" "+strconv.Itoa(cpuPeriod))
	}
	return nil
}

// cpuPeriod is the kernel's own, in microseconds.
const cpuPeriod = 100_000

// Kill kills everything in the group of that path.
func (t *Tree) Kill(group string) error {
	if t == nil {
		return nil
	}
	dir, err := t.below(group)
	if err != nil {
		return err
	}
	return t.kill(dir)
}

// Remove kills what is left in the group of that path and removes it. One that
// is not there is no error.
func (t *Tree) Remove(group string) error {
	if t == nil {
		return nil
	}
	dir, err := t.below(group)
	if err != nil {
		return err
	}
	return t.remove(dir)
}

// Sweep removes the groups of runs that keep does not know.
func (t *Tree) Sweep(keep func(name string) bool) error {
	if t == nil {
		return nil
	}
	names, err := t.children(t.base)
	for _, name := range names {
		if !keep(name) {
			err = errors.Join(err, t.remove(path.Join(t.base, name)))
		}
	}
	return err
}

// below returns a group's path below the mount: that of a run, and nothing
// above it.
func (t *Tree) below(group string) (string, error) {
	rel, ok := strings.CutPrefix(path.Clean(group), strings.TrimSuffix(t.mount, "/")+"/")
	if _, err := spool.ParseID(path.Base(rel)); !ok || err != nil {
		return "", fmt.Errorf("%s is not the control group of a run", group)
	}
	return rel, nil
}

func (t *Tree) kill(dir string) error {
	err := t.write(path.Join(dir, "cgroup.kill"), "1")
	if !errors.Is(err, fs.ErrNotExist) || !t.exists(dir) {
		return ignore(err, fs.ErrNotExist, syscall.ENODEV)
	}
	// Before Linux 5.14. Frozen, nothing forks away.
	_ = t.write(path.Join(dir, "cgroup.freeze"), "1")
	err = t.each(dir, func(dir string) error {
		text, err := t.root.ReadFile(path.Join(dir, "cgroup.procs"))
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return ignore(err, fs.ErrNotExist, syscall.EOPNOTSUPP)
	})
	_ = t.write(path.Join(dir, "cgroup.freeze"), "0")
	return err
}

// remove removes a group and all below it. What was killed in it may take a
// moment to go.
func (t *Tree) remove(dir string) error {
	deadline := time.Now().Add(removeTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := t.each(dir, func(dir string) error { return ignore(t.rmdir(t.root, dir), fs.ErrNotExist) })
		if !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cannot remove control group: %w", err)
		}
		if err := t.kill(dir); err != nil {
			return err
		}
		time.Sleep(pause)
	}
}

// removeTimeout bounds the wait for processes that do not die: those in the
// middle of a disk access that hangs.
const removeTimeout = 5 * time.Second

// each calls do for all groups below dir, then for dir, and returns the last
// error: where a child cannot be removed its parent cannot.
func (t *Tree) each(dir string, do func(string) error) error {
	names, err := t.children(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		err = errors.Join(err, t.each(path.Join(dir, name), do))
	}
	if err != nil {
		return err
	}
	return do(dir)
}

// children returns the names of the groups in a group.
func (t *Tree) children(dir string) ([]string, error) {
	entries, err := fs.ReadDir(t.root.FS(), dir)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// control enables controllers for the children of a group.
func (t *Tree) control(dir string, controllers ...string) error {
	for _, c := range controllers {
		if t.Has(c) {
			if err := t.write(path.Join(dir, "cgroup.subtree_control"), "+"+c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Tree) exists(name string) bool {
	_, err := t.root.Lstat(name)
	return err == nil
}

// write writes a control file, which is there or is not to be.
func (t *Tree) write(name, text string) error {
	f, err := t.root.OpenFile(name, os.O_WRONLY, 0)
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
