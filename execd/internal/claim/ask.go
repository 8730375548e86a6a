package claim

import "paddock/execd/internal/slot"

// forget drops all answers: the policy is another, or the ads are made otherwise.
func (t *Table) forget() {
	t.round.end()
	t.restless = nil
	for _, s := range t.order {
		s.asked = asked{}
	}
	for _, m := range t.managed {
		m.looked = looked{}
	}
}

// Willing returns how many slots of a queue are willing to run a job, counting to
// most, and if none is, why: the end of a sentence with "because". The same is true
// if they say so of all jobs of the owner that need the same and have the same
// priority.
func (t *Table) Willing(queue string, j slot.Job, most int) (n int, why string, same bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.queues[queue]
	if s == nil {
		return 0, "it does not exist any more", true
	}
	if s.managed == 0 && s.part == nil {
		return most, "", true
	}
	q := question{job: j}
	if a, ok := j.(Alike); ok {
		q.like, q.alike = a.Like()
	}
	for {
		if a, known := s.asked.recall(t.round.begin(t.o.Now()), len(s.claims), &q, most); known {
			return min(a.n, most), a.why, s.asked.sameFor(&q)
		}
		if a, ok := t.poll(s, &q, most); ok {
			return a.n, a.why, s.asked.sameFor(&q)
		}
	}
}

// poll asks the slots, and remembers what they say; false: START of one looks at more
// than was known, and so fewer jobs are alike.
func (t *Table) poll(s *slots, q *question, most int) (answer, bool) {
	a := answer{most: most}
	q.others = s.part != nil
	if s.part != nil {
		if t.look(s, t.manage(s.part.parent)) {
			return a, false
		}
		a.n, a.why = t.willingToCarve(s, q.job, most)
		return s.asked.keep(q, a), true
	}
	for i, c := range s.claims {
		if a.n >= most {
			break
		}
		if c.activity == Busy {
			continue
		}
		text := ""
		if c.managed != nil {
			if t.look(s, c.managed) {
				return a, false
			}
			text = t.unwilling(s, c.managed, i, q)
		} else {
			q.others = true
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
	return s.asked.keep(q, a), true
}

// look looks at a slot once in a round, and reports whether its START looks at more
// of a job than is known of the queue.
func (t *Table) look(s *slots, m *managed) (more bool) {
	if m.looked.round == t.round.number {
		return false
	}
	ad := t.ad(m)
	refs := t.policy.Expr(slot.Start).References(ad, nil)
	if s.part != nil {
		refs = refs.And(s.part.space.References())
	}
	return s.asked.look(&t.round, &m.looked, ad, &refs)
}

// unwilling says why a slot of a queue, by its place there, does not take a job now;
// empty: it does. The cheapest answers come first.
func (t *Table) unwilling(s *slots, m *managed, place int, q *question) string {
	if why := m.taken(); why != "" {
		q.others = true
		return why
	}
	if _, draining := m.machine.Draining(); !draining && m.machine.Broken() == "" {
		if text := t.refusedByStart(s, m, place, q); text != "" {
			return text
		}
	}
	q.others = true
	d := m.machine.DecideWith(t.o.Now(), q.job, m.looked.ad)
	return m.refusal(&d)
}

// refusedByStart says that START of a slot is not true for a job; empty: it is.
func (t *Table) refusedByStart(s *slots, m *managed, place int, q *question) string {
	l := &m.looked
	if q.refused != nil && q.refused[place].version == l.version {
		return q.refused[place].text
	}
	if !q.alike || q.last.version != l.version {
		value, ok := t.start(l.ad, s.asked.jobAd(q))
		q.last = opinion{l.version, !ok, value}
	}
	if !q.last.refused {
		return ""
	}
	if l.text == "" || q.last.value != l.value {
		l.value = q.last.value
		l.text = m.startIs(l.value)
	}
	if q.refused != nil {
		q.refused[place] = startRefused{l.version, l.text}
	}
	return l.text
}
