// Package cgroup makes, limits and removes the control groups of runs, and reads what
// they have used. The tier of a host is v2 alone; hybrid, the tree of version 2 without
// controllers beside those of version 1; v1; or none, when this process may make no
// groups. Below a place of execd's own each run has a group that holds all of it, in
// the tree of version 2 or else in the freezer's, with two leaves: job, which holds the
// job's processes, and procedures, for what runs around and beside it. For limits that
// version 2 lacks here, the job alone has another group in a hierarchy of version 1.
// Launch and the daemon use it; of ours it imports spool and packages of internal/ alone. The
// shepherd, which joins and kills, needs no more than the paths.
//
// Limits, rules about devices and statistics of both versions are left to
// containerd/cgroups; nobody outside of the package sees its types. The rest is ours,
// since the library
//   - opens no group, and a process that is to be born in one needs its
//     descriptor;
//   - does not join a tree of version 2 to controllers of version 1, and expects
//     each of those to be mounted under its own name;
//   - kills a list of processes where there is no cgroup.kill, and then may wait
//     for children of ours that it has killed;
//   - removes none but empty groups, after it has read every file below them,
//     and leaves what it could not finish to make;
//   - enables controllers in every group from the mount down, of which the last
//     few are ours.
package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"paddock/spool"
)

// Tree is execd's place among the groups of the host. A nil Tree stands for a
// host without: its methods do nothing, but Make must not be called.
type Tree struct {
	tier string
	all  []*hierarchy // the first holds every process of a run, the others are of version 1
}

// Limits are the limits of one run. Zero is no limit.
type Limits struct {
	Memory uint64 // bytes, resident and swap together
	Procs  uint64 // processes and threads of the job
	CPUs   int    // processors' worth of time
	Weight int    // share of the processors when there are not enough, against 1 of another run

	Devices []Device // those whose use is limited
}

// A Group is the control groups of one run: absolute paths by the keys of config
// that name them.
type Group map[string]string

// keys are the keys of config that name groups.
var keys = append([]string{spool.KeyCgroup, spool.KeyCgroupFreezer}, spool.JoinedCgroups...)

// Record writes the groups into config.
func (g Group) Record(c *spool.Config) error {
	for _, key := range keys {
		if path, ok := g[key]; ok {
			if err := c.Set(key, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// Of returns the groups that config names, perhaps none.
func Of(c *spool.Config) Group {
	g := Group{}
	for _, key := range keys {
		if path, ok := c.Lookup(key); ok {
			g[key] = path
		}
	}
	return g
}

// limiting are the controllers that limit runs, where the host has them.
var limiting = []string{"memory", "pids", "cpu", devices}

// Tier describes what the host has: the tier and, in brackets, the controllers by which
// runs can be limited.
func (t *Tree) Tier() string {
	if t == nil {
		return "none"
	}
	return t.tier + " (" + t.controllers() + ")"
}

// String is Tier with the place, for the log.
func (t *Tree) String() string {
	return t.tier + " at " + path.Join(t.all[0].mount, t.all[0].base) + " (" + t.controllers() + ")"
}

func (t *Tree) controllers() string {
	var names []string
	for _, c := range limiting {
		if t.Has(c) {
			names = append(names, c)
		}
	}
	return cmp.Or(strings.Join(names, " "), "no controllers")
}

// Has reports whether runs can be limited by a controller.
func (t *Tree) Has(controller string) bool {
	return t != nil && slices.ContainsFunc(t.all, func(h *hierarchy) bool { return h.with(controller) })
}

// Make makes the groups of a run.
func (t *Tree) Make(name string, l Limits) (g Group, err error) {
	g = Group{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Remove(g))
		}
	}()
	for i, h := range t.all {
		if i > 0 && !h.asked(l) {
			continue
		}
		dir, err := h.make(name)
		if err != nil {
			return g, err
		}
		g[h.key] = path.Join(h.mount, dir)
		if err := h.equip(dir, l); err != nil {
			return g, err
		}
	}
	return g, nil
}

// MakeWithin makes the groups of a task that is started in a run, below those of the
// run, so that the run's limits hold for it as well.
func (t *Tree) MakeWithin(run Group, name string, l Limits) (g Group, err error) {
	g = Group{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Remove(g))
		}
	}()
	err = t.visit(run, func(h *hierarchy, parent string) error {
		dir, err := h.makeIn(parent, name)
		if err != nil {
			return err
		}
		g[h.key] = path.Join(h.mount, dir)
		return h.equip(dir, l)
	})
	return g, err
}

// equip limits a new group and makes the groups in it.
func (h *hierarchy) equip(dir string, l Limits) error {
	switch {
	case h.v2():
		return h.makeV2(dir, l)
	case h.holds():
		return h.leaves(dir)
	}
	return h.limitV1(dir, l)
}

