package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"

	"paddock/spool"
)

// Usage is what the processes of a job, those that have ended included, have used. What
// the host does not count is 0.
type Usage struct {
	User, System  time.Duration
	Memory        uint64 // bytes now, resident and swap (where counted), without the page cache
	Peak          uint64 // bytes at most, with the page cache: the kernel keeps no other maximum
	Read, Written uint64 // bytes from and to disks, those of the procedures included
	OOMKills      int    // processes that the OOM killer has killed
}

// Usage reads the usage of a job from its groups: a handful of small files. It fails if
// they do not exist.
func (t *Tree) Usage(g Group) (Usage, error) {
	var u Usage
	if t == nil {
		return u, errNone
	}
	if _, ok := g[t.all[0].key]; !ok {
		return u, errNone
	}
	err := t.visit(g, func(h *hierarchy, dir string) error {
		add := u.addV1
		if h.holds() {
			add = u.addHolding
		}
		if err := add(h, dir); err != nil {
			return fmt.Errorf("cannot read control group: %w", err)
		}
		return nil
	})
	return u, err
}

var errNone = errors.New("the run has no control group")

// addHolding adds the counts of the group that holds the run.
func (u *Usage) addHolding(h *hierarchy, dir string) error {
	// To the library, a group that is gone has used nothing.
	if _, err := os.Lstat(path.Join(h.mount, dir)); err != nil || !h.v2() {
		return err
	}
	what := cgroup2.StatCPU // there without a controller
	if h.with("memory") {
		what |= cgroup2.StatMemory | cgroup2.StatMemoryEvents
	}
	job, err := h.manager(path.Join(dir, spool.CgroupJob))
	if err != nil {
		return err
	}
	m, err := job.StatFiltered(what)
	if err != nil {
		return err
	}
	u.User, u.System = time.Duration(m.CPU.UserUsec)*time.Microsecond, time.Duration(m.CPU.SystemUsec)*time.Microsecond
	u.Memory = own(m.Memory.GetUsage(), m.Memory.GetActiveFile()+m.Memory.GetInactiveFile()) + m.Memory.GetSwapUsage()
	u.Peak = m.Memory.GetMaxUsage()
	u.OOMKills = int(m.MemoryEvents.GetOomKill())
	if !h.with("io") {
		return nil
	}
	run, err := h.manager(dir)
	if err != nil {
		return err
	}
	if m, err = run.StatFiltered(cgroup2.StatIO); err != nil {
		return err
	}
	for _, disk := range m.Io.Usage {
		u.Read += disk.Rbytes
		u.Written += disk.Wbytes
	}
	return nil
}

func (u *Usage) addV1(h *hierarchy, dir string) error {
	if !h.with("cpuacct") && !h.with("memory") {
		return nil
	}
	where, hierarchy := h.inV1(dir)
	c, err := cgroup1.Load(where, hierarchy)
	if err != nil {
		return err
	}
	m, err := c.Stat(cgroup1.IgnoreNotExist)
	if err != nil {
		return err
	}
	if h.with("cpuacct") {
		u.User, u.System = time.Duration(m.CPU.Usage.User), time.Duration(m.CPU.Usage.Kernel)
	}
	if h.with("memory") {
		all := m.Memory.GetUsage()
		if h.swap {
			all = m.Memory.GetSwap()
		}
		u.Memory, u.Peak = own(all.GetUsage(), m.Memory.GetTotalActiveFile()+m.Memory.GetTotalInactiveFile()), all.GetMax()
		u.OOMKills = int(m.MemoryOomControl.GetOomKill())
	}
	return nil
}

// own returns the part of all memory that is not page cache, which the kernel takes
// back as soon as memory is wanted.
func own(all, cached uint64) uint64 {
	return all - min(all, cached) // read at another moment
}
