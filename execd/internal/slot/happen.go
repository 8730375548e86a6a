package slot

import "time"

func (Evaluate) happen(*Machine) {}

func (e Match) happen(m *Machine) {
	c := m.role(e.Claim)
	if c == nil || m.drain.on || m.broken != "" {
		return
	}
	switch m.place.State {
	case Owner, Unclaimed:
		c.matchEnd = m.now.Add(m.policy.match)
		m.stopBenchmarks()
		m.move(Place{Matched, Idle}, 6, noReason)
	case Claimed, Preempting:
		if c != m.cur && !c.waits() {
			c.matchEnd = m.now.Add(m.policy.match)
		}
	case Backfill:
		if m.cause != causeClaim {
			m.evict(causeMatch)
		}
	}
}

func (e Request) happen(m *Machine) {
	c := m.role(e.Claim)
	if c != nil {
		c.matchEnd = time.Time{}
	}
	why, text := m.refuses(c, e.Job)
	if why != noReason {
		m.refuse(e.Claim, why, text)
		if m.place.State == Matched && c == m.cur {
			m.enterOwner(8, why)
		}
		return
	}
	c.kind, c.holder, c.job, c.lease, c.rank = Queue, e.Holder, e.Job, e.Lease, m.rank(e.Job)
	switch m.place.State {
	case Owner, Unclaimed:
		m.becomeClaimed(5)
	case Matched:
		m.becomeClaimed(9)
	case Backfill:
		m.holdBack(c, m.now.Add(m.policy.Patience()))
		m.evict(causeClaim)
	case Claimed:
		m.displace(c, m.now.Add(m.policy.Patience()))
	}
}

// refuses returns why a request for a claim, which may be nil, is not granted.
func (m *Machine) refuses(c *claim, j Job) (Reason, string) {
	s := m.place.State
	switch {
	case m.drain.on && m.drain.Shutdown:
		return ReasonShutdown, ""
	case s == Preempting:
		return ReasonPreempted, ""
	case s == Drained, m.drain.on && !m.offeredWhileDraining():
		return ReasonDraining, ""
	case c == nil:
		return ReasonUnknownClaim, ""
	case s == Claimed && c == m.cur, c.waits():
		return ReasonOldClaim, "the claim was requested before"
	case s == Claimed && m.drain.on:
		return ReasonDraining, ""
	case m.broken != "":
		return ReasonBrokenSlot, "the slot is broken: " + m.broken
	case j == nil:
		return ReasonBadMessage, ""
	}
	if ok, text := m.willing(j); !ok {
		return ReasonNotWilling, text
	}
	if s != Claimed {
		return m.refusesNow()
	}
	if rank := m.rank(j); rank < m.cur.rank {
		return ReasonNotWilling, "RANK is lower than that of the claim on the slot"
	} else if m.pre.waits() && rank < m.pre.rank {
		return ReasonNotWilling, "RANK is lower than that of the claim that waits for the slot"
	}
	return noReason, ""
}

// refusesNow refuses where the policy would take the slot back at once.
func (m *Machine) refusesNow() (Reason, string) {
	if m.isOwner() {
		return ReasonNotWilling, "IS_OWNER is true"
	}
	return noReason, ""
}

// holdBack has a claim wait for the answer.
func (m *Machine) holdBack(c *claim, until time.Time) {
	c.unanswered, c.patience, c.matchEnd = true, until, time.Time{}
	m.about(HeldBack, c, noReason)
}

// displace has a claim wait for that on the slot, which it will replace. One that
// waited before is refused.
func (m *Machine) displace(c *claim, until time.Time) {
	over := m.cur
	if c == m.prePre {
		over = m.pre
	}
	c.why = ReasonPriorityPreempted
	if c.rank > over.rank {
		c.why = ReasonRankPreempted
	}
	if over == m.pre {
		m.refuse(over.number, c.why, "")
		m.about(Dropped, over, c.why)
		if c.rank > m.cur.rank {
			c.why = ReasonRankPreempted
		} else {
			c.why = ReasonPriorityPreempted
		}
	}
	m.pre = c
	m.holdBack(c, until)
	m.prePre = m.offer()
}

