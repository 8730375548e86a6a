package slot

import (
	"testing"
	"time"
)

// TestDrainSpeeds: DRAIN-GRACEFUL, DRAIN-QUICK, DRAIN-FAST: what each leaves to a
// job that has an hour, in every activity.
func TestDrainSpeeds(t *testing.T) {
	knobs := testKnobs{"MaxJobRetirementTime": "3600", "MachineMaxVacateTime": "60"}
	vacating := Place{Preempting, Vacating}
	killing := Place{Preempting, Killing}
	for _, test := range []struct {
		name                  string
		prepare               func(b *bench)
		graceful, quick, fast Place
	}{
		{"Busy", func(*bench) {}, Place{Claimed, Retiring}, vacating, killing},
		{"Retiring", func(b *bench) { b.handle(Request{Claim: 2, Job: job("")}) }, Place{Claimed, Retiring}, vacating, killing},
		{"Suspended", func(b *bench) { b.handle(Suspend{1}) }, Place{Claimed, Suspended}, vacating, killing},
		{"Cleaning", func(b *bench) { b.handle(FinalUpdate{1}) }, Place{Claimed, Cleaning}, Place{Claimed, Cleaning}, Place{Claimed, Cleaning}},
		{"Idle", func(b *bench) { b.handle(Exited{1}) }, Place{Drained, Retiring}, Place{Drained, Retiring}, Place{Drained, Retiring}},
		{"Vacating", func(b *bench) { b.handle(Vacate{}) }, vacating, vacating, killing},
		{"Killing", func(b *bench) { b.handle(Vacate{Fast: true}) }, killing, killing, killing},
	} {
		for speed, want := range map[Speed]Place{DrainGraceful: test.graceful, DrainQuick: test.quick, DrainFast: test.fast} {
			t.Run(test.name+" "+speed.String(), func(t *testing.T) {
				b := newBench(t, knobs)
				b.busy(job(""))
				test.prepare(b)
				b.handle(Drain{Speed: speed})
				b.place(want)
				if d, ok := b.m.Draining(); !ok || d.Speed != speed {
					t.Errorf("draining %t %+v", ok, d)
				}
				// In the end it is drained, whoever waits.
				for range 4 {
					b.after(time.Hour).handle(Evaluate{})
				}
				b.handle(Continue{1})
				b.handle(Exited{1})
				b.place(Place{Drained, Retiring})
			})
		}
	}
}

// TestDrainFaster: DRAIN-QUICK, DRAIN-FAST: a drain may be made faster.
func TestDrainFaster(t *testing.T) {
	b := newBench(t, testKnobs{"MaxJobRetirementTime": "3600"})
	b.busy(job(""))
	b.want(Drain{}, "13:Claimed/Retiring")
	b.want(Drain{Speed: DrainQuick}, "18:Preempting/Vacating, StopJob #1 1014")
	b.want(Drain{Speed: DrainFast}, "21:Preempting/Killing, KillJob #1 1014")
}

// TestDrainQuickVacate: DRAIN-QUICK: what is left of retirement does not lengthen
// vacating either.
func TestDrainQuickVacate(t *testing.T) {
	for speed, want := range map[Speed]time.Duration{DrainGraceful: 500 * time.Second, DrainQuick: 60 * time.Second} {
		b := newBench(t, testKnobs{"MaxJobRetirementTime": "500", "MachineMaxVacateTime": "60"})
		b.busy(job("JobMaxVacateTime = 3000"))
		b.handle(Drain{Speed: speed})
		b.handle(Evaluate{})
		b.place(Place{Preempting, Vacating})
		b.next(want)
	}
}

