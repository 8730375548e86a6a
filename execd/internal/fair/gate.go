// Package fair keeps one user from taking what all users share: a Gate bounds how much
// of something is under way and lets users in by turns, a Meter bounds how often a user
// does something. Both remember a user only as long as that matters. Other packages of
// execd import it; it imports nothing of the project.
package fair

import (
	"context"
	"slices"
	"sync"
)

// Gate lets in so much at a time, in whatever unit its callers agree on: requests, or
// bytes. When it is full, users are let in by turns, and the entrants of one user in
// the order in which they came. An entrant larger than the whole gate is let in alone.
// The exported fields are set before first use and at least 1.
type Gate struct {
	Total   int // inside at the same time
	PerUser int // of them, of one user

	mu     sync.Mutex
	inside int           // guarded by mu
	users  map[int]*user // guarded by mu; those with an entrant inside or waiting
	turns  []int         // guarded by mu; users with an entrant that waits, the next first
}

type user struct {
	inside  int
	waiting []*entrant
}

// entrant is a call of Enter that waits.
type entrant struct {
	size int
	in   chan struct{} // closed when it is inside
}

// Enter waits until something of a size, at least 1, is let in. The caller calls leave
// once to give the place back. The error is that of ctx.
func (g *Gate) Enter(ctx context.Context, uid, size int) (leave func(), err error) {
	g.mu.Lock()
	if g.users == nil {
		g.users = map[int]*user{}
	}
	u := g.users[uid]
	if u == nil {
		u = &user{}
		g.users[uid] = u
	}
	e := &entrant{size, make(chan struct{})}
	u.waiting = append(u.waiting, e)
	if len(u.waiting) == 1 {
		g.turns = append(g.turns, uid)
	}
	g.admit()
	g.mu.Unlock()

	select {
	case <-e.in:
		return func() { g.leave(uid, size) }, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(u.waiting, e)
	if i < 0 { // let in at the same moment
		g.out(uid, size)
		return nil, ctx.Err()
	}
	u.waiting = slices.Delete(u.waiting, i, i+1)
	if len(u.waiting) == 0 {
		g.turns = slices.DeleteFunc(g.turns, func(other int) bool { return other == uid })
	}
	g.admit() // a smaller one may have waited behind it
	g.forget(uid)
	return nil, ctx.Err()
}

// Waiting returns how many entrants of a user wait.
func (g *Gate) Waiting(uid int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if u := g.users[uid]; u != nil {
		return len(u.waiting)
	}
	return 0
}

func (g *Gate) leave(uid, size int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out(uid, size)
}

// out takes an entrant of a user out. g.mu is held.
func (g *Gate) out(uid, size int) {
	g.inside -= size
	g.users[uid].inside -= size
	g.admit()
	g.forget(uid)
}

// fits reports whether there is room for more beside what is inside.
func fits(inside, more, most int) bool { return inside == 0 || inside+more <= most }

// admit lets in those that have room. Nobody overtakes the user whose turn it is and
// who finds the gate too full, or a large entrant would wait for ever. g.mu is held.
func (g *Gate) admit() {
	for {
		i := slices.IndexFunc(g.turns, func(uid int) bool {
			u := g.users[uid]
			return fits(u.inside, u.waiting[0].size, g.PerUser)
		})
		if i < 0 {
			return
		}
		uid := g.turns[i]
		u := g.users[uid]
		e := u.waiting[0]
		if !fits(g.inside, e.size, g.Total) {
			return
		}
		g.turns = slices.Delete(g.turns, i, i+1)
		close(e.in)
		u.waiting = slices.Delete(u.waiting, 0, 1)
		u.inside += e.size
		g.inside += e.size
		if len(u.waiting) > 0 {
			g.turns = append(g.turns, uid)
		}
	}
}

// forget drops a user who has no entrant. g.mu is held.
func (g *Gate) forget(uid int) {
	if u := g.users[uid]; u.inside == 0 && len(u.waiting) == 0 {
		delete(g.users, uid)
	}
}
