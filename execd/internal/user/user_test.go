package user

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"paddock/test/props"
)

// Many who ask for the same at once get one answer, also that there is nobody, which is
// kept for a while.
func TestOneQuestionForAll(t *testing.T) {
	const nobodys = 3_111_222_333
	d := &Directory{}
	var wg sync.WaitGroup
	for _, uid := range []int{0, nobodys} {
		for range 50 {
			wg.Go(func() {
				switch u, err := d.ByID(t.Context(), uid); {
				case uid == 0 && (err != nil || u.Name != "root"):
					t.Errorf("user 0 is %+v, %v", u, err)
				case uid != 0 && !errors.Is(err, ErrUnknown):
					t.Errorf("user %d is %+v, %v; want unknown", uid, u, err)
				}
			})
		}
	}
	wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) != 2 || len(d.asked) != 0 {
		t.Errorf("%d answers are kept, %d questions are open; want 2 and none", len(d.known), len(d.asked))
	}
}

// What somebody has put into the PATH of whoever starts execd is not run as root, nor
// what is in a directory that execd happens to be in.
func TestProgramsAreTheSystems(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"getent", "id"} {
		if err := props.WriteExecutable(filepath.Join(dir, name), "#!/bin/sh\ntouch "+dir+"/ran\n"); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, path := range []string{dir, ".:", ""} {
		t.Setenv("PATH", path)
		u, err := new(Directory).ByID(t.Context(), 0)
		if err != nil || u.Name != "root" || len(u.Groups) == 0 {
			t.Errorf("with PATH=%s: user 0 is %+v, %v", path, u, err)
		}
		if _, err := os.Stat("ran"); err == nil {
			t.Fatalf("with PATH=%s: a program of the PATH was run", path)
		}
	}
	// A system that has them elsewhere names it in PATH, where execd is not root.
	if file, err := new(Directory).program("ran-nowhere"); err == nil {
		t.Errorf("found %s", file)
	}
}
