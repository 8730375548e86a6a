package job

import (
	"fmt"
	"slices"
	"strconv"

	"paddock/execd/api"
)

// A dependency is a job that must succeed before another may run.
type dependency struct {
	Job    int  `json:"job"`
	ByTask bool `json:"by_task,omitempty"` // task by task, of -hold_jid_ad_ok
}

// isOf reports whether it is this dependency that is not met.
func (d dependency) isOf(u *unmet) bool { return u.dependency == d }

// unmet is a dependency that will not be met: these tasks never run.
type unmet struct {
	dependency
	Tasks string `json:"tasks"` // as Tasks.format writes them
	Why   string `json:"why"`   // "job 17 failed with exit code 3"
}

// blockedJob is a job with a dependency of it that is not met.
type blockedJob struct {
	job   *Job
	unmet *unmet
}

// addUnmet notes a dependency that will not be met, once. The job may have been altered,
// and not have the dependency any more.
func (j *Job) addUnmet(u *unmet) error {
	if _, ok := parseTasks(u.Tasks, j.Tasks); !ok {
		return fmt.Errorf("tasks %q are none of the job's", u.Tasks)
	}
	i := slices.IndexFunc(j.unmet, u.isOf)
	switch {
	case !slices.Contains(j.links.Success, u.dependency):
	case i >= 0:
		j.unmet[i] = u
	default:
		j.own().unmet = append(j.unmet, u)
	}
	return nil
}

// unmetBy returns what the job waits for in vain now that another is over.
func (j *Job) unmetBy(p *Job) (list []unmet) {
	for _, byTask := range []bool{false, true} {
		d := dependency{p.Number, byTask}
		if !slices.Contains(j.links.Success, d) {
			continue
		}
		if u := j.unmetOf(d, p); u != nil {
			list = append(list, *u)
		}
	}
	return list
}

// unmetOf returns what of a dependency is not met by a job that is over; nil: all is.
func (j *Job) unmetOf(d dependency, p *Job) *unmet {
	if p.failed.Len() == 0 {
		return nil
	}
	tasks := j.following(d, &p.failed)
	if tasks.Len() == 0 {
		return nil
	}
	return &unmet{d, tasks.format(), p.failureText()}
}

// following returns the tasks that depend on these of another job.
func (j *Job) following(d dependency, these *Tasks) Tasks {
	tasks := j.all()
	if d.ByTask {
		rest := tasks.clone()
		holdFollowers(these, &rest)
		tasks.Subtract(&rest)
	}
	return tasks
}

// failureText says of a job that is over how it failed.
func (j *Job) failureText() string {
	if !j.Tasks.IsArray() {
		return fmt.Sprintf("job %d failed%s", j.Number, j.failure)
	}
	return fmt.Sprintf("tasks %s of job %d failed, the first%s", j.failed.short(), j.Number, j.failure)
}

// dependOn adds to links the jobs that words of -hold_jid_ok or -hold_jid_ad_ok mean:
// those that are not over, and those of which it is known how they ended. Of others it is
// an error: nobody may take them for successful.
func (s *Store) dependOn(l *links, j *Job, m *meaning) error {
	if len(m.none) > 0 {
		return api.Errorf(api.CodeRejected, "job rejected: there is no job %q that is not finished, whose success could be waited for", m.none[0])
	}
	numbers := m.numbers()
	for _, word := range m.over {
		number, _ := strconv.Atoi(word) // it is one
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	for _, number := range slices.Compact(numbers) {
		d := dependency{number, m.field == api.FieldHoldArrayOK}
		l.Success = append(l.Success, d)
		if s.Get(number) != nil {
			continue
		}
		p, err := s.ended.get(number)
		switch {
		case err != nil:
			return err
		case p != nil:
			if u := j.unmetOf(d, p); u != nil {
				l.Unmet = append(l.Unmet, *u)
			}
		case s.Get(number) != nil:
		case number < 1 || number > s.Last():
			return api.Errorf(api.CodeRejected, "job rejected: there is no job %d, whose success could be waited for", number)
		default:
			// Accounting would not do: of tasks that were deleted before they ran, and of how
			// many there were, it knows nothing.
			return api.Errorf(api.CodeRejected, "job rejected: job %d has ended and its record is not kept any more, so that nobody knows whether all of it succeeded; see qacct -j %d, and do not name it if it did", number, number)
		}
	}
	return nil
}

// outcome finds out how jobs ended that must succeed, and records it where they
// did not.
func (s *Store) outcome(j *Job, gone []dependency) error {
	for _, d := range gone {
		p, err := s.ended.get(d.Job)
		s.mu.Lock()
		if err == nil && p != nil { // else it stays not known
			j.own().unmet = slices.DeleteFunc(j.unmet, d.isOf)
			if u := j.unmetOf(d, p); u != nil {
				_ = j.addUnmet(u)
			}
			s.graph.changeVain(j)
		}
		var u *unmet
		if i := slices.IndexFunc(j.unmet, d.isOf); i >= 0 {
			u = j.unmet[i]
		}
		s.mu.Unlock()
		if u == nil {
			continue
		}
		if err := s.commit(j, durable, nil, &line{Event: EventUnmet, Unmet: u}); err != nil {
			return err
		}
	}
	return nil
}
