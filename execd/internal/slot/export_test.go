package slot

import (
	"slices"
	"time"

	"paddock/classad"
)

// Activity returns the activity.
func (m *Machine) Activity() Activity { return m.place.Activity }

// PrePreempting returns the claim that is offered while another one waits.
func (m *Machine) PrePreempting() Claim { return m.prePre.exported() }

// Knows reports whether a number is that of a claim, or of an offer, of the slot.
func (m *Machine) Knows(n Number) bool { return m.role(n) != nil }

// ChangesBySelf reports whether the policy depends on something that changes
// though nothing happens, such as the time or the load: Next is an interval then.
func (m *Machine) ChangesBySelf() bool {
	m.Needs()
	return m.changes
}

// VacateTime returns how long the job that runs would have between being asked to
// end and being killed.
func (m *Machine) VacateTime(now time.Time) time.Duration {
	m.begin(now)
	return m.vacateTime(m.retirementRemaining())
}

// has reports whether the row leads from one place to another.
func (r *Row) has(from, to Place) bool {
	return slices.Contains(r.From, from) && slices.Contains(r.To, to) && from != to
}

// row returns a row of the table, nil for a number that is none.
func row(number int) *Row {
	for i := range Table {
		if Table[i].Number == number {
			return &Table[i]
		}
	}
	return nil
}

// Dynamic returns how many dynamic slots there are.
func (p *Partitionable) Dynamic() int { return len(p.slots) }

// Policy returns the policy.
func (m *Machine) Policy() *Policy { return m.policy }

// Decide is DecideWith for a caller that has not made the slot's ad.
func (m *Machine) Decide(now time.Time, j Job) Decision { return m.DecideWith(now, j, nil) }

// Needs returns what the policy depends on where the slot is now: when such an
// attribute changes, and only then, Evaluate is worth while. It changes with every
// Moved.
func (m *Machine) Needs() classad.References {
	if !m.watched {
		m.watch()
		m.ads = ads{}
	}
	return m.refs
}

// Valid reports whether the state has the activity.
func (p Place) Valid() bool {
	return int(p.State) < states && slices.Contains(allowed[p.State], p.Activity)
}
