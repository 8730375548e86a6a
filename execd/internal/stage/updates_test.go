package stage

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/internal/metrics"
	"paddock/execd/internal/usage"
)

// REQ-FLOW-20: an update to the slot of which nothing is known is dropped, and the next comes
// at its time.
// REQ-FLOW-109: it is counted.
func TestUpdatesDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.mend()
		judged := false
		s.r.Usage = &usage.Sampler{Log: slog.New(slog.DiscardHandler)}
		s.r.Judges = func() bool { return judged }
		dropped := func(want uint64) {
			t.Helper()
			synctest.Wait()
			if n := s.r.Counts.Dropped(metrics.ToSlot); n != want {
				t.Errorf("%d were dropped, want %d", n, want)
			}
		}
		s.l.notices.Find(nil)
		s.l.hooks.StartUpdates(0)
		time.Sleep(time.Hour)
		dropped(0) // no slot wants to know
		judged = true
		s.r.add(s.l)
		s.r.Watch()
		s.r.Watch()
		time.Sleep(9 * time.Second) // an hour is twelve intervals, behind the first of 8 s
		dropped(1)
		time.Sleep(600 * time.Second)
		dropped(3)
		if s.r.Reported(s.l.task.RunID()) != nil {
			t.Error("the slot was told something")
		}
		if over, err := s.l.hooks.StopUpdates(); !over || err != nil {
			t.Error(over, err)
		}
		time.Sleep(time.Hour)
		dropped(3)
	})
}
