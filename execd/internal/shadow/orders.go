package shadow

import (
	"context"
	"errors"
	"slices"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
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
	err := r.On(r.host.name, "").AlterRun(limited, api.AlterRunRequest{Sandbox: api.SandboxID(r.sandbox()), Attributes: now})
	switch e, refused := errors.AsType[*api.Error](err); {
	case refused && e.Code != api.CodeInternal && e.Code != api.CodeTryAgain: // it would be again
		r.warnf("%v: its attributes stay what they were on %s: %v", r, r.host.name, err)
	case err != nil:
		return err
	}
	o.altered = append([]string{}, now...)
	return nil
}
