package job

import (
	"maps"
	"slices"
	"time"

	"paddock/execd/api"
)

// Queued is how a job stands, for who follows the queue.
type Queued struct {
	Job     *Job
	Version int    // of what it asks for
	Tasks   []Task // that were started, and not given back since, or are in error, by number; copies
	Pending Tasks  // the others that are left
	Held    Tasks  // those of Pending with a hold
}

// OnChange sets the function that is called when a job has become another, with the Store's
// lock held: it must not block, or call back into the Store.
func (s *Store) OnChange(f func(number int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onChange = f
}

// became tells of a job that has become another. s.mu is held.
func (s *jobSet) became(j *Job) {
	if s.onChange != nil {
		s.onChange(j.Number)
	}
}

// Numbers returns those of all jobs that are not over.
func (s *jobSet) Numbers() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.jobs))
}

// Queued returns how a job stands; false: it is over.
func (s *jobSet) Queued(number int) (q Queued, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[number]
	if j == nil {
		return q, false
	}
	q = Queued{Job: j, Version: j.alterations, Pending: j.pending.clone(), Held: j.heldWaiting()}
	for _, t := range j.tasksInOrder() {
		if t.State == Errored || t.hasBegun() {
			q.Tasks = append(q.Tasks, *t)
		} else {
			q.Pending.Add(t.Number)
		}
	}
	return q, true
}

// Entered returns when a task came into its state, as far as that is known.
func (t *Task) Entered() time.Time {
	if t.State == Errored {
		return t.ErroredAt
	}
	return t.Started
}

// Peek is Request for one who only looks: a request that is not in memory is not kept there.
func (s *Store) Peek(j *Job) (*api.SubmitRequest, error) {
	s.mu.Lock()
	request, altered := j.request, j.alterations > 0
	s.mu.Unlock()
	if request != nil {
		return request, nil
	}
	j.file.Lock() // it is not altered meanwhile
	defer j.file.Unlock()
	h, err := s.readRequest(j.Number, altered)
	if err != nil {
		return nil, err
	}
	return &h.Request, nil
}
