package claim

import (
	"log/slog"
	"slices"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
)

// name returns the name of a slot in its ad.
func (t *Table) name(id slot.ID) string { return id.Name() + "@" + t.o.Host }

// Request asks for a claim on a slot. The claim is on disk after Keep, and must not be
// told to anybody before.
func (t *Table) Request(r Request) (Granted, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drain != nil {
		return Granted{}, api.Refusef(api.RefusedShutdown, "the host is being drained")
	}
	ad := r.Ad
	if ad == nil {
		ad = classad.New()
	}
	j := slot.JobOf(ad)
	if !r.Slot.IsZero() {
		s := t.at(r.Slot)
		if s == nil {
			return Granted{}, api.Errorf(api.CodeNotFound, "there is no slot %v", r.Slot)
		}
		return s.try(&r, j)
	}
	return t.search(&r, j)
}

// maxSearch is how many steps of evaluation it may cost to find a slot, with an ad
// that a user has written, however many slots there are.
const maxSearch = 250_000

// search asks all slots, the free ones first. Refusals for which the ad does not matter
// come first, and a slot that would not accept the job gets no event.
func (t *Table) search(r *Request, j slot.Job) (Granted, error) {
	refused := error(api.Refusef(api.RefusedState, "there is no slot"))
	steps := maxSearch
	for _, free := range []bool{true, false} {
		for _, q := range t.order {
			for _, s := range q.slots {
				if s.isFree() != free {
					continue
				}
				before := steps
				err := s.suits(r, j, &steps)
				if err == nil {
					var g Granted
					if g, err = s.try(r, j); err == nil {
						return g, nil
					}
					steps -= 3 * (before - steps) // it has evaluated the same, and RANK
				}
				if refused = err; steps <= 0 {
					return Granted{}, api.Refusef(api.RefusedRequirements, "the ad costs too much to be looked at by all slots")
				}
			}
		}
	}
	return Granted{}, refused
}

// suits says why a slot would refuse a request, as far as that is known without an event.
func (s *Slot) suits(r *Request, j slot.Job, steps *int) error {
	if err := s.barred(r); err != nil {
		return err
	}
	m := s.manage()
	defer m.tidy()
	state := m.machine.State()
	if state != slot.Owner && state != slot.Unclaimed && state != slot.Claimed {
		return api.Refusef(api.RefusedState, "slot %v is %v", s.id(), m.machine.Place())
	}
	if why := m.machine.Broken(); why != "" {
		return api.Refusef(api.RefusedBroken, "slot %v is broken: %s", s.id(), why)
	}
	ok, rank, text := m.machine.Suits(s.of.table.o.Now(), j, steps)
	switch {
	case !ok:
		return api.Refusef(api.RefusedRequirements, "%s", text)
	case state == slot.Claimed && !s.isParent(): // the holder of a claim on what is left of it may carve
		return m.yieldsTo(r, rank)
	}
	return nil
}

// barred says why a request is refused before the slot is asked.
func (s *Slot) barred(r *Request) error {
	if why := s.of.table.o.Closed(s.Queue); why != "" {
		return api.Refusef(api.RefusedState, "queue %s is %s", s.Queue, why)
	}
	if !s.isFree() && r.NoWait && !s.isParent() {
		return api.Refusef(api.RefusedTryAgain, "slot %v is in use", s.id())
	}
	return nil
}

// try requests a claim on one slot.
func (s *Slot) try(r *Request, j slot.Job) (Granted, error) {
	if err := s.barred(r); err != nil {
		return Granted{}, err
	}
	if s.isParent() {
		return s.of.tryCarve(r, j)
	}
	m := s.manage()
	defer m.tidy()
	if m.machine.State() == slot.Claimed {
		env := classad.Env{My: m.ad(), Target: j.Ad(), Now: s.of.table.o.Now()}
		if err := m.yieldsTo(r, env.Eval(s.of.table.policy.Expr(slot.Rank)).Rank()); err != nil {
			return Granted{}, err
		}
	}
	n := m.machine.Offer()
	answer := m.handle(slot.Request{Claim: n, Holder: r.Holder, Job: j, Lease: r.Lease})
	if !answer.accepted && !answer.held {
		return Granted{}, answer.refused
	}
	return m.grant(n, r, answer.held), nil
}

