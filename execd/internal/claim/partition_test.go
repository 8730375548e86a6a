package claim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/conf/knob/knobtest"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/slot"
	"paddock/spool"
)

// parted is a queue of four slots that is one, of 1000 MB and 10000 KiB for each, and
// one of a slot for itself.
var parted = []conf.Queue{{Name: "p.q", Slots: 4, Partitionable: true}, {Name: "b.q", Slots: 1}}

// newParted has a table of these queues, with a policy.
func newParted(t *testing.T, policy string) *desk {
	t.Helper()
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{T: t, now: noon, root: root}
	d.parted(policy, parted)
	return d
}

// parted has a new table on the same spool, as after a restart of execd.
func (d *desk) parted(policy string, queues []conf.Queue) {
	d.Helper()
	knobs := knobtest.Parse(d, policy)
	d.Table = NewTable(queues, "queue")
	err := d.Manage(Options{
		Host: "node", Boot: d.now, Store: NewStore(d.root), Now: func() time.Time { return d.now }, Ad: partAd,
		Uptime: func() time.Duration { return time.Hour + d.now.Sub(noon) }, BootID: "00000000-0000-0000-0000-000000000000",
		Share: func(_ string, n int) slot.Resources {
			return slot.Resources{Cpus: int64(n), Memory: int64(n) * 1000, Disk: int64(n) * 10000}
		},
	})
	if err != nil {
		d.Fatal(err)
	}
	d.Configure(slot.NewPolicy(knobs), nil)
}

// partAd is the ad of a slot, as far as it says how it is cut.
func partAd(in *Info) *classad.Ad {
	number := func(name string, n int64) classad.Attr { return classad.Attr{Name: name, Expr: classad.Int(n).Expr()} }
	list := []classad.Attr{{Name: "SlotType", Expr: classad.String(in.Type).Expr()}, number("SlotID", int64(in.Slot.Number)), number("DSlotID", int64(in.Slot.Dynamic))}
	if in.Type != Static {
		list = append(list, number("Cpus", in.Has.Cpus), number("Memory", in.Has.Memory), number("Disk", in.Has.Disk), number("GPUs", in.Has.GPUs), number("TotalSlotCpus", in.Total.Cpus), number("Children", int64(len(in.Children))))
	}
	return classad.New(list...)
}

// work is a job that requests something.
func work(t *testing.T, cpus, memory int) *classad.Ad {
	t.Helper()
	return ad(t, fmt.Sprintf("[JobUniverse = 5; Owner = \"u\"; RequestCpus = %d; RequestMemory = %d; RequestDisk = 1]", cpus, memory))
}

// slots returns the names of all slots, with the state of each and the Cpus that it
// has if it says so.
func (d *desk) slots() string {
	d.Helper()
	var words []string
	for _, v := range d.Views(false) {
		words = append(words, fmt.Sprintf("%v:%s:%d", v.Slot, v.State, v.Has.Cpus))
	}
	list, _ := d.List()
	if len(list) != len(words) {
		d.Errorf("%v are listed, %v are seen", list, words)
	}
	return strings.Join(words, " ")
}

// left checks what is left of slot 1 against what was carved out of it.
func (d *desk) left() slot.Resources {
	d.Helper()
	var has slot.Resources
	var whole slot.Resources
	for _, v := range d.Views(false) {
		if v.Slot.Number != 1 {
			continue
		}
		if v.Type == Partitionable {
			has = v.Has
		}
		if v.Has.Cpus < 0 || v.Has.Memory < 0 || v.Has.Disk < 0 {
			d.Errorf("slot %v has %+v", v.Slot, v.Has)
		}
		whole.Add(v.Has)
	}
	if total := (slot.Resources{Cpus: 4, Memory: 4000, Disk: 40000}); whole != total {
		d.Errorf("the slots have %+v together; want %+v: %s", whole, total, d.slots())
	}
	return has
}

// one is a grant of slots of the partitionable queue.
func grantOf(slots int) []schedule.QueueSlots {
	return []schedule.QueueSlots{{Queue: "p.q", Slots: slots}}
}

