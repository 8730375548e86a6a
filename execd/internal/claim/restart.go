package claim

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/slot"
	"paddock/spool"
)

// Manage begins to manage slots: it is called once, before anything runs. It reads
// the claims that an earlier execd has left.
func (t *Table) Manage(o Options) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	o.complete()
	t.o, t.begun = o, true
	for _, q := range t.order {
		if q.part != nil {
			q.refresh()
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
		table: t, id: id, offered: r.Kind == offered, holder: r.Holder, by: By{UID: r.UID, Name: strings.TrimSuffix(r.Holder, "@"+r.Host), Host: r.Host}, priority: r.Priority,
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
		m = q.makeAgain(r.Dynamic, r.Has)
	default:
		m = q.slots[r.Index-1].manage()
	}
	if r.Partitionable {
		if c.lease <= 0 || c.lease > slot.PartitionableLease {
			c.lease = slot.PartitionableLease
		}
	}
	c.begin()
	if l, err := spool.ParseLease([]byte(r.Ends)); err == nil && l.Boot == t.o.BootID && c.lease > 0 {
		c.ends = l.End // else the host has been started anew, and nothing runs under it
	}
	if r.Partitionable {
		q.part.space.Claim(t.o.Now(), c.holder, max(c.ends-t.o.Uptime(), 1))
	}
	m.restore(c, time.Time{}, slot.JobOf(c.ad), nil)
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
func (m *managed) restore(c *claim, begun time.Time, j slot.Job, ending *slot.Ending) {
	t := m.table
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
	m.machine = slot.New(m.config(&saved, j), now)
	m.under = 0
	n := m.machine.Current().Number
	if c != nil {
		c.on, c.number = m, n
		m.claims[n] = c
	}
	if !begun.IsZero() {
		m.under, m.job = n, j
	}
	m.handle(slot.Evaluate{})
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
			m.restore(c, started, j, ending)
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
				m := q.recarve(record, j)
				m.task = task
				m.restore(nil, started, j, ending)
				take(m.slot)
				continue
			}
			s := q.free()
			if s == nil {
				s = q.yield(0)
			}
			if s == nil {
				s = &Slot{Queue: g.Queue, Holder: t.holder}
			}
			m := s.managed
			if m == nil && ending != nil && s.Index > 0 {
				m = s.manage()
			}
			if m != nil {
				m.task = task
				m.restore(nil, started, j, ending)
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
func (q *queue) yield(dynamic int) *Slot {
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
	last.on.dropped(last, slot.ReasonPreempted)
	return last.on.slot
}

// recarve makes the slot again in which a task runs: as its record says, or without one as
// its job requests. No slot can refuse.
func (q *queue) recarve(record *job.Carved, j slot.Job) *managed {
	if record != nil {
		if s := q.yield(record.Slot); s != nil {
			return s.managed
		}
		return q.makeAgain(record.Slot, slot.Resources{Cpus: record.Cpus, Memory: record.Memory, Disk: record.Disk, GPUs: record.GPUs})
	}
	want, err := q.part.space.Request(adOf(j), q.part.parent.manage().ad(), false)
	if err != nil {
		want = slot.Resources{Cpus: 1}
	}
	return q.makeAgain(1, want)
}

// makeAgain makes a slot again that an earlier execd has carved, with the same name unless
// that is in use. It has no machine yet.
func (q *queue) makeAgain(number int, has slot.Resources) *managed {
	d := slot.Dynamic{Number: max(number, 1), Resources: has}
	for q.part.space.Restore(d) != nil {
		d.Number++
	}
	q.part.parent.manage()
	return q.enter(d)
}

// Adopted is called when all tasks that an earlier execd has left are in their slots. Until
// then nothing happens to its claims, by time or policy: what runs under them was not known.
func (t *Table) Adopted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.adopted = true
	for _, m := range slices.Clone(t.managed) {
		if c := m.claims[m.machine.Current().Number]; c != nil {
			m.handle(slot.Settle{})
			m.tidy()
		}
	}
}
