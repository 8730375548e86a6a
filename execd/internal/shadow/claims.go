package shadow

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/shadow/match"
	"paddock/execd/internal/shadow/remote"
	"paddock/execd/internal/timeline"
)

// idleFor is how long a claim without work is kept.
const idleFor = 5 * time.Second

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
	// leftOvers is the ad of what is left of a partitionable slot if the claim is on that; nil:
	// it is on a slot in which jobs run. carving counts the slots that are being carved out of it.
	leftOvers *classad.Ad
	carving   int
}

// slotAd returns the ad of the slot of a claim as it was granted.
func (c *claim) slotAd() *classad.Ad {
	granted, _ := classad.ParseOldLenient(c.Ad)
	return granted
}

// isFull reports whether so much output of a claim is on its way that nothing more is started
// under it.
func (c *claim) isFull(most int) bool {
	n := 0
	for r := range c.outs {
		if r.output.counts {
			n++
		}
	}
	return n > 0 && n >= most
}

// wakeOutput has output no more wait for the start of the next run.
func (c *claim) wakeOutput() {
	for _, w := range c.waiting {
		close(w)
	}
	c.waiting = nil
}

// claims are those on slots of other hosts. They are used with core.mu held, but for keep and store.
type claims struct {
	*core
	list map[remote.Name]*claim
}

func (l *claims) store() *remote.Store { return &remote.Store{Root: l.Root} }

// maxOutputs is how much output of a claim may be on its way while the next of its jobs runs.
func (l *claims) maxOutputs() int {
	return l.Host.Config().Knobs.Int("MAX_OUTPUT_TRANSFERS_PER_CLAIM", 2)
}

// idle returns a claim for jobs of a class that nothing runs under; nil: there is none.
func (l *claims) idle(of match.Class) *claim {
	most := l.maxOutputs()
	for _, c := range l.list {
		if c.class == of && c.run == nil && c.leftOvers == nil && !c.closed && !c.spent && !c.isFull(most) && !c.lease.hopeless(time.Now()) {
			return c
		}
	}
	return nil
}

// leftOversOn returns the claim of a user on what is left of a partitionable slot of a host; nil:
// there is none. While it lasts nobody else has slots carved there, so that it is given back as
// soon as nothing more is.
func (l *claims) leftOversOn(host, user string) *claim {
	for _, c := range l.list {
		if c.leftOvers != nil && c.Host == host && c.User == user && !c.closed && !c.spent {
			return c
		}
	}
	return nil
}

// giveBack gives back claims that nothing runs under, and returns when it is to be done again;
// zero: never. Want has the tasks that wait, and a host is crowded on which another job can have
// the slot.
func (l *claims) giveBack(now time.Time, want map[match.Class]int, crowded func(host string) bool) (next time.Time) {
	most := l.maxOutputs()
	for _, c := range l.list {
		if c.run == nil {
			c.wakeOutput()
		}
		switch after := c.idle.Add(idleFor); {
		case c.run != nil || c.closed || c.carving > 0:
		case c.isFull(most) && !c.spent && want[c.class] > 0: // its turn comes
		case crowded(c.Host) && want[c.class] == 0, c.leftOvers != nil: // another job can have the slot, or those carved out of it
			l.release(c)
		case after.After(now) && !c.spent:
			next = sooner(next, after)
		default:
			l.release(c)
		}
	}
	return next
}

// sooner returns the first of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// keep makes a claim that was granted durable; leftOvers is the ad of what is left, if it is for
// that. Such a one is granted again with each slot that is carved under it.
func (l *claims) keep(ctx context.Context, h *host, of match.Class, c *api.Claim, begun time.Time, leftOvers *classad.Ad) (*claim, error) {
	l.mu.Lock()
	queues, had := h.queues, l.list[remote.Name{Host: h.name, Public: c.Reply.ID.String()}]
	carved := had != nil && had.leftOvers != nil && leftOvers != nil && !had.closed && had.ID == c.Reply.ID
	if carved {
		had.leftOvers = leftOvers
		had.lease.answered(begun)
	}
	l.mu.Unlock()
	if carved {
		return had, nil
	}
	r := remote.Claim{ID: c.Reply.ID, Host: h.name, User: of.Owner, Slot: string(c.Reply.Slot), Queue: match.Queue(&c.Reply, queues), Lease: c.Reply.Lease, Ad: c.Reply.Ad}
	got := &claim{Claim: r, class: of, leftOvers: leftOvers, idle: time.Now(), lease: newLease(time.Duration(r.Lease)*time.Second, begun)}
	err := got.Check()
	if err == nil && had != nil {
		err = errors.New("it grants a claim twice")
	}
	if err == nil {
		err = l.store().Put(&got.Claim)
	}
	if err != nil {
		limited, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		_ = c.Release(limited) // else it ends with its lease
		return nil, err
	}
	return got, nil
}

