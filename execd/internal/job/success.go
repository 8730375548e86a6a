package job

import (
	"context"
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

// unmet is a dependency that will not be met: these tasks never run.
type unmet struct {
	dependency
	Tasks string `json:"tasks"` // as Tasks.format writes them
	Why   string `json:"why"`   // "job 17 failed with exit code 3"
}

// doomed is a job with what it waits for in vain.
type doomed struct {
	job   *Job
	unmet *unmet
}

// waitForSuccess has the job wait for the ends of those that must succeed, too.
func (j *Job) waitForSuccess() {
	for _, d := range j.success {
		switch {
		case !d.ByTask && j.waitsFor == nil:
			j.waitsFor = map[int]bool{d.Job: true}
		case !d.ByTask:
			j.waitsFor[d.Job] = true
		case !slices.Contains(j.waitsForTasks, d.Job):
			j.waitsForTasks = append(slices.Clone(j.waitsForTasks), d.Job)
		}
	}
}

// doom notes what the job waits for in vain, once.
func (j *Job) doom(u *unmet) error {
	if _, ok := parseTasks(u.Tasks, j.Tasks); !ok {
		return fmt.Errorf("tasks %q are none of the job's", u.Tasks)
	}
	if i := slices.IndexFunc(j.unmet, func(o *unmet) bool { return o.dependency == u.dependency }); i >= 0 {
		j.unmet[i] = u
		return nil
	}
	j.unmet = append(j.unmet, u)
	return nil
}

// unmetBy returns what the job waits for in vain now that another is over.
func (j *Job) unmetBy(p *Job) (list []*unmet) {
	if p.failed.Len() == 0 {
		return nil
	}
	for _, byTask := range []bool{false, true} {
		d := dependency{p.Number, byTask}
		if !slices.Contains(j.success, d) {
			continue
		}
		tasks := j.all()
		if byTask {
			rest := tasks.clone()
			holdFollowers(&p.failed, &rest)
			tasks.Subtract(&rest)
		}
		if tasks.Len() > 0 {
			list = append(list, &unmet{d, tasks.format(), p.failureText()})
		}
	}
	return list
}

// failureText says of a job that is over how it failed.
func (j *Job) failureText() string {
	if !j.Tasks.IsArray() {
		return fmt.Sprintf("job %d failed%s", j.Number, j.failure)
	}
	tasks := j.failed.format()
	if len(tasks) > 60 {
		tasks = tasks[:60] + "..."
	}
	return fmt.Sprintf("tasks %s of job %d failed, the first%s", tasks, j.Number, j.failure)
}

// dependOn puts into a header what the job depends on by -hold_jid_ok and
// -hold_jid_ad_ok: jobs that are not over, and those of which it is known how they
// ended. Of others it is an error: nobody may take them for successful.
func (s *Store) dependOn(h *header) error {
	for _, o := range []struct {
		words  []string
		byTask bool
	}{{h.Request.HoldOK, false}, {h.Request.HoldArrayOK, true}} {
		q := s.search(context.Background(), ownOrNumber(Caller{UID: h.UID}))
		has := map[dependency]bool{}
		for _, word := range o.words {
			found, meant, _ := q.find(word, api.Tasks{})
			var numbers []int
			for _, j := range found {
				numbers = append(numbers, j.Number)
			}
			if !meant {
				number, err := strconv.Atoi(word)
				if err != nil {
					return api.Errorf(api.CodeRejected, "job rejected: there is no job %q that is not finished, whose success could be waited for", word)
				}
				numbers = []int{number}
			}
			for _, number := range numbers {
				if d := (dependency{number, o.byTask}); !has[d] {
					has[d] = true
					h.Success = append(h.Success, d)
				}
			}
		}
	}
	if len(h.Success) == 0 {
		return nil
	}
	j := newJob(digestOf(h))
	for _, d := range h.Success {
		if s.Get(d.Job) != nil {
			continue
		}
		p, err := s.Ended(d.Job)
		if err != nil {
			return err
		}
		if p == nil && s.Get(d.Job) == nil {
			return api.Errorf(api.CodeRejected, "job rejected: it is not known how job %d has ended", d.Job)
		}
		if p == nil {
			continue
		}
		for _, u := range j.unmetBy(p) {
			if u.dependency == d {
				h.Unmet = append(h.Unmet, *u)
			}
		}
	}
	return nil
}

// endedMeanwhile tells of a job that was just submitted which of those that must succeed
// ended meanwhile, before it was linked. The Store's mutex is held. They count as
// failed until outcome has looked.
func (s *Store) endedMeanwhile(j *Job) (gone []dependency) {
	for _, d := range j.success {
		if s.jobs[d.Job] != nil || slices.ContainsFunc(j.unmet, func(u *unmet) bool { return u.dependency == d }) {
			continue
		}
		gone = append(gone, d)
		all := j.all()
		j.unmet = append(j.unmet, &unmet{d, all.format(), fmt.Sprintf("it is not known how job %d has ended", d.Job)})
	}
	return gone
}

// outcome finds out how jobs ended that must succeed, and records it where they
// did not.
func (s *Store) outcome(j *Job, gone []dependency) error {
	for _, d := range gone {
		p, err := s.Ended(d.Job)
		if err != nil || p == nil {
			continue // it stays not known
		}
		s.mu.Lock()
		j.unmet = slices.DeleteFunc(j.unmet, func(u *unmet) bool { return u.dependency == d })
		for _, u := range j.unmetBy(p) {
			_ = j.doom(u)
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	unmet := slices.Clone(j.unmet)
	s.mu.Unlock()
	for _, u := range unmet {
		if err := s.commit(j, durable, nil, &line{Event: EventUnmet, Unmet: u}); err != nil {
			return err
		}
	}
	return nil
}

// Unmet says why a job, or tasks of it, will never run; nil: they may.
func (s *Store) Unmet(j *Job) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.unmetTexts()
}

func (j *Job) unmetTexts() (texts []string) {
	for _, u := range j.unmet {
		what := "it"
		if tasks, _ := parseTasks(u.Tasks, j.Tasks); tasks.Len() < j.count() {
			what = "tasks " + u.Tasks
		}
		texts = append(texts, fmt.Sprintf("%s: %s will never start; delete it by qdel", u.Why, what))
	}
	return texts
}
