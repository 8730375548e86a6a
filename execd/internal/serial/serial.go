// Package serial does things one after the other, while the caller goes on: things that may
// wait for a disk, a process or a file of a user. Execd's packages use it; it imports only
// the standard library.
package serial

import (
	"math"
	"sync"
)

// Queue is what is to be done. The zero value is empty. A goroutine is there as long as
// there is anything to do.
type Queue struct {
	mu   sync.Mutex    // nothing is done under it
	todo []func()      // guarded by mu; what was not begun
	done chan struct{} // guarded by mu; closed when all is done; nil: it is
}

// Add has something done after all that was added before. It does not block.
func (q *Queue) Add(do func()) { q.AddBelow(math.MaxInt, do) }

// AddBelow is Add as long as fewer than limit wait for their turn. It reports whether
// they were.
func (q *Queue) AddBelow(limit int, do func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.todo) >= limit {
		return false
	}
	q.todo = append(q.todo, do)
	if q.done == nil {
		q.done = make(chan struct{})
		go q.run()
	}
	return true
}

func (q *Queue) run() {
	for {
		q.mu.Lock()
		if len(q.todo) == 0 {
			close(q.done)
			q.todo, q.done = nil, nil
			q.mu.Unlock()
			return
		}
		do := q.todo[0]
		q.todo = q.todo[1:]
		q.mu.Unlock()
		do()
	}
}

// Waiting returns how many wait for their turn.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.todo)
}

// Done returns a channel that is closed when all is done; nil: it is.
func (q *Queue) Done() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.done
}

// Wait returns when all is done.
func (q *Queue) Wait() {
	if done := q.Done(); done != nil {
		<-done
	}
}
