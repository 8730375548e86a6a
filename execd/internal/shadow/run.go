package shadow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/shadow/match"
	"paddock/execd/internal/shadow/report"
	"paddock/internal/hint"
)

// run is one run on another host. Its goroutine, which goes through live, alone uses what core.mu
// does not guard.
type run struct {
	*core
	runs  *runs
	task  *job.Task
	host  *host
	claim *claim // nil: nothing is left of it but the end of the run
	found bool   // an earlier execd has begun it

	poked hint.Chan // there is news

	input   push
	orders  orders
	updates updates
	notices notices
	output  pull
	tail    ending

	// Guarded by core.mu.
	forgotten bool   // its end is not waited for
	detached  bool   // its claim is gone, and its sandbox has a lease of its own
	lease     *lease // under which its host has it: that of its claim, or of its sandbox
	told
}

func (r *run) String() string { return fmt.Sprintf("job %v", r.task) }

// id is the name of the run on its host, which is that of its sandbox there.
func (r *run) id() api.SandboxID { return api.SandboxID(r.task.Start.Remote.Sandbox) }

// number is greater for each run of this host than for those before it; 0: it has none.
func (r *run) number() uint64 {
	_, n, _ := r.id().Parse()
	return n
}

// carries reports whether the files of a run travel.
func (r *run) carries() bool { return r.task.Start.Remote.Key != "" }

// pulls reports whether it has left something that is to be pulled. core.mu is held.
func (r *run) pulls() bool { return r.carries() && r.outcome != nil && r.outcome.Pull }

// secret returns what opens the sandbox of a run on its host.
func (r *run) secret() (api.SandboxID, api.SandboxKey) {
	return r.id(), r.task.Start.Remote.Key
}

// poke has its goroutine look again.
func (r *run) poke() { r.poked.Give() }

// compresses reports whether what travels between its host and this one is compressed.
func (r *run) compresses() bool {
	return slices.ContainsFunc(r.Peers(), func(p api.PeerStatus) bool { return p.Name == r.host.name && p.Zstd })
}

// live is the life of a run: it is begun, followed, and ended.
func (r *run) live(ctx context.Context) error {
	r.notices.Find(r.Journal)
	switch state := r.Host.Store.State(r.task); {
	case state == job.Ended: // by an earlier execd
		r.tail.End = r.task.End
		return r.finish(ctx)
	case state == job.Over:
		r.mu.Lock()
		r.host.follow()
		r.mu.Unlock()
	case r.found:
		if known, err := r.fence(ctx); err != nil {
			return err
		} else if !known {
			return r.withdraw(ctx, errors.New("it was not begun before the restart"))
		}
	default:
		if begun, err := r.begin(ctx); !begun {
			return err
		}
	}
	return r.follow(ctx)
}

// begin records the start of a run, and has its host begin it.
func (r *run) begin(ctx context.Context) (begun bool, err error) {
	st := r.Host.Store
	request, err := st.RequestFor(r.task)
	if err == nil && match.ClassOf(r.task.Job) != r.claim.class {
		err = job.ErrAltered
	}
	var unmatched error
	if err == nil {
		var expanded *api.SubmitRequest
		if expanded, unmatched = r.Host.Match(r.task, request, r.claim.slotAd); unmatched == nil {
			request = expanded
		}
		if r.carries() {
			err = r.Files.Plan(r.task, request, 0, 0)
		}
	}
	if err == nil {
		err = st.Begin(r.task)
	}
	switch {
	case err != nil:
		if errors.Is(err, job.ErrAltered) {
			err = nil
		} else {
			r.noteRefusal(err)
		}
		r.tellQueue()
		st.Untake(r.task)
		return false, err
	case unmatched != nil: // any other slot of the kind would meet it again
		r.Host.Log.Error(fmt.Sprintf("%v: cannot start: %v", r, unmatched))
		return false, r.takeBack(ctx, func() error { return st.Fail(r.task, unmatched.Error()) })
	}
	r.orders.altered = append([]string{}, request.Attributes...)
	r.rememberStreams(request)
	r.mu.Lock()
	r.host.follow()
	r.mu.Unlock()
	err = r.activate(ctx, request)
	r.mu.Lock()
	r.claim.wakeOutput()
	if err == nil {
		r.runs.now.answer(r.task.Job, true)
	}
	r.mu.Unlock()
	if err != nil {
		return false, r.withdraw(ctx, err)
	}
	return true, nil
}

// rememberStreams remembers where a job writes: its files are here as well.
func (r *run) rememberStreams(request *api.SubmitRequest) {
	if r.Streams == nil {
		return
	}
	owner, err := r.Host.Owner(r.task)
	if err == nil {
		err = r.Streams.Add(launch.StreamsOf(r.task.Job.Number, request, owner))
	}
	if err != nil {
		r.debugf("%v: %v", r, err)
	}
}

