package slot

import (
	"fmt"
	"testing"
	"time"
)

// TestDecide: REQ-HOOK-6, REQ-HOOK-7, REQ-HOOK-8, REQ-HOOK-9, REQ-HOOK-107: what
// becomes of fetched work in every place, by RANK and START. To ask changes
// nothing.
func TestDecide(t *testing.T) {
	knobs := testKnobs{"START": "TARGET.Good", "RANK": "TARGET.Prio", "IS_OWNER": "Home", "MaxJobRetirementTime": "1000", "START_BACKFILL": "Fill"}
	running := "Good = true; Prio = 3"
	for _, test := range []struct {
		name                 string
		to                   func(b *bench)
		at                   Place
		lower, equal, higher bool
	}{
		{"Unclaimed", func(b *bench) { b.handle(Evaluate{}) }, Place{Unclaimed, Idle}, true, true, true},
		{"Owner", func(b *bench) { b.slot["Home"] = "true"; b.handle(Evaluate{}) }, Place{Owner, Idle}, false, false, false},
		{"Matched", func(b *bench) { b.handle(Match{1}) }, Place{Matched, Idle}, false, false, false},
		{"claimed by a queue", func(b *bench) { b.handle(Request{Claim: 1, Job: job(running)}) }, Place{Claimed, Idle}, false, false, true},
		{"Busy", func(b *bench) { b.busy(job(running)) }, Place{Claimed, Busy}, false, false, true},
		{"Busy with fetched work", func(b *bench) { b.fetchBusy(job(running)) }, Place{Claimed, Busy}, false, false, true},
		{"idle with fetched work", func(b *bench) { b.fetchBusy(job(running)); b.handle(Exited{1}) }, Place{Claimed, Idle}, true, true, true},
		{"about to start", func(b *bench) { b.handle(Evaluate{}); b.fetch(job(running)) }, Place{Claimed, Idle}, false, false, true},
		{"Suspended", func(b *bench) { b.busy(job(running)); b.handle(Suspend{1}) }, Place{Claimed, Suspended}, false, false, true},
		{"Cleaning", func(b *bench) { b.busy(job(running)); b.handle(FinalUpdate{1}) }, Place{Claimed, Cleaning}, false, false, true},
		{"Retiring", func(b *bench) { b.busy(job(running)); b.handle(Request{Claim: 2, Job: job("Good = true; Prio = 4")}) }, Place{Claimed, Retiring}, false, false, false},
		{"Preempting", func(b *bench) { b.busy(job(running)); b.handle(Vacate{}) }, Place{Preempting, Vacating}, false, false, false},
		{"Drained", func(b *bench) { b.handle(Drain{}) }, Place{Drained, Retiring}, false, false, false},
		{"shut down", func(b *bench) { b.handle(Drain{Shutdown: true}) }, Place{Drained, Retiring}, false, false, false},
		{"Backfill", func(b *bench) { b.slot["Fill"] = "true"; b.handle(Evaluate{}) }, Place{Backfill, Idle}, true, true, true},
		{"broken", func(b *bench) { b.handle(Break{"no disk"}) }, Place{Unclaimed, Idle}, false, false, false},
		{"Deleted", func(b *bench) { b.m.cfg.Dynamic = true; b.handle(Evaluate{}) }, Place{Deleted, Idle}, false, false, false},
		{"too old", func(b *bench) {
			b.fetchBusy(job(running))
			b.handle(Exited{1})
			b.now = b.now.Add(time.Hour)
		}, Place{Claimed, Idle}, false, false, false},
	} {
		for prio, want := range map[int]bool{2: test.lower, 3: test.equal, 4: test.higher} {
			for _, good := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %d %t", test.name, prio, good), func(t *testing.T) {
					b := newBench(t, knobs, withBackfill)
					b.slot["Home"], b.slot["Fill"] = "false", "false"
					test.to(b)
					b.place(test.at)
					j := job(fmt.Sprintf("Good = %t; Prio = %d", good, prio))
					d := b.m.Decide(b.now, j)
					b.place(test.at)
					if d.Accept != (want && good) || d.Accept != (d.Reason == 0) || !d.Accept && d.Text == "" {
						t.Fatalf("decided %+v", d)
					}
					if d.Accept && !b.m.Knows(d.Claim) {
						t.Errorf("claim %d is not there", d.Claim)
					}
					// What is done is what was said.
					accepted := false
					for _, a := range b.fetch(j) {
						accepted = accepted || (a.Do == Accepted || a.Do == HeldBack) && a.Claim == d.Claim
					}
					if accepted != d.Accept {
						t.Errorf("decided %+v, and accepted %t", d, accepted)
					}
				})
			}
		}
	}
}

