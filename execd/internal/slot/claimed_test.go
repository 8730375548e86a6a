package slot

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

// TestOrder: SLOT-ORDER: of the rules of a claimed slot the first that hits is the
// only one, and the rest waits for the next tick.
func TestOrder(t *testing.T) {
	all := testKnobs{"WANT_SUSPEND": "Want", "SUSPEND": "Hot", "CONTINUE": "Cool", "PREEMPT": "Evict", "MaxJobRetirementTime": "100", "MachineMaxVacateTime": "10", "IS_OWNER": "Home", "RANK": "TARGET.Prio"}
	everything := func(b *bench) {
		for _, name := range []string{"Want", "Hot", "Cool", "Evict", "Home"} {
			b.slot[name] = "true"
		}
	}
	start := func(t *testing.T) *bench {
		b := newBench(t, all)
		for _, name := range []string{"Want", "Hot", "Cool", "Evict", "Home"} {
			b.slot[name] = "false"
		}
		b.busy(job("Prio = 1"))
		b.after(5*time.Second).want(Evaluate{}, "")
		return b
	}
	t.Run("0 Cleaning", func(t *testing.T) {
		b := start(t)
		b.want(FinalUpdate{1}, "12:Claimed/Cleaning")
		everything(b)
		b.want(Request{Claim: 2, Job: job("Prio = 5")}, "HeldBack #2")
		b.after(time.Minute).want(Evaluate{}, "")
	})
	t.Run("1 on demand", func(t *testing.T) {
		b := start(t)
		b.want(OnDemand{true}, "SuspendJob #1, 14:Claimed/Suspended")
		everything(b)
		b.want(Drain{}, "")
		b.after(time.Minute).want(Evaluate{}, "")
		b.want(OnDemand{true}, "")
		b.want(OnDemand{false}, "ResumeJob #1, 16:Claimed/Retiring")
	})
	t.Run("2 before 3", func(t *testing.T) { // the end of retirement before PREEMPT
		b := start(t)
		b.after(100 * time.Second)
		b.slot["Evict"] = "true"
		b.want(Request{Claim: 2, Job: job("Prio = 5")}, "HeldBack #2, 13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1018")
	})
	t.Run("3 before 8", func(t *testing.T) { // PREEMPT before who waits: for good
		b := start(t)
		b.slot["Evict"] = "true"
		b.want(Request{Claim: 2, Job: job("Prio = 5")}, "HeldBack #2, 13:Claimed/Retiring")
		b.slot["Evict"] = "false"
		b.after(5*time.Second).want(Gone{2}, "")
		b.after(90*time.Second).want(Evaluate{}, "18:Preempting/Vacating, StopJob #1 1011")
	})
	t.Run("3 before 4 and 6", func(t *testing.T) { // in Retiring: stays for good, and is not suspended at once
		b := start(t)
		b.want(Request{Claim: 2, Job: job("Prio = 5")}, "HeldBack #2, 13:Claimed/Retiring")
		b.slot["Evict"] = "true"
		b.after(5*time.Second).want(Gone{2}, "")
		b.place(Place{Claimed, Retiring})
		b.next(5 * time.Second)
		b.slot["Want"], b.slot["Hot"] = "true", "true"
		b.after(5*time.Second).want(Evaluate{}, "SuspendJob #1, 20:Claimed/Suspended")
	})
	t.Run("3 waits for WANT_SUSPEND", func(t *testing.T) {
		b := start(t)
		b.slot["Evict"], b.slot["Want"] = "true", "true"
		b.want(Evaluate{}, "")
		b.slot["Hot"] = "true"
		b.want(Evaluate{}, "SuspendJob #1, 14:Claimed/Suspended")
		b.next(5 * time.Second)
		b.after(5*time.Second).want(Evaluate{}, "ResumeJob #1, 16:Claimed/Retiring")
	})
	t.Run("3 before 7", func(t *testing.T) { // PREEMPT before CONTINUE: the job is in retirement
		b := start(t)
		b.want(Evaluate{}, "")
		b.slot["Want"], b.slot["Hot"] = "true", "true"
		b.want(Evaluate{}, "SuspendJob #1, 14:Claimed/Suspended")
		b.slot["Evict"], b.slot["Cool"] = "true", "true"
		b.want(Evaluate{}, "ResumeJob #1, 16:Claimed/Retiring")
	})
	t.Run("4 before 6", func(t *testing.T) { // back to Busy, and then suspended
		b := start(t)
		b.want(Request{Claim: 2, Job: job("Prio = 5")}, "HeldBack #2, 13:Claimed/Retiring")
		b.slot["Want"], b.slot["Hot"] = "true", "true"
		b.want(Gone{2}, "19:Claimed/Busy")
		b.after(5*time.Second).want(Evaluate{}, "SuspendJob #1, 14:Claimed/Suspended")
	})
	t.Run("5 before 6", func(t *testing.T) { // out of Retiring before suspended
		b := start(t)
		b.want(Request{Claim: 2, Job: job("Prio = 5")}, "HeldBack #2, 13:Claimed/Retiring")
		b.slot["Want"], b.slot["Hot"] = "true", "true"
		b.after(85*time.Second).want(Evaluate{}, "18:Preempting/Vacating, StopJob #1 1018")
	})
	t.Run("6 before 8", func(t *testing.T) { // suspended before who waits
		b := start(t)
		b.slot["Want"], b.slot["Hot"] = "true", "true"
		b.want(Request{Claim: 2, Job: job("Prio = 5")}, "HeldBack #2, SuspendJob #1, 14:Claimed/Suspended")
	})
	t.Run("7 then 6", func(t *testing.T) { // one at a time
		b := start(t)
		b.slot["Want"], b.slot["Hot"], b.slot["Cool"] = "true", "true", "true"
		b.want(Evaluate{}, "SuspendJob #1, 14:Claimed/Suspended")
		b.want(Evaluate{}, "ResumeJob #1, 15:Claimed/Busy")
		b.want(Evaluate{}, "SuspendJob #1, 14:Claimed/Suspended")
	})
	t.Run("9", func(t *testing.T) { // who waits, the owner, the age, the drain
		idle := func() *bench {
			b := start(t)
			b.want(FinalUpdate{1}, "12:Claimed/Cleaning")
			return b
		}
		b := idle()
		b.slot["Home"] = "true"
		b.want(Request{Claim: 2, Job: job("Prio = 5")}, "HeldBack #2")
		b.after(100*time.Second).want(Exited{1}, "12:Claimed/Idle, 10:Preempting/Vacating, Broken #1 1018, 22:Owner/Idle, Refused #2 1030")
		b = idle()
		b.want(Request{Claim: 2, Job: job("Prio = 5")}, "HeldBack #2")
		b.want(Exited{1}, "12:Claimed/Idle, 10:Preempting/Vacating, Broken #1 1018, 23:Claimed/Idle, Accepted #2")
		b = idle()
		b.slot["Home"] = "true"
		b.after(3600*time.Second).want(Exited{1}, "12:Claimed/Idle, 10:Preempting/Vacating, Broken #1 1001, 22:Owner/Idle")
		b = idle()
		b.after(3600*time.Second).want(Exited{1}, "12:Claimed/Idle, 10:Preempting/Vacating, Broken #1 1029, 22:Owner/Idle, 1:Unclaimed/Idle")
		b = idle()
		b.want(Drain{}, "")
		b.want(Exited{1}, "12:Claimed/Idle, 10:Preempting/Vacating, Broken #1 1014, 22:Owner/Idle, 36:Drained/Retiring")
	})
}

