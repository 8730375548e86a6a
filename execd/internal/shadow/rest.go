package shadow

import (
	"context"
	"fmt"
	"time"

	"paddock/classad"
	"paddock/execd/api"
)

// restOn returns the claim of a user on what is left of a partitionable slot of a host; nil:
// there is none. While it lasts nobody else has slots carved there, so that it is given back
// as soon as nothing more is. s.mu is held.
func (s *Shadows) restOn(host, user string) *claim {
	for _, c := range s.claims {
		if c.rest != nil && c.Host == host && c.User == user && !c.closed && !c.spent {
			return c
		}
	}
	return nil
}

// carve asks for a slot for a job out of what is left, or reports that it does not fit there. s.mu
// is held.
func (s *Shadows) carve(h *host, c *claim, of class, r *api.SubmitRequest, work *classad.Ad, now time.Time) bool {
	domain := s.Domain()
	if travels(r) {
		domain = anyDomain
	}
	if unplugged(r, c.rest) != "" || unfit(work, c.rest, domain, now, &h.steps) != "" || short(work, c.rest, now, &h.steps) != "" {
		return false
	}
	c.rest = deducted(c.rest, work, now, &h.steps)
	s.send(h, of, &ask{on: api.SlotID(c.Slot), rest: c, ad: work.OldString()})
	return true
}

// keepRest takes over the claim on what is left that came with another; nil: none came.
func (s *Shadows) keepRest(ctx context.Context, h *host, of class, c *api.Claim, begun time.Time) *claim {
	if c == nil {
		return nil
	}
	ad, err := classad.ParseOld(c.Reply.Ad)
	if err == nil && len(c.Reply.Ad) > maxAd {
		err = fmt.Errorf("its ad has %d bytes", len(c.Reply.Ad))
	}
	if err != nil {
		ad = classad.New() // nothing is carved there, and it is given back
	}
	s.mu.Lock()
	had := s.claims[claimName{h.name, c.Reply.ID.String()}]
	if had != nil && had.rest != nil && !had.closed && had.ID == c.Reply.ID {
		had.rest, had.lease.tried, had.lease.renewed = ad, begun, begun
		s.mu.Unlock()
		return had
	}
	s.mu.Unlock()
	rest, err := s.enterClaim(ctx, h, class{owner: of.owner}, c, begun, ad)
	if err != nil {
		s.Host.Log.Debug(fmt.Sprintf("execd: host %s: cannot keep what is left of slot %s: %v", h.name, api.Visible(string(c.Reply.Slot)), err))
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims[rest.name()] = rest
	return rest
}

// isPartitionable reports whether an ad is that of a slot that others are carved out of.
func isPartitionable(slot *classad.Ad) bool {
	return (&classad.Env{My: slot}).Attr("PartitionableSlot").True()
}
