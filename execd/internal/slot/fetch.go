package slot

import (
	"time"

	"paddock/classad"
)

// FetchHolder is who holds the claims of fetched work.
const FetchHolder = "fetch"

// Decision says what becomes of work that was fetched.
type Decision struct {
	Accept   bool
	Claim    Number // that it would have
	Preempts bool   // somebody has to go first
	Reason   Reason // of a refusal
	Text     string
}

func reject(why Reason, text string) Decision {
	if text == "" {
		text = why.String()
	}
	return Decision{Reason: why, Text: text}
}

// DecideWith says what becomes of fetched work if it is offered now, and changes
// nothing. User priority plays no part: work must be of higher RANK to take the
// slot from other work. The ad is the slot's, if the caller has made it already.
func (m *Machine) DecideWith(now time.Time, j Job, ad *classad.Ad) Decision {
	m.begin(now)
	m.ads.slot = ad
	d := m.decide(j)
	m.ads = ads{}
	return d
}

func (m *Machine) decide(j Job) Decision {
	s := m.place.State
	switch {
	case m.drain.on && m.drain.Shutdown:
		return reject(ReasonShutdown, "")
	case s == Drained, m.drain.on && (s == Claimed || !m.offeredWhileDraining()):
		return reject(ReasonDraining, "")
	case s == Matched:
		return reject(ReasonNotIdle, "the slot is promised to somebody else")
	case s == Preempting:
		return reject(ReasonPreempted, "")
	case s == Deleted:
		return reject(ReasonUnknownClaim, "")
	case m.broken != "":
		return reject(ReasonBrokenSlot, "the slot is broken: "+m.broken)
	case s == Backfill && m.cause != noCause:
		return reject(ReasonNotIdle, "the slot is being freed for somebody else")
	}
	if ok, text := m.willing(j); !ok {
		return reject(ReasonNotWilling, text)
	}
	if s != Claimed {
		if why, text := m.refusesNow(); why != noReason {
			return reject(why, text)
		}
		return Decision{Accept: true, Claim: m.cur.number, Preempts: s == Backfill}
	}
	if m.asksForMore() {
		if m.workLifeOver() {
			return reject(ReasonWorkLifeOver, "")
		}
		return Decision{Accept: true, Claim: m.cur.number}
	}
	rank := m.rank(j)
	if !(rank > m.cur.rank) {
		return reject(ReasonNotWilling, "RANK is not higher than that of the claim on the slot")
	}
	if m.pre.waits() && !(rank > m.pre.rank) {
		return reject(ReasonNotWilling, "RANK is not higher than that of the claim that waits for the slot")
	}
	return Decision{Accept: true, Claim: m.Offer(), Preempts: true}
}

// asksForMore reports whether the slot has a claim of fetched work and nothing
// to do.
func (m *Machine) asksForMore() bool {
	return m.place == (Place{Claimed, Idle}) && m.cur.kind == Fetch && !m.cur.awaiting && !m.pre.waits()
}

func (FetchBegan) happen(m *Machine) { m.fetching++ }

func (FetchStopped) happen(m *Machine) { m.fetching = max(m.fetching-1, 0) }

func (e FetchEnded) happen(m *Machine) {
	m.fetching = max(m.fetching-1, 0)
	if e.Job != nil {
		d := m.decide(e.Job)
		if d.Accept {
			m.accept(e.Job, d)
			return
		}
		m.refuse(d.Claim, d.Reason, d.Text)
	}
	if m.asksForMore() {
		m.leave(ReasonReleased, false)
	}
}

// accept takes fetched work.
func (m *Machine) accept(j Job, d Decision) {
	c := m.role(d.Claim)
	again := m.place.State == Claimed && c == m.cur
	c.kind, c.holder, c.job, c.rank, c.lease, c.leaseEnd = Fetch, FetchHolder, j, m.rank(j), 0, time.Time{}
	switch {
	case again:
		m.about(Accepted, c, noReason)
		m.spawn()
	case m.place.State == Claimed:
		m.displace(c, time.Time{})
	case m.place.State == Backfill:
		m.holdBack(c, time.Time{})
		m.evict(causeClaim)
	default:
		m.becomeClaimed(5)
	}
}

func (e NoWork) happen(m *Machine) {
	c := m.role(e.Claim)
	switch {
	case c == nil || c.kind != Fetch:
	case c != m.cur:
		m.drop(c, noReason)
	case m.place == (Place{Claimed, Idle}):
		c.awaiting = false
		m.leave(ReasonReleased, false)
	case m.place.State == Backfill && m.cause == causeClaim:
		m.renumber(noReason)
		m.evict(causeEvict)
	}
}
