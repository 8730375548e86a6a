package job

import (
	"strconv"
	"time"
)

// A task whose preparation failed is tried again, but not at once: a program of the
// site prepares it, and may fail for all jobs for a while.
const (
	firstDelay = 10 * time.Second
	lastDelay  = 5 * time.Minute
)

// delayOf is how long a job waits after so many tries that came to nothing.
func delayOf(tries int) time.Duration { return min(firstDelay<<min(tries, 10), lastDelay) }

// Postpone gives back a task that was recorded as started and could not be
// prepared. The job is not started again before a time, which is returned: 10 s,
// doubling with each call until a task of the job has run, at most 5 minutes. The
// delay is lost with execd. Late says that the preparation took too long, which is
// remembered.
func (s *Store) Postpone(t *Task, reason string, late bool) (until time.Time, err error) {
	if s.Unwanted(t) {
		return time.Time{}, s.Withdraw(t)
	}
	j := t.Job
	s.mu.Lock()
	until = time.Now().Add(delayOf(j.delays))
	s.mu.Unlock()
	err = s.commit(j, durable, func() {
		own := j.own()
		own.delays++
		own.notBefore, own.delayed = until, reason
		j.wakeWaiting()
	}, &line{Event: EventWithdrawn, Tasks: strconv.Itoa(t.Number), Time: time.Now(), Run: t.Run, Reason: reason, Late: late})
	if err != nil {
		return time.Time{}, err
	}
	s.hint(j)
	return until, nil
}

// Late returns how often the preparation of a task took too long.
func (s *jobSet) Late(t *Task) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.Job.late[t.Number]
}

// Unwanted reports whether a task is to end and not to run again.
func (s *jobSet) Unwanted(t *Task) bool {
	want := s.Want(t)
	return want != nil && !want.Requeue
}

// Abandon ends a task that was recorded as started and will never run: nobody is
// there to start it again.
func (s *Store) Abandon(t *Task) error { return s.end(t) }

// noteLate counts a preparation that took too long.
func (j *Job) noteLate(number int) {
	own := j.own()
	if own.late == nil {
		own.late = map[int]int{}
	}
	own.late[number]++
}

// earliest is when a job may start, as far as times go, and why that is not by
// -a; the zero time: at once. The Store's mutex is held.
func (j *Job) earliest() (at time.Time, why string) {
	if at = j.Terms().After; j.notBefore.After(at) {
		return j.notBefore, j.delayed
	}
	return at, ""
}

// prepared forgets the delays of a job of which a task has run. The Store's mutex
// is held.
func (j *Job) prepared() {
	if j.delays > 0 || !j.notBefore.IsZero() {
		own := j.own()
		own.delays, own.notBefore, own.delayed = 0, time.Time{}, ""
	}
}
