package schedule

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"paddock/execd/internal/conf"
	"paddock/test/harness"
)

// crowd is a host of 1,000 slots in four queues, all in use, and many jobs of
// 50 users that wait.
type crowd struct {
	s       *Scheduler
	random  *rand.Rand
	classes int
	hungry  bool // they ask for more than there is
	reserve bool
	last    int
	now     time.Time
	running []TaskID
}

const crowded = 100_000

func newCrowd(c crowd) *crowd {
	mem := conf.Attribute{Name: "mem", Kind: conf.KindMemory, Relop: "<=", Requestable: conf.RequestableYes, Consumable: conf.ConsumableYes, Default: "1G"}
	hrt := conf.Attribute{Name: "h_rt", Kind: conf.KindTime, Relop: "<=", Requestable: conf.RequestableYes, Consumable: conf.ConsumableNo}
	config := &conf.Config{
		Hostname: "node", Complex: []conf.Attribute{hrt, mem},
		Host: conf.Values{"mem": {Number: 1 << 50}},
		PEs:  map[string]*conf.PE{"smp": {Name: "smp", Slots: 1000}},
	}
	sc := &config.Scheduling
	sc.WeightPriority, sc.WeightTicket, sc.WeightUrgency, sc.WeightWaiting = 1, 0.01, 0.1, 0.001
	sc.UsageWeights.CPU, sc.HalfTime, sc.MaxReservation = 1, time.Hour, 10
	for i := range 4 {
		config.Queues = append(config.Queues, conf.Queue{
			Name: fmt.Sprintf("q%d", i), SeqNo: i, Slots: 250, Batch: true, PEs: []string{"smp"},
		})
	}
	c.s, c.random, c.now = New(config), rand.New(rand.NewPCG(1, 2)), epoch
	for range 1000 {
		c.add(false)
	}
	c.pass()
	return &c
}

func (c *crowd) job(full bool) Job {
	c.last++
	class := c.random.IntN(c.classes)
	mem := float64(1<<30 + class)
	if full && c.hungry {
		mem = float64(1<<52 + class)
	}
	return Job{
		Number: c.last, User: fmt.Sprintf("user%d", c.random.IntN(50)), Submitted: c.now, Tasks: 1,
		Hard: []Request{
			{"mem", conf.Value{Text: fmt.Sprint(mem), Number: mem}},
			{"h_rt", conf.Value{Text: "3600", Number: float64(1800 + class%100*60)}},
		},
	}
}

func (c *crowd) add(full bool) {
	c.now = c.now.Add(time.Millisecond)
	j := c.job(full)
	if c.reserve && full && c.last%100 == 0 {
		j.PE, j.Slots, j.Reserve = "smp", []Range{{500, 500, 1}}, true
	}
	c.s.Add(j)
}

func (c *crowd) pass() (started int) {
	for {
		job, g, ok := c.s.Next(c.now)
		if !ok {
			return started
		}
		started++
		c.s.Started(Running{Job: job, Task: 1, User: "user1", Started: c.now, Duration: time.Duration(1+c.random.IntN(90)) * time.Minute, Grant: g})
		c.running = append(c.running, TaskID{job, 1})
	}
}

func (c *crowd) end() {
	i := c.random.IntN(len(c.running))
	id := c.running[i]
	c.running[i] = c.running[len(c.running)-1]
	c.running = c.running[:len(c.running)-1]
	c.s.Ended(id.Job, id.Task, Used{CPU: 100}, c.now)
}

var crowds = map[string]crowd{
	"requests=10":                     {classes: 10},
	"requests=10000":                  {classes: 10_000},
	"requests=10000/none-fits":        {classes: 10_000, hungry: true},
	"requests=10000/reservations":     {classes: 10_000, reserve: true},
	"requests=100000/every-one-other": {classes: 1 << 30},
}

// BenchmarkPass is what the scheduler does when ten tasks have ended.
func BenchmarkPass(b *testing.B) {
	for _, name := range sorted(crowds) {
		b.Run(name, func(b *testing.B) {
			c := newCrowd(crowds[name])
			for range crowded {
				c.add(true)
			}
			for b.Loop() {
				b.StopTimer()
				for len(c.running) < 20 {
					c.add(false)
					c.pass()
				}
				b.StartTimer()
				c.now = c.now.Add(time.Second)
				for range 10 {
					c.end()
				}
				c.pass()
			}
		})
	}
}

// BenchmarkAdd is a job that comes when no slot is free, and leaves again.
func BenchmarkAdd(b *testing.B) {
	for _, name := range []string{"requests=10", "requests=10000"} {
		b.Run(name, func(b *testing.B) {
			c := newCrowd(crowds[name])
			for range crowded {
				c.add(true)
			}
			for b.Loop() {
				c.add(true)
				c.pass()
				c.s.Remove(c.last - c.random.IntN(crowded/2))
			}
		})
	}
}

// BenchmarkMemory shows what a job that waits costs beside what the caller
// has, which are its requests.
func BenchmarkMemory(b *testing.B) {
	for _, name := range sorted(crowds) {
		b.Run(name, func(b *testing.B) {
			var bytes float64
			for b.Loop() {
				c := newCrowd(crowds[name])
				before := heapInUse()
				for range crowded {
					c.add(true)
				}
				bytes = heapInUse() - before
				runtime.KeepAlive(c)
			}
			b.ReportMetric(bytes/crowded, "B/job")
		})
	}
}

func heapInUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// TestPassIsQuick holds what the benchmark shows, in time of the processor. That
// depends on the machine all the same, so that make soak alone runs it.
func TestPassIsQuick(t *testing.T) {
	if !harness.Soak {
		t.Skip("needs PADDOCK_SOAK=1, as make soak sets it: it compares times of the processor")
	}
	const limit = 50 * time.Millisecond
	c := newCrowd(crowds["requests=10000"])
	for range crowded {
		c.add(true)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	best := time.Hour
	for range 10 {
		for range 10 {
			c.end()
		}
		begin := threadTime(t)
		if n := c.pass(); n != 10 {
			t.Fatalf("%d tasks started; want 10", n)
		}
		best = min(best, threadTime(t)-begin)
	}
	if best > limit {
		t.Errorf("the best of 10 passes took %v; want at most %v", best, limit)
	}
}

func threadTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(1, &u); err != nil { // RUSAGE_THREAD
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
