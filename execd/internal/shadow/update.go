package shadow

import (
	"maps"
	"time"

	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/policy"
)

// updates bring what is told of a run to the record of its job, and to its policy. The goroutine of
// the run alone uses them.
type updates struct {
	run      *run
	policy   *policy.Watch
	needs    job.Needs  // of the job as the policy has seen it last
	recorded job.Update // what is in the record
	at       time.Time  // when the record was told of the run last, or might have been
}

// init makes them those of a run.
func (u *updates) init(r *run) {
	u.run, u.at = r, time.Now()
	u.policy = &policy.Watch{
		Config: r.Host.Config,
		// Attributes that are altered count at the next look.
		Ad: func() (*classad.Ad, policy.Times) {
			if !policy.Any(r.task.Job.Terms().Needs.Attributes()) {
				return nil, policy.Times{}
			}
			r.mu.Lock()
			there, status, reconnects := r.there, r.status, r.reconnects
			r.mu.Unlock()
			of := r.Host.JobAd(r.task)
			if there {
				of = ad.Running(of, status).With(classad.Attr{Name: numJobReconnects, Expr: classad.Int(int64(reconnects)).Expr()})
			}
			return of, policy.Times{Started: r.task.Started, Executing: status.Started}
		},
		Act: func(v policy.Verdict) {
			if r.Host.Obey(r.task, &v) {
				r.poke()
			}
		},
	}
}

// interval is how often the record is told of the run.
func (u *updates) interval() time.Duration {
	return max(u.run.Host.Config().Knobs.Duration("SHADOW_QUEUE_UPDATE_INTERVAL", 15*time.Minute), time.Second)
}

// attend has the policy look at a run that goes on when there is news, records what has changed
// when that is due, and returns within what time to do it again.
func (u *updates) attend(news bool) time.Duration {
	now, every := time.Now(), u.interval()
	due := !now.Before(u.at.Add(every))
	switch {
	case due:
		u.at = now
		u.write()
	case news && !u.run.Host.Config().Knobs.Bool("SHADOW_LAZY_QUEUE_UPDATE", true):
		u.write(numJobStarts, numJobReconnects)
	}
	if needs := u.run.task.Job.Terms().Needs; due || news || needs != u.needs {
		u.needs = needs
		u.policy.Look()
	}
	return time.Until(u.at.Add(every))
}

// write records what has changed of a run since that was done last: all, or only these
// attributes. What cannot be recorded is left to the next time.
func (u *updates) write(only ...string) {
	r, changed := u.run, job.Update{}
	r.mu.Lock()
	if r.there {
		now := r.forRecord(r.task)
		if len(only) == 0 {
			for name := range now {
				only = append(only, name)
			}
		}
		for _, name := range only {
			if now[name] != u.recorded[name] {
				changed[name] = now[name]
			}
		}
	}
	r.mu.Unlock()
	if len(changed) == 0 {
		return
	}
	if err := r.Host.Store.Update(r.task, changed); err != nil {
		r.debugf("%v: %v (left to the next update)", r, err)
		return
	}
	if u.recorded == nil {
		u.recorded = job.Update{}
	}
	maps.Copy(u.recorded, changed)
}
