package slot

import (
	"strings"
	"testing"
	"time"

	"paddock/classad"
)

// TestPolicyDefaults: POLICY-START, POLICY-RANK, POLICY-IS_OWNER,
// POLICY-WANT_SUSPEND, POLICY-SUSPEND, POLICY-CONTINUE, POLICY-PREEMPT,
// POLICY-KILL, POLICY-WANT_VACATE, POLICY-MaxJobRetirementTime,
// POLICY-MachineMaxVacateTime, POLICY-WANT_HOLD, POLICY-START_BACKFILL,
// POLICY-EVICT_BACKFILL, POLICY-RunBenchmarks: what counts when nothing is set.
func TestPolicyDefaults(t *testing.T) {
	p := NewPolicy(nil)
	if !p.Plain() {
		t.Error("no knobs are not plain")
	}
	for x, want := range map[Expression]string{
		Start: "true", Rank: "0.0", IsOwner: "false", WantSuspend: "false", SuspendWhen: "false", ContinueWhen: "true",
		PreemptWhen: "false", KillWhen: "false", WantVacate: "true", MaxJobRetirementTime: "0", MachineMaxVacateTime: "600",
		WantHold: "undefined", WantHoldReason: "undefined", WantHoldSubcode: "undefined", StartBackfill: "undefined",
		EvictBackfill: "undefined", RunBenchmarks: "LastBenchmark == 0",
	} {
		if got := p.Expr(x).String(); got != want {
			t.Errorf("%s is %s; want %s", x, got, want)
		}
	}
	if p.poll != 5*time.Second || p.match != 120*time.Second || p.killing != 30*time.Second || p.workLife != 1200*time.Second || p.Patience() != 110*time.Second {
		t.Errorf("the times are %+v", p)
	}
	if p := NewPolicy(testKnobs{"FetchWorkDelay": "10"}); !p.Plain() {
		t.Error("the pace of fetching is no policy of the slot")
	}
	for _, name := range []string{"START", "SUSPEND_VANILLA", "KILL_VM", "MaxJobRetirementTime"} {
		if NewPolicy(testKnobs{name: "true"}).Plain() {
			t.Errorf("plain with %s", name)
		}
	}
}

// values are what an expression can be that is no good, and what is a condition.
var values = []struct {
	text                  string
	satisfies, notKnown   bool
	number                bool
	startWithoutJobIsHope bool
}{
	{"true", true, false, true, true},
	{"false", false, false, true, false},
	{"7", true, false, true, true},
	{"-0.5", true, false, true, true},
	{"0", false, false, true, false},
	{"0.0", false, false, true, false},
	{"undefined", false, true, false, true},
	{"error", false, true, false, true},
	{`"true"`, false, true, false, true},
	{"{true}", false, true, false, true},
	{"TARGET.Missing", false, true, false, true},
}

// TestPolicyConditions: POLICY-SUSPEND, POLICY-WANT_SUSPEND, POLICY-CONTINUE,
// POLICY-PREEMPT, POLICY-KILL, POLICY-EVICT_BACKFILL, POLICY-START_BACKFILL,
// POLICY-RunBenchmarks, POLICY-WANT_HOLD: a number but zero satisfies, a string
// never does, and what is not known does not.
func TestPolicyConditions(t *testing.T) {
	for _, v := range values {
		for _, form := range []string{v.text, "MY.Value"} { // constant, and not
			slot := func(b *bench) { b.slot["Value"] = v.text }
			check := func(name string, got bool) {
				t.Helper()
				if got != v.satisfies {
					t.Errorf("%s = %s (%s): %t", name, form, v.text, got)
				}
			}
			b := newBench(t, testKnobs{"WANT_SUSPEND": form, "SUSPEND": "true"})
			slot(b)
			b.busy(job(""))
			b.handle(Evaluate{})
			check("WANT_SUSPEND", b.m.Activity() == Suspended)

			b = newBench(t, testKnobs{"WANT_SUSPEND": "true", "SUSPEND": form})
			slot(b)
			b.busy(job(""))
			b.handle(Evaluate{})
			check("SUSPEND", b.m.Activity() == Suspended)

			b = newBench(t, testKnobs{"WANT_SUSPEND": "true", "SUSPEND": "true", "CONTINUE": form})
			slot(b)
			b.busy(job(""))
			b.handle(Evaluate{})
			b.handle(Evaluate{})
			check("CONTINUE", b.m.Activity() == Busy)

			b = newBench(t, testKnobs{"PREEMPT": form})
			slot(b)
			b.busy(job(""))
			b.handle(Evaluate{})
			check("PREEMPT", b.m.Activity() == Retiring)

			b = newBench(t, testKnobs{"KILL": form})
			slot(b)
			b.busy(job(""))
			b.handle(Vacate{})
			b.place(Place{Preempting, Vacating})
			b.handle(Evaluate{})
			check("KILL", b.m.Activity() == Killing)

			b = newBench(t, testKnobs{"START_BACKFILL": form}, withBackfill)
			slot(b)
			b.handle(Evaluate{})
			check("START_BACKFILL", b.m.State() == Backfill)

			b = newBench(t, testKnobs{"START_BACKFILL": "true", "EVICT_BACKFILL": form}, withBackfill)
			slot(b)
			b.handle(Evaluate{})
			b.handle(BackfillStarted{})
			b.handle(Evaluate{})
			check("EVICT_BACKFILL", b.m.Activity() == Killing)

			b = newBench(t, testKnobs{"RunBenchmarks": form}, withBenchmarks)
			slot(b)
			b.handle(Evaluate{})
			check("RunBenchmarks", b.m.Activity() == Benchmarking)

			b = newBench(t, testKnobs{"PREEMPT": "true", "WANT_HOLD": form, "WANT_HOLD_REASON": `"too hot"`, "WANT_HOLD_SUBCODE": "4"})
			slot(b)
			b.busy(job(""))
			b.handle(Evaluate{})
			check("WANT_HOLD", strings.HasPrefix(actionWords(b.handle(Evaluate{})), "18:Preempting/Vacating, HoldJob 21.4 too hot, "))
		}
	}
}

