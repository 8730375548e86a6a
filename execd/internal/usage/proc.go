package usage

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"paddock/internal/proc"
	"paddock/spool"
)

// process is one process of the host.
type process struct {
	pid   int
	inode uint64 // of its directory: another one is another process with the same number
	scan  int    // the last scan that found it
	since time.Time
	job   *job
	// settled says that it belongs to no job and never will: it is passed over
	// without a look.
	settled bool
	reading
	counted reading // what of it is in the sums of the job
	reader  *reader // that was given up over it
}

// reading is what a process said at the last look. CPU and io are those of the
// process and of all its children that it has waited for.
type reading struct {
	parent, session int
	cpu, sys        uint64 // ticks; the second in the kernel alone
	io              uint64 // bytes that went through read and write calls
	wait            uint64 // ticks that it waited for disks, children not included
	rss, swap       uint64 // bytes
	threads         int
}

// settle is for how long a process that belongs to no job is looked at again.
// The first thing a shepherd's child does is to take the groups of its job; what
// has not by then never will.
const settle = 10 * time.Second

// table is what is known of the processes of the host, so that a scan reads
// nothing but the names in /proc and what it does not know.
type table struct {
	root  string // /proc
	proc  *proc.Table
	scans int
	procs map[int]*process // by pid

	patience time.Duration // with a file that is held back; 0: a second
	stuck    atomic.Int32  // readers that were given up and have not come back

	looked, alive []*process // in this scan; the second are those that have not ended
}

// scan looks at all processes of the jobs that are due, and finds out of new
// ones whose they are. Those that belong to no job are looked at again if they
// were first seen after recheck, which may be zero.
func (t *table) scan(now, recheck time.Time, jobs map[spool.RunID]*job) error {
	if err := t.open(); err != nil {
		return err
	}
	swap := t.swapping()
	gids, sessions := map[int]*job{}, map[int]*job{}
	for _, j := range jobs {
		j.now = reading{}
		switch {
		case j.AddGID > 0:
			gids[j.AddGID] = j
		case j.PID != nil:
			if j.pid == 0 {
				j.pid = j.PID()
			}
			if j.pid > 0 {
				sessions[j.pid] = j
			}
		}
	}
	t.scans++
	t.looked, t.alive = t.looked[:0], t.alive[:0]
	var gone, strays []*process
	err := t.proc.List(func(pid int, inode uint64) {
		p := t.procs[pid]
		if p == nil || p.inode != inode || p.job != nil && p.job.removed {
			if p != nil {
				gone = append(gone, p)
			}
			p = &process{pid: pid, inode: inode, since: now}
			t.procs[pid] = p
		}
		p.scan = t.scans
		if p.settled && (recheck.IsZero() || p.since.Before(recheck)) {
			return
		}
		if p.job == nil {
			p.settled = now.Sub(p.since) >= settle
			if len(gids) > 0 {
				p.job = t.marked(p, gids)
			}
			if p.job == nil && len(sessions) > 0 && t.readStat(p) {
				strays = append(strays, p)
			}
		}
		if p.job != nil && p.job.due {
			t.look(p, swap)
		}
	})
	if err != nil {
		return err
	}
	t.adopt(strays, sessions, swap)
	t.add()
	for _, p := range t.procs {
		if p.scan != t.scans {
			gone = append(gone, p)
		}
	}
	for _, p := range gone {
		if p.job != nil && !t.absorbed(p) {
			p.job.seen.cpu -= p.counted.cpu
			p.job.seen.sys -= p.counted.sys
			p.job.seen.io -= p.counted.io
		}
	}
	for _, p := range gone { // now that nobody's parent is looked for
		if t.procs[p.pid] == p {
			delete(t.procs, p.pid)
		}
	}
	return nil
}

// adopt finds the jobs of processes in the tree below a job's first process:
// that made a session of its own, and a process stays the job's when its parent
// ends.
func (t *table) adopt(strays []*process, sessions map[int]*job, swap bool) {
	for again := true; again; {
		again = false
		for _, p := range strays {
			if p.job != nil {
				continue
			}
			if p.job = sessions[p.session]; p.job == nil {
				if parent := t.procs[p.parent]; parent != nil && parent.job != nil && parent.job.AddGID == 0 {
					p.job = parent.job
				}
			}
			if p.job != nil {
				again = true
				if p.job.due {
					t.look(p, swap)
				}
			}
		}
	}
}

// absorbed reports whether the usage of a process that is gone has been added to a
// process of the job, which waited for it. Otherwise a process outside has waited.
func (t *table) absorbed(p *process) bool {
	for range 100 { // numbers are used again, and could make a circle
		parent := t.procs[p.parent]
		if parent == nil || parent.job != p.job {
			return false
		}
		if parent.scan == t.scans {
			return true
		}
		p = parent
	}
	return false
}

