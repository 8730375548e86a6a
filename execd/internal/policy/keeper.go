package policy

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/internal/hint"
)

// Keeper looks at jobs that do not run: when they begin to wait, and by a timer if what they
// say depends on the time. Without such jobs it sleeps. The exported fields are set before
// first use.
type Keeper struct {
	Store interface {
		WaitingParts(j *job.Job) []job.Waiting
		Release(j *job.Job, task int, why string) (released bool, err error)
		Discard(j *job.Job, w job.Waiting, why string) error
	}
	Config func() *conf.Config
	// Ad returns the ad of what does not run of a job.
	Ad  func(j *job.Job, w *job.Waiting) *classad.Ad
	Log *slog.Logger

	wake hint.Chan // there is something in news

	mu   sync.Mutex        // under that of the Store
	news map[*job.Job]bool // guarded by mu; jobs to be looked at

	// These are Run's.
	later map[*job.Job]time.Time // when jobs are looked at again
	every time.Duration          // how often those are that change with the time
	slow  time.Duration          // how seldom they are at least, since there are many
}

// Init makes it ready.
func (k *Keeper) Init() {
	k.wake, k.news, k.later = hint.New(), map[*job.Job]bool{}, map[*job.Job]time.Time{}
}

// Waits has a job looked at, if it has a policy: something of it waits. It does not block.
func (k *Keeper) Waits(j *job.Job) {
	if !Any(j.Terms().Needs.Attributes()) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.news[j] = true
	k.wake.Give()
}

// Run works until ctx is done.
func (k *Keeper) Run(ctx context.Context) {
	var soonest time.Time
	for ctx.Err() == nil {
		k.mu.Lock()
		due := k.news
		k.news = map[*job.Job]bool{}
		k.mu.Unlock()
		now := time.Now()
		timed := !soonest.IsZero() && !now.Before(soonest)
		if timed {
			soonest = time.Time{}
			for j, at := range k.later {
				if now.Before(at) {
					soonest = sooner(soonest, at)
				} else {
					due[j] = true
				}
			}
		}
		k.every = max(k.slow, interval(k.Config()))
		for j := range due {
			delete(k.later, j)
			if at := k.look(j); !at.IsZero() {
				// Those that are due within a second are looked at together.
				k.later[j] = at.Truncate(time.Second).Add(time.Second)
				soonest = sooner(soonest, k.later[j])
			}
		}
		// What users write may be expensive: a hundredth of the time is for it.
		if timed {
			k.slow = min(100*time.Since(now), maxInterval)
		}
		k.sleep(ctx, soonest)
	}
}

// maxInterval bounds how seldom expressions that change with the time are looked at because
// there are many.
const maxInterval = 20 * time.Minute

// sleep waits until there is news or a time has come; zero: never.
func (k *Keeper) sleep(ctx context.Context, until time.Time) {
	var timer <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
	case <-k.wake:
	case <-timer:
	}
}

// look looks at what does not run of a job, and returns when to do it again; zero: when there
// is news of it.
func (k *Keeper) look(j *job.Job) (again time.Time) {
	if !Any(j.Terms().Needs.Attributes()) {
		return again
	}
	for _, w := range k.Store.WaitingParts(j) {
		now := time.Now()
		var held time.Time
		if w.Held {
			held = w.Since
		}
		v, next := waiting(k.Ad(j, &w), held, now, k.every)
		if err := k.act(j, w, &v); err != nil {
			k.Log.Error(fmt.Sprintf("job %d: %s: %v (tried again in %v)", j.Number, v.Rule, err, k.every))
			next = now.Add(k.every)
		}
		again = sooner(again, next)
	}
	return again
}

// act carries out a verdict.
func (k *Keeper) act(j *job.Job, w job.Waiting, v *Verdict) error {
	done, err := false, error(nil)
	switch v.Action {
	case Release:
		done, err = k.Store.Release(j, w.Task, v.By())
	case Remove:
		done, err = true, k.Store.Discard(j, w, v.By())
	}
	if err == nil && done {
		name := fmt.Sprint(j.Number)
		if w.Task > 0 && j.Tasks.IsArray() {
			name = fmt.Sprintf("%d.%d", j.Number, w.Task)
		}
		k.Log.Info(fmt.Sprintf("job %s: %s by %s", name, map[Action]string{Release: "released", Remove: "deleted"}[v.Action], v.By()))
	}
	return err
}
