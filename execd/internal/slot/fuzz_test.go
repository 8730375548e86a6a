package slot

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"paddock/classad"
)

// policies are those of the random walks, by name of what the slot's ad has.
var policies = []testKnobs{
	nil,
	{"IS_OWNER": "Home", "START": "TARGET.Prio < 9", "RANK": "TARGET.Prio", "WANT_SUSPEND": "Want", "SUSPEND": "Hot", "CONTINUE": "Cool", "PREEMPT": "Evict", "KILL": "Stuck", "WANT_VACATE": "Soft", "MaxJobRetirementTime": "1000", "MachineMaxVacateTime": "30", "RunBenchmarks": "Soft", "WANT_HOLD": "Want", "START_BACKFILL": "Cool", "EVICT_BACKFILL": "Hot", "CLAIM_WORKLIFE": "300"},
	{"RANK": "TARGET.Prio", "MaxJobRetirementTime": "500", "START_BACKFILL": "true", "RunBenchmarks": "Hot", "CLAIM_WORKLIFE": "-1"},
	{"START": "Hot", "WANT_VACATE": "false", "CLAIM_WORKLIFE": "0", "IS_OWNER": "Home"},
}

// walk gives a machine a random life of events out of data, and checks after each
// what must always hold.
func walk(t testing.TB, data []byte) *bench {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		x := int(data[0])
		data = data[1:]
		return x % n
	}
	b := newBench(t, policies[next(len(policies))], func(c *Config) {
		flags := next(16)
		c.Benchmarks, c.Backfill, c.Dynamic, c.KeepBroken = flags&1 != 0, flags&2 != 0, flags&12 == 12, flags&1 != 0
	})
	facts := []string{"Home", "Want", "Hot", "Cool", "Evict", "Stuck", "Soft"}
	for _, name := range facts {
		b.slot[name] = "false"
	}
	number := func() Number {
		return []Number{b.m.Current().Number, b.m.Preempting().Number, b.m.PrePreempting().Number, b.m.Offer(), Number(next(20))}[next(5)]
	}
	work := func() Job { return job(fmt.Sprintf("Prio = %d", next(11))) }
	w := &watcher{b: b, held: map[Number]bool{}}
	for len(data) > 0 && b.m.State() != Deleted {
		var e Event
		kind := next(32)
		if (kind == 20 || kind == 21 || kind == 25 || kind == 29) && next(3) > 0 {
			kind = 0 // not too much of what ends everything
		}
		if b.m.drain.on && next(4) == 0 {
			kind = 22
		}
		switch kind {
		case 0, 1, 2:
			b.slot[facts[next(len(facts))]] = []string{"false", "false", "false", "true", "true", "undefined"}[next(6)]
			e = Evaluate{}
		case 3, 4, 5:
			if n := b.m.Next(); !n.IsZero() && n.After(b.now) {
				b.now = n
			}
			e = Evaluate{}
		case 6:
			b.after(time.Duration(next(256)) * time.Second)
			e = Evaluate{}
		case 7:
			e = Match{number()}
		case 8, 9, 10:
			e = Request{Claim: number(), Holder: "cat", Job: work(), Lease: time.Duration(next(3)) * 100 * time.Second}
		case 11, 12:
			e = Activate{b.m.Current().Number, work()}
		case 13, 14:
			e = Exited{number()}
			if b.m.State() == Preempting {
				e = Exited{b.m.Current().Number}
			}
		case 15:
			e = FinalUpdate{number()}
		case 16:
			e = Gone{number()}
		case 17:
			e = Release{number()}
		case 18:
			e = Renew{number(), time.Duration(next(100)) * time.Second, time.Duration(next(100)) * time.Second}
		case 19:
			e = []Event{Suspend{number()}, Continue{number()}, OnDemand{next(2) == 1}}[next(3)]
		case 20:
			e = Vacate{Fast: next(2) == 1}
		case 21:
			d := Drain{Speed: Speed(next(3)), Peaceful: next(2) == 1, Shutdown: next(4) == 1, OnCompletion: OnCompletion(next(5))}
			if next(2) == 1 {
				e, _ := classad.Parse("TARGET.Prio < 5")
				d.Start, d.Until = &e, b.now.Add(time.Duration(next(256))*time.Second)
			}
			e = d
		case 22:
			e = []Event{Undrain{}, AllDrained{}}[next(2)]
		case 23:
			e = []Event{BackfillStarted{}, BackfillEnded{}, BenchmarksDone{}}[next(3)]
		case 24:
			e = Deactivate{number(), Deactivation(next(3))}
		case 25:
			e = Lost{number()}
		case 26, 27:
			b.handle(FetchBegan{})
			e = FetchEnded{}
			if next(3) > 0 {
				e = FetchEnded{work()}
			}
		case 28:
			e = []Event{NoWork{number()}, SignalFailed{number()}, FetchBegan{}, FetchStopped{}}[next(4)]
		case 30, 31:
			n := b.m.Offer()
			e = []Event{BackfillStarted{}, BackfillEnded{}, Request{Claim: n, Job: work()}, Gone{b.m.Preempting().Number}, Activate{b.m.Current().Number, work()}, Suspend{b.m.Current().Number}}[next(6)]
		case 29:
			e = Break{[]string{"", "", "", "no disk"}[next(4)]}
		}
		w.handle(e)
	}
	return b
}

