// Package fair keeps one user from taking what all users share: a Gate bounds
// how much of something is under way and lets users in by turns, a Meter bounds
// how often a user does something. Both remember a user only as long as that
// matters. Other packages of execd import it; it imports nothing of the
// project.
package fair

import (
	"context"
	"slices"
	"sync"
)

// Gate lets in so many at a time. When it is full those who wait are let in
// user by user in turn, and of one user in the order in which they came. The
// exported fields are set before first use and at least 1.
type Gate struct {
	Total   int // inside at the same time
	PerUser int // of one user

	mu     sync.Mutex
	inside int           // guarded by mu
	users  map[int]*user // guarded by mu; those with somebody inside or waiting
	turns  []int         // guarded by mu; users of whom somebody waits, next first
}

type user struct {
	inside  int
	waiting []chan struct{} // closed when it is inside
}

// Enter returns when the caller is inside; leave, called once, gives the place
// back. The error is that of ctx.
func (g *Gate) Enter(ctx context.Context, uid int) (leave func(), err error) {
	g.mu.Lock()
	if g.users == nil {
		g.users = map[int]*user{}
	}
	u := g.users[uid]
	if u == nil {
		u = &user{}
		g.users[uid] = u
	}
	in := make(chan struct{})
	u.waiting = append(u.waiting, in)
	if len(u.waiting) == 1 {
		g.turns = append(g.turns, uid)
	}
	g.admit()
	g.mu.Unlock()

	select {
	case <-in:
		return func() { g.leave(uid) }, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(u.waiting, in)
	if i < 0 { // let in at the same moment
		g.out(uid)
		return nil, ctx.Err()
	}
	u.waiting = slices.Delete(u.waiting, i, i+1)
	if len(u.waiting) == 0 {
		g.turns = slices.DeleteFunc(g.turns, func(other int) bool { return other == uid })
	}
	g.forget(uid)
	return nil, ctx.Err()
}

// Waiting returns how many of a user wait.
func (g *Gate) Waiting(uid int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if u := g.users[uid]; u != nil {
		return len(u.waiting)
	}
	return 0
}

func (g *Gate) leave(uid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out(uid)
}

// out takes one of a user's out. g.mu is held.
func (g *Gate) out(uid int) {
	g.inside--
	g.users[uid].inside--
	g.admit()
	g.forget(uid)
}

// admit lets in who may. g.mu is held.
func (g *Gate) admit() {
	for g.inside < g.Total {
		i := slices.IndexFunc(g.turns, func(uid int) bool { return g.users[uid].inside < g.PerUser })
		if i < 0 {
			return
		}
		uid := g.turns[i]
		u := g.users[uid]
		g.turns = slices.Delete(g.turns, i, i+1)
		close(u.waiting[0])
		u.waiting = slices.Delete(u.waiting, 0, 1)
		u.inside++
		g.inside++
		if len(u.waiting) > 0 {
			g.turns = append(g.turns, uid)
		}
	}
}

// forget drops a user of whom nobody is here. g.mu is held.
func (g *Gate) forget(uid int) {
	if u := g.users[uid]; u.inside == 0 && len(u.waiting) == 0 {
		delete(g.users, uid)
	}
}
