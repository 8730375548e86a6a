package slot

import (
	"time"

	"paddock/classad"
)

// deadlines does what is due by now.
func (m *Machine) deadlines() {
	for _, c := range [...]*claim{m.prePre, m.pre} {
		switch {
		case c == nil:
		case c.waits() && m.due(c.patience):
			m.drop(c, ReasonPreempted)
		case m.due(c.matchEnd):
			m.drop(c, noReason) // who was matched did not come: another id
		}
	}
	if m.due(m.run.answerJobDone) {
		m.answerJobDone()
	}
	switch m.place.State {
	case Matched:
		if m.due(m.cur.matchEnd) {
			m.enterOwner(8, noReason)
		}
	case Claimed, Preempting:
		if m.due(m.cur.leaseEnd) && !m.lost && !m.atReap.lost {
			m.lose()
		}
		if m.backgroundOver() {
			m.irreversible, m.noRetirement = true, true
			m.leave(m.drain.reason(), false)
		}
		if m.due(m.stop.next) {
			m.climb()
		}
	case Backfill:
		if m.cur.waits() && m.due(m.cur.patience) {
			m.evict(causeEvict)
		}
		if m.place.Activity == Killing && m.due(m.backfillNext) {
			m.do(Action{Do: KillBackfillJob})
			m.backfillNext = m.now.Add(m.policy.killing)
		}
	}
}

// backgroundOver reports whether the time is over for a job that was accepted
// while the slot was being drained.
func (m *Machine) backgroundOver() bool {
	if m.place.State != Claimed || !m.cur.whileDraining || !m.drain.on || !m.due(m.drain.Until) {
		return false
	}
	switch m.place.Activity {
	case Busy, Suspended, Retiring:
		return true
	}
	return false
}

// due reports whether a time has come, which zero never does.
func (m *Machine) due(t time.Time) bool { return !t.IsZero() && !m.now.Before(t) }

// Next returns when Evaluate is due, unless something happens before. It is zero
// when nothing depends on time.
func (m *Machine) Next() time.Time {
	if m.held {
		return time.Time{}
	}
	var next time.Time
	soonest := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	soonest(m.tick)
	for _, c := range [...]*claim{m.pre, m.prePre} {
		if c != nil {
			soonest(c.patience)
			soonest(c.matchEnd)
		}
	}
	soonest(m.run.answerJobDone)
	switch m.place.State {
	case Unclaimed:
		if m.drain.on && m.drain.Start != nil {
			soonest(m.drain.Until.Add(-activationDelay))
		}
	case Matched:
		soonest(m.cur.matchEnd)
	case Claimed, Preempting:
		if !m.lost && !m.atReap.lost {
			soonest(m.cur.leaseEnd)
		}
		soonest(m.stop.next)
		soonest(m.retireAt)
		m.nextOfClaim(soonest)
	case Backfill:
		if m.cur.waits() {
			soonest(m.cur.patience)
		}
		if m.place.Activity == Killing {
			soonest(m.backfillNext)
		}
	}
	return next
}

// nextOfClaim are the times of the claim on a claimed slot.
func (m *Machine) nextOfClaim(soonest func(time.Time)) {
	if m.place.State != Claimed {
		return
	}
	if m.place.Activity == Idle {
		if end, ok := m.cur.workLifeEnd(m.policy.workLife); ok {
			soonest(end)
		}
		if m.cur.whileDraining {
			soonest(m.cur.since.Add(activationDelay))
		}
		return
	}
	if m.cur.whileDraining && m.drain.on && m.place.Activity != Cleaning {
		soonest(m.drain.Until)
	}
}

