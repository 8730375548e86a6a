package base

import (
	"sync"
	"testing"
	"testing/synctest"
)

// A user who stops what removes the TMPDIR of his jobs does not hold up the runs of
// others, however many he has.
func TestAsideHoldsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pool
		stopped := make(chan struct{})
		for range 2 * maxAtWork {
			p.Go(func() { p.Aside(func() { <-stopped }) })
		}
		synctest.Wait()
		var mu sync.Mutex
		at, most, ran := 0, 0, 0
		for range 2 * maxAtWork { // and no more than so many are led on at once
			p.Go(func() {
				mu.Lock()
				at, ran = at+1, ran+1
				most = max(most, at)
				mu.Unlock()
				mu.Lock()
				at--
				mu.Unlock()
			})
		}
		synctest.Wait()
		if ran != 2*maxAtWork || most > maxAtWork {
			t.Errorf("%d runs of others are led on, %d at once; want all, and %d at most", ran, most, maxAtWork)
		}
		close(stopped)
		p.work.Wait()
		if len(p.places) != 0 {
			t.Errorf("%d places are lost", len(p.places))
		}
	})
}
