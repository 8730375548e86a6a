package usage

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/internal/proc"
	"paddock/spool"
)

// Sampler samples the usage of running jobs, each as seldom as possible. The exported
// fields are set before first use.
type Sampler struct {
	Proc string // "/proc"; empty: that
	// Exceeded is called once for each limit that a job has exceeded. It may call the
	// Sampler; no other job is looked at until it returns.
	Exceeded func(spool.RunID, Excess)
	Log      *slog.Logger

	cost func() time.Duration // of a look; nil: the processor time of the thread

	// measuring is held while jobs are looked at, and while one is taken away. It is
	// taken before mu, which is never held for long.
	measuring sync.Mutex
	table     table // guarded by measuring
	broken    bool  // guarded by measuring; the log has it that processes cannot be seen

	bell bell // wakes Run, which looks again how long it may sleep

	mu       sync.Mutex
	jobs     map[spool.RunID]*job // guarded by mu
	latest   map[spool.ID]*job    // guarded by mu; the last run of each task
	interval time.Duration        // guarded by mu; 0: never
	recheck  time.Time            // guarded by mu; see table.scan
	rest     time.Time            // guarded by mu; no round before it
	wake     time.Time            // guarded by mu; when Run wakes up; zero: it does not
}

// job is a job with its samples.
type job struct {
	Job
	run spool.RunID

	// Guarded by measuring.
	due     bool    // looked at in this round
	grouped bool    // the control group counts the memory
	removed bool    // Remove was called
	pid     int     // of its first process; 0: not known yet
	now     reading // sums over the processes at this look
	seen    reading // at the last look, less the usage of ended processes that no other absorbed
	cpu, io uint64  // ticks and bytes of all looks together
	sys     uint64  // ticks of cpu in the kernel
	waited  uint64  // ticks
	most    float64 // most vmem of all looks
	told    [4]bool // whether Exceeded was called, by the order of Limits.compare

	// Guarded by mu.
	usage api.Usage
	last  time.Time // of the last look; zero: there was none
	every time.Duration
	next  time.Time
}

// A job is looked at as often as these allow. The shortest interval is the
// administrator's.
const (
	// seldom is the longest interval for an idle job.
	seldom = 64 * time.Second
	// busy is the longest interval, in multiples of the shortest, for a job that works
	// and whose memory changes little, or that is near a limit.
	busy = 8
	// idle is the share of a processor up to which a job is idle.
	idle = 0.01
	// fresh is how old a look may be for an answer.
	fresh = time.Second
	// share is how many times as long as a round the pause after it is: looking at jobs
	// takes at most a hundredth of a processor, however many there are.
	share = 99
)

// SetInterval sets the shortest interval between two looks at a job; 0: jobs are not
// looked at.
func (s *Sampler) SetInterval(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interval = d
	now := time.Now()
	for _, j := range s.jobs {
		j.every, j.next = d, now.Add(d)
	}
	s.bell.ring()
}

// Add begins to watch a run.
func (s *Sampler) Add(run spool.RunID, j Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs == nil {
		s.jobs, s.latest = map[spool.RunID]*job{}, map[spool.ID]*job{}
	}
	now := time.Now()
	added := &job{Job: j, run: run, every: s.interval, next: now.Add(s.interval)}
	s.jobs[run], s.latest[run.ID()] = added, added
	// Its processes may have been settled before the run was added.
	if from := j.Started.Add(-settle); s.recheck.IsZero() || from.Before(s.recheck) {
		s.recheck = from
	}
	if s.interval > 0 && (s.wake.IsZero() || now.Add(s.interval).Before(s.wake)) {
		s.bell.ring()
	}
}

// Remove stops watching a run and returns what it has used, as far as that was seen. It
// reads the control group, if there is one, a last time.
func (s *Sampler) Remove(run spool.RunID) (last api.Usage, ok bool) {
	s.measuring.Lock()
	defer s.measuring.Unlock()
	s.mu.Lock()
	j := s.jobs[run]
	delete(s.jobs, run)
	if s.latest[run.ID()] == j {
		delete(s.latest, run.ID())
	}
	if len(s.jobs) == 0 {
		s.bell.ring() // Run need not wait for it
	}
	s.mu.Unlock()
	if j == nil {
		return api.Usage{}, false
	}
	j.removed = true
	j.now = reading{}
	now := time.Now()
	if j.last.IsZero() {
		// The run was too short to be seen. The shepherd, which has reaped all of it,
		// knows its usage.
		return api.Usage{Wallclock: wallclock(j, now)}, true
	}
	g := s.group(j)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(j, now, g)
	j.usage.Wallclock = wallclock(j, now)
	return j.usage, true
}