// becomeClaimed gives the slot to the current claim.
func (m *Machine) becomeClaimed(row int) {
	c := m.cur
	c.since, c.unanswered, c.patience, c.matchEnd = m.now, false, time.Time{}, time.Time{}
	c.whileDraining = m.drain.on
	if c.lease > 0 {
		c.leaseEnd = m.now.Add(c.lease)
	}
	m.stopBenchmarks()
	m.cause = noCause
	m.leaving = noReason
	m.move(Place{Claimed, Idle}, row, noReason)
	m.about(Accepted, c, noReason)
	m.pre = m.offer()
	if c.kind == Fetch {
		m.spawn()
	}
}

// spawn wants the work started for which the claim was accepted.
func (m *Machine) spawn() {
	m.cur.awaiting, m.cur.accepted = true, m.now
	m.about(Spawn, m.cur, noReason)
}

// drop forgets a claim that waits, or an offer.
func (m *Machine) drop(c *claim, why Reason) {
	if c.waits() && why != noReason {
		m.refuse(c.number, why, "")
	}
	m.about(Dropped, c, why)
	if c == m.prePre {
		m.prePre = m.offer()
		return
	}
	m.pre, m.prePre = m.prePre, nil
	if m.pre == nil {
		m.pre = m.offer()
	}
}

func (e Gone) happen(m *Machine) { m.goAway(e.Claim, ReasonAgentException, noReason) }

func (e Release) happen(m *Machine) { m.goAway(e.Claim, ReasonReleased, ReasonReleased) }

// goAway ends a claim that its holder does not want any more. A holder that waits gets
// the answer, unless it is noReason.
func (m *Machine) goAway(n Number, why, answer Reason) {
	c := m.role(n)
	switch {
	case c == nil:
	case c != m.cur:
		m.drop(c, answer)
	case m.place.State == Matched:
		m.enterOwner(8, why)
	case m.place.State == Claimed:
		// Who only waited for an answer that was on its way has nothing running.
		m.leave(why, true)
	case m.place == (Place{Preempting, Vacating}):
		m.leaving = why
		m.kill(why)
	case m.place.State == Backfill && m.cause != noCause:
		m.renumber(answer)
		m.evict(causeEvict)
	}
}

func (e Activate) happen(m *Machine) {
	c := m.role(e.Claim)
	switch {
	case e.Job == nil:
		m.refuse(e.Claim, ReasonBadMessage, "")
	case m.drain.on && m.drain.Shutdown:
		m.refuse(e.Claim, ReasonShutdown, "")
	case c == nil || c != m.cur:
		m.refuse(e.Claim, ReasonUnknownClaim, "")
	case m.place.State != Claimed:
		m.refuse(e.Claim, ReasonNotClaimed, "")
	case m.place.Activity == Cleaning:
		m.about(TryAgain, c, ReasonStillRemoving)
	case m.place.Activity != Idle:
		m.refuse(e.Claim, ReasonNotIdle, "")
	case m.workLifeOver():
		m.refuse(e.Claim, ReasonWorkLifeOver, "")
	default:
		m.activate(c, e.Job)
	}
}

// activate starts a job if it suits the slot.
func (m *Machine) activate(c *claim, j Job) {
	if ad := m.jobAd(j); ad != nil && c.kind == Queue {
		if _, ok := ad.Lookup("JobUniverse"); !ok {
			m.refuse(c.number, ReasonNotWilling, "the job has no JobUniverse")
			return
		}
	}
	if ok, text := m.willing(j); !ok {
		m.refuse(c.number, ReasonNotWilling, text)
		return
	}
	if m.broken != "" {
		m.refuse(c.number, ReasonBrokenSlot, "the slot is broken: "+m.broken)
		return
	}
	c.job, c.rank, c.awaiting = j, m.rank(j), false
	c.activated++
	m.run = run{alive: true, begun: m.now}
	m.stop, m.atReap = ladder{}, remembered{}
	m.move(Place{Claimed, Busy}, 11, noReason)
	m.about(Accepted, c, noReason)
	if m.demand {
		m.suspend(byDemand)
	}
}