// TestDrainPeaceful: DRAIN-GRACEFUL: peaceful draining has no limit, but that of
// the job, unless the expression is negative.
func TestDrainPeaceful(t *testing.T) {
	b := newBench(t, testKnobs{"MaxJobRetirementTime": "0"})
	b.busy(job(""))
	b.want(Drain{Peaceful: true}, "13:Claimed/Retiring")
	b.after(5*time.Second).want(Evaluate{}, "")
	b.next(never)
	b.after(9000*time.Hour).want(Evaluate{}, "")
	b.want(Exited{1}, "18:Preempting/Vacating, Broken #1 1014, 22:Owner/Idle, 36:Drained/Retiring")

	b = newBench(t, testKnobs{"MaxJobRetirementTime": "-1"})
	b.busy(job(""))
	b.want(Drain{Peaceful: true}, "13:Claimed/Retiring")
	b.want(Evaluate{}, "18:Preempting/Vacating, StopJob #1 1014")

	b = newBench(t, nil)
	b.busy(job("MaxJobRetirementTime = 700"))
	b.want(Drain{Peaceful: true}, "13:Claimed/Retiring")
	b.want(Evaluate{}, "")
	b.next(100 * time.Second)
	b.after(100*time.Second).want(Evaluate{}, "18:Preempting/Vacating, StopJob #1 1014")
}

// TestDrainForGood: DRAIN-GRACEFUL: a job that retires because of a drain does so
// though the drain is cancelled.
func TestDrainForGood(t *testing.T) {
	b := newBench(t, testKnobs{"MaxJobRetirementTime": "3600"})
	b.busy(job(""))
	b.want(Drain{}, "13:Claimed/Retiring")
	b.want(Undrain{}, "")
	b.after(5*time.Second).want(Evaluate{}, "")
	b.place(Place{Claimed, Retiring})
	b.want(Exited{1}, "18:Preempting/Vacating, Broken #1 1014, 22:Owner/Idle, 1:Unclaimed/Idle")
}

// TestDrainStart: DRAIN-GRACEFUL: while other slots are not drained, work may begin
// for which the expression of the drain is true. It ends with the drain.
func TestDrainStart(t *testing.T) {
	b := newBench(t, testKnobs{"MaxJobRetirementTime": "3600", "MachineMaxVacateTime": "60"})
	d := Drain{Start: exprOf(t, "TARGET.Filler"), Until: b.now.Add(1000 * time.Second)}
	filler := job("Filler = true")
	b.want(d, "1:Unclaimed/Idle")
	b.next(980 * time.Second)
	if d := b.m.Decide(b.now, filler); !d.Accept {
		t.Errorf("no fetch: %+v", d)
	}
	b.want(Request{Claim: 1, Job: job("")}, "Refused #1 1027")
	b.want(Request{Claim: 1, Job: filler}, "5:Claimed/Idle, Accepted #1")
	if !b.m.Current().WhileDraining {
		t.Error("the claim is not of the drain")
	}
	if got := b.m.Decide(b.now, filler); got.Accept || got.Reason != ReasonDraining {
		t.Errorf("%+v", got)
	}
	b.next(20 * time.Second)
	b.after(19*time.Second).want(Activate{1, filler}, "11:Claimed/Busy, Accepted #1")
	b.after(5*time.Second).want(Evaluate{}, "")
	b.next(976 * time.Second)
	b.want(Request{Claim: 2, Job: filler}, "Refused #2 1014")
	b.want(d, "") // told again
	b.after(976*time.Second).want(Evaluate{}, "13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1014")
	b.want(Exited{1}, "Broken #1 1014, 22:Owner/Idle, 36:Drained/Retiring")

	// Nobody activates in time; too late for another; the expression is false.
	b = newBench(t, nil)
	d.Until = b.now.Add(60 * time.Second)
	b.want(d, "1:Unclaimed/Idle")
	b.want(Request{Claim: 1, Job: filler}, "5:Claimed/Idle, Accepted #1")
	b.after(20*time.Second).want(Evaluate{}, "10:Preempting/Vacating, Broken #1 1014, 22:Owner/Idle, 1:Unclaimed/Idle")
	b.after(20*time.Second).want(Request{Claim: 3, Job: filler}, "Refused #3 1014, 37:Drained/Retiring")
	b.want(Undrain{}, "34:Owner/Idle, 1:Unclaimed/Idle")
	b.want(Drain{Start: exprOf(t, "false"), Until: b.now.Add(time.Hour)}, "37:Drained/Retiring")

	// It is made quick.
	b = newBench(t, nil)
	d.Until = b.now.Add(600 * time.Second)
	b.want(d, "1:Unclaimed/Idle")
	b.want(Request{Claim: 1, Job: filler}, "5:Claimed/Idle, Accepted #1")
	b.want(Activate{1, filler}, "11:Claimed/Busy, Accepted #1")
	d.Speed = DrainQuick
	b.want(d, "13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1014")
}

