package shadow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
)

// notNamed is why a host does not take a job that asks for others.
const notNamed = "it is not asked for (-q, -l)"

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
		if s.asksFor(r, &peers[i]) && (!away || why != "") {
			away, why = true, unreached(session, &peers[i])
		}
	}
	if why = cmp.Or(staysWith(r, session), why); away && why == "" && !travels(r) && s.Domain() == "" {
		why = "FILESYSTEM_DOMAIN of this host is not set"
	}
	if away && why != "" {
		return true, api.Errorf(api.CodeRejected, "job rejected: by its -q or -l it may run on other hosts alone, and %s", why)
	}
	return away, nil
}

// asksFor reports whether a request leaves room for one of the queues of a host. One that was
// never heard of may have those of home, and those that the request names.
func (s *Shadows) asksFor(r *api.SubmitRequest, p *api.PeerStatus) bool {
	c := s.Host.Config()
	if !schedule.Steered(c, r) {
		return true
	}
	has := func(queue string) bool {
		ok, _ := schedule.Admits(c, r, schedule.Place{Host: p.Name, Queue: queue})
		return ok
	}
	if p.Queues != nil {
		return slices.ContainsFunc(p.Queues, func(q api.QueueStatus) bool { return has(q.Name) })
	}
	return slices.ContainsFunc(c.Queues, func(q conf.Queue) bool { return has(q.Name) }) || slices.ContainsFunc(r.Queues, func(pattern string) bool {
		name, _, _ := strings.Cut(pattern, "@")
		return has(name)
	})
}

// unfulfilled counts the names behind -soft that the best queue of a host does not have.
func (s *Shadows) unfulfilled(r *api.SubmitRequest, p *api.PeerStatus) int {
	c, least := s.Host.Config(), len(r.Soft)+1
	for i := range p.Queues {
		if ok, n := schedule.Admits(c, r, schedule.Place{Host: p.Name, Queue: p.Queues[i].Name}); ok {
			least = min(least, n)
		}
	}
	return least
}

// preferred returns the hosts in the order in which a job is offered to them: what it asks for
// behind -soft comes first.
func (s *Shadows) preferred(r *api.SubmitRequest, peers []api.PeerStatus) []api.PeerStatus {
	if len(r.SoftQueues)+len(r.Soft) == 0 {
		return peers
	}
	order := slices.Clone(peers)
	slices.SortStableFunc(order, func(a, b api.PeerStatus) int { return cmp.Compare(s.unfulfilled(r, &a), s.unfulfilled(r, &b)) })
	return order
}

// steered returns the ad of a job for one queue of a host: no slot of another takes it then.
func steered(work *classad.Ad, queue string) *classad.Ad {
	requirements := "true"
	if e, ok := work.Lookup("Requirements"); ok {
		requirements = e.String()
	}
	e, err := classad.Parse(fmt.Sprintf("(%s) && TARGET.Queue == %v", requirements, classad.String(queue).Expr()))
	if err != nil {
		return work // it cannot be: both parts were read before
	}
	return work.With(classad.Attr{Name: "Requirements", Expr: e})
}
