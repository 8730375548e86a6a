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

// partition is the partitionable slot of a queue, and what is carved out of it. The
// Table's mutex guards it.
type partition struct {
	space  *slot.Partitionable
	parent *Slot          // the partitionable slot, in which nothing runs
	carved []*Slot        // by number
	total  slot.Resources // that it has, with what sandboxes take whose output leaves them
}

// Child is a slot that was carved out of another.
type Child struct {
	Slot  slot.ID
	State string
	Has   slot.Resources
}

// refresh updates what the partitionable slot has: the free space on disk changes all the
// time.
func (q *queue) refresh() {
	total := q.table.o.Share(q.name, q.size)
	q.part.total = total
	total.Disk = max(total.Disk-kib(q.part.parent.leaving()), 0)
	q.part.space.Resize(total, q.table.o.Room())
}

// all returns the slots of a queue, dynamic ones after the partitionable one. The slice
// must not be changed, and does not change.
func (q *queue) all() []*Slot {
	if q.part == nil || len(q.part.carved) == 0 {
		return q.slots
	}
	return append([]*Slot{q.part.parent}, q.part.carved...)
}

// carve carves a dynamic slot for a job out of that of a queue. The slot is to be claimed
// at once: until settled its policy sees the partitionable slot as it was before.
func (q *queue) carve(j slot.Job, holder string, fetched bool) (*managed, error) {
	t := q.table
	parent := q.part.parent.manage()
	name := q.part.parent.id().Name()
	if t.drain != nil {
		return nil, api.Refusef(api.RefusedShutdown, "the host is being drained")
	}
	before := parent.ad() // with what is left now
	want, err := q.part.space.Request(adOf(j), before, fetched)
	if err == nil {
		var d slot.Dynamic
		if d, err = q.part.space.Carve(t.o.Now(), holder, want); err == nil {
			m := q.enter(d)
			m.before = before
			m.machine = slot.New(m.config(nil, nil), t.o.Now())
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

// enter makes the slot for resources that were carved. It has no machine yet.
func (q *queue) enter(d slot.Dynamic) *managed {
	t := q.table
	t.serial++
	s := &Slot{Index: 1, Dynamic: d.Number, Queue: q.name, Holder: t.holder, of: q, has: d.Resources}
	m := &managed{table: t, slot: s, serial: t.serial, changed: make(chan struct{}), claims: map[slot.Number]*claim{}, part: q.part}
	s.managed = m
	i, _ := slices.BinarySearchFunc(q.part.carved, d.Number, func(s *Slot, n int) int { return s.Dynamic - n })
	q.part.carved = slices.Insert(slices.Clone(q.part.carved), i, s)
	t.managed = append(t.managed, m)
	q.part.recount()
	return m
}

// settled lets the policy of a dynamic slot see the slot itself, and deletes the slot if
// it is not claimed.
func (m *managed) settled() {
	m.before = nil
	m.tidy()
}

// recount notes that dynamic slots came or went, so that what is left has changed.
func (p *partition) recount() {
	t := p.parent.of.table
	t.round.end()
	if m := p.parent.managed; m != nil {
		m.touch()
	}
	t.relist()
	t.noteManaged()
}

// touch wakes up everybody who waits for a change of the slot.
func (m *managed) touch() {
	close(m.changed)
	m.changed = make(chan struct{})
	m.table.stir()
}

// Stir wakes up everybody who waits for a change of any slot, since the host or a queue has
// become another.
func (t *Table) Stir() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stir()
}

// stir wakes up everybody who waits for a change of any slot.
func (t *Table) stir() {
	if t.awaited {
		close(t.stirred)
		t.stirred, t.awaited = make(chan struct{}), false
	}
}

// Stirred returns a channel that is closed at the next change of any slot.
func (t *Table) Stirred() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awaited = true
	return t.stirred
}

// relist wakes up everybody who waits for a change of the list of slots.
func (t *Table) relist() {
	close(t.listed)
	t.listed = make(chan struct{})
	t.stir()
}

// willingToCarve is Willing for a partitionable queue.
func (q *queue) willingToCarve(j slot.Job, most int) (n int, why string) {
	t := q.table
	m := q.part.parent.manage()
	name := m.slot.id().Name()
	if why = m.taken(); why != "" {
		return 0, why
	}
	space := q.part.space
	ad := m.looked.ad
	want, err := space.Request(adOf(j), ad, false)
	if err != nil {
		return 0, fmt.Sprintf("of %s: %v", name, err)
	}
	// START is evaluated with what would be left, so slots are carved for the time being.
	var tried []int
	for ; n < most; n++ {
		if short := space.Left().Short(want); short != "" {
			why = fmt.Sprintf("of %s: too little %s is left", name, short)
			t.round.short = t.round.short || short == "Disk"
			break
		}
		if n == 0 || !t.policy.Plain() {
			if why = m.undecided(j, ad); why != "" {
				break
			}
		}
		ad = nil // less is left now
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

// nextCarved carves a slot for a job of the queue, which then runs there.
func (q *queue) nextCarved(task string, j slot.Job) *Slot {
	if j == nil || q.part.parent.manage().taken() != "" {
		return nil
	}
	m, err := q.carve(j, q.table.holder, false)
	if err != nil {
		return nil
	}
	s := m.slot
	if !m.occupy(task, j) {
		s = nil
	}
	m.settled()
	return s
}

// tryCarve is try for a partitionable slot.
func (q *queue) tryCarve(r *Request, j slot.Job) (Granted, error) {
	if err := q.makeRoom(r, j); err != nil {
		return Granted{}, err
	}
	m, err := q.carve(j, r.Holder, false)
	if err != nil {
		return Granted{}, err
	}
	n := m.machine.Offer()
	answer := m.handle(slot.Request{Claim: n, Holder: r.Holder, Job: j, Lease: r.Lease})
	if !answer.accepted {
		m.settled()
		return Granted{}, answer.refused
	}
	m.before = nil
	g := m.grant(n, r, false)
	if r.LeftOvers {
		g.LeftOvers = q.leftOvers(r)
	}
	return g, nil
}

// makeRoom gives up the claims that a request names, to make room for it. Jobs that still
// run under them are killed, and the request may be repeated when they are gone.
func (q *queue) makeRoom(r *Request, j slot.Job) error {
	if len(r.Preempt) == 0 {
		return nil
	}
	var list []*claim
	room := q.part.space.Left()
	for _, id := range r.Preempt {
		c, err := q.table.find(id, r.By)
		switch {
		case err != nil:
			return err
		case c.on.part != q.part || slices.Contains(list, c):
			return api.Refusef(api.RefusedMessage, "claim %v has no slot that was carved out of %s", id, q.part.parent.id().Name())
		case c.on.machine.RetirementRemaining(q.table.o.Now()) > 0:
			return api.Refusef(api.RefusedState, "what runs in %s may still finish", c.on.slot.id().Name())
		}
		list = append(list, c)
		room.Add(c.on.slot.has)
	}
	want, err := q.part.space.Request(adOf(j), q.part.parent.manage().ad(), false)
	if err != nil {
		return api.Refusef(api.RefusedRequirements, "%v", err)
	}
	if short := room.Short(want); short != "" {
		return api.Refusef(api.RefusedRequirements, "too little %s would be left of %s", short, q.part.parent.id().Name())
	}
	wait := false
	for _, c := range list {
		m := c.on
		wait = wait || m.task != ""
		m.handle(slot.Vacate{Fast: true, Reason: slot.ReasonPriorityPreempted})
		m.tidy()
	}
	if wait {
		return api.Refusef(api.RefusedTryAgain, "what ran there is being killed")
	}
	return nil
}

// leftOvers claims what is left of the partitionable slot for a holder who has just got a
// dynamic one, if that is possible: until the lease is over nobody else carves.
func (q *queue) leftOvers(r *Request) *Granted {
	lease := r.Lease
	if lease <= 0 || lease > slot.PartitionableLease {
		lease = slot.PartitionableLease
	}
	m, now := q.part.parent.manage(), q.table.o.Now()
	if q.part.space.Left().Cpus == 0 || !q.part.space.Claim(now, r.Holder, lease) {
		return nil
	}
	if cur := m.claims[m.machine.Current().Number]; cur != nil {
		cur.silent = false
		cur.begin()
		cur.count()
		return &Granted{ID: cur.id, Slot: m.slot.id(), Name: q.table.name(m.slot.id()), Lease: cur.lease, Ad: m.ad()}
	}
	whole := *r
	whole.Lease, whole.Ad = lease, adOf(slot.JobOf(r.Ad)).Without("RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs")
	n := m.machine.Offer()
	answer := m.handle(slot.Request{Claim: n, Holder: r.Holder, Job: slot.JobOf(whole.Ad), Lease: lease})
	if !answer.accepted {
		q.part.space.Release(r.Holder)
		return nil
	}
	g := m.grant(n, &whole, false)
	return &g
}

// offerCarved is Offer for a partitionable slot.
func (q *queue) offerCarved(ad *classad.Ad) (Granted, error) {
	j := slot.JobOf(ad)
	m, err := q.carve(j, slot.FetchHolder, true)
	if err != nil {
		return Granted{}, err
	}
	m.handle(slot.FetchBegan{})
	r := m.handle(slot.FetchEnded{Job: j})
	if !r.accepted {
		m.settled()
		return Granted{}, r.refused
	}
	m.before = nil
	return m.grantOffer(&r, ad), nil
}

// Asking notes that a hook looks for work for a slot, or no longer does. A dynamic slot is
// not deleted meanwhile, since the answer could find another one of the same name.
func (t *Table) Asking(id slot.ID, asks bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.at(id)
	if s == nil || s.Dynamic == 0 {
		return
	}
	s.managed.ask(asks)
}

// ask is Asking for a dynamic slot.
func (m *managed) ask(asks bool) {
	if m.asking == asks {
		return
	}
	m.asking = asks
	if asks {
		m.handle(slot.FetchBegan{})
		return
	}
	m.handle(slot.FetchStopped{})
	m.tidy()
}

// Carved returns what a restart has to know of slots to carve them again; nil: none was
// carved.
func Carved(slots []*Slot) (list []job.Carved) {
	for _, s := range slots {
		if s.Dynamic > 0 {
			list = append(list, job.Carved{Queue: s.Queue, Slot: s.Dynamic, Cpus: s.has.Cpus, Memory: s.has.Memory, Disk: s.has.Disk, GPUs: s.has.GPUs})
		}
	}
	return list
}

// parts returns what the ad and the view of a slot say of how it is partitioned.
func (s *Slot) parts() (kind string, has, total slot.Resources, children []Child) {
	switch {
	case s.Dynamic > 0:
		return Dynamic, s.has, s.has, nil
	case !s.isParent():
		return Static, has, total, nil
	}
	s.of.refresh()
	part := s.of.part
	for _, o := range part.carved {
		children = append(children, Child{o.id(), o.managed.machine.State().String(), o.has})
	}
	return Partitionable, part.space.Left(), part.total, children
}

// reshape makes queues partitionable, or not any more, that were in use when the
// configuration began to say so.
func (t *Table) reshape() {
	for name := range maps.Keys(t.waiting) {
		if q := t.queues[name]; q == nil || !q.inUse() {
			t.resize(t.configured)
			return
		}
	}
}

// inUse reports whether a job runs in a queue, or somebody has a claim on one of its
// slots.
func (q *queue) inUse() bool {
	if q.part != nil && len(q.part.carved) > 0 {
		return true
	}
	return slices.ContainsFunc(q.slots, func(s *Slot) bool {
		return s.activity == Busy || s.managed != nil && (len(s.managed.claims) > 0 || s.managed.task != "")
	})
}
