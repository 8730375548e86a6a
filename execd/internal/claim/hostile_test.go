package claim

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/slot"
	"paddock/spool/spooltest"
)

// evictions returns what sources are told, and what is written to the log, and forgets
// the rest.
func (d *desk) evictions() (list []Eviction, log string) {
	for _, e := range d.Effects() {
		switch e.Do {
		case Evict:
			list = append(list, e.Eviction)
		case Say:
			log += e.Text + "\n"
		}
	}
	return list, log
}

// Better work may come to nothing while other work runs, since the disk is full or its
// job cannot be recorded. That is not told as the end of the work that runs.
func TestEvictionNamesItsOwnJob(t *testing.T) {
	for what, fail := range map[string]func(*desk, Granted){
		"the disk is full": func(d *desk, g Granted) {
			f := spooltest.InjectFrom(d.T, 1, unix.ENOSPC)
			if err := d.Keep(g.ID); err == nil {
				d.Error("a claim is kept on a full disk")
			}
			f.Restore()
		},
		"its job is not recorded": func(d *desk, g Granted) {
			if err := d.Keep(g.ID); err != nil {
				d.Fatal(err)
			}
			d.Withdraw(g.ID.String(), slot.Hold{Text: "no more work"})
		},
	} {
		d := newDesk(t, "RANK = TARGET.Wanted =?= true ? 1 : 0\nMaxJobRetirementTime = 3600\n")
		first, err := d.Offer(slot.Static(1), ad(t, plainJob))
		if err == nil {
			err = d.Keep(first.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		d.run(first, "7.1")
		better, err := d.Offer(slot.Static(1), ad(t, `[JobUniverse = 5; Owner = "u"; Wanted = true]`))
		if err != nil || !better.Waiting {
			t.Fatalf("%s: better work: %+v, %v; want it to wait", what, better, err)
		}
		d.Effects()
		fail(d, better)
		list, _ := d.evictions()
		if len(list) != 1 || !list[0].ID.Equal(better.ID) || list[0].Job != 0 {
			t.Errorf("%s: evictions %+v; want the one of the better work, without the job that runs", what, list)
		}
		if v, _ := d.Snapshot(slot.Static(1), false); !v.ID.Equal(first.ID) || v.Task != "7.1" {
			t.Errorf("%s: slot 1 is %+v; want what runs left alone", what, v)
		}
	}
}

// A claim that is refused since its file cannot be made durable has no file either: a
// restart would find a claim of which nobody has the id.
func TestRefusedClaimIsNotFoundAgain(t *testing.T) {
	spooltest.EachFault(t, unix.ENOSPC,
		func(t *testing.T) *desk { return newDesk(t, "") },
		func(_ *testing.T, d *desk) error {
			g, err := d.Request(Request{Slot: slot.Static(1), Holder: "alice", By: alice})
			if err != nil {
				d.Fatal(err)
			}
			return d.Keep(g.ID)
		},
		func(t *testing.T, d *desk, got error) {
			d.T = t
			d.carry()
			if kept := len(d.files()) == 1; kept != (got == nil) {
				t.Errorf("Keep returned %v, and there are the files %v", got, d.files())
			}
			if got != nil && d.Managed() {
				t.Error("the slot of a claim that there is not is still managed")
			}
		})
}

// A claim that is too large to be read after a restart is refused when it is written.
func TestClaimTooLargeToBeFoundAgain(t *testing.T) {
	d := newDesk(t, "")
	var attrs []classad.Attr
	for i := range 60 { // each character is six bytes in the file
		attrs = append(attrs, classad.Attr{Name: "A" + string(rune('A'+i%26)) + strings.Repeat("x", i), Expr: classad.String(strings.Repeat("<", 60<<10)).Expr()})
	}
	g, err := d.Offer(slot.Static(1), classad.New(attrs...))
	if err != nil {
		t.Fatal(err)
	}
	err = d.Keep(g.ID)
	d.carry()
	d.again("", d.now)
	v, _ := d.Snapshot(slot.Static(1), false)
	if found := v.ID.Equal(g.ID); found != (err == nil) {
		t.Errorf("Keep returned %v, and after a restart the claim is found: %v", err, found)
	}
}

// The table remembers a bounded number of those who ask for the end of one job.
func TestManyWaitForTheEnd(t *testing.T) {
	d := newDesk(t, "")
	g := d.claim(Request{Slot: slot.Static(1)})
	slots := d.run(g, "7.1")
	var first <-chan api.Permit
	for i := range maxPermits {
		c, err := d.DeactivateClaim(g.ID, alice, slot.JobDone)
		if err != nil {
			t.Fatalf("the %dth: %v", i+1, err)
		}
		if first == nil {
			first = c
		}
	}
	if _, err := d.DeactivateClaim(g.ID, alice, slot.JobDone); api.RefusalOf(err) != api.RefusedTryAgain {
		t.Errorf("one more: %v; want it refused for now", err)
	}
	d.Deactivate(slots)
	select {
	case p := <-first:
		if !p.Start {
			t.Errorf("permit %+v; want another job to be started", p)
		}
	default:
		t.Error("the first has no answer")
	}
	if _, err := d.DeactivateClaim(g.ID, alice, slot.JobDone); err != nil {
		t.Errorf("when the job is gone: %v", err)
	}
}

// A holder who waits for the end of his job is not told of it early, though another,
// whose claim waits for the same slot, asks for it and is refused.
func TestRefusalIsForWhoAsked(t *testing.T) {
	d := newDesk(t, "MaxJobRetirementTime = 3600\n")
	busy := d.claim(Request{Slot: slot.Static(1)})
	slots := d.run(busy, "7.1")
	done, err := d.DeactivateClaim(busy.ID, alice, slot.JobDone)
	if err != nil {
		t.Fatal(err)
	}
	waits := d.claim(Request{Slot: slot.Static(1), Priority: 1})
	if !waits.Waiting {
		t.Fatalf("the second claim: %+v; want it to wait", waits)
	}
	_, err = d.DeactivateClaim(waits.ID, alice, slot.JobDone)
	d.refused("the end of a job that another has", err, api.RefusedUnknown)
	select {
	case p := <-done:
		t.Fatalf("while the job runs who waits for its end is told %+v", p)
	default:
	}
	d.Deactivate(slots)
	select {
	case <-done:
	default:
		t.Error("who waits for the end of the job is not told of it")
	}
}

// Execd ends while a claim waits for a slot that another has. After the restart the
// claim whose job runs there has the slot, whichever number it has, and also when the
// clock was set back between the two.
func TestRestartWhileAClaimWaits(t *testing.T) {
	for _, back := range []time.Duration{0, time.Hour} {
		t.Run(back.String(), func(t *testing.T) { testRestartWhileAClaimWaits(t, back) })
	}
}

func testRestartWhileAClaimWaits(t *testing.T, back time.Duration) {
	const policy = "MaxJobRetirementTime = 3600\n"
	d := newDesk(t, policy)
	for range 8 { // so that the numbers have one digit and two
		g := d.claim(Request{Slot: slot.Static(2)})
		if _, err := d.Order(g.ID, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} }); err != nil {
			t.Fatal(err)
		}
		d.carry()
	}
	busy := d.claim(Request{Slot: slot.Static(1)})
	d.run(busy, "7.1")
	adopt := func() []*Slot {
		return d.Adopt("7.1", []schedule.QueueSlots{{Queue: "a.q", Slots: 1}}, busy.ID.String(), noon, slot.JobOf(ad(t, plainJob)), nil, nil)
	}
	if back > 0 {
		d.now = noon.Add(-back)
		d.again(policy, d.now)
		adopt()
	}
	waits := d.claim(Request{Slot: slot.Static(1), Priority: 1})
	if !waits.Waiting || len(d.files()) != 2 {
		t.Fatalf("the second claim: %+v, files %v; want it to wait", waits, d.files())
	}
	d.again(policy, noon.Add(time.Minute))
	slots := adopt()
	d.carry()
	if v, _ := d.Snapshot(slot.Static(1), false); len(slots) != 1 || v.Task != "7.1" || !v.ID.Equal(busy.ID) {
		t.Errorf("slot 1 is %+v; want the job in it, under its claim", v)
	}
	if files := d.files(); len(files) != 1 {
		t.Errorf("claims are %v; want the one that has the slot", files)
	}
}