// PSLOT: jobs of the queue run in slots of their own, which are carved for them and
// gone with them; the reason why no more start names what is scarce.
func TestQueueCarves(t *testing.T) {
	d := newParted(t, "")
	if got := d.slots(); got != "1:Unclaimed:4 2:Claimed:0" || d.Slots() != 5 || !d.Managed() {
		t.Fatalf("slots %s, %d of them, managed %v", got, d.Slots(), d.Managed())
	}
	small, big := slot.JobOf(work(t, 1, 100)), slot.JobOf(work(t, 1, 2500))
	if n, why, _ := d.Willing("p.q", small, 9); n != 4 || why != "of slot1: too little Cpus is left" {
		t.Errorf("willing %d, %q; want four", n, why)
	}
	if n, why, _ := d.Willing("p.q", big, 9); n != 1 || why != "of slot1: too little Memory is left" {
		t.Errorf("willing %d, %q; want one", n, why)
	}
	_, listed := d.List()
	changed := d.Changed(slot.Static(1))
	first := d.Activate("7.1", grantOf(1), big)
	for what, c := range map[string]<-chan struct{}{"other slots": listed, "what is left": changed} {
		select {
		case <-c:
		default:
			t.Errorf("nobody is told of %s", what)
		}
	}
	more := d.Activate("8.1", grantOf(2), small)
	if len(first) != 1 || len(more) != 2 || first[0].Dynamic != 1 || more[1].Dynamic != 3 {
		t.Fatalf("run on %+v and %+v", first, more)
	}
	if got := d.slots(); got != "1:Unclaimed:1 1_1:Claimed:1 1_2:Claimed:1 1_3:Claimed:1 2:Claimed:0" {
		t.Errorf("slots %s", got)
	}
	if left := d.left(); left != (slot.Resources{Cpus: 1, Memory: 4000 - 2560 - 256, Disk: 40000 - 3*1024}) {
		t.Errorf("%+v is left", left)
	}
	if n, why, _ := d.Willing("p.q", big, 1); n != 0 || why != "of slot1: too little Memory is left" {
		t.Errorf("willing %d, %q; want too little memory", n, why)
	}
	if books := d.Books(); len(books) != 0 {
		t.Errorf("books %+v; the scheduler has these slots", books)
	}
	if v, ok := d.Snapshot(slot.ID{Number: 1, Dynamic: 2}, true); !ok || v.Name != "slot1_2@node" || v.Task != "8.1" || v.Type != Dynamic || v.Holder != "queue" {
		t.Errorf("slot1_2 is %+v", v)
	}
	d.Deactivate(first)
	if got := d.slots(); got != "1:Unclaimed:2 1_2:Claimed:1 1_3:Claimed:1 2:Claimed:0" {
		t.Errorf("slots %s; want the first gone", got)
	}
	if c := d.Activate("9.1", grantOf(1), small); len(c) != 1 || c[0].Dynamic != 1 {
		t.Errorf("the next has %+v; want the number that is free", c)
	}
	// A parallel job that does not fit as a whole has nothing.
	if c := d.Activate("10.1", grantOf(2), small); c != nil {
		t.Errorf("%+v run where there is room for one", c)
	}
	d.Deactivate(more)
	if d.left().Cpus != 3 || d.Busy() != 1 {
		t.Errorf("%+v is left, %d are busy", d.left(), d.Busy())
	}
}

// PSLOT: START sees the slot with what is left, before it is carved.
func TestStartSeesWhatIsLeft(t *testing.T) {
	d := newParted(t, "START = SlotID != 1 || MY.SlotType == \"Partitionable\" && MY.Cpus > 2\n")
	j := slot.JobOf(work(t, 1, 1))
	if n, why, _ := d.Willing("p.q", j, 9); n != 2 || why != "START of slot1 is false" {
		t.Errorf("willing %d, %q; want two", n, why)
	}
	if c := d.Activate("7.1", grantOf(2), j); len(c) != 2 {
		t.Fatalf("runs on %+v", c)
	}
	if n, why, _ := d.Willing("p.q", j, 9); n != 0 || why != "START of slot1 is false" {
		t.Errorf("willing %d, %q; want none", n, why)
	}
	if c := d.Activate("8.1", grantOf(1), j); c != nil || d.left().Cpus != 2 {
		t.Errorf("runs on %+v, %+v is left", c, d.left())
	}
	_, err := d.Request(Request{Slot: slot.Static(1), Ad: work(t, 1, 1), By: alice, Holder: "alice"})
	d.refused("a claim that START refuses", err, api.RefusedRequirements)
	if _, err = d.Offer(slot.Static(1), work(t, 1, 1)); api.RefusalOf(err) != api.RefusedRequirements {
		t.Errorf("work that START refuses: %v", err)
	}
	if d.left().Cpus != 2 {
		t.Errorf("%+v is left after refusals", d.left())
	}
}

// PSLOT: a holder who carves has no claim on what is left where START refuses it.
func TestNoLeftOvers(t *testing.T) {
	d := newParted(t, "START = MY.Cpus > 3\n")
	if g := d.claim(Request{Slot: slot.Static(1), Ad: work(t, 1, 1), LeftOvers: true}); g.LeftOvers != nil {
		t.Errorf("granted %+v", g.LeftOvers)
	}
	d.Configure(slot.NewPolicy(nil), nil)
	if n, why, _ := d.Willing("p.q", slot.JobOf(work(t, 1, 1)), 9); n != 3 {
		t.Errorf("willing %d, %q; want all that is left", n, why)
	}
	bad := slot.JobOf(ad(t, "[RequestCpus = -1]"))
	if n, why, _ := d.Willing("p.q", bad, 1); n != 0 || why != "of slot1: the job's RequestCpus is -1" {
		t.Errorf("willing %d, %q", n, why)
	}
	if slots := d.Adopt("2.1", grantOf(1), "", noon, bad, nil, nil); len(slots) != 1 || slots[0].has.Cpus != 1 {
		t.Errorf("runs on %+v; want a slot of one CPU", slots)
	}
}

