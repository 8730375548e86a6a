package queue

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
	"paddock/spool"
)

func newStore(t *testing.T) *job.Store {
	t.Helper()
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	s, err := job.Open(root, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func submit(t *testing.T, s *job.Store, tasks api.Tasks, maxRun int) *job.Job {
	t.Helper()
	j, err := s.Submit(&user.User{Name: "alice", UID: 1}, &api.SubmitRequest{
		Name: "j", Binary: true, Command: "true", Tasks: tasks, MaxRun: maxRun,
	}, job.Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// bench is a queue whose tasks only start when it is told that others ended.
type bench struct {
	q       *Queue
	slots   *claim.Table
	started chan string

	mu     sync.Mutex
	claims map[string]*claim.Claim // guarded by mu
}

func newBench(t *testing.T, s *job.Store, slots int, gids *GIDs) *bench {
	t.Helper()
	b := &bench{
		slots:   claim.NewTable([]conf.Queue{{Name: "all.q", Slots: slots}}, Holder),
		started: make(chan string, 100), claims: map[string]*claim.Claim{},
	}
	b.q = New(s, b.slots, "boot", gids, func(task *job.Task, c *claim.Claim) {
		b.mu.Lock()
		b.claims[task.String()] = c
		b.mu.Unlock()
		b.started <- task.String()
	})
	s.OnWork(b.q.Add)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { b.q.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return b
}

func (b *bench) end(name string) {
	b.mu.Lock()
	c := b.claims[name]
	b.mu.Unlock()
	b.slots.Deactivate(c)
	b.q.Wake()
}

func (b *bench) next(t *testing.T) string {
	t.Helper()
	select {
	case name := <-b.started:
		return name
	case <-time.After(10 * time.Second):
		t.Fatal("nothing is started")
		return ""
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	s := newStore(t)
	submit(t, s, api.Tasks{}, 0)
	b := newBench(t, s, 2, NewGIDs(nil))
	submit(t, s, api.Tasks{First: 1, Last: 3, Step: 2}, 0)
	submit(t, s, api.Tasks{}, 0)
	got := []string{b.next(t), b.next(t)}
	if want := []string{"1.1", "2.1"}; !slices.Equal(got, want) {
		t.Fatalf("started %v; want %v", got, want)
	}
	select {
	case name := <-b.started:
		t.Fatalf("%s is started without a slot", name)
	default:
	}
	b.end("1.1")
	if got := b.next(t); got != "2.3" {
		t.Errorf("started %s; want 2.3", got)
	}
	b.end("2.1")
	if got := b.next(t); got != "3.1" {
		t.Errorf("started %s; want 3.1", got)
	}
	if got := b.slots.Busy(); got != 2 {
		t.Errorf("Busy = %d; want 2", got)
	}
}

// -tc bounds one job and does not hold up the next.
func TestMaxRun(t *testing.T) {
	s := newStore(t)
	b := newBench(t, s, 5, NewGIDs(nil))
	submit(t, s, api.Tasks{First: 1, Last: 9, Step: 1}, 2)
	submit(t, s, api.Tasks{}, 0)
	got := []string{b.next(t), b.next(t), b.next(t)}
	if want := []string{"1.1", "1.2", "2.1"}; !slices.Equal(got, want) {
		t.Errorf("started %v; want %v", got, want)
	}
	if n := b.slots.Busy(); n != 3 {
		t.Errorf("Busy = %d; want 3", n)
	}
}

func TestWhyNotStarting(t *testing.T) {
	s := newStore(t)
	b := newBench(t, s, 1, NewGIDs(nil))
	submit(t, s, api.Tasks{}, 0)
	b.next(t)
	waiting := submit(t, s, api.Tasks{}, 0)
	if got, want := b.q.Reasons(waiting), []string{"slots: all 1 are in use; 0 jobs are ahead in the queue"}; !slices.Equal(got, want) {
		t.Errorf("Reasons = %q; want %q", got, want)
	}
	b.q.Pause("cannot start jobs: no space left on device", time.Hour)
	if got, want := b.q.Reasons(waiting), []string{"cannot start jobs: no space left on device"}; !slices.Equal(got, want) {
		t.Errorf("Reasons = %q; want %q", got, want)
	}
	b.end("1.1")
	select {
	case name := <-b.started:
		t.Errorf("%s is started in a pause", name)
	case <-time.After(50 * time.Millisecond):
	}
}

func TestGIDs(t *testing.T) {
	g := NewGIDs([]conf.Range{{First: 100, Last: 101}, {First: 200, Last: 200}})
	g.Use(101)
	var got []int
	for {
		gid, ok := g.take()
		if !ok {
			break
		}
		got = append(got, gid)
	}
	if want := []int{100, 200}; !slices.Equal(got, want) {
		t.Fatalf("took %v; want %v", got, want)
	}
	g.Give(101)
	g.Give(0)
	if gid, ok := g.take(); !ok || gid != 101 {
		t.Errorf("take = %d, %v; want 101", gid, ok)
	}
	none := NewGIDs(nil)
	if gid, ok := none.take(); !ok || gid != 0 {
		t.Errorf("without ranges: take = %d, %v; want 0, true", gid, ok)
	}
}

func TestAdoptMakesRoom(t *testing.T) {
	slots := claim.NewTable([]conf.Queue{{Name: "all.q", Slots: 1}}, Holder)
	first := slots.Adopt("all.q", "1.1")
	second := slots.Adopt("gone.q", "2.1")
	if slots.Idle() != nil || slots.Busy() != 2 {
		t.Errorf("after two adoptions: idle %v, busy %d; want none, 2", slots.Idle(), slots.Busy())
	}
	slots.Deactivate(second)
	slots.Deactivate(first)
	slots.Deactivate(first)
	if c := slots.Idle(); c != first || slots.Busy() != 0 {
		t.Errorf("after both ended: idle %v, busy %d; want the first, 0", c, slots.Busy())
	}
	if err := slots.Activate(first, "3.1"); err != nil {
		t.Error(err)
	}
	if err := slots.Activate(first, "4.1"); err == nil {
		t.Error("a busy claim is activated")
	}
}
