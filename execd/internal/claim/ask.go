package claim

import (
	"time"

	"paddock/classad"
	"paddock/execd/internal/slot"
)

// stir ends the round: something has happened.
func (t *Table) stir() { t.round.until = time.Time{} }

// forget drops all answers: the policy is another, or the ads are made otherwise.
func (t *Table) forget() {
	t.stir()
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
		if a, known := t.recall(s, &q, most); known {
			return min(a.n, most), a.why, s.asked.sameFor(&q)
		}
		if a, ok := t.poll(s, &q, most); ok {
			return a.n, a.why, s.asked.sameFor(&q)
		}
	}
}

// recall returns the answer to a question if it is known in this round.
func (t *Table) recall(s *slots, q *question, most int) (answer, bool) {
	a := &s.asked
	if n := t.round.begin(t.o.Now()); a.round != n {
		a.round = n
		a.bases = a.bases[:0]
		clear(a.answers)
	}
	if !q.alike {
		return answer{}, false
	}
	if a.answers == nil {
		a.answers, a.refused = map[Likeness]answer{}, map[Likeness][]startRefused{}
	}
	q.near, q.far = q.like.only(a.looks), q.like.only(a.looks|ofNeeds)
	for _, key := range []*Likeness{&q.near, &q.far} {
		if known, ok := a.answers[*key]; ok && (known.n < known.most || most <= known.n) {
			return known, true
		}
	}
	q.refused = a.refused[q.near]
	if len(q.refused) < len(s.claims) {
		if (len(a.refused)+1)*(len(s.claims)+4) > maxRefusals {
			clear(a.refused)
		}
		q.refused = append(q.refused, make([]startRefused, len(s.claims)-len(q.refused))...)
		a.refused[q.near] = q.refused
	}
	return answer{}, false
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
	l := &m.looked
	if l.round == t.round.number {
		return false
	}
	l.round, l.ad = t.round.number, t.ad(m)
	r := t.policy.Expr(slot.Start).References(l.ad, nil)
	if s.part != nil {
		carve := s.part.space.References()
		r.Target = append(r.Target, carve.Target...)
		r.Time, r.Random, r.Any = r.Time || carve.Time, r.Random || carve.Random, r.Any || carve.Any
	}
	var attrs []classad.Attr
	for _, name := range r.My {
		if e, ok := l.ad.Lookup(name); ok {
			attrs = append(attrs, classad.Attr{Name: name, Expr: e})
		}
	}
	basis := classad.New(attrs...)
	changing := r.Time || r.Random || r.Any
	if l.basis == nil || changing || !basis.Equal(l.basis) {
		t.round.versions++
		l.version = t.round.versions
	}
	l.basis = basis
	if !changing {
		s.asked.liken(l)
	}
	return s.asked.look(&r)
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
