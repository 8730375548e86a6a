// Package cgroup makes, limits and removes the control groups of runs, and
// reads what they have used. What a host has is its tier: v2 alone; hybrid, that
// is the tree of version 2 without controllers beside those of version 1; v1;
// or none, when this process has no right to any. Below a place of execd's own
// each run has a group that holds all of it, in the tree of version 2 or else in
// the freezer's, with two leaves: job, which holds the job's processes, and
// procedures, for what is run around and beside it. What version 2 does not
// control does another group for the job alone, in a hierarchy of version 1, if
// the run has such a limit. Launch and the daemon use it; of ours it imports spool
// and internal/proc alone. The shepherd, which joins and kills, needs no more than
// the paths.
//
// Limits, rules about devices and statistics of both versions are
// containerd/cgroups'; nobody outside of the package sees its types. The rest is
// ours, since the library
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

// Limits are those of one run. Zero is no limit.
type Limits struct {
	Memory uint64 // bytes, resident and swap together
	Procs  uint64 // processes and threads of the job
	CPUs   int    // processors' time
	Weight int    // share of the processors when there are not enough, against 1 of another run

	Devices []Device // those that it may not use as it likes
}

// A Group is the control groups of one run: absolute paths by the keys of config
// that name them.
type Group map[string]string

// keys are the keys of config that name groups.
var keys = append([]string{spool.KeyCgroup, spool.KeyCgroupFreezer}, spool.JoinedCgroups...)

// Record has config name the groups.
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

// Of returns the groups that config names, which may be none.
func Of(c *spool.Config) Group {
	g := Group{}
	for _, key := range keys {
		if path, ok := c.Lookup(key); ok {
			g[key] = path
		}
	}
	return g
}

// limiting are the controllers that limit runs, as far as they are there.
var limiting = []string{"memory", "pids", "cpu", devices}

// Tier says in words what the host has: the tier and, in brackets, the
// controllers by which runs can be limited.
func (t *Tree) Tier() string {
	if t == nil {
		return "none"
	}
	return t.tier + " (" + t.controllers() + ")"
}

// String is Tier with the place, for a line of the log.
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

// MakeWithin makes the groups of a task that is started in a run: below those of
// the run, wherever it has one, so that the run's limits hold for it as well.
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

// equip limits a new group and makes what is to be in it.
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

// asked reports whether a run of such limits has a group in a hierarchy of
// version 1. That costs time at its start, so that others have none.
func (h *hierarchy) asked(l Limits) bool {
	return h.with("memory") && l.Memory > 0 || h.with("pids") && l.Procs > 0 || h.with(devices) && len(l.Devices) > 0 ||
		h.with("cpu") && (l.CPUs > 0 || l.Weight > 0) || h.with("cpuacct")
}

// Kill kills everything in the groups of a run.
func (t *Tree) Kill(g Group) error {
	return t.visit(g, func(h *hierarchy, dir string) error {
		if h.holds() { // what is in another is here as well
			return h.kill(dir)
		}
		return nil
	})
}

// Remove kills what is left in the groups of a run and removes them. One that is
// not there is no error.
func (t *Tree) Remove(g Group) error {
	return t.visit(g, func(h *hierarchy, dir string) error { return h.remove(dir) })
}

// visit calls do for each group of a run that is in a hierarchy of ours. Others
// were made before a reboot.
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

// Sweep removes the groups of runs that keep does not know. What helps an execd
// that was before ends by itself.
func (t *Tree) Sweep(keep func(name string) bool) error {
	if t == nil {
		return nil
	}
	var errs []error
	for _, h := range t.all {
		names, err := h.children(h.base)
		errs = append(errs, err)
		for _, name := range names {
			if name != helpers && !keep(name) {
				errs = append(errs, h.remove(path.Join(h.base, name)))
			}
		}
	}
	return errors.Join(errs...)
}

// helpers is the group, beside those of the runs, of what execd has done for itself.
const helpers = "helpers"

// OpenHelpers opens the group for what is started beside the runs: in execd's own
// it could be looked for, or left behind. It is nil where there are no groups of
// version 2.
func (t *Tree) OpenHelpers() (*os.File, error) {
	if t == nil || !t.all[0].v2() {
		return nil, nil //nolint:nilnil // there is none, and nobody is to blame
	}
	h := t.all[0]
	name := path.Join(h.base, helpers)
	dir, err := h.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = ignore(h.mkdir(h.root, name), fs.ErrExist); err == nil {
			dir, err = h.root.Open(name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the control group of helpers: %w", err)
	}
	return dir, nil
}

// Leave removes execd's place unless there are runs in it. Nothing else can be
// done with the Tree after.
func (t *Tree) Leave() {
	if t != nil {
		for _, h := range t.all {
			h.leave()
		}
	}
}
