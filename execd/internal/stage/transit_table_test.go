package stage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
)

// place is where output goes: an Output that takes an hour, or fails as the place does.
type place struct {
	when  api.WhenOut
	begun time.Time

	mu              sync.Mutex
	fails           error           // guarded by mu, as all below; nil: it takes what comes
	stays           error           // why what has come cannot be removed; nil: it can
	sent, discarded int             // how often output came whole, and was removed
	tries           []time.Duration // when attempts began
}

func (*place) Async(*job.Task) bool                  { return true }
func (*place) Size(*job.Sandbox) int64               { return 0 }
func (*place) Freeze(*job.Task, int)                 {}
func (*place) Arrived(*job.Task)                     {}
func (*place) Sync(context.Context, *job.Task) error { return nil }

func (p *place) Leaves(*job.Task) (when api.WhenOut, files, streams bool) { return p.when, true, false }

func (p *place) Discard(context.Context, *job.Task) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discarded++
	return p.stays
}

func (p *place) Send(ctx context.Context, _ *job.Task, report func(base.Progress)) error {
	p.mu.Lock()
	p.tries = append(p.tries, time.Since(p.begun).Truncate(time.Second))
	err := p.fails
	p.mu.Unlock()
	report(base.Progress{Bytes: 1, Total: 2})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Hour):
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent++
	return nil
}

// fail changes how the place fails.
func (p *place) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = err
}

