package shadow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/mail"
	"paddock/execd/internal/policy"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/shadow/match"
	"paddock/execd/internal/shadow/report"
	"paddock/execd/internal/stage/finish"
	"paddock/execd/internal/stage/notice"
)

// run is one run on another host. Its goroutine alone leads it on.
type run struct {
	task  *job.Task
	host  string
	claim *claim // nil: nothing is left of it but the end of the run
	found bool   // an earlier execd has begun it

	poked chan struct{} // capacity 1; there is news

	killed    *job.Want // what the host was told last to end the job for
	stopped   bool      // the host was told last to have the job stopped
	altered   []string  // the attributes that the host was told last; nil: not known
	told      bool      // the owner was told that it runs
	policy    *policy.Watch
	needs     job.Needs // of the job as its policy has seen it last
	updated   time.Time // when the record was told of it last, or might have been
	tail      finish.Tail
	accounted *accounting.Record // as the host has accounted it; nil: it has not
	notices   notice.Notices
	carried
	written chan func() // what follows a write for the owner
	noted   noted

	// Guarded by Shadows.mu.
	forgotten bool // its end is not waited for
	known
	over   *api.ActivationEnd // its processes have ended; nil: not yet
	final  *api.ActivationEnd // nothing is left of it there; nil: not yet
	gone   bool               // the host says that it knows nothing of it
	why    string             // of gone
	unsure bool               // it may have run, though the host knows nothing of it
	seq    uint64             // of final or gone
}

func (r *run) String() string { return fmt.Sprintf("job %v", r.task) }

func (r *run) sandbox() string { return r.task.Start.Remote.Sandbox }

// number is greater for each run of this host than for those before it; 0: it has none.
func (r *run) number() uint64 {
	_, n, _ := api.SandboxID(r.sandbox()).Parse()
	return n
}

// poke has its goroutine look again.
func (r *run) poke() {
	select {
	case r.poked <- struct{}{}:
	default:
	}
}

// enter makes the run of a task. s.mu is held.
func (s *Shadows) enter(t *job.Task, c *claim) *run {
	r := &run{task: t, host: t.Start.Remote.Host, claim: c, poked: make(chan struct{}, 1)}
	r.written = make(chan func(), 1)
	r.notices.Init(s.Host, t, func(f func()) { r.written <- f })
	r.tail.Init(s.Host, t, &r.notices)
	r.tail.Taken = t.Started
	r.policy = s.watched(r)
	r.updated = time.Now()
	s.runs[api.SandboxID(r.sandbox())] = r
	if c != nil && (s.Host.Store.State(t) != job.Over || t.End.Holds) {
		c.run = r
	}
	return r
}

// start starts a task of a job under a claim, and reports whether there was one, or whether its
// owner may have no more running. s.mu is held.
func (s *Shadows) start(c *claim, j *job.Job, w *schedule.Waiting) (started, enough bool) {
	s.last = max(s.last+1, uint64(time.Now().UnixNano()))
	remote := &job.Remote{Host: c.Host, Sandbox: string(api.NewSandboxID(c.ID, s.last))}
	if match.Travels(j.Terms().Needs.Request()) {
		remote.Key = api.NewSandboxKey()
	}
	t := s.Host.Store.Take(j, job.Start{
		Queue: c.Queue, Boot: s.Host.Boot, Claim: c.Public(), Priority: w.Priority, Parts: w.Parts, Remote: remote,
	}, time.Now())
	if t == nil {
		return false, false
	}
	if !s.Depart(t, false) {
		s.Host.Store.Untake(t)
		return false, true
	}
	s.lead(s.enter(t, c))
	s.Changed(j)
	return true, false
}

// lead leads a run on from where it is. s.mu is held.
func (s *Shadows) lead(r *run) {
	s.do(func(ctx context.Context) {
		err := s.live(ctx, r)
		if err != nil && ctx.Err() == nil {
			s.warnf("%v: %v", r, err)
		}
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(r)
	})
}

// drop forgets a run that is over. s.mu is held.
func (s *Shadows) drop(r *run) {
	delete(s.runs, api.SandboxID(r.sandbox()))
	s.answer(r.task.Job, false) // if it was not begun
	s.leave(r)
	s.arrived(r)
}

// leave frees the claim of a run for the next. s.mu is held.
func (s *Shadows) leave(r *run) {
	if c := r.claim; c != nil && c.run == r {
		s.started(c)
		if c.run, c.idle = nil, time.Now(); c.closed {
			s.forget(c)
		}
	}
	s.Wake()
}

