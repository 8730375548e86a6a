package stage

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/job"
	"paddock/execd/internal/source"
	"paddock/spool"
	"paddock/spool/spooltest"
)

// boxes has the sandboxes of runs, of which there are none.
type boxes struct {
	when    api.WhenOut
	full    string
	removed int
}

func (*boxes) Plan(*job.Task, *api.SubmitRequest, int, uint64) error { return nil }
func (b *boxes) Full(*job.Task) string                               { return b.full }
func (b *boxes) Keeps(*job.Task) bool                                { return b.when == api.OutEvict || b.when == api.OutAlways }
func (b *boxes) Remove(*job.Task)                                    { b.removed++ }

// executing is a run in a sandbox whose job executes, and whose shepherd the test plays.
type executing struct {
	*scene
	place *place
	boxes *boxes
	lock  *os.File // the shepherd's
}

// newExecuting returns one. Process is what the shepherd is said to be.
func newExecuting(t *testing.T, process int, when api.WhenOut) *executing {
	e := &executing{scene: newScene(t, nil), place: &place{when: when, begun: time.Now()}, boxes: &boxes{when: when}}
	e.mend()
	task := e.l.task
	mine(task.Job)
	e.r.Store.Box(task, &job.Sandbox{Dir: "/sandbox"})
	e.r.Output, e.r.Sandboxes = e.place, e.boxes
	d := e.r.Launcher.Root.Active(task.RunID().ID())
	var err error
	if e.lock, err = d.Lock(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.lock.Close() })
	if err := spooltest.Start(d, process); err != nil {
		t.Fatal(err)
	}
	e.r.Launcher.SGERoot = t.TempDir()
	if err := e.r.Launcher.Init(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop := make(chan struct{})
		close(stop)
		e.r.Launcher.Run(stop)
	})
	if err := e.r.Launcher.Reattach(task.RunID()); err != nil {
		t.Fatal(err)
	}
	e.l = e.r.newLife(task)
	e.l.at, e.l.end.Taken = runs, time.Now()
	e.r.add(e.l)
	e.r.setUp(e.l)
	e.r.steerable(e.l)
	e.r.advance(e.l, nil)
	e.settle()
	return e
}

// ends has the shepherd end, and the job before it: with a status, by the signal that it
// was told to give it last unless the job had come to its own end before, or, dies is set,
// nobody knows how.
func (e *executing) ends(status int, own, dies bool) {
	e.t.Helper()
	d := e.r.Launcher.Root.Active(e.l.task.RunID().ID())
	if !dies {
		u := &spool.Usage{ExitStatus: status, Start: 1001, End: 1005, Wallclock: 4}
		asked := 0
		if told := e.told(); len(told) > 0 && !own {
			if last := told[len(told)-1]; last == unix.SIGKILL || last == unix.SIGTERM {
				asked, u.Signal, u.ExitStatus = int(last), int(last), 128+int(last)
			}
		}
		u.Ask(asked)
		failed := 0
		if asked != 0 {
			failed = spool.FailedAfterJob
		}
		if err := spooltest.End(d, failed, "", u); err != nil {
			e.t.Fatal(err)
		}
	}
	e.lock.Close()
	e.r.Exited(e.l.task.RunID())
	e.settle()
}

// told returns what signals the shepherd was told to give the job.
func (e *executing) told() (list []unix.Signal) {
	signals, err := e.r.Launcher.Root.Active(e.l.task.RunID().ID()).Signals()
	if err != nil {
		e.t.Fatal(err)
	}
	for _, s := range signals {
		list = append(list, unix.Signal(s.Signal))
	}
	return list
}

// leave has the job leave its slot, as the daemon does when the slot says so.
func (e *executing) leave(signal unix.Signal, requeue bool) {
	want := job.Want{Signal: int(signal), By: "slot1", Slot: true, Requeue: requeue, Code: 21}
	if _, err := e.r.Store.Evict(e.l.task, want); err != nil {
		e.t.Error(err)
	}
	if signal == unix.SIGKILL {
		e.r.Kill(e.l.task)
	} else {
		e.r.Signal(e.l.task.RunID(), signal)
	}
}

