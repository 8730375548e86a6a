package fetch

import (
	"context"
	"fmt"
	"time"

	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/source"
	"paddock/internal/proc"
)

// renewAgain is after how long a renewal is tried again that has failed.
const renewAgain = 5 * time.Second

// renewPace is the least time from the end of one renewal to the next: an ad may ask
// for any lease, and each renewal is a process.
const renewPace = 500 * time.Millisecond

// notKnown is the exit status of RENEW_CLAIM that says that nobody waits for the
// work any more.
const notKnown = 1

// lease returns for how long work may go on that nobody has renewed: what its ad
// says, or as long as a claim may miss signs of life.
func lease(knobs *knob.Set, job *classad.Ad) time.Duration {
	if job != nil {
		env := &classad.Env{My: job, Now: time.Now()}
		if n, ok := env.Attr("JobLeaseDuration").Int(); ok && n > 0 {
			return time.Duration(min(n, int64(maxDelay/time.Second))) * time.Second
		}
	}
	return source.Lease(knobs)
}

// renewal returns after how much of a lease it is renewed, and whether that is later
// than at a third.
func renewal(lease time.Duration) (after time.Duration, late bool) {
	if after = lease / 3; after < renewPace {
		return renewPace, true
	}
	return after, false
}

// lease is the lease of work in the slot: none, unless it has a hook that renews it.
func (w *worker) lease(work *classad.Ad) time.Duration {
	if w.layer.o.HookTable().Hook(w.keyword, hook.RenewClaim) == nil {
		return 0
	}
	return lease(w.layer.o.Config().Knobs, work)
}

// renew keeps the claims of fetched work alive while there is a hook RENEW_CLAIM:
// it runs at a third of the lease, or every half second if that is less. Exit status 0
// renews from when it was called, 1 says that the work is not wanted any more, and whatever
// else happens is a failure that is tried again until the slot ends the claim with its
// lease. It returns when ctx is done or the slot gone.
func (w *worker) renew(ctx context.Context) {
	l := w.layer
	var of *fetched    // whose lease is renewed
	var told bool      // that it is too short
	var due time.Time  // when the hook is to be called
	var pace time.Time // not before that, whoever wants it
	for ctx.Err() == nil {
		changed := l.o.Claims.Changed(w.slot)
		slot, ok := l.o.Slots.Snapshot(w.slot, false)
		if !ok {
			return
		}
		public := slot.ID.String()
		c := l.work.under(public)
		if c == nil || !slot.Fetched() || slot.State != "Claimed" {
			of = nil
			sleep(ctx, 0, changed, w.renewal, nil)
			continue
		}
		term := w.lease(c.ad)
		if (term == 0) != (slot.Lease == 0) { // the hook was configured meanwhile, or is not any more
			if err := l.o.Slots.Prolong(public, term, proc.Uptime()); err != nil {
				l.o.Log.Warn(fmt.Sprintf("slot %v: fetch: %v", w.slot, err))
				sleep(ctx, renewAgain, changed, w.renewal, nil)
			}
			continue
		}
		if term == 0 {
			of = nil
			sleep(ctx, 0, changed, w.renewal, nil)
			continue
		}
		now := time.Now()
		after, late := renewal(term)
		if c != of { // each work has a lease of its own, also under the same claim
			of, told, due = c, false, now.Add(max(after-slot.Lease+slot.Left, 0))
		}
		if late && !told {
			told = true
			l.o.Log.Warn(fmt.Sprintf("slot %v: fetch: job=%d: its lease of %v is too short to be renewed at a third: hook %s of %s is called every %v", w.slot, c.job.Number, term, hook.RenewClaim, w.keyword, renewPace))
		}
		if w.takeRenewal() {
			due = pace
		}
		if wait := due.Sub(now); wait > 0 {
			sleep(ctx, wait, changed, w.renewal, nil)
			continue
		}
		due = w.renewOnce(ctx, c, public, term)
		pace = time.Now().Add(renewPace)
	}
}

// renewOnce calls the hook about the work that has the slot under a claim, and returns when to call it again.
func (w *worker) renewOnce(ctx context.Context, c *fetched, public string, term time.Duration) time.Time {
	l := w.layer
	h := l.o.HookTable().Hook(w.keyword, hook.RenewClaim)
	if h == nil {
		return time.Now()
	}
	began, since := time.Now(), proc.Uptime()
	r := l.o.Hooks.Run(ctx, hook.Call{Hook: h, Stdin: ad.Stdin(c.ad, l.slotAd(w.slot)), Label: fmt.Sprintf("slot %v", w.slot)})
	if ctx.Err() != nil {
		return began
	}
	now := time.Now()
	if l.work.under(public) != c {
		return now // the answer is about work that is over, and not about what its claim is for now
	}
	why := failure(&r, h)
	switch {
	case why == "" && r.Status == 0:
		err := l.o.Slots.Prolong(public, term, since)
		if err == nil {
			after, _ := renewal(term)
			return later(began.Add(after), now.Add(renewPace))
		}
		why = err.Error()
	case why == "" && r.Status == notKnown && l.work.isOver(c):
		return now.Add(term) // its claim waits for the next, or may have it already
	case why == "" && r.Status == notKnown:
		l.o.Slots.Withdraw(public, because("its hook says that nobody waits for it"))
		return now.Add(renewAgain) // it may take a while to end
	case why == "":
		why = fmt.Sprintf("exit status %d", r.Status)
	}
	var left time.Duration
	if s, ok := l.o.Slots.Snapshot(w.slot, false); ok && s.ID.String() == public {
		left = s.Left
	}
	l.o.Log.Warn(fmt.Sprintf("slot %v: fetch: hook %s of %s: %s: lease=%v left=%v", w.slot, hook.RenewClaim, w.keyword, why, term, left.Round(time.Second)))
	again := max(min(renewAgain, left/2), renewPace)
	if again >= left { // the lease ends first
		again = left + renewAgain
	}
	return now.Add(again)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
