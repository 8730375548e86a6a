package claim

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/slot"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// lent returns the lease of a claim that is not over.
func (d *desk) lent(g Granted) spool.Lease {
	d.Helper()
	lease, ok := d.Lease(g.ID.String())
	if !ok {
		d.Errorf("claim %v is over", g.ID)
	}
	return lease
}

// CLAIM-LEASE-HOLDS: a lease survives a restart of execd as what it was. What is over by then ends
// when it is known what runs under it, and not before: it must be found under its claim.
func TestLeaseOverRestart(t *testing.T) {
	for _, tt := range []struct {
		away  time.Duration
		boots int
		want  string // what is done about the job
		left  time.Duration
	}{
		{20 * time.Second, 0, "", 40 * time.Second},
		{time.Minute, 0, "kill 7.1", 0},
		{time.Hour, 0, "kill 7.1", 0},
		{time.Hour, 1, "", time.Minute}, // of which nobody knows how long it was away
	} {
		d := newDesk(t, "")
		g := d.claim(Request{Slot: slot.Static(1), Lease: time.Minute})
		d.run(g, "7.1")
		d.now, d.boots = d.now.Add(tt.away), tt.boots
		d.again("", d.now)
		d.Tick()
		d.carry()
		slots := d.Adopt("7.1", []schedule.QueueSlots{{Queue: "a.q", Slots: 1}}, g.ID.String(), noon, slot.JobOf(ad(t, plainJob)), nil, nil)
		if v, _ := d.Snapshot(slot.Static(1), false); len(slots) != 1 || v.Task != "7.1" || !v.ID.Equal(g.ID) {
			t.Fatalf("after %v slot 1 is %+v; want the job in it, under its claim", tt.away, v)
		}
		d.Adopted()
		if did := d.carry(); did != tt.want {
			t.Errorf("after %v did %q; want %q", tt.away, did, tt.want)
		}
		if v, _ := d.Snapshot(slot.Static(1), false); tt.left > 0 && v.Left != tt.left {
			t.Errorf("after %v %v are left; want %v", tt.away, v.Left, tt.left)
		}
		if _, err := d.Renew(g.ID, alice, func(string) error { return nil }); (err != nil) != (tt.left == 0) {
			t.Errorf("after %v renewed: %v", tt.away, err)
		}
		if next := d.Tick(); tt.left > 0 && !next.Equal(d.now.Add(time.Minute)) {
			t.Errorf("after %v the next tick is at %v; want the end of the lease", tt.away, next)
		}
	}
}

// A renewal that cannot be written is none: neither to the claim, nor where its shepherd
// reads it.
func TestRenewalNotWritten(t *testing.T) {
	d := newDesk(t, "")
	g := d.claim(Request{Slot: slot.Static(1), Lease: time.Minute})
	d.run(g, "7.1")
	was := d.lent(g)
	d.now = d.now.Add(30 * time.Second)
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, unix.ENOSPC) || d.lent(g) != was {
			t.Errorf("%s: %v, and the lease is %v; want %v", what, err, d.lent(g), was)
		}
		if next := d.Tick(); !next.Equal(noon.Add(time.Minute)) {
			t.Errorf("%s: the next tick is at %v; want the end that the lease had", what, next)
		}
	}
	restore := atomicfile.Inject(func(atomicfile.Op, string) error { return unix.ENOSPC })
	_, err := d.Renew(g.ID, alice, unasked)
	restore()
	refused("no room for the claim", err)
	_, err = d.Renew(g.ID, alice, func(string) error { return unix.ENOSPC })
	refused("no room for the shepherd", err)
	if _, err := d.Renew(g.ID, alice, func(string) error { return nil }); err != nil {
		t.Error(err)
	}
}

// CLAIM-LEASE-HOLDS: nobody sets the clock by which leases go, and it goes on while the host is suspended: the
// time of the process stands still then.
func TestSuspendedHost(t *testing.T) {
	d := newDesk(t, "")
	asleep := time.Duration(0)
	uptime := d.o.Uptime
	d.o.Uptime = func() time.Duration { return uptime() + asleep }
	d.Adopted()
	g := d.claim(Request{Slot: slot.Static(1), Lease: time.Minute})
	other := d.claim(Request{Slot: slot.Static(2), Lease: time.Minute})
	d.run(g, "7.1")
	asleep = time.Hour
	_, err := d.Renew(other.ID, alice, unasked)
	d.refused("a renewal after the lease", err, api.RefusedUnknown)
	d.Tick()
	if did := d.carry(); did != "evicted, kill 7.1" {
		t.Errorf("did %q; want both claims over", did)
	}
}

