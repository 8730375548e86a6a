package queue

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf/knob/knobtest"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source"
	"paddock/execd/internal/user"
	"paddock/internal/proc"
	"paddock/test/harness"
)

// managedBench is a bench whose slots may be others' than the queue's.
func managedBench(t *testing.T, s *job.Store, slots int, policy string) *bench {
	t.Helper()
	knobs := knobtest.Parse(t, policy)
	b := newBench(t, s, slots, NewGIDs(nil))
	b.q.mu.Lock()
	b.q.o.Slots.JobAd = func(j *job.Job, _ *job.Task, _ []string) *classad.Ad {
		ad, err := classad.ParseAd(`[JobUniverse = 5; Name = "` + j.Terms().Name + `"]`)
		if err != nil {
			t.Error(err)
		}
		return ad
	}
	b.q.mu.Unlock()
	if err := b.claims.Manage(claim.Options{Host: "h", Boot: time.Now(), Store: claim.NewStore(newRoot(t)), JobOf: b.q.JobOf}); err != nil {
		t.Fatal(err)
	}
	b.q.Policy(slot.NewPolicy(knobs), nil)
	return b
}

// under submits a job that is to run under a claim.
func under(t *testing.T, s *job.Store, g claim.Granted) *job.Job {
	t.Helper()
	j, _, err := s.Submit(&user.User{Name: "alice", UID: 1}, 100, &api.SubmitRequest{
		Name: "j", Binary: true, Command: "true", Work: &api.Work{Slot: api.SlotID(g.Slot.String()), Claim: g.ID.String(), Holder: "alice"},
	}, job.Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

var alice = claim.By{UID: 1, Name: "alice"}

func programClaim(id slot.ID) claim.Request {
	return claim.Request{Slot: id, Holder: "alice", By: alice, NoWait: true}
}

// CLAIM-ACTIVATE, CLAIM-RELEASE: a claimed slot is not the queue's until it is given
// back, and a job that is started under the claim has its place.
func TestQueueLeavesClaimedSlots(t *testing.T) {
	s := newStore(t)
	b := managedBench(t, s, 2, "")
	g, err := b.q.Claim(programClaim(slot.Static(1)))
	if err != nil {
		t.Fatal(err)
	}
	if st := b.q.Status()[0]; st.Reserved != 1 || st.Used != 0 {
		t.Errorf("reserved %d, used %d; want the claimed slot reserved", st.Reserved, st.Used)
	}
	submit(t, s, api.Tasks{First: 1, Last: 2, Step: 1}, 0)
	first := b.next(t)
	j := under(t, s, g)
	if err := b.q.StartUnder(g.Slot, g.ID.String(), j, nil); err != nil {
		t.Fatal(err)
	}
	if second := b.next(t); first != "1.1" || second != "2.1" {
		t.Fatalf("started %s and %s; want 1.1, and 2.1 under the claim", first, second)
	}
	if st := b.q.Status()[0]; st.Reserved != 0 || st.Used != 2 {
		t.Errorf("reserved %d, used %d; want both slots used", st.Reserved, st.Used)
	}
	if lines := strings.Join(b.q.Reasons(s.Get(1)), "\n"); !strings.Contains(lines, "full") {
		t.Errorf("reasons:\n%s", lines)
	}
	b.end("2.1")
	select {
	case name := <-b.started:
		t.Fatalf("%s is started in a slot that is claimed", name)
	case <-time.After(50 * time.Millisecond): // the other test shows that a free slot is taken at once
	}
	if _, err := b.q.Order(g.ID, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} }); err != nil {
		t.Fatal(err)
	}
	if third := b.next(t); third != "1.2" {
		t.Errorf("started %s; want 1.2 in the slot that was given back", third)
	}
}

