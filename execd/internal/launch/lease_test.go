package launch

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/asuser"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// CLAIM-LEASE-HOLDS: at every moment, and after every failure of the disk, a shepherd finds
// the old end of its lease or the new one.
func TestSetLease(t *testing.T) {
	l, run, d := activeRun(t)
	const boot = "00000000-0000-0000-0000-000000000000"
	first, next := spool.Lease{Boot: boot, End: time.Minute}, spool.Lease{Boot: boot, End: time.Hour}
	has := func(what string, want spool.Lease) {
		t.Helper()
		is, err := d.Lease()
		if is != want || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the lease is %v, %v; want %v", what, is, err, want)
		}
	}
	set := func(what string, to spool.Lease) {
		t.Helper()
		if err := l.SetLease(run, to); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		has(what, to)
	}
	set("none", spool.Lease{})
	set("the first", first)
	if info, err := os.Stat(d.Path(spool.FileLease)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v; want it for nobody else", info.Mode(), err)
	}
	for fails := 1; ; fails++ {
		n := 0
		restore := atomicfile.Inject(func(atomicfile.Op, string) error {
			has("while it is written", first)
			if n++; n == fails {
				return unix.ENOSPC
			}
			return nil
		})
		err := l.SetLease(run, next)
		restore()
		if n < fails { // it has all been tried
			break
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("step %d fails: %v; want it told", fails, err)
		}
		has("it could not be written", first)
	}
	has("the next", next)
	set("lifted", spool.Lease{})
	set("again", first)
	l.AsUser = &asuser.Starter{Shepherd: "/ours"}
	l.Shepherd = "/usr/lib/gridengine/sge_shepherd"
	if err := l.SetLease(run, next); err != nil {
		t.Error(err)
	}
	has("of a shepherd that is not ours", first)
	l.Shepherd = l.AsUser.Shepherd
	if err := os.RemoveAll(d.Path()); err != nil {
		t.Fatal(err)
	}
	if err := l.SetLease(run, next); err != nil {
		t.Errorf("of a run that has ended: %v", err)
	}
}