// TestPolicyStart: POLICY-START: without a job what is not known is hope, with
// one it has to be true.
func TestPolicyStart(t *testing.T) {
	for _, v := range values {
		b := newBench(t, testKnobs{"START": v.text})
		b.handle(Evaluate{})
		if ok := !isFalse(b.m.start(nil)); ok != v.startWithoutJobIsHope {
			t.Errorf("START = %s: may start %t", v.text, ok)
		}
		if got := b.m.Decide(b.now, job("")).Accept; got != v.satisfies {
			t.Errorf("START = %s: accepted %t", v.text, got)
		}
	}
}

// TestPolicyIsOwner: POLICY-IS_OWNER: what is no condition counts as true, which
// is said once.
func TestPolicyIsOwner(t *testing.T) {
	for _, v := range values {
		b := newBench(t, testKnobs{"IS_OWNER": v.text})
		notes := 0
		for range 3 {
			for _, a := range b.handle(Evaluate{}) {
				if a.Do == Note && strings.HasPrefix(a.Text, "IS_OWNER is ") {
					notes++
				}
			}
		}
		if owner := b.m.State() == Owner; owner != (v.satisfies || v.notKnown) || (notes == 1) != v.notKnown || notes > 1 {
			t.Errorf("IS_OWNER = %s: owner %t, %d notes", v.text, owner, notes)
		}
	}
}

// TestPolicyWantVacate: POLICY-WANT_VACATE: what is no condition counts as true,
// which is said once.
func TestPolicyWantVacate(t *testing.T) {
	for _, v := range values {
		b := newBench(t, testKnobs{"WANT_VACATE": v.text})
		b.busy(job(""))
		notes := 0
		for _, a := range b.handle(Vacate{}) {
			if a.Do == Note {
				notes++
			}
		}
		if soft := b.m.Activity() == Vacating; soft != (v.satisfies || v.notKnown) || (notes == 1) != v.notKnown {
			t.Errorf("WANT_VACATE = %s: vacating %t, %d notes", v.text, soft, notes)
		}
	}
	// Without a job it is true.
	b := newBench(t, testKnobs{"WANT_VACATE": "false"})
	b.handle(Request{Claim: 1, Job: job("")})
	b.want(Vacate{}, "10:Preempting/Vacating, Broken #1 1010, 22:Owner/Idle, 1:Unclaimed/Idle")
}

// TestPolicyNumbers: POLICY-RANK, POLICY-MaxJobRetirementTime,
// POLICY-MachineMaxVacateTime: what is no number is 0.
func TestPolicyNumbers(t *testing.T) {
	for _, test := range []struct {
		text string
		want time.Duration
	}{
		{"100", 100 * time.Second},
		{"99.9", 99 * time.Second},
		{"TARGET.X * 10", 70 * time.Second},
		{"undefined", 0},
		{"error", 0},
		{`"100"`, 0},
		{"true", time.Second},
		{"-5", 0},
		{"1e300", forever},
		{"-1e300", 0},
	} {
		b := newBench(t, testKnobs{"MaxJobRetirementTime": test.text, "MachineMaxVacateTime": test.text})
		b.busy(job("X = 7"))
		if got := b.m.RetirementRemaining(b.now); got != test.want {
			t.Errorf("MaxJobRetirementTime = %s: %s", test.text, got)
		}
		if got := b.m.VacateTime(b.now); got != test.want {
			t.Errorf("MachineMaxVacateTime = %s: %s", test.text, got)
		}
	}
	for text, want := range map[string]float64{"TARGET.X": 7, "undefined": 0, "error": 0, `"7"`: 0, "true": 1, "-2.5": -2.5} {
		b := newBench(t, testKnobs{"RANK": text})
		b.busy(job("X = 7"))
		if got := b.m.Current().Rank; got != want {
			t.Errorf("RANK = %s: %v", text, got)
		}
	}
}

