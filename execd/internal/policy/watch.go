package policy

import (
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/internal/conf"
)

// interval is how often expressions that change with the time are looked at.
func interval(c *conf.Config) time.Duration {
	return c.Knobs.Duration("PERIODIC_EXPR_INTERVAL", time.Minute)
}

// Watch looks at a job that runs: each time that there is news of it, and by a timer if what
// it says depends on the time. The exported fields are set before first use.
type Watch struct {
	Config func() *conf.Config
	// Ad returns what is known of the job now; nil: not enough.
	Ad func() (*classad.Ad, Times)
	// Act carries out a verdict. It is called again at the next look if it was in vain.
	Act func(Verdict)

	mu    sync.Mutex
	timer *time.Timer // guarded by mu; nil: there never was one
	over  bool        // guarded by mu
}

// Look judges the job as it is now.
func (w *Watch) Look() {
	w.mu.Lock()
	over := w.over
	w.mu.Unlock()
	if over {
		return
	}
	job, times := w.Ad()
	if job == nil {
		return
	}
	v, next := running(job, times, time.Now(), interval(w.Config()))
	if v.Action != Stay {
		w.Act(v)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	if !w.over && !next.IsZero() {
		w.timer = time.AfterFunc(time.Until(next), w.Look)
	}
}

// Stop ends it: the job has ended.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
