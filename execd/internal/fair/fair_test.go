package fair

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// enter asks to come in and says so on a channel when it is inside.
func enter(ctx context.Context, t *testing.T, g *Gate, uid, size int, in chan<- int) (leave chan func()) {
	t.Helper()
	leave = make(chan func(), 1)
	go func() {
		f, err := g.Enter(ctx, uid, size)
		if err != nil {
			leave <- nil
			return
		}
		in <- uid
		leave <- f
	}()
	synctest.Wait()
	return leave
}

// What came first does not decide when users compete, but whose turn it is.
func TestGateTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{Total: 2, PerUser: 2}
		in := make(chan int, 100)
		var leaves []chan func()
		for range 6 {
			leaves = append(leaves, enter(t.Context(), t, g, 1, 1, in))
		}
		for range 2 {
			leaves = append(leaves, enter(t.Context(), t, g, 2, 1, in))
		}
		leaves = append(leaves, enter(t.Context(), t, g, 3, 1, in))
		var order []int
		for range leaves {
			order = append(order, <-in)
			// Who is inside leaves, one after the other.
			i := slices.IndexFunc(leaves, func(c chan func()) bool { return len(c) > 0 })
			(<-leaves[i])()
			synctest.Wait()
		}
		if want := []int{1, 1, 1, 2, 3, 1, 2, 1, 1}; !slices.Equal(order, want) {
			t.Errorf("let in: %v; want %v", order, want)
		}
		if len(g.users) != 0 || len(g.turns) != 0 || g.inside != 0 {
			t.Errorf("left: %d users, %d turns, %d inside; want nothing", len(g.users), len(g.turns), g.inside)
		}
	})
}

// One user's share does not grow when nobody else is there.
func TestGatePerUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{Total: 3, PerUser: 2}
		in := make(chan int, 10)
		first := enter(t.Context(), t, g, 1, 1, in)
		second := enter(t.Context(), t, g, 1, 1, in)
		third := enter(t.Context(), t, g, 1, 1, in)
		if len(in) != 2 {
			t.Fatalf("%d of one user are inside; want 2", len(in))
		}
		other := enter(t.Context(), t, g, 2, 1, in)
		if len(in) != 3 {
			t.Fatal("another user waits although there is room")
		}
		(<-first)()
		(<-second)()
		(<-third)()
		(<-other)()
		if len(g.users) != 0 {
			t.Error("users are remembered")
		}
	})
}

// Who gives up takes nobody's place.
func TestGateGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{Total: 1, PerUser: 1}
		in := make(chan int, 10)
		first := enter(t.Context(), t, g, 1, 1, in)
		ctx, cancel := context.WithCancel(t.Context())
		gone := enter(ctx, t, g, 2, 1, in)
		last := enter(t.Context(), t, g, 3, 1, in)
		cancel()
		if f := <-gone; f != nil {
			t.Fatal("let in although the place was taken")
		}
		(<-first)()
		(<-last)()
		if g.inside != 0 || len(g.users) != 0 || len(g.turns) != 0 {
			t.Errorf("left: %d inside, %d users, %d turns", g.inside, len(g.users), len(g.turns))
		}
		// With a context that is over already it is a matter of chance which
		// is seen first; no place may be lost.
		for range 100 {
			f, err := g.Enter(ctx, 1, 1)
			if err == nil {
				f()
			} else if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if g.inside != 0 || len(g.users) != 0 {
			t.Errorf("left: %d inside, %d users", g.inside, len(g.users))
		}
	})
}

// Of what has a size as much is inside as fits; what is larger than that is alone, and
// is not overtaken for ever.
func TestGateSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{Total: 10, PerUser: 6}
		in := make(chan int, 10)
		small := enter(t.Context(), t, g, 1, 4, in)
		large := enter(t.Context(), t, g, 1, 99, in)
		behind := enter(t.Context(), t, g, 1, 1, in)
		other := enter(t.Context(), t, g, 2, 5, in)
		if len(in) != 2 || len(small) != 1 || len(other) != 1 {
			t.Fatalf("%d are inside; want the small one and the other user's", len(in))
		}
		(<-small)()
		synctest.Wait()
		if len(in) != 2 {
			t.Fatal("what is larger than all that fits is not alone")
		}
		(<-other)()
		synctest.Wait()
		if len(large) != 1 || len(behind) != 0 {
			t.Fatalf("large inside: %d, behind it: %d; want it alone", len(large), len(behind))
		}
		(<-large)()
		(<-behind)()
		if g.inside != 0 || len(g.users) != 0 {
			t.Errorf("left: %d inside, %d users", g.inside, len(g.users))
		}
		// Who gives up lets in what is behind it.
		first := enter(t.Context(), t, g, 1, 4, in)
		ctx, cancel := context.WithCancel(t.Context())
		enter(ctx, t, g, 1, 6, in)
		last := enter(t.Context(), t, g, 1, 2, in)
		cancel()
		synctest.Wait()
		if len(last) != 1 {
			t.Error("what fits waits for somebody who has gone")
		}
		(<-first)()
		(<-last)()
	})
}

func TestMeter(t *testing.T) {
	var m Meter
	now := time.Unix(1000, 0)
	for i := range 20 {
		if wait := m.Take(1, 2, now); wait != 0 {
			t.Fatalf("turn %d of the first second: wait %v", i, wait)
		}
	}
	if wait := m.Take(1, 2, now); wait != 500*time.Millisecond {
		t.Errorf("turn 21 of 20: wait %v; want 500ms", wait)
	}
	if wait := m.Take(2, 2, now); wait != 0 {
		t.Errorf("another user: wait %v", wait)
	}
	now = now.Add(time.Second)
	for i, want := range []time.Duration{0, 0, 500 * time.Millisecond} {
		if wait := m.Take(1, 2, now); wait != want {
			t.Errorf("turn %d a second later: wait %v; want %v", i, wait, want)
		}
	}
	// What a lower rate still has to earn back was taken at a higher one.
	if wait := m.Take(1, 1, now); wait != 11*time.Second {
		t.Errorf("after the rate was lowered: wait %v; want 11s", wait)
	}
	// Users who went away are forgotten.
	for uid := range 1000 {
		m.Take(uid, 2, now)
	}
	m.Take(1, 2, now.Add(burst))
	if len(m.used) != 1 {
		t.Errorf("%d users are remembered; want 1", len(m.used))
	}
	// A clock that is set back stops nobody for ever.
	if wait := m.Take(1, 2, time.Unix(0, 0)); wait != 0 {
		t.Errorf("with the clock set back: wait %v", wait)
	}
	if wait := m.Take(1, 2, time.Unix(1, 0)); wait != 0 {
		t.Errorf("with the clock set back: wait %v", wait)
	}
}
