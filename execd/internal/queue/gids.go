package queue

import (
	"sync"

	"paddock/execd/internal/conf"
)

// GIDs hands out the additional group ids of gid_range, one for each running task and
// for each that is started in one, so that a job's processes are known wherever they go.
// It goes round, so that a freed id rests as long as it can: a straggler of an old job
// must not be taken for one of a new job's.
type GIDs struct {
	ranges []conf.Range // none: no ids are given out (user mode)

	mu   sync.Mutex
	used map[int]bool // guarded by mu
	next int          // guarded by mu; position over all ranges
}

// NewGIDs returns the ids of ranges, all free.
func NewGIDs(ranges []conf.Range) *GIDs {
	return &GIDs{ranges: ranges, used: map[int]bool{}}
}

// Use marks an id as taken: that of a job found after a restart.
func (g *GIDs) Use(gid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gid != 0 {
		g.used[gid] = true
	}
}

// Give returns an id; 0 is ignored.
func (g *GIDs) Give(gid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.used, gid)
}

// Take returns a free id, 0 where none are given out, and whether there was
// one.
func (g *GIDs) Take() (int, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	total := 0
	for _, r := range g.ranges {
		total += r.Last - r.First + 1
	}
	if total == 0 {
		return 0, true
	}
	for range total {
		gid := g.at(g.next)
		g.next = (g.next + 1) % total
		if !g.used[gid] {
			g.used[gid] = true
			return gid, true
		}
	}
	return 0, false
}

// at returns the id at a position over all ranges.
func (g *GIDs) at(i int) int {
	for _, r := range g.ranges {
		n := r.Last - r.First + 1
		if i < n {
			return r.First + i
		}
		i -= n
	}
	return 0
}
