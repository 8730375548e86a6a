package claim

import (
	"fmt"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/slot"
	"paddock/spool"
)

// begin begins the lease of a claim, if it has one.
func (c *claim) begin() { c.beginAt(c.table.o.Uptime()) }

// beginAt is begin at an uptime of the host.
func (c *claim) beginAt(since time.Duration) {
	c.ends = 0
	if c.lease > 0 {
		c.ends = min((since + c.lease).Truncate(spool.LeaseTick), spool.LeaseMost) // as it is written down
	}
}

// doubt has a claim end soon if its holder is not heard again: it may not know that it has it.
// Its file has the whole lease.
func (c *claim) doubt() {
	c.silent = true
	if soon := c.table.o.Uptime() + api.ConfirmWithin*time.Second; c.ends == 0 || c.ends > soon {
		c.on.handle(slot.Renew{Claim: c.number, Lease: api.ConfirmWithin * time.Second, Left: api.ConfirmWithin * time.Second})
	}
}

// heard gives a claim that was in doubt its whole lease.
func (c *claim) heard() {
	if c.silent {
		c.silent = false
		c.count()
	}
}

// spoolLease returns the lease of a claim; zero: it lasts for ever.
func (c *claim) spoolLease() spool.Lease {
	if c.ends == 0 {
		return spool.Lease{}
	}
	return spool.Lease{Boot: c.table.o.BootID, End: c.ends}
}

// Lease returns the lease of the claim with a public id; zero: it lasts for ever; false: it
// is over.
func (t *Table) Lease(public string) (lease spool.Lease, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byPublic(public)
	if c == nil {
		return lease, false
	}
	return c.spoolLease(), true
}

// Lend gives the claim of fetched work the lease of the work that an Offer has brought, which
// begins at an uptime of the host; 0: it has none. Keep follows.
func (t *Table) Lend(id ID, lease, since time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byPublic(id.String())
	if c == nil || c.lease == 0 && lease == 0 {
		return
	}
	if c.lease = lease; !c.waiting {
		c.beginAt(since)
	}
	c.count()
}

// count has the machine of a slot go by the lease of the claim that has it.
func (c *claim) count() {
	c.on.handle(slot.Renew{Claim: c.number, Lease: c.lease, Left: c.ends - c.table.o.Uptime()})
	c.on.tidy()
}

// expire ends the claim that has a slot if its lease is over at an uptime. That of its machine goes by
// the time of this process, which stands still while the host is suspended.
func (m *managed) expire(up time.Duration) {
	c := m.claims[m.machine.Current().Number]
	if c != nil && m.table.adopted && c.ends > 0 && up >= c.ends && m.machine.State() == slot.Claimed {
		m.handle(slot.Lost{Claim: c.number})
		m.tidy()
	}
}

// Renew begins the lease of a claim anew. When it returns without an error the new end is on
// disk, where tell has written it for the shepherd of the task that runs under the claim.
// After an error it is as before. It blocks, and no lock may be held.
func (t *Table) Renew(id ID, by By, tell func(task string) error) (State, error) {
	t.mu.Lock()
	c, err := t.find(id, by)
	var lease time.Duration
	if err == nil {
		lease = c.lease
	}
	t.mu.Unlock()
	if err == nil {
		err = c.prolong(lease, t.o.Uptime(), tell)
	}
	if err != nil {
		return State{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.state(t.o.Now()), nil
}

// Prolong is Renew for the claim of fetched work with a public id, whose lease is another
// one now, 0 for none, and begins at an uptime of the host.
func (t *Table) Prolong(public string, lease, since time.Duration, tell func(task string) error) error {
	t.mu.Lock()
	c := t.byPublic(public)
	t.mu.Unlock()
	if c == nil || !c.offered {
		return api.Refusef(api.RefusedUnknown, "no claim %s is known", public)
	}
	return c.prolong(lease, since, tell)
}

// prolong gives a claim another lease, as Renew and Prolong do.
func (c *claim) prolong(lease, since time.Duration, tell func(task string) error) error {
	t := c.table
	c.file.Lock()
	defer c.file.Unlock()
	t.mu.Lock()
	m := c.on
	m.expire(t.o.Uptime())
	oldLease, oldEnds, task := c.lease, c.ends, ""
	switch {
	case c.over || c.ends > 0 && t.o.Uptime() >= c.ends:
		t.mu.Unlock()
		return unknown(c.id)
	case c.silent && m.slot.isParent():
		c.heard()
		t.mu.Unlock()
		return nil
	case c.waiting || m.slot.isParent() || lease == 0 && oldLease == 0:
		// It begins with the slot. A claim on a partitionable slot never lasts longer than its
		// first lease.
		t.mu.Unlock()
		return nil
	case m.under == c.number:
		task = m.task
	}
	c.silent = false
	c.lease = lease // also for what is started meanwhile
	c.beginAt(since)
	t.mu.Unlock()
	err := c.keep()
	if err == nil && task != "" {
		err = tell(task)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		c.lease, c.ends = oldLease, oldEnds
		return fmt.Errorf("cannot renew the lease of claim %v: %w", c.id, err)
	}
	if !c.over {
		c.count()
	}
	return nil
}
