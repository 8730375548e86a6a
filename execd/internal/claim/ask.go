package claim

import "paddock/execd/internal/slot"

// forget drops all answers, since the policy or the way to make ads has changed.
func (t *Table) forget() {
	t.round.end()
	t.restless = nil
	for _, q := range t.order {
		q.asked = asked{}
	}
	for _, m := range t.managed {
		m.looked = looked{}
	}
}

// Willing returns how many slots of a queue are willing to run a job, at most most, and if
// none is, why: the end of a sentence with "because". Same says that the answer holds for
// all jobs of the owner that need the same and have the same priority.
func (t *Table) Willing(queue string, j slot.Job, most int) (n int, why string, same bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[queue]
	if q == nil {
		return 0, "it does not exist any more", true
	}
	if q.managed == 0 && q.part == nil {
		return most, "", true
	}
	ask := question{job: j}
	if a, ok := j.(Alike); ok {
		ask.like, ask.alike = a.Like()
	}
	for {
		if a, known := q.asked.recall(t.round.begin(t.o.Now()), len(q.slots), &ask, most); known {
			return min(a.n, most), a.why, q.asked.sameFor(&ask)
		}
		if a, ok := q.poll(&ask, most); ok {
			return a.n, a.why, q.asked.sameFor(&ask)
		}
	}
}

// poll asks the slots, and remembers their answer; false: START of one refers to more
// attributes of the job than was known, so that fewer jobs are alike.
func (q *queue) poll(ask *question, most int) (answer, bool) {
	a := answer{most: most}
	ask.others = q.part != nil
	if q.part != nil {
		if q.look(q.part.parent.manage()) {
			return a, false
		}
		a.n, a.why = q.willingToCarve(ask.job, most)
		return q.asked.keep(ask, a), true
	}
	for i, s := range q.slots {
		if a.n >= most {
			break
		}
		if s.activity == Busy {
			continue
		}
		text := ""
		if s.managed != nil {
			if q.look(s.managed) {
				return a, false
			}
			text = q.unwilling(s.managed, i, ask)
		} else {
			ask.others = true
		}
		if text == "" {
			a.n++
		} else if a.why == "" {
			a.why = text
		}
	}
	if a.n > 0 {
		a.why = ""
	} else if a.why == "" {
		a.why = "all its slots are busy"
	}
	return q.asked.keep(ask, a), true
}

// look looks at a slot once in a round, and reports whether its START refers to more
// attributes of a job than is known for the queue.
func (q *queue) look(m *managed) (more bool) {
	t := q.table
	if m.looked.round == t.round.number {
		return false
	}
	ad := m.ad()
	refs := t.policy.Expr(slot.Start).References(ad, nil)
	if q.part != nil {
		refs = refs.And(q.part.space.References())
	}
	return q.asked.look(&t.round, &m.looked, ad, &refs)
}

// unwilling says why a slot of a queue, by its place there, does not accept a job now;
// empty: it does. The cheapest answers come first.
func (q *queue) unwilling(m *managed, place int, ask *question) string {
	if why := m.taken(); why != "" {
		ask.others = true
		return why
	}
	if _, draining := m.machine.Draining(); !draining && m.machine.Broken() == "" {
		if text := q.refusedByStart(m, place, ask); text != "" {
			return text
		}
	}
	ask.others = true
	d := m.machine.DecideWith(q.table.o.Now(), ask.job, m.looked.ad)
	return m.refusal(&d)
}

// refusedByStart says in words that START of a slot is not true for a job; empty: it is.
func (q *queue) refusedByStart(m *managed, place int, ask *question) string {
	l := &m.looked
	if ask.refused != nil && ask.refused[place].version == l.version {
		return ask.refused[place].text
	}
	if !ask.alike || ask.last.version != l.version {
		value, ok := q.table.start(l.ad, q.asked.jobAd(ask))
		ask.last = opinion{l.version, !ok, value}
	}
	if !ask.last.refused {
		return ""
	}
	if l.text == "" || ask.last.value != l.value {
		l.value = ask.last.value
		l.text = m.startIs(l.value)
	}
	if ask.refused != nil {
		ask.refused[place] = startRefused{l.version, l.text}
	}
	return l.text
}
