package claim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/slot"
	"paddock/internal/proc"
)

// Options are what managed slots need. The functions are called with locks held,
// and must not block or call back.
type Options struct {
	Host  string
	Boot  time.Time // when this execd was started
	Store *Store    // nil: claims do not outlive execd
	Log   *slog.Logger
	Now   func() time.Time // nil: time.Now
	// Ad returns the ad of a slot; nil: an empty one.
	Ad func(*Info) *classad.Ad
	// JobOf returns what slots see of a task that runs, which was started on a slot
	// when it was plain.
	JobOf func(task string) slot.Job
	// Share returns what so many slots of a queue have together; nil: nothing but Cpus
	// is scarce.
	Share func(queue string, slots int) slot.Resources
	// Closed says why a queue takes nothing, as the end of a sentence with "it is";
	// empty: it is open.
	Closed func(queue string) string
	// Idled is told how long a claim had nothing to run, when it has something;
	// nil: nobody wants to know. It must not call the table.
	Idled func(time.Duration)
}

// plenty is what each slot has of what nobody counts.
const plenty = 1 << 40

// complete fills in what was left out.
func (o *Options) complete() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Ad == nil {
		o.Ad = func(*Info) *classad.Ad { return classad.New() }
	}
	if o.Share == nil {
		o.Share = func(_ string, slots int) slot.Resources {
			return slot.Resources{Cpus: int64(slots), Memory: plenty, Disk: plenty}
		}
	}
	if o.Closed == nil {
		o.Closed = func(string) string { return "" }
	}
}

// Info is what the ad of a slot is made of.
type Info struct {
	Slot    slot.ID
	Type    string // Static, Partitionable or Dynamic
	Queue   string
	Slots   int // of the host
	Now     time.Time
	Machine *slot.Machine // to be asked, not to be given events
	Policy  *slot.Policy

	// Has is what is left of a partitionable slot, of Total, and what a dynamic one
	// has; of others they are zero.
	Has, Total slot.Resources
	Children   []Child // of a partitionable slot

	Holder, User string // of the claim; empty: none
	ID           ID
	Task         string      // that runs
	Job          slot.Job    // the same; nil: none, or not known of a plain slot
	Work         *classad.Ad // that was fetched, and is Task; nil: it came otherwise

	// All returns all slots of the host; it is valid while the ad is made.
	All func() []Neighbour
}

// Neighbour is what the ads of all slots may say of one.
type Neighbour struct {
	Slot            slot.ID
	State, Activity string
	// Since when; zero of a plain slot.
	EnteredState, EnteredActivity time.Time

	User, Task string // who has it, and what runs; empty: nobody, nothing
}

// neighbours returns what the slots are like.
func (t *Table) neighbours() []Neighbour {
	var list []Neighbour
	for _, s := range t.order {
		for _, c := range s.all() {
			n := Neighbour{Slot: c.id(), State: slot.Claimed.String(), Activity: c.activity.String(), Task: c.job}
			if m := c.managed; m != nil {
				p := m.machine.Place()
				n.State, n.Activity, n.Task = p.State.String(), p.Activity.String(), m.task
				n.EnteredState, n.EnteredActivity = m.machine.EnteredState(), m.machine.EnteredActivity()
				if g := m.grants[m.machine.Current().Number]; g != nil && !g.waiting {
					n.User = g.by.Name
				}
			}
			list = append(list, n)
		}
	}
	return list
}

// managed is a slot of which others than the queue may have something to say. The
// Table's mutex guards it.
type managed struct {
	claim   *Claim
	serial  int // among all that were ever managed
	machine *slot.Machine
	grants  map[slot.Number]*grant // of those who are not the queue
	under   slot.Number            // the claim that the task runs under
	task    string                 // that runs; empty: none
	job     slot.Job               // the same
	kept    int                    // so many slots stand in the scheduler's books as another's
	part    *partition             // that it was carved out of; nil: it was not
	asking  bool                   // work is being looked for: the answer must not find another slot of the name
	before  *classad.Ad            // of what it is being carved out of; nil: it has its own
	changed chan struct{}          // closed at the next change
	permits []chan api.Permit      // of those who wait for the end of the job
	ending  bool                   // the processes of the task are gone
	looked  looked
}

