package slot

import "time"

// evaluate applies the policy once.
func (m *Machine) evaluate() {
	switch m.place.State {
	case Owner:
		m.evaluateOwner()
	case Unclaimed:
		m.evaluateUnclaimed()
	case Claimed:
		m.evaluateClaimed()
	case Preempting:
		m.evaluatePreempting()
	case Backfill:
		if m.cause == noCause && m.eval(EvictBackfill, nil).True() {
			m.evict(causeEvict)
		}
	}
	m.again()
}

func (m *Machine) evaluateOwner() {
	switch {
	case m.cfg.Dynamic && m.delete():
	case m.drain.on && !m.offeredWhileDraining():
		m.move(Place{Drained, Retiring}, 36, m.drain.reason())
	case !m.cfg.Dynamic && !m.isOwner():
		m.move(Place{Unclaimed, Idle}, 1, noReason)
		m.evaluateUnclaimed()
	}
}

func (m *Machine) evaluateUnclaimed() {
	if m.cfg.Dynamic && m.delete() {
		return
	}
	// While work may still begin, a slot that is drained stays on offer.
	if m.drain.on && !m.offeredWhileDraining() {
		m.stopBenchmarks()
		m.move(Place{Drained, Retiring}, 37, m.drain.reason())
		return
	}
	if m.isOwner() {
		if m.place.Activity == Benchmarking {
			m.stopBenchmarks()
			m.move(Place{Unclaimed, Idle}, 4, noReason)
		}
		m.move(Place{Owner, Idle}, 2, noReason)
		return
	}
	if m.place.Activity != Idle || m.drain.on || m.broken != "" {
		return
	}
	switch {
	case m.cfg.Benchmarks && m.eval(RunBenchmarks, nil).True():
		m.do(Action{Do: StartBenchmarks})
		m.move(Place{Unclaimed, Benchmarking}, 3, noReason)
	case m.cfg.Backfill && m.eval(StartBackfill, nil).True():
		m.move(Place{Backfill, Idle}, 7, noReason)
		m.do(Action{Do: StartBackfillJob})
	}
}

// delete ends a dynamic slot, and reports whether nothing keeps it.
func (m *Machine) delete() bool {
	if m.fetching > 0 || m.broken != "" && m.cfg.KeepBroken {
		return false
	}
	m.stopBenchmarks()
	m.move(Place{Deleted, Idle}, DeleteRow, noReason)
	m.about(Dropped, m.cur, noReason)
	return true
}

// stopBenchmarks ends what runs while the slot is on offer, which is about to be
// left.
func (m *Machine) stopBenchmarks() {
	if m.place.Activity == Benchmarking {
		m.do(Action{Do: StopBenchmarks})
	}
}

// evaluateClaimed goes through the rules of a claimed slot. The first that hits
// is the only one.
func (m *Machine) evaluateClaimed() {
	if m.place.Activity == Idle {
		m.evaluateIdle()
		return
	}
	if m.moved {
		return // at the next tick
	}
	a := m.place.Activity
	if a == Cleaning || a == Suspended && m.run.suspendedBy == byDemand {
		return
	}
	if m.inRetirement() && m.retirementOver() {
		m.leave(m.retirementReason(), m.drain.on && m.drain.Speed == DrainFast)
		return
	}
	if m.considerPreempt() && m.is(PreemptWhen) {
		m.run.preempted, m.irreversible = true, true
		m.leaving = ReasonPreemptPolicy
		switch a {
		case Busy:
			m.move(Place{Claimed, Retiring}, 13, ReasonPreemptPolicy)
		case Suspended:
			m.resume()
			m.move(Place{Claimed, Retiring}, 16, ReasonPreemptPolicy)
		case Retiring: // it is there, and now for good
			m.moved = true
		}
		return
	}
	switch {
	case a == Retiring && !m.inRetirement():
		m.leaving = noReason
		m.move(Place{Claimed, Busy}, 19, noReason)
	case (a == Busy || a == Retiring) && m.is(WantSuspend) && m.is(SuspendWhen):
		m.suspend(byPolicy)
	case a == Suspended && m.run.suspendedBy == byPolicy && m.is(ContinueWhen):
		m.goOn()
	case a == Busy && m.pre.waits():
		m.beginRetirement(m.pre.why)
	}
}

// considerPreempt reports whether PREEMPT is looked at: a job that may be
// suspended is suspended first, and what was true once is not asked again.
func (m *Machine) considerPreempt() bool {
	switch m.place.Activity {
	case Busy:
		return !m.is(WantSuspend)
	case Retiring:
		return !m.run.preempted && !m.is(WantSuspend)
	case Suspended:
		return !m.run.preempted
	}
	return false
}

// evaluateIdle takes an idle slot from its holder if there is a reason.
func (m *Machine) evaluateIdle() {
	switch {
	case m.pre.waits():
		m.leave(m.pre.why, false)
	case m.isOwner():
		m.leave(ReasonSystemPolicyVacate, false)
	case m.workLifeOver():
		m.leave(ReasonWorkLifeOver, false)
	case m.drain.on && !m.cur.awaitsActivation(m.now):
		m.leave(m.drain.reason(), m.drain.Speed == DrainFast)
	}
}

