package pilot

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/test/harness"
)

// names returns those in a directory, but for the lock.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		if e.Name() != "lock" {
			list = append(list, e.Name())
		}
	}
	return list
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestShared has reports go from one pilot to the next, until they are heard: also when the next is killed, and when
// several start at once.
func TestShared(t *testing.T) {
	shared := t.TempDir()
	dir := filepath.Join(shared, "reports")
	var said []string
	open := func(name string) (*Shared, string) {
		reports := t.TempDir()
		put(t, filepath.Join(reports, "50.1099511627776"), "taken by one that was killed here")
		s, err := OpenShared(shared, reports, name, func(text string) { said = append(said, text) })
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Take(); err != nil {
			t.Fatal(err)
		}
		return s, reports
	}
	is := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v; want %v", what, got, want)
		}
	}
	one, reports := open("one")
	put(t, filepath.Join(reports, "200.7"), "b")
	put(t, filepath.Join(reports, "100.3"), "a")
	put(t, filepath.Join(reports, "9"), "its end is not recorded")
	one.Leave()
	is("the spool of the first", names(t, reports))
	left := names(t, dir)
	if len(left) != 3 || left[0] != "100.3.one" || !strings.HasSuffix(left[1], ".9.one") || left[2] != "200.7.one" {
		t.Fatalf("it left %v", left)
	}
	if err := os.Remove(filepath.Join(dir, left[1])); err != nil {
		t.Fatal(err)
	}

	// The next is killed before anybody has heard it, and takes with it what it has in its spool. One that starts
	// beside it has nothing to tell.
	killed, reports := open("killed")
	is("the spool of the next", names(t, reports), "100.1099511627776", "200.1099511627777")
	_, reports = open("beside")
	is("the spool of one beside it", names(t, reports))
	killed.unlock()

	third, reports := open("third")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		third.Follow(ctx)
	}()
	if err := os.Remove(filepath.Join(reports, "100.1099511627776")); err != nil {
		t.Fatal(err)
	}
	if err := harness.WaitFor(harness.Patience, "the report that was heard to be gone", func() (bool, error) {
		return slices.Equal(names(t, dir), []string{"200.7.one"}), nil
	}); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(reports, "300.1"), "c")
	stop()
	<-followed
	third.Leave()
	is("what is left", names(t, dir), "200.7.one", "300.1.third")

	// When all are heard another may take what comes.
	fourth, reports := open("fourth")
	for _, name := range names(t, reports) {
		if err := os.Remove(filepath.Join(reports, name)); err != nil {
			t.Fatal(err)
		}
	}
	fourth.Follow(t.Context())
	is("what is left at last", names(t, dir))
	if fourth.lock != nil {
		t.Error("the lock is held though all was heard")
	}
	if len(said) == 0 || !strings.Contains(said[0], "3 ends were not told: they are left in "+dir) {
		t.Errorf("it says %q", said)
	}
}

// TestSharedHostile has what lies in the directory be no report, and the directory be another's.
func TestSharedHostile(t *testing.T) {
	shared, reports := t.TempDir(), t.TempDir()
	dir := filepath.Join(shared, "reports")
	said := ""
	s, err := OpenShared(shared, reports, "x", func(text string) { said += text + "\n" })
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	put(t, secret, "secret")
	for _, name := range []string{"1.1.a", "5.5"} { // a link, and one without a pilot
		if err := os.Symlink(secret, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"0.1.a", "-1.1.a", "1.-1.a", "x.1.a", "99999999999999999999.1.a", ".1.1.a"} {
		put(t, filepath.Join(dir, name), "x")
	}
	large := filepath.Join(dir, "2.2.a")
	put(t, large, "x")
	if err := os.Truncate(large, maxReport+1); err != nil {
		t.Fatal(err)
	}
	if err := s.Take(); err != nil {
		t.Fatal(err)
	}
	if got := names(t, reports); len(got) != 0 {
		t.Errorf("it takes %v", got)
	}
	if !strings.Contains(said, "cannot take report 1.1.a: ") || !strings.Contains(said, "cannot take report 2.2.a: ") {
		t.Errorf("it says %q", said)
	}

	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // it is to be refused
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		if _, err := OpenShared(shared, reports, "x", nil); err == nil || !strings.Contains(err.Error(), "that nobody else can write to") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("everybody may write to it")
	if err := os.Rename(dir, dir+".0"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir+".0", dir); err != nil {
		t.Fatal(err)
	}
	refused("a link")
	if os.Getuid() == 0 {
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		refused("another's")
	}
}
