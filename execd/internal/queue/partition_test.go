package queue

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/user"
)

// partedBench is a bench whose queue is one partitionable slot, of 100 MB for each of
// its slots. The name of a job is what it requests of them.
func partedBench(t *testing.T, s *job.Store, slots int) *bench {
	t.Helper()
	b := managedBench(t, s, slots, "")
	b.q.mu.Lock()
	b.q.o.Slots.JobAd = func(j *job.Job, _ *job.Task, _ []string) *classad.Ad {
		ad, err := classad.ParseAd(`[JobUniverse = 5; RequestCpus = 1; RequestMemory = ` + strings.TrimPrefix(j.Terms().Name, "m") + `]`)
		if err != nil {
			t.Error(err)
		}
		return ad
	}
	b.q.mu.Unlock()
	b.remanage(t, slots)
	return b
}

// remanage has the queue of a bench be one partitionable slot.
func (b *bench) remanage(t *testing.T, slots int) {
	t.Helper()
	err := b.claims.Manage(claim.Options{
		Host: "h", Boot: time.Now(), Store: claim.NewStore(newRoot(t)), JobOf: b.q.JobOf,
		Share: func(_ string, n int) slot.Resources {
			return slot.Resources{Cpus: int64(n), Memory: int64(n) * 100, Disk: 1 << 30}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.q.Configure(&conf.Config{
		Hostname: "h", Queues: []conf.Queue{{Name: "all.q", Slots: slots, Batch: true, Partitionable: true, PEs: []string{"smp"}}},
		PEs: map[string]*conf.PE{"smp": {Name: "smp", Slots: 99, UrgencySlots: "min"}},
	})
	b.q.Policy(slot.NewPolicy(noRounding{}), nil)
}

// noRounding are knobs that have slots carved to the megabyte.
type noRounding struct{}

func (noRounding) Expr(name string) (classad.Expr, bool) {
	if name != "MODIFY_REQUEST_EXPR_REQUESTMEMORY" {
		return classad.Expr{}, false
	}
	e, err := classad.Parse("RequestMemory")
	return e, err == nil
}
func (noRounding) Int(_ string, def int) int                          { return def }
func (noRounding) Duration(_ string, def time.Duration) time.Duration { return def }

// sized submits a job that requests so many megabytes in each of its slots.
func sized(t *testing.T, s *job.Store, memory, slots int) *job.Job {
	t.Helper()
	r := &api.SubmitRequest{Name: fmt.Sprintf("m%d", memory), Binary: true, Command: "true"}
	if slots > 1 {
		r.PE, r.Slots = "smp", []api.Slots{{Min: slots, Max: slots, Step: 1}}
	}
	j, _, err := s.Submit(&user.User{Name: "alice", UID: 1}, 1, r, job.Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// PSLOT: the queue starts the jobs that there is room for, says for the others what there
// is too little of, and finds the same slots again after a restart.
func TestPartitionableQueue(t *testing.T) {
	s := newStore(t)
	b := partedBench(t, s, 4)
	sized(t, s, 250, 1)
	if name := b.next(t); name != "1.1" {
		t.Fatalf("started %s", name)
	}
	big, parallel := sized(t, s, 200, 1), sized(t, s, 50, 3)
	if name := b.next(t); name != "3.1" {
		t.Fatalf("started %s; want what there is room for", name)
	}
	if lines := strings.Join(b.q.Reasons(big), "\n"); !strings.Contains(lines, "full") {
		t.Errorf("reasons:\n%s", lines)
	}
	b.end("1.1")
	if name := b.next(t); name != "2.1" {
		t.Fatalf("started %s", name)
	}
	wait := sized(t, s, 60, 1)
	b.q.Settle()
	if lines := strings.Join(b.q.Reasons(wait), "\n"); !strings.Contains(lines, "full") {
		t.Errorf("reasons:\n%s", lines)
	}
	b.end("3.1")
	if name := b.next(t); name != "4.1" {
		t.Fatalf("started %s", name)
	}
	last := sized(t, s, 141, 1)
	b.q.Settle()
	if lines := strings.Join(b.q.Reasons(last), "\n"); !strings.Contains(lines, `cannot run in queue "all.q@h" because of slot1: too little Memory is left`) {
		t.Errorf("reasons:\n%s", lines)
	}
	if st := b.q.Status()[0]; st.Used != 2 || st.Reserved != 0 || st.Total != 4 {
		t.Errorf("used %d, reserved %d of %d", st.Used, st.Reserved, st.Total)
	}
	b.mu.Lock()
	carved := b.held["2.1"].task.Start.Carved
	b.mu.Unlock()
	if len(carved) != 1 || carved[0] != (job.Carved{Queue: "all.q", Slot: 1, Cpus: 1, Memory: 200, Disk: 1024}) {
		t.Errorf("the record has %+v", carved)
	}
	if len(parallel.Terms().Name) == 0 || b.q.Views(slot.ID{Number: 1, Dynamic: 1}, false)[0].Task != "2.1" {
		t.Error("slot1_1 runs another task")
	}
	b.end("2.1")
	if name := b.next(t); name != "5.1" {
		t.Errorf("started %s; want what waited for memory", name)
	}
}

// The queue, programs and fetched work fight for a partitionable slot: they never have
// more of it than there is, and in the end all is back. Run with -race.
func TestNothingCarvedTwice(t *testing.T) {
	const slots = 4
	s := newStore(t)
	b := partedBench(t, s, slots)
	for range 20 {
		sized(t, s, 90, 1)
		sized(t, s, 10, 2)
	}
	var wg, others sync.WaitGroup
	stop := make(chan struct{})
	started := 0
	wg.Go(func() { // all tasks end soon
		for {
			select {
			case name := <-b.started:
				if st := b.q.Status()[0]; st.Used+st.Reserved > slots {
					t.Errorf("%d slots are used and %d kept, of %d", st.Used, st.Reserved, slots)
				}
				started++
				b.end(name)
			case <-stop:
				return
			}
		}
	})
	work := func(cpus int) *classad.Ad {
		ad, err := classad.ParseAd(fmt.Sprintf(`[JobUniverse = 5; RequestCpus = %d; RequestMemory = 20; RequestDisk = 1]`, cpus))
		if err != nil {
			t.Error(err)
		}
		return ad
	}
	for i := range 2 {
		others.Go(func() {
			for range 25 {
				g, err := b.q.Claim(claim.Request{Slot: slot.Static(1), Holder: "alice", By: alice, Ad: work(1 + i), LeftOvers: i == 0})
				if err != nil {
					continue
				}
				if err := b.q.StartUnder(g.Slot, g.ID.String(), under(t, s, g), work(1)); err != nil {
					t.Error(err)
				}
				for _, id := range []*claim.Granted{&g, g.LeftOvers} {
					if id == nil {
						continue
					}
					if _, err := b.q.Order(id.ID, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} }); err != nil && api.RefusalOf(err) != api.RefusedUnknown {
						t.Error(err)
					}
				}
			}
		})
		others.Go(func() {
			for range 25 {
				g, err := b.q.Offer(slot.Static(1), work(1+i), 0, 0)
				if err != nil {
					continue
				}
				b.q.Asking(g.Slot, true)
				b.q.Withdraw(g.ID.String(), slot.Hold{Text: "no more work"})
				b.q.Asking(g.Slot, false)
			}
		})
	}
	others.Wait()
	idle := func() bool {
		v := b.q.Views(slot.ID{}, false)
		return len(v) == 1 && v[0].State == "Unclaimed" && v[0].Has.Cpus == slots && v[0].Has.Memory == 100*slots && len(s.Pending()) == 0
	}
	for deadline := time.Now().Add(time.Minute); !idle(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %d jobs wait", b.q.Views(slot.ID{}, false), len(s.Pending()))
		}
	}
	close(stop)
	wg.Wait()
	if st := b.q.Status()[0]; st.Used != 0 || st.Reserved != 0 || started < 40 {
		t.Errorf("used %d, reserved %d; want nothing in the books after %d tasks", st.Used, st.Reserved, started)
	}
}
