package shadow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/shadow/remote"
)

// These make up for how long after the last request a host may still have a job run.
const (
	// renewPatience is how long a renewal is waited for.
	renewPatience = 10 * time.Second
	// killing is how long a host may take to end a job when its lease is over.
	killing = 30 * time.Second
)

// lease is that of a claim, or of the sandbox of a run whose claim is gone, as the host sees it
// that holds it. What counts is when it was tried to renew it last: if the answer was lost, the
// other host has renewed it.
type lease struct {
	length  time.Duration
	tried   time.Time // the last attempt to renew it was begun
	renewed time.Time // the last attempt that was answered was begun
	asked   time.Time // the last attempt was begun, though it may not have been sent

	renewing bool // an attempt is under way
	failures int  // attempts that failed since the last that was answered
}

// foundLease is a lease that an earlier execd has left. That may have renewed it until it ended,
// and may have been unable to for long: it is soon renewed.
func foundLease(length time.Duration, now time.Time) lease {
	return lease{length: length, tried: now, renewed: now, failures: 1}
}

// newLease is a lease that was granted by a request.
func newLease(length time.Duration, begun time.Time) lease {
	return lease{length: length, tried: begun, renewed: begun}
}

// answered notes that a request has renewed it.
func (l *lease) answered(begun time.Time) { l.failures, l.tried, l.renewed = 0, begun, begun }

// failed notes that a request was not answered. If it was sent it may have renewed it.
func (l *lease) failed(begun time.Time, sent bool) {
	l.failures++
	if l.asked = begun; sent {
		l.tried = begun
	}
}

// due is when it is to be renewed next.
func (l *lease) due() time.Time {
	third := l.length / 3
	if l.failures > 0 {
		third = min(third, retries.After(l.failures))
	}
	at := l.tried
	if l.asked.After(at) {
		at = l.asked
	}
	return at.Add(third)
}

// hopeless reports whether it is not to be renewed any more, since it is over at the other
// host unless an attempt without an answer has renewed it: from then on it is waited until
// that, too, is over.
func (l *lease) hopeless(now time.Time) bool { return now.After(l.renewed.Add(l.length)) }

// lost is when nothing runs under the claim any more, whatever has become of the attempts
// to renew it, if no more are made: the clocks of two hosts differ by 1 % at most.
func (l *lease) lost() time.Time {
	return l.tried.Add(renewPatience + l.length + l.length/100 + killing)
}

// ends is when the lease ends by the last answer, for people.
func (l *lease) ends() time.Time { return l.renewed.Add(l.length) }

// leases has the leases of claims, and of sandboxes whose claims are gone, renewed.
type leases struct {
	*core
	claims *claims
	runs   *runs
}

// run renews leases until ctx is done, those of a host by one request.
func (l *leases) run(ctx context.Context) {
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
		l.mu.Lock()
		for _, r := range l.runs.list {
			switch {
			case !r.detached || r.lease.renewing:
			case r.lease.hopeless(now):
				r.poke() // it is waited for the end of the lease from now on
			default:
				add(r.host.name, renewal{lease: r.lease, r: r})
			}
		}
		for _, c := range l.claims.list {
			switch {
			case c.closed || c.lease.renewing || c.ID == "":
			case c.lease.hopeless(now):
				l.claims.lapse(c, "its lease is over")
			default:
				add(c.Host, renewal{lease: &c.lease, c: c})
			}
		}
		for name, list := range due {
			for part := range slices.Chunk(list, api.MaxWords) {
				l.do(func(ctx context.Context) { l.renewAll(ctx, name, part) })
			}
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-l.renew:
		case <-time.After(time.Until(next)):
		}
	}
}

// renewal is a lease that is to be renewed, of a claim or of the sandbox of a run.
type renewal struct {
	lease *lease
	c     *claim // nil: it is of r
	r     *run
}

// renewAll renews leases on one host.
func (l *leases) renewAll(ctx context.Context, name string, list []renewal) {
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
	reply, err := l.On(name, "").RenewAll(limited, q)
	cancel()
	if err == nil && (len(reply.Claims) != len(q.IDs) || len(reply.Sandboxes) != len(q.Sandboxes)) {
		err = fmt.Errorf("it has answered for %d claims and %d sandboxes instead of %d and %d", len(reply.Claims), len(reply.Sandboxes), len(q.IDs), len(q.Sandboxes))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range list {
		n.lease.renewing = false
		if err != nil {
			n.lease.failed(begun, !errors.Is(err, api.ErrNotSent))
			continue
		}
		var refused *api.Error
		if n.c != nil {
			refused, reply.Claims = reply.Claims[0].Error, reply.Claims[1:]
		} else {
			one := reply.Sandboxes[0]
			if refused, reply.Sandboxes = one.Error, reply.Sandboxes[1:]; one.Lease > 0 && one.Lease <= remote.MaxLease {
				n.lease.length = time.Duration(one.Lease) * time.Second
			}
		}
		n.lease.asked = begun
		switch {
		case refused == nil:
			n.lease.answered(begun)
		case refused.Refusal != api.RefusedUnknown:
		case n.c != nil:
			l.claims.lapse(n.c, "the host does not know the claim")
		case !n.r.gone && n.r.final == nil:
			n.r.gone, n.r.why = true, "it keeps nothing of it"
			n.r.poke()
		}
	}
	l.renewSoon()
}