// withdraw takes back the start of a run that the host has not begun and never will.
func (r *run) withdraw(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.noteRefusal(why)
	r.warnf("%v: not started on %s: %v", r, r.host.name, why)
	return r.takeBack(ctx, func() error { return r.Host.Store.Withdraw(r.task) })
}

// takeBack records what becomes of a task whose run was not begun.
func (r *run) takeBack(ctx context.Context, record func() error) error {
	r.tellQueue()
	if r.carries() {
		r.Files.Remove(r.task)
	}
	return r.retry(ctx, record)
}

// noteRefusal has nothing more started under the claim of a run that was not begun, and no job
// like it for a while on its host, unless the claim is to blame.
func (r *run) noteRefusal(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.claim
	c.spent = true
	switch api.RefusalOf(why) {
	case api.RefusedUnknown, api.RefusedWorkLife, api.RefusedPreempted, api.RefusedState, api.RefusedFenced, api.RefusedTryAgain, api.RefusedBusy:
		if c.used {
			return
		}
	}
	if r.Host.Store.Want(r.task) == nil {
		r.host.refuse(c.class, why.Error(), false, true)
	}
}

// retry does something again and again until it is done.
func (r *run) retry(ctx context.Context, do func() error) error {
	return again(ctx, retries.After, func(failures int) bool {
		err := do()
		if err != nil {
			r.warnf("%v: %v (tried again in %v)", r, err, retries.After(failures))
		}
		return err == nil
	})
}

// follow waits for the end of a run, and passes on what people want of it.
func (r *run) follow(ctx context.Context) error {
	defer r.updates.policy.Stop()
	if pushing, cancel := context.WithCancel(ctx); r.carries() && r.Host.Store.State(r.task) == job.Started {
		r.work.Go(func() { r.input.send(pushing) })
		defer cancel()
	} else {
		cancel()
	}
	for failures := 0; ; {
		r.mu.Lock()
		over, final, gone, unsure, why, there, forgotten, until := r.over, r.final, r.gone, r.unsure, r.why, r.there, r.forgotten, r.lostAt()
		pulls, failed := r.pulls() && !r.output.brought, r.input.failed
		r.mu.Unlock()
		r.notices.tell()
		now := time.Now()
		ended, past := true, !until.IsZero() && !now.Before(until)
		switch {
		case pulls:
			r.updates.policy.Stop()
			lost, err := r.output.bring(ctx)
			if err != nil {
				return err
			}
			if ended = lost != ""; ended {
				r.tail.withoutOutput(lost)
			}
			r.poke() // it may have been poked for what it has not seen yet
		case failed != "" && over == nil && final == nil:
			return r.failInput(ctx, failed)
		case final != nil:
			r.tail.conclude(report.EndOf(final))
		case over != nil && (gone || past || forgotten && r.output.brought):
			r.tail.conclude(report.End{ActivationEnd: over})
		case gone && !there && !r.found && !unsure:
			return r.withdraw(ctx, errors.New(why))
		case gone:
			r.tail.giveUp(r.host.name + " knows nothing of it any more: " + why)
		case forgotten, past:
			r.mu.Lock()
			r.claim.spent = true
			r.mu.Unlock()
			r.tail.giveUp(r.silence())
		default:
			ended = false
		}
		if ended {
			return r.finish(ctx)
		}
		pause := r.attend()
		if !until.IsZero() {
			pause = min(pause, until.Sub(now))
		}
		if err := errors.Join(r.orders.pass(ctx), r.confirm(ctx)); err != nil {
			failures++
			pause = min(pause, retries.After(failures))
		} else {
			failures = 0
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.poked:
		case <-time.After(pause):
		}
	}
}

