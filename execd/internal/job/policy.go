package job

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"paddock/execd/api"
)

// OnWait sets the function that is told of jobs with attributes of their own of which a task
// begins to wait, or of which it is another request. It must not block, or call back into
// the Store.
func (s *Store) OnWait(f func(*Job)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onWait = f
}

// waits tells it of lines of a record. The Store's mutex is held.
func (s *Store) waits(j *Job, lines []*line) {
	if s.onWait == nil || len(j.Terms().Needs.Attributes()) == 0 {
		return
	}
	if slices.ContainsFunc(lines, func(l *line) bool {
		switch l.Event {
		case EventWithdrawn, EventRequeued, EventErrored, EventCleared, EventAltered, EventReleased:
			return true
		}
		return false
	}) {
		s.onWait(j)
	}
}

// Waiting is a part of a job that does not run.
type Waiting struct {
	Task   int    // 0: all tasks that wait for their turn
	Held   bool   // it waits for somebody to look, for a reason
	Reason string // of it
	Why    *Why
	Since  time.Time
	Starts int // how often it was started, if that is one task
}

// WithAttributes returns the jobs that have attributes of their own.
func (s *jobSet) WithAttributes() []*Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sorted(func(j *Job) bool { return len(j.Terms().Needs.Attributes()) > 0 })
}

// WaitingParts returns what of a job does not run: the tasks that are held, and first of all
// those that wait for their turn.
func (s *jobSet) WaitingParts(j *Job) (list []Waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[j.Number] != j {
		return nil
	}
	if j.pending.Len() > 0 {
		w := Waiting{Since: j.Submitted}
		if j.requeued.After(w.Since) {
			w.Since = j.requeued
		}
		if !j.Tasks.IsArray() {
			w.Task, w.Starts = 1, j.runs[1]
		}
		list = append(list, w)
	}
	for _, t := range j.tasksInOrder() {
		if t.State == Errored {
			list = append(list, Waiting{Task: t.Number, Held: true, Reason: t.Reason, Why: t.Why, Since: t.ErroredAt, Starts: j.runs[t.Number]})
		}
	}
	return list
}

// Release has a task that is held wait for its turn again, by a policy. It reports whether
// it was held.
func (s *Store) Release(j *Job, task int, why string) (released bool, err error) {
	may := func() bool {
		t := j.active[task]
		released = t != nil && t.State == Errored
		return released
	}
	err = s.commitIf(j, may, durable, nil, &line{Event: EventCleared, Tasks: strconv.Itoa(task), Time: time.Now(), Reason: why})
	if released && err == nil {
		s.hint(j)
	}
	return released, err
}

// Discard deletes what does not run of a job, by a policy.
func (s *Store) Discard(j *Job, w Waiting, why string) error {
	tasks := api.Tasks{}
	if w.Held {
		tasks = api.Tasks{First: w.Task, Last: w.Task, Step: 1}
	}
	d := s.deletion(j, tasks, Caller{Name: "execd", Manager: true}, func(*Task) {})
	d.policy = why
	return d.run(&lines{})
}

// Update records what has changed of a run on another host. It is on disk when the kernel
// finds time. Of a run that is over nothing is recorded.
func (s *Store) Update(t *Task, changed Update) error {
	may := func() bool { return t.State == Started && t.Job.active[t.Number] == t }
	return s.commitIf(t.Job, may, lazy, nil, &line{Event: EventUpdated, Tasks: strconv.Itoa(t.Number), Time: time.Now(), Run: t.Run, Update: changed})
}

// Updated returns what is recorded of a run on another host.
func (s *jobSet) Updated(t *Task) Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(t.Update)
}
