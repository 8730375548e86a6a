package fetch

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
)

// claim is work that was fetched, and what became of it.
type claim struct {
	slot    slot.ID
	keyword string
	ad      *classad.Ad // with its HookKeyword
	request *api.SubmitRequest
	job     *job.Job // nil: it was not accepted
	id      string   // of the claim, public; empty: it was not accepted
	notRun  string   // why it was accepted and not run, if somebody said so; guarded by the desk's mu
}

// desk tells who work comes from what was decided of it, for one slot: one thing
// after the other, in the order in which they happened, while nobody waits. Only
// the next question of the slot does, for as long as a hook may take: who has not
// been told of an answer would give the same answer again.
type desk struct {
	layer *Layer
	slot  slot.ID

	mu       sync.Mutex
	held     []*claim      // guarded by mu; the work last accepted under each of the slot's claims
	starting bool          // guarded by mu; the slot was carved, and its work is not started yet
	queue    []func()      // guarded by mu; what is to be told
	busy     bool          // guarded by mu; somebody is telling
	quiet    chan struct{} // guarded by mu; closed when all was told; nil: nobody waits
	telling  map[int]bool  // guarded by mu; jobs of which EVICT_CLAIM is told
}

// took notes the work that a claim of the slot is for now.
func (d *desk) took(c *claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = append(slices.DeleteFunc(d.held, func(o *claim) bool { return o.id == c.id }), c)
}

// forget takes back that the slot took work.
func (d *desk) forget(c *claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = slices.DeleteFunc(d.held, func(o *claim) bool { return o == c })
}

// begin says whether the worker of another slot is about to start what this one
// took: until then nobody else may ask in its name, or give it back.
func (d *desk) begin(starting bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.starting = starting
}

func (d *desk) isStarting() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.starting
}

// isHeld reports whether the slot has fetched work that is its own to look after.
func (d *desk) isHeld() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.held) > 0 && !d.starting
}

// holds returns the work that a claim of the slot is for; nil: none.
func (d *desk) holds(id string) *claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.held {
		if c.id == id {
			return c
		}
	}
	return nil
}

// claimOf returns the work that is a job; nil: it is none of this slot's.
func (d *desk) claimOf(number int) *claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.held {
		if c.job.Number == number {
			return c
		}
	}
	return nil
}

// abandoned notes that a job is not run.
func (d *desk) abandoned(number int, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.held {
		if c.job.Number == number {
			c.notRun = reason
		}
	}
}

// reasonOf returns why work was not run; empty: it was, or may be still.
func (d *desk) reasonOf(c *claim) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return c.notRun
}

// let returns the work that a broken claim was for, and forgets it; nil: none.
func (d *desk) let(e *Eviction) *claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.held, func(c *claim) bool { return e.Claim != "" && c.id == e.Claim })
	if i < 0 && e.Job != 0 { // of an earlier execd, that had another claim
		i = slices.IndexFunc(d.held, func(c *claim) bool { return c.job.Number == e.Job })
	}
	if i < 0 && e.Job == 0 && e.Claim == "" && len(d.held) == 1 {
		i = 0
	}
	if i < 0 {
		return nil // nothing was ever accepted under it
	}
	c := d.held[i]
	d.held = slices.Delete(d.held, i, i+1)
	return c
}

// reply has REPLY_FETCH run, if there is one. It does not block.
func (d *desk) reply(keyword string, accepted bool, c *claim, slot *classad.Ad, public, secret string) {
	word := "reject"
	if accepted {
		word = "accept"
	} else {
		secret = "" // it is not for those whose work is refused
	}
	d.tell(func(ctx context.Context) {
		d.run(ctx, keyword, hook.ReplyFetch, []string{word}, c, slot, public, secret)
		if accepted && c.job != nil && ctx.Err() == nil {
			if err := d.layer.o.Store.Replied(c.job); err != nil {
				d.layer.o.Log.Warn(err.Error())
			}
		}
	})
}

