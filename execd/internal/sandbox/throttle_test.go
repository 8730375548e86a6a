package sandbox

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/conf/knob/knobtest"
)

// queue is turns with users who come and leave.
type queue struct {
	*testing.T
	turns
	got   []string // who was given a place, in order
	done  map[string]func()
	waits int
}

// come has somebody ask for a place.
func (q *queue) come(ctx context.Context, who string, uid int) {
	go func() {
		done, err := q.take(ctx, uid, func() { q.waits++ })
		if err == nil {
			q.got, q.done[who] = append(q.got, who), done
		}
	}()
	synctest.Wait()
}

func (q *queue) want(who ...string) {
	q.Helper()
	synctest.Wait()
	if !slices.Equal(q.got, who) {
		q.Errorf("%q have a place; want %q", q.got, who)
	}
	q.got = nil
}

func (q *queue) leaves(who string) {
	q.done[who]()
	synctest.Wait()
}

// Who has the fewest places is next, then who came first; nobody has more than his share,
// and who waits says so.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, each := 3, 2
		q := &queue{T: t, turns: turns{limits: func() (int, int) { return all, each }}, done: map[string]func(){}}
		q.come(t.Context(), "a1", 1)
		q.come(t.Context(), "a2", 1)
		q.come(t.Context(), "a3", 1)
		q.want("a1", "a2")
		if q.waits != 1 {
			t.Errorf("%d say that they wait; want a3 alone", q.waits)
		}
		q.come(t.Context(), "b1", 2)
		q.want("b1")
		q.come(t.Context(), "b2", 2)
		q.come(t.Context(), "c1", 3)
		q.want()
		q.leaves("a1") // a and b have one each, and c none
		q.want("c1")
		q.leaves("c1") // a3 came before b2
		q.want("a3")
		q.leaves("b1")
		q.want("b2")
		// Who gives up leaves nothing, neither in the line nor with a place.
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("deleted")
		failed := make(chan error, 1)
		go func() {
			_, err := q.take(ctx, 4, func() {})
			failed <- err
		}()
		synctest.Wait()
		cancel(why)
		if err := <-failed; !errors.Is(err, why) {
			t.Errorf("%v; want why it was cancelled", err)
		}
		// A larger number is dealt out at once.
		q.come(t.Context(), "a4", 1)
		q.come(t.Context(), "b3", 2)
		q.want()
		all = 5
		q.again()
		q.want("b3")
		each = 3
		q.again()
		q.want("a4")
		for _, who := range []string{"a2", "a3", "a4", "b2", "b3"} {
			q.leaves(who)
		}
		if q.taken != 0 || len(q.of) != 0 || len(q.waiting) != 0 {
			t.Errorf("left: %d places, of %v, %d waiting", q.taken, q.of, len(q.waiting))
		}
	})
}

// In root mode a user has a fifth of the places, and at least one.
func TestLimits(t *testing.T) {
	for _, test := range []struct {
		knob       string
		root       bool
		all, each  int
		brief, few int
	}{
		{"", true, 10, 2, brief + 20, briefEach + 4},
		{"MAX_CONCURRENT_UPLOADS = 3", true, 3, 1, brief + 13, briefEach + 3},
		{"MAX_CONCURRENT_UPLOADS = 3", false, 3, 3, brief + 13, briefEach + 13},
		{"MAX_CONCURRENT_UPLOADS = 0", true, 1<<31 - 1, 1<<31/5 + 1, brief + 10 + 1<<31 - 1, briefEach + 2 + 1<<31/5 + 1},
	} {
		knobs := knobtest.Parse(t, test.knob)
		th := NewThrottle(func() *knob.Set { return knobs }, test.root)
		all, each := th.up.limits()
		brief, few := th.brief.limits()
		if all != test.all || each != test.each || brief != test.brief || few != test.few {
			t.Errorf("%q: %d, %d each, %d brief, %d each; want %+v", test.knob, all, each, brief, few, test)
		}
	}
}
