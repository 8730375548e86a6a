package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/api"
	"paddock/spool"
	"paddock/test/harness"
)

// host is a directory that looks like /proc.
type host struct {
	t   testing.TB
	dir string
}

func newHost(t testing.TB) *host {
	h := &host{t, t.TempDir()}
	h.write("swaps", "Filename\t\t\t\tType\t\tSize\n/swap file 1 2 3\n")
	return h
}

func (h *host) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// fake is a process of it.
type fake struct {
	pid, parent, session, gid int
	cpu, io, rss, swap        int // ticks, bytes, MiB, MiB
	sys                       int // ticks of cpu in the kernel, beside one
}

func (h *host) set(p fake) {
	h.t.Helper()
	dir := strconv.Itoa(p.pid)
	if err := os.MkdirAll(filepath.Join(h.dir, dir), 0o755); err != nil {
		h.t.Fatal(err)
	}
	// A name that a hostile user would choose.
	stat := fmt.Sprintf("%d (a) R 1 (b) S %d 1 %d 0 -1 4194560 9 9 9 9 %d %d 0 0 20 0 2 0 777 12345 %d 18446744073709551615 "+
		"1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 %d 0 0\n", p.pid, p.parent, p.session, p.cpu-1-p.sys, 1+p.sys, p.rss<<20/os.Getpagesize(), p.cpu/10)
	h.write(dir+"/stat", stat)
	h.write(dir+"/status", fmt.Sprintf("Name:\ta\\nGroups:\t20001\nUid:\t0\nGroups:\t4 24 %d 30000 \nVmRSS:\t%8d kB\nVmSwap:\t%8d kB\n",
		p.gid, p.rss<<10, p.swap<<10))
	h.write(dir+"/io", fmt.Sprintf("rchar: %d\nwchar: %d\nsyscr: 9\n", p.io/2, p.io-p.io/2))
}

func (h *host) end(pid int) {
	if err := os.RemoveAll(filepath.Join(h.dir, strconv.Itoa(pid))); err != nil {
		h.t.Fatal(err)
	}
}

var run = spool.RunID{Job: 7, Task: 1}

func newSampler(h *host, interval time.Duration) *Sampler {
	s := &Sampler{Log: slog.New(slog.DiscardHandler), Proc: "/nowhere"}
	if h != nil {
		s.Proc = h.dir
	}
	s.SetInterval(interval)
	return s
}

// start runs a sampler in a bubble of synctest and returns how to end it.
func start(s *Sampler) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	return func() { cancel(); <-done }
}

// usage looks at the host and compares what there is of a job.
func (s *Sampler) want(t *testing.T, what string, want api.Usage) {
	t.Helper()
	time.Sleep(time.Second) // of the bubble
	got, ok := s.Usage(run)
	got.Wallclock, got.SysCPU, got.Cores = 0, 0, 0
	got.Mem = math.Round(got.Mem*1e6) / 1e6
	got.IO = math.Round(got.IO * gib)
	if !ok || got != want {
		t.Errorf("%s: %+v, %v; want %+v", what, got, ok, want)
	}
}

// How many cores a job keeps busy is what it has taken from one look to the next, and
// nothing when it rests.
func TestCores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		s := newSampler(h, time.Second)
		s.Add(run, Job{Started: time.Now(), AddGID: 20005})
		for _, cpu := range []struct {
			ticks int
			want  float64
		}{{200, 2}, {250, 0.5}, {250, 0}} {
			h.set(fake{pid: 10, parent: 1, session: 9, gid: 20005, cpu: cpu.ticks})
			time.Sleep(time.Second)
			u, _ := s.Usage(run)
			if got := s.Cores(); u.Cores != cpu.want || got != cpu.want {
				t.Errorf("after %d ticks: %v cores, %v in all; want %v", cpu.ticks, u.Cores, got, cpu.want)
			}
		}
	})
}

