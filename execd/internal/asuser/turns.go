package asuser

import (
	"context"
	"sync"
)

// atOnce bounds what is done as one user at the same time. He can stop what has his
// rights, and his file systems may hang: then only his own requests wait.
const atOnce = 8

// turns are the places of users who have something done with their rights.
type turns struct {
	mu   sync.Mutex
	byID map[int]*turn // guarded by mu; by uid; only of users with something under way
}

type turn struct {
	places chan struct{}
	wanted int // guarded by turns.mu; how many hold it or wait for it
}

// take waits until there is a place for a user, which done gives back.
func (t *turns) take(ctx context.Context, uid int) (done func(), err error) {
	t.mu.Lock()
	if t.byID == nil {
		t.byID = map[int]*turn{}
	}
	u := t.byID[uid]
	if u == nil {
		u = &turn{places: make(chan struct{}, atOnce)}
		t.byID[uid] = u
	}
	u.wanted++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if u.wanted--; u.wanted == 0 {
			delete(t.byID, uid)
		}
	}
	select {
	case u.places <- struct{}{}:
		return func() { <-u.places; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
