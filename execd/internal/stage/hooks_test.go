package stage

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf/knob/knobtest"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/source"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/finish"
	"paddock/execd/internal/stage/jobhook"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// What a job that runs takes of the processor is told apart.
func TestStatusOfProcessor(t *testing.T) {
	s := newScene(t, nil)
	got := s.l.hooks.Status(api.Usage{CPU: 5, SysCPU: 2})
	if got.UserCPU != 3*time.Second || got.SysCPU != 2*time.Second {
		t.Errorf("status has %v and %v in the kernel; want 3s, and 2s", got.UserCPU, got.SysCPU)
	}
	// What its shepherd has not seen, of 1.5 s, the samples have.
	s.l.end.Total = api.Usage{CPU: 5, SysCPU: 2}
	if end := s.l.end.Ad(s.l.hooks.Status(s.l.end.Total), nil, time.Now()); end.UserCPU != 3*time.Second || end.SysCPU != 2*time.Second {
		t.Errorf("the end has %v and %v in the kernel; want 3s, and 2s", end.UserCPU, end.SysCPU)
	}
}

// REQ-HOOK-38, REQ-HOOK-39: jobs that execd finds again keep their beats, and are not
// all told of at once.
func TestBeatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := updating(t)
		var told []time.Duration // of the bubble's clock
		begun := time.Now()
		s.hooks.run = func(context.Context, int, hook.Call) hook.Result {
			told = append(told, time.Since(begun))
			return hook.Result{}
		}
		s.l.hooks.StartUpdates(100 * time.Second) // the next is at 308 s
		time.Sleep(600 * time.Second)
		synctest.Wait()
		if _, err := s.l.hooks.StopUpdates(); err != nil {
			t.Error(err)
		}
		if want := []time.Duration{208 * time.Second, 508 * time.Second}; !slices.Equal(told, want) {
			t.Errorf("told after %v; want %v", told, want)
		}
	})
}

// updating returns a run that has a hook for updates.
func updating(t *testing.T) *scene {
	s := newScene(t, nil)
	s.mend()
	s.l.hooks.Plan = jobhook.Plan{
		Keyword: "K", Owner: &user.User{Name: "alice"},
		Update: &hook.Hook{Keyword: "K", Name: hook.UpdateJobInfo, Path: "/bin/true", Limit: time.Minute},
	}
	return s
}