// Who was told that a job leaves its slot is told the truth, even if execd is killed at once.
func TestVacateIsRecorded(t *testing.T) {
	s := newStore(t)
	b := managedBench(t, s, 1, "")
	begun, may := make(chan struct{}), make(chan struct{})
	b.q.mu.Lock()
	b.q.o.Slots.Evict = func(*job.Task, claim.Effect, *claim.Effect) {
		close(begun)
		<-may
	}
	b.q.mu.Unlock()
	submit(t, s, api.Tasks{}, 0)
	b.next(t)
	told := make(chan error, 1)
	go func() {
		n, err := b.q.Vacate([]slot.ID{slot.Static(1)}, true)
		if n != 1 && err == nil {
			err = errors.New("nothing was vacated")
		}
		told <- err
	}()
	<-begun
	select {
	case err := <-told:
		t.Errorf("the answer, %v, is there before it is recorded", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(may)
	if err := <-told; err != nil {
		t.Error(err)
	}
}

// POLICY-START: START is asked about a job that waits, by the scheduler and by the
// slot alike. A slot that refuses what the scheduler has placed does not make it place
// the same job without end.
func TestStartSeesWhatWaits(t *testing.T) {
	for policy, starts := range map[string]bool{"START = TARGET.JobStatus == 1": true, "START = TARGET.Asked % 2 == 1": false} {
		s := newStore(t)
		b := managedBench(t, s, 1, policy)
		asked := 0 // the queue's lock is held
		b.q.mu.Lock()
		b.q.o.Slots.JobAd = func(_ *job.Job, task *job.Task, _ []string) *classad.Ad {
			asked++
			status := 1
			if task != nil {
				status = 2
			}
			return classad.New(
				classad.Attr{Name: "JobUniverse", Expr: classad.Int(5).Expr()},
				classad.Attr{Name: "JobStatus", Expr: classad.Int(int64(status)).Expr()},
				classad.Attr{Name: "Asked", Expr: classad.Int(int64(asked)).Expr()},
			)
		}
		b.q.mu.Unlock()
		submit(t, s, api.Tasks{}, 0)
		if starts {
			if name := b.next(t); name != "1.1" {
				t.Errorf("%s: started %s", policy, name)
			}
			continue
		}
		eventually := time.Now().Add(time.Minute)
		for n := 0; n < 2 && time.Now().Before(eventually); time.Sleep(time.Millisecond) {
			b.q.mu.Lock()
			n = asked
			b.q.mu.Unlock()
		}
		time.Sleep(100 * time.Millisecond)
		b.q.mu.Lock()
		if asked > 100 {
			t.Errorf("%s: the slot was asked %d times in 100 ms", policy, asked)
		}
		b.q.mu.Unlock()
	}
}

// POLICY-START: a job that no slot is willing to run waits, and says why; another
// one that asks for the same does not.
func TestStartOfSlots(t *testing.T) {
	s := newStore(t)
	b := managedBench(t, s, 1, `START = TARGET.Name == "good"`)
	bad := submit(t, s, api.Tasks{}, 0)
	if _, _, err := s.Submit(&user.User{Name: "alice", UID: 1}, 100, &api.SubmitRequest{Name: "good", Binary: true, Command: "true"}, job.Limits{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if name := b.next(t); name != "2.1" {
		t.Fatalf("started %s; want 2.1", name)
	}
	b.end("2.1")
	if lines := strings.Join(b.q.Reasons(bad), "\n"); !strings.Contains(lines, `cannot run in queue "all.q@h" because START of slot1 is false`) {
		t.Errorf("reasons:\n%s", lines)
	}
	b.q.Policy(slot.NewPolicy(nil), nil)
	if name := b.next(t); name != "1.1" {
		t.Errorf("started %s; want 1.1, which the slots take now", name)
	}
}

// The queue and programs fight for few slots: there are never more tasks than slots,
// and in the end all slots are plain and free. Run with -race.
func TestNoSlotTwice(t *testing.T) {
	const slots = 4
	s := newStore(t)
	b := managedBench(t, s, slots, "")
	submit(t, s, api.Tasks{First: 1, Last: 60, Step: 1}, 0)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() { // all tasks end soon
		for {
			select {
			case name := <-b.started:
				if n := b.claims.Busy(); n > slots {
					t.Errorf("%d slots are busy, of %d", n, slots)
				}
				b.mu.Lock()
				for _, c := range b.held[name].slots {
					if c.Index == 0 {
						t.Errorf("%s has a claim of no slot", name)
					}
				}
				b.mu.Unlock()
				b.end(name)
			case <-stop:
				return
			}
		}
	})
	var programs sync.WaitGroup
	for range 4 {
		programs.Go(func() {
			for range 25 {
				g, err := b.q.Claim(programClaim(slot.Static(1 + rand.IntN(slots))))
				if err != nil {
					continue
				}
				j := under(t, s, g)
				if err := b.q.StartUnder(g.Slot, g.ID.String(), j, nil); err != nil {
					t.Errorf("job %d: %v", j.Number, err)
				}
				if _, err := b.q.Order(g.ID, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	programs.Wait()
	free := func() bool { return !b.claims.Managed() && b.claims.Busy() == 0 && s.Running(s.Get(1)) == 60 }
	for deadline := time.Now().Add(time.Minute); !free(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("managed %v, busy %d, %d tasks were started; want plain, free slots and 60", b.claims.Managed(), b.claims.Busy(), s.Running(s.Get(1)))
		}
	}
	close(stop)
	wg.Wait()
	if st := b.q.Status()[0]; st.Used != 0 || st.Reserved != 0 {
		t.Errorf("used %d, reserved %d; want nothing in the books", st.Used, st.Reserved)
	}
}

// While nothing is started at all no work is asked for, and what comes all the same is
// refused: to accept it and to give it back, again and again, would keep it from hosts
// that start something. Who waits for the slot hears when that is over.
func TestNoWorkWhileNothingIsStarted(t *testing.T) {
	s := newStore(t)
	b := managedBench(t, s, 1, "START = true")
	id := slot.Static(1)
	work := classad.New()
	drain := func(why string) {
		b.q.mu.Lock()
		b.q.o.Hold = func() string { return why }
		b.q.mu.Unlock()
		b.q.Settle()
	}
	for what, stop := range map[string]func() (again func()){
		"the host is being drained": func() func() {
			drain("the host is being drained")
			return func() { drain("") }
		},
		"the disk is full": func() func() {
			b.q.Pause("the disk is full", time.Hour)
			return func() { b.q.Pause("the disk is full", 0) }
		},
	} {
		again := stop()
		changed := b.claims.Changed(id)
		if v, ok := b.q.Snapshot(id, true); !ok || !v.Closed {
			t.Errorf("%s: slot 1 is %+v; want it closed", what, v)
		}
		if g, err := b.q.Offer(id, work, 0, 0); api.RefusalOf(err) != api.RefusedShutdown || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: work is offered: %+v, %v; want it refused for that", what, g, err)
		}
		again()
		<-changed
		if v, ok := b.q.Snapshot(id, true); !ok || v.Closed {
			t.Errorf("%s, and not any more: slot 1 is %+v; want it open", what, v)
		}
	}
	if _, err := b.q.Offer(id, work, 0, 0); err != nil {
		t.Error(err)
	}
}

// What is left to a job that is to leave its slot is a span: an execd that is started anew
// counts it by how long the host is up, and not by a clock that was set meanwhile.
func TestEndingAgain(t *testing.T) {
	for _, by := range []time.Duration{-6 * time.Hour, 0, 6 * time.Hour} {
		w := &job.Want{Slot: true, Until: time.Now().Round(0).Add(by + time.Minute), UntilUp: proc.Uptime() + time.Minute}
		before := time.Now()
		e := ending(w)
		if left := e.Until.Sub(before); left < 59*time.Second || left > time.Minute+time.Since(before) {
			t.Errorf("with a clock that was set by %v a minute has become %v", -by, left)
		}
	}
	if e := ending(&job.Want{Slot: true}); !e.Until.IsZero() {
		t.Errorf("what is being killed has until %v", e.Until)
	}
}

// noting is a source that notes what it is told of its jobs.
type noting struct {
	programs
	told *[]string
}

func (n noting) Deleting(j *job.Job) (undo func()) {
	*n.told = append(*n.told, "deleting "+j.Terms().Name)
	return func() {}
}

// The source of a job that waits is told before it is deleted, and no other is.
func TestSourceIsToldOfDeletion(t *testing.T) {
	s := newStore(t)
	b := newBench(t, s, 0, NewGIDs(nil))
	var told []string
	b.q.mu.Lock()
	b.q.o.Sources[source.Users] = noting{told: &told}
	b.q.mu.Unlock()
	for _, j := range []*job.Job{submit(t, s, api.Tasks{}, 0), under(t, s, claim.Granted{})} {
		if err := s.Drop(j); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(told, []string{"deleting j"}) {
		t.Errorf("told %q; want the second job alone", told)
	}
}

// hanging is a log on a disk that hangs until there is something to be read.
type hanging struct {
	slog.Handler
	entered chan string
	resume  chan struct{}
}

func (h hanging) Handle(_ context.Context, r slog.Record) error {
	h.entered <- r.Message
	<-h.resume
	return nil
}

// While the disk of the log hangs, slots are claimed and shown.
func TestLogHangs(t *testing.T) {
	s := newStore(t)
	b := newBench(t, s, 2, NewGIDs(nil))
	log := hanging{slog.NewTextHandler(io.Discard, nil), make(chan string, 10), make(chan struct{})}
	b.q.mu.Lock()
	b.q.o.Log = slog.New(log)
	b.q.mu.Unlock()
	if err := b.claims.Manage(claim.Options{Host: "h", Boot: time.Now(), JobOf: b.q.JobOf, Log: slog.New(log)}); err != nil {
		t.Fatal(err)
	}
	b.q.Policy(slot.NewPolicy(nil), nil)
	done := make(chan error)
	go func() {
		_, err := b.q.Claim(programClaim(slot.Static(1)))
		b.q.Status()
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(harness.Patience):
		t.Error("a claim waits for the log")
	}
	if line := <-log.entered; !strings.Contains(line, "made") {
		t.Errorf("the log says %q", line)
	}
	close(log.resume)
	b.q.Stop()
}
