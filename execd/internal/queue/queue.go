// Package queue decides which task goes to which slot next: first come, first
// served, over the slots in their order. It holds the claims of execd's own
// queue and activates them. Only daemon imports it; it imports job and claim.
package queue

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
)

// Holder is the name of execd's own queue as holder of claims.
const Holder = "queue"

// Queue brings jobs and claims together. It learns of both by hints and reads
// the truth from the Store and the claim Table.
type Queue struct {
	store *job.Store
	slots *claim.Table
	boot  string
	gids  *GIDs
	start func(*job.Task, *claim.Claim) // takes over a task whose claim is activated

	// Hold says why no task may be started now; empty: none is held. It is set
	// before Run and must not block; nil: never.
	Hold func() string

	wake chan struct{} // capacity 1

	mu     sync.Mutex
	line   *list.List            // guarded by mu; of *job.Job, in the order of their turn
	known  map[int]*list.Element // guarded by mu; by job number
	closed string                // guarded by mu; why nothing is started, or empty
	until  time.Time             // guarded by mu; when closed ends
}

// New returns a queue; Run starts tasks by calling start, which must not block.
func New(store *job.Store, slots *claim.Table, boot string, gids *GIDs, start func(*job.Task, *claim.Claim)) *Queue {
	q := &Queue{
		store: store, slots: slots, boot: boot, gids: gids, start: start,
		wake: make(chan struct{}, 1), line: list.New(), known: map[int]*list.Element{},
	}
	for _, j := range store.Pending() {
		q.Add(j)
	}
	return q
}

// Add tells that a job has something to start. A job that is not in the line
// goes to its end.
func (q *Queue) Add(j *job.Job) {
	q.mu.Lock()
	if q.known[j.Number] == nil {
		q.known[j.Number] = q.line.PushBack(j)
	}
	q.mu.Unlock()
	q.Wake()
}

// Wake tells that a slot may be free.
func (q *Queue) Wake() {
	select {
	case q.wake <- struct{}{}:
	default: // a hint is already there
	}
}

// Settle returns when a task that was just being taken is taken, so that what
// Hold says holds for all that come, and looks at all of them again.
func (q *Queue) Settle() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Wake()
}

// held returns what Hold says.
func (q *Queue) held() string {
	if q.Hold == nil {
		return ""
	}
	return q.Hold()
}

// Pause starts nothing for a while, since starting has failed for a reason
// that lies with the host (a full disk), and says why to those who ask.
func (q *Queue) Pause(reason string, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.until = reason, time.Now().Add(d)
	time.AfterFunc(d, q.Wake)
}

// Run starts tasks until ctx is done.
func (q *Queue) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		for more := true; more && ctx.Err() == nil; {
			more = q.startOne()
		}
	}
}

// startOne starts the task whose turn it is, and reports whether it is worth
// to try again at once.
func (q *Queue) startOne() bool {
	q.mu.Lock()
	paused := q.closed != "" && time.Now().Before(q.until)
	if !paused {
		q.closed = ""
	}
	q.mu.Unlock()
	if paused {
		return false
	}
	c := q.slots.Idle()
	if c == nil {
		return false
	}
	gid, ok := q.gids.take()
	if !ok {
		q.Pause("no additional group id of gid_range is free", time.Second)
		return false
	}
	t := q.takeTask(job.Start{Queue: c.Queue, Boot: q.boot, AddGID: gid})
	if t == nil {
		q.gids.Give(gid)
		return false
	}
	if err := q.slots.Activate(c, t.String()); err != nil {
		q.gids.Give(gid)
		q.store.Untake(t)
		return true
	}
	q.start(t, c)
	return true
}

// takeTask takes the first task of the line that may start now.
func (q *Queue) takeTask(start job.Start) *job.Task {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held() != "" {
		return nil
	}
	for e := q.line.Front(); e != nil; {
		j := e.Value.(*job.Job)
		t, found := q.store.Take(j, start, time.Now())
		if found == job.Took {
			return t
		}
		following := e.Next()
		if found == job.Nothing {
			q.line.Remove(e)
			delete(q.known, j.Number)
		}
		e = following
	}
	return nil
}

// Reasons says why a job that has something to start is not starting.
func (q *Queue) Reasons(j *job.Job) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if reason := q.held(); reason != "" {
		return []string{reason}
	}
	if q.closed != "" && time.Now().Before(q.until) {
		return []string{q.closed}
	}
	slots := q.slots.Slots()
	if slots == 0 {
		return []string{"the queues of this host have no slots"}
	}
	if busy := q.slots.Busy(); busy >= slots {
		ahead := 0
		for e := q.line.Front(); e != nil && e.Value.(*job.Job) != j; e = e.Next() {
			if q.store.Waits(e.Value.(*job.Job)) {
				ahead++
			}
		}
		return []string{fmt.Sprintf("slots: all %d are in use; %d jobs are ahead in the queue", slots, ahead)}
	}
	return nil
}
