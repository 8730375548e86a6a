package claim

import (
	"fmt"
	"maps"
	"slices"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
)

// The types of slots, as SlotType in their ads.
const (
	Static        = "Static"
	Partitionable = "Partitionable"
	Dynamic       = "Dynamic"
)

// partition is a queue that is one partitionable slot. The Table's mutex guards it.
type partition struct {
	space  *slot.Partitionable
	parent *Claim   // what the others are carved out of: nothing runs there itself
	carved []*Claim // by number
}

// Child is a slot that was carved out of another.
type Child struct {
	Slot  slot.ID
	State string
	Has   slot.Resources
}

// refresh takes over what the slot has as of now: what is free on disk is never the
// same.
func (t *Table) refresh(s *slots) {
	if total := t.o.Share(s.queue, s.size); total != s.part.space.Total() {
		s.part.space.Resize(total)
	}
}

// all returns the slots of a queue, those that are carved behind what they are carved
// out of. It is not to be changed, and does not change.
func (s *slots) all() []*Claim {
	if s.part == nil || len(s.part.carved) == 0 {
		return s.claims
	}
	return append([]*Claim{s.part.parent}, s.part.carved...)
}

// carve makes a dynamic slot for a job out of that of a queue. It is to be claimed at
// once: until settled its policy sees the slot that it was carved out of, as that was
// before.
func (t *Table) carve(s *slots, j slot.Job, holder string, fetched bool) (*managed, error) {
	parent := t.manage(s.part.parent)
	name := s.part.parent.id().Name()
	if t.drain != nil {
		return nil, api.Refusef(api.RefusedShutdown, "the host is being drained")
	}
	before := t.ad(parent) // which is as of now
	want, err := s.part.space.Request(adOf(j), before, fetched)
	if err == nil {
		var d slot.Dynamic
		if d, err = s.part.space.Carve(t.o.Now(), holder, want); err == nil {
			m := t.enter(s, d)
			m.before = before
			m.machine = slot.New(t.config(m, nil, nil), t.o.Now())
			return m, nil
		}
	}
	return nil, api.Refusef(api.RefusedRequirements, "cannot carve %s: %v", name, err)
}

// adOf returns the ad of a job, an empty one if it has none.
func adOf(j slot.Job) *classad.Ad {
	if j != nil {
		if ad := j.Ad(); ad != nil {
			return ad
		}
	}
	return classad.New()
}

// enter makes the slot for what was carved. It has no machine yet.
func (t *Table) enter(s *slots, d slot.Dynamic) *managed {
	t.serial++
	c := &Claim{Slot: 1, Dynamic: d.Number, Queue: s.queue, Holder: t.holder, of: s, has: d.Resources}
	m := &managed{claim: c, serial: t.serial, changed: make(chan struct{}), grants: map[slot.Number]*grant{}, part: s.part}
	c.managed = m
	i, _ := slices.BinarySearchFunc(s.part.carved, d.Number, func(c *Claim, n int) int { return c.Dynamic - n })
	s.part.carved = slices.Insert(slices.Clone(s.part.carved), i, c)
	t.managed = append(t.managed, m)
	t.recount(s.part)
	return m
}

// settled has the policy of a carved slot see the slot itself, and deletes it if nobody
// has claimed it.
func (t *Table) settled(m *managed) {
	m.before = nil
	t.tidy(m)
}

// recount tells that dynamic slots came or went, and so something else is left of one.
func (t *Table) recount(p *partition) {
	t.round.end()
	if m := p.parent.managed; m != nil {
		m.touch()
	}
	t.relist()
	t.noteManaged()
}

// touch tells who waits for a change of the slot.
func (m *managed) touch() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// relist tells who waits for other slots.
func (t *Table) relist() {
	close(t.listed)
	t.listed = make(chan struct{})
}

// willingToCarve is Willing of a queue that is one partitionable slot.
func (t *Table) willingToCarve(s *slots, j slot.Job, most int) (n int, why string) {
	m := t.manage(s.part.parent)
	name := m.claim.id().Name()
	if why = m.taken(); why != "" {
		return 0, why
	}
	space := s.part.space
	ad := m.looked.ad
	want, err := space.Request(adOf(j), ad, false)
	if err != nil {
		return 0, fmt.Sprintf("of %s: %v", name, err)
	}
	// START is asked with what would be left, so it is carved for the time being.
	var tried []int
	for ; n < most; n++ {
		if short := space.Left().Short(want); short != "" {
			why = fmt.Sprintf("of %s: too little %s is left", name, short)
			t.round.short = t.round.short || short == "Disk"
			break
		}
		if n == 0 || !t.policy.Plain() {
			if why = t.undecided(m, j, ad); why != "" {
				break
			}
		}
		ad = nil // it has less left
		d, err := space.Carve(t.o.Now(), t.holder, want)
		if err != nil {
			why = fmt.Sprintf("of %s: %v", name, err)
			break
		}
		tried = append(tried, d.Number)
	}
	for _, number := range tried {
		space.Return(number)
	}
	return n, why
}