// grant is a claim of somebody who is not the queue.
type grant struct {
	slot     *managed
	number   slot.Number
	id       ID
	offered  bool // by Offer, for work that is there and whose ad it has; else by Request
	holder   string
	by       By
	priority int
	lease    time.Duration
	ad       *classad.Ad
	made     time.Time

	waiting  bool       // for the slot
	waited   bool       // an earlier execd has ended while it did
	starting bool       // a job is about to be started under it
	promised *job.Job   // that is to be started when the slot is its own
	last     string     // the last task
	stored   bool       // there is a file of it
	told     bool       // its source is told that it is over
	over     bool       // nothing is left of it
	why      string     // fetched work has given it back, in words; empty: it has not
	hold     *slot.Hold // what runs under it is put on hold; nil: it is not
	refused  error      // why it was taken from one who waited
}

// Do is what is to be done, of an Effect.
type Do int

// What is to be done.
const (
	Suspend    Do = iota // stop the job
	Resume               // let it go on
	Hold                 // what ends the job now has it wait in error, for Text
	Stop                 // ask the job to end
	Kill                 // kill the job
	KillFamily           // and everything it has started
	Evict                // tell of Eviction
	Begin                // start Job under the claim of Slot
	Forget               // remove the file of the claim
	Rewrite              // write it again
	Say                  // write Text to the log, at Level
)

// Effect is something to be done outside of the locks, in this order.
type Effect struct {
	Do       Do
	Slot     slot.ID
	Task     string
	Reason   slot.Reason
	Text     string    // of Say: a line; of Hold: why; of what ends a job: Reason in words, or what who has given the claim back says
	Requeue  bool      // what ends is to run again
	Until    time.Time // of Stop: when the job is killed
	Subcode  int       // of Hold
	Level    slog.Level
	Eviction Eviction
	Job      *job.Job

	id ID
}

// Manage begins to manage slots: it is called once, before anything runs. It reads
// the claims that an earlier execd has left.
func (t *Table) Manage(o Options) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	o.complete()
	t.o, t.begun = o, true
	for _, s := range t.order {
		if s.part != nil {
			t.refresh(s)
		}
	}
	t.remanage()
	if o.Store == nil {
		return nil
	}
	records, err := o.Store.load(o.Log)
	if err != nil {
		return err
	}
	for i := range records {
		t.reclaim(&records[i])
	}
	return nil
}

// reclaim gives a slot back to who has claimed it of an earlier execd.
func (t *Table) reclaim(r *record) {
	id, _ := ParseID(r.ID) // the Store has read it
	if boot, seq, _ := id.sequence(); boot == t.o.Boot.Unix() {
		t.seq = max(t.seq, seq)
	}
	g := &grant{
		id: id, offered: r.Kind == offered, holder: r.Holder, by: By{UID: r.UID, Name: r.Holder}, priority: r.Priority,
		lease: time.Duration(r.Lease) * time.Second, made: r.Since, stored: true, waited: r.Waiting,
	}
	if age := proc.Uptime() - r.SinceUp; r.SinceUp > 0 && age >= 0 { // else the host has been started anew
		g.made = t.o.Now().Add(-age)
	}
	s, why := t.queues[r.Queue], "is not there any more"
	if s != nil {
		why = s.unfit(r)
	}
	if why != "" {
		t.say(slog.LevelWarn, "claim %v: dropped: slot %v of queue %s %s", id, slot.ID{Number: r.Place, Dynamic: r.Dynamic}, r.Queue, why)
		t.effects = append(t.effects, Effect{Do: Forget, id: id})
		return
	}
	if r.Ad != "" {
		g.ad, _ = classad.ParseOld(r.Ad) // as it was written; without it RANK is 0
	}
	var m *managed
	switch {
	case r.Dynamic > 0:
		m = t.makeAgain(s, r.Dynamic, r.Has)
	default:
		m = t.manage(s.claims[r.Place-1])
	}
	if r.Partitionable {
		if g.lease <= 0 || g.lease > slot.PartitionableLease {
			g.lease = slot.PartitionableLease // which begins anew
		}
		s.part.space.Claim(t.o.Now(), g.holder, g.lease)
	}
	t.restore(m, g, time.Time{}, slot.JobOf(g.ad), nil)
	t.say(slog.LevelInfo, "claim %v: found after the restart: slot=%v holder=%s", id, m.claim.id(), g.holder)
}