// release gives a claim back that nothing runs under.
func (l *claims) release(c *claim) {
	c.closed = true
	keep := len(c.outs) > 0
	l.do(func(ctx context.Context) {
		if again(ctx, retries.After, func(int) bool {
			limited, cancel := context.WithTimeout(ctx, callLimit)
			defer cancel()
			of, begun := l.On(c.Host, "").ClaimOf(c.ID), time.Now()
			give := of.Release
			if keep { // it is pulled without the slot
				give = of.ReleaseKeeping
			}
			err := give(limited)
			if err == nil && keep {
				l.mu.Lock()
				c.lease.answered(begun)
				l.mu.Unlock()
			}
			if err == nil || api.RefusalOf(err) == api.RefusedUnknown {
				return true
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			return time.Now().After(c.lease.lost())
		}) != nil {
			return // the next execd does it
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.detachAll(c)
		l.forget(c)
	})
}

// lapse notes that a claim is not renewed any more. What runs under it has its lease to end.
func (l *claims) lapse(c *claim, why string) {
	c.closed, c.spent = true, true
	l.warnf("execd: host %s: claim %s is over: %s", c.Host, c.Public(), why)
	l.detachAll(c)
	if r := c.run; r != nil {
		r.poke()
	} else {
		l.forget(c)
	}
}

// forget forgets a claim that nothing runs under. One whose file stays is given back by the next
// execd.
func (l *claims) forget(c *claim) {
	delete(l.list, c.Name())
	if c.ID == "" {
		return
	}
	l.do(func(context.Context) {
		if err := l.store().Remove(&c.Claim); err != nil {
			l.warnf("execd: %v", err)
		}
	})
}

// leave frees the claim of a run for the next.
func (l *claims) leave(r *run) {
	if c := r.claim; c != nil && c.run == r {
		c.wakeOutput()
		if r.over != nil {
			c.used = true
			l.Host.Timeline.Note(r.task.RunID(), timeline.Span{Kind: timeline.Slot, End: time.Now()})
		}
		if c.run, c.idle = nil, time.Now(); c.closed {
			l.forget(c)
		}
	}
	l.Wake()
}

// beginOutput notes that the output of a run is on its way, from when on its claim may be used for
// the next.
func (l *claims) beginOutput(r *run) {
	c := r.claim
	if c == nil {
		return
	}
	if c.outs == nil {
		c.outs = map[*run]bool{}
	}
	c.outs[r], r.output.counts = true, true
	if r.outcome == nil || !r.outcome.Held {
		l.leave(r)
	}
	if c.closed {
		l.detach(r)
	}
}

// nextStart returns what is closed when the next run under the claim of a run that is over has
// been started, or none is, so that what is pulled does not hold it up; nil: none will be.
func (l *claims) nextStart(r *run) <-chan struct{} {
	c := r.claim
	if c == nil || c.run == r || r.detached || c.closed {
		return nil
	}
	started := make(chan struct{})
	c.waiting = append(c.waiting, started)
	return started
}

// endOutput notes that the output of a run is on its way no more.
func (l *claims) endOutput(r *run) {
	r.output.counts = false
	if c := r.claim; c != nil {
		delete(c.outs, r)
	}
	l.Wake()
}

// detach has the sandbox of a run have a lease of its own, since its claim is gone.
func (l *claims) detach(r *run) {
	if r.detached {
		return
	}
	of := r.lease
	r.detached, r.lease = true, &lease{length: of.length, tried: of.tried, renewed: of.renewed, failures: of.failures}
	delete(r.claim.outs, r)
	l.renewSoon()
	r.poke()
}

// detachAll has all output of a claim that is gone be kept.
func (l *claims) detachAll(c *claim) {
	for r := range maps.Clone(c.outs) {
		l.detach(r)
	}
}
