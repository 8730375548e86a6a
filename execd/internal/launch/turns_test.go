package launch

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A user whose shepherds hang holds up nobody else, and only so many of his hang.
func TestOneUserHoldsUpHimselfAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all turns
		var wg sync.WaitGroup
		var mu sync.Mutex
		hang, began := make(chan struct{}), 0
		for range 3 * atOnce {
			wg.Go(func() {
				done, err := all.take(t.Context(), 1001)
				if err != nil {
					t.Error(err)
					return
				}
				defer done()
				mu.Lock()
				began++
				mu.Unlock()
				<-hang
			})
		}
		synctest.Wait()
		mu.Lock()
		if began != atOnce {
			t.Errorf("%d have begun; want %d", began, atOnce)
		}
		mu.Unlock()
		other, err := all.take(t.Context(), 1002)
		if err != nil {
			t.Fatal(err)
		}
		other()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := all.take(ctx, 1001); err == nil {
			t.Error("one more of his; want an end with its context")
		}
		close(hang)
		wg.Wait()
		if began != 3*atOnce || len(all.byID) != 0 {
			t.Errorf("%d have begun, %d users are remembered; want all, and none", began, len(all.byID))
		}
	})
}

// What a user can hold up is done aside.
func TestClearTmpdirIsAside(t *testing.T) {
	l := fakeShepherd(t, "exit 1")
	l.Privileged = true
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
	// Nor does he wait for others whose private /tmp is removed as root as well.
	for range atOnce {
		done, err := l.turns.take(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
	}
	if err := l.removeClosed(closed, 1001); err == nil || aside != 2 {
		t.Errorf("removeClosed = %v, %d times aside; want the error of two", err, aside)
	}
}
