package job

import "time"

// Claimed is a job that came under a claim, for whoever holds that.
type Claimed struct {
	*Job
	// Replied says that who it came from has been told that it was accepted.
	Replied bool
	// State is that of its only task, and Claim the public id of the claim under which
	// that was started; empty: it was not.
	State State
	Claim string
}

// UnderClaim reports whether a job came under a claim: it has one task, which is started
// under that and no other, and may have an ad that it came with.
func (j *Job) UnderClaim() bool { return j.Source != "" }

// Claimed returns the jobs that came under claims and are not over, by number.
func (s *jobSet) Claimed() []Claimed {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Claimed
	for _, j := range s.sorted((*Job).UnderClaim) {
		c := Claimed{Job: j, Replied: j.replied, State: Pending}
		for _, t := range j.active {
			c.State, c.Claim = t.State, t.Start.Claim
		}
		list = append(list, c)
	}
	return list
}

// Replied records that who a job came from has been told that it was accepted,
// so that the next execd does not tell it again. It needs no sync: when the line
// is lost it is told once more.
func (s *Store) Replied(j *Job) error {
	return s.commit(j, lazy, nil, &line{Event: EventReplied, Time: time.Now()})
}

// ClaimedState returns the state of the only task of a job that came under a claim;
// false: the job is over.
func (s *jobSet) ClaimedState(j *Job) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[j.Number] != j {
		return Gone, false
	}
	for _, t := range j.active {
		return t.State, true
	}
	return Pending, true
}
