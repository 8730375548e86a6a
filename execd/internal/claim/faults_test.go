package claim

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/slot"
	"paddock/spool"
	"paddock/spool/spooltest"
)

// life is that of a claim of a program: made, renewed, used by one job and given back. It
// returns whether its holder knows that it is over.
func (d *desk) life() (over bool, err error) {
	g, err := d.Request(Request{Slot: slot.Static(1), Holder: "alice", By: alice, Lease: time.Minute})
	if err == nil {
		err = d.Keep(g.ID)
	}
	if err != nil {
		return false, err
	}
	_, refused := d.Renew(g.ID, alice, unasked) // it goes on with the lease that it has
	d.Deactivate(d.run(g, "7.1"))
	if _, err := d.Order(g.ID, alice, func(n slot.Number) slot.Event { return slot.Release{Claim: n} }); err != nil {
		d.Fatal(err)
	}
	for _, e := range d.Effects() {
		if e.Do == Forget {
			err = d.File(e)
		}
	}
	return err == nil, errors.Join(refused, err)
}

// Execd is killed at each step of a claim's life. The next one knows every claim that
// its holder was told of and has not given back; any other ends with its lease.
func TestClaimCrashes(t *testing.T) {
	over := false
	spooltest.EachCrash(t,
		func(t *testing.T) *desk { over = false; return newDesk(t, "") },
		func(t *testing.T, d *desk) {
			d.T = t
			if over, _ = d.life(); !over {
				t.Error("the claim is not over")
			}
		},
		func(t *testing.T, d *desk, _ bool) {
			d.T = t
			d.now = d.now.Add(time.Second)
			d.again("", d.now)
			d.Adopted()
			v, _ := d.Snapshot(slot.Static(1), false)
			switch {
			case over && !v.ID.Zero():
				t.Errorf("slot 1 is %+v; want it free, as its holder was told", v)
			case !v.ID.Zero() && v.State+"/"+v.Activity != "Claimed/Idle":
				t.Errorf("slot 1 is %+v", v)
			}
			d.now = d.now.Add(2 * time.Minute)
			d.Tick()
			if d.carry(); len(d.files()) != 0 || d.place(1) != "Claimed/Idle" && d.Managed() {
				t.Errorf("after the lease there are files %v, and slot 1 is %s", d.files(), d.place(1))
			}
		})
}

// A claim that cannot be read for now is not lost: execd does not start without it, and
// touches nothing.
func TestUnreadClaim(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EIO} {
		d := newDesk(t, "")
		g := d.claim(Request{Slot: slot.Static(1)})
		name := d.files()[0]
		for _, damaged := range []string{"0.1", "9.1"} {
			if err := os.WriteFile(d.root.Path(spool.DirClaims, damaged), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		restore := spooltest.FailReads(t, "/"+name, errno)
		err := NewTable([]conf.Queue{{Name: "a.q", Slots: 2}}, "queue").Manage(Options{Store: NewStore(d.root)})
		restore()
		if want := "cannot read claims/" + name + ": " + errno.Error(); err == nil || err.Error() != want {
			t.Errorf("%v; want %s", err, want)
		}
		if n := len(d.files()); n != 3 {
			t.Errorf("%v: %d files are left; want all three", errno, n)
		}
		d.again("", d.now)
		if v, _ := d.Snapshot(slot.Static(1), false); !v.ID.Equal(g.ID) {
			t.Errorf("%v: then slot 1 is %+v; want it claimed", errno, v)
		}
		if aside, err := d.root.ListCorrupt(); err != nil || !slices.Equal(aside, []string{"0.1", "9.1"}) {
			t.Errorf("%v: aside is %v, %v; want what makes no sense", errno, aside, err)
		}
	}
}

// The disk fails at each step of a claim's life. A claim whose file could not be removed
// harms no other: a restart finds the one that is alive.
func TestClaimFaults(t *testing.T) {
	spooltest.EachFault(t, unix.EIO,
		func(t *testing.T) *desk { return newDesk(t, "") },
		func(t *testing.T, d *desk) error {
			d.T = t
			_, err := d.life()
			return err
		},
		func(t *testing.T, d *desk, _ error) {
			d.T = t
			d.carry()
			alive := d.claim(Request{Slot: slot.Static(1), Lease: time.Minute})
			d.run(alive, "8.1")
			d.now = d.now.Add(time.Second)
			d.again("", d.now)
			d.Adopted()
			if v, _ := d.Snapshot(slot.Static(1), false); !v.ID.Equal(alive.ID) || len(d.files()) != 1 {
				t.Errorf("after a restart slot 1 is %+v, and there are files %v; want the claim that is alive", v, d.files())
			}
		})
}
