package control

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Job says how the processes of a job are known: by group and session of its
// first process, by descent from the shepherd that is everybody's subreaper, by
// the additional group id and, where there is none, by the mark in their
// environment.
type Job struct {
	PID   int    // first process, leader of group and session
	Root  int    // everything below this process is the job's: our own pid, whose orphans are ours
	Group int    // additional group id, 0 if none
	Mark  string // SGE_JOB_SPOOL_DIR=... to look for in environments, "" if not to be used
	Leaf  *Group // control group, nil if there is none: then nothing of the job is outside of it

	// Elders are below Root and not the job's: daemons that prolog or pe_start
	// have left, and commands that run beside the job. Nor is what descends from
	// them or is in a session of theirs.
	Elders []Process

	// Daemon says that the first process and its group are a daemon, which starts
	// the job's own in sessions of theirs.
	Daemon bool

	trace func(string)
	swept bool // the leaf was killed for good
}

// NewJob returns a job whose signals are traced by trace.
func NewJob(job Job, trace func(string)) *Job {
	job.trace = trace
	return &job
}

// A Process is one line of /proc as far as it matters here.
type Process struct {
	pid, ppid, pgrp, sid int
	start                string // start time in ticks since boot: with the pid it names a process for good
	zombie               bool
	groups               int // number of supplementary groups, when they were looked at
}

// Signal sends sig to every process of the job, each once, and reports how
// many there were outside the process group. Our own process is never hit.
func (j *Job) Signal(sig unix.Signal) int {
	pid := strconv.Itoa(j.PID)
	j.trace("now sending signal " + Name(sig) + " to pid -" + pid)
	if sig == unix.SIGKILL && j.killLeaf() {
		return 0
	}
	// The group first and in one call: a process that forks meanwhile cannot
	// slip through. While its leader was not waited for, the number is ours.
	if !j.Daemon || endsOrStops(sig) {
		_ = unix.Kill(-j.PID, sig)
	}
	return j.rest(sig, false)
}

// endsOrStops reports whether a signal is meant for a daemon and what it has
// started alike. Any other is a word to the job, of which a daemon would die.
func endsOrStops(sig unix.Signal) bool {
	switch sig {
	case unix.SIGKILL, unix.SIGTERM, unix.SIGHUP, unix.SIGSTOP, unix.SIGTSTP, unix.SIGCONT:
		return true
	}
	return false
}

// Sweep kills what is left once the first process was waited for; from then on
// its number may be anybody's, so that every process is hit by its own.
// It returns how many were hit.
func (j *Job) Sweep() int {
	if j.Leaf != nil && !j.Leaf.Populated() {
		return 0
	}
	// Once is enough, and every child that dies has us look again.
	if j.swept = j.swept || j.killLeaf(); j.swept {
		return 1
	}
	return j.rest(unix.SIGKILL, true)
}

// killLeaf kills the job through its control group and reports whether there is
// one: everything at once, however fast it forks.
func (j *Job) killLeaf() bool {
	if j.Leaf == nil {
		return false
	}
	err := j.Leaf.Kill()
	if err != nil {
		j.trace("cannot kill the control group: " + err.Error())
		return false
	}
	j.trace("killed the control group")
	return true
}

// rest sends sig to the job's processes that are not in its process group, or
// to all of them.
func (j *Job) rest(sig unix.Signal, all bool) int {
	if j.Group > 0 {
		j.trace("pdc_kill_addgrpid: " + strconv.Itoa(j.Group) + " " + strconv.Itoa(int(sig)))
	}
	n := 0
	for _, p := range j.members() {
		if !all && p.pgrp == j.PID {
			continue
		}
		if j.hit(p, sig) {
			n++
		}
	}
	return n
}

