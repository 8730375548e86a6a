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

// outlet is what output counts in: a claim, or a slot of a queue.
type outlet struct {
	claim string // public id
	queue string
	slot  int // number in the queue
}

// outlets has the runs that are over and whose output is still in their sandboxes, as they
// were when somebody last said that they have changed.
type outlets struct {
	travel map[outlet][]string      // tasks whose output is on its way
	leave  map[outlet][]job.Leaving // all, by slot
	any    bool                     // one is on its way
}

// outlook looks at them anew.
func (t *Table) outlook() {
	list := t.o.Leaving()
	if len(list) == 0 {
		t.out = outlets{}
		return
	}
	t.out = outlets{travel: map[outlet][]string{}, leave: map[outlet][]job.Leaving{}}
	for i := range list {
		l := &list[i]
		at := outlet{queue: l.Queue, slot: l.Slot}
		t.out.leave[at] = append(t.out.leave[at], *l)
		if !l.Travels {
			continue
		}
		t.out.any = true
		if l.Claim != "" {
			at = outlet{claim: l.Claim}
		}
		t.out.travel[at] = append(t.out.travel[at], l.Task)
	}
}

// crowd returns the tasks whose output is on its way, if it is so much that a slot takes no
// job: under a claim, or of the queue if that is nil. Jobs of the queue count together in a
// partitionable slot, as if each of its Cpus was a slot.
func (s *Slot) crowd(c *claim) (tasks []string) {
	if s.Index == 0 || !s.of.table.out.any { // it may be of no queue
		return nil
	}
	t := s.of.table
	most := 1
	if c != nil {
		tasks = t.out.travel[outlet{claim: c.id.String()}]
	} else {
		tasks = t.out.travel[outlet{queue: s.Queue, slot: s.Index}]
		if s.of.part != nil {
			most = s.of.size
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	most *= t.o.Most()
	if most == 0 || len(tasks) < most { // 0: a job keeps its slots until its output has arrived
		return nil
	}
	return tasks
}

// crowded says that a slot takes no job of the queue, since too much output is on its way;
// empty: it may.
func (s *Slot) crowded() string {
	tasks := s.crowd(nil)
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
func (c *claim) travels() error {
	switch n := len(c.on.slot.crowd(c)); n {
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
func (m *managed) isFull() bool {
	c := m.claims[m.machine.Current().Number]
	return c != nil && !c.waiting && m.slot.crowd(c) != nil
}

// fill notes whether somebody may wait for output that is on its way from a slot.
func (m *managed) fill() { m.full = m.isFull() || m.slot.crowd(nil) != nil }

// Traffic notes that other output leaves than did. Who waits for it is woken up.
func (t *Table) Traffic() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.traffic()
}

func (t *Table) traffic() {
	t.outlook()
	t.remanage()
	for _, m := range t.managed {
		was := m.full
		if m.fill(); was || m.full {
			t.round.end()
			m.touch()
		}
	}
	t.drained()
}

// leaving returns the runs whose sandboxes take room of a slot, while their output leaves
// them. A slot that was carved has room for those of its claim; when it is gone, they take
// it of the slot out of which it was carved.
func (s *Slot) leaving() []job.Leaving {
	if s.Index == 0 {
		return nil
	}
	list := s.of.table.out.leave[outlet{queue: s.Queue, slot: s.Index}]
	if s.of.part == nil || list == nil {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(l job.Leaving) bool {
		on := s.of.part.parent
		if c := s.of.table.byPublic(l.Claim); c != nil && c.on.part == s.of.part {
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
