package fetch

import (
	"slices"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
)

// fetched is work that was fetched, and what became of it.
type fetched struct {
	slot    slot.ID // that it was accepted on
	keyword string
	ad      *classad.Ad // with its HookKeyword
	request *api.SubmitRequest
	job     *job.Job // nil: it was not accepted
	id      string   // of the claim, public; empty: it was not accepted

	at     slot.ID   // that has the claim now; guarded by the layer's mu
	notRun slot.Hold // why it was accepted and not run, if somebody said so; guarded by the layer's mu
	told   bool      // an earlier execd has broken its claim, which EVICT_CLAIM is told
	over   bool      // it has run, or never will: nobody else is to say so; guarded by the layer's mu
	// dropped is why execd takes its job out of the Store, if it does; guarded by the
	// layer's mu.
	dropped string
}

// took notes the work that a claim is for now.
func (l *Layer) took(c *fetched) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.at = c.slot
	delete(l.orphans, c.id)
	l.held = append(slices.DeleteFunc(l.held, func(o *fetched) bool { return o.id == c.id }), c)
}

// unorphan notes that a claim is for other work than an earlier execd had for it.
func (l *Layer) unorphan(claim string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.orphans, claim)
}

// untook takes back that a slot took work.
func (l *Layer) untook(c *fetched) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = slices.DeleteFunc(l.held, func(o *fetched) bool { return o == c })
}

// moved notes where the claims are now: a slot has another number when queues before
// its own have more slots, or fewer.
func (l *Layer) moved(where map[string]slot.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.held {
		if id, ok := where[c.id]; ok {
			c.at = id
		}
	}
}

// holds returns the work that a claim is for; nil: none.
func (l *Layer) holds(id string) *fetched {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.held {
		if c.id == id {
			return c
		}
	}
	return nil
}

// claimOf returns the work that is a job; nil: it is none. l.mu is held.
func (l *Layer) claimOf(number int) *fetched {
	for _, c := range l.held {
		if c.job.Number == number {
			return c
		}
	}
	return nil
}

// ended returns the work as EVICT_CLAIM is told of it: its ad has the reason why its
// claim is over, and what took it from its slot as a number, if anything did.
func (c *fetched) ended(reason string, code, subcode int) *fetched {
	why := []classad.Attr{{Name: attrReason, Expr: classad.String(reason).Expr()}}
	if code != 0 {
		why = append(why, classad.Attr{Name: attrReasonCode, Expr: classad.Int(int64(code)).Expr()}, classad.Attr{Name: attrReasonSubcode, Expr: classad.Int(int64(subcode)).Expr()})
	}
	return &fetched{keyword: c.keyword, ad: c.ad.With(why...)}
}

// noteOver notes that work is over, and reports whether it was before.
func (l *Layer) noteOver(c *fetched) (before bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, c.over = c.over, true
	return before
}

// reasonOf returns why work was not run, as somebody has said; without a text: nobody
// has.
func (l *Layer) reasonOf(c *fetched) slot.Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.notRun
}

// let returns the work that a broken claim was for, and forgets it; nil: none. ran
// reports whether it has.
func (l *Layer) let(e *claim.Eviction) (c *fetched, ran bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.held, func(c *fetched) bool { return !e.ID.Zero() && c.id == e.ID.String() })
	if i < 0 && e.Job != 0 { // of an earlier execd, that had another claim
		i = slices.IndexFunc(l.held, func(c *fetched) bool { return c.job.Number == e.Job })
	}
	if i < 0 {
		return nil, false // nothing was ever accepted under it
	}
	c = l.held[i]
	l.held = slices.Delete(l.held, i, i+1)
	ran, c.over = c.over, true
	return c, ran
}
