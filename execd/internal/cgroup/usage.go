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

// Usage is what a job has used, with all its processes that have ended. What the
// host does not count is 0.
type Usage struct {
	User, System  time.Duration
	Memory        uint64 // bytes now, resident, and swap where the host counts that, without what is cached of files
	Peak          uint64 // bytes at most, with what was cached: the kernel keeps no other
	Read, Written uint64 // bytes from and to disks, by the procedures as well
	OOMKills      int    // processes that were killed for want of memory
}

// Usage reads the usage of a job from its groups: a handful of small files. The
// error is that there are none, or no more.
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

// addHolding adds what the group counts that holds the run.
func (u *Usage) addHolding(h *hierarchy, dir string) error {
	// The library takes what is gone for what has used nothing.
	if _, err := os.Lstat(path.Join(h.mount, dir)); err != nil || !h.v2() {
		return err
	}
	what := cgroup2.StatCPU // whatever controllers there are
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

// own returns what of all memory is the processes' own. What is cached of the
// files they read and write goes as soon as anybody wants the room.
func own(all, cached uint64) uint64 {
	return all - min(all, cached) // read at another moment
}
