package base

import (
	"context"
	"errors"
	"sync"
	"time"
)

// maxAtWork bounds how many runs are led on at the same time. A thousand jobs
// that start at once would each block a thread in the file system, and the
// threads stay. It is also how many ends share a group commit.
const maxAtWork = 16

// Pool does the work on all runs. The zero value is ready.
type Pool struct {
	mu     sync.Mutex
	stop   bool          // guarded by mu; nothing new is begun
	places chan struct{} // guarded by mu; filled by those at work
	work   sync.WaitGroup

	travel sync.WaitGroup
	ctx    context.Context         // guarded by mu; of all that is under way in travel
	cancel context.CancelCauseFunc // guarded by mu; of ctx
}

// ErrStopped is the cause why something is cancelled when execd stops.
var ErrStopped = errors.New("execd stops")

// Go does a part of the work in a goroutine of its own, when there is a place for it.
func (p *Pool) Go(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop {
		return // the next execd finds it on disk
	}
	if p.places == nil {
		p.places = make(chan struct{}, maxAtWork)
	}
	places := p.places
	p.work.Go(func() {
		places <- struct{}{}
		defer func() { <-places }()
		do()
	})
}

// Aside does something for which a user may have others wait, without the place of
// its caller: else a few of his runs would hold up those of everybody.
func (p *Pool) Aside(do func()) {
	p.mu.Lock()
	places := p.places
	p.mu.Unlock()
	select {
	case <-places:
		defer func() { places <- struct{}{} }()
	default: // its caller has none
	}
	do()
}

// Travel does something that may take hours, without a place, in a goroutine of its
// own. Its context is cancelled when the work is stopped.
func (p *Pool) Travel(do func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop {
		return // the next execd finds it on disk
	}
	if p.ctx == nil {
		p.ctx, p.cancel = context.WithCancelCause(context.Background())
	}
	ctx := p.ctx
	p.travel.Go(func() { do(ctx) })
}

// Later does something after a while, unless the work has been stopped by then.
func (p *Pool) Later(after time.Duration, do func()) {
	time.AfterFunc(after, func() {
		p.mu.Lock()
		stop := p.stop
		p.mu.Unlock()
		if !stop {
			do()
		}
	})
}

// Stop lets the work that is under way come to its end, cancels what may take hours, and
// begins nothing new. Jobs go on running.
func (p *Pool) Stop() {
	p.mu.Lock()
	p.stop = true
	if p.cancel != nil {
		p.cancel(ErrStopped)
	}
	p.mu.Unlock()
	p.work.Wait()
	p.travel.Wait()
}
