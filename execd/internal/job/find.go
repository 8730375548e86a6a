package job

import (
	"context"

	"paddock/execd/api"
	"paddock/spool"
)

// Find returns the unfinished jobs that words mean, for a client that waits for them:
// names mean the caller's own jobs, numbers any job, and what several words mean is returned
// once. More than most are refused, and tasks that a job never had.
// whole says that no end of any of them is accounted yet.
func (s *jobSet) Find(ctx context.Context, words []string, caller Caller, most int) (found []api.Found, missing []string, whole bool, err error) {
	q := s.search(ctx, ownOrNumber(caller))
	meant := make([][]*Job, len(words))
	again := make([]bool, len(words)) // names jobs that a word before has named
	for i, word := range words {
		name, tasks := parseTarget(word)
		if meant[i], again[i], err = q.find(name, tasks); err != nil {
			return nil, nil, false, err
		}
		again[i] = again[i] && len(meant[i]) == 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	whole = true
	for i, word := range words {
		_, tasks := parseTarget(word)
		jobs, known := meant[i], again[i]
		for _, j := range jobs {
			if j.lacks(tasks) {
				return nil, nil, false, api.Errorf(api.CodeRejected, "job \"%d\" task \"%s\" does not exist", j.Number, spanOf(tasks))
			}
			f, ok := j.found(tasks)
			if !ok || s.jobs[j.Number] != j {
				continue
			}
			known = true
			if !q.first(toldOf{j, tasks, true}) {
				continue
			}
			if len(found) == most {
				return nil, nil, false, api.Errorf(api.CodeRejected, "more than %d jobs are too many to wait for at once", most)
			}
			found = append(found, f)
			whole = whole && !j.hasEnded()
		}
		if !known {
			missing = append(missing, word)
		}
	}
	return found, missing, whole, nil
}

// ownOrNumber keeps anybody's jobs by number, and the caller's by name.
func ownOrNumber(caller Caller) func(*Job, bool) bool {
	return func(j *Job, number bool) bool { return number || j.UID == caller.UID }
}

// Youngest returns the job of a number, or the last that the caller has
// submitted under a name, with the tasks that the word names; nil: there is
// none that is not finished.
func (s *jobSet) Youngest(word string, caller Caller) (*Job, api.Tasks) {
	name, tasks := parseTarget(word)
	jobs, _, _ := s.search(context.Background(), ownOrNumber(caller)).find(name, tasks)
	if len(jobs) == 0 {
		return nil, tasks
	}
	return jobs[len(jobs)-1], tasks
}

// lacks reports whether tasks are named of which the job never had one.
func (j *Job) lacks(tasks api.Tasks) bool {
	if !tasks.IsArray() {
		return false
	}
	all := AllTasks(j.Tasks)
	return cutLen(&all, tasks) == 0
}

// found counts the tasks of a job; false: it has none of those.
func (j *Job) found(tasks api.Tasks) (api.Found, bool) {
	f := api.Found{Job: j.Number, Name: j.Terms().Name, Owner: j.Owner, Tasks: tasks, Array: j.Tasks.IsArray(), Count: j.count(), Pending: j.pending.Len()}
	if tasks.IsArray() {
		all, pending := j.all(), j.pending.clone()
		f.Count, f.Pending = cutLen(&all, tasks), cutLen(&pending, tasks)
	}
	for _, t := range j.active {
		switch {
		case tasks.IsArray() && !tasks.Has(t.Number):
		case t.State == Errored:
			f.InError++
		case t.State == Started:
			f.Running++
		}
	}
	return f, f.Count > 0
}

func cutLen(s *Tasks, of api.Tasks) int {
	cut := s.Cut(of)
	return cut.Len()
}

// hasEnded reports whether the end of a task may be in the accounting file.
func (j *Job) hasEnded() bool {
	if j.finished > 0 {
		return true
	}
	for _, t := range j.active {
		if t.State == Ended {
			return true
		}
	}
	return false
}

// Written returns the tasks whose output there is or is to be, of those named:
// of them all, else of those that run, else the one of a job that is no array.
// Those that have not started yet have no run.
func (s *jobSet) Written(j *Job, tasks api.Tasks, most int) (list []Written, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range j.tasksInOrder() {
		if tasks.IsArray() && !tasks.Has(t.Number) {
			continue
		}
		if len(list) == most {
			return list, true
		}
		list = append(list, Written{Task: t.Number, State: t.letters(), Run: t.RunID()})
	}
	pending := j.pending.clone()
	switch {
	case tasks.IsArray():
		pending = pending.Cut(tasks)
	case j.Tasks.IsArray():
		return list, false
	}
	for number := range pending.All {
		if len(list) == most {
			return list, true
		}
		list = append(list, Written{Task: number, State: "qw"})
	}
	return list, false
}

// Written is a task that writes, or will.
type Written struct {
	Task  int
	State string
	Run   spool.RunID // zero: it has not started
}
