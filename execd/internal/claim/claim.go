// Package claim knows the slots of this host and who has them: every job runs
// under claims, one for each of its slots, whatever brought it.
//
// Most slots are plain: no policy, hook or claimant but execd's own queue concerns
// them. The queue has them for good, and a job costs a search for an idle one. All
// others are managed: a machine of package slot says who may have one, what may run
// there, and when that has to leave; this package gives the machines their events,
// keeps the ids of claims, in memory and in the spool, and returns what is to be done
// with jobs as effects.
//
// A queue may be one partitionable slot: then a dynamic slot is carved out of it for
// each claim, as large as the job requests, and is deleted with the claim.
//
// Package queue is in front of it, and holds its own lock over calls that change a
// managed slot: the scheduler's books must be those of the slots. Packages queue,
// stage, server and daemon import it; it imports conf, job, schedule, slot and the API.
package claim

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/slot"
)

// Activity is what a claimed slot does.
type Activity int

// The activities of a claimed slot.
const (
	Idle Activity = iota // claimed, and no job
	Busy                 // claimed, and a job runs
)

func (a Activity) String() string {
	if a == Busy {
		return "Busy"
	}
	return "Idle"
}

// Claim is the right to use one slot. That of a managed slot stands for the slot,
// whoever has it.
type Claim struct {
	Slot    int    // of the queue, from 1; 0: beyond the slots that the queue has
	Dynamic int    // M of slotN_M, which was carved out of that slot; 0: it was not
	Queue   string // the queue the slot belongs to
	Holder  string // who holds the claim: "queue" is execd's own

	of  *slots         // guarded by Table.mu; those of its queue
	has slot.Resources // of one that was carved

	activity Activity // guarded by Table.mu
	job      string   // guarded by Table.mu; what it runs
	managed  *managed // guarded by Table.mu; nil: the slot is plain
}

// Table is all slots of the host. Its methods may be called from several
// goroutines.
type Table struct {
	holder string

	// mu comes after the queue's, and before none: the Store, whose own is held over a
	// write, is called without it.
	mu         sync.Mutex
	queues     map[string]*slots  // guarded by mu
	order      []*slots           // guarded by mu; by number of their slots
	busy       int                // guarded by mu
	some       atomic.Bool        // whether any slot is managed
	o          Options            // guarded by mu
	policy     *slot.Policy       // guarded by mu
	wanted     func(slot.ID) bool // guarded by mu; whether a slot is managed; nil: none is for its own sake
	managed    []*managed         // guarded by mu; by number, those that are gone at the end
	serial     int                // guarded by mu; of the last managed slot
	seq        uint64             // guarded by mu; of the last claim
	drain      *slot.Drain        // guarded by mu; nil: the host is not drained
	effects    []Effect           // guarded by mu; to be taken
	unkept     []Kept             // guarded by mu; of slots that are not managed any more
	listed     chan struct{}      // guarded by mu; closed when there are other slots
	configured []conf.Queue       // guarded by mu; as Resize was told last
	waiting    map[string]bool    // guarded by mu; queues that become partitionable, or cease to be, when nobody uses them
	begun      bool               // guarded by mu; Manage was called
	round      round              // guarded by mu
	restless   *bool              // guarded by mu; nil: not known
}

// slots are the claims of one queue.
type slots struct {
	queue   string
	claims  []*Claim   // of a queue that is one partitionable slot that alone
	size    int        // how many slots the scheduler knows
	part    *partition // nil: each slot is for itself
	first   int        // number of the first
	idle    int        // nothing below it is idle
	managed int        // how many of claims are managed
	asked   asked
}

// NewTable returns a table in which the holder has a claim on every slot. Queues
// are in the order of their numbers.
func NewTable(queues []conf.Queue, holder string) *Table {
	t := &Table{holder: holder, queues: map[string]*slots{}, waiting: map[string]bool{}, policy: slot.NewPolicy(nil), listed: make(chan struct{})}
	t.o.complete()
	t.Resize(queues)
	return t
}

// Resize makes the table that of other queues. Claims that are busy stay until
// they are deactivated. A queue becomes partitionable, or ceases to be, when nobody
// uses it.
func (t *Table) Resize(queues []conf.Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resize(queues)
}

