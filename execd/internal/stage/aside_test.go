package stage

import (
	"sync"
	"testing"
	"testing/synctest"

	"paddock/execd/internal/job"
)

// A user who stops what removes the TMPDIR of his jobs does not hold up the runs of
// others, however many he has.
func TestAsideHoldsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runner{}
		stopped := make(chan struct{})
		for range 2 * maxAtWork {
			r.inPlace(func() { r.Aside(func() { <-stopped }) })
		}
		synctest.Wait()
		var mu sync.Mutex
		at, most, ran := 0, 0, 0
		for range 2 * maxAtWork { // and no more than so many are led on at once
			r.inPlace(func() {
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
		r.work.Wait()
		if len(r.places) != 0 {
			t.Errorf("%d places are lost", len(r.places))
		}
	})
}

// A run that is not started gives its slot back before it is forgotten. The next try
// has the same number, may begin in between, and is not forgotten with it: nobody
// would hear of its end.
func TestNextTryIsNotForgotten(t *testing.T) {
	task := func() *job.Task { return &job.Task{Job: &job.Job{Number: 7}, Number: 1} }
	r := &Runner{}
	old, next := r.newLife(task()), r.newLife(task())
	r.add(old)
	r.add(next)
	r.drop(old)
	if r.life(next.task.RunID()) != next {
		t.Error("the next try is forgotten with the one before")
	}
	r.drop(next)
	if len(r.lives) != 0 {
		t.Errorf("%d runs are left", len(r.lives))
	}
}
