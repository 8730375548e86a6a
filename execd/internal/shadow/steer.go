package shadow

import (
	"cmp"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/shadow/match"
)

// Elsewhere reports whether a pattern of -q may mean a queue of another host. One that was
// never heard of may have any.
func (s *Shadows) Elsewhere(pattern string) bool {
	c := s.Host.Config()
	name, host, at := strings.Cut(pattern, "@")
	return slices.ContainsFunc(s.Peers(), func(p api.PeerStatus) bool {
		return (!at || schedule.MatchesHost(c, p.Name, host)) &&
			(p.Queues == nil || slices.ContainsFunc(p.Queues, func(q api.QueueStatus) bool { return schedule.Matches(name, q.Name) }))
	})
}

// Away reports whether a request names queues or hosts, and of these only other hosts. The
// error refuses it: its job may not leave.
func (s *Shadows) Away(r *api.SubmitRequest) (bool, error) {
	peers := s.Peers()
	if len(peers) == 0 || !schedule.Steered(s.Host.Config(), r) {
		return false, nil
	}
	c := s.Host.Config()
	for i := range c.Queues {
		if ok, _ := schedule.Admits(c, r, schedule.Place{Host: c.Hostname, Queue: c.Queues[i].Name}); ok {
			return false, nil
		}
	}
	session := job.SessionOf(r.Interactive)
	away, why := false, ""
	for i := range peers {
		if match.Admits(c, r, &peers[i]) && (!away || why != "") {
			away, why = true, match.Unreached(session, &peers[i])
		}
	}
	if why = cmp.Or(match.Stays(r, session), why); away && why == "" && !match.Travels(r) && s.Domain() == "" {
		why = "FILESYSTEM_DOMAIN of this host is not set"
	}
	if away && why != "" {
		return true, api.Errorf(api.CodeRejected, "job rejected: by its -q or -l it may run on other hosts alone, and %s", why)
	}
	return away, nil
}