// TestRetirement: time that the job was suspended is not counted, the job may
// lower the limit and not raise it, and vacating is begun so early that the whole
// is respected.
func TestRetirement(t *testing.T) {
	for _, test := range []struct {
		machine, job string
		vacate       string
		left, max    time.Duration // after 100 s of which the job was suspended for 40
	}{
		{"0", "", "600", 0, 600},
		{"100", "", "10", 40, 10},
		{"100", "MaxJobRetirementTime = 70;", "10", 10, 10},
		{"100", "MaxJobRetirementTime = 1000;", "10", 40, 10},
		{"100", "MaxJobRetirementTime = 0;", "10", 0, 10},
		{"100", "MaxJobRetirementTime = undefined;", "10", 0, 10},
		{"100", `MaxJobRetirementTime = "x";`, "10", 0, 10},
		{"-1", "MaxJobRetirementTime = 1000;", "10", 0, 10},
		{"50", "", "10", 0, 10},
		{"100", "JobMaxVacateTime = 5;", "10", 40, 5},
		{"100", "JobMaxVacateTime = 30;", "10", 40, 30},
		{"100", "JobMaxVacateTime = 3000;", "10", 40, 40},
		{"0", "JobMaxVacateTime = 3000;", "10", 0, 10},
		{"0", "JobMaxVacateTime = -3;", "10", 0, 0},
		{"0", "JobMaxVacateTime = undefined;", "10", 0, 0},
	} {
		b := newBench(t, testKnobs{"MaxJobRetirementTime": test.machine, "MachineMaxVacateTime": test.vacate})
		b.busy(job(test.job))
		b.after(30*time.Second).want(Suspend{1}, "SuspendJob #1, 14:Claimed/Suspended")
		b.after(40*time.Second).want(Continue{1}, "ResumeJob #1, 15:Claimed/Busy")
		b.after(30 * time.Second)
		if left, most := b.m.RetirementRemaining(b.now), b.m.VacateTime(b.now); left != test.left*time.Second || most != test.max*time.Second {
			t.Errorf("%+v: left %s, vacate %s", test, left, most)
		}
		r := b.m.Run(b.now)
		if r.Job != 60*time.Second || r.Suspended != 40*time.Second || r.Claim != r.Job || r.Stopped != r.Suspended || !r.Begun.Equal(epoch) {
			t.Errorf("the run is %+v", r)
		}
	}
	// While it is suspended no time passes, and there is no timer.
	b := newBench(t, testKnobs{"MaxJobRetirementTime": "100", "MachineMaxVacateTime": "10"})
	b.busy(job(""))
	b.want(Suspend{1}, "SuspendJob #1, 14:Claimed/Suspended")
	b.want(Drain{}, "")
	b.after(5*time.Second).want(Evaluate{}, "")
	b.next(never)
	b.after(time.Hour).want(Continue{1}, "ResumeJob #1, 16:Claimed/Retiring")
	b.after(5*time.Second).want(Evaluate{}, "")
	b.next(85 * time.Second)
}

