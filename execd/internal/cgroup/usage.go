package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"paddock/spool"
)

// Usage is what a job has used, with all its processes that have ended. What the
// host does not count is 0.
type Usage struct {
	User, System  time.Duration
	Memory        uint64 // bytes now, resident, and swap where the host counts that, without what is cached of files
	Peak          uint64 // bytes at most, with what was cached: the kernel keeps no other
	Procs         int    // processes now
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
		// One walk to the group and not one for each file.
		root, err := h.root.OpenRoot(dir)
		if err != nil {
			return fmt.Errorf("cannot read control group: %w", err)
		}
		defer root.Close()
		switch {
		case h.v2():
			u.addV2(h, files{root, spool.CgroupJob + "/"}, files{root, ""})
		case h.holds():
			u.Procs = files{root, spool.CgroupJob + "/"}.lines("cgroup.procs")
		default:
			u.addV1(h, files{root, ""})
		}
		return nil
	})
	return u, err
}

var errNone = errors.New("the run has no control group")

func (u *Usage) addV2(h *hierarchy, job, run files) {
	u.Procs = job.lines("cgroup.procs")
	cpu := job.table("cpu.stat") // whatever controllers there are
	u.User, u.System = time.Duration(cpu["user_usec"])*time.Microsecond, time.Duration(cpu["system_usec"])*time.Microsecond
	if h.with("memory") {
		u.Memory = job.memory("", job.number("memory.current")) + job.number("memory.swap.current")
		u.Peak = job.number("memory.peak")
		u.OOMKills = int(job.table("memory.events")["oom_kill"])
	}
	if h.with("io") {
		// A line for each disk: its number and words such as rbytes=1.
		for word := range strings.FieldsSeq(run.read("io.stat")) {
			key, value, _ := strings.Cut(word, "=")
			n, _ := strconv.ParseUint(value, 10, 64)
			switch key {
			case "rbytes":
				u.Read += n
			case "wbytes":
				u.Written += n
			}
		}
	}
}

func (u *Usage) addV1(h *hierarchy, job files) {
	if h.with("cpuacct") {
		cpu := job.table("cpuacct.stat")
		u.User, u.System = time.Duration(cpu["user"])*tick, time.Duration(cpu["system"])*tick
	}
	if h.with("memory") {
		all, peak := job.number("memory.memsw.usage_in_bytes"), job.number("memory.memsw.max_usage_in_bytes")
		if all == 0 {
			all, peak = job.number("memory.usage_in_bytes"), job.number("memory.max_usage_in_bytes")
		}
		u.Memory, u.Peak = job.memory("total_", all), peak
		u.OOMKills = int(job.table("memory.oom_control")["oom_kill"])
	}
}

// tick is the unit of times that the kernel shows in ticks: USER_HZ is 100.
const tick = 10 * time.Millisecond

// files are those of a group.
type files struct {
	root   *os.Root
	prefix string
}

// read returns a file's text, empty if it cannot be read: the kernel may be older
// than the file.
func (f files) read(name string) string {
	b, _ := f.root.ReadFile(f.prefix + name)
	return string(b)
}

func (f files) number(name string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSpace(f.read(name)), 10, 64)
	return n
}

func (f files) lines(name string) int { return strings.Count(f.read(name), "\n") }

// memory returns what of all memory is the processes' own. What is cached of the
// files they read and write goes as soon as anybody wants the room.
func (f files) memory(prefix string, all uint64) uint64 {
	stat := f.table("memory.stat")
	cached := stat[prefix+"active_file"] + stat[prefix+"inactive_file"]
	return all - min(all, cached) // read at another moment
}

// table reads lines of a word and a number.
func (f files) table(name string) map[string]uint64 {
	m := map[string]uint64{}
	for line := range strings.Lines(f.read(name)) {
		if words := strings.Fields(line); len(words) == 2 {
			m[words[0]], _ = strconv.ParseUint(words[1], 10, 64)
		}
	}
	return m
}