func (e Deactivate) happen(m *Machine) {
	c := m.role(e.Claim)
	if c == nil || c != m.cur || m.place.State != Claimed && m.place.State != Preempting {
		m.refuse(e.Claim, ReasonUnknownClaim, "")
		return
	}
	again := m.MayActivateAgain(m.now)
	if !again && m.place.State == Claimed && m.atReap.why == noReason {
		// As if the claim had been released, which nobody will say.
		m.atReap = remembered{why: ReasonDeactivated, hard: true}
	}
	if !m.run.alive || m.place.State == Preempting {
		m.do(Action{Do: Deactivated, Claim: c.number, Kind: c.kind, Again: again, StillCleaning: m.run.alive})
		if !again && m.place == (Place{Claimed, Idle}) {
			m.leave(ReasonDeactivated, true)
		}
		return
	}
	if e.How == JobDone {
		m.run.answerJobDone = m.now.Add(jobDoneWait)
		return
	}
	m.do(Action{Do: Deactivated, Claim: c.number, Kind: c.kind, Again: again, StillCleaning: m.run.final})
	if m.run.final {
		return
	}
	if m.place.Activity == Suspended {
		m.goOn()
	}
	switch {
	case e.How == Forcible && m.stop.step < killed:
		m.killJob(ReasonDeactivated)
	case e.How == Graceful && m.stop.step == notStopping:
		m.ask(ReasonDeactivated, m.vacateTime(m.retirementRemaining()))
	}
}

// answerJobDone answers a Deactivate that waits for the shepherd.
func (m *Machine) answerJobDone() {
	if m.run.answerJobDone.IsZero() {
		return
	}
	m.run.answerJobDone = time.Time{}
	again := m.atReap.why == noReason && m.MayActivateAgain(m.now)
	m.do(Action{Do: Deactivated, Claim: m.cur.number, Kind: m.cur.kind, Again: again, StillCleaning: m.run.alive})
}

// MayActivateAgain reports whether another job may be started under the current
// claim when this one has ended, as far as is known now.
func (m *Machine) MayActivateAgain(now time.Time) bool {
	if now.After(m.now) {
		m.now = now
	}
	return m.place.State == Claimed && m.place.Activity != Retiring && !m.inRetirement() && !m.drain.on && !m.workLifeOver() && m.atReap.why == noReason
}

func (e Renew) happen(m *Machine) {
	c := m.role(e.Claim)
	if c == nil {
		return
	}
	c.lease, c.leaseEnd = e.Lease, time.Time{}
	if c.lease > 0 && !c.since.IsZero() {
		c.leaseEnd = m.now.Add(e.Left)
	}
}

func (Settle) happen(m *Machine) { m.held = false }

func (e Lost) happen(m *Machine) {
	switch c := m.role(e.Claim); c {
	case nil:
	case m.cur:
		m.lose()
	default:
		m.drop(c, ReasonReconnectFailed)
	}
}

// lose ends the current claim, whose holder is gone: nobody is told, and nothing
// is asked to end.
func (m *Machine) lose() {
	switch m.place.State {
	case Matched:
		m.enterOwner(8, ReasonReconnectFailed)
	case Claimed:
		m.lost = true
		m.leave(ReasonReconnectFailed, true)
	case Preempting:
		m.lost = true
		if m.place.Activity == Vacating {
			m.kill(ReasonReconnectFailed)
		}
	}
}

func (e Suspend) happen(m *Machine) {
	if e.Claim != m.cur.number || m.place.State != Claimed {
		return
	}
	switch m.place.Activity {
	case Busy, Retiring:
		m.suspend(byCommand)
	case Suspended:
		if m.run.suspendedBy == byPolicy {
			m.run.suspendedBy = byCommand
		}
		m.run.held = true
	}
}

