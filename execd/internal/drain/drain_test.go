package drain

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"paddock/spool"
	"paddock/spool/atomicfile"
)

func open(t *testing.T, root *spool.Root) *Drain {
	t.Helper()
	d, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDrain(t *testing.T) {
	root, err := spool.OpenRoot(filepath.Join(t.TempDir(), "spool"), true)
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, root)
	if d.On() {
		t.Fatal("a new spool is drained")
	}
	set := func(on bool, by string, now time.Time, want bool) {
		t.Helper()
		if changed, err := d.Set(on, by, now); err != nil || changed != want {
			t.Errorf("Set(%v) = %v, %v; want %v", on, changed, err, want)
		}
	}
	now := time.Now()
	hint := d.Changed()
	set(false, "alice", now, false)
	set(true, "alice", now, true)
	select {
	case <-hint:
	default:
		t.Error("nobody was told")
	}
	set(true, "bob", now.Add(time.Hour), false)
	for _, d := range []*Drain{d, open(t, root)} {
		if s := d.State(); !s.On || s.By != "alice" || !s.Since.Equal(now.Truncate(time.Second)) {
			t.Errorf("state = %+v; want that of alice", s)
		}
	}
	// What cannot be written has not happened.
	restore := atomicfile.Inject(func(atomicfile.Op, string) error { return errors.New("disk") })
	if _, err := d.Set(false, "alice", now); err == nil || !d.On() {
		t.Errorf("Set = %v, on %v; want the failure, and the state as it was", err, d.On())
	}
	restore()
	set(false, "bob", now, true)
	if d.On() || open(t, root).On() {
		t.Error("drained still")
	}
}

func TestDamagedMeansOn(t *testing.T) {
	root, err := spool.OpenRoot(filepath.Join(t.TempDir(), "spool"), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "nonsense", "2026-99-99T00:00:00Z root\n"} {
		if err := os.WriteFile(root.Path(spool.FileDrain), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if s := open(t, root).State(); !s.On || s.By != "" || time.Since(s.Since) > time.Hour {
			t.Errorf("%q: %+v; want on, since the file is there", text, s)
		}
	}
}
