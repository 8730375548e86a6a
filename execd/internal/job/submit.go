package job

import (
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/user"
)

// Limits bound how many jobs may be unfinished; 0: no bound.
type Limits struct{ Jobs, UserJobs int }

// Submit accepts a job: when it returns, the job is on disk for good. gid is the
// group of the process that submits. The warnings are about what it waits for.
func (s *Store) Submit(owner *user.User, gid int, req *api.SubmitRequest, limits Limits, now time.Time) (j *Job, warnings []string, err error) {
	h := &header{
		Format: Format, Owner: owner.Name, UID: owner.UID, Group: owner.Group, GID: owner.GID, Groups: owner.GroupNames,
		SubmitGID: gid, Submitted: now, Request: *req,
	}
	h.Request.Script = nil
	j = newJob(digestOf(h))
	j.request = &h.Request
	meant := s.meanings(req, linking, owner.UID)
	if h.links, err = s.links(j, meant); err != nil {
		return nil, nil, err
	}
	warnings = s.unmatched(meant)
	_ = j.waitFor(h.links) // what is unmet is its own
	s.mu.Lock()
	if limits.Jobs > 0 && len(s.jobs) >= limits.Jobs {
		s.mu.Unlock()
		return nil, nil, api.Errorf(api.CodeLimit, "job rejected: only %d jobs are allowed per cluster", limits.Jobs)
	}
	if limits.UserJobs > 0 && s.byUser[owner.UID] >= limits.UserJobs {
		s.mu.Unlock()
		return nil, nil, api.Errorf(api.CodeLimit, "job rejected: only %d jobs are allowed per user (current job count: %d)", limits.UserJobs, s.byUser[owner.UID])
	}
	if err := s.graph.mayWait(owner.Name, owner.UID, h.Request.Tasks, &h.links); err != nil {
		s.mu.Unlock()
		return nil, nil, err
	}
	h.Job, j.Number = s.next, s.next
	s.next++
	s.byUser[owner.UID]++
	s.mu.Unlock()
	if err := s.writeNew(h, req.Script, owner); err != nil {
		s.mu.Lock()
		s.byUser[owner.UID]--
		s.mu.Unlock()
		return nil, nil, err
	}
	s.mu.Lock()
	s.jobs[j.Number] = j
	s.remember(j)
	s.graph.link(j) // what it waits for may have ended meanwhile
	gone := s.graph.endedMeanwhile(j, h.Success)
	if s.onNotice != nil && len(j.request.Attributes) > 0 {
		s.onNotice(j, j.request, Notice{Kind: NoticeSubmitted, Tasks: j.all()})
		if held := j.heldWaiting(); held.Len() > 0 {
			s.onNotice(j, j.request, Notice{NoticeHeld, held, "via qsub -h"})
		}
	}
	s.mu.Unlock()
	if err := s.outcome(j, gone); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	warnings = append(warnings, s.graph.inVain(j).texts...)
	s.mu.Unlock()
	s.hint(j)
	return j, warnings, nil
}
