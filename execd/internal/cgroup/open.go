package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/cgroups/v3/cgroup2"

	"paddock/spool"
)

// leaf is the group that execd itself moves to where the groups of its jobs need
// controllers: a group whose children have controllers may hold no processes. In a unit
// of systemd execd starts there (DelegateSubgroup).
const leaf = "execd"

// Open finds a place for the groups of runs and makes the group name there, for one
// execd alone. It starts a program in a group of version 2 to see whether shepherds can
// be started so. The error says why the host has no place.
func Open(name, program string, args ...string) (*Tree, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cannot find control groups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("cannot find control groups: %w", err)
	}
	places, err := locate(string(mounts), string(own))
	if err != nil {
		return nil, err
	}
	o := opener{name: name, pid: os.Getpid(), privileged: os.Geteuid() == 0, kernel: realKernel}
	o.probe = func(t *Tree) error { return t.probe(program, args...) }
	return o.open(places)
}

// place is where a hierarchy is mounted, and our own group below that.
type place struct {
	mount, group string
	controllers  []string // of version 1; nil for version 2
}

// locate returns the places there are, that of version 2 first, from the contents of
// mountinfo and cgroup of /proc/self.
func locate(mountinfo, own string) ([]place, error) {
	groups := map[string]string{} // our own by controllers, those of version 2 by ""
	for line := range strings.Lines(own) {
		_, rest, _ := strings.Cut(line, ":")
		controllers, group, _ := strings.Cut(strings.TrimSuffix(rest, "\n"), ":")
		if !strings.HasPrefix(controllers, "name=") { // which has no controllers
			groups[controllers] = group
		}
	}
	var places []place
	err := errors.New("no control groups are mounted")
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		f, kind := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(kind) < 3 || strings.Contains(f[4], `\`) {
			continue
		}
		p := place{mount: f[4]}
		var ok bool
		switch kind[0] {
		case "cgroup2":
			p.group, ok = groups[""]
		case "cgroup":
			for names, group := range groups {
				// The options name the controllers among others, in any order.
				list := strings.Split(names, ",")
				if names != "" && !slices.ContainsFunc(list, func(n string) bool { return !slices.Contains(strings.Split(kind[2], ","), n) }) {
					p.controllers, p.group, ok = list, group, true
				}
			}
		default:
			continue
		}
		if ok {
			p.group, ok = strings.CutPrefix(strings.TrimSuffix(p.group, "/")+"/", strings.TrimSuffix(f[3], "/")+"/")
		}
		if p.group = path.Clean(p.group); !ok || !filepath.IsLocal(p.group) || strings.ContainsAny(p.group, " \\") {
			err = fmt.Errorf("the group of this process is not below %s", p.mount)
			continue
		}
		again := func(q place) bool { return slices.Equal(q.controllers, p.controllers) }
		switch {
		case slices.ContainsFunc(places, again):
		case p.controllers == nil:
			places = slices.Insert(places, 0, p)
		default:
			places = append(places, p)
		}
	}
	if len(places) == 0 {
		return nil, err
	}
	return places, nil
}

// opener has what a test of Open replaces.
type opener struct {
	name       string
	pid        int  // of this process
	privileged bool // it is root
	probe      func(*Tree) error
	kernel
}

// open opens the places that can be used.
func (o *opener) open(places []place) (*Tree, error) {
	t := &Tree{tier: "v2"}
	var err error
	if places[0].controllers == nil {
		if len(places) > 1 {
			t.tier = "hybrid"
		}
		var h *hierarchy
		if h, err = o.openV2(places[0]); err == nil {
			t.all = []*hierarchy{h}
			if err = o.probe(t); err != nil {
				h.leave()
				t.all = nil
			}
		}
		places = places[1:]
	}
	freezer := slices.IndexFunc(places, func(p place) bool { return slices.Contains(p.controllers, "freezer") })
	if t.all == nil && freezer >= 0 {
		t.tier = "v1"
		h, errV1 := o.openV1(places[freezer], spool.KeyCgroupFreezer, nil)
		if errV1 == nil {
			t.all = []*hierarchy{h}
			// Its leaves would put the job in another group than its limits.
			places = slices.Delete(places, freezer, freezer+1)
		}
		err = cmp.Or(err, errV1)
	}
	if t.all == nil {
		return nil, cmp.Or(err, errors.New("neither version 2 nor the freezer of version 1 is mounted"))
	}
	wanted := limiting
	if !t.all[0].v2() { // version 2 counts processor time without a controller
		wanted = append(slices.Clip(wanted), "cpuacct")
	}
	for _, p := range places {
		var has []string
		for _, c := range wanted {
			if slices.Contains(p.controllers, c) && !t.Has(c) {
				has = append(has, c)
			}
		}
		if len(has) == 0 {
			continue
		}
		// A hierarchy that cannot be opened limits nothing, as String shows.
		if h, err := o.openV1(p, joined[has[0]], has); err == nil {
			t.all = append(t.all, h)
		}
	}
	return t, nil
}

// joined are the keys of hierarchies of version 1 by their first controller.
var joined = map[string]string{
	"memory": spool.KeyCgroupMemory, "pids": spool.KeyCgroupPids,
	"cpu": spool.KeyCgroupCPU, "cpuacct": spool.KeyCgroupCPUAcct,
	devices: spool.KeyCgroupDevices,
}

func (o *opener) openV1(p place, key string, has []string) (*hierarchy, error) {
	root, err := os.OpenRoot(p.mount)
	if err != nil {
		return nil, fmt.Errorf("cannot find control groups: %w", err)
	}
	h := &hierarchy{key: key, mount: p.mount, root: root, has: has, kernel: o.kernel}
	if err := h.take(p.group, o.name); err != nil {
		root.Close()
		return nil, err
	}
	_, err = root.Lstat(path.Join(h.base, "memory.memsw.limit_in_bytes"))
	h.swap = err == nil
	h.subsystems = h.subsystemsV1()
	if h.with("cpu") {
		// Beside the other groups of the host, all jobs together would have the share of
		// one.
		_ = h.limitV1(h.base, Limits{Weight: runtime.NumCPU()})
	}
	return h, nil
}

// openV2 tries the possible places, best first.
func (o *opener) openV2(p place) (*hierarchy, error) {
	root, err := os.OpenRoot(p.mount)
	if err != nil {
		return nil, fmt.Errorf("cannot find control groups: %w", err)
	}
	h := &hierarchy{key: spool.KeyCgroup, mount: p.mount, root: root, kernel: o.kernel}
	_, err = root.Lstat("cgroup.type") // the root of the host has none
	top := errors.Is(err, fs.ErrNotExist)
	switch {
	case path.Base(p.group) == leaf:
		err = h.takeV2(path.Dir(p.group), o.name, 0)
	case p.group == "." && top:
		err = h.takeV2(p.group, o.name, 0)
	// Below a unit without a subgroup of ours the next start would fail while jobs run: the
	// unit's group may then hold no process.
	case strings.HasSuffix(p.group, ".service") && o.privileged && top:
		err = h.takeV2(".", o.name, 0)
	case strings.HasSuffix(p.group, ".service") && !o.privileged && managerOf(p.group) != "":
		err = h.takeV2(managerOf(p.group), o.name, 0)
	default:
		if err = h.takeV2(p.group, o.name, o.pid); err != nil && o.privileged && top {
			err = h.takeV2(".", o.name, 0)
		}
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	_, err = root.Lstat(path.Join(h.base, "memory.swap.max"))
	h.swap = err == nil
	return h, nil
}

// managerOf returns the group of the service manager of the user above the group of a unit
// of his, which is his; empty: there is none.
func managerOf(unit string) string {
	for dir := path.Dir(unit); dir != "."; dir = path.Dir(dir) {
		if name := path.Base(dir); strings.HasPrefix(name, "user@") && strings.HasSuffix(name, ".service") {
			return dir
		}
	}
	return ""
}

// probe starts a program in a group, as shepherds will be from the group of this
// process. A sandbox may forbid it. And a newer Linux (seen with 6.18) kills at birth
// what is started in a group that has seen more, or fewer, writes to cgroup.kill than
// the group of its parent: no job must meet that.
func (t *Tree) probe(program string, args ...string) error {
	h := t.all[0]
	dir, err := h.make("probe")
	if err != nil {
		return err
	}
	defer func() { _ = h.remove(dir) }()
	if err := h.makeV2(dir, Limits{}); err != nil {
		return err
	}
	// Not every kernel has programs for devices, or lets us load them.
	if h.set(dir, &cgroup2.Resources{Devices: rulesV2([]Device{{Read: true, Write: true}})}) == nil {
		h.has = append(h.has, devices)
	}
	job, err := h.root.Open(path.Join(dir, spool.CgroupJob))
	if err != nil {
		return fmt.Errorf("cannot open control group: %w", err)
	}
	defer job.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = spool.StartEnvironment
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(job.Fd())}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot start a process in a control group: %w", err)
	}
	return nil
}

// takeV2 is take with all useful controllers enabled. If pid is not 0 and nothing else
// works, it moves this process out of the way into a leaf.
func (h *hierarchy) takeV2(place, name string, pid int) error {
	text, err := h.root.ReadFile(path.Join(place, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("cannot use control groups: %w", err)
	}
	h.has = nil
	for _, c := range append(slices.Clip(limiting), "io") { // io for usage alone
		if slices.Contains(strings.Fields(string(text)), c) {
			h.has = append(h.has, c)
		}
	}
	// This comes first, since it shows whether we may.
	if err := h.take(place, name); err != nil {
		return err
	}
	err = h.control(place, h.has...)
	if errors.Is(err, syscall.EBUSY) && pid != 0 {
		err = h.move(place, pid)
	}
	if err == nil {
		err = h.control(h.base, h.has...)
	}
	if err != nil {
		_ = h.rmdir(h.root, h.base) // unless there are runs in it
	}
	return err
}

// move moves this process to a leaf, so that place can have children with controllers,
// and back if other processes in place prevent that.
func (h *hierarchy) move(place string, pid int) error {
	to := path.Join(place, leaf)
	if err := h.mkdir(h.root, to); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot use control groups: %w", err)
	}
	err := h.write(path.Join(to, "cgroup.procs"), strconv.Itoa(pid))
	if err == nil {
		if err = h.control(place, h.has...); err != nil {
			_ = h.write(path.Join(place, "cgroup.procs"), strconv.Itoa(pid))
		}
	}
	if err != nil {
		_ = h.rmdir(h.root, to)
	}
	return err
}