// TestPolicyUniverse: POLICY-WANT_SUSPEND, POLICY-SUSPEND, POLICY-CONTINUE,
// POLICY-PREEMPT, POLICY-KILL, POLICY-WANT_VACATE: each has forms for plain jobs
// and for virtual machines, which are in place of it.
func TestPolicyUniverse(t *testing.T) {
	for x := range byUniverse {
		name := Expression(x).String()
		p := NewPolicy(testKnobs{name: `"all"`, name + "_VANILLA": `"vanilla"`, name + "_VM": `"vm"`})
		other := NewPolicy(testKnobs{name: `"all"`, "START": "true"})
		for ad, want := range map[string]string{"JobUniverse = 5": "vanilla", "": "vanilla", "JobUniverse = 13": "vm", "JobUniverse = 10": "all"} {
			parsed, err := classad.ParseAd("[" + ad + "]")
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := p.rule(Expression(x), parsed).value.Str(); got != want {
				t.Errorf("%s for [%s] is %s; want %s", name, ad, got, want)
			}
			if got, _ := other.rule(Expression(x), parsed).value.Str(); got != "all" {
				t.Errorf("%s for [%s] is %s without forms", name, ad, got)
			}
		}
		if got, _ := p.rule(Expression(x), nil).value.Str(); got != "all" {
			t.Errorf("%s without a job is %s", name, got)
		}
	}
	b := newBench(t, testKnobs{"PREEMPT": "false", "PREEMPT_VM": "true"})
	b.busy(&testJob{attrs: "JobUniverse = 13"})
	b.want(Evaluate{}, "13:Claimed/Retiring")
	b = newBench(t, testKnobs{"PREEMPT": "false", "PREEMPT_VM": "true"})
	b.busy(job(""))
	b.want(Evaluate{}, "")
}

// TestNeeds: what a policy depends on is told, so that only changes of that are,
// and it has a timer only if something changes by itself.
func TestNeeds(t *testing.T) {
	for _, test := range []struct {
		knobs testKnobs
		needs string // of the slot, and behind a bar of the job
		next  time.Duration
	}{
		{nil, "|", never},
		{testKnobs{"PREEMPT": "1 > 2"}, "|", never},
		{testKnobs{"PREEMPT": "MY.Hot"}, "Hot|", never},
		{testKnobs{"PREEMPT": "MY.Hot", "WANT_SUSPEND": "true"}, "|", never},
		{testKnobs{"SUSPEND": "MY.Hot"}, "|", never},
		{testKnobs{"SUSPEND": "MY.Hot", "WANT_SUSPEND": "TARGET.May"}, "Hot|May", never},
		{testKnobs{"SUSPEND": "MY.LoadAvg > 2", "WANT_SUSPEND": "true"}, "LoadAvg|", 5 * time.Second},
		{testKnobs{"PREEMPT": "TARGET.ImageSize > 10000"}, "|ImageSize", 5 * time.Second},
		{testKnobs{"PREEMPT": "time() > 10000000000"}, "|", 5 * time.Second},
		{testKnobs{"PREEMPT": "random() < 0"}, "|", 5 * time.Second},
		{testKnobs{"PREEMPT": `SlotEval("slot2", State) == "Owner"`}, "slot2_State|", 5 * time.Second},
		{testKnobs{"PREEMPT": "MY.slot1_2_State == 7"}, "slot1_2_State|", 5 * time.Second},
		{testKnobs{"PREEMPT": "MY.slots_State == 7 || MY.SlotID == 99"}, "SlotID,slots_State|", never},
		{testKnobs{"PREEMPT": "MY.Aged", "POLLING_INTERVAL": "7"}, "Aged|", 7 * time.Second},
		{testKnobs{"PREEMPT": "TotalTimeClaimedBusy > 1"}, "|TotalTimeClaimedBusy", 5 * time.Second},
		{testKnobs{"IS_OWNER": "KeyboardIdle < 0", "CONTINUE": "LoadAvg < 1"}, "|", never},
		{testKnobs{"KILL": "LoadAvg < 1", "START": "LoadAvg < 1 || true", "RANK": "LoadAvg", "MaxJobRetirementTime": "LoadAvg"}, "|", never},
	} {
		b := newBench(t, test.knobs, func(c *Config) { c.Random = func() float64 { return 0.5 } })
		b.slot["LoadAvg"], b.slot["KeyboardIdle"] = "0", "100"
		if strings.Contains(test.knobs["PREEMPT"], "Aged") {
			b.slot["Aged"] = "time() > 10000000000" // by way of an attribute of the slot
		}
		b.busy(job("ImageSize = 10"))
		b.handle(Evaluate{})
		b.place(Place{Claimed, Busy})
		needs := b.m.Needs()
		if got := strings.Join(needs.My, ",") + "|" + strings.Join(needs.Target, ","); got != test.needs {
			t.Errorf("%v: needs %s; want %s", test.knobs, got, test.needs)
		}
		got := time.Duration(never)
		if n := b.m.Next(); !n.IsZero() {
			got = n.Sub(b.now)
		}
		if got != test.next || b.m.ChangesBySelf() != (test.next > 0) {
			t.Errorf("%v: next in %s; want %s", test.knobs, got, test.next)
		}
	}
}

