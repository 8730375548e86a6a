package claim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
)

// managed is what a slot has that others than its queue may claim, or that has a policy.
// The Table's mutex guards it.
type managed struct {
	table   *Table
	slot    *Slot
	serial  int // among all slots that were ever managed
	machine *slot.Machine
	claims  map[slot.Number]*claim // of others than the queue
	under   slot.Number            // the claim under which the task runs
	task    string                 // that runs; empty: none
	job     slot.Job               // the same
	kept    int                    // how many slots stand in the scheduler's books as another's
	why     string                 // that is said there
	part    *partition             // out of which it was carved; nil: it was not
	asking  bool                   // a hook looks for work: the answer must not find another slot of the same name
	before  *classad.Ad            // of the slot out of which it is being carved; nil: it has its own
	changed chan struct{}          // closed at the next change
	permits []chan api.Permit      // of those who wait for the end of the job
	ending  bool                   // the processes of the task are gone
	full    bool                   // somebody may wait for output that is on its way
	looked  looked
}

// claim is the claim of somebody else than the queue on a slot.
type claim struct {
	table    *Table
	on       *managed
	number   slot.Number
	id       ID
	offered  bool // made by Offer, for fetched work, whose ad it has; else by Request
	holder   string
	by       By
	priority int
	lease    time.Duration // 0: for ever
	ends     time.Duration // by the uptime of the host; 0: never, or it waits for the slot
	ad       *classad.Ad
	made     time.Time

	waiting  bool       // for the slot
	waited   bool       // an earlier execd has ended while it waited
	starting bool       // a job is about to be started under it
	silent   bool       // its holder may not know that it has it
	promised *job.Job   // that is to be started when it has the slot
	last     string     // the last task
	stored   bool       // it has a file
	told     bool       // its source has been told that it is over
	over     bool       // nothing is left of it
	why      string     // why its source has given it back; empty: it has not
	hold     *slot.Hold // of the job that runs under it; nil: it is not put on hold
	refused  error      // why a claim that waited was refused

	file sync.Mutex // held while files that have its lease are written; before Table.mu
}

// config returns the configuration of the machine of a slot.
func (m *managed) config(saved *slot.Saved, j slot.Job) slot.Config {
	return slot.Config{
		Policy: m.table.policy, Slot: m.ad, Random: rand.Float64, Restored: saved, Job: j, Dynamic: m.part != nil,
	}
}

// ad returns the ad of a slot.
func (m *managed) ad() *classad.Ad {
	if m.before != nil {
		return m.before
	}
	return m.table.o.Ad(m.info())
}

// info returns what the ad of a slot is made from.
func (m *managed) info() *Info {
	t := m.table
	in := &Info{
		Slot: m.slot.id(), Queue: m.slot.Queue, Now: t.o.Now(), Machine: m.machine, Policy: t.policy, Task: m.task, Job: m.job,
		Leaving: m.slot.leaving(), All: t.neighbours,
	}
	in.Type, in.Has, in.Total, in.Children = m.slot.parts()
	for _, q := range t.order {
		in.Slots += q.size
	}
	cur := m.machine.Current()
	if c := m.claims[cur.Number]; c != nil && !c.waiting {
		in.Holder, in.User, in.ID = c.holder, c.by.Name, c.id
		if c.offered && m.under == c.number {
			in.Work = c.ad
		}
	} else if m.task != "" {
		in.Holder = t.holder
	}
	return in
}

// manage makes a slot managed, unless it is already.
func (s *Slot) manage() *managed {
	t := s.of.table
	if s.managed != nil {
		return s.managed
	}
	t.serial++
	m := &managed{table: t, slot: s, serial: t.serial, changed: make(chan struct{}), claims: map[slot.Number]*claim{}}
	s.managed = m
	t.managed = append(t.managed, m)
	t.anyManaged.Store(true)
	if s.Index > 0 {
		s.of.managed++
	}
	if s.activity == Busy {
		m.task = s.job
		var j slot.Job
		if t.o.JobOf != nil {
			j = t.o.JobOf(s.job)
		}
		if j == nil {
			j = slot.JobOf(nil)
		}
		m.restore(nil, t.o.Now(), j, nil)
	} else {
		m.machine = slot.New(m.config(nil, nil), t.o.Now())
		m.handle(slot.Evaluate{})
	}
	if t.drain != nil {
		m.handle(*t.drain)
	}
	return m
}

// Configure sets the policy, and which slots are managed whatever the policy says: those
// with a hook; nil: none.
func (t *Table) Configure(p *slot.Policy, wanted func(slot.ID) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.policy, t.wanted = p, wanted
	t.forget()
	for _, q := range t.order {
		if q.part != nil {
			q.part.space.SetPolicy(p)
		}
	}
	for _, m := range slices.Clone(t.managed) {
		m.machine.SetPolicy(p)
		m.handle(slot.Evaluate{})
	}
	t.traffic() // more of it may be allowed
}