// yieldsTo refuses a request of the same rank as the claim on a slot, unless its
// priority is greater. The machine itself knows what ranks higher.
func (m *managed) yieldsTo(r *Request, rank float64) error {
	over, priority := m.machine.Current(), 0
	if w := m.machine.Preempting(); w.Waiting {
		over = w
	}
	if c := m.claims[over.Number]; c != nil {
		priority = c.priority
	}
	if rank > over.Rank || rank == over.Rank && r.Priority > priority {
		return nil
	}
	return api.Refusef(api.RefusedRank, "slot %v is claimed for a job that ranks as high", m.slot.id())
}

// grant makes the claim that the machine of a slot has accepted, or holds back.
func (m *managed) grant(n slot.Number, r *Request, waiting bool) Granted {
	t := m.table
	t.seq++
	c := &claim{
		table: t, on: m, number: n, id: newID(t.o.Host, t.o.Boot.Unix(), t.seq), holder: r.Holder, by: r.By,
		priority: r.Priority, lease: r.Lease, ad: r.Ad, made: t.o.Now(), waiting: waiting,
	}
	if !waiting {
		c.begin()
	}
	m.claims[n] = c
	if r.Confirm && !waiting {
		c.doubt()
	}
	id := m.slot.id()
	t.say(slog.LevelInfo, "claim %v: made: slot=%v holder=%s waits=%t", c.id, id, c.holder, waiting)
	return Granted{ID: c.id, Slot: id, Name: t.name(id), Lease: r.Lease, Waiting: waiting, Ad: m.ad()}
}

// find returns the claim with an id, secret included, if it may be used by somebody.
func (t *Table) find(id ID, by By) (*claim, error) {
	c := t.byPublic(id.String())
	if c == nil || !c.id.Equal(id) || c.offered || !by.may(&c.by) {
		return nil, unknown(id)
	}
	return c, nil
}

// state returns the state of a claim.
func (c *claim) state(now time.Time) State {
	m := c.on
	p := m.machine.Place()
	s := State{State: p.State.String(), Activity: p.Activity.String(), Waiting: c.waiting, Task: c.last}
	cur := m.machine.Current()
	if cur.Number == c.number {
		if m.task != "" {
			s.Task = m.task
		}
		if !cur.LeaseEnd.IsZero() {
			s.Lease = cur.LeaseEnd.Sub(now)
		}
	}
	return s
}

// Waiting returns a function that reports whether a claim still waits for its slot, and a
// channel that is closed when to ask again, or why the claim was refused.
func (t *Table) Waiting(id ID, by By) (func() (bool, <-chan struct{}, error), error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, err := t.find(id, by)
	if err != nil {
		return nil, err
	}
	return func() (bool, <-chan struct{}, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		switch {
		case c.refused != nil:
			return false, nil, c.refused
		case c.over:
			return false, nil, unknown(id)
		}
		return c.waiting, c.on.changed, nil
	}, nil
}

// Order gives the slot of a claim an event about that claim.
func (t *Table) Order(id ID, by By, event func(slot.Number) slot.Event) (State, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, err := t.find(id, by)
	if err != nil {
		return State{}, err
	}
	c.on.handle(event(c.number))
	s := c.state(t.o.Now())
	c.on.tidy()
	return s, nil
}

// Check reports whether a claim may be activated again, with a channel that is closed when to
// ask again.
func (t *Table) Check(id ID, by By) (api.Permit, <-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, err := t.find(id, by)
	if err != nil {
		return api.Permit{}, nil, err
	}
	m := c.on
	again := !c.waiting && m.machine.Current().Number == c.number && m.machine.MayActivateAgain(t.o.Now())
	return api.Permit{Start: again && !m.machine.Preempting().Waiting, Crowded: c.travels() != nil}, m.changed, nil
}

// maxPermits is how many callers may wait for the end of one job. One that goes away
// without the answer is kept until then.
const maxPermits = 64

