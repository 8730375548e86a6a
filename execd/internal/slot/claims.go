package slot

import "time"

// claim is the right to use the slot, or the offer of it.
type claim struct {
	number Number
	kind   Kind
	holder string
	job    Job // of the request, then what was activated last
	rank   float64

	since         time.Time // when it was claimed; zero: it is only offered or matched
	activated     int
	runTime       time.Duration // of activations that have ended
	stopTime      time.Duration
	lease         time.Duration // 0: for ever
	leaseEnd      time.Time
	matchEnd      time.Time // until when the matched claimant must present it; zero: it is not matched
	patience      time.Time // until when the claimant waits for the answer; zero: it does not wait
	unanswered    bool      // the only answer so far was HeldBack
	whileDraining bool      // accepted while the slot was being drained
	awaiting      bool      // fetched work was accepted, and has not been started
	accepted      time.Time // when fetched work was accepted
	why           Reason    // why it takes the slot from another claim
}

// waits reports whether the claimant waits for the slot.
func (c *claim) waits() bool { return c != nil && c.unanswered }

// awaitsActivation reports whether a claim that was made while the slot was being drained
// may still wait for its job.
func (c *claim) awaitsActivation(now time.Time) bool {
	return c.whileDraining && c.activated == 0 && now.Before(c.since.Add(activationDelay))
}

// workLifeEnd returns when the claim is too old, and false if it never is. A claim is good
// for at least one job.
func (c *claim) workLifeEnd(life time.Duration) (time.Time, bool) {
	if life < 0 || life == 0 && c.activated == 0 {
		return time.Time{}, false
	}
	end := c.since.Add(life)
	if start := c.accepted.Add(activationDelay); c.awaiting && end.Before(start) {
		end = start // work that was accepted in time is not refused
	}
	return end, true
}

// Claim describes a claim of a Machine.
type Claim struct {
	Number Number
	Kind   Kind
	Holder string
	Job    Job     // of the request, then what was activated last
	Rank   float64 // of it

	Since         time.Time // zero: it is only offered
	Activations   int
	Lease         time.Duration // 0: for ever
	LeaseEnd      time.Time
	WhileDraining bool // accepted while the slot was being drained
	Waiting       bool // the claimant waits for the slot
}

func (c *claim) exported() Claim {
	if c == nil {
		return Claim{}
	}
	return Claim{
		Number: c.number, Kind: c.kind, Holder: c.holder, Job: c.job, Rank: c.rank, Since: c.since,
		Activations: c.activated, Lease: c.lease, LeaseEnd: c.leaseEnd, WhileDraining: c.whileDraining, Waiting: c.waits(),
	}
}

// claims are the claim that has the slot and those that wait for it.
type claims struct {
	last        Number
	cur         *claim
	pre, prePre *claim // offered to claimants that would preempt cur, and then pre; nil unless Claimed or Preempting
}

// newClaim makes a claim to offer.
func (s *claims) newClaim() *claim {
	s.last++
	return &claim{number: s.last}
}

// role returns the claim with a number, nil if the slot has none.
func (s *claims) role(n Number) *claim {
	for _, c := range [...]*claim{s.cur, s.pre, s.prePre} {
		if c != nil && c.number == n && n != 0 {
			return c
		}
	}
	return nil
}

// Current returns the claim that has the slot, or is offered.
func (s *claims) Current() Claim { return s.cur.exported() }

// Preempting returns the claim that waits for the slot, or is offered to one that would:
// number 0 if there is none.
func (s *claims) Preempting() Claim { return s.pre.exported() }

// Offer returns the number of the claim that a new claimant must present.
func (s *claims) Offer() Number {
	switch {
	case s.prePre != nil:
		return s.prePre.number
	case s.pre != nil:
		return s.pre.number
	}
	return s.cur.number
}
