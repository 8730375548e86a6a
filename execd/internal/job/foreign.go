package job

import "time"

// Foreigner is a job that did not come by qsub, for who fetched it or started it.
type Foreigner struct {
	*Job
	// Replied says that who it came from has been told that it was accepted.
	Replied bool
	// State is that of its only task, and Claim the public id of the claim under which
	// that was started; empty: it was not.
	State State
	Claim string
}

// Foreigners returns the jobs that did not come by qsub and are not over, by
// number.
func (s *Store) Foreigners() []Foreigner {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Foreigner
	for _, j := range s.sorted(func(j *Job) bool { return j.Source != "" }) {
		f := Foreigner{Job: j, Replied: j.replied, State: Pending}
		for _, t := range j.active {
			f.State, f.Claim = t.State, t.Start.Claim
		}
		list = append(list, f)
	}
	return list
}

// Replied records that who a job came from has been told that it was accepted,
// so that the next execd does not tell it again. It needs no sync: when the line
// is lost it is told once more.
func (s *Store) Replied(j *Job) error {
	return s.commit(j, lazy, nil, &line{Event: EventReplied, Time: time.Now()})
}

// ForeignState returns the state of the only task of a job that did not come by
// qsub; false: it is over.
func (s *Store) ForeignState(j *Job) (State, bool) {
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