// live is the life of a run: it is recorded, started, followed, and ended.
func (s *Shadows) live(ctx context.Context, r *run) error {
	st := s.Host.Store
	r.notices.Find(s.Journal)
	if st.State(r.task) == job.Ended { // by an earlier execd
		r.tail.End = r.task.End
		return s.finish(ctx, r)
	}
	if !r.found {
		request, err := st.RequestFor(r.task)
		if err == nil && match.ClassOf(r.task.Job) != r.claim.class {
			err = job.ErrAltered
		}
		var unmatched error
		if err == nil {
			var expanded *api.SubmitRequest
			if expanded, unmatched = s.Host.Match(r.task, request, r.claim.slotAd); unmatched == nil {
				request = expanded
			}
			if r.carries() {
				err = s.Files.Plan(r.task, request, 0, 0)
			}
			if err == nil {
				err = st.Begin(r.task)
			}
		}
		if err != nil {
			if errors.Is(err, job.ErrAltered) {
				err = nil
			} else {
				s.refused(r, err)
			}
			s.back(r)
			st.Untake(r.task)
			return err
		}
		if unmatched != nil { // any other slot of the kind would meet it again
			s.Host.Log.Error(fmt.Sprintf("%v: cannot start: %v", r, unmatched))
			return s.retry(ctx, r, func() error { return st.Fail(r.task, unmatched.Error()) })
		}
		r.altered = append([]string{}, request.Attributes...)
		s.remember(r, request)
		s.mu.Lock()
		s.followed(s.of(r.host))
		s.mu.Unlock()
		err = s.activate(ctx, r, request)
		s.mu.Lock()
		s.started(r.claim)
		s.mu.Unlock()
		if err != nil {
			return s.withdraw(ctx, r, err)
		}
		s.mu.Lock()
		s.answer(r.task.Job, true)
		s.mu.Unlock()
	} else if st.State(r.task) == job.Over {
		s.mu.Lock()
		s.followed(s.of(r.host))
		s.mu.Unlock()
	} else if known, err := s.fence(ctx, r); err != nil {
		return err
	} else if !known {
		return s.withdraw(ctx, r, errors.New("it was not begun before the restart"))
	}
	return s.follow(ctx, r)
}

// remember remembers where a job writes: its files are here as well.
func (s *Shadows) remember(r *run, request *api.SubmitRequest) {
	if s.Streams == nil {
		return
	}
	owner, err := s.Host.Owner(r.task)
	if err == nil {
		err = s.Streams.Add(launch.StreamsOf(r.task.Job.Number, request, owner))
	}
	if err != nil {
		s.debugf("%v: %v", r, err)
	}
}

// withdraw takes back the start of a run that the host has not begun and never will.
func (s *Shadows) withdraw(ctx context.Context, r *run, why error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.refused(r, why)
	s.warnf("%v: not started on %s: %v", r, r.host, why)
	s.back(r)
	s.unbegun(r)
	return s.retry(ctx, r, func() error { return s.Host.Store.Withdraw(r.task) })
}

// refused has nothing more started under the claim of a run that was not begun, and no job
// like it for a while on its host, unless the claim is to blame.
func (s *Shadows) refused(r *run, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := r.claim
	c.spent = true
	switch api.RefusalOf(why) {
	case api.RefusedUnknown, api.RefusedWorkLife, api.RefusedPreempted, api.RefusedState, api.RefusedFenced, api.RefusedTryAgain, api.RefusedBusy:
		if c.used {
			return
		}
	}
	if s.Host.Store.Want(r.task) == nil {
		h := s.of(r.host)
		again := h.refuse(c.class, why.Error(), false)
		again.times = min(again.times+1, 10)
		h.refused[c.class] = again
	}
}

// retry does something again and again until it is done.
func (s *Shadows) retry(ctx context.Context, r *run, do func() error) error {
	return again(ctx, retries.After, func(failures int) bool {
		err := do()
		if err != nil {
			s.warnf("%v: %v (tried again in %v)", r, err, retries.After(failures))
		}
		return err == nil
	})
}