// TestFetchedWork: REQ-HOOK-11, REQ-HOOK-15, REQ-HOOK-16, REQ-HOOK-17: one claim
// for work after work, until there is none.
func TestFetchedWork(t *testing.T) {
	b := newBench(t, nil)
	b.want(FetchBegan{}, "1:Unclaimed/Idle")
	b.want(FetchEnded{job("")}, "5:Claimed/Idle, Accepted #1, Spawn #1")
	if c := b.m.Current(); c.Kind != Fetch || c.Holder != FetchHolder {
		t.Errorf("claimed by %+v", c)
	}
	b.want(Activate{1, JobOf(job("").Ad())}, "11:Claimed/Busy, Accepted #1")
	b.want(Exited{1}, "12:Claimed/Idle, Ask #1")
	b.want(FetchBegan{}, "")
	b.want(FetchEnded{job("")}, "Accepted #1, Spawn #1")
	b.want(Activate{1, &testJob{}}, "11:Claimed/Busy, Accepted #1") // a JobUniverse is not needed
	b.want(Exited{1}, "12:Claimed/Idle, Ask #1")
	if got := b.m.Current().Activations; got != 2 {
		t.Errorf("%d activations", got)
	}
	b.want(FetchBegan{}, "")
	b.want(FetchEnded{}, "10:Preempting/Vacating, Broken #1 1017, 22:Owner/Idle, 1:Unclaimed/Idle")
	// Work that does not suit the slot is none.
	b.fetchBusy(job(""))
	b.want(Exited{3}, "12:Claimed/Idle, Ask #3")
	b.want(FetchBegan{}, "")
	b.want(FetchEnded{job("RequestCpus = 8")}, "Refused 1027, 10:Preempting/Vacating, Broken #3 1017, 22:Owner/Idle, 1:Unclaimed/Idle")
	// Work that cannot be started is none either.
	b.fetch(job(""))
	b.want(NoWork{4}, "")
	b.want(NoWork{5}, "10:Preempting/Vacating, Broken #5 1017, 22:Owner/Idle, 1:Unclaimed/Idle")
}

// TestFetchedAtTheEnd: work that was accepted just before CLAIM_WORKLIFE is over
// is started, unless that takes long.
func TestFetchedAtTheEnd(t *testing.T) {
	for _, late := range []bool{false, true} {
		b := newBench(t, testKnobs{"CLAIM_WORKLIFE": "60"})
		b.fetchBusy(job(""))
		b.after(59*time.Second).want(Exited{1}, "12:Claimed/Idle, Ask #1")
		b.want(FetchBegan{}, "")
		b.want(FetchEnded{job("")}, "Accepted #1, Spawn #1")
		b.next(20 * time.Second)
		if late {
			b.after(20*time.Second).want(Evaluate{}, "10:Preempting/Vacating, Broken #1 1029, 22:Owner/Idle, 1:Unclaimed/Idle")
			continue
		}
		b.after(19*time.Second).want(Activate{1, job("")}, "11:Claimed/Busy, Accepted #1")
	}
}

// TestFetchPreempts: REQ-HOOK-8, REQ-HOOK-12: fetched work of higher RANK lets what
// runs retire; without it that stays.
func TestFetchPreempts(t *testing.T) {
	knobs := testKnobs{"RANK": "TARGET.Prio", "MaxJobRetirementTime": "1000", "MachineMaxVacateTime": "10"}
	b := newBench(t, knobs)
	b.busy(job("Prio = 3"))
	b.want(FetchBegan{}, "")
	b.want(FetchEnded{job("Prio = 4")}, "HeldBack #2, 13:Claimed/Retiring")
	b.want(NoWork{2}, "19:Claimed/Busy")
	b.want(FetchBegan{}, "")
	b.want(FetchEnded{job("Prio = 4")}, "HeldBack #3, 13:Claimed/Retiring")
	b.after(500*time.Second).want(Evaluate{}, "") // nobody's patience ends
	b.after(490*time.Second).want(Evaluate{}, "18:Preempting/Vacating, StopJob #1 1018")
	b.want(Exited{1}, "Broken #1 1018, 23:Claimed/Idle, Accepted #3, Spawn #3")
	b.want(Activate{3, job("Prio = 4")}, "11:Claimed/Busy, Accepted #3")
	// It is a claim like any other.
	b.want(Suspend{3}, "SuspendJob #3, 14:Claimed/Suspended")
	b.want(Continue{3}, "ResumeJob #3, 15:Claimed/Busy")
}

// TestQueuePreemptsFetched: REQ-HOOK-13: a job of a queue, of the same RANK too,
// displaces fetched work.
func TestQueuePreemptsFetched(t *testing.T) {
	for prio, want := range map[int]string{
		2: "Refused #2 1027",
		3: "HeldBack #2, 13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1019",
		4: "HeldBack #2, 13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1018",
	} {
		b := newBench(t, testKnobs{"RANK": "TARGET.Prio"})
		b.fetchBusy(job("Prio = 3"))
		b.want(Request{Claim: 2, Job: job(fmt.Sprintf("Prio = %d", prio))}, want)
	}
}