// REQ-HOOK-41, REQ-HOOK-118: nobody waits for an update, there is one at a time, and
// those that did not come are counted. REQ-EXIT-16: at the end of the job there are
// no more, and the one that runs is ended.
func TestUpdates(t *testing.T) {
	s := updating(t)
	began, goOn := make(chan struct{}, 10), make(chan struct{})
	var last sync.WaitGroup
	last.Add(1)
	s.hooks.run = func(ctx context.Context, n int, _ hook.Call) hook.Result {
		began <- struct{}{}
		if n == 2 {
			<-ctx.Done()
			last.Done()
			return hook.Result{Err: ctx.Err()}
		}
		<-goOn
		return hook.Result{Keyword: "K", Hook: hook.UpdateJobInfo, Status: 1}
	}
	s.l.hooks.ChangedState()
	<-began
	for range 3 {
		s.l.hooks.ChangedState()
	}
	close(goOn)
	eventually(t, "the update ends", func() bool { return len(s.l.hooks.Runs()) == 1 })
	if line := s.l.hooks.Runs()[0]; line.Count != 1 || line.Skipped != 3 {
		t.Errorf("%d updates, %d skipped; want 1, 3", line.Count, line.Skipped)
	}
	s.l.hooks.ChangedState()
	<-began
	s.until()
	last.Wait()
	for range 3 {
		s.l.hooks.ChangedState()
	}
	s.hooks.mu.Lock()
	defer s.hooks.mu.Unlock()
	if len(s.hooks.calls) != 2 {
		t.Errorf("%d updates; want 2", len(s.hooks.calls))
	}
	in := string(s.hooks.calls[0].Stdin)
	for _, want := range []string{"JobState = \"Running\"\n", "JobPid = 77\n", "NumPids = ", "RemoteUserCpu = "} { // REQ-HOOK-42 to 46
		if !strings.Contains(in, want) {
			t.Errorf("the hook read %q; want %q in it", in, want)
		}
	}
	for _, not := range []string{"ExitCode", "ExitReason", "JobDuration", "-----"} { // REQ-HOOK-40, REQ-HOOK-54
		if strings.Contains(in, not) {
			t.Errorf("the hook read %q; want no %q in it", in, not)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// REQ-EXIT-16: an update that takes its time to end does not say that the job runs when
// it has been told that it has ended.
func TestUpdateIsOverBeforeTheEnd(t *testing.T) {
	s := updating(t)
	s.l.hooks.Exit = &hook.Hook{Keyword: "K", Name: hook.JobExit, Path: "/bin/true", Limit: time.Minute}
	began, told, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.hooks.run = func(ctx context.Context, n int, c hook.Call) hook.Result {
		if n == 1 {
			close(began)
			<-ctx.Done()
			close(told)
			<-goOn
			_ = s.memory.note("update ends")
		}
		return hook.Result{Keyword: "K", Hook: c.Hook.Name}
	}
	s.l.hooks.ChangedState()
	<-began
	if err := s.enter(); !errors.Is(err, errWait) {
		t.Fatalf("%v; want to wait", err)
	}
	for _, run := range s.l.hooks.Runs() {
		t.Errorf("%s is called while the update runs", run.Hook)
	}
	<-told
	close(goOn)
	eventually(t, "an event has led it on", func() bool { s.l.mu.Lock(); defer s.l.mu.Unlock(); return s.l.at == over })
	s.wantTrace("hook ", "update ends", "hook exit", "event over", "told", "ad")
}

// What an earlier execd has written is read again, whatever the last line is.
func TestReadHooks(t *testing.T) {
	s := newScene(t, nil)
	s.hasHook()
	run := jobhook.HookRun{Step: stepPost, Result: &hook.Result{Keyword: "job", Hook: jobhook.PostScript, Status: 3, Took: 2 * time.Second}}
	for _, h := range []jobhook.HookRun{{Step: stepBefore}, run, {Result: &hook.Result{Hook: hook.PrepareJob}, Changed: []string{"Cmd"}}, {Step: finish.StepRecord}, {Step: exit.StepHook}} {
		if err := s.l.hooks.Note(h); err != nil {
			t.Fatal(err)
		}
	}
	d, _, err := s.r.Launcher.Find(s.l.task.RunID())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Append(spool.FileHooks, []byte("{\"step\":\"cut sh")); err != nil {
		t.Fatal(err)
	}
	list, err := jobhook.Read(d)
	if err != nil || len(list) != 5 {
		t.Fatalf("read %d lines, %v; want 5", len(list), err)
	}
	// What is noted behind it is not lost with it, however long it is.
	long := jobhook.HookRun{Result: &hook.Result{Hook: hook.PrepareJob}, Changed: []string{strings.Repeat("Long", 1<<16)}}
	if err := s.l.hooks.Note(long); err != nil {
		t.Fatal(err)
	}
	if again, err := jobhook.Read(d); err != nil || len(again) != 6 {
		t.Fatalf("read %d lines behind one that was cut short, %v; want 6", len(again), err)
	}
	l := s.r.newLife(s.l.task)
	l.recall(list)
	if !l.prep.Over(stepBefore) || l.prep.Over(stepPrepare) || !l.end.Marks.Over(finish.StepRecord) || !l.flow.Over(exit.StepHook) {
		t.Error("what was done is not known")
	}
	if l.hooks.PostStatus.Code != 3 || len(l.hooks.Runs()) != 2 {
		t.Errorf("script %+v, %d hooks", l.hooks.PostStatus, len(l.hooks.Runs()))
	}
}

// preparing returns a run that is about to be prepared.
func preparing(t *testing.T) *scene {
	s := newScene(t, nil)
	l := s.life(s.l.task)
	s.r.drop(s.l)
	l.flow, l.end.Outcome, l.end.End = exit.Pipeline{}, nil, nil
	l.at, l.exited = prepares, false
	l.hooks.Plan = jobhook.Plan{Keyword: "K", Owner: &user.User{Name: "alice", Home: "/"}}
	l.prep.Keep = func(step string) error { return l.hooks.Note(jobhook.HookRun{Step: step}) }
	s.l = l
	s.r.add(l)
	return s
}

// prepare leads the run through the stage, and returns what came of it.
func (s *scene) prepare() (err error) {
	s.t.Helper()
	eventually(s.t, "prepared", func() bool {
		s.l.mu.Lock()
		defer s.l.mu.Unlock()
		if s.l.at != prepares { // an event has led it on
			return true
		}
		if err = s.r.enter(s.l); err == nil {
			s.l.at = launches
		}
		return !errors.Is(err, errWait)
	})
	return err
}

// REQ-EXIT-7, REQ-EXIT-102: the script before the job comes before it, and when that
// fails the job is not run, and held.
func TestScriptBeforeTheJob(t *testing.T) {
	for _, code := range []int{0, 3} {
		s := preparing(t)
		s.l.hooks.Pre = &hook.Hook{Keyword: "job", Name: jobhook.PreScript, Path: "/bin/true", Limit: time.Minute}
		s.r.setUp(s.l)
		if active := s.l.flow.Active(); active[0].Name() != childPre {
			t.Fatalf("%s is active", active[0].Name())
		}
		over := make(chan struct{})
		s.hooks.run = func(context.Context, int, hook.Call) hook.Result {
			defer close(over)
			return hook.Result{Keyword: "job", Hook: jobhook.PreScript, Status: code}
		}
		s.byHand()
		err := s.prepare()
		<-over
		if code == 0 {
			if err != nil || s.l.at != launches || s.l.flow.Active()[1].Name() != childJob {
				t.Errorf("%v, stage %d; want the job to come", err, s.l.at)
			}
			continue
		}
		_, _, stuck := s.r.Store.Changed(s.l.task.Job, api.Tasks{})
		if !errors.Is(err, errOver) || !strings.Contains(stuck.Reason, "script before the job failed: exit status 3") {
			t.Errorf("%v, in error for %q; want the job to be in error", err, stuck.Reason)
		}
		s.wantTrace("hook ", "event held")
		if s.memory.last.Code != exit.HoldPreScript || s.memory.last.Subcode != 3 {
			t.Errorf("event %+v", s.memory.last)
		}
	}
}

// reported is a source that is told how runs of its jobs have ended.
type reported struct {
	source.Queue
	log *[]string
}

// Queued implements source.Source.
func (reported) Queued() bool { return false }

// Report implements source.Source.
func (r reported) Report(_ *job.Job, word string, ended func(*classad.Ad) *classad.Ad) error {
	reason, _ := (&classad.Env{My: ended(classad.New())}).Attr("VacateReason").Str()
	*r.log = append(*r.log, word+": "+reason)
	return nil
}

// Recorded implements source.Source.
func (r reported) Recorded(*job.Job) { *r.log = append(*r.log, "recorded") }

// Who brought a job is told that it was deleted while it was prepared, as nobody else would be.
func TestDeletedWhilePrepared(t *testing.T) {
	var log []string
	s := preparing(t)
	s.l.task.Job.Origin = &job.Origin{Source: "fetch"}
	s.r.Sources = source.Sources{"fetch": reported{log: &log}}
	s.r.setUp(s.l)
	s.l.hooks.Prepare = &hook.Hook{Keyword: "K", Name: hook.PrepareJob, Path: "/bin/true", Limit: time.Minute}
	s.hooks.run = func(_ context.Context, _ int, c hook.Call) hook.Result {
		if _, err := s.r.Store.Evict(s.l.task, job.Want{Slot: true, By: "slot1"}); err != nil {
			t.Error(err)
		}
		return hook.Result{Keyword: "K", Hook: c.Hook.Name, Status: 1}
	}
	s.byHand()
	if err := s.prepare(); !errors.Is(err, errOver) {
		t.Errorf("%v; want the job to be over", err)
	}
	if got := strings.Join(log, ", "); got != "evict: deleted while it was prepared, recorded" {
		t.Errorf("the source was told %q", got)
	}
}

// Each step of preparing a job is done once, however often the stage is entered, and
// not by an execd that finds it noted.
func TestPrepareOnce(t *testing.T) {
	s := preparing(t)
	s.r.setUp(s.l)
	s.l.hooks.Before = &hook.Hook{Keyword: "K", Name: hook.PrepareJobBeforeTransfer, Path: "/bin/true", Limit: time.Minute}
	s.l.hooks.Prepare = &hook.Hook{Keyword: "K", Name: hook.PrepareJob, Path: "/bin/true", Limit: time.Minute}
	s.l.hooks.Pre = &hook.Hook{Keyword: "job", Name: jobhook.PreScript, Path: "/bin/true", Limit: time.Minute}
	s.byHand()
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	s.wantTrace("hook ", "hook ", "hook ")
	d, _, err := s.r.Launcher.Find(s.l.task.RunID())
	if err != nil {
		t.Fatal(err)
	}
	list, err := jobhook.Read(d)
	if err != nil {
		t.Fatal(err)
	}
	plan := s.l.hooks.Plan
	for n := range len(list) + 1 { // wherever the last execd was killed
		calls := len(s.hooks.calls) + 3
		for _, h := range list[:n] {
			if h.Result != nil {
				calls--
			}
		}
		s.l.at, s.l.prep, s.l.hooks = prepares, exit.Marks{}, jobhook.Hooks{Plan: plan}
		s.byHand()
		s.l.recall(list[:n])
		if err := s.prepare(); err != nil {
			t.Fatal(err)
		}
		if got := len(s.hooks.calls); got != calls {
			t.Errorf("after %+v: %d hooks more than are to be called", list[:n], got-calls)
		}
	}
}

// nothingWanted is a journal of which no job wants anything.
type nothingWanted struct{ notice.Journal }

func (nothingWanted) Wants(*job.Task) bool { return false }

// A job without hooks pays nothing for them: nothing is read, written or started, and
// next to nothing is remembered.
func TestWithoutHooks(t *testing.T) {
	s := newScene(t, nil)
	table := hook.NewTable(knobtest.Parse(t, ""))
	s.r.HookTable = func() *hook.Table { return table }
	s.r.Journal = nil
	request, err := s.r.Store.Request(s.l.task.Job)
	if err != nil {
		t.Fatal(err)
	}
	// Nor after a restart, with the journal that there always is: nobody is looked up.
	bare := &Runner{Journal: nothingWanted{}, Host: base.Host{Hooks: s.r.Hooks, HookTable: s.r.HookTable}}
	if err := bare.findAgain(bare.newLife(s.l.task)); err != nil {
		t.Error(err)
	}
	l := s.r.newLife(s.l.task)
	n := testing.AllocsPerRun(100, func() {
		if err := s.r.findHooks(l, request, nil); err != nil || l.hooks.Any() || l.notices.On() {
			t.Fatal("something was found")
		}
		if err := s.r.prepare(l); err != nil {
			t.Fatal("something was prepared")
		}
		l.hooks.StartUpdates(0)
		l.hooks.ChangedState()
		l.notices.Happened(notice.Event{Kind: notice.Executing})
	})
	if n > 0 {
		t.Errorf("%v allocations; want none", n)
	}
	n = testing.AllocsPerRun(100, func() {
		l := s.r.newLife(s.l.task)
		s.r.setUp(l)
	})
	t.Logf("%v allocations for the list of processes", n)
	if n > 16 {
		t.Errorf("%v allocations for the list of processes; want at most 16", n)
	}
	if d, _, err := s.r.Launcher.Find(s.l.task.RunID()); err != nil {
		t.Error(err)
	} else if has, err := d.Has(spool.FileHooks); has || err != nil {
		t.Errorf("the file hooks is there: %v, %v", has, err)
	}
	if len(s.hooks.calls) > 0 {
		t.Errorf("%d hooks were called", len(s.hooks.calls))
	}
}