// workLifeOver reports whether the claim is too old for another job.
func (m *Machine) workLifeOver() bool {
	end, ok := m.cur.workLifeEnd(m.policy.workLife)
	return ok && !m.now.Before(end)
}

// evaluatePreempting kills a job that is too slow to leave.
func (m *Machine) evaluatePreempting() {
	if m.place.Activity == Vacating && !m.moved && m.is(KillWhen) {
		m.kill(ReasonSystemPolicyVacate)
	}
}

// Retirement.

// inRetirement reports whether the job that runs is to leave: somebody waits for the
// slot, or PREEMPT or a drain has decided so.
func (m *Machine) inRetirement() bool { return m.irreversible || m.pre.waits() }

// retirementReason says why the job is in retirement.
func (m *Machine) retirementReason() Reason {
	switch {
	case m.leaving != noReason:
		return m.leaving
	case m.pre.waits():
		return m.pre.why
	}
	return ReasonPreemptPolicy
}

// RetirementRemaining returns how much of the time in which it may finish is left to
// the job that runs, whether or not anything wants it to end.
func (m *Machine) RetirementRemaining(now time.Time) time.Duration {
	m.begin(now)
	return m.retirementRemaining()
}

func (m *Machine) retirementRemaining() time.Duration {
	j := m.job()
	if j == nil || m.noRetirement {
		return 0
	}
	limit := seconds(m.eval(MaxJobRetirementTime, j))
	if limit >= 0 && m.drain.on && m.drain.Peaceful && m.drain.Speed == DrainGraceful {
		limit = forever
	}
	if limit <= 0 {
		return 0
	}
	if ad := m.jobAd(j); ad != nil {
		if _, ok := ad.Lookup("MaxJobRetirementTime"); ok {
			limit = min(limit, seconds(m.jobValue(j, "MaxJobRetirementTime")))
		}
	}
	if limit >= forever {
		return forever
	}
	ran, _ := m.run.times(m.now)
	return max(limit-ran, 0)
}

// retirementOver reports whether it is time to begin vacating, so that the job is
// gone when the time of retirement is over.
func (m *Machine) retirementOver() bool {
	left := m.retirementRemaining()
	return left < forever && left <= m.vacateTime(left)
}

// vacateTime is the time that the machine gives and the job wants, the shorter
// one. A job that wants more may have what is left of its retirement.
func (m *Machine) vacateTime(retirement time.Duration) time.Duration {
	j := m.job()
	if j == nil {
		return 0
	}
	limit := max(seconds(m.eval(MachineMaxVacateTime, j)), 0)
	ad := m.jobAd(j)
	if ad == nil {
		return limit
	}
	if _, ok := ad.Lookup("JobMaxVacateTime"); !ok {
		return limit
	}
	wish := max(seconds(m.jobValue(j, "JobMaxVacateTime")), 0)
	if wish <= limit {
		return wish
	}
	return min(wish, max(limit, retirement))
}

// suspend stops the job.
func (m *Machine) suspend(by suspension) {
	row := 14
	if m.place.Activity == Retiring {
		row = 20
	}
	m.run.suspendedBy = by
	m.run.suspended = m.now
	m.about(SuspendJob, m.cur, noReason)
	m.move(Place{Claimed, Suspended}, row, noReason)
}

// resume lets the job go on.
func (m *Machine) resume() {
	if m.run.suspended.IsZero() {
		return
	}
	m.run.wake(m.now)
	m.about(ResumeJob, m.cur, noReason)
}

// goOn ends a suspension.
func (m *Machine) goOn() {
	m.resume()
	m.wake()
}

// beginRetirement lets a job that runs finish, within limits.
func (m *Machine) beginRetirement(why Reason) {
	m.leaving = why
	if !m.irreversible {
		m.leaving = noReason // of the claim that waits, as long as it does
	}
	m.move(Place{Claimed, Retiring}, 13, why)
}

// leave takes the slot out of Claimed, whatever goes on there. While a
// shepherd is cleaning up that has to wait.
func (m *Machine) leave(why Reason, hard bool) {
	switch m.place.Activity {
	case Cleaning:
		if m.atReap.why == noReason {
			m.atReap.why = why
		}
		m.atReap.hard = m.atReap.hard || hard
		m.atReap.lost = m.atReap.lost || m.lost
	case Idle:
		m.enterPreempting(10, why, hard)
	case Busy:
		m.move(Place{Claimed, Retiring}, 13, why)
		m.enterPreempting(18, why, hard)
	case Retiring:
		m.enterPreempting(18, why, hard)
	case Suspended:
		// It is resumed first: a process that is stopped cannot end.
		m.resume()
		m.enterPreempting(17, why, hard)
	}
}