// TestConstantCostsNothing: a slot whose policy is constant makes no ad when it
// is evaluated, and allocates nothing.
func TestConstantCostsNothing(t *testing.T) {
	b := newBench(t, testKnobs{"PREEMPT": "false", "START": "2 > 1", "MaxJobRetirementTime": "3600"})
	b.busy(job(""))
	b.handle(Evaluate{})
	b.made = 0
	j := b.m.Current().Job.(*testJob)
	j.made = 0
	var e Event = Evaluate{}
	if n := testing.AllocsPerRun(100, func() { b.m.Handle(b.now, e); b.m.Next(); b.m.Needs() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if b.made != 0 || j.made != 0 {
		t.Errorf("%d ads of the slot and %d of the job", b.made, j.made)
	}
	b.next(never)
}

// TestSlotAdMayAsk: the slot's ad may tell what an expression says that refers to
// that ad.
func TestSlotAdMayAsk(t *testing.T) {
	var m *Machine
	asked := 0
	m = New(Config{Policy: NewPolicy(testKnobs{"MaxJobRetirementTime": "MY.Limit + 1", "PREEMPT": "MY.Limit > 100"}), Slot: func() *classad.Ad {
		asked++
		m.RetirementRemaining(epoch)
		ad, _ := classad.ParseAd("[Limit = 99]")
		return ad
	}}, epoch)
	b := &bench{t: t, m: m, now: epoch, rows: map[int]bool{}, live: map[Number]bool{1: true}}
	b.busy(job(""))
	if got := m.RetirementRemaining(epoch); got != 100*time.Second || asked == 0 {
		t.Errorf("%s after %d", got, asked)
	}
	b.want(Evaluate{}, "")
}

// TestSetPolicy: a slot goes on under another policy.
func TestSetPolicy(t *testing.T) {
	b := newBench(t, nil)
	b.busy(job(""))
	b.want(Evaluate{}, "")
	b.next(never)
	p := NewPolicy(testKnobs{"PREEMPT": "LoadAvg > 2"})
	b.slot["LoadAvg"] = "1"
	b.m.SetPolicy(p)
	if b.m.Policy() != p || !b.m.Needs().Has("loadavg") {
		t.Error("the policy is another one")
	}
	b.want(Evaluate{}, "")
	b.next(5 * time.Second)
	b.slot["LoadAvg"] = "3"
	b.want(Evaluate{}, "13:Claimed/Retiring")
}

// TestDeletedRefuses: a slot that is no more answers whoever comes.
func TestDeletedRefuses(t *testing.T) {
	b := newBench(t, nil, dynamic)
	b.want(Evaluate{}, "0:Deleted")
	b.want(Activate{1, job("")}, "Refused #1 1034")
	b.want(Deactivate{1, Graceful}, "Refused #1 1034")
	b.want(FetchEnded{job("")}, "Refused 1034")
	b.want(FetchEnded{}, "")
	b.want(Vacate{}, "")
}

// TestNoAds: a machine without ads and knobs works as well.
func TestNoAds(t *testing.T) {
	m := New(Config{}, epoch)
	m.Handle(epoch, Request{Claim: 1, Job: JobOf(nil)})
	m.Handle(epoch, Activate{Claim: 1, Job: JobOf(nil)})
	if m.Place() != (Place{Claimed, Busy}) || m.Policy() == nil {
		t.Errorf("the slot is %s", m.Place())
	}
	m.Handle(epoch, Vacate{})
	if m.VacateTime(epoch) != 600*time.Second {
		t.Error(m.VacateTime(epoch))
	}
}