func (e Continue) happen(m *Machine) {
	if e.Claim != m.cur.number || m.place != (Place{Claimed, Suspended}) {
		return
	}
	m.run.held = false
	if m.run.suspendedBy == byCommand {
		m.goOn()
	}
}

func (e OnDemand) happen(m *Machine) {
	if m.demand == e.On {
		return
	}
	m.demand = e.On
	if m.place.State != Claimed {
		return
	}
	switch a := m.place.Activity; {
	case e.On && (a == Busy || a == Retiring):
		m.run.held = false
		m.suspend(byDemand)
	case e.On && a == Suspended:
		m.run.held = m.run.suspendedBy == byCommand
		m.run.suspendedBy = byDemand
	case a == Suspended && m.run.suspendedBy == byDemand && m.run.held:
		m.run.suspendedBy = byCommand
	case a == Suspended && m.run.suspendedBy == byDemand:
		m.goOn()
	}
}

func (e Vacate) happen(m *Machine) {
	why := e.Reason
	if why == noReason {
		why = ReasonVacateCommand
	}
	switch m.place.State {
	case Matched:
		m.enterOwner(8, why)
	case Claimed:
		m.leave(why, e.Fast)
	case Preempting:
		if e.Fast && m.place.Activity == Vacating {
			m.kill(why)
		}
	case Backfill:
		m.evict(causeEvict)
	}
}

func (e FinalUpdate) happen(m *Machine) {
	if !m.run.alive || e.Claim != m.cur.number {
		return
	}
	m.run.final = true
	if m.place.State != Claimed {
		return
	}
	if m.place.Activity == Suspended {
		m.wake()
	}
	if m.place.Activity == Busy {
		m.stop = ladder{}
		m.move(Place{Claimed, Cleaning}, 12, noReason)
	}
}

// wake ends the suspension of a job that goes on, or has ended.
func (m *Machine) wake() {
	m.run.wake(m.now)
	if m.inRetirement() {
		m.move(Place{Claimed, Retiring}, 16, m.retirementReason())
	} else {
		m.move(Place{Claimed, Busy}, 15, noReason)
	}
}

func (e Exited) happen(m *Machine) {
	if !m.run.alive || e.Claim != m.cur.number {
		return
	}
	ran, stopped := m.run.times(m.now)
	m.cur.runTime += ran
	m.cur.stopTime += stopped
	m.run.alive = false
	m.stop = ladder{}
	m.answerJobDone()
	if m.place.State == Preempting {
		m.leavePreempting()
		return
	}
	if m.place.Activity == Suspended {
		m.wake()
	}
	if m.place.Activity == Retiring {
		if m.inRetirement() {
			m.enterPreempting(18, m.retirementReason(), false)
			return
		}
		m.move(Place{Claimed, Busy}, 19, noReason)
	}
	m.move(Place{Claimed, Idle}, 12, noReason)
	m.becomeIdle()
}

// becomeIdle is what follows the end of a job under its claim.
func (m *Machine) becomeIdle() {
	r := m.atReap
	m.run, m.atReap, m.irreversible, m.noRetirement, m.leaving = run{}, remembered{}, false, false, noReason
	if r.why != noReason {
		m.lost = r.lost
		m.leave(r.why, r.hard)
		return
	}
	if m.cur.kind == Fetch && !m.pre.waits() && !m.drain.on && !m.workLifeOver() && !m.isOwner() {
		m.about(Ask, m.cur, noReason)
	}
}

func (e SignalFailed) happen(m *Machine) {
	if !m.run.alive || e.Claim != m.cur.number {
		return
	}
	if m.place == (Place{Preempting, Vacating}) {
		m.move(Place{Preempting, Killing}, 21, ReasonShepherdError)
	}
	m.killFamily()
}

func (BenchmarksDone) happen(m *Machine) {
	if m.place == (Place{Unclaimed, Benchmarking}) {
		m.move(Place{Unclaimed, Idle}, 4, noReason)
	}
}

func (e Break) happen(m *Machine) { m.broken = e.Text }