// hit sends sig to exactly the process that was seen: a pidfd is opened, and
// the start time compared after, since a pid alone may have become another's.
func (j *Job) hit(p Process, sig unix.Signal) bool {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if now, ok := readStat(p.pid); !ok || now.start != p.start {
		return false
	}
	j.trace("killing pid " + strconv.Itoa(p.pid) + "/" + strconv.Itoa(p.groups))
	return unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

// Members returns the pids of all processes of the job that are alive.
func (j *Job) Members() []int {
	var pids []int
	for _, p := range j.members() {
		pids = append(pids, p.pid)
	}
	return pids
}

// Below returns the processes below root that are alive, but for one.
func Below(root, but int) []Process {
	all := processes()
	below := descendants(all, root)
	var out []Process
	for _, p := range all {
		if p.pid != root && p.pid != but && below[p.pid] && !p.zombie {
			out = append(out, p)
		}
	}
	return out
}

// descendants returns the pids of the roots and of all below them.
func descendants(all []Process, roots ...int) map[int]bool {
	below := make(map[int]bool)
	for _, pid := range roots {
		below[pid] = true
	}
	for again := len(roots) > 0; again; { // parents may come after their children once pids have wrapped
		again = false
		for _, p := range all {
			if !below[p.pid] && below[p.ppid] {
				below[p.pid] = true
				again = true
			}
		}
	}
	return below
}

// Spare makes a process and what descends from it no part of the job.
func (j *Job) Spare(pid int) {
	if p, ok := readStat(pid); ok {
		j.Elders = append(j.Elders, p)
	}
}

// elders returns the pids of the elders that are left, of all below them and
// of all in sessions of theirs. Elders of which nothing is left are forgotten:
// a job of weeks may have a checkpoint command every minute.
func (j *Job) elders(all []Process) map[int]bool {
	if len(j.Elders) == 0 {
		return nil
	}
	var roots []int
	j.Elders = slices.DeleteFunc(j.Elders, func(e Process) bool {
		gone := true
		for _, p := range all {
			session := p.sid == e.sid && e.sid != j.Root && e.sid != j.PID
			if session || p.pid == e.pid && p.start == e.start {
				roots = append(roots, p.pid)
				gone = false
			}
		}
		return gone
	})
	return descendants(all, roots...)
}

func (j *Job) members() []Process {
	all := processes()
	below, elders, inside := descendants(all, j.Root), j.elders(all), j.Leaf.members()
	var out []Process
	for _, p := range all {
		if p.pid == j.Root || p.zombie || elders[p.pid] && !inside[p.pid] {
			continue
		}
		if inside[p.pid] || below[p.pid] || p.pgrp == j.PID || p.sid == j.PID || j.marked(&p) {
			out = append(out, p)
		}
	}
	return out
}

// marked reports whether a process carries the job's additional group id or,
// for want of one, its directory in the environment it was started with.
func (j *Job) marked(p *Process) bool {
	switch {
	case j.Leaf != nil: // who is in it needs no mark
		return false
	case j.Group > 0:
		b, err := readProc(p.pid, "status")
		if err != nil {
			return false
		}
		var has bool
		has, p.groups = hasGroup(b, j.Group)
		return has && !allRoot(b)
	case j.Mark != "":
		b, err := readProc(p.pid, "environ")
		if err != nil {
			return false
		}
		for v := range bytes.SplitSeq(b, []byte{0}) {
			if string(v) == j.Mark {
				return true
			}
		}
	}
	return false
}

// hasGroup looks for gid in the line Groups of a status file and counts the
// groups there.
func hasGroup(status []byte, gid int) (has bool, n int) {
	_, rest, ok := bytes.Cut(status, []byte("\nGroups:"))
	if !ok {
		return false, 0
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	for f := range bytes.FieldsSeq(line) {
		n++
		if g, err := strconv.Atoi(string(f)); err == nil && g == gid {
			has = true
		}
	}
	return has, n
}

// allRoot reports whether a process is root's in every respect: Grid Engine
// spares those, since the kernel's NFS threads may carry any group.
func allRoot(status []byte) bool {
	for _, key := range []string{"\nUid:", "\nGid:"} {
		_, rest, _ := bytes.Cut(status, []byte(key))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		for f := range bytes.FieldsSeq(line) {
			if string(f) != "0" {
				return false
			}
		}
	}
	return true
}

// processes returns what is in /proc.
func processes() []Process {
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var (
		out   []Process
		names []string
		buf   = make([]byte, 32<<10)
	)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		names = names[:0]
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
		for _, name := range names {
			if name[0] < '1' || name[0] > '9' {
				continue
			}
			pid, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			if p, ok := readStat(pid); ok {
				out = append(out, p)
			}
		}
	}
	return out
}

// readStat reads what /proc says of one process; ok is false if it is gone.
func readStat(pid int) (p Process, ok bool) {
	b, err := readProc(pid, "stat")
	if err != nil {
		return Process{}, false
	}
	return parseStat(pid, b)
}

// parseStat parses the line behind its last closing bracket: the command's
// name before it may hold anything, brackets and blanks included.
func parseStat(pid int, b []byte) (p Process, ok bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return Process{}, false
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 { // state is field 3 of the page proc(5), the start time is field 22
		return Process{}, false
	}
	num := func(n int) int { v, _ := strconv.Atoi(string(f[n-3])); return v }
	return Process{
		pid: pid, ppid: num(4), pgrp: num(5), sid: num(6), start: string(f[22-3]),
		// A first thread that has ended is shown as a zombie while others run.
		zombie: (f[0][0] == 'Z' || f[0][0] == 'X') && num(20) <= 1,
	}, true
}

// readProc reads a file of /proc/PID, which says its size only by ending.
func readProc(pid int, name string) ([]byte, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return readAll(fd)
}

// readAll reads a descriptor to its end and closes it.
func readAll(fd int) ([]byte, error) {
	defer unix.Close(fd)
	b := make([]byte, 0, 1<<10)
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			return b, nil
		}
		b = b[:len(b)+n]
	}
}
