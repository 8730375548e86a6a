package control

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"paddock/internal/proc"
	"paddock/spool"
)

// Group is the leaf of a job's control group that holds the job: whatever its
// processes do, they and what they start are in it until they end. execd has
// made it, and removes it. A nil Group is that of a job that has none.
type Group struct {
	FD int  // of the directory
	V1 bool // it is the freezer's, of version 1: nothing can be born there

	memory string // the job's group of version 1 that counts memory, "" for none
	events int    // eventfd: how often that ran out, -1 for none
	outs   int    // what was read from it
}

// OpenGroup opens the leaf job of the group that config names.
func OpenGroup(path string, v1 bool) (*Group, error) {
	fd, err := openDirectory(unix.AT_FDCWD, path+"/"+spool.CgroupJob)
	if err != nil {
		return nil, errors.New("cannot open control group " + strconv.Quote(path) + ": " + err.Error())
	}
	return &Group{FD: fd, V1: v1, events: -1}, nil
}

// Procedures opens the leaf beside it, for what is no part of the job.
func (g *Group) Procedures() (int, error) {
	fd, err := openDirectory(g.FD, "../"+spool.CgroupProcedures)
	if err != nil {
		return -1, errors.New("cannot open control group of procedures: " + err.Error())
	}
	return fd, nil
}

func openDirectory(at int, path string) (int, error) {
	return unix.Openat(at, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// Take moves a process to the group that a descriptor names, as version 1 needs
// it where version 2 has it born there.
func Take(group, pid int) error {
	return proc.WriteFile(group, "cgroup.procs", strconv.Itoa(pid))
}

// WatchMemory returns a descriptor that can be read when the memory of the job's
// group in a hierarchy of version 1 has run out. The kernel then kills one
// process, where version 2 kills the job.
func (g *Group) WatchMemory(path string) (int, error) {
	g.memory = path + "/"
	fd, err := g.watch()
	if err != nil {
		return -1, errors.New("cannot watch control group " + strconv.Quote(path) + ": " + err.Error())
	}
	g.events = fd
	return fd, nil
}

func (g *Group) watch() (int, error) {
	limit, err := unix.Open(g.memory+"memory.oom_control", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(limit)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, err
	}
	if err := proc.WriteFile(g.FD, g.memory+"cgroup.event_control", strconv.Itoa(fd)+" "+strconv.Itoa(limit)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Kill kills everything in the leaf, and in groups that the job may have made
// below it, see proc.KillGroup.
func (g *Group) Kill() error { return proc.KillGroup(g.FD, ".", g.V1) }

// KillAll kills what is in the leaf of the procedures as well.
func (g *Group) KillAll() error { return proc.KillGroup(g.FD, "..", g.V1) }

// Populated reports whether anything in the leaf or below it is alive.
func (g *Group) Populated() bool {
	switch {
	case g == nil:
		return false
	case g.V1:
		return len(g.members()) > 0
	}
	return g.count("cgroup.events", "populated") > 0
}

// Killed returns how many processes of the job were killed for want of memory,
// and how often the limit of the whole group was the reason.
func (g *Group) Killed() (processes, limit int) {
	if g.memory != "" {
		processes = g.count(g.memory+"memory.oom_control", "oom_kill")
		return processes, g.ranOut()
	}
	processes = g.count("memory.events", "oom_kill")
	if processes > 0 {
		limit = g.count("../memory.events", "oom")
	}
	return processes, limit
}

// KilledOne reports whether the kernel has killed a process of the job at the limit of the
// group, and maybe none of the others: version 1 does so. Of a group that is not watched it
// is not known.
func (g *Group) KilledOne() bool {
	if g == nil || g.events < 0 || g.ranOut() == 0 {
		return false
	}
	killed, _ := g.Killed()
	return killed > 0
}

// ranOut returns how often the memory of a group of version 1 ran out; of one
// that could not be watched it is taken to be the reason.
func (g *Group) ranOut() int {
	if g.events < 0 {
		return 1
	}
	var b [8]byte
	if n, err := unix.Read(g.events, b[:]); err == nil && n == len(b) {
		g.outs += int(binary.NativeEndian.Uint64(b[:]))
	}
	return g.outs
}

// Peak returns the most memory the job ever had, 0 where the kernel (before
// Linux 5.19) does not know.
func (g *Group) Peak() uint64 {
	files := []string{"memory.peak"}
	if g.memory != "" { // the first of them counts swap as well
		files = []string{g.memory + "memory.memsw.max_usage_in_bytes", g.memory + "memory.max_usage_in_bytes"}
	}
	for _, file := range files {
		if b, err := proc.ReadFile(g.FD, file, nil); err == nil {
			n, _ := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
			return n
		}
	}
	return 0
}

// count returns the number behind a word of a file, 0 if it is not there.
func (g *Group) count(file, word string) int {
	b, _ := proc.ReadFile(g.FD, file, nil)
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == word {
			n, _ := strconv.Atoi(string(f[1]))
			return n
		}
	}
	return 0
}

// members returns the processes of the leaf, and of groups that the job may have made
// below it.
func (g *Group) members() map[int]bool {
	if g == nil {
		return nil
	}
	return proc.Members(g.FD, ".")
}