// Usage returns what a run has used up to now; false: that is not known.
func (s *Sampler) Usage(run spool.RunID) (api.Usage, bool) {
	s.ask(func(j *job) bool { return j.run == run })
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[run]
	if j == nil || j.last.IsZero() {
		return api.Usage{}, false
	}
	u := j.usage
	u.Wallclock = wallclock(j, time.Now())
	return u, true
}

// Seen returns the last known usage of a running task, without a look.
func (s *Sampler) Seen(id spool.ID) (api.Usage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.latest[id]; j != nil && !j.last.IsZero() {
		return j.usage, true
	}
	return api.Usage{}, false
}

// Cores returns how many cores all runs have kept busy of late, without a look.
func (s *Sampler) Cores() (sum float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		sum += j.usage.Cores
	}
	return sum
}

// All returns the usage of all runs for which it is known, in one look at the host.
func (s *Sampler) All() map[spool.RunID]api.Usage {
	s.ask(func(*job) bool { return true })
	s.mu.Lock()
	defer s.mu.Unlock()
	all, now := map[spool.RunID]api.Usage{}, time.Now()
	for run, j := range s.jobs {
		if !j.last.IsZero() {
			u := j.usage
			u.Wallclock = wallclock(j, now)
			all[run] = u
		}
	}
	return all
}

func wallclock(j *job, now time.Time) float64 {
	return max(0, now.Sub(j.Started).Seconds()) // the clock may have been set back
}

// ask looks at the jobs that are asked for, unless the last look is fresh or another
// would cost too much.
func (s *Sampler) ask(which func(*job) bool) {
	s.measure(func(j *job, now time.Time) bool {
		return which(j) && (j.last.IsZero() || now.Sub(j.last) >= fresh && !now.Before(s.rest))
	})
}

