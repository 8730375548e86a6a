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