// TestLadder: a job is asked, killed, and then its family, again and again. A job that
// has told of its end is not asked.
func TestLadder(t *testing.T) {
	b := newBench(t, testKnobs{"MachineMaxVacateTime": "60", "KILLING_TIMEOUT": "20"})
	b.busy(job(""))
	b.want(Vacate{}, "13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1010")
	b.next(60 * time.Second)
	b.after(60*time.Second).want(Evaluate{}, "21:Preempting/Killing, KillJob #1 1010")
	b.next(20 * time.Second)
	for range 3 {
		b.after(20*time.Second).want(Evaluate{}, "KillFamily #1 1010")
		b.next(20 * time.Second)
	}
	b.want(Exited{1}, "Broken #1 1010, 25:Owner/Idle, 1:Unclaimed/Idle")

	b.busy(job(""))
	b.want(Vacate{Fast: true, Reason: ReasonQueueVacate}, "13:Claimed/Retiring, 18:Preempting/Killing, KillJob #3 1022")
	b.want(Exited{3}, "Broken #3 1022, 25:Owner/Idle, 1:Unclaimed/Idle")

	n := b.busy(job(""))
	b.want(Request{Claim: b.m.Offer(), Job: job("")}, "HeldBack #6, 13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #5 1019")
	b.want(FinalUpdate{n}, "")
	b.want(Vacate{Fast: true}, "21:Preempting/Killing, KillJob #5 1010")

	// The end was told in Retiring: a soft end is none.
	b = newBench(t, testKnobs{"MaxJobRetirementTime": "100", "MachineMaxVacateTime": "60"})
	b.busy(job(""))
	b.want(Drain{}, "13:Claimed/Retiring")
	b.want(FinalUpdate{1}, "")
	b.after(40*time.Second).want(Evaluate{}, "18:Preempting/Vacating")
	b.next(60 * time.Second)
}

// TestHold: POLICY-WANT_HOLD: asked only when PREEMPT was true, and then with words
// of its own if there are none.
func TestHold(t *testing.T) {
	knobs := testKnobs{"PREEMPT": "MY.Evict", "WANT_HOLD": "TARGET.Bad", "WANT_HOLD_REASON": "TARGET.Why", "WANT_HOLD_SUBCODE": "TARGET.Code"}
	b := newBench(t, knobs)
	b.busy(job(`Bad = true; Why = "uses too much"; Code = 102`))
	b.want(Vacate{}, "13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1010")
	b = newBench(t, knobs)
	b.slot["Evict"] = "true"
	b.busy(job(`Bad = true; Why = "uses too much"; Code = 102`))
	b.want(Evaluate{}, "13:Claimed/Retiring")
	b.want(Evaluate{}, "18:Preempting/Vacating, HoldJob 21.102 uses too much, StopJob #1 1011")
	b = newBench(t, knobs)
	b.slot["Evict"] = "true"
	b.busy(job(`Bad = 1; Why = 7; Code = "x"`))
	b.want(Evaluate{}, "13:Claimed/Retiring")
	b.want(Evaluate{}, "18:Preempting/Vacating, HoldJob 21.0 the policy of the slot put the job on hold, StopJob #1 1011")
}

// TestWaiting: CLAIM-REQUEST-CLAIMED: somebody of lower RANK is refused; of the
// same or a higher one he waits, as long as he is patient; and a second one takes
// his place if he is no worse.
func TestWaiting(t *testing.T) {
	knobs := testKnobs{"RANK": "TARGET.Prio", "MaxJobRetirementTime": "1000", "MachineMaxVacateTime": "10"}
	b := newBench(t, knobs)
	b.busy(job("Prio = 3"))
	b.want(Request{Claim: 1, Job: job("Prio = 5")}, "Refused #1 1035")
	b.want(Request{Claim: 9, Job: job("Prio = 5")}, "Refused #9 1034")
	b.want(Request{Claim: 2, Job: nil}, "Refused #2 1026")
	b.want(Request{Claim: 2, Job: job("Prio = 2")}, "Refused #2 1027")
	b.want(Request{Claim: 2, Holder: "cat", Job: job("Prio = 3")}, "HeldBack #2, 13:Claimed/Retiring")
	if c := b.m.Preempting(); !c.Waiting || c.Holder != "cat" || c.Rank != 3 {
		t.Errorf("%+v waits", c)
	}
	b.want(Request{Claim: 2, Job: job("Prio = 9")}, "Refused #2 1035")
	b.want(Evaluate{}, "")
	b.next(110 * time.Second) // before retirement ends
	if b.m.Offer() != 3 || b.m.PrePreempting().Number != 3 {
		t.Errorf("%d is offered", b.m.Offer())
	}
	b.want(Request{Claim: 3, Job: job("Prio = 2")}, "Refused #3 1027")
	b.want(Request{Claim: 3, Holder: "dog", Job: job("Prio = 4")}, "Refused #2 1018, HeldBack #3")
	b.want(Request{Claim: 4, Job: job("Prio = 3")}, "Refused #4 1027") // who waits is of 4
	b.want(Request{Claim: 4, Holder: "emu", Job: job("Prio = 4")}, "Refused #3 1019, HeldBack #4")
	// He has waited enough.
	b.after(109*time.Second).want(Evaluate{}, "")
	b.after(time.Second).want(Evaluate{}, "Refused #4 1030, 19:Claimed/Busy")
	if b.m.Offer() != 5 {
		t.Errorf("%d is offered", b.m.Offer())
	}
	// Match timers of offers: the id is another one when nobody comes.
	b.want(Match{5}, "")
	b.next(120 * time.Second)
	b.after(120*time.Second).want(Evaluate{}, "")
	b.want(Request{Claim: 5, Job: job("Prio = 5")}, "Refused #5 1034")
	b.want(Request{Claim: 6, Job: job("Prio = 5")}, "HeldBack #6, 13:Claimed/Retiring")
	// CLAIM-RELEASE: of a claim that waits, and of the offer behind it.
	b.want(Release{7}, "")
	b.want(Release{6}, "Refused #6 1017, 19:Claimed/Busy")
	b.want(Release{99}, "")
	// Somebody lost is dropped too.
	n := b.m.Offer()
	b.want(Request{Claim: n, Job: job("Prio = 5")}, "HeldBack #8, 13:Claimed/Retiring")
	b.want(Lost{n}, "Refused #8 1008, 19:Claimed/Busy")
	// He is refused when the slot is drained.
	n = b.m.Offer()
	b.want(Request{Claim: n, Job: job("Prio = 5")}, "HeldBack #9, 13:Claimed/Retiring")
	b.want(Drain{}, "Refused #9 1014")
	b.want(Request{Claim: b.m.Offer(), Job: job("Prio = 5")}, "Refused #10 1014")
	b.want(Vacate{}, "18:Preempting/Vacating, StopJob #1 1010")
	b.want(Request{Claim: b.m.Offer(), Job: job("Prio = 5")}, "Refused #10 1030")
}

