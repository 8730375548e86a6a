package slot

// backfillCause is why a slot leaves Backfill.
type backfillCause uint8

const (
	noCause backfillCause = iota
	causeEvict
	causeMatch
	causeClaim
)

// evict removes what fills the slot, for a cause that takes the place of another.
func (m *Machine) evict(why backfillCause) {
	if why != causeClaim && m.cur.waits() {
		m.renumber(ReasonPreempted)
	}
	m.cause = why
	switch m.place.Activity {
	case Busy:
		m.do(Action{Do: KillBackfillJob})
		m.move(Place{Backfill, Killing}, 28, noReason)
		m.backfillNext = m.now.Add(m.policy.killing)
	case Idle:
		// It may be about to start.
		m.do(Action{Do: KillBackfillJob})
		m.settle()
	}
}

// renumber drops the current claim of a slot that is not claimed. Who waits for
// it gets an answer unless it is noReason.
func (m *Machine) renumber(answer Reason) {
	if m.cur.waits() && answer != noReason {
		m.refuse(m.cur.number, answer, "")
	}
	m.about(Dropped, m.cur, answer)
	m.cur = m.offer()
}

// settle leaves Backfill for its cause.
func (m *Machine) settle() {
	switch m.cause {
	case causeClaim:
		if why, text := m.refusesNow(); why != noReason {
			m.refuse(m.cur.number, why, text)
			m.cur.unanswered = false
			m.enterOwner(30, why)
			return
		}
		m.becomeClaimed(31)
	case causeMatch:
		m.cause = noCause
		m.cur.matchEnd = m.now.Add(m.policy.match)
		m.move(Place{Matched, Idle}, 32, noReason)
	default:
		m.enterOwner(30, ReasonVacateCommand)
	}
}

func (BackfillStarted) happen(m *Machine) {
	switch m.place {
	case Place{Backfill, Idle}:
		m.move(Place{Backfill, Busy}, 26, noReason)
	case Place{Backfill, Busy}, Place{Backfill, Killing}:
	default:
		m.do(Action{Do: KillBackfillJob}) // too late
	}
}

func (BackfillEnded) happen(m *Machine) {
	switch m.place {
	case Place{Backfill, Busy}:
		m.move(Place{Backfill, Idle}, 27, noReason)
		m.do(Action{Do: StartBackfillJob})
	case Place{Backfill, Killing}:
		m.move(Place{Backfill, Idle}, 29, noReason)
		m.settle()
	}
}
