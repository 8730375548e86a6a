package journal

import (
	"errors"
	"sync"
	"time"

	"paddock/execd/internal/serial"
)

// queues are what is written of jobs of qsub that wait. The zero value is ready.
type queues struct {
	mu   sync.Mutex
	jobs map[int]*serial.Queue // guarded by mu; of which something is written, by number
}

// maxWaiting is how much of a job that waits may stand in its queue. How long a write
// takes its user decides, and how often he holds his job.
const maxWaiting = 64

// flush waits until all is written that stands in the queue of a job.
func (q *queues) flush(number int) {
	q.mu.Lock()
	of := q.jobs[number]
	q.mu.Unlock()
	if of != nil {
		of.Wait()
	}
}

// add has something written of a job. It reports false if too much waits already.
func (q *queues) add(number int, write func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := q.jobs[number]
	if of == nil {
		of = &serial.Queue{}
		if q.jobs == nil {
			q.jobs = make(map[int]*serial.Queue)
		}
		q.jobs[number] = of
	}
	return of.AddBelow(maxWaiting, func() {
		write()
		q.mu.Lock()
		defer q.mu.Unlock()
		if of.Waiting() == 0 {
			delete(q.jobs, number)
		}
	})
}

// backlogs count what of the runs and jobs of each user waits to be written. The zero
// value is ready.
type backlogs struct {
	mu    sync.Mutex
	users map[int]*backlog // guarded by mu; by uid
}

// backlog is that of one user.
type backlog struct {
	waiting int
	moved   time.Time // when the last was written
}

// A run keeps its group id until its end is told, and there are not many for all users.
// So of one whose files take their time, as on a file system that hangs or under a lock,
// no more than maxBacklog runs wait for them once nothing has moved for stuck.
const (
	maxBacklog = 64
	stuck      = time.Second
)

var errBacklog = errors.New("too much of the user's waits to be written")

// enter adds to the backlog of a user what leave takes away again.
func (b *backlogs) enter(uid int) (leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.users[uid]
	if of == nil {
		of = &backlog{moved: time.Now()}
		if b.users == nil {
			b.users = make(map[int]*backlog)
		}
		b.users[uid] = of
	}
	if of.waiting >= maxBacklog && time.Since(of.moved) > stuck {
		return nil, errBacklog
	}
	of.waiting++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		of.moved = time.Now()
		if of.waiting--; of.waiting == 0 {
			delete(b.users, uid)
		}
	}, nil
}
