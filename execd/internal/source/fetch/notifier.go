package fetch

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/serial"
	"paddock/execd/internal/slot"
)

// notifier tells hooks what was decided on work, for one slot: one thing after the other,
// in the order in which they happened, while nobody waits. Only the slot's next question
// does, for as long as a hook may take, since a hook that has not been told of its answer
// would give the same answer again.
type notifier struct {
	layer *Layer
	slot  slot.ID

	queue serial.Queue // what is to be told

	mu      sync.Mutex
	telling map[int]bool // guarded by mu; jobs of which EVICT_CLAIM is told
}

// reply has REPLY_FETCH run, if there is one. It does not block.
func (n *notifier) reply(keyword string, accepted bool, c *fetched, slot *classad.Ad, id claim.ID) {
	word := "reject"
	if accepted {
		word = "accept"
	} else {
		id = claim.ID{} // it is not for those whose work is refused
	}
	n.tell(func(ctx context.Context) {
		n.run(ctx, keyword, hook.ReplyFetch, []string{word}, c, slot, id)
		if accepted && c.job != nil && ctx.Err() == nil {
			if err := n.layer.o.Store.Replied(c.job); err != nil {
				n.layer.o.Log.Warn(err.Error())
			}
		}
	})
}

// evicted has EVICT_CLAIM run, if the claim was for any work. It does not wait for
// the hook.
func (n *notifier) evicted(e claim.Eviction) {
	c, ran := n.layer.work.evicted(&e)
	if c == nil {
		n.orphaned(&e)
		return
	}
	if !ran {
		n.layer.known.gone(c.job.Number)
		// Nobody else would forget what waited for its slot; and not before the notice
		// is on disk, which keeps an execd that is started meanwhile from running it.
		defer func() {
			if n.layer.waits(c.job) {
				n.layer.forget(c, cmp.Or(e.Reason, "its claim is over"))
			} else {
				n.layer.release(c.job.Number) // as it was kept when it was deleted
			}
		}()
	}
	n.layer.o.Log.Info(fmt.Sprintf("slot %v: fetch: claim ended: job=%d reason=%q", n.slot, c.job.Number, e.Reason))
	on := e.Ad
	if on == nil {
		on = classad.New()
	}
	if n.layer.o.HookTable().Hook(c.keyword, hook.EvictClaim) == nil || !n.noticed(c.job.Number) {
		return
	}
	over := c.ended(e.Reason, e.Code, e.Subcode)
	if err := n.layer.keep(c.job.Number, newNotice(over, n.slot, e.ID.String(), on)); err != nil {
		n.layer.o.Log.Error(err.Error()) // it is told all the same if execd goes on
	}
	n.notify(c.job.Number, over, on, e.ID, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.telling, c.job.Number)
	})
}

// orphaned has EVICT_CLAIM run of a claim that an earlier execd has left without its
// work, if anything is known of that.
func (n *notifier) orphaned(e *claim.Eviction) {
	l := n.layer
	if !l.work.unorphan(e.ID.String()) || e.Work == nil || e.Ad == nil {
		return
	}
	keyword, _ := text(e.Work, attrKeyword)
	over := (&fetched{keyword: keyword, ad: e.Work}).ended(e.Reason, e.Code, e.Subcode)
	l.o.Log.Info(fmt.Sprintf("slot %v: fetch: claim ended: found without its work: reason=%q", n.slot, e.Reason))
	on, id := e.Ad, e.ID
	n.tell(func(ctx context.Context) { n.run(ctx, over.keyword, hook.EvictClaim, nil, over, on, id) })
}

// noticed notes that the end of a job's claim is told, and reports whether it was
// not noted before.
func (n *notifier) noticed(job int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.telling[job] {
		return false
	}
	if n.telling == nil {
		n.telling = map[int]bool{}
	}
	n.telling[job] = true
	return true
}

// notify has EVICT_CLAIM run. When execd ends before the hook has, the next one has
// it run. It does not block.
func (n *notifier) notify(job int, c *fetched, on *classad.Ad, id claim.ID, after func()) {
	n.tell(func(ctx context.Context) {
		n.run(ctx, c.keyword, hook.EvictClaim, nil, c, on, id)
		if ctx.Err() == nil {
			n.layer.told(job)
			after()
		}
	})
}

// run runs one hook of the keyword, if there is one. Its outcome changes nothing;
// the runner logs what it says.
func (n *notifier) run(ctx context.Context, keyword string, name hook.Name, args []string, c *fetched, slot *classad.Ad, id claim.ID) {
	l := n.layer
	h := l.o.HookTable().Hook(keyword, name)
	if h == nil {
		return
	}
	if !id.Zero() {
		slot = slot.With(classad.Attr{Name: "PublicClaimId", Expr: classad.String(id.String()).Expr()})
	}
	stdin := ad.Stdin(c.ad, slot)
	if secret := id.Reveal(); secret != "" && l.o.Config().Knobs.Bool("FETCH_SEND_CLAIM_ID", false) {
		// The hook is the administrator's, and he has said so (REQ-HOOK-109).
		stdin = ad.SecretStdin(c.ad, slot.With(classad.Attr{Name: attrClaim, Expr: classad.String(secret).Expr()}))
	}
	r := l.o.Hooks.Run(ctx, hook.Call{Hook: h, Args: args, Stdin: stdin, Label: fmt.Sprintf("slot %v", n.slot)})
	if why := failure(&r, h); why != "" && ctx.Err() == nil {
		l.o.Log.Warn(fmt.Sprintf("slot %v: fetch: hook %s of %s: %s", n.slot, name, keyword, why))
	}
}

// tell has something told after all that came before.
func (n *notifier) tell(do func(context.Context)) {
	l := n.layer
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx := l.running
	if l.stopped || ctx.Err() != nil {
		return // the next execd tells it
	}
	l.errands.Add(1)
	n.queue.Add(func() { defer l.errands.Done(); do(ctx) })
}