// PSLOT: a claim of three CPUs is three slots of the queue in the scheduler's books,
// whether something runs there or not.
func TestClaimCarves(t *testing.T) {
	d := newParted(t, "")
	g := d.claim(Request{Slot: slot.Static(1), Ad: work(t, 3, 300), Lease: time.Hour})
	if g.Slot != (slot.ID{Number: 1, Dynamic: 1}) || g.Name != "slot1_1@node" || g.LeftOvers != nil {
		t.Fatalf("granted %+v", g)
	}
	if books := d.Books(); len(books) != 1 || books[0].Slots != 3 || books[0].Queue != "p.q" {
		t.Errorf("books %+v; want three slots", books)
	}
	if n, _, _ := d.Willing("p.q", slot.JobOf(work(t, 1, 1)), 9); n != 1 {
		t.Errorf("%d slots are left for the queue; want one", n)
	}
	slots := d.run(g, "7.1")
	if books := d.Books(); len(books) != 1 || books[0].Slots != 2 {
		t.Errorf("books %+v; want two beside that of the task", books)
	}
	d.Deactivate(slots)
	if books := d.Books(); len(books) != 1 || books[0].Slots != 3 || d.left().Cpus != 1 {
		t.Errorf("books %+v, %+v is left; want the claim to be there", books, d.left())
	}
	// What runs there next has to fit.
	if _, err := d.Table.Run(g.Slot, g.ID.String(), "8.1", slot.JobOf(work(t, 4, 1))); api.RefusalOf(err) != api.RefusedRequirements {
		t.Errorf("a job of four CPUs in a slot of three: %v", err)
	}
	_, err := d.Request(Request{Slot: slot.Static(1), Ad: work(t, 2, 1), By: bob, Holder: "bob"})
	d.refused("more than is left", err, api.RefusedRequirements)
	if other := d.claim(Request{Ad: work(t, 1, 1)}); other.Slot != (slot.ID{Number: 1, Dynamic: 2}) {
		t.Errorf("any slot is %v", other.Slot)
	}
	if _, err := d.Order(g.ID, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} }); err != nil {
		t.Fatal(err)
	}
	if books := d.Books(); len(books) != 2 || books[0].Slots != 0 || books[1].Slots != 1 || d.left().Cpus != 3 {
		t.Errorf("books %+v, %+v is left", books, d.left())
	}
	if _, ok := d.Snapshot(g.Slot, false); ok {
		t.Error("the slot is there after its claim")
	}
}

// REQ-HOOK-106, REQ-HOOK-119: fetched work names what it requests, and has its slot
// when Offer returns; the slot asks for itself when the work is done.
func TestFetchCarves(t *testing.T) {
	d := newParted(t, "")
	parent := slot.Static(1)
	_, err := d.Offer(parent, ad(t, plainJob))
	if err == nil || !strings.Contains(err.Error(), "cannot carve slot1: the work has no RequestCpus") {
		t.Errorf("work that requests nothing: %v", err)
	}
	g, err := d.Offer(parent, work(t, 4, 100))
	if err != nil || g.Slot != (slot.ID{Number: 1, Dynamic: 1}) || g.Waiting {
		t.Fatalf("offered: %+v, %v", g, err)
	}
	if n, ok := (&classad.Env{My: g.Ad}).Attr("Cpus").Int(); !ok || n != 4 {
		t.Errorf("the ad of the slot is %v", g.Ad)
	}
	if v, _ := d.Snapshot(parent, true); !v.Closed || v.State != "Unclaimed" {
		t.Errorf("slot 1 is %+v; want it closed, as nothing is left", v)
	}
	if _, err := d.Offer(parent, work(t, 1, 1)); err == nil || !strings.Contains(err.Error(), "too little Cpus is left") {
		t.Errorf("more work: %v", err)
	}
	if now, public, err := d.Promise(g.Slot, &job.Job{Number: 7, Submitter: &job.Submitter{}, Origin: &job.Origin{}}); !now || public != g.ID.String() || err != nil {
		t.Errorf("promised: %v, %s, %v", now, public, err)
	}
	slots := d.run(g, "7.1")
	d.Deactivate(slots)
	d.Asking(g.Slot, true)
	if _, err := d.Offer(g.Slot, work(t, 5, 1)); err == nil {
		t.Error("work is accepted that does not fit")
	}
	if got := d.slots(); got != "1:Unclaimed:0 1_1:Owner:4 2:Claimed:0" {
		t.Errorf("slots %s; want the claim over, and its name not another's while who asked has not done", got)
	}
	if d.Asking(g.Slot, false); d.left().Cpus != 4 {
		t.Errorf("%s; want the slot gone", d.slots())
	}
	// The slot stays as long as an answer is on its way, and no longer.
	g, err = d.Offer(parent, work(t, 2, 100))
	if err != nil {
		t.Fatal(err)
	}
	d.run(g, "8.1")
	d.Asking(g.Slot, true)
	d.Withdraw(g.ID.String(), slot.Hold{Text: "no more work"})
	s := d.at(g.Slot)
	d.Deactivate([]*Slot{s})
	if got := d.slots(); got != "1:Unclaimed:2 1_1:Owner:2 2:Claimed:0" {
		t.Errorf("slots %s; want the slot to wait for the answer", got)
	}
	d.Asking(g.Slot, false)
	if got := d.slots(); got != "1:Unclaimed:4 2:Claimed:0" {
		t.Errorf("slots %s; want the slot gone", got)
	}
	d.Asking(g.Slot, true) // of a slot that is gone
}

