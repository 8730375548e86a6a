package shadow

import (
	"fmt"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/spool"
)

// Silent says that the host of a run does not answer, and since when; empty: it does, or it
// is this one.
func (s *Shadows) Silent(run spool.RunID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs.find(run)
	if r == nil || r.claim == nil || r.host.silent.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s has not answered since %s; the lease ends at %s", r.host.name, r.host.silent.Format(time.DateTime), r.lease.ends().Format(time.DateTime))
}

// Used returns what runs on other hosts have used, as these have said last.
func (s *Shadows) Used() map[spool.RunID]api.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[spool.RunID]api.Usage{}
	for _, r := range s.runs.list {
		if r.used {
			all[r.task.RunID()] = r.usage(r.task.Started)
		}
	}
	return all
}

// Transfer returns how the files of a run on another host travel, or what was left out; nil:
// they do not, and nothing was.
func (s *Shadows) Transfer(run spool.RunID) *api.Transfer {
	s.mu.Lock()
	r := s.runs.find(run)
	s.mu.Unlock()
	if r == nil || !r.carries() {
		return nil
	}
	shown := r.output.Standing()
	if shown.Output = shown.Attempt > 0; !shown.Output {
		if shown = r.input.Standing(); shown.Attempt == 0 || shown.Done && shown.Left == "" {
			return nil
		}
	}
	return &shown
}

// Forget ends a run that somebody has deleted without waiting for its host, if that does not
// answer, and says until when it may go on there; empty: it is waited for.
func (s *Shadows) Forget(t *job.Task) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs.of(t)
	if r == nil || r.claim == nil || r.host.silent.IsZero() {
		return ""
	}
	r.forgotten = true
	r.poke()
	return fmt.Sprintf("job %v may run on %s until %s", t, r.host.name, r.lease.lost().Format(time.DateTime))
}

// Look carries out what people want of a run: that it ends, is stopped or goes on, or has
// other attributes.
func (s *Shadows) Look(t *job.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs.of(t); r != nil {
		r.poke()
	}
}

// Why says of each host why it does not take a job that waits; empty: none was asked.
func (s *Shadows) Why(j *job.Job) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offers.why[j]
}
