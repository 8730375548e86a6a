package backoff

import (
	"math"
	"testing"
	"time"
)

func TestDoubling(t *testing.T) {
	d := Doubling{First: 3 * time.Second, Most: 20 * time.Second}
	var pause time.Duration
	for failures, want := range []time.Duration{0, 3, 6, 12, 20, 20} {
		want *= time.Second
		if pause != want || d.After(failures) != want {
			t.Errorf("after %d failures: %v and %v; want %v", failures, pause, d.After(failures), want)
		}
		pause = d.Next(pause)
	}
	if got := d.After(math.MaxInt); got != d.Most {
		t.Errorf("after very many: %v", got)
	}
	if got := d.After(-1); got != 0 {
		t.Errorf("after -1: %v", got)
	}
}

func TestRestarts(t *testing.T) {
	var r Restarts
	now := time.Unix(1000, 0)
	if wait := r.Wait(now); wait > 0 {
		t.Errorf("the first start waits for %v", wait)
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		if pause := r.Ended(now); pause != want*time.Second || r.Wait(now) != pause {
			t.Errorf("pause %v, wait %v; want %v", pause, r.Wait(now), want*time.Second)
		}
		now = now.Add(time.Hour)
		if wait := r.Wait(now); wait > 0 {
			t.Errorf("an hour later it waits for %v", wait)
		}
	}
	r.Useful()
	if pause := r.Ended(now); pause != time.Second {
		t.Errorf("after it was of use the pause is %v; want a second", pause)
	}
}