// The events that may happen to output on its way, and to output that is stuck, on a clock
// that is not real: it arrives once, is given up only by who deletes the job, and no event
// has the job run again.
//
//   - REQ-XFER-43: a suspension changes nothing.
//   - REQ-XFER-44, REQ-EXIT-110: a deletion ends it, unless the job wants its output then.
//   - REQ-XFER-70, REQ-XFER-71, REQ-EXIT-40: a worker, execd or the host dies, and only the
//     transfer is done again.
//   - REQ-XFER-74, REQ-XFER-75, REQ-EXIT-111: what may pass is tried again for as long as
//     there is patience; a full disk every five minutes; all else when somebody has looked.
func TestOutputMeetsEvents(t *testing.T) {
	const (
		sending = "to"
		stuck   = "Eto"
		arrives = "arrived"
		deleted = "deleted"
	)
	failure := func(errno unix.Errno) error { return &exit.Permanent{Errno: int(errno), Err: errno} }
	denied := failure(unix.EACCES)
	var (
		mended = func(_ *scene, p *place) { p.fail(nil) }
		wait   = func(d time.Duration) func(*scene, *place) { return func(*scene, *place) { time.Sleep(d) } }
		qdel   = func(s *scene, _ *place) {
			if _, err := s.r.Store.Delete(s.t.Context(), &api.DeleteRequest{Jobs: []string{"1"}}, job.Caller{UID: 1001, Name: "alice"}, s.r.Kill); err != nil {
				s.t.Error(err)
			}
		}
		modify = func(a api.Action) func(*scene, *place) {
			return func(s *scene, _ *place) {
				if _, err := s.r.Store.Modify(s.t.Context(), &api.ModifyRequest{Action: a, Jobs: []string{"1"}}, job.Caller{UID: 1001, Name: "alice"}, job.Hooks{Host: "h", Changed: s.r.Changed}); err != nil {
					s.t.Error(err)
				}
			}
		}
		suspend = func(s *scene, p *place) {
			modify(api.ActionSuspend)(s, p)
			s.r.Suspend(s.l.task, "S") // by its queue
			s.r.Suspend(s.l.task, "")
		}
		// As the daemon has the job of a slot leave it, or of a claim: it does not run there any
		// more.
		vacated = func(s *scene, _ *place) {
			if news, err := s.r.Store.Evict(s.l.task, job.Want{Signal: int(unix.SIGKILL), By: "slot1", Slot: true, Requeue: true}); news || err != nil {
				s.t.Errorf("to leave its slot is news to it: %v, %v", news, err)
			}
			s.r.Kill(s.l.task)
		}
		killed  = func(s *scene, _ *place) { s.startAgain(false) }
		reboots = func(s *scene, _ *place) { s.startAgain(true) }
	)
	const minute, hour, day = time.Minute, time.Hour, 24 * time.Hour
	type step = func(*scene, *place)
	for _, tt := range []struct {
		name   string
		when   api.WhenOut
		fails  error // from the first attempt on; nil: it is on its way
		events []step
		after  string          // how it stands then, a minute later
		tries  []time.Duration // when attempts begin; nil: at once alone
		ends   []step
		end    string // how it ends, then
	}{
		{name: "nothing", after: sending, end: arrives},
		{name: "it is suspended", events: []step{suspend}, after: sending, end: arrives},
		{name: "its slot is vacated, or its claim ends", events: []step{vacated}, after: sending, end: arrives},
		{name: "it is deleted", events: []step{qdel}, after: deleted},
		{name: "it is deleted, and its output is wanted", when: api.OutAlways, events: []step{qdel}, after: "d" + sending, end: arrives},
		{
			name: "it is deleted, its output is wanted, and the place denies it", when: api.OutAlways, fails: errors.New("reset"),
			events: []step{qdel, func(_ *scene, p *place) { p.fail(denied) }}, after: deleted, tries: []time.Duration{0, time.Second},
		},
		{name: "its worker dies", fails: errors.New("killed"), events: []step{mended}, after: sending, tries: []time.Duration{0, time.Second}, end: arrives},
		{name: "execd is killed", events: []step{wait(minute), killed}, after: sending, tries: []time.Duration{0, minute}, end: arrives},
		{name: "the host is started anew", events: []step{wait(minute), reboots}, after: sending, tries: []time.Duration{0, minute}, end: arrives},
		{
			name: "the connection is reset", fails: errors.New("reset"), events: []step{wait(30 * time.Second), mended},
			after: sending, tries: []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 31 * time.Second}, end: arrives,
		},

		{
			name: "the disk is full", fails: failure(unix.ENOSPC), after: stuck,
			ends: []step{mended, wait(5 * minute)}, tries: []time.Duration{0}, end: arrives,
		},
		{
			name: "the quota is used up", fails: failure(unix.EDQUOT), after: stuck,
			ends: []step{mended, wait(5 * minute)}, tries: []time.Duration{0}, end: arrives,
		},
		{name: "the place is gone", fails: failure(unix.ENOENT), after: stuck, ends: []step{mended, wait(day), modify(api.ActionClear)}, end: arrives},
		{name: "the place is read-only", fails: failure(unix.EROFS), after: stuck, ends: []step{mended, wait(day), modify(api.ActionClear)}, end: arrives},
		{name: "a name is too long there", fails: failure(unix.ENAMETOOLONG), after: stuck, ends: []step{mended, wait(day), modify(api.ActionClear)}, end: arrives},
		{name: "a file changes meanwhile", fails: failure(unix.ETXTBSY), after: stuck, ends: []step{mended, wait(day), modify(api.ActionClear)}, end: arrives},
		{name: "it is stuck, and its slot is vacated", fails: denied, events: []step{mended, vacated}, after: stuck, ends: []step{modify(api.ActionClear)}, end: arrives},
		{name: "the place denies it", fails: denied, after: stuck, ends: []step{wait(2 * day), mended, modify(api.ActionClear)}, end: arrives},
		{name: "it is stuck and suspended", fails: denied, events: []step{mended, suspend}, after: stuck, ends: []step{modify(api.ActionClear)}, end: arrives},
		{name: "it is stuck and deleted", fails: denied, events: []step{qdel}, after: deleted},
		{name: "it is stuck, wanted and deleted", when: api.OutAlways, fails: denied, events: []step{wait(minute), qdel}, after: deleted},
		{
			name: "it is stuck and execd is killed", fails: denied, events: []step{wait(minute), killed}, after: stuck, tries: []time.Duration{0, minute},
			ends: []step{mended, modify(api.ActionClear)}, end: arrives,
		},
		{
			name: "it is stuck and the host is started anew", fails: denied, events: []step{wait(minute), mended, reboots}, after: stuck, tries: []time.Duration{0, minute},
			end: arrives, // which was tried once more, since it may be another place by now
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &place{when: tt.when, fails: tt.fails, begun: time.Now()}
				s := newTransit(t, p, day)
				for _, event := range tt.events {
					event(s, p)
					synctest.Wait()
				}
				time.Sleep(minute)
				synctest.Wait()
				s.stands(p, tt.after, tt.tries)
				if tt.end == "" {
					return
				}
				for _, event := range tt.ends {
					event(s, p)
					synctest.Wait()
				}
				time.Sleep(2 * hour)
				synctest.Wait()
				s.stands(p, tt.end, nil)
			})
		})
	}

	// What has come of output that is not wanted may be out of reach: the job does not wait for
	// ever, and who deleted it is told.
	for _, tt := range []struct {
		stays error
		tries int
	}{{denied, 1}, {errors.New("timed out"), exit.MaxTransfers}} {
		t.Run("it is deleted and stays: "+tt.stays.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &place{begun: time.Now(), stays: tt.stays}
				s := newTransit(t, p, day)
				qdel(s, p)
				time.Sleep(hour)
				synctest.Wait()
				book, err := os.ReadFile(s.book)
				want := "deleted by alice while its output was transferred; what had come of it is left%3A " + tt.stays.Error()
				if err != nil || p.discarded != tt.tries || s.accounting() != 1 || !strings.Contains(string(book), want) {
					t.Errorf("it was tried %d times, and is accounted as %s, %v", p.discarded, book, err)
				}
			})
		})
	}

	// Patience begins with the first failure, whatever execd has met that, and anew when
	// somebody has looked.
	t.Run("patience", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := &place{fails: errors.New("reset"), begun: time.Now()}
			s := newTransit(t, p, day)
			for range 3 {
				time.Sleep(7 * hour)
				s.stands(p, sending, nil)
				killed(s, p)
			}
			time.Sleep(3*hour + 10*minute)
			s.stands(p, stuck, nil)
			if first := time.Since(p.begun); first > day+20*minute {
				t.Errorf("it took %v", first)
			}
			modify(api.ActionClear)(s, p)
			time.Sleep(20 * hour)
			s.stands(p, sending, nil)
			mended(s, p)
			time.Sleep(2 * hour)
			s.stands(p, arrives, nil)
		})
	})
}

