package shadow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/shadow/remote"
	"paddock/spool"
)

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
	q := api.ActivateRequest{Request: &one, Sandbox: api.SandboxID(r.sandbox()), Home: home}
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
		reply, err := r.On(r.host.name, "").RunState(limited, api.RunStateRequest{ID: id, Sandbox: api.SandboxID(r.sandbox()), Fence: id != ""})
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

// Look carries out what people want of a run: that it ends, is stopped or goes on, or has
// other attributes.
func (s *Shadows) Look(t *job.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs.of(t); r != nil {
		r.poke()
	}
}

// carryOut has the host of a run do what people want of it.
func (r *run) carryOut(ctx context.Context) error {
	c := r.claim
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
	case want != nil && r.killed != want:
		if _, err = to.Deactivate(limited, api.Forcible); err == nil {
			r.killed = want
		}
	case want == nil && stop != r.stopped:
		if stop {
			_, err = to.Suspend(limited)
		} else {
			_, err = to.Continue(limited)
		}
		if err == nil {
			r.stopped = stop
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

// renewLeases renews the leases of all claims, those of a host by one request.
func (s *Shadows) renewLeases(ctx context.Context) {
	for ctx.Err() == nil {
		now := time.Now()
		next := now.Add(time.Minute)
		due := map[string][]renewal{}
		add := func(host string, n renewal) {
			at := n.lease.due()
			switch {
			case !at.After(now):
				n.lease.renewing = true
				due[host] = append(due[host], n)
			case at.Before(next):
				next = at
			}
		}
		s.mu.Lock()
		for _, r := range s.runs.list {
			switch {
			case r.own == nil || r.own.renewing:
			case r.own.hopeless(now):
				r.poke() // it is waited for the end of the lease from now on
			default:
				add(r.host.name, renewal{lease: r.own, r: r})
			}
		}
		for _, c := range s.claims {
			switch {
			case c.closed || c.lease.renewing || c.ID == "":
			case c.lease.hopeless(now):
				s.over(c, "its lease is over")
			default:
				add(c.Host, renewal{lease: &c.lease, c: c})
			}
		}
		for name, list := range due {
			for part := range slices.Chunk(list, api.MaxWords) {
				s.do(func(ctx context.Context) { s.renewAll(ctx, name, part) })
			}
		}
		s.mu.Unlock()
		t := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
		case <-s.renew:
		case <-t.C:
		}
		t.Stop()
	}
}

// renewal is a lease that is to be renewed, of a claim or of the sandbox of a run.
type renewal struct {
	lease *lease
	c     *claim // nil: it is of r
	r     *run
}

// renewAll renews leases on one host.
func (s *Shadows) renewAll(ctx context.Context, name string, list []renewal) {
	q := api.RenewAllRequest{IDs: []api.ClaimID{}}
	begun := time.Now()
	for _, n := range list {
		if n.c != nil {
			q.IDs = append(q.IDs, n.c.ID)
		} else {
			id, key := n.r.secret()
			q.Sandboxes = append(q.Sandboxes, api.SandboxOrder{Sandbox: id, Key: key})
		}
	}
	limited, cancel := context.WithTimeout(ctx, renewPatience)
	reply, err := s.On(name, "").RenewAll(limited, q)
	cancel()
	if err == nil && (len(reply.Claims) != len(q.IDs) || len(reply.Sandboxes) != len(q.Sandboxes)) {
		err = fmt.Errorf("it has answered for %d claims and %d sandboxes instead of %d and %d", len(reply.Claims), len(reply.Sandboxes), len(q.IDs), len(q.Sandboxes))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range list {
		l := n.lease
		l.renewing = false
		if err != nil {
			l.failures++
			if l.asked = begun; !errors.Is(err, api.ErrNotSent) {
				l.tried = begun
			}
			continue
		}
		var refused *api.Error
		if n.c != nil {
			refused, reply.Claims = reply.Claims[0].Error, reply.Claims[1:]
		} else {
			one := reply.Sandboxes[0]
			if refused, reply.Sandboxes = one.Error, reply.Sandboxes[1:]; one.Lease > 0 && one.Lease <= remote.MaxLease {
				l.length = time.Duration(one.Lease) * time.Second
			}
		}
		l.asked = begun
		switch {
		case refused == nil:
			l.failures, l.tried, l.renewed = 0, begun, begun
		case refused.Refusal != api.RefusedUnknown:
		case n.c != nil:
			s.over(n.c, "the host does not know the claim")
		case !n.r.gone && n.r.final == nil:
			n.r.gone, n.r.why = true, "it keeps nothing of it"
			n.r.poke()
		}
	}
	s.renewSoon()
}
