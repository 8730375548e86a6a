package atomicfile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool/atomicfile"
	"paddock/spool/spooltest"
)

func create(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Many writers on few files: each Sync covers what was written before it. On a
// slow disk they share; a fast one may be done with each before the next comes.
func TestGroupConcurrent(t *testing.T) {
	t.Run("fast", func(t *testing.T) { testGroupConcurrent(t, 0) })
	t.Run("slow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { testGroupConcurrent(t, time.Millisecond) })
	})
}

func testGroupConcurrent(t *testing.T, takes time.Duration) {
	const writers, rounds = 32, 20
	var g atomicfile.Group
	files := []*os.File{create(t, "0"), create(t, "1"), create(t, "2")}
	dir := t.TempDir()
	// The hook sees each sync begin: what was written before a caller came
	// must have been written before a sync that begins after that.
	var written, synced [3]atomic.Int64
	index := map[string]int{}
	for i, f := range files {
		index[f.Name()] = i
	}
	var syncs atomic.Int64
	defer atomicfile.Inject(func(op atomicfile.Op, path string) error {
		if i, ok := index[path]; ok && op == atomicfile.OpSync {
			syncs.Add(1)
			synced[i].Store(written[i].Load())
			time.Sleep(takes)
		}
		return nil
	})()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range rounds {
				i := w % len(files)
				if _, err := files[i].WriteString("line\n"); err != nil {
					t.Error(err)
				}
				mine := written[i].Add(1)
				if err := g.Sync(files[i]); err != nil {
					t.Error(err)
				}
				if got := synced[i].Load(); got < mine {
					t.Errorf("Sync returned with %d lines synced; want at least %d", got, mine)
				}
				if err := g.SyncDir(dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := syncs.Load(); takes > 0 && n > writers*rounds/2 {
		t.Errorf("%d syncs for %d calls; want them shared", n, writers*rounds)
	}
}

// While one batch is on its way all who come share the next, in which each
// file is synced once, and an error reaches all who wait for its file and
// nobody else.
func TestGroupShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g atomicfile.Group
		good, bad := create(t, "good"), create(t, "bad")
		first := create(t, "first")
		release := make(chan struct{})
		var mu sync.Mutex
		calls := map[string]int{}
		defer atomicfile.Inject(func(_ atomicfile.Op, path string) error {
			mu.Lock()
			calls[path]++
			mu.Unlock()
			switch path {
			case first.Name():
				<-release
			case bad.Name():
				return unix.EIO
			}
			return nil
		})()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := g.Sync(first); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // the first batch is under way
		for range 20 {
			wg.Go(func() {
				if err := g.Sync(good); err != nil {
					t.Errorf("good file: %v", err)
				}
			})
			wg.Go(func() {
				if err := g.Sync(bad); !errors.Is(err, unix.EIO) {
					t.Errorf("bad file: %v; want EIO", err)
				}
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		for _, f := range []*os.File{first, good, bad} {
			if got := calls[f.Name()]; got != 1 {
				t.Errorf("%s was synced %d times; want once", filepath.Base(f.Name()), got)
			}
		}
		// The group goes on after the error, with a fresh verdict.
		if err := g.Sync(good); err != nil {
			t.Error(err)
		}
	})
}

func TestGroupBounded(t *testing.T) {
	g := atomicfile.Group{Parallel: 3}
	var now, most atomic.Int64
	defer atomicfile.Inject(func(op atomicfile.Op, _ string) error {
		if op == atomicfile.OpSync {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m; m = most.Load() {
				most.CompareAndSwap(m, n)
			}
		}
		return nil
	})()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
			if err == nil {
				err = errors.Join(g.Sync(f), f.Close(), g.SyncDir(dir))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := most.Load(); n > 3 {
		t.Errorf("%d syncs at once; want at most 3", n)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 40 {
		t.Errorf("%d files, %v; want 40", len(entries), err)
	}
}

// An injected crash ends those who wait, in their own goroutines.
func TestGroupCrash(t *testing.T) {
	var g atomicfile.Group
	f := create(t, "file")
	fault := spooltest.CrashAt(t, 1)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if !spooltest.Crashed(func() { _ = g.Sync(f) }) {
				t.Error("Sync returned; want a crash")
			}
		})
	}
	wg.Wait()
	fault.Restore()
	if err := g.Sync(f); err != nil {
		t.Error(err)
	}
}

func TestGroupErrors(t *testing.T) {
	var g atomicfile.Group
	f := create(t, "file")
	f.Close()
	if err := g.Sync(f); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Sync of a closed file: %v; want os.ErrClosed", err)
	}
	if err := g.SyncDir(f.Name()); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("SyncDir of a file: %v; want ENOTDIR", err)
	}
	if err := g.SyncDir("/nonexistent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("SyncDir of nothing: %v; want os.ErrNotExist", err)
	}
}

func BenchmarkWriteDurable(b *testing.B) {
	path := filepath.Join(b.TempDir(), "file")
	for b.Loop() {
		if err := atomicfile.WriteDurable(path, []byte("record"), 0o600); err != nil {
			b.Fatal(err)
		}
	}
}
