package notice

import "testing"

// A user whose log hangs, and who suspends his job again and again, does not have
// execd remember all of it. What tells of the end is written all the same.
func TestOutboxIsBounded(t *testing.T) {
	var o outbox
	hangs, begun, written := make(chan struct{}), make(chan struct{}), make(chan struct{})
	o.put(func() { close(begun); <-hangs }, true)
	<-begun
	for i := range 2 * maxWaiting {
		if got, want := o.put(func() {}, true), i < maxWaiting; got != want {
			t.Fatalf("event %d: taken %t; want %t", i, got, want)
		}
	}
	if !o.put(func() { close(written) }, false) {
		t.Error("the end is not taken")
	}
	close(hangs)
	<-written
}