// TestStartWhileCleaning: START is asked again of a claim that waits when the slot is free.
func TestStartWhileCleaning(t *testing.T) {
	b := newBench(t, testKnobs{"START": "Open"})
	b.slot["Open"] = "true"
	b.busy(job(""))
	b.want(FinalUpdate{1}, "12:Claimed/Cleaning")
	b.want(Request{Claim: 2, Job: job("")}, "HeldBack #2")
	b.slot["Open"] = "false"
	b.want(Exited{1}, "12:Claimed/Idle, 10:Preempting/Vacating, Broken #1 1019, 22:Owner/Idle, Refused #2 1030, 1:Unclaimed/Idle")
}

// TestPatienceWhilePreempting: who waits may give up while the job is removed.
func TestPatienceWhilePreempting(t *testing.T) {
	b := newBench(t, nil)
	b.busy(job(""))
	b.want(Request{Claim: 2, Job: job("")}, "HeldBack #2, 13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1019")
	b.next(110 * time.Second)
	b.after(110*time.Second).want(Evaluate{}, "Refused #2 1030")
	b.want(Exited{1}, "Broken #1 1019, 22:Owner/Idle, 1:Unclaimed/Idle")
}

// TestRequestRefused: CLAIM-REFUSE: CLAIM-REQUEST: all that stands against a request.
func TestRequestRefused(t *testing.T) {
	b := newBench(t, testKnobs{"IS_OWNER": "Home", "START": "TARGET.Good"})
	good := func() Job { return job("Good = true") }
	b.slot["Home"] = "false"
	b.want(Request{Claim: 1, Job: job("Good = true; Requirements = TARGET.Memory > 4096")}, "Refused #1 1027, 1:Unclaimed/Idle")
	b.want(Request{Claim: 1, Job: job("Good = true; RequestMemory = 4096")}, "Refused #1 1027")
	b.want(Request{Claim: 1, Job: job("Good = true; RequestGPUs = 1")}, "Refused #1 1027")
	b.want(Break{"no disk"}, "")
	b.want(Request{Claim: 1, Job: good()}, "Refused #1 1031")
	if d := b.m.Decide(b.now, good()); d.Reason != ReasonBrokenSlot || b.m.Broken() != "no disk" {
		t.Errorf("broken: %+v %s", d, b.m.Broken())
	}
	b.want(Match{1}, "")
	b.want(Break{}, "")
	b.slot["Home"] = "true"
	b.want(Request{Claim: 1, Job: good()}, "Refused #1 1027, 2:Owner/Idle")
	b.slot["Home"] = "false"
	b.want(Drain{Shutdown: true}, "36:Drained/Retiring")
	b.want(Request{Claim: 1, Job: good()}, "Refused #1 1013")
	b.want(Drain{}, "")
	b.want(Request{Claim: 1, Job: good()}, "Refused #1 1014")
	b.want(Undrain{}, "34:Owner/Idle, 1:Unclaimed/Idle")
	b.want(Undrain{}, "")
	b.want(Request{Claim: 1, Job: good()}, "Refused #1 1034")
	b.want(Request{Claim: 2, Job: job("Good = true; RequestMemory = 1024; RequestDisk = 5; RequestCpus = 1; RequestGPUs = 0; Requirements = TARGET.Memory > 10")}, "5:Claimed/Idle, Accepted #2")
}

// TestRefusedByError: a slot and a job that cannot be together because an expression of
// either is an error are told so, and why it is one.
func TestRefusedByError(t *testing.T) {
	for _, c := range []struct{ start, job, want string }{
		{"NoSuch(TARGET.Owner)", "", "START is an error: no function NoSuch"},
		{"TARGET.Good", `Good = 1 + "a"`, "START is an error: cannot apply + to integer and string"},
		{"TARGET.Good", "", "START is not true for the job"},
		{"true", `Requirements = NoSuch("b") > 1`, "the Requirements of the job are an error: no function NoSuch"},
		{"true", "Requirements = member(TARGET.Memory)", "the Requirements of the job are an error: wrong number of arguments to member"},
		{"true", "Requirements = 1 > 2", "the Requirements of the job are not met"},
		{"true", "RequestMemory = NoSuch()", "RequestMemory of the job is an error: no function NoSuch"},
		{"true", "RequestMemory = undefined", ""},
	} {
		b := newBench(t, testKnobs{"START": c.start})
		if d := b.m.Decide(b.now, job(c.job)); d.Text != c.want || d.Accept != (c.want == "") {
			t.Errorf("START = %s, job %s: %+v; want %q", c.start, c.job, d, c.want)
		}
	}
}

