package shadow

import (
	"context"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/shadow/match"
	"paddock/execd/internal/shadow/remote"
)

// restOn returns the claim of a user on what is left of a partitionable slot of a host; nil:
// there is none. While it lasts nobody else has slots carved there, so that it is given back
// as soon as nothing more is. core.mu is held.
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
func (s *Shadows) carve(h *host, c *claim, of match.Class, search *match.Search) bool {
	left := search.Carve(c.rest)
	if left == nil {
		return false
	}
	c.rest = left
	s.send(h, of, &ask{on: api.SlotID(c.Slot), rest: c, ad: search.Ad.OldString()})
	return true
}

// keepRest takes over the claim on what is left that came with another; nil: none came.
func (s *Shadows) keepRest(ctx context.Context, h *host, of match.Class, c *api.Claim, begun time.Time) *claim {
	if c == nil {
		return nil
	}
	ad := match.Rest(c.Reply.Ad)
	s.mu.Lock()
	had := s.claims[remote.Name{Host: h.name, Public: c.Reply.ID.String()}]
	if had != nil && had.rest != nil && !had.closed && had.ID == c.Reply.ID {
		had.rest, had.lease.tried, had.lease.renewed = ad, begun, begun
		s.mu.Unlock()
		return had
	}
	s.mu.Unlock()
	rest, err := s.enterClaim(ctx, h, match.Class{Owner: of.Owner}, c, begun, ad)
	if err != nil {
		s.debugf("execd: host %s: cannot keep what is left of slot %s: %v", h.name, api.Visible(string(c.Reply.Slot)), err)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims[rest.Name()] = rest
	return rest
}
