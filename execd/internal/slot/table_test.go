package slot

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func withBenchmarks(c *Config) { c.Benchmarks = true }
func withBackfill(c *Config)   { c.Backfill = true }
func dynamic(c *Config)        { c.Dynamic = true }

// suspending is a policy that suspends when Hot is true, and goes on with Cool.
var suspending = testKnobs{"WANT_SUSPEND": "true", "SUSPEND": "Hot", "CONTINUE": "Cool", "PREEMPT": "Evict", "MaxJobRetirementTime": "3600", "MachineMaxVacateTime": "60"}

// retiring is a policy under which jobs have an hour.
var retiring = testKnobs{"MaxJobRetirementTime": "3600", "MachineMaxVacateTime": "60", "PREEMPT": "Evict", "RANK": "TARGET.Prio"}

// scenarios go through the table. Each takes its row, and is named for it.
var scenarios = []struct {
	row   int
	knobs testKnobs
	conf  func(*Config)
	run   func(b *bench)
}{
	// SLOT-1: a slot that its owner does not want is offered.
	{1, testKnobs{"IS_OWNER": "KeyboardIdle < 60"}, nil, func(b *bench) {
		b.slot["KeyboardIdle"] = "5"
		b.want(Evaluate{}, "")
		b.place(Place{Owner, Idle})
		b.next(300 * time.Second)
		b.slot["KeyboardIdle"] = "61"
		b.after(300*time.Second).want(Evaluate{}, "1:Unclaimed/Idle")
	}},
	// SLOT-2: the owner is back.
	{2, testKnobs{"IS_OWNER": "KeyboardIdle < 60"}, withBenchmarks, func(b *bench) {
		b.slot["KeyboardIdle"], b.slot["LastBenchmark"] = "61", "1"
		b.want(Evaluate{}, "1:Unclaimed/Idle")
		b.slot["KeyboardIdle"] = "0"
		b.want(Evaluate{}, "2:Owner/Idle")
		b.slot["KeyboardIdle"], b.slot["LastBenchmark"] = "61", "0"
		b.want(Evaluate{}, "1:Unclaimed/Idle, StartBenchmarks, 3:Unclaimed/Benchmarking")
		b.slot["KeyboardIdle"] = "0"
		b.want(Evaluate{}, "StopBenchmarks, 4:Unclaimed/Idle, 2:Owner/Idle")
	}},
	// SLOT-3: a host of which the speed is not known is measured.
	{3, nil, withBenchmarks, func(b *bench) {
		b.slot["LastBenchmark"] = "17"
		b.want(Evaluate{}, "1:Unclaimed/Idle")
		b.slot["LastBenchmark"] = "0"
		b.want(Evaluate{}, "StartBenchmarks, 3:Unclaimed/Benchmarking")
	}},
	// SLOT-4: the measuring ends.
	{4, nil, withBenchmarks, func(b *bench) {
		b.slot["LastBenchmark"] = "0"
		b.want(Evaluate{}, "1:Unclaimed/Idle, StartBenchmarks, 3:Unclaimed/Benchmarking")
		b.want(Evaluate{}, "")
		b.slot["LastBenchmark"] = "17"
		b.want(BenchmarksDone{}, "4:Unclaimed/Idle")
		b.want(BenchmarksDone{}, "")
	}},
	// SLOT-5: a request, or fetched work, makes a claim. Benchmarks stop for it.
	{5, testKnobs{"START": "TARGET.Good"}, withBenchmarks, func(b *bench) {
		b.slot["LastBenchmark"] = "0"
		b.want(Evaluate{}, "1:Unclaimed/Idle, StartBenchmarks, 3:Unclaimed/Benchmarking")
		b.want(Request{Claim: 1, Job: job("Good = false")}, "Refused #1 1027")
		b.want(Request{Claim: 1, Job: job("Good = true")}, "StopBenchmarks, 5:Claimed/Idle, Accepted #1")
	}},
	{5, nil, nil, func(b *bench) {
		b.want(FetchBegan{}, "1:Unclaimed/Idle")
		b.want(FetchEnded{job("")}, "5:Claimed/Idle, Accepted #1, Spawn #1")
	}},
	{5, nil, nil, func(b *bench) { // out of Owner, at the first event
		b.want(Request{Claim: 1, Job: job("")}, "5:Claimed/Idle, Accepted #1")
	}},
	// SLOT-6, CLAIM-MATCH: the slot is promised to somebody.
	{6, nil, nil, func(b *bench) {
		b.handle(Evaluate{})
		b.want(Match{7}, "")
		b.want(Match{1}, "6:Matched/Idle")
		b.next(120 * time.Second)
	}},
	{6, nil, nil, func(b *bench) { b.want(Match{1}, "6:Matched/Idle") }},
	// SLOT-7: what nobody wants is filled.
	{7, testKnobs{"START_BACKFILL": "Quiet"}, withBackfill, func(b *bench) {
		b.want(Evaluate{}, "1:Unclaimed/Idle")
		b.slot["Quiet"] = "true"
		b.want(Evaluate{}, "7:Backfill/Idle, StartBackfillJob")
	}},
	// SLOT-8: who was matched does not come in time, or is not welcome, or gives up.
	{8, testKnobs{"MATCH_TIMEOUT": "40", "START": "TARGET.Good"}, nil, func(b *bench) {
		b.want(Match{1}, "6:Matched/Idle")
		b.after(39*time.Second).want(Evaluate{}, "")
		b.next(time.Second)
		b.after(time.Second).want(Evaluate{}, "8:Owner/Idle, 1:Unclaimed/Idle")
		b.want(Request{Claim: 1, Job: job("Good = true")}, "Refused #1 1034")
		b.want(Match{2}, "6:Matched/Idle")
		b.want(Request{Claim: 2, Job: job("")}, "Refused #2 1027, 8:Owner/Idle, 1:Unclaimed/Idle")
		b.want(Match{3}, "6:Matched/Idle")
		b.want(Release{3}, "8:Owner/Idle, 1:Unclaimed/Idle")
		b.want(Match{4}, "6:Matched/Idle")
		b.want(Lost{4}, "8:Owner/Idle, 1:Unclaimed/Idle")
		b.want(Match{5}, "6:Matched/Idle")
		b.want(Vacate{}, "8:Owner/Idle, 1:Unclaimed/Idle")
	}},
	// SLOT-9: who was matched comes.
	{9, nil, nil, func(b *bench) {
		b.want(Match{1}, "6:Matched/Idle")
		b.want(Request{Claim: 1, Job: job("")}, "9:Claimed/Idle, Accepted #1")
		b.next(1200 * time.Second) // the work life, not the match
	}},
	// SLOT-10: an idle claim goes when another one waits, the owner wants the slot,
	// it is too old, or the slot is drained; on release, vacate, the end of the lease,
	// and when there is no more work.
	{10, testKnobs{"IS_OWNER": "Home"}, nil, func(b *bench) {
		const toOwner = "10:Preempting/Vacating, Broken #%d %d, 22:Owner/Idle"
		claimed := func(e Event, want string, why Reason, soft bool) {
			b.t.Helper()
			b.slot["Home"] = "false"
			b.handle(Evaluate{})
			n := b.m.Offer()
			b.want(Request{Claim: n, Job: job(""), Lease: 600 * time.Second}, fmt.Sprintf("5:Claimed/Idle, Accepted #%d", n))
			if _, ok := e.(Evaluate); ok {
				b.slot["Home"] = "true"
			}
			activity, row := "Vacating", 22
			if !soft {
				activity, row = "Killing", 25
			}
			got := actionWords(b.handle(e))
			if full := fmt.Sprintf("10:Preempting/%s, Broken #%d %d, %d:Owner/Idle%s", activity, n, int(why), row, want); got != full {
				b.t.Fatalf("%T: got  %s\nwant %s", e, got, full)
			}
		}
		b.slot["Home"] = "false"
		claimed(Evaluate{}, "", ReasonSystemPolicyVacate, true)
		claimed(Vacate{}, ", 1:Unclaimed/Idle", ReasonVacateCommand, true)
		claimed(Release{b.m.Offer()}, ", 1:Unclaimed/Idle", ReasonReleased, false)
		claimed(Gone{b.m.Offer()}, ", 1:Unclaimed/Idle", ReasonAgentException, false)
		claimed(Drain{}, ", 36:Drained/Retiring", ReasonDraining, true)
		b.want(Undrain{}, "34:Owner/Idle, 1:Unclaimed/Idle")
		claimed(Drain{Speed: DrainFast, Shutdown: true}, ", 36:Drained/Retiring", ReasonShutdown, false)
		b.want(Undrain{}, "34:Owner/Idle, 1:Unclaimed/Idle")
		// The end of the lease is told to nobody.
		n := b.m.Offer()
		b.want(Request{Claim: n, Job: job(""), Lease: 600 * time.Second}, fmt.Sprintf("5:Claimed/Idle, Accepted #%d", n))
		b.after(600*time.Second).want(Evaluate{}, "10:Preempting/Killing, 25:Owner/Idle, 1:Unclaimed/Idle")
		// Another one waits: he is there at once.
		n = b.m.Offer()
		b.handle(Request{Claim: n, Job: job("")})
		next := b.m.Offer()
		b.want(Request{Claim: next, Job: job("")}, fmt.Sprintf("HeldBack #%d, 10:Preempting/Vacating, Broken #%d 1019, 23:Claimed/Idle, Accepted #%d", next, n, next))
		// Its age.
		b.after(1199*time.Second).want(Evaluate{}, "")
		b.after(time.Second).want(Evaluate{}, fmt.Sprintf("10:Preempting/Vacating, Broken #%d 1029, 22:Owner/Idle, 1:Unclaimed/Idle", next))
		// No more work.
		n = b.fetchBusy(job(""))
		b.want(Exited{n}, fmt.Sprintf("12:Claimed/Idle, Ask #%d", n))
		b.want(FetchBegan{}, "")
		b.want(FetchEnded{}, fmt.Sprintf(toOwner+", 1:Unclaimed/Idle", n, int(ReasonReleased)))
	}},
	// SLOT-11: a job is started.
	{11, nil, nil, func(b *bench) {
		b.handle(Request{Claim: 1, Job: job("")})
		b.want(Activate{1, job("")}, "11:Claimed/Busy, Accepted #1")
		b.want(Activate{1, job("")}, "Refused #1 1032")
	}},
	// SLOT-12: the job ends, and then its shepherd, or both at once.
	{12, nil, nil, func(b *bench) {
		b.busy(job(""))
		b.want(FinalUpdate{1}, "12:Claimed/Cleaning")
		b.want(Activate{1, job("")}, "TryAgain #1 1028")
		b.next(never)
		b.want(Exited{1}, "12:Claimed/Idle")
		b.want(Activate{1, job("")}, "11:Claimed/Busy, Accepted #1")
		b.want(Exited{1}, "12:Claimed/Idle")
		b.want(Exited{1}, "")
	}},
	// SLOT-13: PREEMPT, a claim that waits, or a drain let a job retire.
	{13, retiring, nil, func(b *bench) {
		b.slot["Evict"] = "false"
		b.busy(job("Prio = 1"))
		b.want(Evaluate{}, "")
		b.slot["Evict"] = "true"
		b.want(Evaluate{}, "13:Claimed/Retiring")
	}},
	{13, retiring, nil, func(b *bench) {
		b.slot["Evict"] = "false"
		b.busy(job("Prio = 1"))
		b.want(Request{Claim: 2, Job: job("Prio = 2")}, "HeldBack #2, 13:Claimed/Retiring")
	}},
	{13, retiring, nil, func(b *bench) {
		b.slot["Evict"] = "false"
		b.busy(job("Prio = 1"))
		b.want(Drain{}, "13:Claimed/Retiring")
	}},
	// SLOT-14: WANT_SUSPEND and SUSPEND, or a command, stop a job.
	{14, suspending, nil, func(b *bench) {
		b.slot["Evict"] = "true" // is not looked at: the job may be suspended
		b.busy(job(""))
		b.want(Evaluate{}, "")
		b.slot["Hot"] = "true"
		b.want(Evaluate{}, "SuspendJob #1, 14:Claimed/Suspended")
	}},
	{14, testKnobs{"WANT_SUSPEND": "false", "SUSPEND": "true"}, nil, func(b *bench) {
		b.busy(job(""))
		b.want(Evaluate{}, "")
		b.want(Suspend{1}, "SuspendJob #1, 14:Claimed/Suspended")
		b.next(5 * time.Second)
		b.after(5*time.Second).want(Evaluate{}, "") // CONTINUE does not lift it
		b.next(never)
		b.want(Continue{1}, "ResumeJob #1, 15:Claimed/Busy")
	}},
	// SLOT-15: CONTINUE lets it go on.
	{15, suspending, nil, func(b *bench) {
		b.busy(job(""))
		b.slot["Hot"] = "true"
		b.want(Evaluate{}, "SuspendJob #1, 14:Claimed/Suspended")
		b.want(Evaluate{}, "")
		b.slot["Hot"], b.slot["Cool"] = "false", "true"
		b.want(Evaluate{}, "ResumeJob #1, 15:Claimed/Busy")
	}},
	// SLOT-16: it goes on in retirement; PREEMPT is a reason too, the first time.
	{16, suspending, nil, func(b *bench) {
		b.busy(job(""))
		b.slot["Hot"] = "true"
		b.want(Evaluate{}, "SuspendJob #1, 14:Claimed/Suspended")
		b.want(Request{Claim: 2, Job: job("")}, "HeldBack #2")
		b.slot["Hot"], b.slot["Cool"] = "false", "true"
		b.want(Evaluate{}, "ResumeJob #1, 16:Claimed/Retiring")
	}},
	{16, suspending, nil, func(b *bench) {
		b.busy(job(""))
		b.slot["Hot"] = "true"
		b.want(Evaluate{}, "SuspendJob #1, 14:Claimed/Suspended")
		b.slot["Evict"] = "true"
		b.want(Evaluate{}, "ResumeJob #1, 16:Claimed/Retiring")
		b.want(Evaluate{}, "SuspendJob #1, 20:Claimed/Suspended")
		b.want(Evaluate{}, "") // it was true before
	}},
	// SLOT-17: retirement ends while the job is stopped. It is resumed first; if
	// that fails, its family is killed.
	{17, suspending, nil, func(b *bench) {
		b.busy(job("MaxJobRetirementTime = 100"))
		b.slot["Hot"] = "true"
		b.after(50*time.Second).want(Evaluate{}, "SuspendJob #1, 14:Claimed/Suspended")
		b.want(Request{Claim: 2, Job: job("")}, "HeldBack #2, ResumeJob #1, 17:Preempting/Vacating, StopJob #1 1019")
		b.want(SignalFailed{1}, "21:Preempting/Killing, KillFamily #1 1019")
		b.want(Exited{1}, "Broken #1 1019, 24:Claimed/Idle, Accepted #2")
	}},
	// SLOT-18: retirement ends, or the job does.
	{18, retiring, nil, func(b *bench) {
		b.slot["Evict"] = "true"
		b.busy(job("Prio = 1"))
		b.after(5*time.Second).want(Evaluate{}, "13:Claimed/Retiring")
		b.next(5 * time.Second)
		b.after(5*time.Second).want(Evaluate{}, "")
		b.next(3600*time.Second - 60*time.Second - 10*time.Second)
		b.after(3530*time.Second-1).want(Evaluate{}, "")
		b.after(1).want(Evaluate{}, "18:Preempting/Vacating, StopJob #1 1011")
	}},
	{18, retiring, nil, func(b *bench) {
		b.busy(job("Prio = 1"))
		b.want(Drain{}, "13:Claimed/Retiring")
		b.want(Exited{1}, "18:Preempting/Vacating, Broken #1 1014, 22:Owner/Idle, 36:Drained/Retiring")
	}},
	// SLOT-19: the claim that waited is gone, and the job stays.
	{19, retiring, nil, func(b *bench) {
		b.busy(job("Prio = 1"))
		b.want(Request{Claim: 2, Job: job("Prio = 2")}, "HeldBack #2, 13:Claimed/Retiring")
		b.want(Gone{2}, "19:Claimed/Busy")
		b.next(5 * time.Second)
		b.after(5*time.Second).want(Evaluate{}, "")
		b.next(never)
	}},
	// SLOT-20: a job in retirement is stopped.
	{20, suspending, nil, func(b *bench) {
		b.busy(job(""))
		b.want(Request{Claim: 2, Job: job("")}, "HeldBack #2, 13:Claimed/Retiring")
		b.slot["Hot"] = "true"
		b.want(Evaluate{}, "SuspendJob #1, 20:Claimed/Suspended")
	}},
	{20, retiring, nil, func(b *bench) {
		b.busy(job("Prio = 1"))
		b.want(Drain{}, "13:Claimed/Retiring")
		b.want(Suspend{1}, "SuspendJob #1, 20:Claimed/Suspended")
	}},
	// SLOT-21: KILL, or the end of the time for vacating.
	{21, testKnobs{"KILL": "TARGET.Stuck", "MachineMaxVacateTime": "90"}, nil, func(b *bench) {
		j := job("Stuck = false")
		b.busy(j)
		b.want(Vacate{}, "13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1010")
		b.want(Evaluate{}, "")
		j.attrs = "Stuck = true"
		b.want(Evaluate{}, "21:Preempting/Killing, KillJob #1 1001")
	}},
	{21, testKnobs{"MachineMaxVacateTime": "90"}, nil, func(b *bench) {
		b.busy(job(""))
		b.want(Vacate{}, "13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1010")
		b.next(90 * time.Second)
		b.after(89*time.Second).want(Evaluate{}, "")
		b.after(time.Second).want(Evaluate{}, "21:Preempting/Killing, KillJob #1 1010")
	}},
	// SLOT-22: the job has ended as it was asked to, and nobody waits who is welcome.
	{22, testKnobs{"START": "TARGET.Prio < Limit", "RANK": "TARGET.Prio"}, nil, func(b *bench) {
		b.slot["Limit"] = "5"
		b.busy(job("Prio = 1"))
		b.want(Request{Claim: 2, Job: job("Prio = 2")}, "HeldBack #2, 13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1018")
		b.slot["Limit"] = "2"
		b.want(Exited{1}, "Broken #1 1018, 22:Owner/Idle, Refused #2 1030, 1:Unclaimed/Idle")
	}},
	// SLOT-23: somebody waits.
	{23, testKnobs{"START": "TARGET.Prio < Limit", "RANK": "TARGET.Prio"}, nil, func(b *bench) {
		b.slot["Limit"] = "5"
		b.busy(job("Prio = 1"))
		b.want(Request{Claim: 2, Job: job("Prio = 2")}, "HeldBack #2, 13:Claimed/Retiring, 18:Preempting/Vacating, StopJob #1 1018")
		delete(b.slot, "Limit") // START is not known, which is not false
		b.want(Exited{1}, "Broken #1 1018, 23:Claimed/Idle, Accepted #2")
	}},
	// SLOT-24, SLOT-25: the same after killing. An owner who is back is first.
	{24, testKnobs{"WANT_VACATE": "false"}, nil, func(b *bench) {
		b.busy(job(""))
		b.want(Request{Claim: 2, Job: job("")}, "HeldBack #2, 13:Claimed/Retiring, 18:Preempting/Killing, KillJob #1 1019")
		b.want(Exited{1}, "Broken #1 1019, 24:Claimed/Idle, Accepted #2")
	}},
	{25, testKnobs{"WANT_VACATE": "false", "IS_OWNER": "Home"}, nil, func(b *bench) {
		b.slot["Home"] = "false"
		b.busy(job(""))
		b.want(Request{Claim: 2, Job: job("")}, "HeldBack #2, 13:Claimed/Retiring, 18:Preempting/Killing, KillJob #1 1019")
		b.slot["Home"] = "true"
		b.want(Exited{1}, "Broken #1 1019, 25:Owner/Idle, Refused #2 1030")
	}},
	// SLOT-26: the backfill job runs.
	{26, testKnobs{"START_BACKFILL": "true"}, withBackfill, func(b *bench) {
		b.want(Evaluate{}, "1:Unclaimed/Idle, 7:Backfill/Idle, StartBackfillJob")
		b.want(BackfillStarted{}, "26:Backfill/Busy")
		b.next(never)
	}},
	// SLOT-27: it ends by itself, and another one is started.
	{27, testKnobs{"START_BACKFILL": "true"}, withBackfill, func(b *bench) {
		b.handle(Evaluate{})
		b.handle(BackfillStarted{})
		b.want(BackfillEnded{}, "27:Backfill/Idle, StartBackfillJob")
	}},
	// SLOT-28, SLOT-29, SLOT-30: policy or command ends it for good. It is killed
	// again until it is gone.
	{28, testKnobs{"START_BACKFILL": "!Noon", "EVICT_BACKFILL": "Noon"}, withBackfill, func(b *bench) {
		b.slot["Noon"] = "false"
		b.handle(Evaluate{})
		b.handle(BackfillStarted{})
		b.want(Evaluate{}, "")
		b.slot["Noon"] = "true"
		b.want(Evaluate{}, "KillBackfillJob, 28:Backfill/Killing")
		b.next(30 * time.Second)
		b.after(30*time.Second).want(Evaluate{}, "KillBackfillJob")
	}},
	{29, testKnobs{"START_BACKFILL": "!Noon", "EVICT_BACKFILL": "Noon"}, withBackfill, func(b *bench) {
		b.slot["Noon"] = "false"
		b.handle(Evaluate{})
		b.handle(BackfillStarted{})
		b.want(Vacate{}, "KillBackfillJob, 28:Backfill/Killing")
		b.slot["Noon"] = "true"
		b.want(BackfillEnded{}, "29:Backfill/Idle, 30:Owner/Idle, 1:Unclaimed/Idle")
	}},
	{30, testKnobs{"START_BACKFILL": "true"}, withBackfill, func(b *bench) {
		b.handle(Evaluate{})
		b.want(Drain{}, "KillBackfillJob, 30:Owner/Idle, 36:Drained/Retiring") // it was about to start
		b.want(BackfillStarted{}, "KillBackfillJob")
	}},
	// SLOT-31: a claim displaces it.
	{31, testKnobs{"START_BACKFILL": "true"}, withBackfill, func(b *bench) {
		b.handle(Evaluate{})
		b.handle(BackfillStarted{})
		b.want(Request{Claim: 1, Job: job("")}, "HeldBack #1, KillBackfillJob, 28:Backfill/Killing")
		b.want(BackfillEnded{}, "29:Backfill/Idle, 31:Claimed/Idle, Accepted #1")
	}},
	// SLOT-32: a match displaces it.
	{32, testKnobs{"START_BACKFILL": "true"}, withBackfill, func(b *bench) {
		b.handle(Evaluate{})
		b.handle(BackfillStarted{})
		b.want(Match{1}, "KillBackfillJob, 28:Backfill/Killing")
		b.want(BackfillEnded{}, "29:Backfill/Idle, 32:Matched/Idle")
		b.next(120 * time.Second)
		b.want(Request{Claim: 1, Job: job("")}, "9:Claimed/Idle, Accepted #1")
	}},
	// SLOT-33: nothing runs on the host any more.
	{33, nil, nil, func(b *bench) {
		b.want(Drain{}, "36:Drained/Retiring")
		b.want(AllDrained{}, "33:Drained/Idle")
		b.want(AllDrained{}, "")
		b.next(never)
	}},
	// SLOT-34, SLOT-35: the slot is in service again.
	{34, nil, nil, func(b *bench) {
		b.want(Drain{}, "36:Drained/Retiring")
		b.want(Undrain{}, "34:Owner/Idle, 1:Unclaimed/Idle")
	}},
	{35, nil, nil, func(b *bench) {
		b.want(Drain{}, "36:Drained/Retiring")
		b.want(AllDrained{}, "33:Drained/Idle")
		b.want(Undrain{}, "35:Owner/Idle, 1:Unclaimed/Idle")
	}},
	// SLOT-36, SLOT-37: it is taken out of service.
	{36, testKnobs{"IS_OWNER": "true"}, nil, func(b *bench) {
		b.want(Evaluate{}, "")
		b.want(Drain{}, "36:Drained/Retiring")
	}},
	{37, nil, withBenchmarks, func(b *bench) {
		b.slot["LastBenchmark"] = "0"
		b.handle(Evaluate{})
		b.want(Drain{}, "StopBenchmarks, 37:Drained/Retiring")
	}},
	// A dynamic slot that is free is deleted, but not while something needs it.
	{DeleteRow, nil, dynamic, func(b *bench) {
		b.want(Request{Claim: 1, Job: job("")}, "5:Claimed/Idle, Accepted #1")
		b.want(FetchBegan{}, "")
		b.want(Release{1}, "10:Preempting/Killing, Broken #1 1017, 25:Owner/Idle")
		b.want(FetchEnded{}, "0:Deleted")
		b.next(never)
		b.want(Request{Claim: 1, Job: job("")}, "Refused #1 1034")
	}},
	{DeleteRow, nil, dynamic, func(b *bench) { b.want(Evaluate{}, "0:Deleted") }},
	{DeleteRow, nil, func(c *Config) { c.Dynamic, c.KeepBroken = true, true }, func(b *bench) {
		b.want(Break{"no disk"}, "")
		b.want(Drain{}, "36:Drained/Retiring") // what is kept must not hold up a drain
		b.want(Undrain{}, "34:Owner/Idle")
		b.want(Break{}, "0:Deleted")
	}},
}