// TestActivateRefused: CLAIM-ACTIVATE: the order of what is looked at.
func TestActivateRefused(t *testing.T) {
	b := newBench(t, testKnobs{"START": "TARGET.Good", "CLAIM_WORKLIFE": "0"})
	good := func() Job { return job("Good = true") }
	b.want(Activate{1, nil}, "Refused #1 1026, 1:Unclaimed/Idle")
	b.want(Activate{7, good()}, "Refused #7 1034")
	b.want(Activate{1, good()}, "Refused #1 1033")
	b.want(Request{Claim: 1, Job: good()}, "5:Claimed/Idle, Accepted #1")
	b.want(Activate{2, good()}, "Refused #2 1034") // not yet its turn
	b.want(Activate{1, job("")}, "Refused #1 1027")
	b.want(Activate{1, &testJob{attrs: "Good = true"}}, "Refused #1 1027")
	b.want(Break{"no disk"}, "")
	b.want(Activate{1, good()}, "Refused #1 1031")
	b.want(Break{}, "")
	b.want(Activate{1, good()}, "11:Claimed/Busy, Accepted #1")
	b.want(Activate{1, good()}, "Refused #1 1032")
	b.want(FinalUpdate{1}, "12:Claimed/Cleaning")
	b.want(Activate{1, good()}, "TryAgain #1 1028")
	// CLAIM_WORKLIFE 0 is good for one.
	b.want(Exited{1}, "12:Claimed/Idle, 10:Preempting/Vacating, Broken #1 1029, 22:Owner/Idle, 1:Unclaimed/Idle")
	b.want(Request{Claim: 3, Job: good()}, "5:Claimed/Idle, Accepted #3")
	b.want(Drain{Start: exprOf(t, "true"), Until: b.now.Add(time.Hour)}, "10:Preempting/Vacating, Broken #3 1014, 22:Owner/Idle, 1:Unclaimed/Idle")
	b.want(Drain{Shutdown: true}, "37:Drained/Retiring")
	b.want(Activate{5, good()}, "Refused #5 1013")
}

// TestWorkLife: a claim is as old as it was made long ago; -1 is for ever.
func TestWorkLife(t *testing.T) {
	b := newBench(t, testKnobs{"CLAIM_WORKLIFE": "60"})
	b.busy(job(""))
	b.after(70*time.Second).want(Evaluate{}, "") // a job is not disturbed
	if b.m.MayActivateAgain(b.now) {
		t.Error("an old claim may be activated again")
	}
	b.want(Exited{1}, "12:Claimed/Idle, 10:Preempting/Vacating, Broken #1 1029, 22:Owner/Idle, 1:Unclaimed/Idle")
	b.handle(Request{Claim: 3, Job: job("")})
	b.after(60*time.Second).want(Activate{3, job("")}, "Refused #3 1029, 10:Preempting/Vacating, Broken #3 1029, 22:Owner/Idle, 1:Unclaimed/Idle")
	b = newBench(t, testKnobs{"CLAIM_WORKLIFE": "-1"})
	b.busy(job(""))
	b.after(7000*time.Hour).want(Exited{1}, "12:Claimed/Idle")
	b.next(never)
}

// TestLease: CLAIM-LEASE, CLAIM-RENEW: at its end the job is killed and nobody is
// told.
func TestLease(t *testing.T) {
	b := newBench(t, testKnobs{"MaxJobRetirementTime": "10000"})
	j := job("")
	b.want(Request{Claim: 1, Job: j, Lease: 60 * time.Second}, "5:Claimed/Idle, Accepted #1")
	b.want(Activate{1, j}, "11:Claimed/Busy, Accepted #1")
	b.after(50*time.Second).want(Renew{1, 60 * time.Second, 60 * time.Second}, "")
	b.want(Renew{2, 60 * time.Second, 60 * time.Second}, "")
	b.next(60 * time.Second)
	b.after(60*time.Second).want(Evaluate{}, "13:Claimed/Retiring, 18:Preempting/Killing, KillJob #1 1008")
	b.want(Exited{1}, "25:Owner/Idle, 1:Unclaimed/Idle")
	// While it vacates, and while it cleans up.
	b.want(Request{Claim: 3, Job: j, Lease: 60 * time.Second}, "5:Claimed/Idle, Accepted #3")
	b.want(Activate{3, j}, "11:Claimed/Busy, Accepted #3")
	b.want(Vacate{}, "13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #3 1010")
	b.next(60 * time.Second)
	b.after(60*time.Second).want(Evaluate{}, "21:Preempting/Killing, KillJob #3 1008")
	b.want(Lost{3}, "")
	b.want(Exited{3}, "25:Owner/Idle, 1:Unclaimed/Idle")
	b.want(Request{Claim: 5, Job: j, Lease: 60 * time.Second}, "5:Claimed/Idle, Accepted #5")
	b.want(Activate{5, j}, "11:Claimed/Busy, Accepted #5")
	b.want(FinalUpdate{5}, "12:Claimed/Cleaning")
	b.after(60*time.Second).want(Evaluate{}, "")
	b.next(never)
	b.want(Exited{5}, "12:Claimed/Idle, 10:Preempting/Killing, 25:Owner/Idle, 1:Unclaimed/Idle")
	// The holder says that he does not know it.
	n := b.busy(j)
	b.want(Lost{99}, "")
	b.want(Lost{n}, "13:Claimed/Retiring, 18:Preempting/Killing, KillJob #7 1008")
}

