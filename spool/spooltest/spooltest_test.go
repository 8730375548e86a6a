package spooltest_test

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/spool/atomicfile"
	"paddock/spool/spooltest"
)

func TestFaults(t *testing.T) {
	dir := t.TempDir()
	mkdir := func(name string) error { return atomicfile.Mkdir(filepath.Join(dir, name), 0o700) }

	f := spooltest.Count(t)
	if err := mkdir("a"); err != nil || f.Steps() != 1 || f.Hit() {
		t.Errorf("Mkdir = %v after %d steps, hit %t; want nil, 1, false", err, f.Steps(), f.Hit())
	}
	f.Restore()

	f = spooltest.InjectAt(t, 2, unix.ENOSPC)
	if err := mkdir("b"); err != nil || f.Hit() {
		t.Errorf("first step: %v", err)
	}
	if err := mkdir("c"); !errors.Is(err, unix.ENOSPC) || !f.Hit() {
		t.Errorf("second step: %v; want ENOSPC", err)
	}
	if got, want := f.Where(), "step 2: mkdir "+filepath.Join(dir, "c"); got != want {
		t.Errorf("Where = %q; want %q", got, want)
	}
	if err := mkdir("c"); err != nil {
		t.Errorf("third step: %v", err)
	}
	f.Restore()

	f = spooltest.InjectFrom(t, 2, unix.EIO)
	if err := mkdir("d"); err != nil {
		t.Errorf("first step: %v", err)
	}
	for range 2 {
		if err := mkdir("e"); !errors.Is(err, unix.EIO) {
			t.Errorf("later step: %v; want EIO", err)
		}
	}
	f.Restore()
	f.Restore() // and again by Cleanup
	if err := mkdir("e"); err != nil {
		t.Error(err)
	}
}

// A panic that is no injected crash is a bug, and stays one.
func TestCrashedPassesPanics(t *testing.T) {
	defer func() {
		if p := recover(); p != "bug" {
			t.Errorf("recovered %v; want bug", p)
		}
	}()
	spooltest.Crashed(func() { panic("bug") })
}
