package shadow

import (
	"context"
	"errors"
	"slices"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/spool"
)

// orders are what people want of a run, as its host was told last. The goroutine of the run alone
// uses them.
type orders struct {
	run     *run
	killed  *job.Want // the job is to end; nil: it is not
	stopped bool
	altered []string // the attributes of the job; nil: not known
}

// pass has the host of the run do what people want of it.
func (o *orders) pass(ctx context.Context) error { return errors.Join(o.control(ctx), o.alter(ctx)) }

// control has the run ended, stopped or continued.
func (o *orders) control(ctx context.Context) error {
	r, c := o.run, o.run.claim
	if c.ID == "" {
		return nil // nobody can
	}
	c.calls.Lock()
	defer c.calls.Unlock()
	r.mu.Lock()
	mine := c.run == r
	r.mu.Unlock()
	if !mine {
		return nil // it is over, and another runs there
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	to := r.On(r.host.name, "").ClaimOf(c.ID)
	var err error
	want, stop := r.Host.Store.Want(r.task), r.Host.Store.WantStopped(r.task)
	switch {
	case want != nil && o.killed != want:
		if _, err = to.Deactivate(limited, api.Forcible); err == nil {
			o.killed = want
		}
	case want == nil && stop != o.stopped:
		if stop {
			_, err = to.Suspend(limited)
		} else {
			_, err = to.Continue(limited)
		}
		if err == nil {
			o.stopped = stop
		}
	}
	if err != nil && !errors.Is(err, api.ErrNotSent) {
		// It may come to the host late, when another runs under the claim: none does.
		r.mu.Lock()
		c.spent = true
		r.mu.Unlock()
	}
	return err
}

// attributes returns those of a run by now that its host needs: as references were expanded
// when it was started, and as they stand in what was altered since.
func (o *orders) attributes() []string {
	r := o.run
	now := api.SubmitRequest{Attributes: r.task.Job.Terms().Needs.Attributes()}
	return ad.Elsewhere(ad.Expanded(&now, r.task.Needs.Attributes(), r.Host.Store.Matched(r.task)).Attributes)
}

// alter has the host of a run know the attributes that it has by now.
func (o *orders) alter(ctx context.Context) error {
	r := o.run
	r.mu.Lock()
	over := r.over != nil
	r.mu.Unlock()
	now, known := o.attributes(), o.altered != nil
	if over || known && slices.Equal(now, o.altered) || !known && len(now)+len(ad.Elsewhere(r.task.Needs.Attributes())) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := r.On(r.host.name, "").AlterRun(limited, api.AlterRunRequest{Sandbox: r.id(), Attributes: now})
	switch e, refused := errors.AsType[*api.Error](err); {
	case refused && e.Code != api.CodeInternal && e.Code != api.CodeTryAgain: // it would be again
		r.warnf("%v: its attributes stay what they were on %s: %v", r, r.host.name, err)
	case err != nil:
		return err
	}
	o.altered = append([]string{}, now...)
	return nil
}

// activate has a host begin a run, and returns when it has, or when it is known that it
// never will: the error says why.
func (r *run) activate(ctx context.Context, request *api.SubmitRequest) error {
	t := r.task
	one := *request
	path, err := r.Host.Store.Script(t.Job)
	if err == nil && path != "" {
		one.Script, err = spool.ReadFile(path, api.MaxScript)
	}
	if err != nil {
		return err
	}
	home := &api.Home{Job: t.Job.Number, Task: t.Number, Run: t.Run}
	if t.Job.Tasks.IsArray() {
		home.Array = t.Job.Tasks
	}
	// What has brought the task here is over, and its owner is told from here.
	one.Tasks, one.Only, one.MaxRun, one.Verify, one.Hold, one.After = api.Tasks{}, "", 0, "", "", time.Time{}
	one.HoldJobs, one.HoldArray, one.HoldOK, one.HoldArrayOK = nil, nil, nil, nil
	one.Mail, one.MailTo, one.Priority, one.Reserve = "", nil, 0, false
	one.Attributes = ad.Elsewhere(one.Attributes)
	config := r.Host.Config()
	one.Queues, one.SoftQueues, one.Hard, one.Soft = nil, nil, schedule.Unnamed(config, one.Hard), schedule.Unnamed(config, one.Soft)

	r.logf("%v: is started on %s: claim=%s user=%s queue=%s", r, r.host.name, r.claim.Public(), t.Job.Owner, t.Start.Queue)
	r.claim.calls.Lock()
	defer r.claim.calls.Unlock()
	if r.Host.Store.Want(t) != nil {
		return errors.New("it was deleted")
	}
	q := api.ActivateRequest{Request: &one, Sandbox: r.id(), Home: home}
	if r.carries() {
		q.Carriage = &api.Carriage{Key: t.Start.Remote.Key, Input: r.Files.Pushes(t, request), Spool: t.Kept != nil}
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	_, err = r.On(r.host.name, t.Job.Owner).ClaimOf(r.claim.ID).Activate(limited, q)
	cancel()
	if err == nil || errors.Is(err, api.ErrNotSent) || api.RefusalOf(err) == api.RefusedUnknown {
		return err // without the claim nothing is begun
	}
	// It may have begun it all the same.
	if known, fenceErr := r.fence(ctx); known || fenceErr != nil {
		return fenceErr
	}
	return err
}

// fence asks a host whether it has a run. One that it does not know it will never begin. An
// error says that the run is not to be waited for: ctx is done.
func (r *run) fence(ctx context.Context) (known bool, err error) {
	known = true // as far as anybody knows
	err = again(ctx, retries.After, func(int) bool {
		id := r.claim.ID
		limited, cancel := context.WithTimeout(ctx, callLimit)
		reply, err := r.On(r.host.name, "").RunState(limited, api.RunStateRequest{ID: id, Sandbox: r.id(), Fence: id != ""})
		cancel()
		switch {
		case err == nil && reply.State != api.RunUnknown:
			return true
		case err == nil && reply.Fenced && reply.Over:
			r.mu.Lock()
			defer r.mu.Unlock()
			r.gone, r.unsure, r.why = true, true, "its claim is over"
			return true // as far as anybody knows
		case err == nil && reply.Fenced:
			known = false
			return true
		case err != nil:
			r.debugf("%v: %v", r, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		until := r.lostAt()
		return r.forgotten || !until.IsZero() && time.Now().After(until)
	})
	return known, err
}