// nextCarved carves a slot for a job of the queue, which runs there.
func (t *Table) nextCarved(s *slots, task string, j slot.Job) *Claim {
	if j == nil || t.manage(s.part.parent).taken() != "" {
		return nil
	}
	m, err := t.carve(s, j, t.holder, false)
	if err != nil {
		return nil
	}
	c := m.claim
	if !t.occupy(m, task, j) {
		c = nil
	}
	t.settled(m)
	return c
}

// tryCarve is try of a partitionable slot.
func (t *Table) tryCarve(s *slots, r *Request, j slot.Job) (Granted, error) {
	if err := t.makeRoom(s, r, j); err != nil {
		return Granted{}, err
	}
	m, err := t.carve(s, j, r.Holder, false)
	if err != nil {
		return Granted{}, err
	}
	n := m.machine.Offer()
	answer := t.happen(m, slot.Request{Claim: n, Holder: r.Holder, Job: j, Lease: r.Lease})
	if !answer.accepted {
		t.settled(m)
		return Granted{}, answer.refused
	}
	m.before = nil
	g := t.grant(m, n, r, false)
	if r.LeftOvers {
		g.LeftOvers = t.leftOvers(s, r)
	}
	return g, nil
}

// makeRoom gives up claims that the request names, to make room for it. Jobs that still
// run under them are killed, and the request may be repeated when they are gone.
func (t *Table) makeRoom(s *slots, r *Request, j slot.Job) error {
	if len(r.Preempt) == 0 {
		return nil
	}
	var list []*grant
	room := s.part.space.Left()
	for _, id := range r.Preempt {
		g, err := t.find(id, r.By)
		switch {
		case err != nil:
			return err
		case g.slot.part != s.part || slices.Contains(list, g):
			return api.Refusef(api.RefusedMessage, "claim %v has no slot that was carved out of %s", id, s.part.parent.id().Name())
		case g.slot.machine.RetirementRemaining(t.o.Now()) > 0:
			return api.Refusef(api.RefusedState, "what runs in %s may still finish", g.slot.claim.id().Name())
		}
		list = append(list, g)
		room.Add(g.slot.claim.has)
	}
	want, err := s.part.space.Request(adOf(j), t.ad(t.manage(s.part.parent)), false)
	if err != nil {
		return api.Refusef(api.RefusedRequirements, "%v", err)
	}
	if short := room.Short(want); short != "" {
		return api.Refusef(api.RefusedRequirements, "too little %s would be left of %s", short, s.part.parent.id().Name())
	}
	wait := false
	for _, g := range list {
		m := g.slot
		wait = wait || m.task != ""
		t.happen(m, slot.Vacate{Fast: true, Reason: slot.ReasonPriorityPreempted})
		t.tidy(m)
	}
	if wait {
		return api.Refusef(api.RefusedTryAgain, "what ran there is being killed")
	}
	return nil
}

// leftOvers claims the partitionable slot itself for the holder who has just carved, if
// anything is left and he may have it: until the lease is over nobody else carves.
func (t *Table) leftOvers(s *slots, r *Request) *Granted {
	lease := r.Lease
	if lease <= 0 || lease > slot.PartitionableLease {
		lease = slot.PartitionableLease
	}
	m, now := t.manage(s.part.parent), t.o.Now()
	if s.part.space.Left().Cpus == 0 || !s.part.space.Claim(now, r.Holder, lease) {
		return nil
	}
	if cur := m.grants[m.machine.Current().Number]; cur != nil {
		t.happen(m, slot.Renew{Claim: cur.number})
		return &Granted{ID: cur.id, Slot: m.claim.id(), Name: t.name(m.claim.id()), Lease: cur.lease, Ad: t.ad(m)}
	}
	whole := *r
	whole.Lease, whole.Ad = lease, adOf(slot.JobOf(r.Ad)).Without("RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs")
	n := m.machine.Offer()
	answer := t.happen(m, slot.Request{Claim: n, Holder: r.Holder, Job: slot.JobOf(whole.Ad), Lease: lease})
	if !answer.accepted {
		s.part.space.Release(r.Holder)
		return nil
	}
	g := t.grant(m, n, &whole, false)
	return &g
}