// PSLOT: a holder who carves may have a claim on what is left, for an hour at most, and
// then nobody else carves.
func TestLeftOvers(t *testing.T) {
	d := newParted(t, "")
	g := d.claim(Request{Slot: slot.Static(1), Ad: work(t, 1, 100), LeftOvers: true, Lease: 5 * time.Hour})
	rest := g.LeftOvers
	if rest == nil || rest.Slot != slot.Static(1) || rest.Lease != slot.PartitionableLease || rest.ID.Equal(g.ID) {
		t.Fatalf("granted %+v with %+v", g, rest)
	}
	if err := d.Keep(rest.ID); err != nil {
		t.Fatal(err)
	}
	if v, _ := d.Snapshot(slot.Static(1), false); v.State != "Claimed" || v.Holder != "alice" || !v.Closed || v.Has.Cpus != 3 {
		t.Errorf("slot 1 is %+v", v)
	}
	for _, k := range d.Books() {
		if k.Slots != 1 {
			t.Errorf("books have %+v; want nothing but the slot that was carved", k)
		}
	}
	if n, why, _ := d.Willing("p.q", slot.JobOf(work(t, 1, 1)), 1); n != 0 || why != "slot1 is claimed by alice" {
		t.Errorf("willing %d, %q", n, why)
	}
	_, err := d.Request(Request{Slot: slot.Static(1), Ad: work(t, 1, 1), By: bob, Holder: "bob", Priority: 9})
	d.refused("somebody else's carving", err, api.RefusedRequirements)
	if _, err := d.Offer(slot.Static(1), work(t, 1, 1)); err == nil {
		t.Error("fetched work is carved")
	}
	_, _, err = d.Starting(rest.ID, alice)
	d.refused("a job in what is left", err, api.RefusedState)
	d.now = d.now.Add(time.Minute)
	more := d.claim(Request{Slot: slot.Static(1), Ad: work(t, 1, 1), LeftOvers: true, NoWait: true})
	if more.LeftOvers == nil || !more.LeftOvers.ID.Equal(rest.ID) || d.left().Cpus != 2 {
		t.Errorf("carved again: %+v", more)
	}
	// To renew it makes it no longer.
	d.now = d.now.Add(slot.PartitionableLease - time.Minute)
	if s, err := d.Renew(rest.ID, alice, unasked); err != nil || s.Lease != time.Minute {
		t.Errorf("renewed: %+v, %v; want a minute left", s, err)
	}
	if _, err := d.Order(rest.ID, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} }); err != nil {
		t.Fatal(err)
	}
	if n, why, _ := d.Willing("p.q", slot.JobOf(work(t, 1, 1)), 9); n != 2 {
		t.Errorf("willing %d, %q; want what is left", n, why)
	}
}

// PSLOT: the claim on what is left ends with its lease.
func TestLeftOversEnd(t *testing.T) {
	d := newParted(t, "CLAIM_WORKLIFE = -1\n")
	g := d.claim(Request{Slot: slot.Static(1), Ad: work(t, 1, 100), LeftOvers: true})
	d.now = d.now.Add(slot.PartitionableLease)
	d.Tick()
	if v, _ := d.Snapshot(slot.Static(1), false); v.State != "Unclaimed" || d.left().Cpus != 3 {
		t.Errorf("slot 1 is %+v", v)
	}
	if _, _, err := d.Check(g.LeftOvers.ID, alice); api.RefusalOf(err) != api.RefusedUnknown {
		t.Errorf("the claim on what is left: %v", err)
	}
	if p, _, err := d.Check(g.ID, alice); err != nil || !p.Start {
		t.Errorf("the claim on what was carved: %+v, %v", p, err)
	}
}

