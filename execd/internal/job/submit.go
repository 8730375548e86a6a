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
	if err := s.admit(j, &h.links, limits); err != nil {
		return nil, nil, err
	}
	h.Job = j.Number
	if err := s.writeNew(h, req.Script, owner); err != nil {
		s.mu.Lock()
		s.byUser[owner.UID]--
		s.mu.Unlock()
		return nil, nil, err
	}
	s.mu.Lock()
	s.jobs[j.Number] = j
	s.became(j)
	s.remember(j)
	s.graph.link(j) // what it waits for may have ended meanwhile
	gone := s.graph.endedMeanwhile(j, h.Success)
	if s.onNotice != nil && len(j.request.Attributes) > 0 {
		s.onNotice(j, j.request, Notice{Kind: NoticeSubmitted, Tasks: j.all()})
		if held := j.heldWaiting(); held.Len() > 0 {
			s.onNotice(j, j.request, Notice{NoticeHeld, held, "via qsub -h"})
		}
	}
	if s.onWait != nil && len(j.request.Attributes) > 0 {
		s.onWait(j)
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

// admit gives a new job its number, unless there are too many.
func (s *jobSet) admit(j *Job, links *links, limits Limits) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := s.byUser[j.UID]; {
	case limits.Jobs > 0 && len(s.jobs) >= limits.Jobs:
		return api.Errorf(api.CodeLimit, "job rejected: only %d jobs are allowed per cluster", limits.Jobs)
	case limits.UserJobs > 0 && n >= limits.UserJobs:
		return api.Errorf(api.CodeLimit, "job rejected: only %d jobs are allowed per user (current job count: %d)", limits.UserJobs, n)
	}
	if err := s.graph.mayWait(j.Owner, j.UID, j.Tasks, links); err != nil {
		return err
	}
	j.Number = s.next
	s.next++
	s.byUser[j.UID]++
	return nil
}
