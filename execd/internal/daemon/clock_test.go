package daemon

import (
	"context"
	"testing"
	"time"

	"paddock/test/harness"
)

// That the clock is set cannot be had here; that it is watched, and for how
// long, can.
func TestWatchClock(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- watchClock(ctx, func() {}) }()
	select {
	case err := <-done:
		t.Fatalf("watchClock = %v at once; want it to wait", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(harness.Patience):
		t.Error("watchClock does not end")
	}
}
