package job

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"paddock/execd/api"
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
			j.held = map[rune]Tasks{letter: set}
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

// free returns the pending tasks that nothing holds back but -a and -tc. The
// Store's mutex is held. The set is to be read only.
func (s *Store) free(j *Job) Tasks {
	if len(j.waitsFor) > 0 {
		return NoTasks(j.Tasks)
	}
	if len(j.held) == 0 && len(j.waitsForTasks) == 0 && len(j.unmet) == 0 {
		return j.pending
	}
	for _, held := range j.held {
		if held.Len() == j.count() {
			return NoTasks(j.Tasks)
		}
	}
	set := j.pending.clone()
	for _, held := range j.held {
		set.Subtract(&held)
	}
	for _, number := range j.waitsForTasks {
		if p := s.jobs[number]; p != nil {
			unfinished := p.unfinished()
			holdFollowers(&unfinished, &set)
			if slices.Contains(j.links.Success, dependency{number, true}) {
				holdFollowers(&p.failed, &set)
			}
		}
	}
	for _, u := range j.unmet {
		tasks, _ := parseTasks(u.Tasks, j.Tasks) // doom has looked at it
		set.Subtract(&tasks)
	}
	return set
}

// holdFollowers takes those tasks out of the set of a job with -hold_jid_ad
// that wait for these of another. Steps may differ: a task stands for all
// numbers up to the next.
func holdFollowers(these, set *Tasks) {
	for _, r := range these.runs {
		low, high := these.task(r.low), these.task(r.high)
		set.Cut(api.Tasks{First: max(low-max(set.of.Step, 1)+1, 1), Last: high + max(these.of.Step, 1) - 1, Step: 1})
	}
}

// Ready returns how many tasks of a job may start now, and the lowest of them.
// When a job waits for a time alone, that of -a or of Postpone, it returns it.
func (s *Store) Ready(j *Job, now time.Time) (n, first int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[j.Number] != j {
		return 0, 0, time.Time{}
	}
	j.stale = false
	terms := j.Terms()
	set := s.free(j)
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
func (s *Store) Running(j *Job) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.started
}

// ErrNoArray refuses -hold_jid_ad of and on jobs that are no arrays.
var ErrNoArray = api.Errorf(api.CodeRejected, `Can only specify "-hold_jid_ad" option with an array job (using "-t" option)`)

// checkArrays refuses a job with -hold_jid_ad whose tasks are not those of the
// arrays it waits for (qsub(1)). The Store's mutex is held.
func (s *Store) checkArrays(b api.Tasks, waitsForTasks []int) error {
	for _, number := range waitsForTasks {
		j := s.jobs[number]
		if j == nil {
			continue // it is over meanwhile
		}
		a := j.Tasks
		if !a.IsArray() {
			return ErrNoArray
		}
		if a.First != b.First || a.Last != b.Last {
			return api.Errorf(api.CodeRejected, "This array job must have the same range of sub-tasks as the dependent array job specified with -hold_jid_ad")
		}
	}
	return nil
}

// maxWaits bounds how often the jobs of a user wait for another: n jobs that wait for
// all before them would do it n*n/2 times.
const maxWaits = 500_000

// mayWait refuses a job of a user that waits for more others than there is room for. The
// Store's mutex is held.
func (s *Store) mayWait(owner string, uid, more int) error {
	if n := s.waits[uid]; more > 0 && n+more > maxWaits {
		return api.Errorf(api.CodeLimit, "job rejected: it waits for %d jobs, those of user %s wait for %d others already, and at most %d are possible", more, owner, n, maxWaits)
	}
	return nil
}

// waitsLess notes that a job does not wait for so many others any more. The Store's mutex
// is held.
func (s *Store) waitsLess(j *Job, n int) {
	if s.waits[j.UID] -= n; s.waits[j.UID] == 0 {
		delete(s.waits, j.UID)
	}
}

// unlink frees those who waited for a job that is over. The Store's mutex is
// held.
func (s *Store) unlink(j *Job) {
	j.freed = s.followers[j.Number]
	delete(s.followers, j.Number)
	var vain []*Job
	for _, f := range j.freed {
		s.waitsLess(f, 1)
		delete(f.waitsFor, j.Number)
		for _, u := range f.unmetBy(j) {
			_ = f.doom(&u) // the tasks are its own
			j.dooms = append(j.dooms, doomed{f, &u})
			vain = append(vain, f)
		}
	}
	if len(vain) > 0 {
		s.changeVain(vain...)
	}
}

// followedBy returns the jobs that wait for one, by -hold_jid and by
// -hold_jid_ad. The Store's mutex is held.
func (s *Store) followedBy(number int) (jobs, array []int) {
	for _, f := range s.followers[number] {
		if s.jobs[f.Number] != f {
			continue // it was deleted
		}
		if f.waitsFor[number] {
			jobs = append(jobs, f.Number)
		}
		if slices.Contains(f.waitsForTasks, number) {
			array = append(array, f.Number)
		}
	}
	slices.Sort(jobs)
	slices.Sort(array)
	return slices.Compact(jobs), slices.Compact(array)
}

// taskOver hints at the jobs that wait for single tasks of this one.
func (s *Store) taskOver(j *Job) {
	s.mu.Lock()
	followers := slices.Clone(s.followers[j.Number])
	s.mu.Unlock()
	for _, f := range followers {
		s.hint(f)
	}
}

// holds returns the letters of what holds pending tasks back, for people: u, o
// and s, j for other jobs, a for other jobs' tasks. The Store's mutex is held.
func (s *Store) holds(j *Job) string {
	var b strings.Builder
	for _, letter := range Holds {
		if _, ok := j.held[letter]; ok {
			b.WriteRune(letter)
		}
	}
	if len(j.waitsFor)+len(j.unmet) > 0 {
		b.WriteByte('j')
	}
	for _, number := range j.waitsForTasks {
		if s.jobs[number] != nil {
			b.WriteByte('a')
			break
		}
	}
	return b.String()
}