// follow waits for the end of a run, and passes on what people want of it.
func (s *Shadows) follow(ctx context.Context, r *run) error {
	defer r.policy.Stop()
	if pushing, cancel := context.WithCancel(ctx); r.carries() && s.Host.Store.State(r.task) == job.Started {
		s.work.Go(func() { s.push(pushing, r) })
		defer cancel()
	} else {
		cancel()
	}
	for failures := 0; ; {
		s.mu.Lock()
		over, final, gone, unsure, why, there, forgotten, until := r.over, r.final, r.gone, r.unsure, r.why, r.there, r.forgotten, s.lostAt(r)
		pulls, failed := r.pulls() && !r.brought, r.failed
		s.mu.Unlock()
		if there && !r.told {
			r.told = true
			if !r.found { // else the execd before has done it
				r.notices.Mail(mail.Started, nil)
				r.notices.Happened(notice.Event{Kind: notice.Executing})
				s.Host.Counts.Start(r.task.Started.Sub(r.task.Job.Submitted))
			}
		}
		s.note(r)
		now := time.Now()
		past := !until.IsZero() && !now.Before(until)
		switch {
		case pulls:
			r.policy.Stop()
			switch lost, err := s.bring(ctx, r); {
			case err != nil:
				return err
			case lost != "":
				s.undone(r, lost)
				return s.finish(ctx, r)
			}
			r.poke() // it may have been poked for what it has not seen yet
		case failed != "" && over == nil && final == nil:
			return s.unpushed(ctx, r, failed)
		case final != nil:
			s.conclude(r, report.EndOf(final))
			return s.finish(ctx, r)
		case over != nil && (gone || past || forgotten && r.brought):
			s.conclude(r, report.End{ActivationEnd: over})
			return s.finish(ctx, r)
		case gone && !there && !r.found && !unsure:
			return s.withdraw(ctx, r, errors.New(why))
		case gone:
			s.giveUp(r, r.host+" knows nothing of it any more: "+why)
			return s.finish(ctx, r)
		case forgotten:
			s.mu.Lock()
			r.claim.spent = true
			s.mu.Unlock()
			s.giveUp(r, s.silence(r))
			return s.finish(ctx, r)
		case past:
			s.giveUp(r, s.silence(r))
			return s.finish(ctx, r)
		}
		pause := s.attend(r)
		if !until.IsZero() {
			pause = min(pause, until.Sub(now))
		}
		if err := errors.Join(s.carryOut(ctx, r), s.alter(ctx, r)); err != nil {
			failures++
			pause = min(pause, retries.After(failures))
		} else {
			failures = 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-r.poked:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// attend does what a run that goes on wants to have done by itself, and returns within what
// time to do it again: its policy is looked at when there is news, and what has changed is
// recorded.
func (s *Shadows) attend(r *run) time.Duration {
	now, every := time.Now(), s.interval()
	s.mu.Lock()
	if at := s.silentAt(r); !at.IsZero() && !now.Before(at) {
		s.cut(r)
	}
	news, executes, silent := r.news, r.over == nil, s.silentAt(r)
	r.news = false
	s.mu.Unlock()
	if !executes {
		r.policy.Stop()
		return every
	}
	due := !now.Before(r.updated.Add(every))
	switch {
	case due:
		r.updated = now
		s.update(r)
	case news && !s.lazy():
		s.update(r, numJobStarts, numJobReconnects)
	}
	if needs := r.task.Job.Terms().Needs; due || news || needs != r.needs {
		r.needs = needs
		r.policy.Look()
	}
	pause := time.Until(r.updated.Add(every))
	if !silent.IsZero() {
		pause = min(pause, time.Until(silent))
	}
	return max(pause, 0)
}

// lostAt returns when nothing runs any more of a run whose claim is not renewed; zero: it
// is. s.mu is held.
func (s *Shadows) lostAt(r *run) time.Time {
	if r.own != nil {
		if r.own.hopeless(time.Now()) {
			return r.own.lost()
		}
		return time.Time{}
	}
	if c := r.claim; c != nil && (c.closed || c.lease.hopeless(time.Now())) {
		return c.lease.lost()
	}
	return time.Time{}
}

// back notes that a run is over, before its task can start again.
func (s *Shadows) back(r *run) {
	used := &r.tail.Facts.Total
	s.Back(r.task, schedule.Used{CPU: used.CPU, Mem: used.Mem, IO: used.IO})
}

// finish records the end of a run, tells who waits, and settles its task.
func (s *Shadows) finish(ctx context.Context, r *run) error {
	s.back(r)
	recorded := r.found && s.Host.Store.Recorded(r.task)
	if kept := r.task.Kept; r.carries() && !recorded && r.tail.End.Fate == job.FateRequeue && r.tail.End.Sandbox == nil {
		r.tail.End.Sandbox = kept // it is what it was before this run
	}
	if err := s.journal(ctx, r); err != nil {
		return err
	}
	if err := s.save(ctx, r); err != nil {
		return err
	}
	s.mu.Lock()
	s.acknowledge(r)
	s.mu.Unlock()
	_, _ = r.tail.Tell() // it cannot fail
	if !recorded {       // else the execd before has done it, as far as is known
		_, _ = r.tail.Mail()
	}
	return s.retry(ctx, r, func() error {
		err := r.tail.Synced()
		if err == nil {
			s.unbox(r)
			return r.tail.Settle()
		}
		_, again := r.tail.Save()
		return errors.Join(err, again)
	})
}

// unbegun removes the sandbox here of a run that was not begun.
func (s *Shadows) unbegun(r *run) {
	if r.carries() && r.task.Start.Sandbox != nil {
		s.Files.Remove(r.task)
	}
}

// unbox removes the sandboxes here that a run needs no more.
func (s *Shadows) unbox(r *run) {
	if !r.carries() {
		return
	}
	t, next := r.task, r.tail.End.Sandbox
	if t.Start.Sandbox != nil && (next == nil || next.Dir != t.Start.Sandbox.Dir) {
		s.Files.Remove(t)
	}
	if t.Kept != nil && (next == nil || next.Dir != t.Kept.Dir) {
		s.Files.Unbox(t.Kept)
	}
}