// PSLOT: a request may name claims of one's own that make room for it.
func TestGrow(t *testing.T) {
	d := newParted(t, "MaxJobRetirementTime = TARGET.Patient =?= true ? 100 : 0\n")
	var ids []ID
	for range 3 {
		ids = append(ids, d.claim(Request{Slot: slot.Static(1), Ad: work(t, 1, 1)}).ID)
	}
	ask := func(id ...ID) error {
		_, err := d.Request(Request{Slot: slot.Static(1), Ad: work(t, 3, 1), By: alice, Holder: "alice", Preempt: id})
		return err
	}
	d.refused("without room", ask(), api.RefusedRequirements)
	d.refused("with too little room", ask(ids[0]), api.RefusedRequirements)
	d.refused("the same twice", ask(ids[0], ids[0]), api.RefusedMessage)
	if err := d.at(slot.ID{Number: 1, Dynamic: 1}); err == nil {
		t.Fatal("a claim is gone for nothing")
	}
	running := d.claimOf(ids[1])
	slots, err := d.Table.Run(running, ids[1].String(), "7.1", slot.JobOf(ad(t, "[JobUniverse = 5; Patient = true]")))
	if err != nil {
		t.Fatal(err)
	}
	d.refused("a job that may finish", ask(ids[0], ids[1]), api.RefusedState)
	d.Deactivate(slots)
	if slots, err = d.Table.Run(running, ids[1].String(), "8.1", slot.JobOf(ad(t, plainJob))); err != nil {
		t.Fatal(err)
	}
	d.refused("a job that has to go", ask(ids[0], ids[1]), api.RefusedTryAgain)
	if did := d.carry(); did != "evicted, kill 8.1" {
		t.Errorf("did %q; want who gives it up told, and the job killed", did)
	}
	d.Deactivate(slots)
	if err := ask(); err != nil {
		t.Errorf("when it is gone: %v", err)
	}
	if got := d.slots(); got != "1:Unclaimed:0 1_1:Claimed:3 1_3:Claimed:1 2:Unclaimed:0" {
		t.Errorf("slots %s", got)
	}
	// Of claims under which nothing runs there is room at once.
	if _, err := d.Order(d.at(slot.ID{Number: 1, Dynamic: 1}).managed.claims[1].id, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} }); err != nil {
		t.Fatal(err)
	}
	d.claim(Request{Slot: slot.Static(1), Ad: work(t, 1, 1)})
	if err := ask(ids[2]); err != nil {
		t.Errorf("in the place of an idle claim: %v", err)
	}
	d.refused("in the place of a claim that is gone", ask(ids[2]), api.RefusedUnknown)
}

// claimOf returns the slot of a claim.
func (d *desk) claimOf(id ID) slot.ID {
	d.Helper()
	for _, v := range d.Views(false) {
		if v.ID.Equal(id) {
			return v.Slot
		}
	}
	d.Fatalf("no slot has claim %v", id)
	return slot.ID{}
}

// PSLOT: a partitionable slot is vacated with all that was carved out of it.
func TestPartitionVacatedAndDrained(t *testing.T) {
	d := newParted(t, "")
	j := slot.JobOf(work(t, 1, 1))
	first, second := d.Activate("7.1", grantOf(1), j), d.Activate("8.1", grantOf(1), j)
	d.claim(Request{Slot: slot.Static(1), Ad: work(t, 1, 1)})
	if n, err := d.Vacate([]slot.ID{{Number: 1, Dynamic: 2}}, true, slot.ReasonVacateCommand); n != 1 || err != nil {
		t.Errorf("vacated %d, %v", n, err)
	}
	if did := d.carry(); did != "kill 8.1" {
		t.Errorf("did %q; want what runs in slot1_2 killed", did)
	}
	d.Deactivate(second)
	if n, err := d.Vacate([]slot.ID{slot.Static(1)}, true, slot.ReasonVacateCommand); n != 2 || err != nil {
		t.Errorf("vacated %d, %v; want both that are left", n, err)
	}
	if did := d.carry(); did != "kill 7.1, evicted" || d.slots() != "1:Unclaimed:3 1_1:Preempting:1 2:Claimed:0" {
		t.Errorf("did %q, slots %s", did, d.slots())
	}
	d.Deactivate(first)
	if _, err := d.Vacate([]slot.ID{{Number: 1, Dynamic: 1}}, true, slot.ReasonVacateCommand); err == nil {
		t.Error("a slot that is gone is vacated")
	}
	first = d.Activate("9.1", grantOf(1), j)
	d.Drain(&slot.Drain{Speed: slot.DrainQuick})
	if did := d.carry(); did != "stop 9.1" {
		t.Errorf("did %q; want the job asked to end", did)
	}
	if n, _, _ := d.Willing("p.q", j, 1); n != 0 || d.Activate("10.1", grantOf(1), j) != nil {
		t.Error("a slot is carved while the host is drained")
	}
	if _, err := d.Offer(slot.Static(1), work(t, 1, 1)); api.RefusalOf(err) != api.RefusedShutdown {
		t.Errorf("work is offered while the host is drained: %v", err)
	}
	d.Deactivate(first)
	if got := d.slots(); got != "1:Drained:4 2:Drained:0" || d.place(1) != "Drained/Idle" {
		t.Errorf("slots %s", got)
	}
	d.Drain(nil)
	if n, why, _ := d.Willing("p.q", j, 9); n != 4 {
		t.Errorf("willing %d, %q after the drain", n, why)
	}
}

