// Package claim keeps the slots of this host and who holds them. Every job
// runs under a claim, whatever brought it: the claim is activated to start a
// job and deactivated when its processes are over, so that there is one way
// to occupy a slot. Today execd's own queue is the only holder. Other packages
// of execd import it; it imports conf.
package claim

import (
	"fmt"
	"sync"

	"paddock/execd/internal/conf"
)

// Activity says what a claimed slot does.
type Activity int

// The activities of a claimed slot, with HTCondor's names.
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

// Claim is the right to run jobs on one slot.
type Claim struct {
	Slot   int    // slots are numbered from 1 over the queues by seq_no, then name
	Queue  string // the queue the slot belongs to
	Holder string // who holds the claim: "queue" is execd's own

	activity Activity // guarded by Table.mu
	job      string   // guarded by Table.mu; what it runs
}

// Table has the claims of this host.
type Table struct {
	mu     sync.Mutex
	claims []*Claim // guarded by mu; by slot
	idle   int      // guarded by mu; where the search for an idle claim begins
	busy   int      // guarded by mu
	limit  int      // guarded by mu
}

// NewTable claims every slot of the queues for one holder.
func NewTable(queues []conf.Queue, holder string) *Table {
	t := &Table{}
	for i := range queues {
		for range queues[i].Slots {
			t.claims = append(t.claims, &Claim{Slot: len(t.claims) + 1, Queue: queues[i].Name, Holder: holder})
		}
	}
	t.limit = len(t.claims)
	return t
}

// Slots returns the number of slots.
func (t *Table) Slots() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limit
}

// Busy returns the number of slots that run a job.
func (t *Table) Busy() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy
}

// Idle returns the idle claim with the lowest slot, or nil.
func (t *Table) Idle() *Claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; t.idle < t.limit; t.idle++ {
		if t.claims[t.idle].activity == Idle {
			return t.claims[t.idle]
		}
	}
	return nil
}

// Activate makes an idle claim run a job.
func (t *Table) Activate(c *Claim, job string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.activity != Idle {
		return fmt.Errorf("cannot activate claim of slot %d: it runs job %s", c.Slot, c.job)
	}
	c.activity, c.job = Busy, job
	t.busy++
	return nil
}

// Adopt activates a claim for a job that runs already, found after a restart:
// an idle one of its queue, else one that is made for it and goes when the job
// ends, since the administrator may have taken slots away meanwhile.
func (t *Table) Adopt(queue, job string) *Claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy++
	for _, c := range t.claims[:t.limit] {
		if c.activity == Idle && c.Queue == queue {
			c.activity, c.job = Busy, job
			return c
		}
	}
	return &Claim{Queue: queue, Holder: "queue", activity: Busy, job: job}
}

// Deactivate ends the job of a claim; the holder keeps the claim.
func (t *Table) Deactivate(c *Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.activity == Idle {
		return
	}
	c.activity, c.job = Idle, ""
	t.busy--
	if c.Slot > 0 {
		t.idle = min(t.idle, c.Slot-1)
	}
}