// DeactivateClaim ends the job of a claim. The answer comes over the channel, which is
// buffered.
func (t *Table) DeactivateClaim(id ID, by By, how slot.Deactivation) (<-chan api.Permit, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, err := t.find(id, by)
	if err != nil {
		return nil, err
	}
	m := c.on
	if len(m.permits) >= maxPermits {
		return nil, api.Refusef(api.RefusedTryAgain, "%d wait for the end of the job", len(m.permits))
	}
	answer := make(chan api.Permit, 1)
	m.permits = append(m.permits, answer)
	r := m.handle(slot.Deactivate{Claim: c.number, How: how})
	if r.refused != nil {
		// The refusal is for this caller alone. Others wait for the end of a job that runs,
		// while this claim only waits for the slot.
		m.permits = slices.DeleteFunc(m.permits, func(o chan api.Permit) bool { return o == answer })
		return nil, r.refused
	}
	m.tidy()
	return answer, nil
}

// Starting begins an activation by a job that has been checked before. Run or Unstarted
// follows.
func (t *Table) Starting(id ID, by By) (on slot.ID, holder string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drain != nil {
		return on, "", api.Refusef(api.RefusedShutdown, "the host is being drained")
	}
	c, err := t.find(id, by)
	if err != nil {
		return on, "", err
	}
	m := c.on
	switch p := m.machine.Place(); {
	case m.slot.isParent():
		return on, "", api.Refusef(api.RefusedState, "slot %v is partitionable: jobs run in what is carved out of it", m.slot.id())
	case c.waiting || p.State != slot.Claimed || m.machine.Current().Number != c.number:
		return on, "", api.Refusef(api.RefusedState, "slot %v is %v, and not the claim's", m.slot.id(), p)
	case p.Activity == slot.Cleaning || c.starting:
		return on, "", api.Refusef(api.RefusedTryAgain, "slot %v is about to change", m.slot.id())
	case p.Activity != slot.Idle || m.task != "":
		return on, "", api.Refusef(api.RefusedBusy, "slot %v runs job %s", m.slot.id(), m.task)
	}
	if err := c.travels(); err != nil {
		return on, "", err
	}
	c.starting = true
	c.heard()
	return m.slot.id(), c.holder, nil
}

// Unstarted ends an activation whose job was not started.
func (t *Table) Unstarted(id ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byPublic(id.String()); c != nil {
		c.starting = false
	}
}

// Under returns the queue of a slot, and the public id of its claim, which must be the
// given one unless that is empty. The ad is that of fetched work.
func (t *Table) Under(on slot.ID, public string) (queue, id string, work *classad.Ad, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, err := t.current(on, public)
	if err != nil {
		return "", "", nil, err
	}
	if c.offered {
		work = c.ad
	}
	return c.on.slot.Queue, c.id.String(), work, nil
}

// Restless reports whether a slot may become willing without an event, by START or since
// the disk has room again. START refers to the same attributes in all slots.
func (t *Table) Restless() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.restless == nil && len(t.managed) > 0 {
		is := t.policy.StartChanges(t.managed[0].ad())
		t.restless = &is
	}
	return t.round.short || t.restless != nil && *t.restless
}

// current returns the claim that has a slot, which must have the public id unless that is
// empty.
func (t *Table) current(id slot.ID, public string) (*claim, error) {
	s := t.at(id)
	if s == nil || s.managed == nil {
		return nil, api.Refusef(api.RefusedState, "nobody has claimed slot %v", id)
	}
	if s.isParent() {
		return nil, api.Refusef(api.RefusedState, "slot %v is partitionable: jobs run in what is carved out of it", id)
	}
	c := s.managed.claims[s.managed.machine.Current().Number]
	if c == nil || c.waiting || public != "" && c.id.String() != public {
		return nil, api.Refusef(api.RefusedPreempted, "slot %v has been taken away", id)
	}
	return c, nil
}

// Run runs a task in a slot under the claim that has it. The machine may refuse.
func (t *Table) Run(id slot.ID, public, task string, j slot.Job) ([]*Slot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, err := t.current(id, public)
	if err != nil {
		return nil, err
	}
	m := c.on
	c.starting, c.promised = false, nil
	if m.task != "" {
		return nil, api.Refusef(api.RefusedBusy, "slot %v runs job %s", id, m.task)
	}
	m.task, m.job, m.under = task, j, c.number
	r := m.handle(slot.Activate{Claim: c.number, Job: j})
	if !r.accepted {
		m.task, m.job, m.under = "", nil, 0
		if r.refused == nil {
			r.refused = api.Refusef(api.RefusedState, "slot %v does not take it", id)
		}
		m.tidy()
		return nil, r.refused
	}
	c.last = task
	s := m.slot
	s.activity, s.job = Busy, task
	t.busy++
	t.stir()
	return []*Slot{s}, nil
}