// CLAIM-LEASE, PSLOT: after a restart all have the slots that they had, with what these
// had.
func TestPartitionRestart(t *testing.T) {
	d := newParted(t, "")
	j := slot.JobOf(work(t, 1, 300))
	gone := d.Activate("1.1", grantOf(1), j)
	parallel := d.Activate("2.1", grantOf(2), j)
	idle := d.claim(Request{Slot: slot.Static(1), Ad: work(t, 1, 1), LeftOvers: true, Lease: time.Hour})
	if idle.LeftOvers != nil {
		t.Fatalf("nothing is left, and claimed: %+v", idle.LeftOvers)
	}
	d.Deactivate(gone)
	busy, err := d.Offer(slot.Static(1), work(t, 1, 200))
	if err == nil {
		err = d.Keep(busy.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	under := d.run(busy, "3.1")
	before, left := d.slots(), d.left()
	records := Carved(parallel)
	if len(records) != 2 || records[1] != (job.Carved{Queue: "p.q", Slot: 3, Cpus: 1, Memory: 384, Disk: 1024}) {
		t.Fatalf("carved %+v", records)
	}
	if Carved([]*Slot{{Index: 1}}) != nil {
		t.Error("a slot was carved that was not")
	}
	d.parted("", parted)
	parallel = d.Adopt("2.1", grantOf(2), "", noon, j, records, nil)
	under = d.Adopt("3.1", grantOf(1), busy.ID.String(), noon, slot.JobOf(work(t, 1, 200)), Carved(under), nil)
	if got := d.slots(); got != before || d.left() != left {
		t.Errorf("slots %s, %+v is left; want %s, %+v", got, d.left(), before, left)
	}
	if v, _ := d.Snapshot(slot.ID{Number: 1, Dynamic: 1}, false); v.Task != "3.1" || !v.Fetched() {
		t.Errorf("slot1_1 is %+v", v)
	}
	if _, err := d.Order(idle.ID, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} }); err != nil {
		t.Error(err)
	}
	d.Deactivate(parallel)
	d.Deactivate(under)
	d.Withdraw(busy.ID.String(), slot.Hold{Text: "no more work"})
	if d.carry(); d.slots() != "1:Unclaimed:4 2:Claimed:0" || len(d.files()) != 0 {
		t.Errorf("slots %s, files %v", d.slots(), d.files())
	}
}

// A record of before, or of a queue that was another thing then, loses nothing that
// runs.
func TestPartitionRestartOtherwise(t *testing.T) {
	d := newParted(t, "")
	j := slot.JobOf(work(t, 1, 300))
	rest := d.claim(Request{Slot: slot.Static(1), Ad: work(t, 1, 1), LeftOvers: true}).LeftOvers
	if err := d.Keep(rest.ID); err != nil {
		t.Fatal(err)
	}
	d.parted("", parted)
	if v, _ := d.Snapshot(slot.Static(1), false); v.Holder != "alice" || d.slots() != "1:Claimed:3 1_1:Claimed:1 2:Claimed:0" {
		t.Errorf("slot 1 is %+v after the restart: %s", v, d.slots())
	}
	if _, err := d.Offer(slot.Static(1), work(t, 1, 1)); err == nil {
		t.Error("somebody else carves after the restart")
	}
	// Without records the slots are carved as the job asks for them; more may run than
	// there is room for.
	slots := d.Adopt("2.1", grantOf(4), "", noon, j, []job.Carved{{Queue: "x.q", Slot: 1, Cpus: 9}}, nil)
	if got := d.slots(); got != "1:Claimed:0 1_1:Claimed:1 1_2:Claimed:1 1_3:Claimed:1 1_4:Claimed:1 1_5:Claimed:1 2:Claimed:0" {
		t.Errorf("slots %s", got)
	}
	d.Deactivate(slots)
	if d.left().Cpus != 3 {
		t.Errorf("%+v is left", d.left())
	}
	// The queue is not partitionable any more.
	d.parted("", []conf.Queue{{Name: "p.q", Slots: 4}, {Name: "b.q", Slots: 1}})
	slots = d.Adopt("2.1", grantOf(2), "", noon, j, []job.Carved{{Queue: "p.q", Slot: 3, Cpus: 1}}, nil)
	if len(slots) != 2 || slots[1].Index != 2 || slots[1].Dynamic != 0 {
		t.Errorf("runs on %+v", slots)
	}
	if d.carry(); len(d.files()) != 0 {
		t.Errorf("files %v; want the claims on slots that are not there gone", d.files())
	}
}

