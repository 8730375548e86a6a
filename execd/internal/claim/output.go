package claim

import (
	"fmt"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/job"
)

// A slot is free as soon as its job is over, and output of the job may be on its way for
// long after that. How much of it may be is bounded for each claim, and for each slot that
// the queue uses itself: a slot that is crowded takes no other job before some of it has
// arrived. A job counts in its first slot alone.

// crowd returns the tasks whose output is on its way, if it is so much that a slot takes no
// job: under a claim, or of the queue if that is nil. Jobs of the queue count together in a
// partitionable slot, as if each of its Cpus was a slot.
func (t *Table) crowd(s *Slot, c *claim) (tasks []string) {
	if s.Index == 0 {
		return nil
	}
	for _, l := range t.o.Leaving(s.Queue) {
		if l.Travels && (c != nil && l.Claim == c.id.String() || c == nil && l.Claim == "" && l.Slot == s.Index) {
			tasks = append(tasks, l.Task)
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	most := t.o.Most()
	if c == nil && s.of.part != nil {
		most *= s.of.size
	}
	if most == 0 || len(tasks) < most { // 0: a job keeps its slots until its output has arrived
		return nil
	}
	return tasks
}

// crowded says that a slot takes no job of the queue, since too much output is on its way;
// empty: it may.
func (t *Table) crowded(s *Slot) string {
	tasks := t.crowd(s, nil)
	if tasks == nil {
		return ""
	}
	last := len(tasks) - 1
	list := tasks[last]
	if last > 0 {
		list = strings.Join(tasks[:last], ", ") + " and " + list
	}
	return fmt.Sprintf("%s: output of %s still travels", s.id().Name(), list)
}

// travels says that a claim takes no job, since too much output is on its way; nil: it may.
func (t *Table) travels(c *claim) error {
	switch n := len(t.crowd(c.on.slot, c)); n {
	case 0:
		return nil
	case 1:
		return api.Refusef(api.RefusedTryAgain, "one output of the claim still travels")
	case 2:
		return api.Refusef(api.RefusedTryAgain, "two outputs of the claim still travel")
	default:
		return api.Refusef(api.RefusedTryAgain, "%d outputs of the claim still travel", n)
	}
}

// isFull reports whether the claim that has a slot takes no job, since too much output is
// on its way.
func (t *Table) isFull(m *managed) bool {
	c := m.claims[m.machine.Current().Number]
	return c != nil && !c.waiting && t.crowd(m.slot, c) != nil
}

// fill notes whether somebody may wait for output that is on its way from a slot.
func (t *Table) fill(m *managed) { m.full = t.isFull(m) || t.crowd(m.slot, nil) != nil }

// Traffic notes that more or less output is on its way than was. Who waits for it is woken
// up.
func (t *Table) Traffic() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.traffic()
}

func (t *Table) traffic() {
	t.remanage()
	for _, m := range t.managed {
		was := m.full
		if t.fill(m); was || m.full {
			t.round.end()
			m.touch()
		}
	}
	t.drained()
}

// leaving returns the runs whose sandboxes take room of a slot, while their output leaves
// them. A slot that was carved has room for those of its claim; when it is gone, they take
// it of the slot out of which it was carved.
func (t *Table) leaving(s *Slot) []job.Leaving {
	if s.Index == 0 {
		return nil
	}
	return slices.DeleteFunc(t.o.Leaving(s.Queue), func(l job.Leaving) bool {
		if l.Slot != s.Index {
			return true
		}
		if s.of.part == nil {
			return false
		}
		on := s.of.part.parent
		if c := t.byPublic(l.Claim); c != nil && c.on.part == s.of.part {
			on = c.on.slot
		}
		return on != s
	})
}

// kib returns how much room runs take together.
func kib(list []job.Leaving) (n int64) {
	for i := range list {
		n += list[i].KiB
	}
	return n
}
