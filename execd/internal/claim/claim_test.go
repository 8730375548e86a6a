package claim

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/slot"
	"paddock/spool"
)

// desk is a table with a clock of its own.
type desk struct {
	*testing.T
	*Table
	now   time.Time
	root  *spool.Root
	idle  []time.Duration // of claims until they had something to run
	set   time.Duration   // by how much the clock was set
	boots int             // of the host, from 0
}

// unasked is for renewals while nothing runs.
func unasked(string) error { return errors.New("nothing runs") }

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// newDesk has a table of two queues, of two slots and one, with a policy.
func newDesk(t *testing.T, policy string) *desk {
	t.Helper()
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{T: t, now: noon, root: root}
	d.again(policy, noon)
	return d
}

// again has a new table on the same spool, as after a restart of execd.
func (d *desk) again(policy string, boot time.Time) {
	d.Helper()
	knobs, problems := knob.Parse("hooks.conf", policy)
	if slices.ContainsFunc(problems, func(p knob.Problem) bool { return !p.Warning }) {
		d.Fatal(problems)
	}
	d.Table = NewTable([]conf.Queue{{Name: "a.q", Slots: 2}, {Name: "b.q", Slots: 1}}, "queue")
	err := d.Manage(Options{
		Host: "node", Boot: boot, Store: NewStore(d.root), Now: func() time.Time { return d.now },
		Uptime: func() time.Duration { return time.Hour + d.now.Sub(noon) - d.set }, BootID: fmt.Sprintf("00000000-0000-0000-0000-%012d", d.boots),
		Ad:    func(in *Info) *classad.Ad { return ad(d.T, "[SlotID = "+string(rune('0'+in.Slot.Number))+"]") },
		Idled: func(t time.Duration) { d.idle = append(d.idle, t) }, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		d.Fatal(err)
	}
	d.Configure(slot.NewPolicy(knobs), nil)
}

func ad(t *testing.T, text string) *classad.Ad {
	t.Helper()
	a, err := classad.ParseAd(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// plainJob is the ad of a job that asks for nothing.
const plainJob = "[JobUniverse = 5; Owner = \"u\"]"

var alice, bob, root = By{UID: 1, Name: "alice"}, By{UID: 2, Name: "bob"}, By{UID: 0, Name: "root", Manager: true}

// claim claims a slot and keeps the claim.
func (d *desk) claim(r Request) Granted {
	d.Helper()
	if r.By.Name == "" {
		r.By = alice
	}
	r.Holder = r.By.Name
	g, err := d.Request(r)
	if err == nil {
		err = d.Keep(g.ID)
	}
	if err != nil {
		d.Fatal(err)
	}
	return g
}

// run has a task run under a claim.
func (d *desk) run(g Granted, task string) []*Slot {
	d.Helper()
	slots, err := d.Table.Run(g.Slot, g.ID.String(), task, slot.JobOf(ad(d.T, plainJob)))
	if err != nil {
		d.Fatal(err)
	}
	return slots
}

// place returns state and activity of a slot.
func (d *desk) place(number int) string {
	d.Helper()
	v, ok := d.Snapshot(slot.Static(number), false)
	if !ok {
		d.Fatalf("there is no slot %d", number)
	}
	return v.State + "/" + v.Activity
}

// carry carries out what is to be done on disk, and returns the rest in words.
func (d *desk) carry() string {
	d.Helper()
	var words []string
	for _, e := range d.Effects() {
		switch e.Do {
		case Forget:
			if err := d.File(e); err != nil {
				d.Fatal(err)
			}
		case Suspend:
			words = append(words, "suspend "+e.Task)
		case Resume:
			words = append(words, "resume "+e.Task)
		case Hold:
			words = append(words, "hold "+e.Task+": "+e.Text)
		case Stop:
			words = append(words, "stop "+e.Task)
		case Kill, KillFamily:
			words = append(words, "kill "+e.Task)
		case Evict:
			words = append(words, "evicted")
		case Begin:
			words = append(words, "begin")
		}
	}
	return strings.Join(words, ", ")
}

func (d *desk) files() []string {
	d.Helper()
	names, err := d.root.ListClaims()
	if err != nil {
		d.Fatal(err)
	}
	return names
}

func (d *desk) refused(what string, err error, want api.Refusal) {
	d.Helper()
	if got := api.RefusalOf(err); got != want {
		d.Errorf("%s: %v (%d); want %d", what, err, got, want)
	}
}

// CLAIM-REQUEST, CLAIM-RELEASE: a plain slot is managed while it is claimed, and no
// longer.
func TestClaimAndRelease(t *testing.T) {
	d := newDesk(t, "")
	if d.Managed() || d.place(3) != "Claimed/Idle" {
		t.Fatalf("managed %v, slot 3 %s; want plain slots", d.Managed(), d.place(3))
	}
	g := d.claim(Request{Slot: slot.Static(3), Lease: time.Hour})
	if g.Slot != slot.Static(3) || g.Waiting || g.Name != "slot3@node" {
		t.Errorf("granted %+v; want slot 3 at once", g)
	}
	if v, _ := d.Snapshot(slot.Static(3), false); v.Holder != "alice" || !v.ID.Equal(g.ID) {
		t.Errorf("the slot is %+v; want it to be alice's", v)
	}
	if books := d.Books(); len(books) != 1 || books[0].Slots != 1 || books[0].Queue != "b.q" {
		t.Errorf("books %+v; want a slot of b.q kept", books)
	}
	if n, why, _ := d.Willing("b.q", slot.JobOf(ad(t, plainJob)), 1); n != 0 || why != "slot3 is claimed by alice" {
		t.Errorf("willing %d, %q; want none, for alice's sake", n, why)
	}
	info, err := os.Stat(filepath.Join(d.root.Path(spool.DirClaims), d.files()[0]))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	_, err = d.Order(g.ID, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} })
	if err != nil {
		t.Fatal(err)
	}
	if did := d.carry(); did != "evicted" || d.Managed() || len(d.files()) != 0 {
		t.Errorf("did %q, managed %v, files %v; want it told, and nothing left", did, d.Managed(), d.files())
	}
	if books := d.Books(); len(books) != 1 || books[0].Slots != 0 {
		t.Errorf("books %+v; want the slot back", books)
	}
	// CLAIM-ID: a released id is never valid again.
	_, err = d.Renew(g.ID, alice, unasked)
	d.refused("a released id", err, api.RefusedUnknown)
}

// A policy may be up to chance.
func TestChance(t *testing.T) {
	newDesk(t, "START = random() < 1 && random(10) < 10\n").claim(Request{Slot: slot.Static(1)})
}

// CLAIM-REFUSE, CLAIM-ID: a wrong secret, another user's id, and the order of what
// refuses an activation.
func TestRefusals(t *testing.T) {
	d := newDesk(t, "")
	g := d.claim(Request{Slot: slot.Static(1)})
	forged, err := ParseID(g.ID.public + strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what string
		id   ID
		by   By
		want api.Refusal
	}{
		{"a forged id", forged, alice, api.RefusedUnknown},
		{"an id of another slot", newID("node", noon.Unix(), 99), alice, api.RefusedUnknown},
		{"no id", ID{}, alice, api.RefusedUnknown},
		{"another user's id", g.ID, bob, api.RefusedUnknown},
		{"one's own id", g.ID, alice, 0},
		{"a second activation", g.ID, alice, api.RefusedTryAgain},
	} {
		_, _, err := d.Starting(tt.id, tt.by)
		d.refused(tt.what, err, tt.want)
	}
	d.Unstarted(g.ID)
	slots := d.run(g, "7.1")
	_, _, err = d.Starting(g.ID, root)
	d.refused("an activation of a busy slot", err, api.RefusedBusy)
	_, err = d.Request(Request{Slot: slot.Static(1), By: bob, Holder: "bob"})
	d.refused("a slot of one of the same rank", err, api.RefusedRank)
	_, err = d.Request(Request{Slot: slot.Static(1), By: root, Holder: "root", Priority: 9, NoWait: true})
	d.refused("a slot in use, without waiting", err, api.RefusedTryAgain)
	d.Deactivate(slots)
	if d.place(1) != "Claimed/Idle" {
		t.Errorf("slot 1 is %s; want the claim to be still there", d.place(1))
	}
	if _, err = d.Request(Request{Slot: slot.Static(9)}); err == nil {
		t.Error("there is a slot 9")
	}
	d.Drain(&slot.Drain{Speed: slot.DrainFast})
	_, err = d.Request(Request{Slot: slot.Static(2), By: alice, Holder: "alice"})
	d.refused("a slot of a drained host", err, api.RefusedShutdown)
}

// CLAIM-LEASE, CLAIM-RENEW: a holder that does not renew loses the claim, and the job
// is killed at once.
func TestLease(t *testing.T) {
	d := newDesk(t, "")
	g := d.claim(Request{Slot: slot.Static(1), Lease: time.Minute})
	slots := d.run(g, "7.1")
	d.now = d.now.Add(50 * time.Second)
	var told string
	s, err := d.Renew(g.ID, alice, func(task string) error { told = task; return nil })
	if want := (spool.Lease{Boot: d.o.BootID, End: time.Hour + 110*time.Second}); told != "7.1" || d.lent(g) != want {
		t.Errorf("the shepherd of %q was told, and the lease is %v; want that of 7.1, and %v", told, d.lent(g), want)
	}
	if err != nil || s.Lease != time.Minute {
		t.Fatalf("renewed: %+v, %v; want a minute", s, err)
	}
	if next := d.Tick(); !next.Equal(d.now.Add(time.Minute)) {
		t.Errorf("the next tick is at %v; want the end of the lease", next)
	}
	d.now = d.now.Add(time.Minute)
	d.Tick()
	if did := d.carry(); did != "kill 7.1" || d.place(1) != "Preempting/Killing" {
		t.Errorf("did %q, slot 1 is %s; want the job killed", did, d.place(1))
	}
	d.Deactivate(slots)
	if d.carry(); d.Managed() || len(d.files()) != 0 {
		t.Errorf("managed %v, files %v; want nothing left", d.Managed(), d.files())
	}
}

// CLAIM-SUSPEND, CLAIM-DEACTIVATE, CLAIM-CHECK: what a holder does with its job.
func TestHolderSteersItsJob(t *testing.T) {
	d := newDesk(t, "")
	g := d.claim(Request{Slot: slot.Static(2)})
	slots := d.run(g, "7.1")
	for _, step := range []struct {
		event func(slot.Number) slot.Event
		want  string
		place string
	}{
		{func(n slot.Number) slot.Event { return slot.Suspend{Claim: n} }, "suspend 7.1", "Claimed/Suspended"},
		{func(n slot.Number) slot.Event { return slot.Continue{Claim: n} }, "resume 7.1", "Claimed/Busy"},
	} {
		if _, err := d.Order(g.ID, alice, step.event); err != nil {
			t.Fatal(err)
		}
		if did := d.carry(); did != step.want || d.place(2) != step.place {
			t.Errorf("did %q, slot 2 is %s; want %q and %s", did, d.place(2), step.want, step.place)
		}
	}
	if p, _, err := d.Check(g.ID, alice); err != nil || !p.Start {
		t.Errorf("check: %+v, %v; want that it may start again", p, err)
	}
	answer, err := d.DeactivateClaim(g.ID, alice, slot.Graceful)
	if err != nil {
		t.Fatal(err)
	}
	if p := <-answer; !p.Start {
		t.Errorf("permit %+v; want another start", p)
	}
	if did := d.carry(); did != "stop 7.1" {
		t.Errorf("did %q; want the job asked to end", did)
	}
	done, err := d.DeactivateClaim(g.ID, alice, slot.JobDone)
	if err != nil {
		t.Fatal(err)
	}
	d.Deactivate(slots)
	if p := <-done; !p.Start || p.StillCleaning {
		t.Errorf("permit of the end %+v; want another start", p)
	}
	// CLAIM-ACTIVATE: the claim stays for the next job.
	d.run(g, "8.1")
}

// CLAIM-REQUEST-CLAIMED: a higher priority, among equals in rank, has the slot when
// what runs there has left; the answer is held back until then.
func TestPriorityPreempts(t *testing.T) {
	d := newDesk(t, "")
	first := d.claim(Request{Slot: slot.Static(1)})
	slots := d.run(first, "7.1")
	second := d.claim(Request{Slot: slot.Static(1), By: root, Priority: 1})
	if !second.Waiting {
		t.Fatal("two have the same slot")
	}
	ask, err := d.Waiting(second.ID, root)
	if err != nil {
		t.Fatal(err)
	}
	waits, changed, err := ask()
	if did := d.carry(); err != nil || !waits || did != "stop 7.1" {
		t.Fatalf("waits %v, %v, did %q; want the job asked to end", waits, err, did)
	}
	_, _, err = d.Starting(second.ID, root)
	d.refused("an activation of a claim that waits", err, api.RefusedState)
	d.Deactivate(slots)
	select {
	case <-changed:
	default:
		t.Error("who waits is not told")
	}
	if waits, _, err = ask(); waits || err != nil {
		t.Errorf("waits %v, %v; want the slot", waits, err)
	}
	_, _, err = d.Starting(first.ID, alice)
	d.refused("the claim that was preempted", err, api.RefusedUnknown)
	d.run(second, "8.1")
}

// CLAIM-VACATE: an administrator takes a slot, also from the queue.
func TestVacate(t *testing.T) {
	d := newDesk(t, "")
	slots := d.Activate("7.1", []schedule.QueueSlots{{Queue: "b.q", Slots: 1}}, nil)
	if n, err := d.Vacate([]slot.ID{slot.Static(3)}, true, slot.ReasonVacateCommand); n != 1 || err != nil {
		t.Fatalf("vacated %d, %v; want 1", n, err)
	}
	if did := d.carry(); did != "kill 7.1" {
		t.Errorf("did %q; want the job killed", did)
	}
	d.Deactivate(slots)
	if d.carry(); d.Managed() || d.Busy() != 0 {
		t.Errorf("managed %v, busy %d; want a plain, idle slot", d.Managed(), d.Busy())
	}
	if _, err := d.Vacate([]slot.ID{slot.Static(4)}, false, slot.ReasonVacateCommand); err == nil {
		t.Error("there is a slot 4")
	}
}

// CLAIM-DRAIN: what runs leaves at the speed that is asked for, and nothing else
// comes until that is taken back.
func TestDrain(t *testing.T) {
	for _, tt := range []struct {
		speed slot.Speed
		want  string
	}{{slot.DrainGraceful, "stop 7.1"}, {slot.DrainQuick, "stop 7.1"}, {slot.DrainFast, "kill 7.1"}} {
		d := newDesk(t, "")
		slots := d.Activate("7.1", []schedule.QueueSlots{{Queue: "a.q", Slots: 1}}, nil)
		d.Drain(&slot.Drain{Speed: tt.speed})
		if did := d.carry(); did != tt.want {
			t.Errorf("%v: did %q; want %q", tt.speed, did, tt.want)
		}
		if got := d.place(3); got != "Drained/Retiring" {
			t.Errorf("%v: slot 3 is %s; want it to wait for the others", tt.speed, got)
		}
		d.Deactivate(slots)
		for number := 1; number <= 3; number++ {
			if got := d.place(number); got != "Drained/Idle" {
				t.Errorf("%v: slot %d is %s; want it drained, as all are", tt.speed, number, got)
			}
		}
		d.Drain(nil)
		if d.Managed() || d.place(1) != "Claimed/Idle" {
			t.Errorf("%v: slot 1 is %s; want it in service", tt.speed, d.place(1))
		}
	}
}

// POLICY-START, POLICY-RANK: the queue's jobs run where START is true for them, and
// one whom the slot ranks higher preempts.
func TestPolicyOfTheQueue(t *testing.T) {
	d := newDesk(t, "START = TARGET.Owner == \"u\" && SlotID != 1\nRANK = TARGET.Wanted =?= true ? 1 : 0\n")
	j, other := slot.JobOf(ad(t, plainJob)), slot.JobOf(ad(t, "[JobUniverse = 5; Owner = \"v\"]"))
	if n, why, _ := d.Willing("a.q", other, 1); n != 0 || why != "START of slot1 is false" {
		t.Errorf("willing %d, %q; want START to refuse", n, why)
	}
	if n, _, _ := d.Willing("a.q", j, 9); n != 1 {
		t.Errorf("%d slots are willing; want slot 2 alone", n)
	}
	slots := d.Activate("7.1", []schedule.QueueSlots{{Queue: "a.q", Slots: 1}}, j)
	if len(slots) != 1 || slots[0].Index != 2 {
		t.Fatalf("runs on %+v; want slot 2", slots)
	}
	if d.place(2) != "Claimed/Busy" {
		t.Errorf("slot 2 is %s", d.place(2))
	}
	if more := d.Activate("8.1", []schedule.QueueSlots{{Queue: "a.q", Slots: 1}}, j); more != nil {
		t.Errorf("a job runs where no slot is willing: %+v", more)
	}
	g := d.claim(Request{Slot: slot.Static(2), Ad: ad(t, "[Owner = \"u\"; Wanted = true]")})
	if did := d.carry(); !g.Waiting || did != "stop 7.1" {
		t.Errorf("waits %v, did %q; want the queue's job to leave", g.Waiting, did)
	}
	d.Deactivate(slots)
	if v, _ := d.Snapshot(slot.Static(2), false); v.Holder != "alice" || v.State+"/"+v.Activity != "Claimed/Idle" {
		t.Errorf("slot 2 is %+v; want it alice's", v)
	}
}

// POLICY-PREEMPT, POLICY-WANT_HOLD: what a policy does to a job of the queue.
func TestPreemptAndHold(t *testing.T) {
	d := newDesk(t, "PREEMPT = TARGET.Bad =?= true\nWANT_HOLD = true\nWANT_HOLD_REASON = \"it is bad\"\n")
	slots := d.Activate("7.1", []schedule.QueueSlots{{Queue: "b.q", Slots: 1}}, slot.JobOf(ad(t, "[JobUniverse = 5; Bad = true]")))
	for range 3 { // PREEMPT, retirement, the end of it
		d.now = d.now.Add(5 * time.Second)
		d.Tick()
	}
	if did := d.carry(); did != "hold 7.1: it is bad, stop 7.1" {
		t.Errorf("did %q; want the job held and asked to end", did)
	}
	d.Deactivate(slots)
	if d.place(3) != "Unclaimed/Idle" {
		t.Errorf("slot 3 is %s; want it free", d.place(3))
	}
}

// CLAIM-LEASE, CLAIM-ID: claims survive execd, with what runs under them, and files
// that are none harm nobody.
func TestRestart(t *testing.T) {
	d := newDesk(t, "")
	idle, busy := d.claim(Request{Slot: slot.Static(1), Lease: time.Minute}), d.claim(Request{Slot: slot.Static(3)})
	d.run(busy, "7.1")
	for name, text := range map[string]string{"1.1": "{", "x": "", "5.5": `{"format":1,"id":"<node>#5#6#00"}`} {
		if err := os.WriteFile(d.root.Path(spool.DirClaims, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.now = d.now.Add(20 * time.Second)
	d.again("", d.now)
	if names := d.files(); len(names) != 2 {
		t.Errorf("claims are %v; want the two that are good", names)
	}
	slots := d.Adopt("7.1", []schedule.QueueSlots{{Queue: "b.q", Slots: 1}}, busy.ID.String(), noon, slot.JobOf(ad(t, plainJob)), nil, nil)
	if len(slots) != 1 || d.place(3) != "Claimed/Busy" || d.place(1) != "Claimed/Idle" {
		t.Fatalf("slot 1 is %s, slot 3 %s; want both claimed", d.place(1), d.place(3))
	}
	if v, _ := d.Snapshot(slot.Static(1), false); v.Lease != time.Minute || v.Left != 40*time.Second {
		t.Errorf("%v of the lease of %v are left after the restart; want 40 s of a minute", v.Left, v.Lease)
	}
	if s, err := d.Renew(idle.ID, alice, unasked); err != nil || s.Lease != time.Minute {
		t.Errorf("renewed after the restart: %+v, %v; want a whole lease", s, err)
	}
	d.Deactivate(slots)
	d.run(busy, "8.1")
	if g := d.claim(Request{Slot: slot.Static(2)}); g.ID.public == idle.ID.public || g.ID.public == busy.ID.public {
		t.Errorf("%v is given out twice", g.ID)
	}
}

// A claim that cannot be written is none.
func TestKeepFails(t *testing.T) {
	d := newDesk(t, "")
	g, err := d.Request(Request{Slot: slot.Static(1), Holder: "alice", By: alice})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(d.root.Path(spool.DirClaims)); err != nil {
		t.Fatal(err)
	}
	if err := d.Keep(g.ID); err == nil || strings.Contains(err.Error(), g.ID.secret) {
		t.Errorf("Keep returned %v; want an error without the secret", err)
	}
	_, err = d.Renew(g.ID, alice, unasked)
	d.refused("a claim that is not on disk", err, api.RefusedUnknown)
}

// A claim that is for other work and cannot be written again is still one.
func TestKeepAgainFails(t *testing.T) {
	d := newDesk(t, "")
	g, err := d.Offer(slot.Static(1), ad(t, plainJob))
	if err == nil {
		err = d.Keep(g.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.Deactivate(d.run(g, "7.1"))
	again, err := d.Offer(slot.Static(1), ad(t, plainJob))
	if err != nil || !again.Again {
		t.Fatalf("offered: %+v, %v; want the same claim", again, err)
	}
	if err := os.RemoveAll(d.root.Path(spool.DirClaims)); err != nil {
		t.Fatal(err)
	}
	if err := d.Keep(g.ID); err == nil {
		t.Error("it can be written where there is no directory")
	}
	if v, _ := d.Snapshot(slot.Static(1), false); !v.ID.Equal(g.ID) {
		t.Errorf("the slot is %+v; want it to be fetched work's still", v)
	}
}

// REQ-HOOK-108: a fetch hook is told where nothing may start: where START without a
// job leaves no hope, and while the host is drained; and where work waits for a slot.
func TestClosed(t *testing.T) {
	for start, want := range map[string]bool{
		"true": false, "false": true, "0.0": true, "7": false, "undefined": false, "error": false, `"false"`: false,
		"TARGET.Good": false, "TARGET.Good && false": true,
	} {
		d := newDesk(t, "START = "+start+"\n")
		if v, _ := d.Snapshot(slot.Static(1), true); v.Closed != want {
			t.Errorf("START = %s: closed %v", start, v.Closed)
		}
	}
	d := newDesk(t, "RANK = TARGET.Prio\n")
	slots := d.Activate("7.1", []schedule.QueueSlots{{Queue: "a.q", Slots: 1}}, slot.JobOf(ad(t, "[JobUniverse = 5; Prio = 1]")))
	if len(slots) != 1 {
		t.Fatal("the queue has no slot")
	}
	on := slot.Static(slots[0].Index)
	if v, _ := d.Snapshot(on, true); v.Promised {
		t.Error("promised to nobody yet")
	}
	if g, err := d.Offer(on, ad(t, "[JobUniverse = 5; Prio = 2]")); err != nil || !g.Waiting {
		t.Fatalf("offered: %+v, %v; want it to wait", g, err)
	}
	if v, _ := d.Snapshot(on, true); !v.Promised {
		t.Error("work that waits has no promise")
	}
	d.Drain(&slot.Drain{})
	if v, _ := d.Snapshot(on, true); !v.Closed {
		t.Error("a slot is open while it is drained")
	}
}

// Fetched work has a claim of its own, and is told when it loses it.
func TestFetchedWork(t *testing.T) {
	d := newDesk(t, "RANK = TARGET.Wanted =?= true ? 1 : 0\n")
	g, err := d.Offer(slot.Static(1), ad(t, plainJob))
	if err != nil || g.Waiting {
		t.Fatalf("offered: %+v, %v", g, err)
	}
	if v, _ := d.Snapshot(slot.Static(1), true); !v.Fetched() || v.Ad == nil || !v.ID.Equal(g.ID) {
		t.Errorf("the slot is %+v; want it to be fetched work's", v)
	}
	slots := d.run(g, "7.1")
	if _, err = d.Offer(slot.Static(1), ad(t, plainJob)); err == nil {
		t.Error("work of the same rank is accepted where work runs")
	}
	d.Deactivate(slots)
	d.now = d.now.Add(3 * time.Second)
	again, err := d.Offer(slot.Static(1), ad(t, plainJob))
	if err != nil || !again.ID.Equal(g.ID) {
		t.Errorf("the next work has claim %v, %v; want the same", again.ID, err)
	}
	d.Deactivate(d.run(g, "7.2"))
	if !slices.Equal(d.idle, []time.Duration{0, 3 * time.Second}) {
		t.Errorf("the claim had nothing to run for %v; want for no time, and then for 3 s", d.idle)
	}
	changed := d.Changed(slot.Static(1))
	d.Withdraw(g.ID.String(), slot.Hold{Text: "no more work"})
	if did := d.carry(); did != "evicted" || d.place(1) != "Unclaimed/Idle" {
		t.Errorf("did %q, slot 1 is %s; want the work evicted", did, d.place(1))
	}
	select {
	case <-changed:
	default:
		t.Error("nobody is told of the change")
	}
	if g, err = d.Offer(slot.Static(1), ad(t, plainJob)); err != nil {
		t.Fatal(err)
	}
	d.run(g, "8.1")
	d.Withdraw(g.ID.String(), slot.Hold{Text: "no more work"})
	if did := d.carry(); !strings.HasSuffix(did, "kill 8.1") {
		t.Errorf("did %q; want what runs killed when the claim has expired", did)
	}
}

// Many use a table at the same time: nobody has a slot twice. Run with -race.
func TestManyAtOnce(t *testing.T) {
	d := newDesk(t, "")
	var wg sync.WaitGroup
	var mu sync.Mutex
	holders := map[slot.ID]int{}
	for i := range 8 {
		wg.Go(func() {
			for range 30 {
				g, err := d.Request(Request{Holder: "alice", By: alice, NoWait: true, Lease: time.Minute})
				if err != nil {
					if api.RefusalOf(err) == 0 {
						t.Errorf("%d: %v", i, err)
					}
					continue
				}
				mu.Lock()
				if holders[g.Slot]++; holders[g.Slot] > 1 {
					t.Errorf("slot %v is claimed twice", g.Slot)
				}
				mu.Unlock()
				if err := d.Keep(g.ID); err != nil {
					t.Error(err)
				}
				d.Books()
				d.Views(true)
				mu.Lock()
				holders[g.Slot]--
				_, err = d.Order(g.ID, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} })
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if d.carry(); d.Managed() || len(d.files()) != 0 {
		t.Errorf("managed %v, files %v; want nothing left", d.Managed(), d.files())
	}
}

// A slot that is taken out of the configuration goes when nobody has it.
func TestSlotsGo(t *testing.T) {
	d := newDesk(t, "")
	g := d.claim(Request{Slot: slot.Static(2)})
	d.Resize([]conf.Queue{{Name: "a.q", Slots: 1}})
	if _, _, err := d.Check(g.ID, alice); !errors.As(err, new(*api.Error)) {
		t.Errorf("the claim of a slot that is gone is still there: %v", err)
	}
	if d.carry(); d.Managed() || d.Slots() != 1 {
		t.Errorf("managed %v, %d slots; want one plain slot", d.Managed(), d.Slots())
	}
}

// TestSlotBeyond has a job in a slot that no queue has, as after a restart with fewer of them.
func TestSlotBeyond(t *testing.T) {
	d := newDesk(t, "")
	for _, queue := range []string{"b.q", "gone.q"} {
		grant := []schedule.QueueSlots{{Queue: queue, Slots: 2}}
		slots := d.Adopt("7.1", grant, "", d.now, slot.JobOf(nil), nil, nil)
		if len(slots) != 2 || slots[1].Index != 0 || d.Busy() != 2 {
			t.Errorf("%s: %d slots, the last with number %d, %d busy", queue, len(slots), slots[len(slots)-1].Index, d.Busy())
		}
		d.Ending(slots[1:])
		d.Deactivate(slots[1:])
		d.Deactivate(slots[:1])
		if d.Busy() != 0 {
			t.Errorf("%s: %d busy", queue, d.Busy())
		}
	}
}

// No ad is made for a caller who asks for none, as anybody may, while the queue waits;
// one is made for a caller who asks.
func TestAdsAreMadeForWhoAsks(t *testing.T) {
	made := 0
	table := NewTable([]conf.Queue{{Name: "a.q", Slots: 4}}, "queue")
	if err := table.Manage(Options{Host: "h", Ad: func(*Info) *classad.Ad { made++; return classad.New() }}); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Request(Request{Slot: slot.Static(1), Holder: "alice", By: alice}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what string
		do   func()
		want int
	}{
		{"no ads of all", func() { table.Views(false) }, 0},
		{"no ad of one", func() { table.Snapshot(slot.Static(1), false) }, 0},
		{"the ad of one", func() { table.Snapshot(slot.Static(1), true) }, 1},
		{"the ads of all", func() { table.Views(true) }, 4},
	} {
		made = 0
		if tt.do(); made != tt.want {
			t.Errorf("%s: %d were made; want %d", tt.what, made, tt.want)
		}
	}
}

// A claim has the same age after a restart, whatever the clock was set to, and is not
// given up for it.
func TestAgeOverRestart(t *testing.T) {
	for _, by := range []time.Duration{6 * time.Hour, -6 * time.Hour} {
		const policy = "CLAIM_WORKLIFE = 1200\n"
		d := newDesk(t, policy)
		g := d.claim(Request{})
		d.now, d.set = d.now.Add(by), by
		d.again(policy, d.now)
		d.Adopted()
		v, ok := d.Snapshot(g.Slot, false)
		if age := d.now.Sub(v.Made); !ok || v.ID != g.ID || age < 0 || age > 10*time.Minute {
			t.Errorf("with the clock set by %v the claim is %+v, %v old", by, v.ID, age)
		}
	}
}