// Reconsider evaluates the policies of the slots of a task.
func (t *Table) Reconsider(task string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range slices.Clone(t.managed) {
		if m.task == task {
			m.handle(slot.Evaluate{})
			m.tidy()
		}
	}
}

// remanage makes the slots managed that have to be, and all others plain.
func (t *Table) remanage() {
	if !t.begun {
		return
	}
	for _, q := range t.order {
		for _, s := range q.slots {
			if s.managed == nil && s.isWanted() {
				s.manage()
			}
		}
	}
	for _, m := range slices.Clone(t.managed) {
		m.tidy()
	}
}

// isWanted reports whether a slot has to be managed though nobody uses it.
func (s *Slot) isWanted() bool {
	t := s.of.table
	id := s.id()
	return !id.IsZero() && (!t.policy.Plain() || s.isParent() || t.wanted != nil && t.wanted(id) || t.drain != nil || s.crowd(nil) != nil)
}

// tidy makes a slot plain again that need no longer be managed. If it is dynamic and its
// machine says that it is deleted, its resources are given back.
func (m *managed) tidy() {
	t := m.table
	s, p := m.slot, m.part
	if s.managed != m || m.task != "" || len(m.claims) > 0 {
		return
	}
	switch state := m.machine.State(); {
	case p != nil && state != slot.Deleted:
		return
	case p == nil && (state != slot.Owner && state != slot.Unclaimed || s.isWanted()):
		return
	}
	if m.kept > 0 {
		t.unkept = append(t.unkept, Kept{Serial: m.serial, Queue: s.Queue})
	}
	s.managed = nil
	t.managed = slices.DeleteFunc(t.managed, func(o *managed) bool { return o == m })
	m.touch()
	if p != nil {
		p.space.Return(s.Dynamic)
		p.carved = slices.DeleteFunc(slices.Clone(p.carved), func(o *Slot) bool { return o == s })
		p.recount()
		return
	}
	if s.Index > 0 {
		s.of.managed--
	}
	t.noteManaged()
}

// reply is the answer of a machine to an event.
type reply struct {
	accepted, held bool
	number         slot.Number // of the claim that was accepted or held back
	refused        error
	permit         *api.Permit
}

// The places of a slot whose claim has no job, and one.
var (
	claimedIdle = slot.Place{State: slot.Claimed, Activity: slot.Idle}
	claimedBusy = slot.Place{State: slot.Claimed, Activity: slot.Busy}
)

// handle gives the machine of a slot an event, and notes the effects.
func (m *managed) handle(e slot.Event) (r reply) {
	t := m.table
	was, since := m.machine.Place(), m.machine.EnteredActivity()
	actions := m.machine.Handle(t.o.Now(), e)
	if t.o.Idled != nil && was == claimedIdle && m.machine.Place() == claimedBusy {
		t.o.Idled(m.machine.EnteredActivity().Sub(since))
	}
	for i := range actions {
		m.act(&actions[i], &r)
	}
	if len(actions) > 0 {
		t.round.end()
		m.touch()
	}
	return r
}

// act notes the effect of one action.
func (m *managed) act(a *slot.Action, r *reply) {
	t := m.table
	c := m.claims[a.Claim]
	id := m.slot.id()
	job := func(do Do) {
		if m.task == "" {
			return
		}
		text := a.Text
		if do != Hold {
			text = c.reason(a.Reason)
		}
		t.effects = append(t.effects, Effect{
			Do: do, Slot: id, Task: m.task, Reason: a.Reason, Text: text, Requeue: c == nil && a.Reason != slot.ReasonRemoved,
			Until: a.Until, Subcode: a.Subcode,
		})
	}
	switch a.Do {
	case slot.Moved:
		t.say(slog.LevelDebug, "slot %v: %v to %v: row=%d reason=%q", id, a.From, a.To, a.Row, a.Reason)
	case slot.Accepted:
		r.accepted, r.number = true, a.Claim
		c.arrived()
	case slot.HeldBack:
		r.held, r.number = true, a.Claim
	case slot.Refused, slot.TryAgain:
		r.refused = refusal(a)
		if c != nil && c.waiting {
			c.refused = r.refused
		}
	case slot.Deactivated:
		p := api.Permit{Start: a.Again, StillCleaning: a.StillCleaning}
		r.permit = &p
		m.permit(p)
	case slot.Spawn:
		c.arrived()
		if c != nil {
			if c.promised != nil {
				t.effects = append(t.effects, Effect{Do: Begin, Slot: id, Job: c.promised})
			}
		}
	case slot.Broken:
		if c != nil {
			m.evict(c, a.Reason)
		}
	case slot.Dropped:
		if c != nil {
			m.dropped(c, a.Reason)
		}
	case slot.SuspendJob:
		job(Suspend)
	case slot.ResumeJob:
		job(Resume)
	case slot.HoldJob:
		if c != nil {
			c.hold = &slot.Hold{Code: a.Code, Subcode: a.Subcode, Text: a.Text}
		}
		job(Hold)
	case slot.StopJob:
		job(Stop)
	case slot.KillJob:
		job(Kill)
	case slot.KillFamily:
		job(KillFamily)
	case slot.Note:
		t.say(slog.LevelWarn, "slot %v: %s", id, a.Text)
	case slot.NewClaim, slot.Ask, slot.StartBenchmarks, slot.StopBenchmarks, slot.StartBackfillJob, slot.KillBackfillJob, slot.DrainComplete:
	}
}