// The events that may happen to a job that executes in a sandbox, on a clock that is not
// real: what its shepherd is told, whether its output travels after that, and what becomes
// of the job and its sandbox. That a slot has its job leave for these reasons, and by which
// signal, is a matter of the tests of package claim.
//
//   - REQ-XFER-42: it is suspended as ever.
//   - REQ-XFER-45: evicted, it goes on in its sandbox if it wants so, which else is removed.
//   - REQ-XFER-37: a claim that ends leaves nothing behind.
//   - REQ-XFER-40, REQ-EXIT-110: a deletion has the sandbox removed, unless the job wants
//     its output then.
func TestExecutingMeetsEvents(t *testing.T) {
	shepherd := exec.Command("sleep", "1000")
	if err := shepherd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = shepherd.Process.Kill()
		_ = shepherd.Wait()
	})
	const (
		arrives = "its output arrives"
		removed = "its sandbox is removed"
		anew    = "it waits, to begin in a new sandbox"
		goesOn  = "it waits, to go on in its sandbox"
	)
	type event = func(*executing)
	var (
		modify = func(a api.Action) event {
			return func(e *executing) {
				if _, err := e.r.Store.Modify(e.t.Context(), &api.ModifyRequest{Action: a, Jobs: []string{"1"}}, job.Caller{UID: 1001, Name: "alice", Manager: true}, job.Hooks{Host: "h", AtRest: e.r.AtRest, Changed: e.r.Changed}); err != nil {
					e.t.Error(err)
				}
			}
		}
		qdel = func(e *executing) {
			if _, err := e.r.Store.Delete(e.t.Context(), &api.DeleteRequest{Jobs: []string{"1"}}, job.Caller{UID: 1001, Name: "alice", Manager: true}, e.r.Kill); err != nil {
				e.t.Error(err)
			}
		}
		byQueue  = func(e *executing) { e.r.Suspend(e.l.task, "S"); e.r.Suspend(e.l.task, "") }
		rerun    = func(e *executing) { e.r.Config().Queues[0].Rerun = true }
		claimed  = func(e *executing) { e.r.Sources = source.Sources{"": abandoned{told: new(int)}} }
		vacated  = func(e *executing) { e.leave(unix.SIGTERM, true) }
		killed   = func(e *executing) { e.startAgain(false) }
		reboots  = func(e *executing) { e.lock.Close(); e.startAgain(true) }
		poweroff = func(e *executing) { // its directory is found again
			e.lock.Close()
			e.r.Boot = "another"
			e.startAgain(false)
		}
		writes = func(e *executing) { e.boxes.full = "sandbox was full: 3.0 of 3.0 MB" }
	)
	kill, term := []unix.Signal{unix.SIGKILL}, []unix.Signal{unix.SIGTERM}
	stopped := []unix.Signal{unix.SIGSTOP, unix.SIGCONT}
	for _, tt := range []struct {
		name   string
		when   api.WhenOut
		events []event
		told   []unix.Signal
		status int  // with which it ends, if by itself
		own    bool // it does so before it is told
		over   bool // it is when the events have happened: nothing ends any more
		dies   bool // its shepherd, with it
		end    string
		reason string
	}{
		{name: "nothing", end: arrives},
		{name: "nothing, and it fails", status: 3, end: arrives},
		{name: "it fails, and its output is wanted if it succeeds", when: api.OutSuccess, status: 3, end: removed},

		{name: "it is suspended, and resumed", events: []event{modify(api.ActionSuspend), modify(api.ActionResume)}, told: stopped, end: arrives},
		{name: "its queue is suspended, and resumed", events: []event{byQueue}, told: stopped, end: arrives},

		{name: "it is deleted", events: []event{qdel}, told: kill, end: removed, reason: "deleted by alice"},
		{name: "it is deleted, output on eviction", when: api.OutEvict, events: []event{qdel}, told: kill, end: removed, reason: "deleted by alice"},
		{name: "it is deleted, output always", when: api.OutAlways, events: []event{qdel}, told: kill, end: arrives, reason: "deleted by alice"},
		{
			name: "it is deleted as it ends", events: []event{qdel}, told: kill, status: 1, own: true,
			end: removed, reason: "deleted by alice while its output was transferred",
		},
		{name: "it is deleted as it ends, output on success", when: api.OutSuccess, events: []event{qdel}, told: kill, status: 1, own: true, end: removed},
		{name: "it is deleted as it ends, output always", when: api.OutAlways, events: []event{qdel}, told: kill, status: 1, own: true, end: arrives},

		// Evicted, preempted, vacated, and drained after its retirement.
		{name: "it has to leave", events: []event{vacated}, told: term, end: anew},
		{name: "it has to leave, output on eviction", when: api.OutEvict, events: []event{vacated}, told: term, end: goesOn},
		{name: "it has to leave, output always", when: api.OutAlways, events: []event{vacated}, told: term, end: goesOn},
		{name: "it has to leave at once", when: api.OutEvict, events: []event{func(e *executing) { e.leave(unix.SIGKILL, true) }}, told: kill, end: goesOn},
		{name: "it has to leave, and may not run again", events: []event{func(e *executing) { e.leave(unix.SIGTERM, false) }}, told: term, end: removed, reason: "evicted by slot1"},
		{
			name: "it has to leave, may not run again, output on eviction", when: api.OutEvict,
			events: []event{func(e *executing) { e.leave(unix.SIGTERM, false) }}, told: term, end: arrives, reason: "evicted by slot1",
		},
		{name: "it has to leave, and is deleted", when: api.OutEvict, events: []event{vacated, qdel}, told: []unix.Signal{unix.SIGTERM, unix.SIGKILL}, end: removed, reason: "deleted by alice"},

		// The claim is released, or its lease ends: nobody would run the job again.
		{name: "its claim ends", events: []event{claimed, func(e *executing) { e.leave(unix.SIGKILL, false) }}, told: kill, end: removed, reason: "evicted by slot1"},
		{
			name: "its claim ends, output on eviction", when: api.OutEvict,
			events: []event{claimed, func(e *executing) { e.leave(unix.SIGKILL, false) }}, told: kill, end: arrives, reason: "evicted by slot1",
		},

		{name: "execd is killed", events: []event{killed}, end: arrives},
		{name: "execd is killed, and the job deleted", events: []event{killed, qdel}, told: kill, end: removed, reason: "deleted by alice"},
		{name: "its shepherd dies", dies: true, end: removed, reason: "shepherd died"},
		{name: "its shepherd dies, and it may run again", events: []event{rerun}, dies: true, end: anew},
		{name: "the host is started anew", events: []event{reboots}, over: true, end: removed, reason: "the host was restarted"},
		{name: "the host is started anew, and it may run again", events: []event{rerun, reboots}, over: true, end: anew},
		{name: "the host is started anew, its directory is there, and it may run again", events: []event{rerun, poweroff}, over: true, end: anew},

		{name: "the sandbox is full", events: []event{writes}, status: 1, end: arrives, reason: "sandbox was full: 3.0 of 3.0 MB"},
		{name: "the sandbox is full, and that does not matter", events: []event{writes}, end: arrives},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newExecuting(t, shepherd.Process.Pid, tt.when)
				task := e.l.task
				for _, event := range tt.events {
					event(e)
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if !tt.over {
					if state := e.r.Store.State(task); state != job.Started || len(e.place.tries) != 0 {
						t.Fatalf("it executes, and is %v; its output left %d times", state, len(e.place.tries))
					}
					if told := e.told(); !slices.Equal(told, tt.told) {
						t.Errorf("its shepherd was told %v; want %v", told, tt.told)
					}
					e.ends(tt.status, tt.own, tt.dies)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				e.ended(tt.end, tt.reason)
			})
		})
	}
}

