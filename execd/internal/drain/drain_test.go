package drain

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"paddock/spool"
	"paddock/spool/atomicfile"
	"paddock/spool/spooltest"
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
		if changed, err := d.Set(on, "", by, now); err != nil || changed != want {
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
	if _, err := d.Set(false, "", "alice", now); err == nil || !d.On() {
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

// The speed is kept over a restart, until another is named or the host is put in
// service again.
func TestSpeedIsKept(t *testing.T) {
	root, err := spool.OpenRoot(filepath.Join(t.TempDir(), "spool"), true)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i, step := range []struct {
		on                bool
		speed, by         string
		changed           bool
		wantSpeed, wantBy string
	}{
		{true, "quick", "alice", true, "quick", "alice"},
		{true, "", "bob", false, "quick", "alice"},
		{true, "fast", "bob", false, "fast", "alice"},
		{false, "", "bob", true, "", ""},
		{true, "", "fast", true, "", "fast"}, // a user has any name
		{true, "graceful", "bob", false, "graceful", "fast"},
	} {
		changed, err := open(t, root).Set(step.on, step.speed, step.by, now)
		if err != nil || changed != step.changed {
			t.Errorf("step %d: changed %t, %v; want %t", i, changed, err, step.changed)
		}
		s := open(t, root).State()
		if s.On != step.on || s.Speed != step.wantSpeed || s.By != step.wantBy {
			t.Errorf("step %d: %+v; want speed %q by %q", i, s, step.wantSpeed, step.wantBy)
		}
	}
}

// Who asks whether the host is drained does not wait for the disk, as qstat must not.
func TestDiskThatHangs(t *testing.T) {
	root, err := spool.OpenRoot(filepath.Join(t.TempDir(), "spool"), true)
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, root)
	hangs, goOn := spooltest.Hang(t, spool.FileDrain)
	set := make(chan error, 1)
	go func() {
		_, err := d.Set(true, "", "alice", time.Now())
		set <- err
	}()
	<-hangs
	asked := make(chan bool, 1)
	go func() { asked <- d.On() }()
	select {
	case on := <-asked:
		if on {
			t.Error("it is drained, and a crash would lose that")
		}
	case <-time.After(time.Minute):
		t.Fatal("who asks waits for the disk")
	}
	goOn()
	if err := <-set; err != nil || !d.On() {
		t.Errorf("Set = %v, on %v", err, d.On())
	}
}