// What the processes of a job take in the kernel is told apart, also of those that
// have ended, and a group knows it of all that were ever in it.
func TestKernelTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		s := newSampler(h, time.Second)
		var more atomic.Bool
		g := &group{read: func() (GroupUsage, error) {
			if more.Load() {
				return GroupUsage{CPU: 30 * time.Second, SysCPU: 10 * time.Second}, nil
			}
			return GroupUsage{}, nil
		}}
		h.set(fake{pid: 100, parent: 1, session: 100, gid: 20001, cpu: 1000, sys: 399})
		h.set(fake{pid: 101, parent: 100, session: 100, gid: 20001, cpu: 500, sys: 99})
		s.Add(run, Job{AddGID: 20001, Started: time.Now(), Group: g})
		defer start(s)()
		want := func(what string, cpu, sys float64) {
			t.Helper()
			time.Sleep(time.Minute) // longer than it is ever left alone
			if got, ok := s.Usage(run); !ok || got.CPU != cpu || got.SysCPU != sys {
				t.Errorf("%s: %v of %v s in the kernel; want %v of %v", what, got.SysCPU, got.CPU, sys, cpu)
			}
		}
		want("two processes", 15, 5)
		h.end(101)
		h.set(fake{pid: 100, parent: 1, session: 100, gid: 20001, cpu: 1600, sys: 599})
		want("one has ended, and the other has waited for it", 16, 6)
		more.Store(true)
		want("the group knows more", 30, 10)
	})
}

func TestProcesses(t *testing.T) {
	for _, c := range []struct {
		name string
		gid  int
		job  Job
	}{
		{"by group", 20001, Job{AddGID: 20001}},
		{"by tree", 0, Job{PID: func() int { return 100 }}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				s := newSampler(h, time.Minute)
				defer s.table.close()
				c.job.Started = time.Now()
				h.set(fake{pid: 1, cpu: 1000, rss: 100})
				h.set(fake{pid: 90, parent: 1, session: 90, gid: 20002, cpu: 1000, io: 1000, rss: 50})
				h.set(fake{pid: 99, parent: 1, session: 99, cpu: 9, rss: 2}) // the shepherd
				s.Add(run, c.job)
				s.want(t, "not begun", api.Usage{})

				h.set(fake{pid: 100, parent: 99, session: 100, gid: c.gid, cpu: 100, io: 10, rss: 1024, swap: 1024})
				// The list has the child first.
				h.set(fake{pid: 20, parent: 100, session: 20, gid: c.gid, cpu: 200, io: 20, rss: 512})
				s.want(t, "begun", api.Usage{
					CPU: 3, Mem: 7.5, IO: 30, IOWait: 0.3, VMem: 2560 << 20, MaxVMem: 2560 << 20, RSS: 1536 << 20, MaxRSS: 1536 << 20, PIDs: 4,
				})

				// The child has burned one more second, and was waited for.
				h.end(20)
				h.set(fake{pid: 100, parent: 99, session: 100, gid: c.gid, cpu: 500, io: 40, rss: 512})
				s.want(t, "child waited for", api.Usage{
					CPU: 5, Mem: 10.5, IO: 40, IOWait: 0.7, VMem: 512 << 20, MaxVMem: 2560 << 20, RSS: 512 << 20, MaxRSS: 1536 << 20, PIDs: 2,
				})

				// A child whose parent is the shepherd is nobody's when it ends,
				// and another process gets its number.
				h.set(fake{pid: 21, parent: 100, session: 20, gid: c.gid, cpu: 300, io: 60, rss: 512})
				s.want(t, "a second child", api.Usage{
					CPU: 8, Mem: 12.75, IO: 100, IOWait: 1, VMem: 1 << 30, MaxVMem: 2560 << 20, RSS: 1 << 30, MaxRSS: 1536 << 20, PIDs: 4,
				})
				h.set(fake{pid: 21, parent: 99, session: 20, gid: c.gid, cpu: 300, io: 60, rss: 512})
				s.want(t, "adopted by the shepherd", api.Usage{
					CPU: 8, Mem: 12.75, IO: 100, IOWait: 1, VMem: 1 << 30, MaxVMem: 2560 << 20, RSS: 1 << 30, MaxRSS: 1536 << 20, PIDs: 4,
				})
				old := filepath.Join(h.dir, "21")
				if err := os.Rename(old, filepath.Join(h.dir, "old")); err != nil { // so that the number is not used again
					t.Fatal(err)
				}
				h.set(fake{pid: 21, parent: 1, session: 21, cpu: 9000, io: 9000, rss: 9000})
				h.set(fake{pid: 100, parent: 99, session: 100, gid: c.gid, cpu: 600, io: 50, rss: 1024})
				s.want(t, "another 21", api.Usage{
					CPU: 9, Mem: 13.75, IO: 110, IOWait: 1.1, VMem: 1 << 30, MaxVMem: 2560 << 20, RSS: 1 << 30, MaxRSS: 1536 << 20, PIDs: 2,
				})

				// The last process ended.
				h.end(100)
				u, ok := s.Remove(run)
				u.Wallclock, u.Cores, u.IO, u.Mem = 0, 0, math.Round(u.IO*gib), math.Round(u.Mem*1e6)/1e6
				if want := (api.Usage{
					CPU: 9, SysCPU: 0.03, Mem: 13.75, IO: 110, IOWait: 1.1, VMem: 1 << 30, MaxVMem: 2560 << 20, RSS: 1 << 30, MaxRSS: 1536 << 20, PIDs: 2,
				}); !ok || u != want {
					t.Errorf("Remove = %+v, %v; want %+v", u, ok, want)
				}
				if _, ok := s.Usage(run); ok {
					t.Error("the run is still there")
				}
			})
		})
	}
}