// ended checks what has become of the job and its sandbox.
func (e *executing) ended(want, reason string) {
	e.t.Helper()
	sent, left, waits := 0, 0, 0
	gone := 1
	switch want {
	case "its output arrives":
		sent = 1
	case "it waits, to begin in a new sandbox":
		waits = 1
	case "it waits, to go on in its sandbox":
		waits, left, gone = 1, 1, 0
	}
	if e.place.sent != sent || len(e.place.tries) != sent || e.boxes.removed != gone || len(e.r.Store.Boxes()) != left {
		e.t.Errorf("output was sent %d times and has arrived %d times, its sandbox was removed %d times, and %d are kept: want that %s",
			len(e.place.tries), e.place.sent, e.boxes.removed, len(e.r.Store.Boxes()), want)
	}
	pending := len(e.r.Store.List(&api.JobsRequest{Users: []string{"*"}}, job.Caller{}, "h", 10).Waiting)
	if pending != waits {
		e.t.Errorf("%d jobs wait; want that %s", pending, want)
	}
	book, err := os.ReadFile(e.book)
	if err != nil || e.accounting() != 1 {
		e.t.Fatalf("it is accounted as %s, %v; want it once", book, err)
	}
	lines := strings.Split(strings.TrimSpace(string(book)), "\n")
	rec, err := accounting.Parse([]byte(lines[len(lines)-1]))
	if err != nil || waits == 0 && !strings.HasPrefix(rec.Reason, reason) || waits == 0 && (reason == "") != (rec.Reason == "") {
		e.t.Errorf("the reason is %q, %v; want %q", rec.Reason, err, reason)
	}
}
