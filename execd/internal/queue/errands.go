package queue

import "sync"

// errands are what may block. They are done one after the other, by a goroutine that is
// there as long as there are any.
type errands struct {
	mu   sync.Mutex    // comes after Queue.mu; nothing is done under it
	todo []func()      // guarded by mu
	done chan struct{} // guarded by mu; closed when there are none; nil: there are none
}

// add has something done, after all that was added before.
func (e *errands) add(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.todo = append(e.todo, do)
	if e.done == nil {
		e.done = make(chan struct{})
		go e.run(e.done)
	}
}

func (e *errands) run(done chan struct{}) {
	defer close(done)
	for {
		e.mu.Lock()
		todo := e.todo
		if e.todo = nil; len(todo) == 0 {
			e.done = nil
		}
		e.mu.Unlock()
		if len(todo) == 0 {
			return
		}
		for _, do := range todo {
			do()
		}
	}
}

// wait returns when all is done.
func (e *errands) wait() {
	e.mu.Lock()
	done := e.done
	e.mu.Unlock()
	if done != nil {
		<-done
	}
}
