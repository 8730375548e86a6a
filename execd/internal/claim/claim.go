// Package claim knows the slots of this host and who has a claim on them. Every job runs
// in slots, whatever brought it.
//
// Most slots are plain: no policy, hook or claimant but execd's own queue concerns
// them. They always belong to their queue, and a job costs a search for an idle one. All
// others are managed: a machine of package slot says who may have one, what may run
// there, and when that has to leave; this package gives the machines their events,
// keeps the ids of claims, in memory and in the spool, and returns what is to be done
// with jobs as effects.
//
// A queue may be one partitionable slot: then a dynamic slot is carved out of it for
// each claim, as large as the job requests, and is deleted when the claim is over.
//
// Package queue is in front of it, and holds its own lock over calls that change a
// managed slot: the scheduler's books must be those of the slots. Packages of execd that
// give work to slots import it; it imports conf, job, schedule, slot and the API.
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

// Slot is a slot of a queue: a place for one job.
type Slot struct {
	Index   int    // in the queue, from 1; 0: beyond the slots that the queue has
	Dynamic int    // M of slotN_M, which was carved out of slot N; 0: it was not carved
	Queue   string // the queue the slot belongs to
	Holder  string // who has a plain slot: "queue" is execd's own

	of  *queue         // guarded by Table.mu; its queue
	has slot.Resources // of a slot that was carved

	activity Activity // guarded by Table.mu
	job      string   // guarded by Table.mu; that it runs
	managed  *managed // guarded by Table.mu; nil: the slot is plain
}

// Table is all slots of the host. Its methods may be called from several
// goroutines.
type Table struct {
	holder string

	// mu comes after the queue's, and before those of the sandboxes waiting for their output
	// and of the job Store, which are held for a moment. Job.file, which is held over a write,
	// is not taken under it. Who calls methods of queues, slots and claims that are
	// not exported holds it, but for prolong and keep of a claim, which take it.
	mu         sync.Mutex
	queues     map[string]*queue  // guarded by mu
	order      []*queue           // guarded by mu; by number of their slots
	busy       int                // guarded by mu
	anyManaged atomic.Bool        // whether a slot is managed, or will be
	o          Options            // guarded by mu
	policy     *slot.Policy       // guarded by mu
	wanted     func(slot.ID) bool // guarded by mu; whether a slot is managed; nil: none is for its own sake
	managed    []*managed         // guarded by mu; by number, those that are gone at the end
	serial     int                // guarded by mu; of the last managed slot
	seq        uint64             // guarded by mu; of the last claim
	drain      *slot.Drain        // guarded by mu; nil: the host is not drained
	out        outlets            // guarded by mu; of the output of jobs
	effects    []Effect           // guarded by mu; to be taken
	unkept     []Kept             // guarded by mu; of slots that are not managed any more
	listed     chan struct{}      // guarded by mu; closed when there are other slots
	stirred    chan struct{}      // guarded by mu; closed at the next change of any slot, if it is awaited
	awaited    bool               // guarded by mu
	configured []conf.Queue       // guarded by mu; as Resize was told last
	waiting    map[string]bool    // guarded by mu; queues that become partitionable, or cease to be, when nobody uses them
	begun      bool               // guarded by mu; Manage was called
	adopted    bool               // guarded by mu; all tasks of an earlier execd are in their slots
	round      round              // guarded by mu
	restless   *bool              // guarded by mu; nil: not known
}

// queue is a queue with its slots.
type queue struct {
	table   *Table
	name    string
	slots   []*Slot    // if the queue is partitionable, the partitionable slot alone
	size    int        // how many slots the scheduler knows
	part    *partition // nil: the queue is not partitionable
	first   int        // number of the first
	idle    int        // nothing below it is idle
	managed int        // how many of slots are managed
	asked   asked
}

// NewTable returns a table in which the holder has every slot. The slots are numbered in
// the order of the queues.
func NewTable(queues []conf.Queue, holder string) *Table {
	t := &Table{holder: holder, queues: map[string]*queue{}, waiting: map[string]bool{}, policy: slot.NewPolicy(nil), listed: make(chan struct{}), stirred: make(chan struct{})}
	t.o.complete()
	t.Resize(queues)
	return t
}

// Resize replaces the queues. Slots that are busy stay until they are deactivated. A queue
// becomes partitionable, or ceases to be, when nobody uses it.
func (t *Table) Resize(queues []conf.Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resize(queues)
}

