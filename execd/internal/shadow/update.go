package shadow

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/policy"
	"paddock/execd/internal/shadow/report"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/outcome"
	"paddock/spool"
)

// known is what is known of a run beside its end. It is guarded by core.mu.
type known struct {
	there       bool      // its host has said that it runs
	status      ad.Status // as its host has said last
	used        bool      // it has said what is used
	seq         uint64    // of the last update since its host answers; an older one says nothing
	heard       time.Time // when there was one last, or its host began to answer
	most        time.Duration
	reconnects  int        // how often its host has answered again
	suspensions int        // how often it was suspended
	news        bool       // that its policy has not seen
	recorded    job.Update // what is in the record of the job
}

// The attributes that the record of a job has of a run beside those of its status.
const (
	numJobStarts     = "NumJobStarts"
	numJobReconnects = "NumJobReconnects"
	totalSuspensions = "TotalSuspensions"
)

// hear takes over an event of a run, and reports whether it is acknowledged at once: what is to be
// recorded is so when that is done. core.mu is held.
func (r *run) hear(e *api.ActivationEvent, s *ad.Status, most time.Duration) (acknowledged bool) {
	switch e.Kind {
	case api.ActivationStarted, api.ActivationUpdate, api.ActivationSuspended, api.ActivationResumed:
		r.take(e, s, most)
	case api.ActivationOver:
		// The claim is free before the end is accounted.
		if r.there = true; e.End != nil && r.over == nil {
			r.over, r.outcome = e.End, e.Outcome
			if r.claim != nil { // else its end is recorded already
				r.claim.used = true
			}
			if !r.pulls() {
				r.runs.claims.leave(r)
			}
			r.poke()
		}
		if r.pulls() && r.Host.Store.State(r.task) == job.Started {
			r.overSeq = e.Seq
			return false
		}
	case api.ActivationFinal:
		if e.End != nil && r.final == nil {
			r.over, r.final, r.seq = e.End, e.End, e.Seq
			if r.claim != nil {
				r.claim.used = true
			}
			r.runs.claims.leave(r)
			r.poke()
		}
		return false
	case api.ActivationGone:
		if r.final == nil && !r.gone {
			r.gone, r.why, r.seq = true, api.Visible(api.Short(e.Reason)), e.Seq
			r.poke()
		}
		return false
	}
	return true
}

// reconnected notes that the host of a run answers again. It may have been started anew, and count
// anew. core.mu is held.
func (r *run) reconnected() {
	if r.known.seq, r.heard = 0, time.Now(); r.there && r.over == nil {
		r.reconnects++
		r.news = true
	}
	r.poke()
}

// take takes over an event of a run, in the order of their numbers. core.mu is held.
func (r *run) take(e *api.ActivationEvent, s *ad.Status, most time.Duration) {
	k := &r.known
	if e.Seq <= k.seq {
		return
	}
	now, was := time.Now(), k.status.Suspended
	k.seq, k.heard, k.news = e.Seq, now, true
	if !k.there {
		k.there = true
		if k.status.Started.IsZero() {
			k.status.Started = now // by the clock of this host
		}
	}
	if most > 0 {
		k.most = most
	}
	if s != nil {
		s.Started = k.status.Started
		k.status, k.used = *s, true
	}
	switch e.Kind {
	case api.ActivationSuspended:
		k.status.Suspended = true
	case api.ActivationResumed:
		k.status.Suspended = false
	}
	if k.status.Suspended && !was {
		k.suspensions++
	}
	r.poke()
}

// now is what the record of the job is to have of a run. core.mu is held.
func (k *known) now(t *job.Task) job.Update {
	u := job.Update{}
	for name, e := range ad.Running(classad.New(), k.status).All() {
		u[name] = e.OldString()
	}
	u[numJobStarts], u[numJobReconnects], u[totalSuspensions] = strconv.Itoa(t.Run+1), strconv.Itoa(k.reconnects), strconv.Itoa(k.suspensions)
	return u
}