// unfit says why the slot of a record cannot be given back, as what follows the name of
// the slot in a sentence; empty: it can.
func (s *slots) unfit(r *record) string {
	if (s.part != nil) != (r.Partitionable || r.Dynamic > 0) || r.Place > len(s.claims) {
		return "is not there any more"
	}
	c := s.claims[r.Place-1]
	if r.Dynamic > 0 {
		i := slices.IndexFunc(s.part.carved, func(c *Claim) bool { return c.Dynamic == r.Dynamic })
		if i < 0 {
			return ""
		}
		c = s.part.carved[i]
	}
	if c.managed != nil && len(c.managed.grants) > 0 {
		return "has another claim, for which it waited"
	}
	return ""
}

// restore makes the machine of a slot that is claimed already: by a grant, or by the
// queue if that is nil. A job has run there since begun, unless that is zero, and may be
// ending.
func (t *Table) restore(m *managed, g *grant, begun time.Time, j slot.Job, ending *slot.Ending) {
	now := t.o.Now()
	saved := slot.Saved{Kind: slot.Queue, Holder: t.holder, Since: now, Begun: begun, Ending: ending}
	if !begun.IsZero() {
		saved.Since, saved.Activations = begun, 1
	}
	m.grants = map[slot.Number]*grant{}
	if g != nil {
		saved.Holder, saved.Since, saved.Lease = g.holder, g.made, g.lease
		if g.offered {
			saved.Kind = slot.Fetch
		}
		if g.lease > 0 {
			saved.LeaseEnd = now.Add(g.lease)
		}
	}
	m.machine = slot.New(t.config(m, &saved, j), now)
	m.under = 0
	n := m.machine.Current().Number
	if g != nil {
		g.slot, g.number = m, n
		m.grants[n] = g
	}
	if !begun.IsZero() {
		m.under, m.job = n, j
	}
	t.happen(m, slot.Evaluate{})
}

// config is what the machine of a slot is made of.
func (t *Table) config(m *managed, saved *slot.Saved, j slot.Job) slot.Config {
	return slot.Config{
		Policy: t.policy, Slot: func() *classad.Ad { return t.ad(m) }, Random: rand.Float64, Restored: saved, Job: j, Dynamic: m.part != nil,
	}
}

// ad returns the ad of a slot.
func (t *Table) ad(m *managed) *classad.Ad {
	if m.before != nil {
		return m.before
	}
	return t.o.Ad(t.info(m))
}

// info returns what the ad of a slot is made of.
func (t *Table) info(m *managed) *Info {
	in := &Info{
		Slot: m.claim.id(), Queue: m.claim.Queue, Now: t.o.Now(), Machine: m.machine, Policy: t.policy, Task: m.task, Job: m.job,
		All: t.neighbours,
	}
	in.Type, in.Has, in.Total, in.Children = t.parts(m.claim)
	for _, s := range t.order {
		in.Slots += s.size
	}
	cur := m.machine.Current()
	if g := m.grants[cur.Number]; g != nil && !g.waiting {
		in.Holder, in.User, in.ID = g.holder, g.by.Name, g.id
		if g.offered && m.under == g.number {
			in.Work = g.ad
		}
	} else if m.task != "" {
		in.Holder = t.holder
	}
	return in
}

// manage returns what manages a slot from now on.
func (t *Table) manage(c *Claim) *managed {
	if c.managed != nil {
		return c.managed
	}
	t.serial++
	m := &managed{claim: c, serial: t.serial, changed: make(chan struct{}), grants: map[slot.Number]*grant{}}
	c.managed = m
	t.managed = append(t.managed, m)
	t.some.Store(true)
	if c.Slot > 0 {
		c.of.managed++
	}
	if c.activity == Busy {
		m.task = c.job
		var j slot.Job
		if t.o.JobOf != nil {
			j = t.o.JobOf(c.job)
		}
		if j == nil {
			j = slot.JobOf(nil)
		}
		t.restore(m, nil, t.o.Now(), j, nil)
	} else {
		m.machine = slot.New(t.config(m, nil, nil), t.o.Now())
		t.happen(m, slot.Evaluate{})
	}
	if t.drain != nil {
		t.happen(m, *t.drain)
	}
	return m
}