// What belongs to no job is passed over, unless a job is found later whose it
// may be.
func TestPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		s := newSampler(h, time.Second)
		defer s.table.close()
		begin := time.Now()
		other := spool.RunID{Job: 8, Task: 1}
		s.Add(run, Job{Started: begin, AddGID: 20001})
		h.set(fake{pid: 50, parent: 1, gid: 20002, cpu: 700})
		s.want(t, "nothing", api.Usage{})
		// The child of a shepherd that has not taken its groups yet.
		h.set(fake{pid: 100, parent: 99, cpu: 100})
		s.want(t, "no group yet", api.Usage{})
		h.set(fake{pid: 100, parent: 99, gid: 20001, cpu: 100})
		s.want(t, "the group", api.Usage{CPU: 1, PIDs: 2, IOWait: 0.1})

		time.Sleep(settle)
		s.want(t, "settled", api.Usage{CPU: 1, PIDs: 2, IOWait: 0.1})
		if !s.table.procs[50].settled {
			t.Error("a process that is nobody's is not passed over")
		}
		// It cannot be that of a job that starts now, whatever its groups.
		s.Add(other, Job{Started: time.Now(), AddGID: 20002})
		if u, ok := s.Usage(other); !ok || u.CPU != 0 {
			t.Errorf("Usage of a new job = %+v, %v; want nothing", u, ok)
		}
		s.Remove(other)
		s.Add(other, Job{Started: begin, AddGID: 20002})
		if u, ok := s.Usage(other); !ok || u.CPU != 7 {
			t.Errorf("Usage of a job found again = %+v, %v; want 7 s", u, ok)
		}
	})
}

// group is a control group that counts how often it is asked.
type group struct {
	asked atomic.Int32
	read  func() (GroupUsage, error)
}

func (g *group) Usage() (GroupUsage, error) { g.asked.Add(1); return g.read() }

// spin is a group whose processes burn so many processors, and hold memory.
func spin(rate float64, memory uint64) *group {
	begin := time.Now()
	return &group{read: func() (GroupUsage, error) {
		return GroupUsage{CPU: time.Duration(rate * float64(time.Since(begin))), Memory: memory}, nil
	}}
}

func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSampler(nil, time.Second)
		g := &group{}
		g.read = func() (GroupUsage, error) {
			return GroupUsage{CPU: 2 * time.Second, IO: 5, Memory: 1 << 30, MemoryPeak: 3 << 30}, nil
		}
		s.Add(run, Job{Started: time.Now(), Group: g})
		want := api.Usage{CPU: 2, Mem: 2, IO: 5, VMem: 1 << 30, MaxVMem: 3 << 30}
		s.want(t, "group", want)
		s.want(t, "the same", want)
		g.read = func() (GroupUsage, error) { return GroupUsage{}, errors.New("no such group") }
		want.VMem = 0
		s.want(t, "gone", want)
		// The last word is the group's.
		g.read = func() (GroupUsage, error) { return GroupUsage{CPU: 4 * time.Second, MemoryPeak: 4 << 30}, nil }
		want.CPU, want.MaxVMem = 4, 4<<30
		got, ok := s.Remove(run)
		got.Wallclock, got.IO = 0, math.Round(got.IO*gib)
		if !ok || got != want {
			t.Errorf("Remove = %+v, %v; want %+v", got, ok, want)
		}
	})
}

// A host without jobs sleeps, one with idle jobs hardly wakes up.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		name        string
		interval    time.Duration
		rate        float64
		least, most int32 // looks in an hour
	}{
		{"sleeps", time.Second, 0, 55, 70},
		{"polls", time.Second, 0.005, 55, 70},
		{"works", time.Second, 1, 440, 470},
		{"works, seldom looked at", 10 * time.Second, 1, 50, 70},
		{"slow interval", 5 * time.Minute, 1, 11, 12},
		{"never", 0, 1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSampler(nil, c.interval)
				defer start(s)()
				g := spin(c.rate, 1<<20)
				s.Add(run, Job{Started: time.Now(), Group: g})
				time.Sleep(time.Hour)
				synctest.Wait()
				if g.asked.Load() < c.least || g.asked.Load() > c.most {
					t.Errorf("looked at %d times in an hour; want %d to %d", g.asked.Load(), c.least, c.most)
				}
				if _, ok := s.Usage(run); ok != (c.interval > 0) {
					t.Errorf("Usage: %v", ok)
				}
				s.Remove(run)
				synctest.Wait()
				s.mu.Lock()
				defer s.mu.Unlock()
				if !s.wake.IsZero() {
					t.Error("without a job it would wake up")
				}
			})
		})
	}
}