// The reason why fetched work lost its claim is in the words of whoever gave it back,
// and in the slot's where somebody has taken it.
func TestReasonOfTheEnd(t *testing.T) {
	for _, tt := range []struct {
		end  func(*desk, Granted)
		want string
		code int
	}{
		{func(d *desk, g Granted) { d.Withdraw(g.ID.String(), slot.Hold{Text: "no more work"}) }, "no more work", int(slot.ReasonReleased)},
		{func(d *desk, g Granted) { d.Withdraw(g.ID.String(), slot.Hold{Code: 19, Text: "its hook"}) }, "its hook", 19},
		{func(d *desk, g Granted) {
			d.Lend(g.ID, time.Minute, time.Hour)
			d.now = d.now.Add(time.Minute)
			d.Tick()
		}, "its lease is over", int(slot.ReasonReconnectFailed)},
		{func(d *desk, _ Granted) {
			if _, err := d.Vacate([]slot.ID{slot.Static(1)}, true, slot.ReasonVacateCommand); err != nil {
				d.Fatal(err)
			}
		}, slot.ReasonVacateCommand.String(), int(slot.ReasonVacateCommand)},
	} {
		d := newDesk(t, "")
		g, err := d.Offer(slot.Static(1), ad(t, plainJob))
		if err != nil {
			t.Fatal(err)
		}
		tt.end(d, g)
		list, log := d.evictions()
		if len(list) != 1 || list[0].Reason != tt.want || list[0].Code != tt.code {
			t.Errorf("evictions %+v; want one because of %q, with the code %d", list, tt.want, tt.code)
		}
		if !strings.Contains(log, tt.want) {
			t.Errorf("the log says\n%swant %q in it", log, tt.want)
		}
	}
}