// enterPreempting begins to remove what runs.
func (m *Machine) enterPreempting(row int, why Reason, hard bool) {
	vacate := m.vacateTime(m.retirementRemaining())
	hold, held := m.wantHold()
	to := Place{Preempting, Killing}
	if j := m.job(); !hard && (j == nil || m.isOrTaken(WantVacate, j)) {
		to.Activity = Vacating
	}
	m.leaving = why
	m.move(to, row, why)
	if !m.run.alive {
		m.leavePreempting()
		return
	}
	if held {
		m.do(hold)
	}
	// It may have been asked to end already.
	switch {
	case to.Activity == Killing && m.stop.step < killed:
		m.killJob(why)
	case to.Activity == Vacating && m.stop.step == notStopping:
		m.ask(why, vacate)
	}
}

// wantHold returns the action that puts a job on hold that has to leave by PREEMPT, and
// false if it is not put on hold.
func (m *Machine) wantHold() (Action, bool) {
	if !m.run.preempted || !m.run.alive || m.run.final || !m.is(WantHold) {
		return Action{}, false
	}
	a := Action{Do: HoldJob, Claim: m.cur.number, Kind: m.cur.kind, Reason: ReasonPreemptPolicy, Code: HoldByPolicy}
	a.Text, _ = m.eval(WantHoldReason, m.job()).Str()
	if a.Text == "" {
		a.Text = "the policy of the slot put the job on hold"
	}
	if n, ok := m.eval(WantHoldSubcode, m.job()).Int(); ok && int64(int(n)) == n {
		a.Subcode = int(n)
	}
	return a, true
}

// The ladder: a job is asked to end, killed, and then all that it has started.

// ask asks the job to end.
func (m *Machine) ask(why Reason, within time.Duration) {
	m.stop = ladder{asked, m.now.Add(within)}
	if !m.run.final {
		m.do(Action{Do: StopJob, Claim: m.cur.number, Kind: m.cur.kind, Reason: why, Until: m.stop.next})
	}
}

// killJob kills the job.
func (m *Machine) killJob(why Reason) {
	m.about(KillJob, m.cur, why)
	m.stop = ladder{killed, m.now.Add(m.policy.killing)}
}

// killFamily kills everything that the job has started. It is repeated.
func (m *Machine) killFamily() {
	m.about(KillFamily, m.cur, m.leaving)
	m.stop = ladder{familyKilled, m.now.Add(m.policy.killing)}
}

// kill goes from asking to killing.
func (m *Machine) kill(why Reason) {
	if m.place == (Place{Preempting, Vacating}) {
		m.move(Place{Preempting, Killing}, 21, why)
	}
	m.killJob(why)
}

// climb takes the next step of the ladder.
func (m *Machine) climb() {
	switch m.stop.step {
	case asked:
		why := m.leaving
		if why == noReason {
			why = ReasonDeactivated
		}
		m.kill(why)
	case killed, familyKilled:
		m.killFamily()
	}
}

// leavePreempting gives the slot to the claim that waits for it, if there is one.
func (m *Machine) leavePreempting() {
	if !m.lost {
		m.about(Broken, m.cur, m.leaving)
	}
	soft := m.place.Activity == Vacating
	if m.welcome() {
		c := m.pre
		m.forget()
		m.about(Dropped, m.cur, m.leaving)
		if m.prePre != nil {
			m.about(Dropped, m.prePre, noReason)
		}
		m.cur, m.pre, m.prePre = c, nil, nil
		row := 24
		if soft {
			row = 23
		}
		m.becomeClaimed(row)
		return
	}
	row := 25
	if soft {
		row = 22
	}
	m.enterOwner(row, m.leaving)
}

// welcome reports whether a claim waits for the slot that the slot accepts.
func (m *Machine) welcome() bool {
	if !m.pre.waits() || m.drain.on || m.broken != "" {
		return false
	}
	return !isFalse(m.start(m.pre.job)) && !m.isOwner()
}

// forget drops what belonged to the claim that has ended.
func (m *Machine) forget() {
	m.run, m.stop, m.atReap = run{}, ladder{}, remembered{}
	m.irreversible, m.noRetirement, m.lost = false, false, false
}

// enterOwner ends all claims and begins a new offer.
func (m *Machine) enterOwner(row int, why Reason) {
	m.move(Place{Owner, Idle}, row, why)
	m.forget()
	m.dropWaiting()
	m.about(Dropped, m.cur, why)
	m.leaving, m.cause = noReason, noCause
	m.cur = m.offer()
	m.evaluateOwner()
}

// dropWaiting refuses the claims that wait, and withdraws the offers.
func (m *Machine) dropWaiting() {
	for _, c := range [...]*claim{m.pre, m.prePre} {
		if c == nil {
			continue
		}
		if c.waits() {
			m.refuse(c.number, ReasonPreempted, "")
		}
		m.about(Dropped, c, ReasonPreempted)
	}
	m.pre, m.prePre = nil, nil
}