// Vacate makes jobs and claims leave slots, all slots if none is named, and returns the
// number of slots that were in use.
func (t *Table) Vacate(ids []slot.ID, fast bool, why slot.Reason) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*Slot
	for _, id := range ids {
		s := t.at(id)
		if s == nil {
			return 0, api.Errorf(api.CodeNotFound, "there is no slot %v", id)
		}
		if s.isParent() {
			list = append(list, s.of.all()...)
			continue
		}
		list = append(list, s)
	}
	if len(ids) == 0 {
		for _, q := range t.order {
			list = append(list, q.all()...)
		}
	}
	for _, s := range list {
		if s.isFree() {
			continue
		}
		m := s.manage()
		m.handle(slot.Vacate{Fast: fast, Reason: why})
		m.tidy()
		n++
	}
	return n, nil
}

// Drain takes all slots out of service, or with nil puts them back.
func (t *Table) Drain(d *slot.Drain) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain = d
	if d != nil {
		t.remanage()
	}
	for _, q := range t.order {
		for _, s := range q.all() {
			m := s.managed
			if m == nil {
				continue
			}
			if d != nil {
				m.handle(*d)
				m.tidy()
			} else {
				m.handle(slot.Undrain{})
				m.handle(slot.Evaluate{})
				m.tidy()
			}
		}
	}
	t.drained()
}

// drained tells the slots that all of them are drained, once they are.
func (t *Table) drained() {
	if t.drain == nil || len(t.managed) == 0 {
		return
	}
	machines := make([]*slot.Machine, 0, len(t.managed))
	for _, m := range t.managed {
		machines = append(machines, m.machine)
	}
	// Output that is on its way needs the host; what waits for somebody to look does not
	// hold anybody up.
	if t.out.any {
		return
	}
	if slot.AllAreDrained(machines) {
		for _, m := range t.managed {
			m.handle(slot.AllDrained{})
		}
	}
}

// Offer decides whether a slot accepts fetched work, which then has a claim on it. Keep
// follows.
func (t *Table) Offer(id slot.ID, ad *classad.Ad) (Granted, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.at(id)
	if s == nil {
		return Granted{}, api.Refusef(api.RefusedState, "there is no slot %v", id)
	}
	if s.isParent() {
		return s.of.offerCarved(ad)
	}
	m := s.manage()
	defer m.tidy()
	m.handle(slot.FetchBegan{})
	r := m.handle(slot.FetchEnded{Job: slot.JobOf(ad)})
	if !r.accepted && !r.held {
		return Granted{}, r.refused
	}
	if c := m.claims[r.number]; c != nil { // the same claim as before
		c.ad = ad
		return Granted{ID: c.id, Slot: id, Name: t.name(id), Ad: m.ad(), Again: c.stored}, nil
	}
	return m.grantOffer(&r, ad), nil
}

// grantOffer makes the claim of fetched work that the machine of a slot has accepted.
func (m *managed) grantOffer(r *reply, ad *classad.Ad) Granted {
	g := m.grant(r.number, &Request{Holder: slot.FetchHolder, Ad: ad}, r.held)
	m.claims[r.number].offered = true
	return g
}

// Promise notes the job that is to be started in a slot as soon as the claim of its fetched
// work has the slot, and reports whether it has the slot now.
func (t *Table) Promise(id slot.ID, j *job.Job) (now bool, public string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.at(id)
	if s == nil || s.managed == nil {
		return false, "", api.Refusef(api.RefusedPreempted, "slot %v has been taken away", id)
	}
	switch c := s.managed.fetched(); {
	case c == nil || c.told:
		return false, "", api.Refusef(api.RefusedPreempted, "slot %v has been taken away", id)
	case c.waiting:
		c.promised = j
		return false, c.id.String(), nil
	default:
		return true, c.id.String(), nil
	}
}

// fetched returns the claim of fetched work that waits for a slot, or else the one that
// has it.
func (m *managed) fetched() (found *claim) {
	for _, c := range m.claims {
		if c.offered && (found == nil || c.waiting) {
			found = c
		}
	}
	return found
}