// Run looks at jobs until the context ends. It sleeps while there are none.
func (s *Sampler) Run(ctx context.Context) {
	defer func() {
		s.measuring.Lock()
		s.table.close()
		s.measuring.Unlock()
	}()
	for {
		s.mu.Lock()
		now := time.Now()
		s.wake = time.Time{}
		if s.interval > 0 {
			for _, j := range s.jobs {
				if s.wake.IsZero() || j.next.Before(s.wake) {
					s.wake = j.next
				}
			}
			if s.wake.Before(s.rest) && !s.wake.IsZero() {
				s.wake = s.rest
			}
		}
		var timer *time.Timer
		var after <-chan time.Time
		if !s.wake.IsZero() {
			timer = time.NewTimer(s.wake.Sub(now))
			after = timer.C
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-s.bell.heard():
		case <-after:
			// Jobs that are nearly due are looked at as well, since the names in /proc are
			// read once for all.
			s.measure(func(j *job, now time.Time) bool { return j.next.Sub(now) <= j.every/4 })
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// threadTime returns how much processor time this thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// measure looks at the jobs that are due.
func (s *Sampler) measure(due func(*job, time.Time) bool) {
	s.measuring.Lock()
	// The cost of a round is the processor time of this thread. By the clock, a busy
	// host would be looked at least when there is most to see.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cost := s.cost
	if cost == nil {
		cost = threadTime
	}
	began := cost()
	s.mu.Lock()
	now := time.Now()
	var some []*job
	if s.interval > 0 {
		for _, j := range s.jobs {
			if j.due = due(j, now); j.due {
				some = append(some, j)
			}
		}
	}
	scan := slices.ContainsFunc(some, func(j *job) bool { return j.AddGID > 0 || j.PID != nil })
	recheck := s.recheck
	var jobs map[spool.RunID]*job
	if scan {
		jobs = maps.Clone(s.jobs)
		s.recheck = time.Time{}
	}
	s.mu.Unlock()

	if len(some) == 0 {
		s.measuring.Unlock()
		return
	}
	groups := make([]GroupUsage, len(some))
	for i, j := range some {
		groups[i] = s.group(j)
	}
	if scan {
		s.scan(now, recheck, jobs)
	}
	var told []func()
	s.mu.Lock()
	if rest := time.Now().Add(share * (cost() - began)); rest.After(s.rest) {
		s.rest = rest
	}
	for i, j := range some {
		j.due = false
		for _, e := range s.record(j, now, groups[i]) {
			told = append(told, func() { s.Exceeded(j.run, e) })
		}
	}
	s.mu.Unlock()
	s.measuring.Unlock()
	for _, tell := range told {
		tell()
	}
}

// scan looks at the processes of the host.
func (s *Sampler) scan(now, recheck time.Time, jobs map[spool.RunID]*job) {
	s.table.root = s.Proc
	if s.table.root == "" {
		s.table.root = "/proc"
	}
	err := s.table.scan(now, recheck, jobs)
	if err != nil && !s.broken {
		s.Log.Warn(fmt.Sprintf("usage of jobs is not known: cannot see processes: %v", err))
	}
	s.broken = err != nil
}

// group reads the control group of a job; nothing is known of one that cannot be read.
func (s *Sampler) group(j *job) GroupUsage {
	if j.Group == nil {
		return GroupUsage{}
	}
	g, err := j.Group.Usage()
	if err != nil {
		s.Log.Debug(fmt.Sprintf("job %v: %v", j.run.ID(), err))
		g = GroupUsage{}
	}
	j.grouped = g.Memory > 0
	return g
}

// record adds a look to the usage of a job, and sets when the next is due. It returns
// the limits that the job exceeds since this look. mu and measuring are held.
func (s *Sampler) record(j *job, now time.Time, g GroupUsage) []Excess {
	was := j.usage
	u := &j.usage
	// The usage of an ended process is added to another one, or is missing.
	j.cpu += uint64(max(0, int64(j.now.cpu-j.seen.cpu)))
	j.sys += uint64(max(0, int64(j.now.sys-j.seen.sys)))
	j.io += uint64(max(0, int64(j.now.io-j.seen.io)))
	j.seen = j.now

	u.CPU = max(was.CPU, float64(j.cpu)/proc.Ticks, g.CPU.Seconds())
	u.SysCPU = min(max(was.SysCPU, float64(j.sys)/proc.Ticks, g.SysCPU.Seconds()), u.CPU)
	u.IO = max(was.IO, float64(j.io)/gib, float64(g.IO)/gib)
	u.IOWait = max(was.IOWait, float64(j.waited)/proc.Ticks)
	u.RSS, u.VMem, u.PIDs = float64(j.now.rss), float64(j.now.rss+j.now.swap), j.now.threads
	if g.Memory > 0 {
		u.VMem = float64(g.Memory)
	}
	if j.removed { // its processes have ended, and their end says nothing of their rate
		u.VMem, u.RSS, u.PIDs = was.VMem, was.RSS, was.PIDs
	}
	j.most = max(j.most, u.VMem)
	u.MaxVMem = max(was.MaxVMem, u.VMem, float64(g.MemoryPeak))
	u.MaxRSS = max(was.MaxRSS, u.RSS)
	burned := u.CPU - was.CPU
	mean := (was.VMem + u.VMem) / 2
	if was.VMem == 0 || u.VMem == 0 { // no processes yet, or none left: there is no rate
		mean = max(was.VMem, u.VMem)
	}
	u.Mem += burned * mean / gib

	since := j.Started
	if !j.last.IsZero() {
		since = j.last
	}
	if while := now.Sub(since).Seconds(); while > 0 {
		u.Cores = burned / while
	}
	j.last = now
	j.every = s.pace(j, was, burned, now.Sub(since))
	j.next = now.Add(j.every)

	var excesses []Excess
	limits := j.Limits.compare(u.CPU, j.most)
	for i, e := range limits {
		if e.Max <= 0 || e.Used <= e.Max || j.told[i] {
			continue
		}
		j.told[i] = true
		if e.Hard {
			j.told[i+1] = true
		}
		excesses = append(excesses, e)
	}
	return excesses
}

// pace returns how long a job that burned so many seconds of processor time in a while
// may be left alone.
func (s *Sampler) pace(j *job, was api.Usage, burned float64, while time.Duration) time.Duration {
	u := &j.usage
	every := 2 * j.every
	works := burned > idle*while.Seconds()
	near, tight := math.Inf(1), false
	for i, e := range j.Limits.compare(u.CPU, j.most) {
		if e.Max <= 0 || j.told[i] {
			continue
		}
		if i < 2 {
			// From now on every thread may keep a processor busy.
			near = min(near, (e.Max-e.Used)/float64(max(1, u.PIDs)))
		} else if u.VMem > e.Max*3/4 {
			tight = true
		}
	}
	moved := math.Abs(u.VMem-was.VMem) > u.VMem/8
	switch {
	case works && (moved || tight):
		every = s.interval
	case works || tight:
		every = min(every, busy*s.interval)
	}
	if near < every.Seconds() {
		every = time.Duration(near * float64(time.Second))
	}
	return max(s.interval, min(every, seldom))
}
