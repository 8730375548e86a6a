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
)

// renewAgain is after how long a renewal is tried again that has failed.
const renewAgain = 5 * time.Second

// renewPace is the least time from the end of one renewal to the next: an ad may ask
// for any lease, and each renewal is a process.
const renewPace = time.Second

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

// renew keeps the claims of fetched work alive while there is a hook RENEW_CLAIM:
// it runs at a third of the lease, or every second if that is less. Exit status 0
// renews, 1 says that the work is not wanted any more, and whatever else happens is a
// failure that is tried again until the lease is over, and for the last time then. It
// returns when ctx is done or the slot gone.
func (w *worker) renew(ctx context.Context) {
	l := w.layer
	var of *fetched       // whose lease the times are of
	var renewed time.Time // when its lease has begun
	var told bool         // that its lease is too short
	var due time.Time     // when the hook is to be called
	for ctx.Err() == nil {
		changed := l.o.Claims.Changed(w.slot)
		slot, ok := l.o.Slots.Snapshot(w.slot)
		if !ok {
			return
		}
		h := l.o.HookTable().Hook(w.keyword, hook.RenewClaim)
		c := l.work.under(slot.ID.String())
		if h == nil || c == nil || !slot.Fetched() || slot.State != "Claimed" {
			of = nil
			sleep(ctx, 0, changed, w.renewal, nil)
			continue
		}
		now, term := time.Now(), lease(l.o.Config().Knobs, c.ad)
		after, late := renewal(term)
		if c != of { // each work has a lease of its own, also under the same claim
			of, renewed, due, told = c, now, now.Add(after), false
		}
		if late && !told {
			told = true
			l.o.Log.Warn(fmt.Sprintf("slot %v: fetch: job=%d: its lease of %v is too short to be renewed at a third: hook %s of %s is called every %v", w.slot, c.job.Number, term, hook.RenewClaim, w.keyword, renewPace))
		}
		if wait := due.Sub(now); wait > 0 {
			sleep(ctx, wait, changed, w.renewal, nil)
			continue
		}
		r := l.o.Hooks.Run(ctx, hook.Call{Hook: h, Stdin: ad.Stdin(c.ad, slot.Ad), Label: fmt.Sprintf("slot %v", w.slot)})
		if ctx.Err() != nil {
			return
		}
		now = time.Now()
		why := failure(&r, h)
		switch {
		case why == "" && r.Status == 0:
			renewed, due = now, now.Add(after)
			continue
		case why == "" && r.Status == notKnown:
			due = now.Add(renewAgain) // it may take a while to end
			l.o.Slots.Withdraw(slot.ID.String(), false, because("its hook says that nobody waits for it"))
			continue
		case why == "":
			why = fmt.Sprintf("exit status %d", r.Status)
		}
		left := renewed.Add(term).Sub(now)
		l.o.Log.Warn(fmt.Sprintf("slot %v: fetch: hook %s of %s: %s: lease=%v left=%v", w.slot, hook.RenewClaim, w.keyword, why, term, max(left, 0).Round(time.Second)))
		if left > 0 {
			due = now.Add(max(min(renewAgain, left), renewPace))
			continue
		}
		due = now.Add(renewAgain) // as above
		l.o.Slots.Withdraw(slot.ID.String(), true, because("its lease is over"))
	}
}
