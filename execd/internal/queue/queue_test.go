package queue

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/source"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/spool/spooltest"
	"paddock/test/harness"
)

// programs are a source that starts its jobs itself.
type programs struct{ source.Queue }

func (programs) Queued() bool { return false }

func newRoot(t *testing.T) *spool.Root {
	t.Helper()
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func newStore(t *testing.T) *job.Store {
	t.Helper()
	s, err := job.Open(newRoot(t), false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func submit(t *testing.T, s *job.Store, tasks api.Tasks, maxRun int) *job.Job {
	t.Helper()
	j, _, err := s.Submit(&user.User{Name: "alice", UID: 1}, 100, &api.SubmitRequest{
		Name: "j", Binary: true, Command: "true", Tasks: tasks, MaxRun: maxRun,
	}, job.Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// bench is a queue whose tasks only end when it is told so.
type bench struct {
	q       *Queue
	claims  *claim.Table
	started chan string

	mu   sync.Mutex
	held map[string]held // guarded by mu
}

type held struct {
	task  *job.Task
	slots []*claim.Slot
}

func newBench(t *testing.T, s *job.Store, slots int, gids *GIDs) *bench {
	t.Helper()
	config := &conf.Config{Hostname: "h", Queues: []conf.Queue{{Name: "all.q", Slots: slots, Batch: true}}}
	states, err := OpenStates(newRoot(t), config.Queues, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{claims: claim.NewTable(config.Queues, Holder), started: make(chan string, 100), held: map[string]held{}}
	b.q = New(Options{
		Store: s, Claims: b.claims, GIDs: gids, Cores: NewCores(""), Boot: "boot", Config: config, States: states,
		Log: slog.New(slog.DiscardHandler), NeedLoad: func(bool) {}, Hold: func() string { return "" },
		Sources: source.Sources{source.Users: programs{}},
		Slots: Slots{
			JobAd: func(*job.Job, *job.Task, []string) *classad.Ad { return classad.New() },
			Look:  func() {}, Evict: func(*job.Task, claim.Effect, *claim.Effect) {},
		},
		Suspend: func(*job.Task, string) {},
		Start: func(task *job.Task, slots []*claim.Slot) {
			b.mu.Lock()
			b.held[task.String()] = held{task, slots}
			b.mu.Unlock()
			b.started <- task.String()
		},
	})
	s.OnWork(b.q.Add)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { b.q.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	b.q.Wake()
	return b
}

func (b *bench) end(name string) {
	b.mu.Lock()
	h := b.held[name]
	b.mu.Unlock()
	b.q.Ended(h.task, h.slots, schedule.Used{})
}

func (b *bench) next(t *testing.T) string {
	t.Helper()
	select {
	case name := <-b.started:
		return name
	case <-time.After(time.Minute):
		t.Fatal("nothing is started")
		return ""
	}
}

// When a round has ended the queue has gone through all that it does: a job that nobody
// has told it of is started.
func TestRound(t *testing.T) {
	s := newStore(t)
	b := newBench(t, s, 1, NewGIDs(nil))
	s.OnWork(func(j *job.Job) {
		b.q.mu.Lock()
		defer b.q.mu.Unlock()
		b.q.changed[j.Number] = j
	})
	if !b.q.Round(t.Context()) {
		t.Fatal("the queue does not go round")
	}
	submit(t, s, api.Tasks{}, 0)
	if !b.q.Round(t.Context()) || len(b.started) != 1 {
		t.Errorf("after a round %d tasks are started", len(b.started))
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	stopped := New(b.q.o)
	if stopped.Round(ctx) {
		t.Error("a queue that does not run has gone round")
	}
}

// A job whose turn has come for what it asked for before is looked at again: it
// is neither started nor the next for ever.
func TestAlteredMeanwhile(t *testing.T) {
	s := newStore(t)
	b := newBench(t, s, 1, NewGIDs(nil))
	submit(t, s, api.Tasks{}, 0)
	b.next(t)
	second := submit(t, s, api.Tasks{}, 0)
	err := harness.WaitFor(harness.Patience, "the job to wait", func() (bool, error) {
		b.q.mu.Lock()
		defer b.q.mu.Unlock()
		return len(b.q.changed) == 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.OnWork(nil) // the hint comes late
	alter := func(to api.SubmitRequest) {
		t.Helper()
		reply, err := s.Alter(t.Context(), &api.AlterRequest{Jobs: []string{"2"}, Fields: []api.Field{api.FieldQueues}, To: to}, job.Caller{UID: 1}, job.AlterHooks{
			Check: func(*job.Job, []api.Field, *api.SubmitRequest) ([]api.Line, bool, error) { return nil, false, nil },
		})
		if err != nil || len(reply.Lines) != 1 || reply.Lines[0].Failed {
			t.Fatalf("%v, %v", reply.Lines, err)
		}
	}
	alter(api.SubmitRequest{Queues: []string{"other.q"}})
	b.end("1.1")
	err = harness.WaitFor(harness.Patience, "the job to be unfit", func() (bool, error) {
		b.q.mu.Lock()
		defer b.q.mu.Unlock()
		return b.q.unfit[second.Number] != "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.OnWork(b.q.Add)
	alter(api.SubmitRequest{})
	if got := b.next(t); got != "2.1" {
		t.Errorf("%s is started; want 2.1", got)
	}
}

// A run that comes to nothing gives back its slot and cores once, though the job has
// been let start again before that, in another slot.
func TestStartedAgainBeforeGivenBack(t *testing.T) {
	s := newStore(t)
	b := newBench(t, s, 2, NewGIDs(nil))
	cores := NewCores("SCC")
	b.q.mu.Lock()
	b.q.o.Cores = cores
	b.q.mu.Unlock()
	_, _, err := s.Submit(&user.User{Name: "alice", UID: 1}, 1, &api.SubmitRequest{Name: "j", Binary: true, Command: "true", Binding: "linear:1"}, job.Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	name := b.next(t)
	b.mu.Lock()
	first := b.held[name]
	b.mu.Unlock()
	if err := s.Fail(first.task, "its shell is missing"); err != nil {
		t.Fatal(err)
	}
	anew := &api.ModifyRequest{Action: api.ActionClear, Jobs: []string{"1"}}
	if reply, err := s.Modify(t.Context(), anew, job.Caller{UID: 1, Manager: true}, job.Hooks{}); err != nil || len(reply.Lines) != 1 || reply.Lines[0].Failed {
		t.Fatalf("%+v, %v", reply, err)
	}
	if again := b.next(t); again != name || cores.InUse() == "SCC" {
		t.Fatalf("%s is started, cores in use %s; want %s again, with a core", again, cores.InUse(), name)
	}
	b.q.Ended(first.task, first.slots, schedule.Used{})
	if got := strings.Count(cores.InUse(), "c"); got != 1 || b.q.Running("all.q") != 1 {
		t.Errorf("when the first has given its back %d run, cores in use: %s; want 1 and one", b.q.Running("all.q"), cores.InUse())
	}
	b.end(name)
	if got := cores.InUse(); got != "SCC" || b.q.Running("all.q") != 0 {
		t.Errorf("at the end %d run, cores in use: %s; want none", b.q.Running("all.q"), got)
	}
}

// A job waits for a time of the day, not for a duration.
func TestClockSet(t *testing.T) {
	s := newStore(t)
	j, _, err := s.Submit(&user.User{Name: "alice", UID: 1}, 1, &api.SubmitRequest{
		Name: "j", Binary: true, Command: "true", After: time.Now().Add(time.Hour),
	}, job.Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, s, 1, NewGIDs(nil))
	err = harness.WaitFor(harness.Patience, "the job to wait", func() (bool, error) {
		b.q.mu.Lock()
		defer b.q.mu.Unlock()
		return len(b.q.later) == 1, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	j.Terms().After = time.Now() // as far away as if the clock had been set forward
	b.q.ClockSet()
	b.next(t)
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
	if got := b.claims.Busy(); got != 2 {
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
	if n := b.claims.Busy(); n != 3 {
		t.Errorf("Busy = %d; want 3", n)
	}
}

func TestWhyNotStarting(t *testing.T) {
	s := newStore(t)
	b := newBench(t, s, 1, NewGIDs(nil))
	submit(t, s, api.Tasks{}, 0)
	b.next(t)
	waiting := submit(t, s, api.Tasks{}, 0)
	if got, want := b.q.Reasons(waiting), []string{`queue instance "all.q@h" dropped because it is full`, "All queues dropped because of overload or full; 0 jobs are ahead of it"}; !slices.Equal(got, want) {
		t.Errorf("Reasons = %q; want %q", got, want)
	}
	// Also of one that came just now, which nobody has looked at yet.
	s.OnWork(func(j *job.Job) {
		b.q.mu.Lock()
		defer b.q.mu.Unlock()
		b.q.changed[j.Number] = j
	})
	late := submit(t, s, api.Tasks{}, 0)
	if got, want := b.q.Verdicts()(late.Number), "All queues dropped because of overload or full"; got != want {
		t.Errorf("the verdict of a job that came just now is %q; want %q", got, want)
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
		gid, ok := g.Take()
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
	if gid, ok := g.Take(); !ok || gid != 101 {
		t.Errorf("take = %d, %v; want 101", gid, ok)
	}
	none := NewGIDs(nil)
	if gid, ok := none.Take(); !ok || gid != 0 {
		t.Errorf("without ranges: take = %d, %v; want 0, true", gid, ok)
	}
}

func TestClaimsBeyondTheSlots(t *testing.T) {
	one := func(queue string) []schedule.QueueSlots { return []schedule.QueueSlots{{Queue: queue, Slots: 1}} }
	slots := claim.NewTable([]conf.Queue{{Name: "all.q", Slots: 2}}, Holder)
	first := slots.Activate("1.1", []schedule.QueueSlots{{Queue: "all.q", Slots: 2}}, nil)
	second := slots.Activate("2.1", one("gone.q"), nil)
	third := slots.Activate("3.1", one("all.q"), nil)
	if slots.Busy() != 4 || len(first) != 2 || second[0].Index != 0 || third[0].Index != 0 {
		t.Errorf("busy %d, claims %v %v %v; want 4, of which two have no slot", slots.Busy(), first, second, third)
	}
	slots.Deactivate(second)
	slots.Deactivate(first)
	slots.Deactivate(first)
	if slots.Busy() != 1 {
		t.Errorf("Busy = %d; want 1", slots.Busy())
	}
	if c := slots.Activate("4.1", one("all.q"), nil); c[0] != first[0] {
		t.Errorf("after both ended slot %d is taken; want 1", c[0].Index)
	}
	slots.Resize([]conf.Queue{{Name: "all.q", Slots: 1}, {Name: "new.q", Slots: 1}})
	if c := slots.Activate("5.1", one("all.q"), nil); c[0].Index != 0 || slots.Slots() != 2 {
		t.Errorf("of a smaller queue slot %d is taken, of %d slots in all; want none, 2", c[0].Index, slots.Slots())
	}
}

// answers fails the test if what qstat asks the queue for waits for anybody.
func answers(t *testing.T, q *Queue, j *job.Job) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.Status()
		q.HostValues()
		q.Reasons(j)
		q.Verdicts()(j.Number)
		q.Ranks()(&api.JobStatus{Job: j.Number, State: "qw"})
		q.Running("all.q")
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("qstat waits")
	}
}

// What a suspension waits for, qstat does not: the name services, say.
func TestSuspendWaits(t *testing.T) {
	s := newStore(t)
	b := newBench(t, s, 1, NewGIDs(nil))
	told, goOn := make(chan string), make(chan struct{})
	b.q.o.Suspend = func(_ *job.Task, letters string) {
		told <- letters
		<-goOn
	}
	submit(t, s, api.Tasks{}, 0)
	waits := submit(t, s, api.Tasks{}, 0)
	b.next(t)
	for _, tt := range []struct {
		action  api.Action
		letters string
	}{{api.ActionSuspend, "S"}, {api.ActionResume, ""}} {
		if _, err := b.q.o.States.change(tt.action, "all.q", "alice"); err != nil {
			t.Fatal(err)
		}
		b.q.applyStates()
		b.q.Wake()
		if got := <-told; got != tt.letters {
			t.Errorf("%s: told %q", tt.action, got)
		}
		answers(t, b.q, waits)
		goOn <- struct{}{}
	}
}

// Nor does it wait for the disk on which the state of a queue is written.
func TestStatesOnDiskThatHangs(t *testing.T) {
	s := newStore(t)
	b := newBench(t, s, 1, NewGIDs(nil))
	submit(t, s, api.Tasks{}, 0)
	waits := submit(t, s, api.Tasks{}, 0)
	b.next(t)
	hangs, goOn := spooltest.Hang(t, spool.FileQueues)
	changed := make(chan error, 1)
	go func() {
		_, err := b.q.Modify(&api.ModifyRequest{Action: api.ActionDisable, Queues: []string{"all.q"}}, job.Caller{Name: "root", Manager: true}, "h")
		changed <- err
	}()
	<-hangs
	answers(t, b.q, waits)
	if list := b.q.Status(); list[0].States != "" {
		t.Errorf("states %q, which are not on disk", list[0].States)
	}
	goOn()
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
	if list := b.q.Status(); list[0].States != "d" {
		t.Errorf("states %q; want d", list[0].States)
	}
}