// TestRelease: CLAIM-RELEASE: the job is killed; a release while a shepherd cleans up
// is remembered.
func TestRelease(t *testing.T) {
	b := newBench(t, nil)
	b.busy(job(""))
	b.want(Release{1}, "13:Claimed/Retiring, 18:Preempting/Killing, KillJob #1 1017")
	b.want(Release{1}, "")
	b.want(Exited{1}, "Broken #1 1017, 25:Owner/Idle, 1:Unclaimed/Idle")
	b.busy(job(""))
	b.want(FinalUpdate{3}, "12:Claimed/Cleaning")
	b.want(Release{3}, "")
	b.want(Vacate{}, "")
	b.want(Exited{3}, "12:Claimed/Idle, 10:Preempting/Killing, Broken #3 1017, 25:Owner/Idle, 1:Unclaimed/Idle")
	b.busy(job(""))
	b.want(Vacate{}, "13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #5 1010")
	b.want(Release{5}, "21:Preempting/Killing, KillJob #5 1017")
}

// TestDeactivate: CLAIM-DEACTIVATE, CLAIM-CHECK: the job ends and the claim stays,
// unless it may not be used again.
func TestDeactivate(t *testing.T) {
	b := newBench(t, testKnobs{"MachineMaxVacateTime": "60", "MaxJobRetirementTime": "1000"})
	b.busy(job(""))
	b.want(Deactivate{9, Graceful}, "Refused #9 1034")
	b.want(Deactivate{1, Graceful}, "Deactivated again=true cleaning=false, StopJob #1 1009")
	b.next(60 * time.Second)
	b.after(60*time.Second).want(Evaluate{}, "KillJob #1 1009")
	b.after(30*time.Second).want(Evaluate{}, "KillFamily #1")
	b.want(Deactivate{1, Forcible}, "Deactivated again=true cleaning=false")
	b.want(Exited{1}, "12:Claimed/Idle")
	b.want(Deactivate{1, Graceful}, "Deactivated again=true cleaning=false")
	b.want(Activate{1, job("")}, "11:Claimed/Busy, Accepted #1")
	b.want(Suspend{1}, "SuspendJob #1, 14:Claimed/Suspended")
	b.want(Deactivate{1, Forcible}, "Deactivated again=true cleaning=false, ResumeJob #1, 15:Claimed/Busy, KillJob #1 1009")
	b.want(Exited{1}, "12:Claimed/Idle")
	// The job is done: the answer waits for the shepherd, not too long.
	b.want(Activate{1, job("")}, "11:Claimed/Busy, Accepted #1")
	b.want(FinalUpdate{1}, "12:Claimed/Cleaning")
	b.want(Deactivate{1, JobDone}, "")
	b.next(10 * time.Second)
	b.after(9*time.Second).want(Exited{1}, "Deactivated again=true cleaning=false, 12:Claimed/Idle")
	b.want(Activate{1, job("")}, "11:Claimed/Busy, Accepted #1")
	b.want(FinalUpdate{1}, "12:Claimed/Cleaning")
	b.want(Deactivate{1, JobDone}, "")
	b.after(10*time.Second).want(Evaluate{}, "Deactivated again=true cleaning=true")
	b.want(Exited{1}, "12:Claimed/Idle")
	// Somebody waits: it is as if the claim was released.
	b.want(Activate{1, job("")}, "11:Claimed/Busy, Accepted #1")
	if !b.m.MayActivateAgain(b.now) {
		t.Error("the claim may not be activated again")
	}
	b.want(FinalUpdate{1}, "12:Claimed/Cleaning")
	b.want(Request{Claim: 2, Job: job("")}, "HeldBack #2")
	if b.m.MayActivateAgain(b.now) {
		t.Error("the claim may be activated again")
	}
	b.want(Deactivate{1, Graceful}, "Deactivated again=false cleaning=true")
	b.want(Exited{1}, "12:Claimed/Idle, 10:Preempting/Killing, Broken #1 1009, 24:Claimed/Idle, Accepted #2")
	b.want(Drain{Start: exprOf(t, "true"), Until: b.now.Add(time.Hour)}, "10:Preempting/Vacating, Broken #2 1014, 22:Owner/Idle, 1:Unclaimed/Idle")
	// An old claim that is idle is given up with it.
	b = newBench(t, testKnobs{"CLAIM_WORKLIFE": "100"})
	b.busy(job(""))
	b.want(Vacate{}, "13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1010")
	b.want(Deactivate{1, Graceful}, "Deactivated again=false cleaning=true")
}