// A queue becomes partitionable, or ceases to be, when nobody uses it; a partitionable
// one has another size at once.
func TestPartitionReload(t *testing.T) {
	d := newParted(t, "")
	static := []conf.Queue{{Name: "p.q", Slots: 2}, {Name: "b.q", Slots: 1, Partitionable: true}}
	j := slot.JobOf(work(t, 1, 1))
	slots := d.Activate("7.1", grantOf(1), j)
	d.Resize(static)
	if got := d.slots(); got != "1:Unclaimed:1 1_1:Claimed:1 2:Unclaimed:1" {
		t.Errorf("slots %s; want the queue that is in use as it was, of another size", got)
	}
	d.Tick()
	d.Deactivate(slots)
	d.Tick()
	if got := d.slots(); got != "1:Claimed:0 2:Claimed:0 3:Unclaimed:1" {
		t.Errorf("slots %s; want two that are each for itself", got)
	}
	slots = d.Activate("8.1", grantOf(1), j)
	d.Resize([]conf.Queue{{Name: "p.q", Slots: 4, Partitionable: true}, {Name: "b.q", Slots: 1}})
	if got := d.slots(); got != "1:Claimed:0 2:Claimed:0 3:Claimed:0 4:Claimed:0 5:Claimed:0" || !d.Managed() {
		t.Errorf("slots %s, managed %v; want the queue that is in use as it was", got, d.Managed())
	}
	d.Deactivate(slots)
	d.Tick()
	if got := d.slots(); got != "1:Unclaimed:4 2:Claimed:0" {
		t.Errorf("slots %s; want one that is partitionable", got)
	}
	d.Resize(static[:1])
	d.Tick()
	if d.Managed() || d.slots() != "1:Claimed:0 2:Claimed:0" {
		t.Errorf("managed %v, slots %s; want plain slots", d.Managed(), d.slots())
	}
	// A queue that goes takes what was carved with it.
	d.Resize(parted)
	slots = d.Activate("9.1", grantOf(1), j)
	d.Asking(slot.ID{Number: 1, Dynamic: 1}, true)
	d.Resize(parted[1:])
	d.Asking(slot.ID{Number: 1, Dynamic: 1}, false)
	if did := d.carry(); did != "stop 9.1" || d.slots() != "1:Claimed:0" {
		t.Errorf("did %q, slots %s", did, d.slots())
	}
	d.Deactivate(slots)
	if d.Managed() || d.Busy() != 0 {
		t.Errorf("managed %v, %d are busy", d.Managed(), d.Busy())
	}
}

// MODIFY_REQUEST_EXPR_... take effect at once.
func TestPartitionRounds(t *testing.T) {
	d := newParted(t, "")
	knobs, _ := knob.Parse("hooks.conf", "MODIFY_REQUEST_EXPR_REQUESTMEMORY = 2000\nMODIFY_REQUEST_EXPR_REQUESTCPUS = 2\n")
	d.Configure(slot.NewPolicy(knobs), nil)
	slots := d.Activate("7.1", grantOf(1), slot.JobOf(ad(t, plainJob)))
	if left := d.left(); left.Memory != 2000 || left.Cpus != 2 {
		t.Errorf("%+v is left", left)
	}
	// The scheduler has one slot for the task: the other is kept from it.
	if books := d.Books(); len(books) != 1 || books[0].Slots != 1 {
		t.Errorf("books %+v; want the second CPU", books)
	}
	d.Deactivate(slots)
	if books := d.Books(); len(books) != 1 || books[0].Slots != 0 {
		t.Errorf("books %+v; want nothing", books)
	}
}

// Events come in any order: no resource is given out twice or lost, and the scheduler's
// books are those of the slots.
func TestPartitionWalk(t *testing.T) {
	for seed := range uint64(20) {
		w := newWalk(t, seed)
		for range 400 {
			w.step()
			w.check()
		}
		w.end()
	}
}

// walk is a random walk.
type walk struct {
	*desk
	random *rand.Rand
	books  map[int]int
	tasks  map[string][]*Slot
	slotsB map[string]int // that the scheduler has given to a task
	grants []Granted
	serial int
}

func newWalk(t *testing.T, seed uint64) *walk {
	return &walk{desk: newParted(t, ""), random: rand.New(rand.NewPCG(seed, 1)), books: map[int]int{}, tasks: map[string][]*Slot{}, slotsB: map[string]int{}}
}

func (w *walk) any() *classad.Ad { return work(w.T, 1+w.random.IntN(3), w.random.IntN(1500)) }

// used is what the scheduler believes to be in use.
func (w *walk) used() (n int) {
	for _, k := range w.books {
		n += k
	}
	for _, k := range w.slotsB {
		n += k
	}
	return n
}