// again sets when the policy is looked at next, if there is a reason.
func (m *Machine) again() {
	m.tick, m.retireAt = time.Time{}, time.Time{}
	p := m.place
	switch p.State {
	case Matched, Drained, Deleted:
		return
	case Claimed:
		if m.moved && p.Activity != Idle && p.Activity != Cleaning {
			// The rest of the rules waits for the next tick.
			m.tick = m.now.Add(m.policy.poll)
		}
		if m.run.alive && p.Activity != Suspended && p.Activity != Cleaning && m.inRetirement() {
			if left := m.retirementRemaining(); left < forever {
				m.retireAt = m.now.Add(max(left-m.vacateTime(left), 0))
			}
		}
	}
	if !m.watched {
		m.watch()
	}
	if m.changes && m.tick.IsZero() {
		interval := m.policy.update
		if p.State == Claimed || p.State == Preempting {
			interval = m.policy.poll
		}
		m.tick = m.now.Add(interval)
	}
}

// What the policy is asked in each place.
var (
	askedFree      = []Expression{IsOwner, RunBenchmarks, StartBackfill}
	askedIdle      = []Expression{IsOwner}
	askedBusy      = []Expression{WantSuspend, SuspendWhen, PreemptWhen}
	askedSuspended = []Expression{PreemptWhen, ContinueWhen}
	askedRetiring  = []Expression{WantSuspend, SuspendWhen, PreemptWhen}
	askedRetire    = []Expression{MaxJobRetirementTime, MachineMaxVacateTime}
	askedVacating  = []Expression{KillWhen}
	askedBackfill  = []Expression{EvictBackfill}
)

// decisive returns the expressions that decide what happens next in a place.
func decisive(p Place) []Expression {
	switch p.State {
	case Owner, Unclaimed:
		return askedFree
	case Backfill:
		return askedBackfill
	case Preempting:
		if p.Activity == Vacating {
			return askedVacating
		}
	case Claimed:
		switch p.Activity {
		case Idle:
			return askedIdle
		case Busy:
			return askedBusy
		case Suspended:
			return askedSuspended
		case Retiring:
			return askedRetiring
		}
	}
	return nil
}

// matters reports whether an expression that is asked can make a difference.
func (m *Machine) matters(x Expression, j *classad.Ad) bool {
	if m.policy.rule(x, j).constant {
		return false
	}
	never := func(x Expression) bool { r := m.policy.rule(x, j); return r.constant && !r.value.True() }
	always := func(x Expression) bool { r := m.policy.rule(x, j); return r.constant && r.value.True() }
	switch x {
	case RunBenchmarks:
		return m.cfg.Benchmarks && m.place == Place{Unclaimed, Idle}
	case StartBackfill:
		return m.cfg.Backfill && m.place == Place{Unclaimed, Idle}
	case WantSuspend:
		return !never(SuspendWhen) || !never(PreemptWhen)
	case SuspendWhen:
		return !never(WantSuspend)
	case PreemptWhen:
		if m.place.Activity != Busy && m.run.preempted {
			return false
		}
		return m.place.Activity == Suspended || !always(WantSuspend)
	case ContinueWhen:
		return m.run.suspendedBy == byPolicy
	}
	return true
}

// watch finds out what the policy depends on in this place.
func (m *Machine) watch() {
	m.watched, m.changes, m.refs = true, false, classad.References{}
	var job *classad.Ad
	if m.policy.special {
		job = m.jobAd(m.job())
	}
	refer := func(x Expression) {
		m.refs = m.refs.And(m.policy.rule(x, job).expr.References(m.slotAd(), m.jobAd(m.job())))
	}
	for _, x := range decisive(m.place) {
		if m.matters(x, job) {
			refer(x)
		}
	}
	if m.place.State == Claimed && m.run.alive && m.inRetirement() {
		for _, x := range askedRetire {
			if !m.policy.rule(x, job).constant {
				refer(x)
			}
		}
	}
	if m.place.State == Unclaimed && m.drain.on && m.drain.Start != nil {
		m.refs = m.refs.And(m.drain.Start.References(m.slotAd(), nil))
	}
	m.changes = changesBySelf(m.refs)
}