// A job that has slept for long is looked at often again when it works.
func TestWakesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSampler(nil, time.Second)
		defer start(s)()
		begin := time.Now()
		g := &group{read: func() (GroupUsage, error) {
			d := time.Since(begin) - time.Hour
			return GroupUsage{CPU: max(0, d), Memory: 1<<30 + uint64(max(0, d)/time.Second%3)<<30}, nil
		}}
		s.Add(run, Job{Started: begin, Group: g})
		time.Sleep(time.Hour + seldom)
		g.asked.Store(0)
		time.Sleep(20 * time.Second)
		if g.asked.Load() < 19 {
			t.Errorf("looked at %d times in 20 s", g.asked.Load())
		}
	})
}

// However many jobs there are and however slow they are to look at, looking
// takes a hundredth of the time, also when somebody asks all the time.
func TestCost(t *testing.T) {
	for _, asks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSampler(nil, time.Second)
			var spent time.Duration
			s.cost = func() time.Duration { return spent }
			began := time.Now()
			for i := range 50 {
				g := &group{read: func() (GroupUsage, error) {
					time.Sleep(20 * time.Millisecond)
					spent += 20 * time.Millisecond
					return GroupUsage{CPU: time.Since(began), Memory: 1}, nil
				}}
				s.Add(spool.RunID{Job: i + 1, Task: 1}, Job{Started: began, Group: g})
			}
			if asks {
				for range 3600 {
					time.Sleep(time.Second)
					s.All()
				}
			} else {
				stop := start(s)
				time.Sleep(time.Hour)
				stop()
			}
			if part := spent.Seconds() / time.Since(began).Seconds(); part > 0.0105 || part < 0.005 {
				t.Errorf("asked %v: looking takes %.4f of the time", asks, part)
			}
		})
	}
}

// Who asks gets what is a second old at most.
func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSampler(nil, time.Minute)
		defer start(s)()
		g := spin(1, 1<<20)
		s.Add(run, Job{Started: time.Now(), Group: g})
		time.Sleep(3500 * time.Millisecond)
		for range 100 {
			if u, ok := s.Usage(run); !ok || u.CPU != 3.5 || u.Wallclock != 3.5 {
				t.Fatalf("Usage = %+v, %v", u, ok)
			}
		}
		if all := s.All(); len(all) != 1 || all[run].CPU != 3.5 {
			t.Errorf("All = %+v", all)
		}
		if g.asked.Load() != 1 {
			t.Errorf("looked %d times", g.asked.Load())
		}
		time.Sleep(time.Second)
		if u, _ := s.Usage(run); u.CPU != 4.5 || g.asked.Load() != 2 {
			t.Errorf("Usage = %+v after %d looks", u, g.asked.Load())
		}
	})
}

func TestExceeded(t *testing.T) {
	type told struct {
		at time.Duration
		Excess
	}
	for _, c := range []struct {
		name   string
		limits Limits
		group  func() *group
		want   []told
	}{
		{"none", Limits{}, func() *group { return spin(1, 1<<30) }, nil},
		{"below", Limits{HardCPU: 1e6, SoftVMem: 2 << 30}, func() *group { return spin(1, 1<<30) }, nil},
		{
			"cpu",
			Limits{SoftCPU: 100, HardCPU: 200},
			func() *group { return spin(1, 1<<20) },
			[]told{{101 * time.Second, Excess{"s_cpu", false, 101, 100}}, {201 * time.Second, Excess{"h_cpu", true, 201, 200}}},
		},
		{
			"both limits at once",
			Limits{SoftVMem: 1 << 20, HardVMem: 2 << 20},
			func() *group { return spin(0, 1<<30) },
			[]told{{time.Second, Excess{"h_vmem", true, 1 << 30, 2 << 20}}},
		},
		{
			// It is found within the time of a job that works.
			"memory after an hour",
			Limits{HardVMem: 1 << 30},
			func() *group {
				g, begin := spin(1, 1<<20), time.Now()
				read := g.read
				g.read = func() (GroupUsage, error) {
					u, err := read()
					if time.Since(begin) > time.Hour {
						u.Memory = 2 << 30
					}
					return u, err
				}
				return g
			},
			[]told{{time.Hour + 8*time.Second, Excess{"h_vmem", true, 2 << 30, 1 << 30}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var got []told
				s := newSampler(nil, time.Second)
				s.Exceeded = func(r spool.RunID, e Excess) {
					s.Usage(r) // may be called
					got = append(got, told{time.Since(begin), e})
				}
				defer start(s)()
				s.Add(run, Job{Started: begin, Group: c.group(), Limits: c.limits})
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if len(got) != len(c.want) {
					t.Fatalf("told %+v; want %+v", got, c.want)
				}
				for i, w := range c.want {
					if got[i] != w {
						t.Errorf("told %+v; want %+v", got[i], w)
					}
				}
			})
		})
	}
}

