// Package shadow has jobs of this host run on slots of others. It claims them for its
// users, starts what waits under these claims, follows it, and has its end go the way of
// those that ran here. A run on another host is a run like any other in the record of its
// job; package remote keeps the claims. Either host may be started anew at any time: a run
// goes on under the lease of its claim, and nobody runs it again before that is over.
//
// Which host takes a job that host decides, and only what cannot start here is offered:
// slots of others are none of the scheduler's resources.
//
// The offers of offer.go ask the hosts of hosts.go for claims, those of claims.go, under
// which the runs of runs.go are started; lease.go has claims renewed. The life of a run is
// in run.go, step by step. Beside it is what has a matter of its own: the input in push.go,
// what its host is asked in orders.go and tells in told.go, what its owner is told in
// notices.go, the output in pull.go, and the end as it is recorded in end.go.
//
// Daemon makes it, stage hands it the tasks that are elsewhere, and server asks it what
// qstat shows of them. It imports the parts of stage that follow an end.
//
// There are two locks. The calls of a claim are taken first, and held while its host is asked
// to begin or to end a run. Core.mu is that of all that the types of this package share:
// nothing waits for a disk or a host under it, and it is taken before the locks of package
// queue and of job.Store.
package shadow

import (
	"cmp"
	"context"
	"maps"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/shadow/match"
	"paddock/execd/internal/shadow/remote"
	"paddock/internal/hint"
)

// Shadows are those of all runs on other hosts.
type Shadows struct {
	*core
	hosts  *hosts
	claims *claims
	runs   *runs
	now    immediate
	offers *offers
}

// New returns shadows that do nothing yet.
func New(e Execd) *Shadows {
	c := &core{Execd: e, wake: hint.New(), renew: hint.New()}
	s := &Shadows{core: c, now: immediate{}, claims: &claims{core: c, list: map[remote.Name]*claim{}}}
	s.runs = &runs{core: c, claims: s.claims, now: s.now, list: map[api.SandboxID]*run{}}
	s.hosts = &hosts{core: c, runs: s.runs, list: map[string]*host{}}
	s.runs.hosts = s.hosts
	s.offers = &offers{core: c, hosts: s.hosts, claims: s.claims, runs: s.runs, now: s.now, asked: map[match.Class]int{}, want: map[match.Class]int{}, why: map[*job.Job]string{}}
	return s
}

// HostChanged is told that a host has become another: it is up or down, or its slots, its queues or
// its configuration have changed.
func (s *Shadows) HostChanged(name string) {
	var is api.PeerStatus
	for _, p := range s.Peers() {
		if p.Name == name {
			is = p
		}
	}
	s.mu.Lock()
	queues := s.hosts.get(name).change(&is)
	s.mu.Unlock()
	if queues {
		s.Queues()
	}
	s.Wake()
}

// Load takes over the claims that an earlier execd has left, before Recover.
func (s *Shadows) Load() error {
	list, err := s.claims.store().Load(s.Host.Log)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, r := range list {
		s.claims.list[r.Name()] = &claim{Claim: *r, spent: true, idle: now, lease: foundLease(time.Duration(r.Lease)*time.Second, now)}
	}
	return nil
}

// Recover takes over a run that an earlier execd has begun, or whose end it has recorded.
func (s *Shadows) Recover(t *job.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.Host.Store.State(t)
	ended, over := state == job.Ended, state == job.Over
	holds := over && t.End.Holds
	c := s.claims.list[remote.Name{Host: t.Start.Remote.Host, Public: t.Start.Claim}]
	switch {
	case ended:
		c = nil
	case c == nil:
		// Its record is lost. As far as anybody knows it was renewed until now.
		if !over { // else it may have been given back
			s.warnf("job %v: runs on %s, and nothing is known of its claim", t, t.Start.Remote.Host)
		}
		now := time.Now()
		c = &claim{Claim: remote.Claim{Host: t.Start.Remote.Host}, closed: true, lease: foundLease(wanted*time.Second, now)}
	case c.run == nil && (!over || holds):
		c.class, c.spent, c.used = match.ClassOf(t.Job), false, true
	}
	var before *run
	if c != nil {
		before = c.run
	}
	r := s.runs.enter(t, c)
	s.runs.last = max(s.runs.last, r.number()) // the clock may have been set back
	if before != nil && before.number() > r.number() {
		c.run = before // which was begun when this one was over there
	}
	r.found, r.doubted = true, true
	maps.Copy(r.updates.recorded, s.Host.Store.Updated(t))
	r.recall(r.updates.recorded)
	if over {
		e := t.End
		r.there, r.over = true, &api.ActivationEnd{Failed: e.Failed, Exit: e.Exit, Cause: string(e.Cause), Reason: e.Reason, Fate: string(e.Fate)}
		r.outcome = &api.Outcome{Pull: true, Held: holds}
		s.claims.beginOutput(r)
		r.output.counts = s.Host.Store.Stuck(t) == nil
	}
	if !ended && !over {
		s.Depart(t, true)
		r.note()
	}
	s.logf("job %v: found after the restart: %s", t, cmp.Or(map[job.State]string{job.Ended: "has ended on ", job.Over: "is over on "}[state], "runs on ")+r.host.name)
}

// Run works until ctx is done. What runs on other hosts goes on there.
func (s *Shadows) Run(ctx context.Context) {
	s.mu.Lock()
	s.ctx = ctx
	for _, r := range s.runs.list {
		s.runs.lead(r)
	}
	s.mu.Unlock()
	s.work.Go(func() { (&leases{core: s.core, claims: s.claims, runs: s.runs}).run(ctx) })
	for ctx.Err() == nil {
		next := s.offers.round(time.Now())
		var later <-chan time.Time
		if !next.IsZero() {
			later = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-later:
		}
	}
	s.mu.Lock()
	s.ctx = nil
	s.mu.Unlock()
	s.work.Wait()
}