// confirm asks the host of a run that is over, and was not to be reached for a while, whether it
// knows the run. A host keeps the end of a run whose claim is over for the time of a lease, and
// tells nothing of it after that.
func (r *run) confirm(ctx context.Context) error {
	r.mu.Lock()
	asks := r.doubted && r.over != nil && r.final == nil && !r.gone
	r.mu.Unlock()
	if !asks {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	reply, err := r.On(r.host.name, "").RunState(limited, api.RunStateRequest{Sandbox: r.id()})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doubted = false; reply.State == api.RunUnknown && r.final == nil {
		r.gone, r.why = true, "its end is told no more"
		r.poke()
	}
	return nil
}

// attend does what a run that goes on wants to have done by itself, and returns within what
// time to do it again.
func (r *run) attend() time.Duration {
	now := time.Now()
	r.mu.Lock()
	if at := r.silentAt(); !at.IsZero() && !now.Before(at) {
		r.host.reconnect(fmt.Errorf("it has told nothing of %v for %v", r, time.Since(r.heard).Round(time.Second)))
		r.heard = now
	}
	news, executes, silent := r.news, r.over == nil, r.silentAt()
	r.news = false
	r.mu.Unlock()
	pause := r.updates.attend(news, executes)
	if !silent.IsZero() {
		pause = min(pause, time.Until(silent))
	}
	return max(pause, 0)
}

// lostAt returns when nothing runs any more of a run whose claim is not renewed; zero: it
// is. core.mu is held.
func (r *run) lostAt() time.Time {
	if l := r.lease; l != nil && (l.hopeless(time.Now()) || !r.detached && r.claim.closed) {
		return l.lost()
	}
	return time.Time{}
}

// tellQueue notes that a run is over, before its task can start again.
func (r *run) tellQueue() {
	if r.tail.End == nil { // it was not begun, and the next try has its number
		r.Host.Timeline.Leave(r.task.RunID(), time.Now(), -1, -1)
	}
	used := &r.tail.Facts.Total
	r.Back(r.task, schedule.Used{CPU: used.CPU, Mem: used.Mem, IO: used.IO})
}

// finish records the end of a run, tells who waits, and settles its task.
func (r *run) finish(ctx context.Context) error {
	r.tellQueue()
	recorded := r.found && r.Host.Store.Recorded(r.task)
	if kept := r.task.Kept; r.carries() && !recorded && r.tail.End.Fate == job.FateRequeue && r.tail.End.Sandbox == nil {
		r.tail.End.Sandbox = kept // it is what it was before this run
	}
	if err := r.notices.record(ctx); err != nil {
		return err
	}
	if err := r.tail.saveOrRequeue(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	if r.endSeq > 0 {
		r.host.acknowledgeSoon(r.id(), r.endSeq)
	}
	r.mu.Unlock()
	_, _ = r.tail.Tell() // it cannot fail
	if !recorded {       // else the execd before has done it, as far as is known
		_, _ = r.tail.Mail()
	}
	return r.retry(ctx, func() error {
		err := r.tail.Synced()
		if err == nil {
			r.removeSandboxes()
			return r.tail.Settle()
		}
		_, again := r.tail.Save()
		return errors.Join(err, again)
	})
}

// removeSandboxes removes the sandboxes here that a run needs no more.
func (r *run) removeSandboxes() {
	if !r.carries() {
		return
	}
	t, next := r.task, r.tail.End.Sandbox
	if t.Start.Sandbox != nil && (next == nil || next.Dir != t.Start.Sandbox.Dir) {
		r.Files.Remove(t)
	}
	if t.Kept != nil && (next == nil || next.Dir != t.Kept.Dir) {
		r.Files.Unbox(t.Kept)
	}
}

// failInput ends a run whose input cannot be pushed: its job waits for somebody to look.
func (r *run) failInput(ctx context.Context, why string) error {
	r.Host.Log.Error(fmt.Sprintf("%v: cannot start: %s", r, why))
	c := r.claim
	c.calls.Lock()
	defer c.calls.Unlock()
	r.mu.Lock()
	c.spent = true // what comes late must not end another run
	r.mu.Unlock()
	if err := r.tell(ctx, "it is to end", func(ctx context.Context, to *api.Client) error {
		_, err := to.ClaimOf(c.ID).Deactivate(ctx, api.Forcible)
		return err
	}); err != nil {
		return err
	}
	return r.takeBack(ctx, func() error { return r.Host.Store.Fail(r.task, why) })
}

// silence says in words what is known of a run whose host is not heard of any more.
func (r *run) silence() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := r.host.silent
	if since.IsZero() {
		since = r.lease.renewed
	}
	return fmt.Sprintf("%s has not answered since %s; the lease ended at %s at the latest", r.host.name, since.Format(time.DateTime), r.lease.lost().Format(time.DateTime))
}

// tell has a host know something of a sandbox, again and again until it does, or never will.
func (r *run) tell(ctx context.Context, what string, do func(ctx context.Context, to *api.Client) error) error {
	return again(ctx, retries.After, func(int) bool {
		limited, cancel := context.WithTimeout(ctx, 3*callLimit)
		err := do(limited, r.On(r.host.name, ""))
		cancel()
		switch e, refused := errors.AsType[*api.Error](err); {
		case err == nil:
			return true
		case refused && e.Code != api.CodeInternal && e.Code != api.CodeTryAgain && e.Code != api.CodeAway && e.Code != api.CodeDenied && e.Refusal != api.RefusedTryAgain:
			r.warnf("%v: %s does not take that %s: %v", r, r.host.name, what, err)
			return true
		}
		r.debugf("%v: %s: %v", r, what, err)
		r.mu.Lock()
		defer r.mu.Unlock()
		until := r.lostAt()
		return r.forgotten || r.gone || r.final != nil || !until.IsZero() && time.Now().After(until)
	})
}