// The same holds where the job that runs there is the queue's, which has no claim on
// disk: in a static slot and in a dynamic one. The claim that waited longest has the slot
// when the other has left meanwhile.
func TestRestartWhileAClaimWaitsForTheQueue(t *testing.T) {
	const policy = "RANK = TARGET.Wanted =?= true ? 1 : 0\nMaxJobRetirementTime = 3600\n"
	better := ad(t, `[JobUniverse = 5; Owner = "u"; Wanted = true; RequestCpus = 1; RequestMemory = 1; RequestDisk = 1]`)
	j := slot.JobOf(ad(t, plainJob))
	grant := []schedule.QueueSlots{{Queue: "a.q", Slots: 1}}

	d := newDesk(t, policy)
	gone := d.Activate("6.1", grant, j)
	d.Activate("7.1", grant, j)
	has, err := d.Offer(slot.Static(1), better)
	if err == nil {
		err = d.Keep(has.ID)
	}
	d.now = d.now.Add(time.Second)
	waits := d.claim(Request{Slot: slot.Static(2), Ad: better})
	if err != nil || !has.Waiting || !waits.Waiting {
		t.Fatalf("claims %+v, %v and %+v; want both to wait", has, err, waits)
	}
	d.Deactivate(gone)
	for _, e := range d.Effects() {
		if e.Do == Rewrite {
			if err := d.File(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.again(policy, noon.Add(time.Minute))
	slots := d.Adopt("7.1", grant, "", noon, j, nil, nil)
	if v, _ := d.Snapshot(slot.Static(2), false); len(slots) != 1 || v.Task != "7.1" || v.Holder != "queue" {
		t.Errorf("slot 2 is %+v; want the job in it", v)
	}
	if v, _ := d.Snapshot(slot.Static(1), false); !v.ID.Equal(has.ID) {
		t.Errorf("slot 1 is %+v; want it to be whose it was", v)
	}
	if list, _ := d.evictions(); len(list) != 0 {
		t.Errorf("told %+v; want nobody told of the end of work that is offered anew", list)
	}

	d = newParted(t, policy)
	run := d.Activate("8.1", grantOf(1), j)
	again := d.claim(Request{Slot: slot.ID{Number: 1, Dynamic: 1}, Ad: better})
	if !again.Waiting {
		t.Fatalf("claim %+v; want it to wait", again)
	}
	before, carved := d.slots(), Carved(run)
	d.parted(policy, parted)
	d.Adopt("8.1", grantOf(1), "", noon, j, carved, nil)
	if d.carry(); d.slots() != before || len(d.files()) != 0 {
		t.Errorf("slots %s, files %v; want %s, and no claim", d.slots(), d.files(), before)
	}
}