// evicted has EVICT_CLAIM run, if the claim was for any work. It does not wait for
// the hook.
func (d *desk) evicted(e Eviction) {
	c := d.let(&e)
	if c == nil {
		return
	}
	d.layer.o.Log.Info(fmt.Sprintf("slot %v: fetch: claim ended: job=%d reason=%q", d.slot, c.job.Number, e.Reason))
	on := e.Ad
	if on == nil {
		on = classad.New()
	}
	if d.layer.current().Hooks.Hook(c.keyword, hook.EvictClaim) == nil || !d.noticed(c.job.Number) {
		return
	}
	over := &claim{keyword: c.keyword, ad: c.ad.With(classad.Attr{Name: attrReason, Expr: classad.String(e.Reason).Expr()})}
	n := notice{Slot: d.slot.String(), Keyword: c.keyword, Claim: e.Claim, Work: over.ad.OldString(), Ad: on.OldString()}
	if err := d.layer.keep(c.job.Number, &n); err != nil {
		d.layer.o.Log.Error(err.Error()) // it is told all the same if execd goes on
	}
	d.notify(c.job.Number, over, on, e.Claim, e.Secret, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.telling, c.job.Number)
	})
}

// noticed notes that the end of a job's claim is told, and reports whether it was
// not noted before.
func (d *desk) noticed(job int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.telling[job] {
		return false
	}
	if d.telling == nil {
		d.telling = map[int]bool{}
	}
	d.telling[job] = true
	return true
}

// notify has EVICT_CLAIM run. When execd ends before the hook has, the next one has
// it run. It does not block.
func (d *desk) notify(job int, c *claim, on *classad.Ad, public, secret string, after func()) {
	d.tell(func(ctx context.Context) {
		d.run(ctx, c.keyword, hook.EvictClaim, nil, c, on, public, secret)
		if ctx.Err() == nil {
			d.layer.told(job)
			after()
		}
	})
}

// run runs one hook of the keyword, if there is one. Its outcome changes nothing;
// the runner logs what it says.
func (d *desk) run(ctx context.Context, keyword string, name hook.Name, args []string, c *claim, slot *classad.Ad, public, secret string) {
	l := d.layer
	s := l.current()
	h := s.Hooks.Hook(keyword, name)
	if h == nil {
		return
	}
	if public != "" {
		slot = slot.With(classad.Attr{Name: "PublicClaimId", Expr: classad.String(public).Expr()})
	}
	stdin := ad.Stdin(c.ad, slot)
	if secret != "" && s.Knobs.Bool("FETCH_SEND_CLAIM_ID", false) {
		// The hook is the administrator's, and he has said so (REQ-HOOK-109).
		stdin = ad.SecretStdin(c.ad, slot.With(classad.Attr{Name: attrClaim, Expr: classad.String(secret).Expr()}))
	}
	r := l.o.Hooks.Run(ctx, hook.Call{Hook: h, Args: args, Stdin: stdin, Label: fmt.Sprintf("slot %v", d.slot)})
	if why := failure(&r, h); why != "" && ctx.Err() == nil {
		l.o.Log.Warn(fmt.Sprintf("slot %v: fetch: hook %s of %s: %s", d.slot, name, keyword, why))
	}
}

// tell has something told after all that came before.
func (d *desk) tell(do func(context.Context)) {
	l := d.layer
	l.mu.Lock()
	ctx, stopped := l.running, l.stopped
	if ctx == nil {
		ctx = context.Background()
	}
	if !stopped {
		l.errands.Add(1)
	}
	l.mu.Unlock()
	if stopped || ctx.Err() != nil {
		if !stopped {
			l.errands.Done()
		}
		return // the next execd tells it
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, func() { defer l.errands.Done(); do(ctx) })
	if !d.busy {
		d.busy = true
		go d.work()
	}
}

func (d *desk) work() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			d.busy = false
			if d.quiet != nil {
				close(d.quiet)
				d.quiet = nil
			}
			d.mu.Unlock()
			return
		}
		next := d.queue[0]
		d.queue = d.queue[1:]
		d.mu.Unlock()
		next()
	}
}

// settled returns a channel that is closed when all that is to be told has been
// told; nil: it has.
func (d *desk) settled() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.busy {
		return nil
	}
	if d.quiet == nil {
		d.quiet = make(chan struct{})
	}
	return d.quiet
}
