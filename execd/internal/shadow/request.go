package shadow

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

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
	if why = cmp.Or(match.Stays(r, session, s.Domain()), why); away && why != "" {
		return true, api.Errorf(api.CodeRejected, "job rejected: by its -q or -l it may run on other hosts alone, and %s", why)
	}
	return away, nil
}

// immediate are the jobs that are to start now, and where it is told whether they have. They are
// used with core.mu held.
type immediate map[*job.Job]chan bool

// answer tells who waits in StartNow for a job.
func (m immediate) answer(j *job.Job, started bool) {
	if answer := m[j]; answer != nil {
		delete(m, j)
		answer <- started
	}
}

// nowLimit is how long a job of -now y is offered to other hosts.
const nowLimit = 10 * time.Second

// MayStartNow reports whether another host may have a free slot for what -now y asks for.
func (s *Shadows) MayStartNow(r *api.SubmitRequest) bool {
	session := job.SessionOf(r.Interactive)
	return match.Stays(r, session, s.Domain()) == "" && slices.ContainsFunc(s.Peers(), func(p api.PeerStatus) bool {
		return p.State == api.PeerUp && !p.Draining && p.Free > 0 && match.Admits(s.Host.Config(), r, &p) && match.Unreached(session, &p) == ""
	})
}

// StartNow offers a job of -now y to other hosts, and reports whether one has begun it. One that
// none takes at once is not offered any more: it is to be deleted.
func (s *Shadows) StartNow(ctx context.Context, j *job.Job) bool {
	answer := make(chan bool, 1)
	s.mu.Lock()
	s.now[j] = answer
	s.mu.Unlock()
	s.Wake()
	select {
	case started := <-answer:
		return started
	case <-time.After(nowLimit):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case started := <-answer:
		return started
	default:
		delete(s.now, j)
		return s.Host.Store.Running(j) > 0 // the host has not answered yet, and may have begun it
	}
}