// The lease of fetched work is that of its ad, from when it was fetched, also under a claim
// that it has in the place of other work, and whether there is a hook that renews it may
// change.
func TestLeaseOfFetchedWork(t *testing.T) {
	d := newDesk(t, "")
	g, err := d.Offer(slot.Static(1), ad(t, plainJob))
	if err != nil {
		t.Fatal(err)
	}
	ends := func() time.Duration {
		if l := d.lent(g); l != (spool.Lease{}) {
			return l.End - time.Hour
		}
		return 0
	}
	d.Lend(g.ID, time.Minute, time.Hour-5*time.Second)
	if err := d.Keep(g.ID); err != nil {
		t.Fatal(err)
	}
	if ends() != 55*time.Second {
		t.Errorf("the lease ends at %v; want 55 s", ends())
	}
	d.Deactivate(d.run(g, "7.1"))
	d.now = d.now.Add(10 * time.Second)
	if again, err := d.Offer(slot.Static(1), ad(t, plainJob)); err != nil || !again.ID.Equal(g.ID) {
		t.Fatalf("offered again: %v, %v", again.ID, err)
	}
	d.Lend(g.ID, 2*time.Minute, time.Hour+10*time.Second)
	if ends() != 130*time.Second {
		t.Errorf("the lease of the next work ends at %v; want 130 s", ends())
	}
	slots := d.run(g, "8.1")
	told := 0
	tell := func(string) error { told++; return nil }
	for _, tt := range []struct{ lease, want time.Duration }{{time.Minute, 70 * time.Second}, {0, 0}, {0, 0}, {time.Minute, 70 * time.Second}} {
		if err := d.Prolong(g.ID.String(), tt.lease, time.Hour+10*time.Second, tell); err != nil || ends() != tt.want {
			t.Errorf("a lease of %v ends at %v, %v; want %v", tt.lease, ends(), err, tt.want)
		}
	}
	if told != 3 {
		t.Errorf("the shepherd was told %d times; want 3", told)
	}
	d.now = d.now.Add(time.Minute)
	d.Tick()
	if did := d.carry(); did != "evicted, kill 8.1" && did != "kill 8.1" {
		t.Errorf("did %q; want the work killed with its lease", did)
	}
	d.Deactivate(slots)
	if err := d.Prolong(g.ID.String(), time.Minute, time.Hour, tell); err == nil {
		t.Error("a claim is renewed that is over")
	}
	if lease, ok := d.Lease(g.ID.String()); ok {
		t.Errorf("the lease of a claim that is over is %v; what runs must not be told of another than it has", lease)
	}
}

// Whatever was written last is on disk, also by two at once.
func TestLeaseFile(t *testing.T) {
	d := newDesk(t, "")
	g := d.claim(Request{Slot: slot.Static(1), Lease: time.Minute})
	done := make(chan error)
	for range 8 {
		go func() {
			_, err := d.Renew(g.ID, alice, unasked)
			done <- errors.Join(err, d.Keep(g.ID))
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	data, err := os.ReadFile(d.root.Path(spool.DirClaims, d.files()[0]))
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.o.Store.read(d.files()[0])
	if err != nil || r.Ends != string(d.lent(g).Append(nil)) {
		t.Errorf("the file has %s, %v; want the end %v", data, err, d.lent(g))
	}
}

// A claim that is written again and again has a file that does not grow for ever, of which what was
// written last counts, even if an execd was killed while it wrote on.
func TestLeaseFileAgain(t *testing.T) {
	d := newDesk(t, "")
	g := d.claim(Request{Slot: slot.Static(1), Lease: time.Minute})
	name := d.files()[0]
	path, most := d.root.Path(spool.DirClaims, name), int64(0)
	for range 1000 {
		d.now = d.now.Add(time.Second)
		if _, err := d.Renew(g.ID, alice, unasked); err != nil {
			t.Fatal(err)
		}
		if err := d.Keep(g.ID); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, info.Size())
	}
	if most > maxAppended || most < maxAppended/2 {
		t.Errorf("the file had %d bytes; want as many as %d allow", most, maxAppended)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"format":1,"id":"<no`); err != nil {
		t.Fatal(err)
	}
	r, err := d.o.Store.read(name)
	if err != nil || r.Ends != string(d.lent(g).Append(nil)) {
		t.Errorf("the file has the end %v, %v; want %v", r, err, d.lent(g))
	}
}

// A claim whose holder may not have heard of it ends soon, unless it is renewed or activated;
// then it has the lease that it was granted.
func TestConfirm(t *testing.T) {
	for _, tt := range []struct {
		use  string
		left time.Duration // 50 s after it was granted
	}{
		{"", 10 * time.Second},
		{"renew", time.Hour},
		{"activate", time.Hour - 50*time.Second},
		{"restart", time.Hour - 50*time.Second}, // which has forgotten the doubt
	} {
		d := newDesk(t, "")
		g := d.claim(Request{Slot: slot.Static(1), By: By{UID: 1, Name: "anna", Host: "login"}, Lease: time.Hour, Confirm: true})
		d.now = d.now.Add(50 * time.Second)
		var err error
		switch tt.use {
		case "renew":
			_, err = d.Renew(g.ID, By{UID: -1, Host: "login"}, unasked)
		case "activate":
			_, _, err = d.Starting(g.ID, By{UID: -1, Host: "login"})
		case "restart":
			d.again("", d.now)
			d.Adopted()
		}
		if v, _ := d.Snapshot(slot.Static(1), false); err != nil || v.Left != tt.left {
			t.Errorf("%q: %v, %v are left; want %v", tt.use, err, v.Left, tt.left)
		}
		d.now = d.now.Add(10 * time.Second)
		d.Tick()
		if _, ok := d.Lease(g.ID.String()); ok != (tt.use != "") {
			t.Errorf("%q: after a minute it lasts: %t", tt.use, ok)
		}
	}
}
