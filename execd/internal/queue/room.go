package queue

import (
	"time"

	"paddock/execd/internal/job"
)

// Jobs with a sandbox wait while there is no room for it: the scheduler does not have them
// then. Others take and free the disk, so that it is looked at again after a while.

// measure has the free space read anew, if a job waits that has a sandbox.
func (q *Queue) measure() {
	q.mu.Lock()
	waits := len(q.boxed) > 0
	q.mu.Unlock()
	if waits {
		q.o.Slots.Look()
	}
}

// lacksRoom reports whether there is no room for the sandbox of a job, which then waits for
// it. q.mu is held.
func (q *Queue) lacksRoom(j *job.Job) bool {
	why := q.o.Room()
	if why == "" {
		return false
	}
	q.sched.Remove(j.Number)
	q.unfit[j.Number], q.boxed[j.Number] = why, true
	if q.room == nil {
		q.room = time.AfterFunc(repolling, func() {
			q.o.Slots.Look()
			q.mu.Lock()
			defer q.mu.Unlock()
			q.room = nil
			q.lookForRoom()
			q.Wake()
		})
	}
	return true
}

// lookForRoom has the jobs looked at again that wait for room. q.mu is held.
func (q *Queue) lookForRoom() {
	for number, waits := range q.boxed {
		if j := q.o.Store.Get(number); waits && j != nil {
			q.changed[number] = j
		}
	}
}
