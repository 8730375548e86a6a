package launch

import (
	"os"
	"path/filepath"
	"testing"

	"paddock/execd/internal/asuser"
)

// What a user can hold up is done aside.
func TestClearTmpdirIsAside(t *testing.T) {
	l := New(Runs{Privileged: true, AsUser: &asuser.Starter{Shepherd: "/bin/false"}})
	aside := 0
	l.Aside = func(do func()) { aside++; do() }
	dir := t.TempDir()
	if err := l.clearTmpdir(dir, os.Getuid(), 0, "0"); err == nil || aside != 1 {
		t.Errorf("clearTmpdir = %v, %d times aside; want the error of one", err, aside)
	}
	if os.Geteuid() != 0 {
		return // where there is no private /tmp
	}
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.removeClosed(closed, 1001); err == nil || aside != 2 {
		t.Errorf("removeClosed = %v, %d times aside; want the error of two", err, aside)
	}
}
