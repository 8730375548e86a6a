package control

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// Group is the leaf of a job's control group that holds the job: whatever its
// processes do, they and what they start are in it until they end. execd has
// made it, and removes it. A nil Group is that of a job that has none.
type Group struct{ FD int } // of the directory

// OpenGroup opens the leaf job of the group that config names.
func OpenGroup(path string) (*Group, error) {
	fd, err := openDirectory(unix.AT_FDCWD, path+"/"+spool.CgroupJob)
	if err != nil {
		return nil, errors.New("cannot open control group " + strconv.Quote(path) + ": " + err.Error())
	}
	return &Group{FD: fd}, nil
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

// Kill kills everything in the leaf, and in groups that the job may have made
// below it. It is done when the kernel says so, and not yet when Kill returns.
func (g *Group) Kill() error { return g.kill("") }

// KillAll kills what is in the leaf of the procedures as well.
func (g *Group) KillAll() error {
	err := g.kill("../")
	if errors.Is(err, unix.ENOENT) {
		err = g.kill("../" + spool.CgroupProcedures + "/")
	}
	return err
}

func (g *Group) kill(where string) error {
	err := g.write(where+"cgroup.kill", "1")
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	// Before Linux 5.14. What is frozen cannot fork away, and can be killed.
	if err := g.write(where+"cgroup.freeze", "1"); err != nil {
		return err
	}
	for tries := 0; tries < 100 && g.count(where+"cgroup.events", "frozen") == 0; tries++ {
		ts := unix.NsecToTimespec(int64(time.Millisecond))
		_, _ = unix.Ppoll(nil, &ts, nil)
	}
	for pid := range g.pids(where + "cgroup.procs") {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return g.write(where+"cgroup.freeze", "0")
}

// Populated reports whether anything in the leaf or below it is alive.
func (g *Group) Populated() bool { return g != nil && g.count("cgroup.events", "populated") > 0 }

// Killed returns how many processes of the job were killed for want of memory,
// and how often the limit of the whole group was the reason.
func (g *Group) Killed() (processes, limit int) {
	processes = g.count("memory.events", "oom_kill")
	if processes > 0 {
		limit = g.count("../memory.events", "oom")
	}
	return processes, limit
}

// Peak returns the most memory the job ever had, 0 where the kernel (before
// Linux 5.19) does not know.
func (g *Group) Peak() uint64 {
	b, _ := g.read("memory.peak")
	n, _ := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	return n
}

// count returns the number behind a word of a file, 0 if it is not there.
func (g *Group) count(file, word string) int {
	b, _ := g.read(file)
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == word {
			n, _ := strconv.Atoi(string(f[1]))
			return n
		}
	}
	return 0
}

// pids returns the processes that a file lists.
func (g *Group) pids(file string) map[int]bool {
	b, _ := g.read(file)
	out := make(map[int]bool)
	for word := range bytes.FieldsSeq(b) {
		if pid, err := strconv.Atoi(string(word)); err == nil && pid > 0 { // 0: not in our namespace
			out[pid] = true
		}
	}
	return out
}

// members returns the processes of the leaf.
func (g *Group) members() map[int]bool {
	if g == nil {
		return nil
	}
	return g.pids("cgroup.procs")
}

func (g *Group) read(file string) ([]byte, error) {
	fd, err := unix.Openat(g.FD, file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return readAll(fd)
}

func (g *Group) write(file, text string) error {
	fd, err := unix.Openat(g.FD, file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}
