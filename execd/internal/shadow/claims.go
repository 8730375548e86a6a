package shadow

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/shadow/match"
	"paddock/execd/internal/shadow/remote"
	"paddock/spool"
)

// claim is a slot of another host that one of this host's users holds.
type claim struct {
	remote.Claim
	calls sync.Mutex // held while the host is asked to begin a run or to end it; before core.mu

	// Guarded by core.mu.
	class match.Class
	lease lease
	run   *run          // what runs under it; nil: nothing does
	outs  map[*run]bool // what has run under it, and whose output is still on the host
	// waiting are those of outs that wait until the next has been started, or nothing is.
	waiting []chan struct{}
	idle    time.Time // since when
	used    bool      // something has run under it
	spent   bool      // nothing more is started under it
	closed  bool      // it is given back, or over
	// rest is the ad of what is left of a partitionable slot if the claim is on that; nil: it
	// is on a slot in which jobs run. carving counts the slots that are being carved out of it.
	rest    *classad.Ad
	carving int
}

// slotAd returns the ad of the slot of a claim as it was granted.
func (c *claim) slotAd() *classad.Ad {
	granted, _ := classad.ParseOldLenient(c.Ad)
	return granted
}

// release gives a claim back that nothing runs under. core.mu is held.
func (s *Shadows) release(c *claim) {
	c.closed = true
	keep := len(c.outs) > 0
	s.do(func(ctx context.Context) {
		if again(ctx, retries.After, func(int) bool {
			limited, cancel := context.WithTimeout(ctx, callLimit)
			defer cancel()
			of, begun := s.On(c.Host, "").ClaimOf(c.ID), time.Now()
			give := of.Release
			if keep { // it is pulled without the slot
				give = of.ReleaseKeeping
			}
			err := give(limited)
			if err == nil && keep {
				s.mu.Lock()
				c.lease.tried, c.lease.renewed = begun, begun
				s.mu.Unlock()
			}
			if err == nil || api.RefusalOf(err) == api.RefusedUnknown {
				return true
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			return time.Now().After(c.lease.lost())
		}) != nil {
			return // the next execd does it
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.detachAll(c)
		s.forget(c)
	})
}

// over notes that a claim is not renewed any more. What runs under it has its lease to end.
// core.mu is held.
func (s *Shadows) over(c *claim, why string) {
	c.closed, c.spent = true, true
	s.warnf("execd: host %s: claim %s is over: %s", c.Host, c.Public(), why)
	s.detachAll(c)
	if r := c.run; r != nil {
		r.poke()
	} else {
		s.forget(c)
	}
}

// forget forgets a claim that nothing runs under. One whose file stays is given back by the
// next execd. core.mu is held.
func (s *Shadows) forget(c *claim) {
	delete(s.claims, c.Name())
	if c.ID == "" {
		return
	}
	s.do(func(context.Context) {
		if err := (&remote.Store{Root: s.Root}).Remove(&c.Claim); err != nil {
			s.warnf("execd: %v", err)
		}
	})
}

// Load takes over the claims that an earlier execd has left, before Recover.
func (s *Shadows) Load() error {
	list, err := (&remote.Store{Root: s.Root}).Load(s.Host.Log)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, r := range list {
		s.claims[r.Name()] = &claim{Claim: *r, spent: true, idle: now, lease: foundLease(time.Duration(r.Lease)*time.Second, now)}
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
	c := s.claims[remote.Name{Host: t.Start.Remote.Host, Public: t.Start.Claim}]
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
		c.class, c.spent = match.ClassOf(t.Job), false
	}
	var before *run
	if c != nil {
		before = c.run
	}
	r := s.enter(t, c)
	s.runs.last = max(s.runs.last, r.number()) // the clock may have been set back
	if before != nil && before.number() > r.number() {
		c.run = before // which was begun when this one was over there
	}
	r.found = true
	r.recall(s.Host.Store.Updated(t))
	if over {
		e := t.End
		r.there, r.over = true, &api.ActivationEnd{Failed: e.Failed, Exit: e.Exit, Cause: string(e.Cause), Reason: e.Reason, Fate: string(e.Fate)}
		r.outcome = &api.Outcome{Pull: true, Held: holds}
		s.departs(r)
		r.counts = s.Host.Store.Stuck(t) == nil
	}
	if !ended && !over {
		s.Depart(t, true)
	}
	s.logf("job %v: found after the restart: %s", t, cmp.Or(map[job.State]string{job.Ended: "has ended on ", job.Over: "is over on "}[state], "runs on ")+r.host.name)
}

// Silent says that the host of a run does not answer, and since when; empty: it does, or it
// is this one.
func (s *Shadows) Silent(run spool.RunID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs.find(run)
	if r == nil || r.claim == nil || r.host.silent.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s has not answered since %s; the lease ends at %s", r.host.name, r.host.silent.Format(time.DateTime), r.leaseOf().ends().Format(time.DateTime))
}

// Used returns what a run on another host has used, as that has said last; nil: it has not.
func (s *Shadows) Used(run spool.RunID) *api.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs.find(run); r != nil && r.used {
		return new(r.usage())
	}
	return nil
}

// All returns Used of all runs of which it is known.
func (s *Shadows) All() map[spool.RunID]api.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[spool.RunID]api.Usage{}
	for _, r := range s.runs.list {
		if r.used {
			all[r.task.RunID()] = r.usage()
		}
	}
	return all
}

// usage returns what a run has used, as its host has said last. core.mu is held.
func (r *run) usage() api.Usage {
	u := api.Usage{CPU: (r.status.UserCPU + r.status.SysCPU).Seconds(), PIDs: r.status.Processes, Wallclock: time.Since(r.task.Started).Seconds()}
	u.VMem, u.RSS = 1024*float64(r.status.ImageSize), 1024*float64(r.status.ResidentSetSize)
	u.MaxVMem, u.MaxRSS = u.VMem, u.RSS
	return u
}

// Forget ends a run that somebody has deleted without waiting for its host, if that does not
// answer, and says until when it may go on there; empty: it is waited for.
func (s *Shadows) Forget(t *job.Task) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs.of(t)
	if r == nil || r.claim == nil || r.host.silent.IsZero() {
		return ""
	}
	r.forgotten = true
	r.poke()
	return fmt.Sprintf("job %v may run on %s until %s", t, r.host.name, r.leaseOf().lost().Format(time.DateTime))
}