// TestTable goes through all scenarios, of which each takes its row, and nothing
// is done that is not in the table.
func TestTable(t *testing.T) {
	taken := map[int]bool{}
	for i, s := range scenarios {
		t.Run(fmt.Sprintf("SLOT-%d.%d", s.row, i), func(t *testing.T) {
			conf := s.conf
			if conf == nil {
				conf = func(*Config) {}
			}
			b := newBench(t, s.knobs, conf)
			s.run(b)
			if !b.rows[s.row] {
				t.Errorf("row %d was not taken", s.row)
			}
			taken[s.row] = true
		})
	}
	for i := range Table {
		if !taken[Table[i].Number] {
			t.Errorf("no scenario for row %d", Table[i].Number)
		}
	}
}

// TestTableIsSound looks for what the table must not have.
func TestTableIsSound(t *testing.T) {
	var numbers []int
	type edge struct{ from, to Place }
	edges := map[edge]int{}
	for i := range Table {
		r := &Table[i]
		numbers = append(numbers, r.Number)
		for _, p := range slices.Concat(r.From, r.To) {
			if !p.Valid() {
				t.Errorf("row %d: %s", r.Number, p)
			}
		}
		for _, from := range r.From {
			for _, to := range r.To {
				if other, twice := edges[edge{from, to}]; twice {
					t.Errorf("rows %d and %d both lead from %s to %s", other, r.Number, from, to)
				}
				edges[edge{from, to}] = r.Number
			}
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		if i != n {
			t.Errorf("row %d is missing", i)
		}
	}
	if len(numbers) != 38 {
		t.Errorf("%d rows", len(numbers))
	}
	if row(38) != nil || row(-1) != nil {
		t.Error("there are rows that are none")
	}
}