// Withdraw gives back the claim of fetched work with a public id, for a reason that may be
// a hold. It reports whether the claim existed and its source had not been told of its end.
func (t *Table) Withdraw(public string, why slot.Hold) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byPublic(public)
	if c == nil || !c.offered {
		return false
	}
	m, n, there := c.on, c.number, !c.told
	c.why = why.Text
	if why.Code != 0 {
		c.hold = &why
	}
	switch {
	case m.task != "" && m.under == n:
		m.handle(slot.Release{Claim: n})
	default:
		m.handle(slot.NoWork{Claim: n})
	}
	m.tidy()
	return there
}

// Fetched returns the slots of the claims of fetched work by public id, except slots that
// are gone.
func (t *Table) Fetched() map[string]slot.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	where := map[string]slot.ID{}
	for _, m := range t.managed {
		for _, c := range m.claims {
			if id := m.slot.id(); c.offered && !id.IsZero() {
				where[c.id.String()] = id
			}
		}
	}
	return where
}

// List returns all slots, and a channel that is closed when they change.
func (t *Table) List() (ids []slot.ID, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.order {
		for _, s := range q.all() {
			ids = append(ids, s.id())
		}
	}
	return ids, t.listed
}

// Changed returns a channel that is closed at the next change of a slot.
func (t *Table) Changed(id slot.ID) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.at(id)
	if s == nil || s.managed == nil {
		return t.listed
	}
	return s.managed.changed
}

// Snapshot returns the view of a slot, with its ads if they are wanted; false: the slot
// does not exist.
func (t *Table) Snapshot(id slot.ID, ads bool) (View, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.at(id)
	if s == nil {
		return View{}, false
	}
	return s.view(ads), true
}

// Views returns the views of all slots, by number.
func (t *Table) Views(ads bool) []View {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []View
	for _, q := range t.order {
		for _, s := range q.all() {
			list = append(list, s.view(ads))
		}
	}
	return list
}

// Of returns the view of the slot in which a task runs, as 12.1, with its ads if they are
// wanted; false: it runs in none.
func (t *Table) Of(task string, ads bool) (View, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.order {
		for _, s := range q.all() {
			if s.job == task {
				return s.view(ads), true
			}
		}
	}
	return View{}, false
}

// Touch wakes up everybody who waits for a change of a slot.
func (t *Table) Touch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.managed {
		m.touch()
	}
}

func (s *Slot) view(ads bool) View {
	t := s.of.table
	id := s.id()
	v := View{Slot: id, Name: t.name(id), Queue: s.Queue, Task: s.job}
	v.Type, v.Has, _, _ = s.parts()
	closed := t.o.Closed(s.Queue) != ""
	m := s.managed
	if m == nil {
		v.State, v.Activity, v.Holder, v.Closed = slot.Claimed.String(), s.activity.String(), s.Holder, closed
		if ads {
			v.Ad = t.o.Ad(&Info{Slot: id, Type: Static, Queue: s.Queue, Now: t.o.Now(), Policy: t.policy, Holder: s.Holder, Task: s.job, Leaving: s.leaving(), All: t.neighbours})
		}
		return v
	}
	p := m.machine.Place()
	v.State, v.Activity, v.Since, v.Ending = p.State.String(), p.Activity.String(), m.machine.EnteredActivity(), m.ending
	cur := m.machine.Current()
	switch c := m.claims[cur.Number]; {
	case c != nil && !c.waiting:
		v.Holder, v.ID, v.Made, v.Promised = c.holder, c.id, c.made, c.promised != nil
		if c.ends > 0 {
			v.Lease, v.Left = c.lease, max(c.ends-t.o.Uptime(), 0)
		}
		if c.silent {
			v.Left = cur.LeaseEnd.Sub(t.o.Now())
		}
	case m.task != "":
		v.Holder = t.holder
	}
	v.Full = m.isFull()
	for _, c := range m.claims {
		v.Promised = v.Promised || c.offered && c.waiting
	}
	v.Closed = closed || t.drain != nil || v.Type == Partitionable && (v.Has.Cpus == 0 || len(m.claims) > 0)
	if !ads {
		return v
	}
	v.Ad = m.ad()
	env := classad.Env{My: v.Ad, Now: t.o.Now()}
	if n, ok := env.Eval(t.policy.Expr(slot.Start)).Number(); ok && n == 0 {
		v.Closed = true
	}
	if m.job != nil && m.task != "" {
		v.Job = m.job.Ad()
	}
	return v
}