func (t *Table) resize(queues []conf.Queue) {
	t.configured = queues
	fresh, waiting := map[string]*queue{}, map[string]bool{}
	t.order = nil
	first := 1
	for i := range queues {
		config := &queues[i]
		q := &queue{table: t, name: config.Name, first: first, size: config.Slots}
		old := t.queues[config.Name]
		parted := config.Partitionable
		if old != nil && (old.part != nil) != parted && old.inUse() {
			parted, waiting[config.Name] = !parted, true
		}
		if parted {
			q.keepPartitionable(old, config)
		} else {
			q.keepStatic(old, config)
		}
		first += len(q.slots)
		fresh[config.Name] = q
		t.order = append(t.order, q)
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
	for _, q := range t.order {
		for _, s := range q.all() {
			s.of = q
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

// keepStatic fills a queue that is not partitionable with the slots that it had, and new
// ones.
func (q *queue) keepStatic(old *queue, config *conf.Queue) {
	t := q.table
	switch {
	case old == nil:
	case old.part != nil:
		t.retire(old.all())
	default:
		q.slots = old.slots[:min(len(old.slots), config.Slots)]
		t.retire(old.slots[len(q.slots):])
	}
	for len(q.slots) < config.Slots {
		q.slots = append(q.slots, &Slot{Index: len(q.slots) + 1, Queue: config.Name, Holder: t.holder, of: q})
	}
	for _, s := range q.slots {
		if s.managed != nil {
			q.managed++
		}
	}
}

// keepPartitionable fills a queue with one partitionable slot, and what is carved out of it.
func (q *queue) keepPartitionable(old *queue, config *conf.Queue) {
	t := q.table
	if old != nil && old.part != nil {
		q.part, q.slots, q.managed = old.part, old.slots, old.managed
		q.refresh()
		return
	}
	if old != nil {
		t.retire(old.slots)
	}
	q.part = &partition{
		space:  slot.NewPartitionable(t.policy, t.o.Share(config.Name, config.Slots)),
		parent: &Slot{Index: 1, Queue: config.Name, Holder: t.holder, of: q},
	}
	q.slots = []*Slot{q.part.parent}
}

// noteManaged notes whether a slot is managed, or will be.
func (t *Table) noteManaged() { t.anyManaged.Store(len(t.managed) > 0 || len(t.waiting) > 0) }

// retire takes slots away that the configuration no longer has.
func (t *Table) retire(slots []*Slot) {
	for _, s := range slots {
		m := s.managed
		if m != nil { // while it still has the number by which people know it
			m.handle(slot.Vacate{Reason: slot.ReasonSystemPolicyVacate})
		}
		if s.Index = 0; m != nil {
			m.ask(false) // the hook that asks will not find it
		}
	}
}

// id returns the name of a slot, the zero ID for one that is gone.
func (s *Slot) id() slot.ID {
	if s.Index == 0 {
		return slot.ID{}
	}
	return slot.ID{Number: s.of.first + s.Index - 1, Dynamic: s.Dynamic}
}

// isParent reports whether a slot is partitionable: others are carved out of it.
func (s *Slot) isParent() bool { return s.Index > 0 && s.of.part != nil && s.Dynamic == 0 }

// isFree reports whether no job and no claim would have to leave a slot.
func (s *Slot) isFree() bool {
	return s.activity == Idle && (s.managed == nil || len(s.managed.claims) == 0)
}

// at returns the slot with a name, nil if there is none.
func (t *Table) at(id slot.ID) *Slot {
	for _, q := range t.order {
		if id.Number < q.first || id.Number >= q.first+len(q.slots) {
			continue
		}
		if !id.IsDynamic() {
			return q.slots[id.Number-q.first]
		}
		if q.part == nil {
			return nil
		}
		for _, s := range q.part.carved {
			if s.Dynamic == id.Dynamic {
				return s
			}
		}
	}
	return nil
}

// Slots returns the number of slots.
func (t *Table) Slots() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, q := range t.queues {
		n += q.size
	}
	return n
}

// Busy returns how many slots run a job.
func (t *Table) Busy() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy
}

// Activate finds idle slots for a grant of the scheduler and notes the job that they run.
// Managed slots must be willing to run j, which does not matter to plain ones. If a queue
// has too few, as after a restart with fewer slots, slots are made beyond those of the
// queue, so that every job has its slots. It returns nil if too few slots are willing.
func (t *Table) Activate(job string, grant []schedule.QueueSlots, j slot.Job) []*Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	var slots []*Slot
	for _, g := range grant {
		q := t.queues[g.Queue]
		for range g.Slots {
			s := q.next(job, j)
			if s == nil && q != nil && (q.managed > 0 || q.part != nil) && j != nil {
				t.deactivate(slots)
				return nil
			}
			if s == nil {
				s = &Slot{Queue: g.Queue, Holder: t.holder}
			}
			s.activity, s.job = Busy, job
			t.busy++
			t.stir()
			slots = append(slots, s)
		}
	}
	return slots
}

// next returns the lowest idle slot that accepts a job, or nil.
func (q *queue) next(job string, j slot.Job) *Slot {
	if q == nil {
		return nil
	}
	switch {
	case q.part != nil:
		return q.nextCarved(job, j)
	case q.managed > 0:
		return q.nextWilling(job, j)
	}
	i := slices.IndexFunc(q.slots[min(q.idle, len(q.slots)):], func(s *Slot) bool { return s.activity == Idle })
	if i < 0 {
		q.idle = len(q.slots)
		return nil
	}
	q.idle += i
	return q.slots[q.idle]
}

// Ending notes that the processes of a job are gone, and only its end is still to be
// reported: Deactivate follows.
func (t *Table) Ending(slots []*Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range slots {
		if m := s.managed; m != nil && m.task != "" && !m.ending {
			m.ending = true
			m.touch()
		}
	}
}

// Deactivate notes that the job of slots has ended.
func (t *Table) Deactivate(slots []*Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deactivate(slots)
}

func (t *Table) deactivate(slots []*Slot) {
	if len(slots) == 0 {
		return
	}
	t.outlook()
	for _, s := range slots {
		if s.activity == Idle {
			continue
		}
		s.activity, s.job = Idle, ""
		t.busy--
		t.stir()
		if s.Index > 0 {
			s.of.idle = min(s.of.idle, s.Index-1)
		}
		if s.managed != nil {
			s.managed.ended()
		}
	}
	if s := slots[0]; s.managed == nil && t.begun && s.crowd(nil) != nil {
		s.manage()
	}
	if m := slots[0].managed; m != nil {
		m.fill()
	}
}