// offerCarved is Offer of a partitionable slot.
func (t *Table) offerCarved(s *slots, ad *classad.Ad) (Granted, error) {
	j := slot.JobOf(ad)
	m, err := t.carve(s, j, slot.FetchHolder, true)
	if err != nil {
		return Granted{}, err
	}
	t.happen(m, slot.FetchBegan{})
	r := t.happen(m, slot.FetchEnded{Job: j})
	if !r.accepted {
		t.settled(m)
		return Granted{}, r.refused
	}
	m.before = nil
	return t.grantOffer(m, &r, ad), nil
}

// Asking tells that a hook looks for work for a slot, or does not any more. A dynamic
// slot is not deleted meanwhile, since the answer would find another one of the same
// name.
func (t *Table) Asking(id slot.ID, asks bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.at(id)
	if c == nil || c.Dynamic == 0 {
		return
	}
	t.ask(c.managed, asks)
}

// ask is Asking of a slot that was carved.
func (t *Table) ask(m *managed, asks bool) {
	if m.asking == asks {
		return
	}
	m.asking = asks
	if asks {
		t.happen(m, slot.FetchBegan{})
		return
	}
	t.happen(m, slot.FetchStopped{})
	t.tidy(m)
}

// makeAgain makes a slot anew that an earlier execd has carved: of the same name, unless
// that is in use. It has no machine yet.
func (t *Table) makeAgain(s *slots, number int, has slot.Resources) *managed {
	d := slot.Dynamic{Number: max(number, 1), Resources: has}
	for s.part.space.Restore(d) != nil {
		d.Number++
	}
	t.manage(s.part.parent)
	return t.enter(s, d)
}

// recarve makes the slot anew in which a task runs: as its record says, and without one
// as its job requests. No slot may refuse.
func (t *Table) recarve(s *slots, record *job.Carved, j slot.Job) *managed {
	if record != nil {
		if c := t.yield(s, record.Slot); c != nil {
			return c.managed
		}
		return t.makeAgain(s, record.Slot, slot.Resources{Cpus: record.Cpus, Memory: record.Memory, Disk: record.Disk, GPUs: record.GPUs})
	}
	want, err := s.part.space.Request(adOf(j), t.ad(t.manage(s.part.parent)), false)
	if err != nil {
		want = slot.Resources{Cpus: 1}
	}
	return t.makeAgain(s, 1, want)
}

// Carved returns what is to be known of claims to carve them again after a restart;
// nil: none of them was carved.
func Carved(claims []*Claim) (list []job.Carved) {
	for _, c := range claims {
		if c.Dynamic > 0 {
			list = append(list, job.Carved{Queue: c.Queue, Slot: c.Dynamic, Cpus: c.has.Cpus, Memory: c.has.Memory, Disk: c.has.Disk, GPUs: c.has.GPUs})
		}
	}
	return list
}

// parts returns what the ad and the view of a slot say of how it is partitioned.
func (t *Table) parts(c *Claim) (kind string, has, total slot.Resources, children []Child) {
	switch {
	case c.Dynamic > 0:
		return Dynamic, c.has, c.has, nil
	case !c.isParent():
		return Static, has, total, nil
	}
	t.refresh(c.of)
	part := c.of.part
	for _, o := range part.carved {
		children = append(children, Child{o.id(), o.managed.machine.State().String(), o.has})
	}
	return Partitionable, part.space.Left(), part.space.Total(), children
}

// reshape makes queues partitionable, or not any more, that were in use when the
// configuration began to say so.
func (t *Table) reshape() {
	for name := range maps.Keys(t.waiting) {
		if s := t.queues[name]; s == nil || !s.inUse() {
			t.resize(t.configured)
			return
		}
	}
}

// inUse reports whether anything runs in a queue, or somebody has claimed a slot of
// it.
func (s *slots) inUse() bool {
	if s.part != nil && len(s.part.carved) > 0 {
		return true
	}
	return slices.ContainsFunc(s.claims, func(c *Claim) bool {
		return c.activity == Busy || c.managed != nil && (len(c.managed.grants) > 0 || c.managed.task != "")
	})
}
