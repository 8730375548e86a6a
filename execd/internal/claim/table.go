package claim

import (
	"log/slog"
	"slices"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/internal/proc"
)

// name returns the name of a slot in its ad.
func (t *Table) name(id slot.ID) string { return id.Name() + "@" + t.o.Host }

// Request asks for a slot. What it grants is on disk after Keep, and must not be
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
		c := t.at(r.Slot)
		if c == nil {
			return Granted{}, api.Errorf(api.CodeNotFound, "there is no slot %v", r.Slot)
		}
		return t.try(c, &r, j)
	}
	return t.search(&r, j)
}

// maxSearch is how many steps of evaluation it may cost to find a slot, with an ad
// that a user has written, however many slots there are.
const maxSearch = 250_000

// search asks all slots, the free ones first. Refusals that need no look at the ad come
// first, and a slot that would not have the job is given no event.
func (t *Table) search(r *Request, j slot.Job) (Granted, error) {
	refused := error(api.Refusef(api.RefusedState, "there is no slot"))
	steps := maxSearch
	for _, free := range []bool{true, false} {
		for _, s := range t.order {
			for _, c := range s.claims {
				if c.isFree() != free {
					continue
				}
				before := steps
				err := t.suits(c, r, j, &steps)
				if err == nil {
					var g Granted
					if g, err = t.try(c, r, j); err == nil {
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

// suits says why a slot would not be given to somebody, as far as that is known without
// an event.
func (t *Table) suits(c *Claim, r *Request, j slot.Job, steps *int) error {
	if err := t.barred(c, r); err != nil {
		return err
	}
	m := t.manage(c)
	defer t.tidy(m)
	s := m.machine.State()
	if s != slot.Owner && s != slot.Unclaimed && s != slot.Claimed {
		return api.Refusef(api.RefusedState, "slot %v is %v", c.id(), m.machine.Place())
	}
	if why := m.machine.Broken(); why != "" {
		return api.Refusef(api.RefusedBroken, "slot %v is broken: %s", c.id(), why)
	}
	ok, rank, text := m.machine.Suits(t.o.Now(), j, steps)
	switch {
	case !ok:
		return api.Refusef(api.RefusedRequirements, "%s", text)
	case s == slot.Claimed && !c.isParent(): // who has claimed what is left of it may carve
		return m.yieldsTo(r, rank)
	}
	return nil
}

// barred says why a request is refused before the slot is asked.
func (t *Table) barred(c *Claim, r *Request) error {
	if why := t.o.Closed(c.Queue); why != "" {
		return api.Refusef(api.RefusedState, "queue %s is %s", c.Queue, why)
	}
	if !c.isFree() && r.NoWait && !c.isParent() {
		return api.Refusef(api.RefusedTryAgain, "slot %v is in use", c.id())
	}
	return nil
}

// try asks one slot.
func (t *Table) try(c *Claim, r *Request, j slot.Job) (Granted, error) {
	if err := t.barred(c, r); err != nil {
		return Granted{}, err
	}
	if c.isParent() {
		return t.tryCarve(c.of, r, j)
	}
	m := t.manage(c)
	defer t.tidy(m)
	if m.machine.State() == slot.Claimed {
		env := classad.Env{My: t.ad(m), Target: j.Ad(), Now: t.o.Now()}
		if err := m.yieldsTo(r, env.Eval(t.policy.Expr(slot.Rank)).Rank()); err != nil {
			return Granted{}, err
		}
	}
	n := m.machine.Offer()
	answer := t.happen(m, slot.Request{Claim: n, Holder: r.Holder, Job: j, Lease: r.Lease})
	if !answer.accepted && !answer.held {
		return Granted{}, answer.refused
	}
	return t.grant(m, n, r, answer.held), nil
}

// yieldsTo refuses a request of the same rank as the claim on a slot, unless its
// priority is greater. The machine itself knows what ranks higher.
func (m *managed) yieldsTo(r *Request, rank float64) error {
	over, priority := m.machine.Current(), 0
	if w := m.machine.Preempting(); w.Waiting {
		over = w
	}
	if g := m.grants[over.Number]; g != nil {
		priority = g.priority
	}
	if rank > over.Rank || rank == over.Rank && r.Priority > priority {
		return nil
	}
	return api.Refusef(api.RefusedRank, "slot %v is claimed by who ranks as high", m.claim.id())
}

// grant makes a claim of what a machine has granted.
func (t *Table) grant(m *managed, n slot.Number, r *Request, waiting bool) Granted {
	t.seq++
	g := &grant{
		slot: m, number: n, id: newID(t.o.Host, t.o.Boot.Unix(), t.seq), holder: r.Holder, by: r.By,
		priority: r.Priority, lease: r.Lease, ad: r.Ad, made: t.o.Now(), waiting: waiting,
	}
	m.grants[n] = g
	id := m.claim.id()
	t.say(slog.LevelInfo, "claim %v: made: slot=%v holder=%s waits=%t", g.id, id, g.holder, waiting)
	return Granted{ID: g.id, Slot: id, Name: t.name(id), Lease: r.Lease, Waiting: waiting, Ad: t.ad(m)}
}

// Keep writes a claim to disk, or writes it again when it is for other work. It blocks, and
// no lock may be held. A claim whose first write fails is released. An error of a later one
// changes nothing but what RANK sees after a restart.
func (t *Table) Keep(id ID) error {
	t.mu.Lock()
	g := t.byPublic(id.String())
	store := t.o.Store
	if g == nil || store == nil {
		t.mu.Unlock()
		return nil
	}
	r, again := g.record(t.o.Now()), g.stored
	t.mu.Unlock()
	err := store.put(id, r)
	t.mu.Lock()
	defer t.mu.Unlock()
	g.stored = true // after an error it may be there all the same, and not be durable
	switch {
	case g.over: // meanwhile
		t.effects = append(t.effects, Effect{Do: Forget, id: id})
	case err != nil && !again: // nobody is to find it
		t.happen(g.slot, slot.Release{Claim: g.number})
		t.tidy(g.slot)
	}
	return err
}

// record returns what is written of a claim.
func (g *grant) record(now time.Time) *record {
	r := record{
		Queue: g.slot.claim.Queue, Place: g.slot.claim.Slot, Kind: requested, Holder: g.holder, UID: g.by.UID, Since: g.made, SinceUp: proc.Uptime() - now.Sub(g.made),
		Lease: int(g.lease / time.Second), Priority: g.priority, Waiting: g.waiting,
		Partitionable: g.slot.claim.isParent(), Dynamic: g.slot.claim.Dynamic, Has: g.slot.claim.has,
	}
	if g.offered {
		r.Kind = offered
	}
	if g.ad != nil {
		r.Ad = g.ad.OldString()
	}
	return &r
}

// File does what a Forget or a Rewrite says with the file of a claim. It blocks.
func (t *Table) File(e Effect) error {
	if e.Do == Rewrite {
		return t.Keep(e.id)
	}
	t.mu.Lock()
	store := t.o.Store
	t.mu.Unlock()
	if store == nil {
		return nil
	}
	return store.remove(e.id)
}

// find returns a claim by its whole id, for who may use it.
func (t *Table) find(id ID, by By) (*grant, error) {
	g := t.byPublic(id.String())
	if g == nil || !g.id.Equal(id) || g.offered || by.UID != g.by.UID && !by.Manager {
		return nil, unknown(id)
	}
	return g, nil
}

// state returns what has become of a claim.
func (g *grant) state(now time.Time) State {
	m := g.slot
	p := m.machine.Place()
	s := State{State: p.State.String(), Activity: p.Activity.String(), Waiting: g.waiting, Task: g.last}
	cur := m.machine.Current()
	if cur.Number == g.number {
		if m.task != "" {
			s.Task = m.task
		}
		if !cur.LeaseEnd.IsZero() {
			s.Lease = cur.LeaseEnd.Sub(now)
		}
	}
	return s
}

// Waiting returns a function that says whether a claim still waits for its slot,
// and a channel that is closed when to ask again; or why it waits in vain.
func (t *Table) Waiting(id ID, by By) (func() (bool, <-chan struct{}, error), error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, err := t.find(id, by)
	if err != nil {
		return nil, err
	}
	return func() (bool, <-chan struct{}, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		switch {
		case g.refused != nil:
			return false, nil, g.refused
		case g.over:
			return false, nil, unknown(id)
		}
		return g.waiting, g.slot.changed, nil
	}, nil
}

// Order gives the slot of a claim an event that is about it.
func (t *Table) Order(id ID, by By, event func(slot.Number) slot.Event) (State, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, err := t.find(id, by)
	if err != nil {
		return State{}, err
	}
	e := event(g.number)
	// The claim on what others are carved out of is never longer than its first lease.
	if _, renews := e.(slot.Renew); !renews || !g.slot.claim.isParent() {
		t.happen(g.slot, e)
	}
	s := g.state(t.o.Now())
	t.tidy(g.slot)
	return s, nil
}

// Check says whether a claim may be activated again.
func (t *Table) Check(id ID, by By) (api.Permit, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, err := t.find(id, by)
	if err != nil {
		return api.Permit{}, err
	}
	m := g.slot
	again := !g.waiting && m.machine.Current().Number == g.number && m.machine.MayActivateAgain(t.o.Now())
	return api.Permit{Start: again && !m.machine.Preempting().Waiting}, nil
}

// maxPermits is how many may wait for the end of one job. One that goes away without
// the answer is kept until then.
const maxPermits = 64

// DeactivateClaim ends the job of a claim. The answer comes by the channel, which has
// room for it.
func (t *Table) DeactivateClaim(id ID, by By, how slot.Deactivation) (<-chan api.Permit, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, err := t.find(id, by)
	if err != nil {
		return nil, err
	}
	m := g.slot
	if len(m.permits) >= maxPermits {
		return nil, api.Refusef(api.RefusedTryAgain, "%d wait for the end of the job", len(m.permits))
	}
	c := make(chan api.Permit, 1)
	m.permits = append(m.permits, c)
	r := t.happen(m, slot.Deactivate{Claim: g.number, How: how})
	if r.refused != nil {
		// The refusal is for this caller alone. Others wait for the end of a job that runs,
		// while this claim only waits for the slot.
		m.permits = slices.DeleteFunc(m.permits, func(o chan api.Permit) bool { return o == c })
		return nil, r.refused
	}
	t.tidy(m)
	return c, nil
}

// Starting begins an activation of a job that has been looked at before. Run, or
// Unstarted, follows.
func (t *Table) Starting(id ID, by By) (on slot.ID, holder string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drain != nil {
		return on, "", api.Refusef(api.RefusedShutdown, "the host is being drained")
	}
	g, err := t.find(id, by)
	if err != nil {
		return on, "", err
	}
	m := g.slot
	switch p := m.machine.Place(); {
	case m.claim.isParent():
		return on, "", api.Refusef(api.RefusedState, "slot %v is partitionable: jobs run in what is carved out of it", m.claim.id())
	case g.waiting || p.State != slot.Claimed || m.machine.Current().Number != g.number:
		return on, "", api.Refusef(api.RefusedState, "slot %v is %v, and not the claim's", m.claim.id(), p)
	case p.Activity == slot.Cleaning || g.starting:
		return on, "", api.Refusef(api.RefusedTryAgain, "slot %v is about to change", m.claim.id())
	case p.Activity != slot.Idle || m.task != "":
		return on, "", api.Refusef(api.RefusedBusy, "slot %v runs job %s", m.claim.id(), m.task)
	}
	g.starting = true
	return m.claim.id(), g.holder, nil
}

// Unstarted ends an activation that came to nothing.
func (t *Table) Unstarted(id ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.byPublic(id.String()); g != nil {
		g.starting = false
	}
}

// Under returns the queue of a slot, and the public id of the claim that has it; if
// one is given it must be that. The ad is that of the work which was fetched.
func (t *Table) Under(on slot.ID, public string) (queue, id string, work *classad.Ad, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, err := t.current(on, public)
	if err != nil {
		return "", "", nil, err
	}
	if g.offered {
		work = g.ad
	}
	return g.slot.claim.Queue, g.id.String(), work, nil
}

// Restless reports whether a slot may become willing without anything happening, by
// START or since the disk has room again. What START refers to is the same in all slots.
func (t *Table) Restless() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.restless == nil && len(t.managed) > 0 {
		is := t.policy.StartChanges(t.ad(t.managed[0]))
		t.restless = &is
	}
	return t.round.short || t.restless != nil && *t.restless
}

// current returns the claim that has a slot; with a public id it must be that.
func (t *Table) current(id slot.ID, public string) (*grant, error) {
	c := t.at(id)
	if c == nil || c.managed == nil {
		return nil, api.Refusef(api.RefusedState, "nobody has claimed slot %v", id)
	}
	if c.isParent() {
		return nil, api.Refusef(api.RefusedState, "slot %v is partitionable: jobs run in what is carved out of it", id)
	}
	g := c.managed.grants[c.managed.machine.Current().Number]
	if g == nil || g.waiting || public != "" && g.id.String() != public {
		return nil, api.Refusef(api.RefusedPreempted, "slot %v has been taken away", id)
	}
	return g, nil
}

// Run has a slot run a task under the claim that it has: the machine may refuse.
func (t *Table) Run(id slot.ID, public, task string, j slot.Job) ([]*Claim, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, err := t.current(id, public)
	if err != nil {
		return nil, err
	}
	m := g.slot
	g.starting, g.promised = false, nil
	if m.task != "" {
		return nil, api.Refusef(api.RefusedBusy, "slot %v runs job %s", id, m.task)
	}
	m.task, m.job, m.under = task, j, g.number
	r := t.happen(m, slot.Activate{Claim: g.number, Job: j})
	if !r.accepted {
		m.task, m.job, m.under = "", nil, 0
		if r.refused == nil {
			r.refused = api.Refusef(api.RefusedState, "slot %v does not take it", id)
		}
		t.tidy(m)
		return nil, r.refused
	}
	g.last = task
	c := m.claim
	c.activity, c.job = Busy, task
	t.busy++
	return []*Claim{c}, nil
}

// Vacate takes slots from whoever has them, all when none is named, and returns
// from how many.
func (t *Table) Vacate(ids []slot.ID, fast bool, why slot.Reason) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*Claim
	for _, id := range ids {
		c := t.at(id)
		if c == nil {
			return 0, api.Errorf(api.CodeNotFound, "there is no slot %v", id)
		}
		if c.isParent() {
			list = append(list, c.of.all()...)
			continue
		}
		list = append(list, c)
	}
	if len(ids) == 0 {
		for _, s := range t.order {
			list = append(list, s.all()...)
		}
	}
	for _, c := range list {
		if c.isFree() {
			continue
		}
		m := t.manage(c)
		t.happen(m, slot.Vacate{Fast: fast, Reason: why})
		t.tidy(m)
		n++
	}
	return n, nil
}

// Drain takes all slots out of service, or with nil puts them in again.
func (t *Table) Drain(d *slot.Drain) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain = d
	if d != nil {
		t.remanage()
	}
	for _, s := range t.order {
		for _, c := range s.all() {
			m := c.managed
			if m == nil {
				continue
			}
			if d != nil {
				t.happen(m, *d)
				t.tidy(m)
			} else {
				t.happen(m, slot.Undrain{})
				t.happen(m, slot.Evaluate{})
				t.tidy(m)
			}
		}
	}
	t.drained()
}

// drained tells the slots when nothing runs any more.
func (t *Table) drained() {
	if t.drain == nil || len(t.managed) == 0 {
		return
	}
	machines := make([]*slot.Machine, 0, len(t.managed))
	for _, m := range t.managed {
		machines = append(machines, m.machine)
	}
	if slot.AllAreDrained(machines) {
		for _, m := range t.managed {
			t.happen(m, slot.AllDrained{})
		}
	}
}

// Offer decides about fetched work for a slot, and when it accepts has claimed the
// slot. Keep follows.
func (t *Table) Offer(id slot.ID, ad *classad.Ad) (Granted, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.at(id)
	if c == nil {
		return Granted{}, api.Refusef(api.RefusedState, "there is no slot %v", id)
	}
	if c.isParent() {
		return t.offerCarved(c.of, ad)
	}
	m := t.manage(c)
	defer t.tidy(m)
	t.happen(m, slot.FetchBegan{})
	r := t.happen(m, slot.FetchEnded{Job: slot.JobOf(ad)})
	if !r.accepted && !r.held {
		return Granted{}, r.refused
	}
	if g := m.grants[r.number]; g != nil { // the same claim as before
		g.ad = ad
		return Granted{ID: g.id, Slot: id, Name: t.name(id), Ad: t.ad(m), Again: g.stored}, nil
	}
	return t.grantOffer(m, &r, ad), nil
}

// grantOffer makes a claim of what a machine has accepted of fetched work.
func (t *Table) grantOffer(m *managed, r *reply, ad *classad.Ad) Granted {
	g := t.grant(m, r.number, &Request{Holder: slot.FetchHolder, Ad: ad}, r.held)
	m.grants[r.number].offered = true
	return g
}

// Promise has a job started in a slot as soon as the fetched work's claim has it,
// and reports whether that is now.
func (t *Table) Promise(id slot.ID, j *job.Job) (now bool, public string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.at(id)
	if c == nil || c.managed == nil {
		return false, "", api.Refusef(api.RefusedPreempted, "slot %v has been taken away", id)
	}
	switch g := c.managed.fetched(); {
	case g == nil || g.told:
		return false, "", api.Refusef(api.RefusedPreempted, "slot %v has been taken away", id)
	case g.waiting:
		g.promised = j
		return false, g.id.String(), nil
	default:
		return true, g.id.String(), nil
	}
}

// fetched returns the claim of fetched work that waits for a slot or, if there is none,
// the one that has it.
func (m *managed) fetched() (found *grant) {
	for _, g := range m.grants {
		if g.offered && (found == nil || g.waiting) {
			found = g
		}
	}
	return found
}

// Withdraw gives the claim of fetched work with a public id back, for a reason that may
// be a hold; a claim that has expired is lost. It reports whether there was such a
// claim, and its source had not been told of its end.
func (t *Table) Withdraw(public string, expired bool, why slot.Hold) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.byPublic(public)
	if g == nil || !g.offered {
		return false
	}
	m, n, there := g.slot, g.number, !g.told
	g.why = why.Text
	if why.Code != 0 {
		g.hold = &why
	}
	switch {
	case expired:
		t.happen(m, slot.Lost{Claim: n})
	case m.task != "" && m.under == n:
		t.happen(m, slot.Release{Claim: n})
	default:
		t.happen(m, slot.NoWork{Claim: n})
	}
	t.tidy(m)
	return there
}

// Fetched returns the slots of the claims of fetched work, by public id, but for those
// that are gone.
func (t *Table) Fetched() map[string]slot.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	where := map[string]slot.ID{}
	for _, m := range t.managed {
		for _, g := range m.grants {
			if id := m.claim.id(); g.offered && !id.IsZero() {
				where[g.id.String()] = id
			}
		}
	}
	return where
}

// List returns the slots, and a channel that is closed when there are others.
func (t *Table) List() (ids []slot.ID, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.order {
		for _, c := range s.all() {
			ids = append(ids, c.id())
		}
	}
	return ids, t.listed
}

// Changed returns a channel that is closed at the next change of a slot.
func (t *Table) Changed(id slot.ID) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.at(id)
	if c == nil || c.managed == nil {
		return t.listed
	}
	return c.managed.changed
}

