package job

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Holds are the letters of the holds that people set: user, operator, system.
const Holds = "uos"

// hold sets or takes away holds of tasks.
func (j *Job) hold(tasks *Tasks, letters string, on bool) error {
	for _, letter := range letters {
		if !strings.ContainsRune(Holds, letter) {
			return fmt.Errorf("there is no hold %q", letter)
		}
		set, ok := j.held[letter]
		if !ok {
			set = NoTasks(j.Tasks)
		}
		set.Subtract(tasks)
		if on {
			set.AddAll(tasks)
		}
		switch {
		case set.Len() == 0:
			delete(j.held, letter)
		case j.held == nil:
			j.own().held = map[rune]Tasks{letter: set}
		default:
			j.held[letter] = set
		}
	}
	return nil
}

// unfinished returns the tasks that are not over. The Store's mutex is held.
func (j *Job) unfinished() Tasks {
	set := j.pending.clone()
	for number := range j.active {
		set.Add(number)
	}
	return set
}

// holdChanges returns those of the tasks of which some hold would change, and
// the letters of these holds. The Store's mutex is held.
func (j *Job) holdChanges(set *Tasks, letters string, on bool) (changed Tasks, which string) {
	changed = NoTasks(j.Tasks)
	for _, letter := range letters {
		held := j.held[letter]
		part := set.clone()
		if on {
			part.Subtract(&held)
		} else {
			rest := part.clone()
			rest.Subtract(&held)
			part.Subtract(&rest)
		}
		if part.Len() > 0 {
			which += string(letter)
		}
		changed.AddAll(&part)
	}
	return changed, which
}

// Ready returns how many tasks of a job may start now, and the lowest of them.
// When a job waits for a time alone, that of -a or of Postpone, it returns it.
func (s *jobSet) Ready(j *Job, now time.Time) (n, first int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[j.Number] != j {
		return 0, 0, time.Time{}
	}
	j.stale = false
	terms := j.Terms()
	set := s.graph.free(j)
	if n = set.Len(); n == 0 {
		return 0, 0, time.Time{}
	}
	if at, _ = j.earliest(); at.After(now) {
		return 0, 0, at
	}
	first = set.Min()
	if terms.MaxRun > 0 {
		n = min(n, max(terms.MaxRun-j.started, 0))
	}
	return n, first, time.Time{}
}

// Running returns how many tasks of a job are started.
func (s *jobSet) Running(j *Job) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.started
}

// taskOver hints at the jobs that wait for single tasks of this one.
func (s *Store) taskOver(j *Job) {
	s.mu.Lock()
	followers := slices.Clone(s.graph.followers[j.Number])
	s.mu.Unlock()
	for _, f := range followers {
		s.hint(f)
	}
}
