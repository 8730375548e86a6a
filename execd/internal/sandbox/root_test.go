package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/test/harness"
)

// A user who has processes left puts links where directories were, and moves directories
// away, while his sandbox is removed: what the links lead to stays, his own files as well.
func TestRemoveWhileSwapped(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the owner of a sandbox is somebody else in root mode alone")
	}
	r := newRig(t)
	home, roots := t.TempDir(), t.TempDir()
	for _, dir := range []string{home, roots} {
		r.must(os.Chmod(filepath.Dir(dir), 0o755))
		r.must(os.WriteFile(filepath.Join(dir, "keep"), nil, 0o600))
	}
	r.must(os.Chown(home, stranger, stranger))
	task := r.made()
	var running sync.WaitGroup
	done := make(chan struct{})
	running.Go(func() {
		err := harness.As(stranger, stranger, func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				at := files(task)
				_ = os.MkdirAll(filepath.Join(at, "a/b/c"), 0o700)
				_ = os.WriteFile(filepath.Join(at, "a/b/c/file"), nil, 0o600)
				_ = os.Rename(filepath.Join(at, "a/b"), filepath.Join(at, "b"))
				_ = os.Symlink([]string{home, roots}[n%2], filepath.Join(at, "a/b"))
				_ = os.Rename(filepath.Join(at, "b"), filepath.Join(home, "b"))
				_ = os.Remove(filepath.Join(at, "a/b"))
				_ = os.Rename(filepath.Join(home, "b"), filepath.Join(at, "a/b"))
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
	for range 100 {
		r.Remove(task)
		r.due = nil
		if err := r.make(task.Start.Sandbox, r.owner); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	running.Wait()
	for _, dir := range []string{home, roots} {
		if r.isGone(filepath.Join(dir, "keep")) {
			t.Errorf("what lies in %s is removed", dir)
		}
	}
	if r.Remove(task); !r.isGone(task.Start.Sandbox.Dir) {
		t.Errorf("it is there: %s", r.log.String())
	}
}

// What is mounted below a sandbox is not gone into, neither to remove it nor to look
// whether there is any output.
func TestMountsInSandbox(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	r := newRig(t)
	for _, below := range []string{"", "deep/below"} {
		task := r.made()
		at := filepath.Join(files(task), below)
		r.asOwner(func() { r.must(os.MkdirAll(at, 0o700)) })
		r.must(unix.Mount("paddock-test", at, "tmpfs", 0, "size=1m,mode=777"))
		r.must(os.WriteFile(filepath.Join(at, "keep"), nil, 0o666))
		r.Remove(task)
		l := r.left[task.Start.Sandbox.Dir]
		if r.isGone(filepath.Join(at, "keep")) || l == nil || !strings.Contains(l.why, "busy") && !strings.Contains(l.why, "cross-device") {
			t.Errorf("with a mount at %q: left as %+v", below, l)
		}
		if below == "" {
			if _, err := r.empty(task.Start.Sandbox); err == nil {
				t.Error("root has looked into what is mounted in the place of the sandbox")
			}
		}
		r.must(unix.Unmount(at, 0))
		if r.passed(); !r.isGone(task.Start.Sandbox.Dir) {
			t.Errorf("it is there: %s", r.log.String())
		}
	}
}
