package shadow

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/policy"
	"paddock/execd/internal/shadow/report"
	"paddock/execd/internal/timeline"
)

// told is what a host has told of a run. It is guarded by core.mu.
type told struct {
	there       bool      // it runs, or has run
	status      ad.Status // as of the last update
	used        bool      // status says what is used
	updateSeq   uint64    // of the last update since the host answers; an older one says nothing
	heard       time.Time // when there was one last, or the host began to answer
	most        time.Duration
	reconnects  int  // how often the host has answered again
	suspensions int  // how often the run was suspended
	news        bool // that its policy has not seen

	over    *api.ActivationEnd // its processes have ended; nil: not yet
	outcome *api.Outcome       // of over: what it has left
	overSeq uint64             // of over, until that is recorded
	final   *api.ActivationEnd // nothing is left of it there; nil: not yet
	gone    bool               // nothing is known of it there
	why     string             // of gone
	unsure  bool               // it may have run, though nothing is known of it
	endSeq  uint64             // of final or gone
	doubted bool               // its host may have forgotten that it was to tell the end
}

// The attributes that the record of a job has of a run beside those of its status.
const (
	numJobStarts     = "NumJobStarts"
	numJobReconnects = "NumJobReconnects"
	totalSuspensions = "TotalSuspensions"
)

// update takes over an update, in the order of their numbers. It reports whether it was a newer one.
func (k *told) update(e *api.ActivationEvent, s *ad.Status, most time.Duration) bool {
	if e.Seq <= k.updateSeq {
		return false
	}
	now, was := time.Now(), k.status.Suspended
	k.updateSeq, k.heard, k.news = e.Seq, now, true
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
	return true
}

// forRecord is what the record of the job is to have of it.
func (k *told) forRecord(t *job.Task) job.Update {
	u := job.Update{}
	for name, e := range ad.Running(classad.New(), k.status).All() {
		u[name] = e.OldString()
	}
	u[numJobStarts], u[numJobReconnects], u[totalSuspensions] = strconv.Itoa(t.Run+1), strconv.Itoa(k.reconnects), strconv.Itoa(k.suspensions)
	return u
}

// recall takes over what the record of a job has of a run that an earlier execd has begun.
func (k *told) recall(u job.Update) {
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

// usage returns what was used by a run that was started at a time.
func (k *told) usage(started time.Time) api.Usage {
	u := api.Usage{CPU: (k.status.UserCPU + k.status.SysCPU).Seconds(), PIDs: k.status.Processes, Wallclock: time.Since(started).Seconds()}
	u.VMem, u.RSS = 1024*float64(k.status.ImageSize), 1024*float64(k.status.ResidentSetSize)
	u.MaxVMem, u.MaxRSS = u.VMem, u.RSS
	return u
}

// hear takes over an event of a run, and reports whether it is acknowledged at once: what is to be
// recorded is so when that is done. core.mu is held.
func (r *run) hear(e *api.ActivationEvent, s *ad.Status, most time.Duration) (acknowledged bool) {
	switch e.Kind {
	case api.ActivationStarted, api.ActivationUpdate, api.ActivationSuspended, api.ActivationResumed:
		if r.update(e, s, most) {
			r.note()
			r.poke()
		}
	case api.ActivationOver:
		// The claim is free before the end is accounted.
		if r.there = true; e.End != nil && r.over == nil {
			r.over, r.outcome = e.End, e.Outcome
			r.note()
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
			r.over, r.final, r.endSeq = e.End, e.End, e.Seq
			r.note()
			r.runs.claims.leave(r)
			r.poke()
		}
		return false
	case api.ActivationGone:
		if r.final == nil && !r.gone {
			r.gone, r.why, r.endSeq = true, api.Visible(api.Short(e.Reason)), e.Seq
			r.poke()
		}
		return false
	}
	return true
}

// note has the timeline show what is told of a run: that it runs, or is suspended, or does no more.
// core.mu is held.
func (r *run) note() {
	id, now := r.task.RunID(), time.Now()
	switch {
	case r.over != nil:
		r.Host.Timeline.Note(id, timeline.Span{Kind: timeline.Job, End: now})
		return
	case r.status.Started.IsZero(): // it has told nothing yet
		return
	}
	r.Host.Timeline.Note(id, timeline.Span{Kind: timeline.Job, Begin: r.status.Started})
	if r.status.Suspended {
		r.Host.Timeline.Note(id, timeline.Span{Kind: timeline.Suspended, Begin: now})
	} else {
		r.Host.Timeline.Note(id, timeline.Span{Kind: timeline.Suspended, End: now})
	}
}

// hearAgain notes that the host of a run answers again. It may have been started anew, and count
// anew. A run of which the record says that it began may have told this execd nothing yet. core.mu
// is held.
func (r *run) hearAgain() {
	r.doubted = true
	if r.updateSeq, r.heard = 0, time.Now(); (r.there || r.used) && r.over == nil {
		r.reconnects++
		r.news = true
	}
	r.poke()
}

// silentAt is when a host that tells of a run at regular times, and has not, is not connected
// any more, though it may seem so; zero: never. core.mu is held.
func (r *run) silentAt() time.Time {
	if !r.there || r.most == 0 || r.over != nil || !r.host.silent.IsZero() {
		return time.Time{}
	}
	return r.heard.Add(max(3*r.most, callLimit))
}

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
	u.run, u.recorded, u.at = r, job.Update{}, time.Now()
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

// attend has the policy look at a run when there is news, as long as it executes, records what has
// changed when that is due, and returns within what time to do it again.
func (u *updates) attend(news, executes bool) time.Duration {
	knobs, now := u.run.Host.Config().Knobs, time.Now()
	every := max(knobs.Duration("SHADOW_QUEUE_UPDATE_INTERVAL", 15*time.Minute), time.Second)
	if !executes {
		u.policy.Stop()
		return every
	}
	due := !now.Before(u.at.Add(every))
	switch {
	case due:
		u.at = now
		u.write()
	case news && !knobs.Bool("SHADOW_LAZY_QUEUE_UPDATE", true):
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
		for name, value := range r.forRecord(r.task) {
			if value != u.recorded[name] && (len(only) == 0 || slices.Contains(only, name)) {
				changed[name] = value
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
	maps.Copy(u.recorded, changed)
}
