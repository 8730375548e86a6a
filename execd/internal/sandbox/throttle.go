package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/job"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/sandbox/worker"
	"paddock/execd/internal/user"
)

// The knobs of turns.
const (
	knobUploads   = "MAX_CONCURRENT_UPLOADS"
	knobDownloads = "MAX_CONCURRENT_DOWNLOADS"
	knobBandwidth = "TRANSFER_BANDWIDTH"
)

// atOnce is how many transfers in one direction may move bytes at the same time: they
// share one disk.
const atOnce = 10

// perUser is the share of a user of all places, in root mode: one who moves terabytes
// leaves places for others.
const perUser = 5

// For transfers that move few bytes, or none, since they rename. They are over in a
// moment, unless their owner stops them.
const (
	brief     = 32
	briefEach = 8
)

// turns are places for transfers. Who has the fewest is next, then who has waited longest.
type turns struct {
	limits func() (all, each int)

	mu      sync.Mutex
	taken   int         // guarded by mu
	of      map[int]int // guarded by mu; by uid
	waiting []*turn     // guarded by mu; in the order in which they came
}

// turn waits for a place.
type turn struct {
	uid   int
	given chan struct{} // closed when it has one
}

// take waits for a place, which done gives back; waits is called before that.
func (q *turns) take(ctx context.Context, uid int, waits func()) (done func(), err error) {
	w := &turn{uid, make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, w)
	q.deal()
	q.mu.Unlock()
	select {
	case <-w.given:
		return func() { q.leave(w) }, nil
	default:
	}
	waits()
	select {
	case <-w.given:
		return func() { q.leave(w) }, nil
	case <-ctx.Done():
		q.leave(w)
		return nil, context.Cause(ctx)
	}
}

// leave gives back the place of a transfer, or that in the line.
func (q *turns) leave(w *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.waiting {
		if q.waiting[i] == w {
			q.waiting = slices.Delete(q.waiting, i, i+1)
			return
		}
	}
	q.taken--
	if q.of[w.uid]--; q.of[w.uid] == 0 {
		delete(q.of, w.uid)
	}
	q.deal()
}

// again gives the places out that a new configuration allows.
func (q *turns) again() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deal()
}

// deal gives out the places there are. q.mu is held.
func (q *turns) deal() {
	all, each := q.limits()
	for q.taken < all {
		next := -1
		for i, w := range q.waiting {
			if q.of[w.uid] < each && (next < 0 || q.of[w.uid] < q.of[q.waiting[next].uid]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := q.waiting[next]
		q.waiting = slices.Delete(q.waiting, next, next+1)
		if q.of == nil {
			q.of = map[int]int{}
		}
		q.taken++
		q.of[w.uid]++
		close(w.given)
	}
}

// Throttle has the turns of a host.
type Throttle struct {
	brief, up, down turns
}

// NewThrottle returns turns by the knobs of the configuration. In root mode no user has
// all of them.
func NewThrottle(knobs func() *knob.Set, privileged bool) *Throttle {
	limits := func(name string) func() (all, each int) {
		return func() (all, each int) {
			if all = knobs().Int(name, atOnce); all == 0 {
				all = math.MaxInt32
			}
			if each = all; privileged {
				each = (all + perUser - 1) / perUser
			}
			return all, each
		}
	}
	t := &Throttle{up: turns{limits: limits(knobUploads)}, down: turns{limits: limits(knobDownloads)}}
	// A worker of an execd before this one has no turn, and who waits for it has a brief
	// one: there is one for each of them.
	t.brief.limits = func() (all, each int) {
		up, upEach := t.up.limits()
		down, downEach := t.down.limits()
		return brief + up + down, briefEach + upEach + downEach
	}
	return t
}

// Again has a new configuration take effect.
func (t *Throttle) Again() {
	for _, q := range []*turns{&t.brief, &t.up, &t.down} {
		q.again()
	}
}

// carry has a worker carry out orders when it is its turn, and reports its beginning and
// what was carried. Only a worker can tell whether it has to move many bytes: it is asked
// first, and does what needs none.
func (m *Manager) carry(ctx context.Context, q *turns, owner *user.User, t *job.Task, o *order.Orders, report func(order.Progress)) error {
	_, err := m.carryBy(ctx, q, owner, t, o, nil, report)
	return err
}

// carryBy is carry of a tree that goes by a stream.
func (m *Manager) carryBy(ctx context.Context, q *turns, owner *user.User, t *job.Task, o *order.Orders, via *worker.Stream, report func(order.Progress)) (order.Result, error) {
	return m.carryIn(ctx, q, owner, t.Start.Sandbox, o, via, report)
}

// carryIn is carryBy in a sandbox.
func (m *Manager) carryIn(ctx context.Context, q *turns, owner *user.User, box *job.Sandbox, o *order.Orders, via *worker.Stream, report func(order.Progress)) (order.Result, error) {
	var last order.Progress
	r, err := m.inBox(ctx, &m.Throttle.brief, owner, box, o, via, func(p order.Progress) {
		if !p.Queued {
			last = p
		}
	})
	if errors.Is(err, worker.ErrTurn) {
		o.Turn = true
		r, err = m.inBox(ctx, q, owner, box, o, via, report)
	} else {
		report(last)
	}
	if err == nil {
		report(order.Progress{Bytes: r.Bytes, Total: r.Bytes, Files: r.Files, Left: leftOut(&r)})
	}
	return r, err
}

// shown is how many names of what was left out are told of.
const shown = 3

// leftOut says what a transfer has left out, "" if that is nothing.
func leftOut(r *order.Result) string {
	if r.Skipped == 0 {
		return ""
	}
	list := r.Skips[:min(len(r.Skips), shown)]
	text := "left out: " + strings.Join(list, ", ")
	if more := r.Skipped - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// inTurn has a worker carry out orders when there is a place for it.
func (m *Manager) inTurn(ctx context.Context, q *turns, owner *user.User, t *job.Task, o *order.Orders, via *worker.Stream, report func(order.Progress)) (order.Result, error) {
	return m.inBox(ctx, q, owner, t.Start.Sandbox, o, via, report)
}

// inBox is inTurn in a sandbox.
func (m *Manager) inBox(ctx context.Context, q *turns, owner *user.User, box *job.Sandbox, o *order.Orders, via *worker.Stream, report func(order.Progress)) (order.Result, error) {
	done, err := q.take(ctx, owner.UID, func() { report(order.Progress{Queued: true}) })
	if err != nil {
		return order.Result{}, err
	}
	defer done()
	report(order.Progress{})
	if err := m.makeSay(box, owner); err != nil {
		return order.Result{}, err
	}
	return m.Worker.Copy(ctx, owner, box.Dir, o, via, report)
}

// Bandwidth returns how many bytes a second all transfers together may copy; 0: any
// number.
func Bandwidth(knobs *knob.Set) int64 { return int64(knobs.Int(knobBandwidth, 0)) }