// newTransit returns a run that has ended and whose output is on its way to a place.
func newTransit(t *testing.T, p *place, patience time.Duration) *scene {
	s := newScene(t, nil)
	s.mend()
	if _, err := s.r.Launcher.Root.Finish(s.l.task.RunID()); err != nil { // as what it has left is collected
		t.Fatal(err)
	}
	s.r.Output = p
	s.r.Patience = func() time.Duration { return patience }
	s.r.advance(s.l, nil)
	s.settle()
	return s
}

// settle waits until nothing goes on that does not wait for time to pass.
func (*scene) settle() {
	time.Sleep(200 * time.Millisecond) // looks for what the run has left, and commits, take their time
	synctest.Wait()
}

// startAgain has execd die, and another one find what it has left: after a power cut no
// directory of the run.
func (s *scene) startAgain(rebooted bool) {
	s.r.Stop()
	synctest.Wait()
	s.l.mu.Lock()
	s.l.at = over // its timers do nothing any more
	s.l.mu.Unlock()
	s.r.Pool = base.Pool{}
	s.r.lives = nil
	if rebooted {
		s.r.Boot = "another"
		if err := os.RemoveAll(s.r.Launcher.Root.Finished(s.l.task.RunID()).Path()); err != nil {
			s.t.Fatal(err)
		}
	}
	l, err := s.r.recoverTask(s.l.task)
	if err != nil || l == nil {
		s.t.Fatalf("the task is found as %v, %v", l, err)
	}
	s.r.add(l)
	s.r.setUp(l)
	if s.l = l; l.exited {
		s.r.advance(l, nil)
	} else {
		s.r.reattached(l)
	}
	s.settle()
}

