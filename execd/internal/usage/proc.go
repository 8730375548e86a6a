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
	inode uint64 // of its directory: it tells processes with the same number apart
	scan  int    // the last scan that found it
	since time.Time
	job   *job
	// settled marks a process that belongs to no job and never will, and is passed over.
	settled bool
	reading
	counted reading // the part that is in the sums of the job
	reader  *reader // the reader that hangs on it
}

// reading is what was read of a process at the last look. cpu, sys and io include those
// of the children that it has waited for.
type reading struct {
	parent, session int
	cpu, sys        uint64 // ticks; the second in the kernel alone
	io              uint64 // bytes that went through read and write calls
	wait            uint64 // ticks of waiting for disks, children not included
	rss, swap       uint64 // bytes
	threads         int
}

// settle is how long a process that belongs to no job is looked at again. A shepherd's
// child first takes the groups of its job, so that a process without them never will
// belong to one.
const settle = 10 * time.Second

// table has the known processes of the host, so that a scan reads only the names in
// /proc and what is new.
type table struct {
	root  string // /proc
	proc  *proc.Table
	scans int
	procs map[int]*process // by pid

	patience time.Duration // how long a read may hang; 0: a second
	stuck    atomic.Int32  // readers that were given up and still hang

	looked, alive []*process // in this scan; alive are those that have not ended
}

// scan looks at all processes of the jobs that are due, and finds out to which jobs new
// processes belong. It looks again at those without a job that were first seen after
// recheck, which may be zero.
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
	for _, p := range gone { // no parents are looked for any more
		if t.procs[p.pid] == p {
			delete(t.procs, p.pid)
		}
	}
	return nil
}

// adopt finds the jobs of processes in the tree below a job's first process. A process
// may have made a session of its own, and stays the job's when its parent ends.
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

// absorbed reports whether the usage of a process that is gone was added to a process
// of the job, which waited for it, and not to one outside.
func (t *table) absorbed(p *process) bool {
	for range 100 { // reused pids could make a circle
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

// look reads what a process of a job that is due uses, without the io that add reads.
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

// add reads the io of the processes that were looked at and adds all their usage to the
// sums of their jobs.
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

// reader reads files on which the kernel may block it, in a goroutine of its own.
type reader struct {
	bytes []uint64 // what was read; read says how many are valid
	read  atomic.Int64
	given atomic.Bool   // it was given up, and is to end
	ended chan struct{} // closed when it was given up, or has read all
}

// maxStuck bounds the readers that were given up.
const maxStuck = 8

// readIO reads the bytes of read and write calls of processes. A read of /proc/PID/io
// blocks while the process executes another program, and a process may drag that out
// for ever, with a file of its own file system that is closed then. No process must be
// able to block execd that way. All reads share a goroutine, since one for each would
// wake a thread for each.
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

// await returns how many files were read: all, or those before the one that blocks for
// too long, over which the reader is given up.
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

// over reports whether the reader is no longer blocked.
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

// marked returns the job whose additional group id a process has.
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

// readStat reads what a process uses, and where it belongs.
func (t *table) readStat(p *process) bool {
	is, ok := t.proc.Stat(p.pid)
	if !ok {
		return false
	}
	p.parent, p.session, p.threads = is.Parent, is.Session, is.Threads
	p.cpu, p.sys, p.wait, p.rss = is.CPU, is.Sys, is.Wait, is.Pages*uint64(os.Getpagesize())
	return true
}

// swapping reports whether the host has swap.
func (t *table) swapping() bool {
	b, err := t.proc.Read("swaps")
	return err != nil || bytes.Count(b, []byte("\n")) > 1 // the first line is a heading
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

// field returns the number behind a name, 0 if the name is missing.
func field(b []byte, name string) uint64 {
	_, b, _ = bytes.Cut(b, []byte(name))
	return proc.Number(bytes.TrimLeft(b, " \t"))
}
