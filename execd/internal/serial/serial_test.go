package serial

import (
	"slices"
	"testing"
)

// Things are done in their order, what was added meanwhile last; and of what has a limit
// no more waits than that.
func TestQueue(t *testing.T) {
	const limit = 64
	var q Queue
	q.Wait()
	if q.Done() != nil {
		t.Error("an empty queue is not done")
	}
	var did []int
	hangs, begun := make(chan struct{}), make(chan struct{})
	q.Add(func() { close(begun); <-hangs; q.Add(func() { did = append(did, -1) }) })
	<-begun
	for i := range 2 * limit {
		if got, want := q.AddBelow(limit, func() { did = append(did, i) }), i < limit; got != want {
			t.Fatalf("number %d: taken %t; want %t", i, got, want)
		}
	}
	q.Add(func() { did = append(did, limit) })
	if n := q.Waiting(); n != limit+1 {
		t.Errorf("%d wait; want %d", n, limit+1)
	}
	if q.Done() == nil {
		t.Error("all is done at once")
	}
	close(hangs)
	q.Wait()
	want := make([]int, 0, limit+2)
	for i := range limit + 1 {
		want = append(want, i)
	}
	if want = append(want, -1); !slices.Equal(did, want) || q.Done() != nil || q.Waiting() != 0 {
		t.Errorf("did %v; want %v, and nothing to do", did, want)
	}
}
