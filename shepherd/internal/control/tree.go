package control

import (
	"bytes"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"paddock/internal/proc"
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
	Elders []proc.Process

	// Daemon says that the first process and its group are a daemon, which starts
	// the job's own in sessions of theirs.
	Daemon bool

	trace func(...string)
	swept bool // the leaf was killed for good
}

// NewJob returns a job whose signals are traced by trace.
func NewJob(job Job, trace func(...string)) *Job {
	job.trace = trace
	return &job
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
		if !all && p.Group == j.PID {
			continue
		}
		if j.hit(p, sig) {
			n++
		}
	}
	return n
}

// hit sends sig to exactly the process that was seen.
func (j *Job) hit(p member, sig unix.Signal) bool {
	there, err := p.Signal(sig)
	if there {
		j.trace("killing pid " + strconv.Itoa(p.PID) + "/" + strconv.Itoa(p.groups))
	}
	return there && err == nil
}

// Members returns the pids of all processes of the job that are alive.
func (j *Job) Members() []int {
	var pids []int
	for _, p := range j.members() {
		pids = append(pids, p.PID)
	}
	return pids
}

// Below returns the processes below root that are alive, but for one.
func Below(root, but int) []proc.Process {
	all, _ := proc.All()
	below := proc.Descendants(all, root)
	return slices.DeleteFunc(all, func(p proc.Process) bool { return p.PID == root || p.PID == but || !below[p.PID] })
}

// Spare makes a process and what descends from it no part of the job.
func (j *Job) Spare(pid int) {
	if p, ok := proc.Get(pid); ok {
		j.Elders = append(j.Elders, p)
	}
}

// elders returns the pids of the elders that are left, of all below them and
// of all in sessions of theirs. Elders of which nothing is left are forgotten:
// a job of weeks may have a checkpoint command every minute.
func (j *Job) elders(all []proc.Process) map[int]bool {
	if len(j.Elders) == 0 {
		return nil
	}
	var roots []int
	j.Elders = slices.DeleteFunc(j.Elders, func(e proc.Process) bool {
		gone := true
		for _, p := range all {
			session := p.Session == e.Session && e.Session != j.Root && e.Session != j.PID
			if session || p.ID == e.ID {
				roots = append(roots, p.PID)
				gone = false
			}
		}
		return gone
	})
	return proc.Descendants(all, roots...)
}

// A member is a process of the job.
type member struct {
	proc.Process
	groups int // number of supplementary groups, when they were looked at
}

func (j *Job) members() []member {
	all, _ := proc.All()
	below, elders, inside := proc.Descendants(all, j.Root), j.elders(all), j.Leaf.members()
	var out []member
	for _, p := range all {
		m := member{Process: p}
		if p.PID == j.Root || elders[p.PID] && !inside[p.PID] {
			continue
		}
		if inside[p.PID] || below[p.PID] || p.Group == j.PID || p.Session == j.PID || j.marked(&m) {
			out = append(out, m)
		}
	}
	return out
}

// marked reports whether a process carries the job's additional group id or,
// for want of one, its directory in the environment it was started with.
func (j *Job) marked(p *member) bool {
	has := false
	switch {
	case j.Leaf != nil: // a process in it needs no mark
	case j.Group > 0:
		b, _ := p.Read("status")
		for gid := range proc.Groups(b) {
			p.groups++
			has = has || gid == j.Group
		}
		has = has && !allRoot(b)
	case j.Mark != "":
		for v := range p.Environ() {
			has = has || string(v) == j.Mark
		}
	}
	return has
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