// recall takes over what the record of a job has of a run that an earlier execd has begun.
func (k *known) recall(u job.Update) {
	k.recorded = u
	if len(u) == 0 {
		return
	}
	var text strings.Builder
	for name, value := range u {
		fmt.Fprintf(&text, "%s = %s\n", name, value)
	}
	if s, _ := report.StatusOf(text.String()); s != nil {
		k.status, k.used = *s, true
	}
	k.reconnects, _ = strconv.Atoi(u[numJobReconnects])
	k.suspensions, _ = strconv.Atoi(u[totalSuspensions])
}

// updateRecord records what has changed of a run since that was done last: all, or only these
// attributes. What cannot be recorded is left to the next time.
func (r *run) updateRecord(only ...string) {
	r.mu.Lock()
	changed := job.Update{}
	if r.there {
		now := r.known.now(r.task)
		if len(only) == 0 {
			for name := range now {
				only = append(only, name)
			}
		}
		for _, name := range only {
			if now[name] != r.recorded[name] {
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
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recorded == nil {
		r.recorded = job.Update{}
	}
	maps.Copy(r.recorded, changed)
}

// updateInterval is how often the record of a job is told of its run.
func (r *run) updateInterval() time.Duration {
	return max(r.Host.Config().Knobs.Duration("SHADOW_QUEUE_UPDATE_INTERVAL", 15*time.Minute), time.Second)
}

// updatesLazily reports whether it is told nothing sooner.
func (r *run) updatesLazily() bool {
	return r.Host.Config().Knobs.Bool("SHADOW_LAZY_QUEUE_UPDATE", true)
}

// newWatch makes the watch of the policy of a run. Attributes that are altered count at the
// next look.
func (r *run) newWatch() *policy.Watch {
	return &policy.Watch{
		Config: r.Host.Config,
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

// silentAt is when a host that tells of a run at regular times, and has not, is not connected
// any more, though it may seem so; zero: never. core.mu is held.
func (r *run) silentAt() time.Time {
	if !r.there || r.most == 0 || r.over != nil || !r.host.silent.IsZero() {
		return time.Time{}
	}
	return r.heard.Add(max(3*r.most, callLimit))
}

// reconnect ends the connection to the host of a run that has not told of it, and has it begun anew.
// core.mu is held.
func (r *run) reconnect() {
	r.host.reconnect(fmt.Errorf("it has told nothing of %v for %v", r, time.Since(r.heard).Round(time.Second)))
	r.heard = time.Now()
}

// save records the end of a run. If that cannot be done for a while the run counts for
// nothing and its job runs again, if it may.
func (r *run) save(ctx context.Context) error {
	knobs := r.Host.Config().Knobs
	delay := max(knobs.Duration("SHADOW_JOB_CLEANUP_RETRY_DELAY", 30*time.Second), time.Second)
	most := knobs.Int("SHADOW_MAX_JOB_CLEANUP_RETRIES", 5)
	return again(ctx, func(int) time.Duration { return delay }, func(attempt int) bool {
		_, err := r.tail.Save()
		if err == nil {
			return true
		}
		r.warnf("%v: %v (tried again in %v)", r, err, delay)
		if attempt > most {
			r.putBack(err)
		}
		return false
	})
}

// putBack has the job of a run whose end cannot be recorded run again, as soon as that can be
// recorded: unless the record may have the end, or the job may not run again.
func (r *run) putBack(why error) {
	e, t := r.tail.End, r.task
	if e.Fate != job.FateDone || r.Host.Store.Recorded(t) || r.Host.Store.Want(t) != nil || !outcome.Rerunnable(t, r.Host.Config().Queue(t.Start.Queue)) {
		return
	}
	r.warnf("%v: runs again: its end cannot be recorded", r)
	e.Failed, e.Cause, e.Fate = spool.FailedRescheduling, spool.CauseRescheduled, job.FateRequeue
	e.Reason = fmt.Sprintf("its end could not be recorded, and it runs again (%d): %s", exit.Requeue, api.Visible(why.Error()))
	r.account(r.accounted)
}