// arrived notes that a claim that may have waited has its slot.
func (c *claim) arrived() {
	if c != nil && c.waiting {
		c.waiting = false
		c.begin()
		c.table.effects = append(c.table.effects, Effect{Do: Rewrite, id: c.id})
	}
}

// permit answers those who wait for the end of a job.
func (m *managed) permit(p api.Permit) {
	for _, c := range m.permits {
		c <- p // it has room
	}
	m.permits = nil
}

// evict notes that the source of a claim is to be told of its end, once.
func (m *managed) evict(c *claim, why slot.Reason) {
	if c.told {
		return
	}
	c.told = true
	e := Eviction{Slot: m.slot.id(), Holder: c.holder, Reason: c.reason(why), Code: int(why), Ad: m.ad(), ID: c.id, Work: c.ad}
	if c.hold != nil {
		e.Reason, e.Code, e.Subcode = c.hold.Text, c.hold.Code, c.hold.Subcode
	}
	switch {
	case c.promised != nil:
		e.Job = c.promised.Number
	case m.task != "" && m.under == c.number: // not the job for which it waits
		_, _ = fmt.Sscanf(m.task, "%d", &e.Job)
	}
	m.table.effects = append(m.table.effects, Effect{Do: Evict, Slot: e.Slot, Eviction: e})
}

// reason says in words why a claim is over, or its job has to leave: in the words of
// whoever gave it back, or else of the slot. A nil claim is that of the queue.
func (c *claim) reason(why slot.Reason) string {
	if c != nil && c.why != "" {
		return c.why
	}
	return why.String()
}

// dropped forgets a claim.
func (m *managed) dropped(c *claim, why slot.Reason) {
	t := m.table
	m.evict(c, why)
	c.over = true
	delete(m.claims, c.number)
	if m.slot.isParent() {
		m.slot.of.part.space.Release(c.holder)
	}
	if c.stored {
		t.effects = append(t.effects, Effect{Do: Forget, id: c.id})
	}
	if len(m.permits) > 0 && m.task == "" {
		m.permit(api.Permit{})
	}
	t.say(slog.LevelInfo, "claim %v: over: slot=%v holder=%s reason=%q", c.id, m.slot.id(), c.holder, c.reason(why))
}

// refusal returns the error for an action that refuses.
func refusal(a *slot.Action) error {
	why := api.Refusal(a.Reason)
	if a.Do == slot.TryAgain {
		why = api.RefusedTryAgain
	}
	text := a.Text
	if text == "" {
		text = a.Reason.String()
	}
	return api.Refusef(why, "%s", text)
}

// ended notes that the job of a slot is gone. A claim of the queue is for one job.
func (m *managed) ended() {
	n := m.under
	if c := m.claims[n]; c != nil {
		c.last = m.task
	}
	m.task, m.job, m.under, m.ending = "", nil, 0, false
	queues := m.claims[n] == nil
	m.handle(slot.Exited{Claim: n})
	if len(m.permits) > 0 {
		m.permit(api.Permit{})
	}
	if queues {
		m.handle(slot.Release{Claim: n})
	}
	m.tidy()
	m.table.drained()
}

// Managed reports whether any slot is managed. It takes no lock.
func (t *Table) Managed() bool { return t.anyManaged.Load() }

