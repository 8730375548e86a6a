package claim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/slot"
	"paddock/internal/proc"
	"paddock/spool"
)

// Options are for managed slots. The functions are called with locks held, and must not
// block or call back.
type Options struct {
	Host  string
	Boot  time.Time // when this execd was started
	Store *Store    // nil: claims do not outlive execd
	Log   *slog.Logger
	Now   func() time.Time // nil: time.Now
	// Uptime is for how long the host has been up, by which leases go; nil: proc.Uptime.
	Uptime func() time.Duration
	BootID string // the kernel's, of this boot
	// Ad returns the ad of a slot; nil: an empty one.
	Ad func(*Info) *classad.Ad
	// JobOf returns, for policies, a running task that was started in a slot while that was
	// plain.
	JobOf func(task string) slot.Job
	// Share returns the resources of a number of slots of a queue; nil: only Cpus are
	// limited.
	Share func(queue string, slots int) slot.Resources
	// Closed says why a queue accepts no jobs, as the end of a sentence with "it is";
	// empty: it is open.
	Closed func(queue string) string
	// Leaving returns the runs that are over and whose output is still in their sandboxes;
	// nil: there is none. When it has changed Traffic is called, or the slots are deactivated
	// after which it has.
	Leaving func() []job.Leaving
	// Most returns how much output may be on its way for each claim, and for each slot of the
	// queue, while another of its jobs runs. 0: jobs keep their slots until it has arrived.
	Most func() int
	// Room returns how many KiB of disk are free for jobs; nil: plenty.
	Room func() int64
	// Idled is called with the time that a claim had no job, when it has one; nil: it is
	// not.
	Idled func(time.Duration)
}

// plenty is how much each slot has of a resource that is not counted.
const plenty = 1 << 40

// complete sets the defaults of options that are nil.
func (o *Options) complete() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Uptime == nil {
		o.Uptime = proc.Uptime
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
	if o.Leaving == nil {
		o.Leaving = func() []job.Leaving { return nil }
	}
	if o.Most == nil {
		o.Most = func() int { return 0 }
	}
	if o.Room == nil {
		o.Room = func() int64 { return plenty }
	}
	if o.Closed == nil {
		o.Closed = func(string) string { return "" }
	}
}

// Info is what the ad of a slot is made from.
type Info struct {
	Slot    slot.ID
	Type    string // Static, Partitionable or Dynamic
	Queue   string
	Slots   int // of the host
	Now     time.Time
	Machine *slot.Machine // to be asked, not to be given events
	Policy  *slot.Policy

	// Has is what is left of Total in a partitionable slot, and what a dynamic slot has;
	// for others both are zero.
	Has, Total slot.Resources
	Children   []Child // of a partitionable slot
	// Leaving are the runs whose sandboxes take room of the slot, while their output leaves
	// them.
	Leaving []job.Leaving

	Holder, User string // of the claim; empty: none
	ID           ID
	Task         string      // that runs
	Job          slot.Job    // the same; nil: none, or not known of a plain slot
	Work         *classad.Ad // that was fetched, and is Task; nil: it came otherwise

	// All returns all slots of the host; it is valid while the ad is made.
	All func() []Neighbour
}

// Neighbour is what the ad of a slot may say about another one.
type Neighbour struct {
	Slot            slot.ID
	State, Activity string
	// Since when; zero of a plain slot.
	EnteredState, EnteredActivity time.Time

	User, Task string // who has a claim on it, and what runs; empty: nobody, nothing
}

// neighbours returns all slots for the ad of one.
func (t *Table) neighbours() []Neighbour {
	var list []Neighbour
	for _, q := range t.order {
		for _, s := range q.all() {
			n := Neighbour{Slot: s.id(), State: slot.Claimed.String(), Activity: s.activity.String(), Task: s.job}
			if m := s.managed; m != nil {
				p := m.machine.Place()
				n.State, n.Activity, n.Task = p.State.String(), p.Activity.String(), m.task
				n.EnteredState, n.EnteredActivity = m.machine.EnteredState(), m.machine.EnteredActivity()
				if c := m.claims[m.machine.Current().Number]; c != nil && !c.waiting {
					n.User = c.by.Name
				}
			}
			list = append(list, n)
		}
	}
	return list
}

