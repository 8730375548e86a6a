package follow

import (
	"sync"
	"time"

	"paddock/execd/api"
)

// presence knows who of those that follow is there: has a request that waits, or had one a
// moment ago. Its lock is held for a moment, under any other.
type presence struct {
	mu sync.Mutex
	of map[Who]*present // guarded by mu
}

type present struct {
	requests int       // that wait
	left     time.Time // when there was one last
}

// gap is how long it may be from one request to the next.
const gap = 10 * time.Second

// Attend notes that somebody follows, until leave is called.
func (a *Activations) Attend(w Who) (leave func()) {
	p := &a.present
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[Who]*present{}
	}
	one := p.of[w]
	if one == nil {
		one = &present{}
		p.of[w] = one
	}
	one.requests++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		one.requests--
		one.left = time.Now()
	}
}

// Disconnected reports whether the host that an activation is followed by does not listen, and
// hears nothing of it until it does again.
func (a *Activations) Disconnected(of *api.Activation) bool {
	if of == nil || of.Home == nil {
		return false
	}
	p := &a.present
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.of[Who{of.Host, of.User}]
	switch {
	case one == nil: // since this execd was started
		return time.Since(a.opened) > gap
	case one.requests > 0:
		return false
	}
	return time.Since(one.left) > gap
}
