package shadow

import (
	"context"
	"slices"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/shadow/match"
)

// immediate are the jobs that are to start now, and where it is told whether they have. It is guarded
// by core.mu.
type immediate map[*job.Job]chan bool

// answer tells who waits in StartNow for a job. core.mu is held.
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
	return (s.Domain() != "" || match.Travels(r)) && match.Stays(r, session) == "" && slices.ContainsFunc(s.Peers(), func(p api.PeerStatus) bool {
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
	limit := time.NewTimer(nowLimit)
	defer limit.Stop()
	select {
	case started := <-answer:
		return started
	case <-limit.C:
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