// Configure takes another policy, and which slots are managed whatever the policy
// says: those with a hook; nil: none.
func (t *Table) Configure(p *slot.Policy, wanted func(slot.ID) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.policy, t.wanted = p, wanted
	t.forget()
	for _, s := range t.order {
		if s.part != nil {
			s.part.space.SetPolicy(p)
		}
	}
	for _, m := range slices.Clone(t.managed) {
		m.machine.SetPolicy(p)
		t.happen(m, slot.Evaluate{})
	}
	t.remanage()
}

// remanage manages the slots that are to be managed now, and no others.
func (t *Table) remanage() {
	if !t.begun {
		return
	}
	for _, s := range t.order {
		for _, c := range s.claims {
			if c.managed == nil && t.isWanted(c) {
				t.manage(c)
			}
		}
	}
	for _, m := range slices.Clone(t.managed) {
		t.tidy(m)
	}
}

// isWanted reports whether a slot is managed for its own sake.
func (t *Table) isWanted(c *Claim) bool {
	id := c.id()
	return !id.IsZero() && (!t.policy.Plain() || c.isParent() || t.wanted != nil && t.wanted(id) || t.drain != nil)
}

// tidy makes a slot plain again that need not be managed any more. If it is dynamic and
// its machine says that it is deleted, what it had is given back.
func (t *Table) tidy(m *managed) {
	c, p := m.claim, m.part
	if c.managed != m || m.task != "" || len(m.grants) > 0 {
		return
	}
	switch s := m.machine.State(); {
	case p != nil && s != slot.Deleted:
		return
	case p == nil && (s != slot.Owner && s != slot.Unclaimed || t.isWanted(c)):
		return
	}
	if m.kept > 0 {
		t.unkept = append(t.unkept, Kept{m.serial, c.Queue, 0})
	}
	c.managed = nil
	t.managed = slices.DeleteFunc(t.managed, func(o *managed) bool { return o == m })
	m.touch()
	if p != nil {
		p.space.Return(c.Dynamic)
		p.carved = slices.DeleteFunc(slices.Clone(p.carved), func(o *Claim) bool { return o == c })
		t.recount(p)
		return
	}
	if c.Slot > 0 {
		c.of.managed--
	}
	t.noteManaged()
}

// reply is what a machine has answered.
type reply struct {
	accepted, held bool
	number         slot.Number // accepted or held back
	refused        error
	permit         *api.Permit
}

// Where the slot of a claim is when it has nothing to run, and something.
var (
	claimedIdle = slot.Place{State: slot.Claimed, Activity: slot.Idle}
	claimedBusy = slot.Place{State: slot.Claimed, Activity: slot.Busy}
)

// say has a line written to the log without the lock, since a disk may hang.
func (t *Table) say(level slog.Level, format string, args ...any) {
	if t.o.Log.Enabled(context.Background(), level) {
		t.effects = append(t.effects, Effect{Do: Say, Level: level, Text: fmt.Sprintf(format, args...)})
	}
}

// happen gives a slot an event, and takes down what is to be done.
func (t *Table) happen(m *managed, e slot.Event) (r reply) {
	was, since := m.machine.Place(), m.machine.EnteredActivity()
	actions := m.machine.Handle(t.o.Now(), e)
	if t.o.Idled != nil && was == claimedIdle && m.machine.Place() == claimedBusy {
		t.o.Idled(m.machine.EnteredActivity().Sub(since))
	}
	for i := range actions {
		t.act(m, &actions[i], &r)
	}
	if len(actions) > 0 {
		t.round.end()
		m.touch()
	}
	return r
}