func (t *Table) resize(queues []conf.Queue) {
	t.configured = queues
	fresh, waiting := map[string]*slots{}, map[string]bool{}
	t.order = nil
	first := 1
	for i := range queues {
		q := &queues[i]
		s := &slots{queue: q.Name, first: first, size: q.Slots}
		old := t.queues[q.Name]
		parted := q.Partitionable
		if old != nil && (old.part != nil) != parted && old.inUse() {
			parted, waiting[q.Name] = !parted, true
		}
		if parted {
			t.keepPartitionable(s, old, q)
		} else {
			t.keepStatic(s, old, q)
		}
		first += len(s.claims)
		fresh[q.Name] = s
		t.order = append(t.order, s)
	}
	for name, old := range t.queues {
		if fresh[name] == nil {
			t.retire(old.all())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		if !t.waiting[name] {
			t.say(slog.LevelInfo, "queue %s: what PARTITIONABLE_QUEUES says of it takes effect when none of its slots is busy or claimed", name)
		}
	}
	for name := range t.waiting {
		if !waiting[name] {
			t.say(slog.LevelInfo, "queue %s: what PARTITIONABLE_QUEUES says of it is in effect", name)
		}
	}
	t.queues, t.waiting = fresh, waiting
	for _, s := range t.order {
		for _, c := range s.all() {
			c.of = s
		}
	}
	t.relist()
	t.noteManaged()
	t.forget()
	t.remanage()
	for _, m := range t.managed {
		m.touch() // it may have another number, and who waits by number another slot
	}
}

// keepStatic has a queue of slots that are each for itself, with those that it had.
func (t *Table) keepStatic(s, old *slots, q *conf.Queue) {
	switch {
	case old == nil:
	case old.part != nil:
		t.retire(old.all())
	default:
		s.claims = old.claims[:min(len(old.claims), q.Slots)]
		t.retire(old.claims[len(s.claims):])
	}
	for len(s.claims) < q.Slots {
		s.claims = append(s.claims, &Claim{Slot: len(s.claims) + 1, Queue: q.Name, Holder: t.holder, of: s})
	}
	for _, c := range s.claims {
		if c.managed != nil {
			s.managed++
		}
	}
}

// keepPartitionable has a queue of one partitionable slot, with what is carved out of it.
func (t *Table) keepPartitionable(s, old *slots, q *conf.Queue) {
	if old != nil && old.part != nil {
		s.part, s.claims, s.managed = old.part, old.claims, old.managed
		t.refresh(s)
		return
	}
	if old != nil {
		t.retire(old.claims)
	}
	s.part = &partition{
		space:  slot.NewPartitionable(t.policy, t.o.Share(q.Name, q.Slots)),
		parent: &Claim{Slot: 1, Queue: q.Name, Holder: t.holder, of: s},
	}
	s.claims = []*Claim{s.part.parent}
}

// noteManaged notes whether a slot is managed, or will be.
func (t *Table) noteManaged() { t.some.Store(len(t.managed) > 0 || len(t.waiting) > 0) }

// retire takes away slots that the configuration does not have any more.
func (t *Table) retire(claims []*Claim) {
	for _, c := range claims {
		m := c.managed
		if m != nil { // while it still has a number, by which people know it
			t.happen(m, slot.Vacate{Reason: slot.ReasonSystemPolicyVacate})
		}
		if c.Slot = 0; m != nil {
			t.ask(m, false) // who asks will not find it
		}
	}
}

// id returns the name of a claim's slot; no slot: it is gone.
func (c *Claim) id() slot.ID {
	if c.Slot == 0 {
		return slot.ID{}
	}
	return slot.ID{Number: c.of.first + c.Slot - 1, Dynamic: c.Dynamic}
}

// isParent reports whether others are carved out of a slot.
func (c *Claim) isParent() bool { return c.Slot > 0 && c.of.part != nil && c.Dynamic == 0 }

// isFree reports whether nobody has a slot who would have to leave.
func (c *Claim) isFree() bool {
	return c.activity == Idle && (c.managed == nil || len(c.managed.grants) == 0)
}

// at returns a slot by its name, nil if there is none.
func (t *Table) at(id slot.ID) *Claim {
	for _, s := range t.order {
		if id.Number < s.first || id.Number >= s.first+len(s.claims) {
			continue
		}
		if !id.IsDynamic() {
			return s.claims[id.Number-s.first]
		}
		if s.part == nil {
			return nil
		}
		for _, c := range s.part.carved {
			if c.Dynamic == id.Dynamic {
				return c
			}
		}
	}
	return nil
}

// Slots returns how many slots there are.
func (t *Table) Slots() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, s := range t.queues {
		n += s.size
	}
	return n
}

// Busy returns how many claims run a job.
func (t *Table) Busy() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy
}

// Activate finds idle claims for a grant and notes the job that they run. Managed slots
// must be willing to run j, which is not looked at for plain ones. Where a queue has
// too few, as after a restart with fewer slots, claims are made beyond its slots, so
// that every job has one. It returns nil when no slot is willing any more.
func (t *Table) Activate(job string, grant []schedule.QueueSlots, j slot.Job) []*Claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	var claims []*Claim
	for _, g := range grant {
		s := t.queues[g.Queue]
		for range g.Slots {
			c := t.next(s, job, j)
			if c == nil && s != nil && (s.managed > 0 || s.part != nil) && j != nil {
				t.deactivate(claims)
				return nil
			}
			if c == nil {
				c = &Claim{Queue: g.Queue, Holder: t.holder}
			}
			c.activity, c.job = Busy, job
			t.busy++
			claims = append(claims, c)
		}
	}
	return claims
}

// next returns the lowest idle claim that will have a job, or nil.
func (t *Table) next(s *slots, job string, j slot.Job) *Claim {
	if s == nil {
		return nil
	}
	switch {
	case s.part != nil:
		return t.nextCarved(s, job, j)
	case s.managed > 0:
		return t.nextWilling(s, job, j)
	}
	i := slices.IndexFunc(s.claims[min(s.idle, len(s.claims)):], func(c *Claim) bool { return c.activity == Idle })
	if i < 0 {
		s.idle = len(s.claims)
		return nil
	}
	s.idle += i
	return s.claims[s.idle]
}

// Ending tells that the processes of a job are gone, and only its end is still to be
// told: Deactivate follows.
func (t *Table) Ending(claims []*Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range claims {
		if m := c.managed; m != nil && m.task != "" && !m.ending {
			m.ending = true
			m.touch()
		}
	}
}

// Deactivate tells that the job of claims has ended.
func (t *Table) Deactivate(claims []*Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deactivate(claims)
}

func (t *Table) deactivate(claims []*Claim) {
	for _, c := range claims {
		if c.activity == Idle {
			continue
		}
		c.activity, c.job = Idle, ""
		t.busy--
		if c.Slot > 0 {
			c.of.idle = min(c.of.idle, c.Slot-1)
		}
		if c.managed != nil {
			t.ended(c.managed)
		}
	}
}