// Snapshot returns what a slot is like, with its ads if they are wanted; false:
// there is no such slot.
func (t *Table) Snapshot(id slot.ID, ads bool) (View, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.at(id)
	if c == nil {
		return View{}, false
	}
	return t.view(c, ads), true
}

// Views returns what all slots are like, by number.
func (t *Table) Views(ads bool) []View {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []View
	for _, s := range t.order {
		for _, c := range s.all() {
			list = append(list, t.view(c, ads))
		}
	}
	return list
}

// Touch wakes up all who wait for a change of a slot.
func (t *Table) Touch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.managed {
		m.touch()
	}
}

func (t *Table) view(c *Claim, ads bool) View {
	id := c.id()
	v := View{Slot: id, Name: t.name(id), Queue: c.Queue, Task: c.job}
	v.Type, v.Has, _, _ = t.parts(c)
	closed := t.o.Closed(c.Queue) != ""
	m := c.managed
	if m == nil {
		v.State, v.Activity, v.Holder, v.Closed = slot.Claimed.String(), c.activity.String(), c.Holder, closed
		if ads {
			v.Ad = t.o.Ad(&Info{Slot: id, Type: Static, Queue: c.Queue, Now: t.o.Now(), Policy: t.policy, Holder: c.Holder, Task: c.job, All: t.neighbours})
		}
		return v
	}
	p := m.machine.Place()
	v.State, v.Activity, v.Since, v.Ending = p.State.String(), p.Activity.String(), m.machine.EnteredActivity(), m.ending
	cur := m.machine.Current()
	switch g := m.grants[cur.Number]; {
	case g != nil && !g.waiting:
		v.Holder, v.ID, v.Made, v.Promised = g.holder, g.id, g.made, g.promised != nil
	case m.task != "":
		v.Holder = t.holder
	}
	for _, g := range m.grants {
		v.Promised = v.Promised || g.offered && g.waiting
	}
	v.Closed = closed || t.drain != nil || v.Type == Partitionable && (v.Has.Cpus == 0 || len(m.grants) > 0)
	if !ads {
		return v
	}
	v.Ad = t.ad(m)
	env := classad.Env{My: v.Ad, Now: t.o.Now()}
	if n, ok := env.Eval(t.policy.Expr(slot.Start)).Number(); ok && n == 0 {
		v.Closed = true
	}
	if m.job != nil && m.task != "" {
		v.Job = m.job.Ad()
	}
	return v
}