// managed is what a slot has that others than its queue may claim, or that has a policy.
// The Table's mutex guards it.
type managed struct {
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

// Do is the kind of an Effect.
type Do int

// The kinds of effects.
const (
	Suspend    Do = iota // suspend the job
	Resume               // resume it
	Hold                 // put the job in error, for Text, when it ends
	Stop                 // ask the job to end
	Kill                 // kill the job
	KillFamily           // kill it and everything it has started
	Evict                // report the Eviction
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
	Text     string    // of Say: a line; of Hold: why; of what ends a job: Reason in words, or those of whoever gave the claim back
	Requeue  bool      // the job that ends is to run again
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
	for _, q := range t.order {
		if q.part != nil {
			t.refresh(q)
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

// reclaim restores a claim that an earlier execd had granted.
func (t *Table) reclaim(r *record) {
	id, _ := ParseID(r.ID) // the Store has read it
	if boot, seq, _ := id.sequence(); boot == t.o.Boot.Unix() {
		t.seq = max(t.seq, seq)
	}
	c := &claim{
		id: id, offered: r.Kind == offered, holder: r.Holder, by: By{UID: r.UID, Name: strings.TrimSuffix(r.Holder, "@"+r.Host), Host: r.Host}, priority: r.Priority,
		lease: time.Duration(r.Lease) * time.Second, made: r.Since, stored: true, waited: r.Waiting,
	}
	if age := t.o.Uptime() - r.SinceUp; r.SinceUp > 0 && age >= 0 { // else the host has been started anew
		c.made = t.o.Now().Add(-age)
	}
	q, why := t.queues[r.Queue], "is not there any more"
	if q != nil {
		why = q.unfit(r)
	}
	if why != "" {
		t.say(slog.LevelWarn, "claim %v: dropped: slot %v of queue %s %s", id, slot.ID{Number: r.Index, Dynamic: r.Dynamic}, r.Queue, why)
		t.effects = append(t.effects, Effect{Do: Forget, id: id})
		return
	}
	if r.Ad != "" {
		c.ad, _ = classad.ParseOld(r.Ad) // as it was written; without it RANK is 0
	}
	var m *managed
	switch {
	case r.Dynamic > 0:
		m = t.makeAgain(q, r.Dynamic, r.Has)
	default:
		m = t.manage(q.slots[r.Index-1])
	}
	if r.Partitionable {
		if c.lease <= 0 || c.lease > slot.PartitionableLease {
			c.lease = slot.PartitionableLease
		}
	}
	t.begin(c)
	if l, err := spool.ParseLease([]byte(r.Ends)); err == nil && l.Boot == t.o.BootID && c.lease > 0 {
		c.ends = l.End // else the host has been started anew, and nothing runs under it
	}
	if r.Partitionable {
		q.part.space.Claim(t.o.Now(), c.holder, max(c.ends-t.o.Uptime(), 1))
	}
	t.restore(m, c, time.Time{}, slot.JobOf(c.ad), nil)
	t.say(slog.LevelInfo, "claim %v: found after the restart: slot=%v holder=%s", id, m.slot.id(), c.holder)
}

// unfit says why the slot of a record cannot be given back, as what follows the name of
// the slot in a sentence; empty: it can.
func (q *queue) unfit(r *record) string {
	if (q.part != nil) != (r.Partitionable || r.Dynamic > 0) || r.Index > len(q.slots) {
		return "is not there any more"
	}
	s := q.slots[r.Index-1]
	if r.Dynamic > 0 {
		i := slices.IndexFunc(q.part.carved, func(s *Slot) bool { return s.Dynamic == r.Dynamic })
		if i < 0 {
			return ""
		}
		s = q.part.carved[i]
	}
	if s.managed != nil && len(s.managed.claims) > 0 {
		return "has another claim, for which it waited"
	}
	return ""
}

// restore makes the machine of a slot that is claimed already: by a claim, or by the
// queue if that is nil. A job has run there since begun, unless that is zero, and may be
// ending.
func (t *Table) restore(m *managed, c *claim, begun time.Time, j slot.Job, ending *slot.Ending) {
	now := t.o.Now()
	saved := slot.Saved{Kind: slot.Queue, Holder: t.holder, Since: now, Begun: begun, Ending: ending}
	if !begun.IsZero() {
		saved.Since, saved.Activations = begun, 1
	}
	m.claims = map[slot.Number]*claim{}
	if c != nil {
		saved.Holder, saved.Since, saved.Lease = c.holder, c.made, c.lease
		if c.offered {
			saved.Kind = slot.Fetch
		}
		saved.Held = !t.adopted
		if c.ends > 0 {
			saved.LeaseEnd = now.Add(c.ends - t.o.Uptime())
		}
	}
	m.machine = slot.New(t.config(m, &saved, j), now)
	m.under = 0
	n := m.machine.Current().Number
	if c != nil {
		c.on, c.number = m, n
		m.claims[n] = c
	}
	if !begun.IsZero() {
		m.under, m.job = n, j
	}
	t.happen(m, slot.Evaluate{})
}

// config returns the configuration of the machine of a slot.
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

// info returns what the ad of a slot is made from.
func (t *Table) info(m *managed) *Info {
	in := &Info{
		Slot: m.slot.id(), Queue: m.slot.Queue, Now: t.o.Now(), Machine: m.machine, Policy: t.policy, Task: m.task, Job: m.job,
		Leaving: t.leaving(m.slot), All: t.neighbours,
	}
	in.Type, in.Has, in.Total, in.Children = t.parts(m.slot)
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
func (t *Table) manage(s *Slot) *managed {
	if s.managed != nil {
		return s.managed
	}
	t.serial++
	m := &managed{slot: s, serial: t.serial, changed: make(chan struct{}), claims: map[slot.Number]*claim{}}
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
		t.happen(m, slot.Evaluate{})
	}
	t.traffic() // more of it may be allowed
}

// Reconsider evaluates the policies of the slots of a task.
func (t *Table) Reconsider(task string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range slices.Clone(t.managed) {
		if m.task == task {
			t.happen(m, slot.Evaluate{})
			t.tidy(m)
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
			if s.managed == nil && t.isWanted(s) {
				t.manage(s)
			}
		}
	}
	for _, m := range slices.Clone(t.managed) {
		t.tidy(m)
	}
}

// isWanted reports whether a slot has to be managed though nobody uses it.
func (t *Table) isWanted(s *Slot) bool {
	id := s.id()
	return !id.IsZero() && (!t.policy.Plain() || s.isParent() || t.wanted != nil && t.wanted(id) || t.drain != nil || t.crowd(s, nil) != nil)
}

// tidy makes a slot plain again that need no longer be managed. If it is dynamic and its
// machine says that it is deleted, its resources are given back.
func (t *Table) tidy(m *managed) {
	s, p := m.slot, m.part
	if s.managed != m || m.task != "" || len(m.claims) > 0 {
		return
	}
	switch state := m.machine.State(); {
	case p != nil && state != slot.Deleted:
		return
	case p == nil && (state != slot.Owner && state != slot.Unclaimed || t.isWanted(s)):
		return
	}
	if m.kept > 0 {
		t.unkept = append(t.unkept, Kept{Serial: m.serial, Queue: s.Queue})
	}
	s.managed = nil
	t.managed = slices.DeleteFunc(t.managed, func(o *managed) bool { return o == m })
	t.touch(m)
	if p != nil {
		p.space.Return(s.Dynamic)
		p.carved = slices.DeleteFunc(slices.Clone(p.carved), func(o *Slot) bool { return o == s })
		t.recount(p)
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

// say notes a line for the log, which is written without the lock, since a disk may hang.
func (t *Table) say(level slog.Level, format string, args ...any) {
	if t.o.Log.Enabled(context.Background(), level) {
		t.effects = append(t.effects, Effect{Do: Say, Level: level, Text: fmt.Sprintf(format, args...)})
	}
}

// happen gives the machine of a slot an event, and notes the effects.
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
		t.touch(m)
	}
	return r
}

// act notes the effect of one action.
func (t *Table) act(m *managed, a *slot.Action, r *reply) {
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
		t.arrived(c)
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
		t.arrived(c)
		if c != nil {
			if c.promised != nil {
				t.effects = append(t.effects, Effect{Do: Begin, Slot: id, Job: c.promised})
			}
		}
	case slot.Broken:
		if c != nil {
			t.evict(m, c, a.Reason)
		}
	case slot.Dropped:
		if c != nil {
			t.dropped(m, c, a.Reason)
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
func (t *Table) arrived(c *claim) {
	if c != nil && c.waiting {
		c.waiting = false
		t.begin(c)
		t.effects = append(t.effects, Effect{Do: Rewrite, id: c.id})
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
func (t *Table) evict(m *managed, c *claim, why slot.Reason) {
	if c.told {
		return
	}
	c.told = true
	e := Eviction{Slot: m.slot.id(), Holder: c.holder, Reason: c.reason(why), Code: int(why), Ad: t.ad(m), ID: c.id, Work: c.ad}
	if c.hold != nil {
		e.Reason, e.Code, e.Subcode = c.hold.Text, c.hold.Code, c.hold.Subcode
	}
	switch {
	case c.promised != nil:
		e.Job = c.promised.Number
	case m.task != "" && m.under == c.number: // not the job for which it waits
		_, _ = fmt.Sscanf(m.task, "%d", &e.Job)
	}
	t.effects = append(t.effects, Effect{Do: Evict, Slot: e.Slot, Eviction: e})
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
func (t *Table) dropped(m *managed, c *claim, why slot.Reason) {
	t.evict(m, c, why)
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
func (t *Table) ended(m *managed) {
	n := m.under
	if c := m.claims[n]; c != nil {
		c.last = m.task
	}
	m.task, m.job, m.under, m.ending = "", nil, 0, false
	queues := m.claims[n] == nil
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

// Effects returns the effects since it was last called.
func (t *Table) Effects() []Effect {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.effects
	t.effects = nil
	return e
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
	now := t.o.Now()
	for _, m := range slices.Clone(t.managed) {
		t.expire(m)
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
		want, why := t.keeps(m)
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
func (t *Table) keeps(m *managed) (n int, why string) {
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
	if why = t.crowded(m.slot); why != "" {
		n = 1
	}
	return n, why
}

// taken says why a slot accepts no job of the queue, whichever it is; empty: it may.
func (t *Table) taken(m *managed) string {
	for _, c := range m.claims {
		return fmt.Sprintf("%s is claimed by %s", m.slot.id().Name(), c.holder)
	}
	if state := m.machine.State(); state != slot.Owner && state != slot.Unclaimed {
		return fmt.Sprintf("%s is %v", m.slot.id().Name(), m.machine.Place())
	}
	return t.crowded(m.slot)
}

// undecided says why a free slot does not accept a job; empty: it does. The ad is that of
// the slot, if the caller has made it already.
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
func (t *Table) nextWilling(q *queue, task string, j slot.Job) *Slot {
	for _, s := range q.slots {
		switch {
		case s.activity == Busy:
		case s.managed == nil:
			return s
		case j != nil && t.occupy(s.managed, task, j):
			return s
		}
	}
	return nil
}

// occupy runs a job of the queue in a slot, and reports whether the slot accepts it.
func (t *Table) occupy(m *managed, task string, j slot.Job) bool {
	if state := m.machine.State(); len(m.claims) > 0 || state != slot.Owner && state != slot.Unclaimed {
		return false
	}
	if m.part == nil && t.crowd(m.slot, nil) != nil {
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
// carved for it, and ending is how its end was being forced, nil if it was not. No slot
// can refuse.
func (t *Table) Adopt(task string, grant []schedule.QueueSlots, public string, started time.Time, j slot.Job, carved []job.Carved, ending *slot.Ending) []*Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	var slots []*Slot
	take := func(s *Slot) {
		s.activity, s.job = Busy, task
		t.busy++
		t.stir()
		slots = append(slots, s)
	}
	if public != "" {
		if c := t.byPublic(public); c != nil && c.on.task == "" {
			m := c.on
			m.task = task
			if ending != nil {
				c.hold = ending.Hold
			}
			t.restore(m, c, started, j, ending)
			take(m.slot)
			return slots
		}
	}
	for _, g := range grant {
		for range g.Slots {
			q := t.queues[g.Queue]
			if q != nil && q.part != nil {
				var record *job.Carved
				if i := slices.IndexFunc(carved, func(r job.Carved) bool { return r.Queue == g.Queue }); i >= 0 {
					record, carved = &carved[i], slices.Concat(carved[:i], carved[i+1:])
				}
				m := t.recarve(q, record, j)
				m.task = task
				t.restore(m, nil, started, j, ending)
				take(m.slot)
				continue
			}
			s := q.free()
			if s == nil {
				s = t.yield(q, 0)
			}
			if s == nil {
				s = &Slot{Queue: g.Queue, Holder: t.holder}
			}
			m := s.managed
			if m == nil && ending != nil && s.Index > 0 {
				m = t.manage(s)
			}
			if m != nil {
				m.task = task
				t.restore(m, nil, started, j, ending)
			}
			take(s)
		}
	}
	return slots
}

// free returns the lowest free slot of a queue; nil: there is none.
func (q *queue) free() *Slot {
	if q != nil {
		for _, s := range q.slots {
			if s.isFree() {
				return s
			}
		}
	}
	return nil
}

// yield takes a slot of a queue back from a claim that had only waited for it before the
// restart, since a task turns out to run there: the last of such claims is dropped.
// Dynamic is the second number of a slot that was carved. It returns nil if there is no
// such slot.
func (t *Table) yield(q *queue, dynamic int) *Slot {
	var last *claim
	if q == nil {
		return nil
	}
	for _, s := range q.all() {
		if s.Dynamic != dynamic || s.managed == nil || s.managed.task != "" {
			continue
		}
		for _, c := range s.managed.claims {
			if c.waited && (last == nil || c.made.After(last.made)) {
				last = c
			}
		}
	}
	if last == nil {
		return nil
	}
	last.told = true // fetched work is offered anew, and no source is told otherwise
	t.dropped(last.on, last, slot.ReasonPreempted)
	return last.on.slot
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