func (w *walk) step() {
	w.serial++
	task := fmt.Sprintf("%d.1", w.serial)
	w.now = w.now.Add(time.Duration(w.random.IntN(20)) * time.Second)
	switch w.random.IntN(10) {
	case 0, 1: // the scheduler starts something if it may
		j := slot.JobOf(work(w.T, 1, w.random.IntN(1500)))
		n := 1 + w.random.IntN(2)
		willing, _, _ := w.Willing("p.q", j, n)
		if willing < n || w.used()+n > 4 {
			return
		}
		slots := w.Activate(task, grantOf(n), j)
		if len(slots) != n {
			w.Fatalf("%d slots are willing, and take nothing", willing)
		}
		w.tasks[task], w.slotsB[task] = slots, n
	case 2, 3:
		g, err := w.Request(Request{Slot: slot.Static(1), Ad: w.any(), Holder: "alice", By: alice, Lease: time.Minute, LeftOvers: w.random.IntN(3) == 0})
		if err == nil {
			w.grants = append(w.grants, g)
			if g.LeftOvers != nil && w.random.IntN(2) == 0 {
				w.release(*g.LeftOvers)
			}
		}
	case 4:
		if g, err := w.Offer(slot.Static(1), w.any()); err == nil {
			w.grants = append(w.grants, g)
		}
	case 5: // something runs under a claim
		if len(w.grants) == 0 {
			return
		}
		g := w.grants[w.random.IntN(len(w.grants))]
		slots, err := w.Table.Run(g.Slot, g.ID.String(), task, slot.JobOf(ad(w.T, plainJob)))
		if err == nil {
			w.tasks[task], w.slotsB[task] = slots, 1
		}
	case 6, 7:
		for task, slots := range w.tasks {
			w.Deactivate(slots)
			delete(w.tasks, task)
			delete(w.slotsB, task)
			break
		}
	case 8:
		if len(w.grants) > 0 {
			w.release(w.grants[w.random.IntN(len(w.grants))])
		}
	case 9:
		id := slot.ID{Number: 1, Dynamic: w.random.IntN(4)}
		switch w.random.IntN(4) {
		case 0:
			_, _ = w.Vacate([]slot.ID{id}, true, slot.ReasonVacateCommand)
		case 1:
			w.Asking(id, w.random.IntN(2) == 0)
		default:
			w.Tick()
		}
	}
}

func (w *walk) release(g Granted) {
	if _, err := w.Order(g.ID, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} }); err != nil {
		w.Withdraw(g.ID.String(), slot.Hold{Text: "no more work"})
	}
}

// check compares what the table says with itself and with the books.
func (w *walk) check() {
	w.Helper()
	for _, k := range w.Books() {
		w.books[k.Serial] = k.Slots
	}
	left := w.left()
	if used := w.used(); used != 4-int(left.Cpus) {
		w.Fatalf("the scheduler has %d slots in use, %+v is left: %s", used, left, w.slots())
	}
	w.Effects()
}

// end gives everything back.
func (w *walk) end() {
	w.Helper()
	for _, slots := range w.tasks {
		w.Deactivate(slots)
	}
	clear(w.slotsB)
	for _, g := range w.grants {
		w.release(g)
	}
	list, _ := w.List()
	for _, id := range slices.Backward(list) {
		w.Asking(id, false)
		_, _ = w.Vacate([]slot.ID{id}, true, slot.ReasonVacateCommand)
	}
	w.check()
	if got := w.slots(); got != "1:Unclaimed:4 2:Claimed:0" {
		w.Errorf("slots %s in the end", got)
	}
}

// A job that waits for room on the disk, which others than jobs use as well, is looked
// at again though nothing happens; one that waits for processors is not.
func TestWaitingForDisk(t *testing.T) {
	d := newParted(t, "")
	disk := int64(1000)
	d.mu.Lock()
	d.o.Share = func(_ string, n int) slot.Resources {
		return slot.Resources{Cpus: int64(n), Memory: 1000, Disk: disk}
	}
	d.mu.Unlock()
	willing := func(cpus, disk string) int {
		d.Tick() // as before each look
		n, _, _ := d.Willing("p.q", slot.JobOf(ad(t, `[RequestMemory = 1; RequestCpus = `+cpus+`; RequestDisk = `+disk+`]`)), 1)
		return n
	}
	if n := willing("9", "1"); n != 0 || d.Restless() {
		t.Errorf("%d slots with 9 processors; want none, and none to be expected", n)
	}
	if n := willing("1", "5000"); n != 0 || !d.Restless() {
		t.Errorf("%d slots with more disk than there is; want none now", n)
	}
	disk = 10_000
	if n := willing("1", "5000"); n != 1 || d.Restless() {
		t.Errorf("%d slots when there is room; want one", n)
	}
}
