package shadow

import (
	"testing"
	"time"
)

// Attempts without an answer count for how long the other host may have a job run, and
// those that were not sent do not.
func TestLease(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(10_000+s), 0) }
	for _, tt := range []struct {
		name                  string
		tried, asked, renewed int
		failures              int
		due                   int
		hopeless              int // the first second
		lost                  int
	}{
		{"renewed", 0, 0, 0, 0, 200, 601, 646},
		{"an answer was lost", 200, 200, 0, 1, 201, 601, 846},
		{"three were", 203, 203, 0, 3, 207, 601, 849},
		{"it does not listen", 200, 590, 200, 9, 620, 801, 846},
	} {
		l := lease{length: 600 * time.Second, tried: at(tt.tried), asked: at(tt.asked), renewed: at(tt.renewed), failures: tt.failures}
		if due := l.due(); !due.Equal(at(tt.due)) {
			t.Errorf("%s: it is due at %v, want %v", tt.name, due.Sub(at(0)), tt.due)
		}
		if l.hopeless(at(tt.hopeless-1)) || !l.hopeless(at(tt.hopeless)) {
			t.Errorf("%s: it is hopeless at another time than %d", tt.name, tt.hopeless)
		}
		if lost := l.lost(); !lost.Equal(at(tt.lost)) {
			t.Errorf("%s: it is lost at %v, want %v", tt.name, lost.Sub(at(0)), tt.lost)
		}
	}
}
