package queue

import (
	"time"

	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
)

// Depart enters a task that is started on another host among those of its user, or reports
// that he may have no more running. One that runs there since before a restart is entered
// anyway.
func (q *Queue) Depart(t *job.Task, runs bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !runs && !q.sched.MayRun(t.Job.Owner) {
		return false
	}
	q.away[key(t)] = t
	r := q.runningOf(t, &schedule.Grant{}, t.Started)
	r.Away = true
	q.sched.Started(r)
	return true
}

// Back notes that a task runs on another host no more, and what it has used.
func (q *Queue) Back(t *job.Task, used schedule.Used) {
	q.mu.Lock()
	there := q.away[key(t)] == t // else it has come back already
	if there {
		delete(q.away, key(t))
		q.sched.Ended(t.Job.Number, t.Number, used, time.Now())
	}
	q.mu.Unlock()
	if there {
		q.sharesChange()
	}
}