// look reads what a process of a job that is due takes, but for what add does.
func (t *table) look(p *process, swap bool) {
	if !t.readStat(p) {
		p.rss, p.swap, p.threads = 0, 0, 0 // it has just ended
	} else {
		t.alive = append(t.alive, p)
		if swap && !p.job.grouped {
			if b, err := t.status(p); err == nil {
				p.swap = field(b, "\nVmSwap:") << 10
			}
		}
	}
	t.looked = append(t.looked, p)
}

// add reads the bytes of the processes that were looked at and adds them all to
// the sums of their jobs.
func (t *table) add() {
	t.readIO(t.alive)
	for _, p := range t.looked {
		sum := &p.job.now
		sum.cpu += p.cpu
		sum.sys += p.sys
		sum.io += p.io
		sum.rss += p.rss
		sum.swap += p.swap
		sum.threads += p.threads
		p.job.waited += max(p.wait, p.counted.wait) - p.counted.wait
		p.counted = p.reading
	}
}

// reader reads files that the kernel may hold back, in a goroutine of its own.
type reader struct {
	bytes []uint64 // what was read, as far as read says
	read  atomic.Int64
	given atomic.Bool   // given up: it is to end
	ended chan struct{} // closed then, or when all is read
}

// maxStuck bounds the readers that were given up.
const maxStuck = 8

// readIO reads the bytes of read and write calls of processes. The kernel holds
// /proc/PID/io back while the process executes another program, and a process
// may drag that out for ever: by a file of its own file system that is to be
// closed then. Nobody must be able to stop us that way. All share a goroutine:
// one for each would wake a thread for each.
func (t *table) readIO(list []*process) {
	list = slices.DeleteFunc(list, func(p *process) bool { return p.reader != nil && !p.reader.over() })
	for len(list) > 0 && t.stuck.Load() < maxStuck {
		r := t.start(list)
		n := t.await(r)
		for i, p := range list[:n] {
			p.io = max(p.io, r.bytes[i])
		}
		if n == len(list) {
			return
		}
		list[n].reader = r
		list = list[n+1:]
	}
}

// start has a goroutine read files.
func (t *table) start(list []*process) *reader {
	r := &reader{bytes: make([]uint64, len(list)), ended: make(chan struct{})}
	pids := make([]int, len(list))
	for i, p := range list {
		pids[i] = p.pid
	}
	dir := t.proc.Dir
	go func() {
		defer close(r.ended)
		buf := make([]byte, 1<<10)
		for i, pid := range pids {
			n := readIO(dir, strconv.Itoa(pid)+"/io", buf)
			if r.given.Load() {
				return
			}
			r.bytes[i] = n
			r.read.Add(1)
		}
	}()
	return r
}

// await returns how many files were read when all are, or when one takes too
// long: then the reader is given up over the next.
func (t *table) await(r *reader) int {
	patience := cmp.Or(t.patience, time.Second)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for last := int64(0); ; {
		select {
		case <-r.ended:
			return len(r.bytes)
		case <-timer.C:
		}
		if n := r.read.Load(); n != last {
			last = n
			timer.Reset(patience)
			continue
		}
		r.given.Store(true)
		t.stuck.Add(1)
		go func() { <-r.ended; t.stuck.Add(-1) }()
		return min(int(r.read.Load()), len(r.bytes)-1)
	}
}

// over reports whether the reader is not held back any more.
func (r *reader) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

func readIO(dir int, name string, buf []byte) uint64 {
	b, err := proc.ReadFile(dir, name, buf)
	if err != nil {
		return 0
	}
	return field(b, "rchar:") + field(b, "wchar:")
}

// marked returns the job whose additional group a process has.
func (t *table) marked(p *process, gids map[int]*job) *job {
	b, err := t.status(p)
	if err != nil {
		return nil
	}
	for gid := range proc.Groups(b) {
		if j := gids[gid]; j != nil {
			return j
		}
	}
	return nil
}

// readStat reads what a process took, and where it belongs.
func (t *table) readStat(p *process) bool {
	is, ok := t.proc.Stat(p.pid)
	if !ok {
		return false
	}
	p.parent, p.session, p.threads = is.Parent, is.Session, is.Threads
	p.cpu, p.sys, p.wait, p.rss = is.CPU, is.Sys, is.Wait, is.Pages*uint64(os.Getpagesize())
	return true
}

// swapping reports whether the host has swap, so that there is something to
// ask processes for.
func (t *table) swapping() bool {
	b, err := t.proc.Read("swaps")
	return err != nil || bytes.Count(b, []byte("\n")) > 1 // below a heading
}

func (t *table) open() (err error) {
	if t.proc == nil {
		t.proc, err = proc.Open(t.root)
		t.procs = map[int]*process{}
	}
	return err
}

func (t *table) close() {
	if t.proc != nil {
		t.proc.Close()
		t.proc = nil
	}
}

func (t *table) status(p *process) ([]byte, error) {
	return t.proc.Read(strconv.Itoa(p.pid) + "/status")
}

// field returns the number behind a name, 0 when it is not there.
func field(b []byte, name string) uint64 {
	_, b, _ = bytes.Cut(b, []byte(name))
	return proc.Number(bytes.TrimLeft(b, " \t"))
}