// The interval may change under running jobs, and be switched off.
func TestSetInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSampler(nil, 0)
		defer start(s)()
		g := spin(1, 1<<20)
		s.Add(run, Job{Started: time.Now(), Group: g})
		for _, c := range []struct {
			interval    time.Duration
			least, most int32
		}{{0, 0, 0}, {time.Second, 12, 20}, {0, 0, 0}, {50 * time.Second, 1, 2}} {
			s.SetInterval(c.interval)
			g.asked.Store(0)
			time.Sleep(100 * time.Second)
			synctest.Wait()
			if g.asked.Load() < c.least || g.asked.Load() > c.most {
				t.Errorf("interval %v: %d looks in 100 s; want %d to %d", c.interval, g.asked.Load(), c.least, c.most)
			}
		}
	})
}

// Without /proc there is wall clock time and what groups say.
func TestNoProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSampler(nil, time.Second)
		s.Add(run, Job{Started: time.Now(), AddGID: 20001})
		s.want(t, "nothing", api.Usage{})
	})
}

// A file that the kernel holds back holds up nobody, and counts when it comes.
// Opening a pipe waits as the kernel does for /proc/PID/io.
func TestHeldBack(t *testing.T) {
	h := newHost(t)
	s := newSampler(h, time.Second)
	s.table.patience = 3 * time.Second // what is not held back is read in it
	defer s.table.close()
	io := filepath.Join(h.dir, "100", "io")
	h.set(fake{pid: 100, gid: 20001, cpu: 100})
	h.set(fake{pid: 101, gid: 20001, cpu: 100, io: 5})
	if err := errors.Join(os.Remove(io), syscall.Mkfifo(io, 0o600)); err != nil {
		t.Fatal(err)
	}
	s.Add(run, Job{Started: time.Now(), AddGID: 20001})
	look := func() int {
		s.measure(func(*job, time.Time) bool { return true })
		u, _ := s.Usage(run)
		if u.CPU != 2 {
			t.Errorf("cpu is %v", u.CPU)
		}
		return int(u.IO * gib)
	}
	if n := look(); n != 5 {
		t.Errorf("io is %d", n)
	}
	if n := look(); n != 5 || s.table.stuck.Load() != 1 {
		t.Errorf("io is %d, %d readers are stuck", n, s.table.stuck.Load())
	}
	f, err := os.OpenFile(io, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.Remove(io); err != nil {
		t.Fatal(err)
	}
	h.set(fake{pid: 100, gid: 20001, cpu: 100, io: 7})
	if err := harness.WaitFor(harness.Patience, "the reader to come back", func() (bool, error) {
		return s.table.stuck.Load() == 0 && look() == 12, nil
	}); err != nil {
		t.Error(err)
	}
}

// The run of a task that is seen is the last one, also when the one before is taken away
// after it has begun.
func TestSeenLast(t *testing.T) {
	s := &Sampler{Log: slog.New(slog.DiscardHandler)}
	first, second := spool.RunID{Job: 1, Task: 1}, spool.RunID{Job: 1, Task: 1, Run: 1}
	s.Add(first, Job{})
	s.Add(second, Job{})
	s.Remove(first)
	if _, ok := s.Seen(second.ID()); ok {
		t.Error("it was seen before anybody has looked")
	}
	s.jobs[second].last, s.jobs[second].usage.PIDs = time.Now(), 3
	if u, ok := s.Seen(second.ID()); !ok || u.PIDs != 3 {
		t.Errorf("seen: %+v, %v", u, ok)
	}
	s.Remove(second)
	if _, ok := s.Seen(second.ID()); ok || len(s.latest) != 0 {
		t.Error("what was taken away is seen")
	}
}
