package claim

import (
	"slices"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/slot"
)

// port is a desk with output that leaves.
type port struct {
	*desk
	leaving []job.Leaving
	most    int
	room    int64
}

func newPort(t *testing.T, partitionable bool) *port {
	t.Helper()
	p := &port{desk: newDesk(t, ""), most: 2, room: plenty}
	p.Table = NewTable([]conf.Queue{{Name: "a.q", Slots: 2, Partitionable: partitionable}, {Name: "b.q", Slots: 1}}, "queue")
	err := p.Manage(Options{
		Host: "node", Boot: noon, Store: NewStore(p.root), Now: func() time.Time { return p.now },
		Ad:      func(*Info) *classad.Ad { return classad.New() },
		Leaving: func() []job.Leaving { return slices.Clone(p.leaving) },
		Most:    func() int { return p.most }, Room: func() int64 { return p.room },
		Share: func(_ string, n int) slot.Resources {
			return slot.Resources{Cpus: int64(n), Memory: plenty, Disk: p.room + kib(p.leaving)}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// leaves has the task of slots end, with output that is on its way.
func (p *port) leaves(task, claim string, slots []*Slot) {
	s := slots[0]
	p.leaving = append(p.leaving, job.Leaving{Task: task, Claim: claim, Queue: s.Queue, Slot: s.Index, Dynamic: s.Dynamic, KiB: 100, Travels: true})
	p.Deactivate(slots)
}

// arrives has the output arrive of a task.
func (p *port) arrives(task string) {
	p.leaving = slices.DeleteFunc(p.leaving, func(l job.Leaving) bool { return l.Task == task })
	p.Traffic()
}

var oneOfA = []schedule.QueueSlots{{Queue: "a.q", Slots: 1}}

// REQ-XFER-38, REQ-XFER-39, REQ-XFER-102: two outputs of a slot of the queue may be on their
// way while another job runs there. Then the slot stands in the books until one has arrived,
// other slots and claims of others are as ever, and what waits for somebody to look does not
// count.
func TestSlotOfTheQueueIsCrowded(t *testing.T) {
	p := newPort(t, false)
	other := p.Activate("9.1", []schedule.QueueSlots{{Queue: "a.q", Slots: 1}}, nil) // slot 1
	j := slot.JobOf(ad(t, plainJob))
	for _, task := range []string{"11.1", "14.1"} {
		slots := p.Activate(task, oneOfA, j)
		if slots == nil || slots[0].Index != 2 {
			t.Fatalf("%s has %v; want slot 2", task, slots)
		}
		if p.Managed() {
			t.Errorf("%s: slots are managed already", task)
		}
		p.leaves(task, "", slots)
	}
	want := Kept{Serial: 1, Queue: "a.q", Slots: 1, Why: "slot2: output of 11.1 and 14.1 still travels"}
	if books := p.Books(); len(books) != 1 || books[0] != want {
		t.Errorf("books %+v; want %+v", books, want)
	}
	if slots := p.Activate("15.1", oneOfA, j); slots != nil {
		t.Errorf("another job has slot %v", slots[0].id())
	}
	if n, why, _ := p.Willing("a.q", j, 1); n != 0 || why != want.Why {
		t.Errorf("%d slots are willing, %q", n, why)
	}
	p.Deactivate(other)
	if slots := p.Activate("15.1", oneOfA, j); slots == nil || slots[0].Index != 1 {
		t.Error("the other slot takes no job")
	}
	g := p.claim(Request{Slot: slot.Static(2)})
	if err := start(p, g); err != nil {
		t.Errorf("a claim begins with no output, and is refused: %v", err)
	}
	p.Unstarted(g.ID)
	release(p, g)

	p.arrives("11.1")
	if books := p.Books(); len(books) != 1 || books[0].Slots != 0 || p.Managed() {
		t.Errorf("books %+v; want that the slot is plain again", books)
	}
	p.leaves("16.1", "", p.Activate("16.1", oneOfA, j))
	p.leaving[0].Travels = false // it waits for somebody to look
	p.Traffic()
	if p.Managed() {
		t.Error("what does not travel counts")
	}
	p.leaving[0].Travels, p.most = true, 3
	p.Traffic()
	if p.Managed() {
		t.Error("three may travel, and two are too many")
	}
	p.most = 1
	p.Configure(slot.NewPolicy(nil), nil)
	if !p.Managed() {
		t.Error("one may travel, and two are not too many")
	}
}

func start(p *port, g Granted) error {
	_, _, err := p.Starting(g.ID, alice)
	return err
}

func release(p *port, g Granted) {
	p.Helper()
	if _, err := p.Order(g.ID, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} }); err != nil {
		p.Fatal(err)
	}
}

// REQ-XFER-19, REQ-XFER-24, REQ-XFER-38, REQ-XFER-102: the third activation of a claim is
// refused for a while, and the claim stays. Who waits is woken up when output has arrived.
// The claim can be released meanwhile, and does not end what is on its way.
func TestClaimIsCrowded(t *testing.T) {
	p := newPort(t, false)
	g := p.claim(Request{Slot: slot.Static(3)})
	for n, task := range []string{"1.1", "2.1"} {
		if permit, _, err := p.Check(g.ID, alice); err != nil || permit.Crowded {
			t.Fatalf("with %d outputs: %+v, %v", n, permit, err)
		}
		if err := start(p, g); err != nil {
			t.Fatal(err)
		}
		p.leaves(task, g.ID.String(), p.run(g, task))
		if p.place(3) != "Claimed/Idle" {
			t.Errorf("the slot is %s", p.place(3))
		}
	}
	err := start(p, g)
	p.refused("the third", err, api.RefusedTryAgain)
	if err == nil || err.Error() != "two outputs of the claim still travel" {
		t.Errorf("%v", err)
	}
	if v, _ := p.Snapshot(slot.Static(3), false); !v.Full || v.Closed {
		t.Errorf("view %+v; want it to be full and not closed", v)
	}
	permit, changed, err := p.Check(g.ID, alice)
	if err != nil || !permit.Start || !permit.Crowded {
		t.Errorf("%+v, %v; want that it may start later", permit, err)
	}
	if did := p.carry(); did != "" {
		t.Errorf("did %s", did)
	}
	p.arrives("1.1")
	select {
	case <-changed:
	default:
		t.Error("who waits is not woken up")
	}
	if err := start(p, g); err != nil {
		t.Errorf("one has arrived: %v", err)
	}
	p.Unstarted(g.ID)
	release(p, g)
	if len(p.leaving) != 1 || p.Managed() {
		t.Errorf("the claim is over, and %d outputs are on their way", len(p.leaving))
	}
	next := p.claim(Request{Slot: slot.Static(3)})
	if err := start(p, next); err != nil {
		t.Errorf("the next claim: %v", err)
	}
}

// REQ-XFER-26, REQ-XFER-76, REQ-XFER-105: what leaves a slot that was carved is in what the
// slot has as long as its claim is there, and is taken off from what is left of the
// partitionable slot after that, so that it counts once and comes back at the end. Nobody
// is promised more than is free.
func TestDiskOfOutputThatLeaves(t *testing.T) {
	p := newPort(t, true)
	p.room = 10240
	left := func(want int64) {
		t.Helper()
		p.Traffic()
		v, _ := p.Snapshot(slot.Static(1), false)
		if v.Has.Disk != want {
			t.Errorf("%d KiB are left; want %d", v.Has.Disk, want)
		}
	}
	left(10240)
	g := p.claim(Request{Slot: slot.Static(1), Ad: ad(t, "[RequestDisk = 2048]")})
	left(8192)
	if err := start(p, g); err != nil {
		t.Fatal(err)
	}
	slots := p.run(g, "1.1")
	p.room -= 1000 // that the job has written
	p.leaves("1.1", g.ID.String(), slots)
	p.leaving[0].KiB = 1000
	left(8192)
	info := slots[0].managed.info()
	if len(info.Leaving) != 1 || info.Has.Disk != 2048 {
		t.Errorf("the carved slot has %+v, out of which %+v leaves", info.Has, info.Leaving)
	}
	p.leaving[0].KiB = 1 << 40 // which its owner may say
	left(9240)
	p.leaving[0].KiB = 1000
	release(p, g)
	left(9240)
	if in := p.queues["a.q"].part.parent.managed.info(); len(in.Leaving) != 1 || in.Total.Disk != 10240 {
		t.Errorf("of %+v %+v leaves", in.Total, in.Leaving)
	}
	p.room += 1000 // it is removed
	p.arrives("1.1")
	left(10240)

	// Jobs of the queue leave no slot behind, and count together.
	j := slot.JobOf(ad(t, plainJob))
	for _, task := range []string{"2.1", "3.1", "4.1", "5.1"} {
		p.leaves(task, "", p.Activate(task, oneOfA, j))
	}
	if slots := p.Activate("6.1", oneOfA, j); slots != nil {
		t.Error("four outputs are on their way out of two Cpus, and another job runs")
	}
	if _, why, _ := p.Willing("a.q", j, 1); why != "slot1: output of 2.1, 3.1, 4.1 and 5.1 still travels" {
		t.Errorf("since %q", why)
	}
	p.arrives("3.1")
	if p.Activate("6.1", oneOfA, j) == nil {
		t.Error("one has arrived, and no job runs")
	}
}

// A host is drained when no output is on its way. What waits for somebody to look does not
// hold that up.
func TestDrainWaitsForOutput(t *testing.T) {
	p := newPort(t, false)
	slots := p.Activate("1.1", oneOfA, nil)
	p.Drain(&slot.Drain{Speed: slot.DrainGraceful})
	p.leaves("1.1", "", slots)
	if p.place(1) != "Drained/Retiring" {
		t.Errorf("slot 1 is %s", p.place(1))
	}
	p.leaving[0].Travels = false
	p.Traffic()
	if p.place(1) != "Drained/Idle" {
		t.Errorf("nothing is on its way, and slot 1 is %s", p.place(1))
	}
	p.leaving[0].Travels = true
	p.arrives("1.1")
}