// TestDrainCompletion: DRAIN-GRACEFUL: what follows when the host is drained.
func TestDrainCompletion(t *testing.T) {
	for on, want := range map[OnCompletion]string{
		DrainStay:        "33:Drained/Idle",
		DrainResume:      "33:Drained/Idle, 35:Owner/Idle, 1:Unclaimed/Idle",
		DrainExit:        "33:Drained/Idle, DrainComplete exit",
		DrainRestart:     "33:Drained/Idle, DrainComplete restart",
		DrainReconfigure: "33:Drained/Idle, DrainComplete reconfigure",
	} {
		b, other := newBench(t, nil), newBench(t, nil)
		other.busy(job(""))
		slots := []*Machine{b.m, other.m}
		b.handle(Drain{OnCompletion: on})
		other.handle(Drain{})
		if AllAreDrained(slots) {
			t.Error("drained while a job runs")
		}
		other.handle(Exited{1})
		if !AllAreDrained(slots) {
			t.Error("not drained")
		}
		b.want(AllDrained{}, want)
	}
}

// TestBackfillCauses: what takes the place of a cause while the backfill job is killed.
func TestBackfillCauses(t *testing.T) {
	filled := func(configure testKnobs) *bench {
		b := newBench(t, configure, withBackfill)
		b.slot["Fill"], b.slot["Home"] = "true", "false"
		b.want(Evaluate{}, "1:Unclaimed/Idle, 7:Backfill/Idle, StartBackfillJob")
		b.want(BackfillStarted{}, "26:Backfill/Busy")
		b.slot["Fill"] = "false"
		return b
	}
	knobs := testKnobs{"START_BACKFILL": "Fill", "IS_OWNER": "Home"}
	const out = "29:Backfill/Idle, 30:Owner/Idle, 1:Unclaimed/Idle"

	b := filled(knobs)
	b.want(Match{1}, "KillBackfillJob, 28:Backfill/Killing")
	b.want(Request{Claim: 1, Job: job("")}, "HeldBack #1") // comes at last
	b.want(Match{1}, "")
	if got := b.m.Decide(b.now, job("")); got.Accept {
		t.Error("fetched work is accepted while somebody waits")
	}
	b.want(Request{Claim: 1, Job: job("")}, "Refused #1 1035")
	b.next(30 * time.Second)
	b.slot["Home"] = "true"
	b.want(BackfillEnded{}, "29:Backfill/Idle, Refused #1 1027, 30:Owner/Idle")

	b = filled(knobs)
	b.want(Request{Claim: 1, Job: job("")}, "HeldBack #1, KillBackfillJob, 28:Backfill/Killing")
	b.want(Drain{}, "Refused #1 1030")
	b.want(Undrain{}, "")
	b.want(BackfillEnded{}, out)

	b = filled(knobs)
	b.want(Request{Claim: 1, Job: job("")}, "HeldBack #1, KillBackfillJob, 28:Backfill/Killing")
	b.want(Gone{1}, "")
	b.want(BackfillEnded{}, out)

	b = filled(knobs)
	b.want(Request{Claim: 1, Job: job("")}, "HeldBack #1, KillBackfillJob, 28:Backfill/Killing")
	b.after(110*time.Second).want(Evaluate{}, "Refused #1 1030, KillBackfillJob")
	b.want(BackfillEnded{}, out)

	b = filled(knobs)
	b.handle(FetchBegan{})
	b.want(FetchEnded{job("")}, "HeldBack #1, KillBackfillJob, 28:Backfill/Killing")
	if d := b.m.Decide(b.now, job("")); d.Accept {
		t.Error("more work is accepted while the backfill job is killed")
	}
	b.want(BackfillEnded{}, "29:Backfill/Idle, 31:Claimed/Idle, Accepted #1, Spawn #1")

	b = filled(knobs)
	b.fetch(job(""))
	b.want(NoWork{1}, "")
	b.want(BackfillEnded{}, out)
}
