// Package claim knows the slots of this host and who has them: every job runs
// under claims, one for each of its slots, whatever brought it. There is one
// holder so far, execd's own queue, which claims every slot for good and
// activates and deactivates the claims for its jobs. Packages queue and stage
// import it; it imports conf and schedule.
package claim

import (
	"slices"
	"sync"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/schedule"
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

// Claim is the right to use one slot.
type Claim struct {
	Slot   int    // of the queue, from 1; 0: beyond the slots that the queue has
	Queue  string // the queue the slot belongs to
	Holder string // who holds the claim: "queue" is execd's own

	activity Activity // guarded by Table.mu
	job      string   // guarded by Table.mu; what it runs
}

// Table is all slots of the host. Its methods may be called from several
// goroutines.
type Table struct {
	holder string

	mu     sync.Mutex
	queues map[string]*slots // guarded by mu
	busy   int               // guarded by mu
}

// slots are the claims of one queue.
type slots struct {
	claims []*Claim
	idle   int // nothing below it is idle
}

// NewTable returns a table in which the holder has a claim on every slot.
func NewTable(queues []conf.Queue, holder string) *Table {
	t := &Table{holder: holder, queues: map[string]*slots{}}
	t.Resize(queues)
	return t
}

// Resize makes the table that of other queues. Claims that are busy stay until
// they are deactivated.
func (t *Table) Resize(queues []conf.Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := map[string]*slots{}
	for i := range queues {
		q := &queues[i]
		s := &slots{}
		if old := t.queues[q.Name]; old != nil {
			s.claims = old.claims[:min(len(old.claims), q.Slots)]
			for _, c := range old.claims[len(s.claims):] {
				c.Slot = 0
			}
		}
		for len(s.claims) < q.Slots {
			s.claims = append(s.claims, &Claim{Slot: len(s.claims) + 1, Queue: q.Name, Holder: t.holder})
		}
		fresh[q.Name] = s
	}
	for name, old := range t.queues {
		if fresh[name] == nil {
			for _, c := range old.claims {
				c.Slot = 0
			}
		}
	}
	t.queues = fresh
}

// Slots returns how many slots there are.
func (t *Table) Slots() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, s := range t.queues {
		n += len(s.claims)
	}
	return n
}

// Busy returns how many claims run a job.
func (t *Table) Busy() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy
}

// Activate finds idle claims for a grant and says what they run. Where a queue
// has too few, as after a restart with fewer slots, it makes claims beyond its
// slots: what runs has a claim.
func (t *Table) Activate(job string, grant []schedule.QueueSlots) []*Claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	var claims []*Claim
	for _, g := range grant {
		s := t.queues[g.Queue]
		for range g.Slots {
			c := s.next()
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

// next returns the lowest idle claim, or nil.
func (s *slots) next() *Claim {
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.claims[min(s.idle, len(s.claims)):], func(c *Claim) bool { return c.activity == Idle })
	if i < 0 {
		s.idle = len(s.claims)
		return nil
	}
	s.idle += i
	return s.claims[s.idle]
}

// Deactivate tells that the job of claims has ended.
func (t *Table) Deactivate(claims []*Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range claims {
		if c.activity == Idle {
			continue
		}
		c.activity, c.job = Idle, ""
		t.busy--
		if s := t.queues[c.Queue]; s != nil && c.Slot > 0 {
			s.idle = min(s.idle, c.Slot-1)
		}
	}
}