// watcher holds what actions say against what the machine says.
type watcher struct {
	b    *bench
	held map[Number]bool // who waits for an answer
}

func (w *watcher) handle(e Event) {
	b, m := w.b, w.b.m
	at := m.Place()
	alive := m.run.alive
	list := b.handle(e)
	for _, a := range list {
		switch a.Do {
		case HeldBack:
			if w.held[a.Claim] {
				b.t.Fatalf("%T: claim %d is held back twice", e, a.Claim)
			}
			w.held[a.Claim] = true
		case Accepted, Refused:
			delete(w.held, a.Claim)
		case Dropped:
			if w.held[a.Claim] {
				switch e := e.(type) {
				case Gone, NoWork, Release:
				default:
					b.t.Fatalf("%T%+v: claim %d is dropped without an answer", e, e, a.Claim)
				}
				delete(w.held, a.Claim)
			}
		case StopJob, KillJob, KillFamily, SuspendJob, ResumeJob, HoldJob:
			if !alive && !m.run.alive {
				b.t.Fatalf("%T: %s without a job", e, a.Do)
			}
		}
	}
	p := m.Place()
	for n := range w.held {
		if !m.Knows(n) {
			b.t.Fatalf("%T in %s: claim %d waits for an answer for ever", e, p, n)
		}
	}
	// A job runs only under a claim, and a place with a job has one.
	if m.run.alive != (p.State == Preempting || p.State == Claimed && p.Activity != Idle) {
		b.t.Fatalf("%T: from %s to %s: alive %t", e, at, p, m.run.alive)
	}
	if m.run.alive && p.Activity == Suspended == m.run.suspended.IsZero() {
		b.t.Fatalf("%T: %s suspended since %v", e, p, m.run.suspended)
	}
	// Whatever ends or waits has a time at which it goes on.
	switch {
	case p.State == Preempting, p.State == Matched, p == Place{Backfill, Killing}:
		if m.Next().IsZero() {
			b.t.Fatalf("%T: %s for ever", e, p)
		}
	case p == Place{Claimed, Retiring} && m.retirementRemaining() < forever:
		if m.Next().IsZero() {
			b.t.Fatalf("%T: %s for ever", e, p)
		}
	}
	if m.Preempting().Number != 0 && p.State != Claimed && p.State != Preempting {
		b.t.Fatalf("%T: somebody waits in %s", e, p)
	}
	if m.PrePreempting().Number != 0 && !m.Preempting().Waiting {
		b.t.Fatalf("%T: an offer behind one for which nobody came", e)
	}
}

// FuzzWalk: whatever happens, a slot is in a place that there is, by a row of the
// table, and nobody waits for ever.
func FuzzWalk(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { walk(t, data) })
}

// TestWalks goes long ways, and sees that they lead everywhere.
func TestWalks(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	taken := map[int]bool{}
	for range 150 {
		data := make([]byte, 2000)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		b := walk(t, data)
		for n := range b.rows {
			taken[n] = true
		}
		finish(b)
	}
	for i := range Table {
		if !taken[Table[i].Number] {
			t.Errorf("no walk took row %d", Table[i].Number)
		}
	}
}

// finish drains the slot, and sees that it ends though the holder does nothing
// and the job only when it is killed with its family.
func finish(b *bench) {
	b.t.Helper()
	b.handle(Drain{Speed: DrainQuick})
	for range 100 {
		switch p := b.m.Place(); {
		case p.State == Drained || p.State == Deleted:
			return
		case p == Place{Claimed, Cleaning}:
			b.handle(Exited{b.m.Current().Number})
			continue
		case p == Place{Backfill, Killing}:
			b.handle(BackfillEnded{})
			continue
		}
		n := b.m.Next()
		if n.IsZero() {
			b.t.Fatalf("%s for ever", b.m.Place())
		}
		if n.After(b.now) {
			b.now = n
		}
		for _, a := range b.handle(Evaluate{}) {
			if a.Do == KillFamily {
				b.handle(Exited{a.Claim})
				break
			}
		}
	}
	b.t.Fatalf("the slot is still %s", b.m.Place())
}

func BenchmarkEvaluate(b *testing.B) {
	for name, knobs := range map[string]testKnobs{
		"constant": nil,
		"slot":     {"PREEMPT": "MY.Memory < 10"},
		"load":     {"WANT_SUSPEND": "true", "SUSPEND": "LoadAvg > 2"},
	} {
		b.Run(name, func(b *testing.B) {
			x := newBench(b, knobs)
			ad, _ := classad.ParseAd("[Memory = 100; LoadAvg = 0.5]")
			x.m.cfg.Slot = func() *classad.Ad { return ad }
			x.busy(JobOf(ad.With(classad.Attr{Name: "JobUniverse", Expr: classad.Int(5).Expr()})))
			var e Event = Evaluate{}
			b.ReportAllocs()
			for b.Loop() {
				x.m.Handle(x.now, e)
			}
		})
	}
}