// stands checks how the task and its output stand.
func (s *scene) stands(p *place, want string, tries []time.Duration) {
	s.t.Helper()
	synctest.Wait()
	state := "gone"
	for _, j := range s.r.Store.List(&api.JobsRequest{Users: []string{"*"}}, job.Caller{}, "h", 10).Running {
		state = j.State
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	whole, removed := 0, 0
	switch want {
	case "arrived":
		want, whole = "gone", 1
	case "deleted":
		want, removed = "gone", 1
	}
	if state != want || p.sent != whole || p.discarded != removed {
		s.t.Errorf("the task is %s, sent %d times, discarded %d times; want %s, %d, %d", state, p.sent, p.discarded, want, whole, removed)
	}
	if n := s.accounting(); n != whole+removed {
		s.t.Errorf("%d accounting lines", n)
	}
	if tries != nil && !slices.Equal(p.tries, tries) {
		s.t.Errorf("attempts began after %v; want %v", p.tries, tries)
	}
	if _, _, err := s.r.Launcher.Find(s.l.task.RunID()); want == "gone" && !errors.Is(err, fs.ErrNotExist) {
		s.t.Errorf("its directory is left: %v", err)
	}
}

// REQ-EXIT-110: how a run ends says whether its output is brought out, and what the job
// asks for; one that was killed for a limit is over like one that ends by itself.
func TestWhoseOutputTravels(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*scene)
		want []api.WhenOut // of exit, success, evict and always
	}{
		{"it fails", func(*scene) {}, []api.WhenOut{api.OutExit, api.OutEvict, api.OutAlways}},
		{"it succeeds", func(s *scene) { s.l.end.Outcome.Usage.ExitStatus = 0 }, []api.WhenOut{api.OutExit, api.OutSuccess, api.OutEvict, api.OutAlways}},
		{"a limit ends it", func(s *scene) { s.l.task.Want = &job.Want{Signal: 9, Reason: "h_vmem"} }, []api.WhenOut{api.OutExit, api.OutEvict, api.OutAlways}},
		{"it is deleted", func(s *scene) { s.l.task.Want = &job.Want{Signal: 9, By: "alice"} }, []api.WhenOut{api.OutAlways}},
		{"it leaves its slot for good", func(s *scene) { s.l.task.Want = &job.Want{Signal: 15, Slot: true} }, []api.WhenOut{api.OutEvict, api.OutAlways}},
		{"it leaves its slot to run again", func(s *scene) { s.l.task.Want = &job.Want{Signal: 15, Slot: true, Requeue: true} }, nil},
		{"it never ran", func(s *scene) { s.l.end.Outcome.Usage = nil }, nil},
	} {
		for _, when := range []api.WhenOut{api.OutExit, api.OutSuccess, api.OutEvict, api.OutAlways} {
			s := newScene(t, nil)
			if s.r.Output = (&place{when: when}); when == api.OutExit {
				s.r.Output = &place{when: api.OutDefault}
			}
			tt.do(s)
			if u := s.l.end.Outcome.Usage; u != nil && s.l.task.Want != nil {
				u.Ask(s.l.task.Want.Signal)
				u.Signal, u.ExitStatus = s.l.task.Want.Signal, 128+s.l.task.Want.Signal
			}
			s.l.end.End = s.l.end.Conclude(s.l.end.Outcome)
			_, _ = s.l.end.Transfer()
			s.r.Stop() // waits for the attempt
			if got, want := s.l.end.Output.Standing().Attempt > 0, slices.Contains(tt.want, when); got != want {
				t.Errorf("%s, with -when_out %s: its output travels: %v; want %v", tt.name, when, got, want)
			}
		}
	}
}
