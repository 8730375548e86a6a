package slot

import "paddock/classad"

// reason is why a slot that is drained refuses.
func (e Drain) reason() Reason {
	if e.Shutdown {
		return ReasonShutdown
	}
	return ReasonDraining
}

// offeredWhileDraining reports whether there is time for work that may still
// begin, and START without a job leaves hope.
func (m *Machine) offeredWhileDraining() bool {
	return m.drain.Start != nil && m.now.Before(m.drain.Until.Add(-activationDelay)) && !isFalse(m.start(nil)) && !m.isOwner()
}

// noStart is in place of START while a slot is drained in which nothing may begin any more.
var noStart, _ = classad.Parse("false")

func (e Drain) happen(m *Machine) {
	m.drain.on, m.drain.Drain, m.watched = true, e, false
	if m.instead = e.Start; e.Start == nil {
		m.instead = &noStart
	}
	why, fast := m.drain.reason(), e.Speed == DrainFast
	for _, c := range [...]*claim{m.prePre, m.pre} {
		if c.waits() {
			m.drop(c, why)
		}
	}
	switch m.place.State {
	case Matched:
		m.enterOwner(8, why)
	case Backfill:
		m.evict(causeEvict)
	case Preempting:
		if fast && m.place.Activity == Vacating {
			m.kill(why)
		}
	case Claimed:
		m.drainClaimed(why, fast)
	}
}

func (m *Machine) drainClaimed(why Reason, fast bool) {
	a := m.place.Activity
	if a == Idle || m.cur.whileDraining && m.drain.Speed == DrainGraceful {
		return // evaluated as such
	}
	if a == Cleaning {
		m.leave(why, fast)
		return
	}
	m.irreversible, m.leaving = true, why
	if m.drain.Speed != DrainGraceful {
		m.noRetirement = true
		m.leave(why, fast)
	} else if a == Busy {
		m.beginRetirement(why)
	}
}

func (AllDrained) happen(m *Machine) {
	if m.place != (Place{Drained, Retiring}) {
		return
	}
	m.move(Place{Drained, Idle}, 33, m.drain.reason())
	switch m.drain.OnCompletion {
	case DrainStay:
	case DrainResume:
		Undrain{}.happen(m)
	default:
		m.do(Action{Do: DrainComplete, OnCompletion: m.drain.OnCompletion})
	}
}

func (Undrain) happen(m *Machine) {
	if !m.drain.on {
		return
	}
	m.drain.on, m.drain.Drain, m.instead, m.watched = false, Drain{}, nil, false
	m.cur.whileDraining = false
	if m.place.State != Drained {
		return
	}
	row := 34
	if m.place.Activity == Idle {
		row = 35
	}
	m.enterOwner(row, noReason)
}

// AllAreDrained reports whether nothing runs in any of the slots of a host and
// nothing more will: the time for AllDrained.
func AllAreDrained(slots []*Machine) bool {
	for _, m := range slots {
		if s := m.place.State; s != Drained && s != Deleted {
			return false
		}
	}
	return true
}
