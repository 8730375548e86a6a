package fetch

import (
	"cmp"
	"slices"
	"sync"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
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
	script  []byte   // that came with it, until it is recorded; nil: none
	job     *job.Job // nil: it was not accepted
	id      string   // of the claim, public; empty: it was not accepted

	at     slot.ID   // that has the claim now; guarded by accepted.mu
	notRun slot.Hold // why it was accepted and not run, if somebody said so; guarded by accepted.mu
	told   bool      // an earlier execd has broken its claim, which EVICT_CLAIM is told
	over   bool      // it has run, or never will: nobody else is to say so; guarded by accepted.mu
	// dropped is why execd takes its job out of the Store, if it does; guarded by
	// accepted.mu.
	dropped string
}

// ended returns the work as EVICT_CLAIM is told of it: its ad has the reason why its
// claim is over, and what took it from its slot as a number, if anything did.
func (c *fetched) ended(reason string, code, subcode int) *fetched {
	why := []classad.Attr{{Name: attrReason, Expr: classad.String(reason).Expr()}}
	if code != 0 {
		why = append(why, classad.Attr{Name: attrReasonCode, Expr: classad.Int(int64(code)).Expr()}, classad.Attr{Name: attrReasonSubcode, Expr: classad.Int(int64(subcode)).Expr()})
	}
	return &fetched{keyword: c.keyword, ad: ad.Unrun(c.ad).With(why...)}
}

// accepted is the work that was accepted, the last under each claim.
type accepted struct {
	mu      sync.Mutex
	work    []*fetched      // guarded by mu
	orphans map[string]bool // guarded by mu; claims that an earlier execd has left without their work
}

// add enters the work that a claim is for now.
func (a *accepted) add(c *fetched) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.at = c.slot
	delete(a.orphans, c.id)
	a.work = append(slices.DeleteFunc(a.work, func(o *fetched) bool { return o.id == c.id }), c)
}

// remove takes back that work was accepted.
func (a *accepted) remove(c *fetched) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.work = slices.DeleteFunc(a.work, func(o *fetched) bool { return o == c })
}

// orphan notes that an earlier execd has left a claim without its work.
func (a *accepted) orphan(claim string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.orphans[claim] = true
}

// unorphan forgets that, and reports whether it was noted.
func (a *accepted) unorphan(claim string) (was bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was = a.orphans[claim]
	delete(a.orphans, claim)
	return was
}

// moved notes where the claims are now: a slot has another number when queues before
// its own have more slots, or fewer.
func (a *accepted) moved(where map[string]slot.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.work {
		if id, ok := where[c.id]; ok {
			c.at = id
		}
	}
}

// slots returns the slots that have any.
func (a *accepted) slots() map[slot.ID]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	slots := map[slot.ID]bool{}
	for _, c := range a.work {
		slots[c.at] = true
	}
	return slots
}

// under returns the work that a claim is for; nil: none.
func (a *accepted) under(id string) *fetched {
	return a.find(func(c *fetched) bool { return c.id == id })
}

// of returns the work that is a job; nil: it is none.
func (a *accepted) of(number int) *fetched {
	return a.find(func(c *fetched) bool { return c.job.Number == number })
}

func (a *accepted) find(is func(*fetched) bool) *fetched {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.IndexFunc(a.work, is); i >= 0 {
		return a.work[i]
	}
	return nil
}

// end notes that work is over, and reports whether it was before.
func (a *accepted) end(c *fetched) (before bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, c.over = c.over, true
	return before
}

// isOver reports whether work has run, or never will.
func (a *accepted) isOver(c *fetched) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return c.over
}

// abandon notes why work is not run, and reason returns it; without a text: nobody has
// said so.
func (a *accepted) abandon(c *fetched, why slot.Hold) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.notRun = why
}

func (a *accepted) reason(c *fetched) slot.Hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	return c.notRun
}

// drop notes that the job of work which is over is taken out of the Store, and why.
func (a *accepted) drop(c *fetched, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.over, c.dropped = true, reason
}

// deletion returns where the claim of work is whose job is being deleted, and why the job
// is, which execd itself may do; false: that is told already.
func (a *accepted) deletion(c *fetched) (at slot.ID, reason string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return c.at, cmp.Or(c.dropped, deleted), !c.over || c.dropped != ""
}

// evicted returns the work that a broken claim was for, and forgets it; nil: none. ran
// reports whether it has.
func (a *accepted) evicted(e *claim.Eviction) (c *fetched, ran bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.work, func(c *fetched) bool { return !e.ID.Zero() && c.id == e.ID.String() })
	if i < 0 && e.Job != 0 { // of an earlier execd, that had another claim
		i = slices.IndexFunc(a.work, func(c *fetched) bool { return c.job.Number == e.Job })
	}
	if i < 0 {
		return nil, false // nothing was ever accepted under it
	}
	c = a.work[i]
	a.work = slices.Delete(a.work, i, i+1)
	ran, c.over = c.over, true
	return c, ran
}