// makeV2 limits the group of a run as a whole and makes its leaves.
func (h *hierarchy) makeV2(dir string, l Limits) error {
	if err := h.set(dir, h.resourcesV2(l)); err != nil {
		return err
	}
	if err := h.control(dir, "memory", "pids"); err != nil {
		return err
	}
	if err := h.leaves(dir); err != nil {
		return err
	}
	return h.set(path.Join(dir, spool.CgroupJob), h.resourcesOfJob(l))
}

// asked reports whether a run with such limits has a group in a hierarchy of version 1.
// A group costs time at the start of the run, so that other runs have none.
func (h *hierarchy) asked(l Limits) bool {
	return h.with("memory") && l.Memory > 0 || h.with("pids") && l.Procs > 0 || h.with(devices) && len(l.Devices) > 0 ||
		h.with("cpu") && (l.CPUs > 0 || l.Weight > 0) || h.with("cpuacct")
}

// Kill kills everything in the groups of a run.
func (t *Tree) Kill(g Group) error {
	return t.visit(g, func(h *hierarchy, dir string) error {
		if h.holds() { // every process of the run is in this one
			return h.kill(dir)
		}
		return nil
	})
}

// Remove kills what is left in the groups of a run and removes them. A group that is
// not there is no error.
func (t *Tree) Remove(g Group) error {
	return t.visit(g, func(h *hierarchy, dir string) error { return h.remove(dir) })
}

// visit calls do for each group of a run that is in a hierarchy of ours. Groups in
// others were made before a reboot.
func (t *Tree) visit(g Group, do func(h *hierarchy, dir string) error) error {
	if t == nil {
		return nil
	}
	var errs []error
	for _, h := range t.all {
		group, ok := g[h.key]
		if !ok {
			continue
		}
		dir, err := h.below(group)
		if err == nil {
			err = do(h, dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Sweep removes the groups of runs whose names keep does not accept. Helpers and transfers
// of an earlier execd end by themselves.
func (t *Tree) Sweep(keep func(name string) bool) error {
	if t == nil {
		return nil
	}
	var errs []error
	for _, h := range t.all {
		names, err := h.children(h.base)
		errs = append(errs, err)
		for _, name := range names {
			if name != helpers && name != transfers && !keep(name) {
				errs = append(errs, h.remove(path.Join(h.base, name)))
			}
		}
	}
	return errors.Join(errs...)
}

// helpers is the group of what execd runs for itself, beside those of the runs.
const helpers = "helpers"

// OpenHelpers opens the group for what execd starts beside the runs, so that none of it
// is in execd's own group, even when execd has ended. It is nil where there are no
// groups of version 2.
func (t *Tree) OpenHelpers() (*os.File, error) { return t.openBeside(helpers, nil) }

// transfers is the group of what copies files of jobs. It goes after the jobs: its files
// have what they are to have, but for the controllers that the host lacks.
const transfers = "transfers"

var ofTransfers = []struct{ controller, file, value string }{
	{"cpu", "cpu.weight", "20"},
	{"io", "io.weight", "20"},
	{"memory", "memory.max", "536870912"}, // with what the disk has not written yet
}

// OpenTransfers is OpenHelpers for the group of transfers.
func (t *Tree) OpenTransfers() (*os.File, error) {
	return t.openBeside(transfers, func(h *hierarchy, name string) error {
		var errs []error
		for _, limit := range ofTransfers {
			if h.with(limit.controller) {
				// A kernel may have the controller without this file.
				errs = append(errs, ignore(h.write(path.Join(name, limit.file), limit.value), fs.ErrNotExist))
			}
		}
		return errors.Join(errs...)
	})
}

// openBeside opens a group beside those of the runs. One that is not there is made, and
// equipped.
func (t *Tree) openBeside(name string, equip func(h *hierarchy, name string) error) (*os.File, error) {
	if t == nil || !t.all[0].v2() {
		return nil, nil //nolint:nilnil // a host without is no error
	}
	h := t.all[0]
	full := path.Join(h.base, name)
	dir, err := h.root.Open(full)
	if errors.Is(err, fs.ErrNotExist) {
		if err = ignore(h.mkdir(h.root, full), fs.ErrExist); err == nil && equip != nil {
			err = equip(h, full)
		}
		if err == nil {
			dir, err = h.root.Open(full)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the control group of %s: %w", name, err)
	}
	return dir, nil
}

// Leave removes execd's place unless there are runs in it. The Tree cannot be used
// after that.
func (t *Tree) Leave() {
	if t != nil {
		for _, h := range t.all {
			h.leave()
		}
	}
}