// TestSuspend: CLAIM-SUSPEND: a job that a command has stopped goes on by a command
// alone; work on demand does not change that.
func TestSuspend(t *testing.T) {
	b := newBench(t, testKnobs{"WANT_SUSPEND": "true", "SUSPEND": "Hot"})
	b.slot["Hot"] = "true"
	b.busy(job(""))
	b.want(Evaluate{}, "SuspendJob #1, 14:Claimed/Suspended")
	b.want(Suspend{1}, "")
	b.slot["Hot"] = "false"
	b.want(Evaluate{}, "")
	b.want(OnDemand{true}, "")
	b.want(Continue{1}, "")
	b.want(Suspend{1}, "")
	b.want(OnDemand{false}, "")
	b.want(Evaluate{}, "")
	b.want(Suspend{2}, "")
	b.want(Continue{2}, "")
	b.want(Continue{1}, "ResumeJob #1, 15:Claimed/Busy")
	b.want(Continue{1}, "")
	b.want(OnDemand{true}, "SuspendJob #1, 14:Claimed/Suspended")
	b.want(Evaluate{}, "")
	b.want(Exited{1}, "15:Claimed/Busy, 12:Claimed/Idle")
	b.want(Activate{1, job("")}, "11:Claimed/Busy, Accepted #1, SuspendJob #1, 14:Claimed/Suspended")
	b.after(40*time.Second).want(FinalUpdate{1}, "15:Claimed/Busy, 12:Claimed/Cleaning")
	if r := b.m.Run(b.now); r.Job != 0 || r.Suspended != 40*time.Second {
		t.Errorf("the run is %+v", r)
	}
	b.want(Suspend{1}, "")
	b.want(Exited{1}, "12:Claimed/Idle")
	b.want(Suspend{1}, "")
	b.want(OnDemand{false}, "")
}

// TestSignalFailed: a job that cannot be resumed is killed with its family, and
// again.
func TestSignalFailed(t *testing.T) {
	b := newBench(t, nil)
	b.busy(job(""))
	b.want(Suspend{1}, "SuspendJob #1, 14:Claimed/Suspended")
	b.want(Continue{1}, "ResumeJob #1, 15:Claimed/Busy")
	b.want(SignalFailed{2}, "")
	b.want(SignalFailed{1}, "KillFamily #1")
	b.after(30*time.Second).want(Evaluate{}, "KillFamily #1")
	b.want(Exited{1}, "12:Claimed/Idle")
}

// TestPrePreemptingMovesUp: the offer behind a claim that waits becomes the first.
func TestPrePreemptingMovesUp(t *testing.T) {
	b := newBench(t, testKnobs{"MaxJobRetirementTime": "1000"})
	b.busy(job(""))
	b.want(Request{Claim: 2, Job: job("")}, "HeldBack #2, 13:Claimed/Retiring")
	b.want(Match{3}, "")
	b.want(Gone{2}, "19:Claimed/Busy")
	if b.m.Preempting().Number != 3 || b.m.PrePreempting().Number != 0 || b.m.Offer() != 3 {
		t.Errorf("%d is offered", b.m.Offer())
	}
	b.want(Request{Claim: 3, Job: job("")}, "HeldBack #3, 13:Claimed/Retiring")
	b.want(Release{4}, "")
	if b.m.Offer() != 5 {
		t.Errorf("%d is offered", b.m.Offer())
	}
}

// TestTotals: the time in each place is counted.
func TestTotals(t *testing.T) {
	b := newBench(t, nil)
	b.want(Evaluate{}, "1:Unclaimed/Idle")
	b.after(7 * time.Second)
	b.busy(job(""))
	b.after(5*time.Second).want(Exited{1}, "12:Claimed/Idle")
	b.after(2*time.Second).want(Activate{1, job("")}, "11:Claimed/Busy, Accepted #1")
	b.after(3 * time.Second)
	want := map[Place]time.Duration{{Unclaimed, Idle}: 7 * time.Second, {Claimed, Busy}: 8 * time.Second, {Claimed, Idle}: 2 * time.Second}
	if got := maps.Collect(b.m.Spent(b.now)); !maps.Equal(got, want) {
		t.Errorf("spent %v; want %v", got, want)
	}
	if got := b.now.Sub(b.m.EnteredState()); got != 10*time.Second {
		t.Errorf("claimed for %s", got)
	}
	if got := b.now.Sub(b.m.EnteredActivity()); got != 3*time.Second {
		t.Errorf("busy for %s", got)
	}
	if r := b.m.Run(b.now); r.Job != 3*time.Second || r.Claim != 8*time.Second {
		t.Errorf("the run is %+v", r)
	}
	b.m.Handle(epoch, Evaluate{}) // a clock that goes back
	if got := maps.Collect(b.m.Spent(b.now)); !maps.Equal(got, want) {
		t.Errorf("spent %v; want %v", got, want)
	}
}

// saved is what has to be known of the claim when execd is started again.
func (b *bench) saved() Saved {
	m, c := b.m, b.m.cur
	s := Saved{Kind: c.kind, Holder: c.holder, Since: c.since, Activations: c.activated, Lease: c.lease, LeaseEnd: c.leaseEnd}
	if m.run.alive {
		s.Begun = m.run.begun
	}
	if m.run.alive && m.stop.step != notStopping {
		s.Ending = &Ending{Reason: m.leaving}
		if m.place.State == Claimed {
			s.Ending.Reason = ReasonDeactivated
		}
		if m.stop.step == asked {
			s.Ending.Until = m.stop.next
		}
	}
	return s
}