// act takes down one action.
func (t *Table) act(m *managed, a *slot.Action, r *reply) {
	g := m.grants[a.Claim]
	id := m.claim.id()
	job := func(do Do) {
		if m.task == "" {
			return
		}
		text := a.Text
		if do != Hold {
			text = g.reason(a.Reason)
		}
		t.effects = append(t.effects, Effect{
			Do: do, Slot: id, Task: m.task, Reason: a.Reason, Text: text, Requeue: g == nil && a.Reason != slot.ReasonRemoved,
			Until: a.Until, Subcode: a.Subcode,
		})
	}
	switch a.Do {
	case slot.Moved:
		t.say(slog.LevelDebug, "slot %v: %v to %v: row=%d reason=%q", id, a.From, a.To, a.Row, a.Reason)
	case slot.Accepted:
		r.accepted, r.number = true, a.Claim
		t.arrived(g)
	case slot.HeldBack:
		r.held, r.number = true, a.Claim
	case slot.Refused, slot.TryAgain:
		r.refused = refusal(a)
		if g != nil && g.waiting {
			g.refused = r.refused
		}
	case slot.Deactivated:
		p := api.Permit{Start: a.Again, StillCleaning: a.StillCleaning}
		r.permit = &p
		m.permit(p)
	case slot.Spawn:
		t.arrived(g)
		if g != nil {
			if g.promised != nil {
				t.effects = append(t.effects, Effect{Do: Begin, Slot: id, Job: g.promised})
			}
		}
	case slot.Broken:
		if g != nil {
			t.evict(m, g, a.Reason)
		}
	case slot.Dropped:
		if g != nil {
			t.dropped(m, g, a.Reason)
		}
	case slot.SuspendJob:
		job(Suspend)
	case slot.ResumeJob:
		job(Resume)
	case slot.HoldJob:
		if g != nil {
			g.hold = &slot.Hold{Code: a.Code, Subcode: a.Subcode, Text: a.Text}
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
	case slot.NewClaim, slot.Ask, slot.StartBenchmarks, slot.StopBenchmarks, slot.StartFiller, slot.KillFiller, slot.DrainComplete:
	}
}

// arrived notes that a claim has its slot, if it had to wait for it.
func (t *Table) arrived(g *grant) {
	if g != nil && g.waiting {
		g.waiting = false
		t.effects = append(t.effects, Effect{Do: Rewrite, id: g.id})
	}
}

// permit answers those who wait for the end of a job.
func (m *managed) permit(p api.Permit) {
	for _, c := range m.permits {
		c <- p // it has room
	}
	m.permits = nil
}

// evict takes down that the source of a claim is told of its end, once.
func (t *Table) evict(m *managed, g *grant, why slot.Reason) {
	if g.told {
		return
	}
	g.told = true
	e := Eviction{Slot: m.claim.id(), Holder: g.holder, Reason: g.reason(why), Code: int(why), Ad: t.ad(m), ID: g.id, Work: g.ad}
	if g.hold != nil {
		e.Reason, e.Code, e.Subcode = g.hold.Text, g.hold.Code, g.hold.Subcode
	}
	switch {
	case g.promised != nil:
		e.Job = g.promised.Number
	case m.task != "" && m.under == g.number: // not what runs in front of one that waits
		_, _ = fmt.Sscanf(m.task, "%d", &e.Job)
	}
	t.effects = append(t.effects, Effect{Do: Evict, Slot: e.Slot, Eviction: e})
}

// reason says in words why a claim is over, or its job has to leave: in those of whoever
// gave it back, or else of the slot. The queue's claims are no grants.
func (g *grant) reason(why slot.Reason) string {
	if g != nil && g.why != "" {
		return g.why
	}
	return why.String()
}

// dropped forgets a claim.
func (t *Table) dropped(m *managed, g *grant, why slot.Reason) {
	t.evict(m, g, why)
	g.over = true
	delete(m.grants, g.number)
	if m.claim.isParent() {
		m.claim.of.part.space.Release(g.holder)
	}
	if g.stored {
		t.effects = append(t.effects, Effect{Do: Forget, id: g.id})
	}
	if len(m.permits) > 0 && m.task == "" {
		m.permit(api.Permit{})
	}
	t.say(slog.LevelInfo, "claim %v: over: slot=%v holder=%s reason=%q", g.id, m.claim.id(), g.holder, g.reason(why))
}

// refusal returns the error of an action that refuses.
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

// ended tells a slot that its job is gone. A claim of the queue is for one job.
func (t *Table) ended(m *managed) {
	n := m.under
	if g := m.grants[n]; g != nil {
		g.last = m.task
	}
	m.task, m.job, m.under, m.ending = "", nil, 0, false
	queues := m.grants[n] == nil
	t.happen(m, slot.Exited{Claim: n})
	if len(m.permits) > 0 {
		m.permit(api.Permit{})
	}
	if queues {
		t.happen(m, slot.Release{Claim: n})
	}
	t.tidy(m)
	t.drained()
}

// Effects takes what is to be done. Slots that came free are told by freed.
func (t *Table) Effects() []Effect {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.effects
	t.effects = nil
	return e
}

// Managed reports whether any slot is managed. It takes no lock.
func (t *Table) Managed() bool { return t.some.Load() }

// Tick evaluates the policies of all slots whose time has come, and returns when it is
// to be called again; zero: nothing depends on time.
func (t *Table) Tick() (next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round.end() // what happens, happens before
	t.reshape()
	if len(t.managed) == 0 {
		return next
	}
	now := t.o.Now()
	for _, m := range slices.Clone(t.managed) {
		if at := m.machine.Next(); !at.IsZero() && !at.After(now) {
			t.happen(m, slot.Evaluate{})
			t.tidy(m)
		}
		if at := m.machine.Next(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// Kept is a slot that has to stand in the scheduler's books as another's.
type Kept struct {
	Serial int // of the slot, from 1
	Queue  string
	Slots  int // so many of the queue's; 0: not any more
}

// Books returns the slots whose place in the scheduler's books has changed since
// it was last called.
func (t *Table) Books() (list []Kept) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, t.unkept = t.unkept, nil
	for _, m := range t.managed {
		if want := m.keeps(); want != m.kept {
			m.kept = want
			list = append(list, Kept{m.serial, m.claim.Queue, want})
		}
	}
	return list
}

// keeps returns how many slots of the queue a slot keeps from it, beside that of the
// task that runs there. A claim is a promise of a slot, also while the job that it
// displaces is leaving.
func (m *managed) keeps() int {
	switch {
	case m.part != nil && m.task != "":
		return int(m.claim.has.Cpus) - 1
	case m.part != nil:
		return int(m.claim.has.Cpus)
	case m.task == "" && len(m.grants) > 0 && !m.claim.isParent():
		return 1
	}
	return 0
}

// taken says why a slot takes no job of the queue, whatever it is; empty: it may.
func (m *managed) taken() string {
	for _, g := range m.grants {
		return fmt.Sprintf("%s is claimed by %s", m.claim.id().Name(), g.holder)
	}
	if s := m.machine.State(); s != slot.Owner && s != slot.Unclaimed {
		return fmt.Sprintf("%s is %v", m.claim.id().Name(), m.machine.Place())
	}
	return ""
}

// undecided says why a slot that is free does not take a job; empty: it does. The ad is
// the slot's, if the caller has made it already.
func (t *Table) undecided(m *managed, j slot.Job, ad *classad.Ad) string {
	if ad == nil {
		ad = t.ad(m)
	}
	d := m.machine.DecideWith(t.o.Now(), j, ad)
	if d.Reason == slot.ReasonNotWilling {
		if v, ok := t.start(ad, j.Ad()); !ok {
			return m.startIs(v)
		}
	}
	return m.refusal(&d)
}

// refusal says in words why a slot whose START is true refuses a job; empty: it takes
// it.
func (m *managed) refusal(d *slot.Decision) string {
	name := m.claim.id().Name()
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

// startIs is the refusal of a slot whose START has a value that is not true.
func (m *managed) startIs(value string) string {
	return fmt.Sprintf("START of %s is %s", m.claim.id().Name(), value)
}

// nextWilling returns the lowest idle slot of a queue that will have a job, or nil,
// and takes it if it is managed.
func (t *Table) nextWilling(s *slots, task string, j slot.Job) *Claim {
	for _, c := range s.claims {
		switch {
		case c.activity == Busy:
		case c.managed == nil:
			return c
		case j != nil && t.occupy(c.managed, task, j):
			return c
		}
	}
	return nil
}

// occupy has a slot run a job of the queue, and reports whether it does.
func (t *Table) occupy(m *managed, task string, j slot.Job) bool {
	if s := m.machine.State(); len(m.grants) > 0 || s != slot.Owner && s != slot.Unclaimed {
		return false
	}
	n := m.machine.Offer()
	if r := t.happen(m, slot.Request{Claim: n, Holder: t.holder, Job: j}); !r.accepted {
		return false
	}
	m.task, m.under, m.job = task, n, j
	if r := t.happen(m, slot.Activate{Claim: n, Job: j}); !r.accepted {
		m.task, m.under, m.job = "", 0, nil
		t.happen(m, slot.Release{Claim: n})
		return false
	}
	return true
}

// Adopt is Activate for a task that an earlier execd has started: under the claim with
// a public id, if there is one. Carved is what the record says of the slots that were
// carved for it, and ending how its end was being forced, nil if it was not. No slot
// may refuse.
func (t *Table) Adopt(task string, grant []schedule.QueueSlots, public string, started time.Time, j slot.Job, carved []job.Carved, ending *slot.Ending) []*Claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	var claims []*Claim
	take := func(c *Claim) {
		c.activity, c.job = Busy, task
		t.busy++
		claims = append(claims, c)
	}
	if public != "" {
		if g := t.byPublic(public); g != nil && g.slot.task == "" {
			m := g.slot
			m.task = task
			if ending != nil {
				g.hold = ending.Hold
			}
			t.restore(m, g, started, j, ending)
			take(m.claim)
			return claims
		}
	}
	for _, g := range grant {
		for range g.Slots {
			s := t.queues[g.Queue]
			if s != nil && s.part != nil {
				var record *job.Carved
				if i := slices.IndexFunc(carved, func(r job.Carved) bool { return r.Queue == g.Queue }); i >= 0 {
					record, carved = &carved[i], slices.Concat(carved[:i], carved[i+1:])
				}
				m := t.recarve(s, record, j)
				m.task = task
				t.restore(m, nil, started, j, ending)
				take(m.claim)
				continue
			}
			c := s.free()
			if c == nil {
				c = t.yield(s, 0)
			}
			if c == nil {
				c = &Claim{Queue: g.Queue, Holder: t.holder}
			}
			m := c.managed
			if m == nil && ending != nil && c.Slot > 0 {
				m = t.manage(c)
			}
			if m != nil {
				m.task = task
				t.restore(m, nil, started, j, ending)
			}
			take(c)
		}
	}
	return claims
}

// free returns the lowest slot of a queue that nobody has; nil: there is none.
func (s *slots) free() *Claim {
	if s != nil {
		for _, c := range s.claims {
			if c.isFree() {
				return c
			}
		}
	}
	return nil
}

// yield takes back a slot of a queue from a claim that had only waited for it before the
// restart, since a task turns out to run there: the last of such claims is dropped.
// Dynamic is the second number of a slot that was carved. It returns nil if there is
// none.
func (t *Table) yield(s *slots, dynamic int) *Claim {
	var last *grant
	if s == nil {
		return nil
	}
	for _, c := range s.all() {
		if c.Dynamic != dynamic || c.managed == nil || c.managed.task != "" {
			continue
		}
		for _, g := range c.managed.grants {
			if g.waited && (last == nil || g.made.After(last.made)) {
				last = g
			}
		}
	}
	if last == nil {
		return nil
	}
	last.told = true // fetched work is offered anew, and no source is told otherwise
	t.dropped(last.slot, last, slot.ReasonPreempted)
	return last.slot.claim
}

// byPublic returns the claim of a public id, nil if there is none.
func (t *Table) byPublic(public string) *grant {
	for _, m := range t.managed {
		for _, g := range m.grants {
			if g.id.String() == public {
				return g
			}
		}
	}
	return nil
}