// Tick evaluates the policies of all slots that are due, and returns when it has to be
// called again; zero: nothing depends on time.
func (t *Table) Tick() (next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round.end() // remembered answers may have changed with time
	t.reshape()
	if len(t.managed) == 0 {
		return next
	}
	now, up := t.o.Now(), t.o.Uptime()
	for _, m := range slices.Clone(t.managed) {
		m.expire(up)
		if at := m.machine.Next(); !at.IsZero() && !at.After(now) {
			m.handle(slot.Evaluate{})
			m.tidy()
		}
		if at := m.machine.Next(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// Kept is a slot that stands in the scheduler's books as used by somebody else than the
// queue.
type Kept struct {
	Serial int // of the slot, from 1
	Queue  string
	Slots  int // how many of the queue; 0: it no longer does
	// Why says to those who wait what keeps it, if it is not that somebody uses it.
	Why string
}

// Books returns the slots whose place in the scheduler's books has changed since
// it was last called.
func (t *Table) Books() (list []Kept) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, t.unkept = t.unkept, nil
	for _, m := range t.managed {
		want, why := m.keeps()
		if want == m.kept && why == m.why {
			continue
		}
		m.kept, m.why = want, why
		list = append(list, Kept{m.serial, m.slot.Queue, want, why})
	}
	return list
}

// keeps returns how many slots of its queue a slot takes away from it, besides that of the
// task that runs there. A claim is a promise of a slot, even while the job that it
// preempts is leaving.
func (m *managed) keeps() (n int, why string) {
	switch {
	case m.part != nil && m.task != "":
		return int(m.slot.has.Cpus) - 1, ""
	case m.part != nil:
		return int(m.slot.has.Cpus), ""
	case m.task != "" || m.slot.isParent():
		return 0, ""
	case len(m.claims) > 0:
		return 1, ""
	}
	if why = m.slot.crowded(); why != "" {
		n = 1
	}
	return n, why
}

// taken says why a slot accepts no job of the queue, whichever it is; empty: it may.
func (m *managed) taken() string {
	for _, c := range m.claims {
		return fmt.Sprintf("%s is claimed by %s", m.slot.id().Name(), c.holder)
	}
	if state := m.machine.State(); state != slot.Owner && state != slot.Unclaimed {
		return fmt.Sprintf("%s is %v", m.slot.id().Name(), m.machine.Place())
	}
	return m.slot.crowded()
}

// undecided says why a free slot does not accept a job; empty: it does. The ad is that of
// the slot, if the caller has made it already.
func (m *managed) undecided(j slot.Job, ad *classad.Ad) string {
	if ad == nil {
		ad = m.ad()
	}
	d := m.machine.DecideWith(m.table.o.Now(), j, ad)
	if d.Reason == slot.ReasonNotWilling {
		if v, ok := m.table.start(ad, j.Ad()); !ok {
			return m.startIs(v)
		}
	}
	return m.refusal(&d)
}

// refusal says in words why a slot whose START is true refuses a job; empty: it accepts
// it.
func (m *managed) refusal(d *slot.Decision) string {
	name := m.slot.id().Name()
	switch {
	case d.Accept:
		return ""
	case d.Reason == slot.ReasonNotWilling && m.machine.State() == slot.Owner:
		return fmt.Sprintf("IS_OWNER of %s is true", name)
	}
	return fmt.Sprintf("of %s: %s", name, d.Text)
}

// start evaluates START with the ads of a slot and a job, and reports whether it is
// true; of an error, value says why it is one.
func (t *Table) start(slotAd, jobAd *classad.Ad) (value string, ok bool) {
	env := classad.Env{My: slotAd, Target: jobAd, Now: t.o.Now()}
	v := env.Eval(t.policy.Expr(slot.Start))
	return slot.Told(v), v.True()
}

// startIs says in words that a slot refuses since START has a value that is not true.
func (m *managed) startIs(value string) string {
	return fmt.Sprintf("START of %s is %s", m.slot.id().Name(), value)
}

// nextWilling returns the lowest idle slot of a queue that accepts a job, or nil. In a
// managed slot the job then runs.
func (q *queue) nextWilling(task string, j slot.Job) *Slot {
	for _, s := range q.slots {
		switch {
		case s.activity == Busy:
		case s.managed == nil:
			return s
		case j != nil && s.managed.occupy(task, j):
			return s
		}
	}
	return nil
}

// occupy runs a job of the queue in a slot, and reports whether the slot accepts it.
func (m *managed) occupy(task string, j slot.Job) bool {
	if state := m.machine.State(); len(m.claims) > 0 || state != slot.Owner && state != slot.Unclaimed {
		return false
	}
	if m.part == nil && m.slot.crowd(nil) != nil {
		return false
	}
	n := m.machine.Offer()
	if r := m.handle(slot.Request{Claim: n, Holder: m.table.holder, Job: j}); !r.accepted {
		return false
	}
	m.task, m.under, m.job = task, n, j
	if r := m.handle(slot.Activate{Claim: n, Job: j}); !r.accepted {
		m.task, m.under, m.job = "", 0, nil
		m.handle(slot.Release{Claim: n})
		return false
	}
	return true
}

// byPublic returns the claim with a public id, nil if there is none.
func (t *Table) byPublic(public string) *claim {
	for _, m := range t.managed {
		for _, c := range m.claims {
			if c.id.String() == public {
				return c
			}
		}
	}
	return nil
}