// TestRestore: what is restored after a restart goes on.
func TestRestore(t *testing.T) {
	knobs := testKnobs{"MaxJobRetirementTime": "100", "MachineMaxVacateTime": "ifThenElse(Patient =?= true, 600, 10)", "PREEMPT": "Evict"}
	for _, test := range []struct {
		name    string
		prepare func(b *bench)
		want    string
		at      Place
	}{
		{"busy", func(*bench) {}, "", Place{Claimed, Busy}},
		{"idle", func(b *bench) { b.handle(Exited{1}) }, "", Place{Claimed, Idle}},
		{"vacating", func(b *bench) { b.slot["Patient"] = "true"; b.handle(Vacate{}) }, "", Place{Preempting, Vacating}},
		{"vacated for too long", func(b *bench) { b.handle(Vacate{Reason: ReasonDraining}) }, "21:Preempting/Killing, KillJob #1 1014", Place{Preempting, Killing}},
		{"killing", func(b *bench) { b.handle(Vacate{Fast: true}) }, "KillFamily #1 1010", Place{Preempting, Killing}},
		{"deactivated", func(b *bench) { b.slot["Patient"] = "true"; b.handle(Deactivate{1, Graceful}) }, "", Place{Claimed, Busy}},
		{"deactivated for too long", func(b *bench) { b.handle(Deactivate{1, Graceful}) }, "KillJob #1 1009", Place{Claimed, Busy}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, knobs)
			j := job("")
			b.want(Request{Claim: 1, Holder: "cat", Job: j, Lease: 900 * time.Second}, "5:Claimed/Idle, Accepted #1")
			b.want(Activate{1, j}, "11:Claimed/Busy, Accepted #1")
			b.after(60 * time.Second)
			test.prepare(b)
			saved := b.saved()
			c := newBench(t, knobs, func(c *Config) { c.Restored, c.Job = &saved, j })
			c.now = b.now.Add(40 * time.Second)
			c.want(Evaluate{}, test.want)
			c.place(test.at)
			old, now := b.m.Current(), c.m.Current()
			if old.Holder != now.Holder || !old.LeaseEnd.Equal(now.LeaseEnd) || old.Activations != now.Activations || !old.Since.Equal(now.Since) {
				t.Errorf("%+v\nbecame %+v", old, now)
			}
			if x, y := b.m.Run(c.now), c.m.Run(c.now); x.Job != y.Job || x.Suspended != y.Suspended {
				t.Errorf("%+v became %+v", x, y)
			}
		})
	}
}

// TestWords: the codes are those of HTCondor, and have words.
func TestWords(t *testing.T) {
	for r, code := range map[Reason]int{
		ReasonJobPolicyVacate: 1000, ReasonDeactivated: 1009, ReasonVacateCommand: 1010, ReasonPreemptPolicy: 1011, ReasonShutdown: 1013,
		ReasonDraining: 1014, ReasonReleased: 1017, ReasonRankPreempted: 1018, ReasonPriorityPreempted: 1019, ReasonVirtualMachine: 1020,
		ReasonRemoved: 1023, ReasonCheckpointTaken: 1025, ReasonBadMessage: 1026, ReasonNotWilling: 1027, ReasonStillRemoving: 1028,
		ReasonWorkLifeOver: 1029, ReasonPreempted: 1030, ReasonBrokenSlot: 1031, ReasonNotIdle: 1032, ReasonNotClaimed: 1033,
		ReasonUnknownClaim: 1034, ReasonOldClaim: 1035, ReasonUnhealthy: 1036, ReasonRehomed: 1037,
	} {
		if int(r) != code {
			t.Errorf("%s is %d; want %d", r, int(r), code)
		}
	}
	seen := map[string]bool{}
	for r := ReasonJobPolicyVacate; r <= ReasonRehomed; r++ {
		if w := r.String(); w == "" || seen[w] || strings.HasPrefix(w, "reason ") {
			t.Errorf("%d has the words %q", int(r), w)
		}
		seen[r.String()] = true
	}
	for got, want := range map[string]string{
		Reason(0).String(): "no reason", Reason(999).String(): "reason 999", Reason(1038).String(): "reason 1038",
		State(9).String(): "State(9)", Activity(9).String(): "Activity(9)", Place{Deleted, Idle}.String(): "Deleted",
		Queue.String(): "queue", Fetch.String(): "fetch", DrainQuick.String(): "quick", DrainRestart.String(): "restart",
		HeldBack.String(): "HeldBack", WantHoldReason.String(): "WANT_HOLD_REASON",
	} {
		if got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}

// CLAIM-REQUEST: what it costs to look at an ad is bounded altogether, whatever each of
// its attributes costs.
func TestLookIsBounded(t *testing.T) {
	dear := "x1 = size({1}) > 0;" // x12 takes some ten thousand steps
	for n := range 11 {
		dear += fmt.Sprintf("x%d = x%d && x%d;", n+2, n+1, n+1)
	}
	cost := func(ad string) int {
		left := 1_000_000
		newBench(t, nil).m.Suits(time.Unix(0, 0), job(ad), &left)
		return 1_000_000 - left
	}
	one, all := dear+"Requirements = x12", dear+"Requirements = x12; "
	for _, name := range []string{"RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs"} {
		all += name + " = x12 ? 0 : 1; "
	}
	all += "x13 = x12 && x12; x14 = x13 && x13; Requirements = x14"
	if cost(one) >= maxLook || cost(all) <= maxLook || cost(all) >= 3*maxLook {
		t.Fatalf("the ads cost %d and %d; want one that is within %d", cost(one), cost(all), maxLook)
	}
	b := newBench(t, nil)
	b.want(Request{Claim: 1, Job: job(all)}, "Refused #1 1027, 1:Unclaimed/Idle")
	if d := b.m.Decide(b.now, job(all)); d.Accept || d.Text != costs {
		t.Errorf("decided %+v", d)
	}
	if b.m.steps != nil {
		t.Error("what is evaluated then is bounded as well")
	}
	b.want(Request{Claim: 1, Job: job(one)}, "5:Claimed/Idle, Accepted #1")
}
