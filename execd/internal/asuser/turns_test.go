package asuser

import (
	"context"
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

// Who has something of his removed as root waits for his own turn, and not for others.
func TestEmptyClosedInTurn(t *testing.T) {
	s := fakeShepherd(t, "exit 0")
	for range atOnce {
		done, err := s.turns.take(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
	}
	if err := s.EmptyClosed(1001, "/x"); err != nil {
		t.Error(err)
	}
}
