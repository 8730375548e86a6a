package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// REQ-HOOK-34, REQ-HOOK-36, REQ-HOOK-110, REQ-HOOK-115, REQ-HOOK-116: what becomes
// of a job by the end of a prepare hook, each row of the table.
func TestJudge(t *testing.T) {
	unreadable := errors.New("line 3: no attribute")
	for _, tt := range []struct {
		name       string
		res        hook.Result
		m          ad.Merged
		unreadable error
		want       verdict
		code, sub  int
		late       bool
		text       string
		warning    string
	}{
		{name: "0", want: goesOn},
		{name: "0 and a message", m: ad.Merged{Message: "old"}, want: goesOn, warning: "old"},
		{name: "1", res: hook.Result{Status: 1}, want: isHeld, code: 19, sub: 1, text: "status 1"},
		{name: "7 and a message", res: hook.Result{Status: 7, Stderr: "x\n"}, m: ad.Merged{Message: "m"}, want: isHeld, code: 19, sub: 7, text: "status 7: m"},
		{name: "7 and standard error", res: hook.Result{Status: 7, Stderr: "a\nb\n"}, want: isHeld, code: 19, sub: 7, text: "status 7: b"},
		{name: "7 and a command to the terminal", res: hook.Result{Status: 7, Stderr: "a\x1b[2J\rb\n"}, want: isHeld, code: 19, sub: 7, text: `status 7: a\x1b[2J\rb`},
		{name: "code for status", res: hook.Result{Status: 7}, m: ad.Merged{Status: new(299)}, want: isHeld, code: 19, sub: 299, text: "status 299"},
		{name: "code 0 for status", res: hook.Result{Status: 7}, m: ad.Merged{Status: new(0), Message: "m"}, want: goesOn, warning: "m"},
		{name: "code 300", m: ad.Merged{Status: new(300), Message: "m"}, want: goesBack, sub: 300, text: "status 300: m"},
		{name: "signal", res: hook.Result{Status: -9}, want: goesBack, text: "killed by signal"},
		{name: "signal and a code", res: hook.Result{Status: -9}, m: ad.Merged{Status: new(0)}, want: goesBack, text: "killed by signal"},
		{name: "not started", res: hook.Result{Err: errors.New("exec format error"), Status: -9}, want: isHeld, code: 19, text: "exec format error"},
		{name: "no descriptors", res: hook.Result{Err: fmt.Errorf("cannot make a pipe: %w", os.NewSyscallError("pipe2", unix.EMFILE)), Status: -9}, want: goesBack, text: "too many open files"},
		{name: "no processes", res: hook.Result{Err: &os.PathError{Op: "fork/exec", Path: "/shepherd", Err: unix.EAGAIN}, Status: -9}, want: goesBack, text: "temporarily unavailable"},
		{name: "not readable", unreadable: unreadable, want: isHeld, code: 19, text: "line 3: no attribute"},
		{name: "not readable, and 7", res: hook.Result{Status: 7}, unreadable: unreadable, want: isHeld, code: 19, sub: 7, text: "status 7"},
		{name: "too long", res: hook.Result{TooLong: true, Status: -9}, want: isHeld, code: 19, text: "printed more than it may"},
		{name: "timed out", res: hook.Result{TimedOut: true, Status: -9}, want: goesBack, late: true, text: "ended at its limit"},
		{name: "timed out and a code", res: hook.Result{TimedOut: true, Status: -15}, m: ad.Merged{Status: new(5)}, want: goesBack, late: true, text: "ended at its limit"},
	} {
		tt.res.Keyword, tt.res.Hook = "K", hook.PrepareJob
		u, warning := judge(&tt.res, &tt.m, tt.unreadable)
		if warning != tt.warning {
			t.Errorf("%s: warning %q; want %q", tt.name, warning, tt.warning)
		}
		if u == nil {
			if tt.want != goesOn {
				t.Errorf("%s: goes on; want %v", tt.name, tt.want)
			}
			continue
		}
		if u.verdict != tt.want || u.code != tt.code || u.subcode != tt.sub || u.late != tt.late || !strings.Contains(u.text, tt.text) ||
			!strings.HasPrefix(u.text, "hook PREPARE_JOB of K: ") {
			t.Errorf("%s: %+v; want verdict %d, code %d.%d, late %v, %q", tt.name, *u, tt.want, tt.code, tt.sub, tt.late, tt.text)
		}
	}
}

func knobs(t *testing.T, text string) *knob.Set {
	t.Helper()
	k, problems := knob.Parse("hooks.conf", text)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return k
}

// REQ-HOOK-38, REQ-HOOK-39: 8 s, then 300 s; each knob changes its own interval
// alone, and the first never comes later than a later one would.
func TestIntervals(t *testing.T) {
	for _, tt := range []struct {
		text          string
		first, steady time.Duration
	}{
		{"", 8 * time.Second, 300 * time.Second},
		{"STARTER_INITIAL_UPDATE_INTERVAL = 20", 20 * time.Second, 300 * time.Second},
		{"STARTER_UPDATE_INTERVAL = 60", 8 * time.Second, 60 * time.Second},
		{"STARTER_UPDATE_INTERVAL = 5", 5 * time.Second, 5 * time.Second},
		{"STARTER_UPDATE_INTERVAL = 60\nSTARTER_INITIAL_UPDATE_INTERVAL = 400", time.Minute, time.Minute},
	} {
		first, steady := intervals(&conf.Config{Knobs: knobs(t, tt.text)})
		if first != tt.first || steady != tt.steady {
			t.Errorf("%q: %v, then %v; want %v, then %v", tt.text, first, steady, tt.first, tt.steady)
		}
	}
}

// What a job that runs takes of the processor is told apart.
func TestStatusOfProcessor(t *testing.T) {
	s := newScene(t, nil)
	got := s.r.status(s.l, api.Usage{CPU: 5, SysCPU: 2})
	if got.UserCPU != 3*time.Second || got.SysCPU != 2*time.Second {
		t.Errorf("status has %v and %v in the kernel; want 3s, and 2s", got.UserCPU, got.SysCPU)
	}
	// What its shepherd has not seen, of 1.5 s, the samples have.
	s.l.Total = api.Usage{CPU: 5, SysCPU: 2}
	if end := s.l.Ad(s.r.status(s.l, s.l.Total), nil, time.Now()); end.UserCPU != 3*time.Second || end.SysCPU != 2*time.Second {
		t.Errorf("the end has %v and %v in the kernel; want 3s, and 2s", end.UserCPU, end.SysCPU)
	}
}

// REQ-HOOK-38, REQ-HOOK-39: jobs that execd finds again keep their beats, and are not
// all told of at once.
func TestBeatIsKept(t *testing.T) {
	const first, steady = 8 * time.Second, 300 * time.Second
	for ran, want := range map[time.Duration]time.Duration{
		-time.Hour: first, 0: first, 5 * time.Second: 3 * time.Second, 8 * time.Second: 0,
		9 * time.Second: 299 * time.Second, 307 * time.Second: time.Second, 308 * time.Second: 0,
		308*time.Second + time.Hour: 0, 310*time.Second + time.Hour: 298 * time.Second,
	} {
		if got := untilNext(ran, first, steady); got != want {
			t.Errorf("after %v: %v; want %v", ran, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := updating(t)
		var told []time.Duration // of the bubble's clock
		begun := time.Now()
		s.hooks.run = func(context.Context, int, hook.Call) hook.Result {
			told = append(told, time.Since(begun))
			return hook.Result{}
		}
		s.r.startUpdates(s.l, 100*time.Second) // the next is at 308 s
		time.Sleep(600 * time.Second)
		synctest.Wait()
		if _, err := s.r.stopUpdates(s.l); err != nil {
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
	s.l.extra = &extra{
		keyword: "K", owner: &user.User{Name: "alice"},
		update: &hook.Hook{Keyword: "K", Name: hook.UpdateJobInfo, Path: "/bin/true", Limit: time.Minute},
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
	s.r.update(s.l)
	<-began
	for range 3 {
		s.r.update(s.l)
	}
	close(goOn)
	u := &s.l.extra.updates
	eventually(t, "the update ends", func() bool { u.mu.Lock(); defer u.mu.Unlock(); return u.count == 1 })
	if line := u.shown(); line.Count != 1 || line.Skipped != 3 {
		t.Errorf("%d updates, %d skipped; want 1, 3", line.Count, line.Skipped)
	}
	s.r.update(s.l)
	<-began
	s.until()
	last.Wait()
	for range 3 {
		s.r.update(s.l)
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
	s.l.extra.exit = &hook.Hook{Keyword: "K", Name: hook.JobExit, Path: "/bin/true", Limit: time.Minute}
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
	s.r.update(s.l)
	<-began
	if err := s.enter(); !errors.Is(err, errWait) {
		t.Fatalf("%v; want to wait", err)
	}
	if c := s.l.extra.call; c != nil {
		t.Errorf("%s is called while the update runs", c.hook.Name)
	}
	<-told
	close(goOn)
	eventually(t, "an event has led it on", func() bool { s.l.mu.Lock(); defer s.l.mu.Unlock(); return s.l.at == over })
	s.wantTrace("hook ", "update ends", "hook exit", "event over", "told", "ad")
}

// Without a hook for updates there is no timer, and nothing is asked of hooks.conf.
func TestNoUpdatesWithoutHook(t *testing.T) {
	s := updating(t)
	s.l.extra.update = nil
	s.r.startUpdates(s.l, 0)
	s.r.changedState(s.l)
	if s.l.extra.updates.timer != nil || len(s.hooks.calls) > 0 {
		t.Error("something ticks")
	}
	s.l.extra = nil
	s.r.startUpdates(s.l, 0)
	s.r.changedState(s.l)
	if _, err := s.r.stopUpdates(s.l); err != nil {
		t.Error(err)
	}
}

// What an earlier execd has written is read again, whatever the last line is.
func TestReadHooks(t *testing.T) {
	s := newScene(t, nil)
	s.hasHook()
	run := HookRun{Step: stepPost, Result: &hook.Result{Keyword: "job", Hook: postScript, Status: 3, Took: 2 * time.Second}}
	for _, h := range []HookRun{{Step: stepBefore}, run, {Result: &hook.Result{Hook: hook.PrepareJob}, Changed: []string{"Cmd"}}, {Step: stepRecord}, {Step: exit.StepHook}} {
		if err := s.r.note(s.l, h); err != nil {
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
	list, err := readHooks(d)
	if err != nil || len(list) != 5 {
		t.Fatalf("read %d lines, %v; want 5", len(list), err)
	}
	// What is noted behind it is not lost with it, however long it is.
	long := HookRun{Result: &hook.Result{Hook: hook.PrepareJob}, Changed: []string{strings.Repeat("Long", 1<<16)}}
	if err := s.r.note(s.l, long); err != nil {
		t.Fatal(err)
	}
	if again, err := readHooks(d); err != nil || len(again) != 6 {
		t.Fatalf("read %d lines behind one that was cut short, %v; want 6", len(again), err)
	}
	l := &life{task: s.l.task, extra: &extra{}}
	l.recall(list)
	if !l.extra.prep.Over(stepBefore) || l.extra.prep.Over(stepPrepare) || !l.tail.Over(stepRecord) || !l.flow.Over(exit.StepHook) {
		t.Error("what was done is not known")
	}
	if l.postStatus.Code != 3 || len(l.extra.changed) != 1 || len(l.extra.runs) != 2 {
		t.Errorf("script %+v, changed %q, %d hooks", l.postStatus, l.extra.changed, len(l.extra.runs))
	}
}

// What a hook says comes into reasons that others read on their terminals.
func TestLastLine(t *testing.T) {
	for text, want := range map[string]string{
		"first\nlast \n": "last", "": "", "\x1b[2Jgone\r": `\x1b[2Jgone`, "\xff": "?",
		strings.Repeat("x", 400): strings.Repeat("x", 300),
	} {
		if got := lastLine(text); got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
}

// preparing returns a run that is about to be prepared.
func preparing(t *testing.T) *scene {
	s := newScene(t, nil)
	l := s.life(s.l.task)
	s.r.drop(s.l)
	l.flow, l.Outcome, l.End = exit.Pipeline{}, nil, nil
	l.at, l.exited = prepares, false
	l.extra = &extra{keyword: "K", owner: &user.User{Name: "alice", Home: "/"}}
	l.extra.prep.Keep = func(step string) error { return s.r.note(l, HookRun{Step: step}) }
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
		if err = s.r.prepare(s.l); err == nil {
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
		s.l.extra.pre = &hook.Hook{Keyword: "job", Name: preScript, Path: "/bin/true", Limit: time.Minute}
		s.r.setUp(s.l)
		if active := s.l.flow.Active(); active[0].Name() != childPre {
			t.Fatalf("%s is active", active[0].Name())
		}
		over := make(chan struct{})
		s.hooks.run = func(context.Context, int, hook.Call) hook.Result {
			defer close(over)
			return hook.Result{Keyword: "job", Hook: preScript, Status: code}
		}
		// Who leads the life on behind the stage is the test.
		s.l.event = func(f func()) { s.l.mu.Lock(); defer s.l.mu.Unlock(); f() }
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

// Each step of preparing a job is done once, however often the stage is entered, and
// not by an execd that finds it noted.
func TestPrepareOnce(t *testing.T) {
	s := preparing(t)
	s.r.setUp(s.l)
	s.l.extra.before = &hook.Hook{Keyword: "K", Name: hook.PrepareJobBeforeTransfer, Path: "/bin/true", Limit: time.Minute}
	s.l.extra.prepare = &hook.Hook{Keyword: "K", Name: hook.PrepareJob, Path: "/bin/true", Limit: time.Minute}
	s.l.extra.pre = &hook.Hook{Keyword: "job", Name: preScript, Path: "/bin/true", Limit: time.Minute}
	s.l.event = func(f func()) { s.l.mu.Lock(); defer s.l.mu.Unlock(); f() }
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	s.wantTrace("hook ", "hook ", "hook ")
	d, _, err := s.r.Launcher.Find(s.l.task.RunID())
	if err != nil {
		t.Fatal(err)
	}
	list, err := readHooks(d)
	if err != nil {
		t.Fatal(err)
	}
	x := s.l.extra
	for n := range len(list) + 1 { // wherever the last execd was killed
		calls := len(s.hooks.calls) + 3
		for _, h := range list[:n] {
			if h.Result != nil {
				calls--
			}
		}
		s.l.at, s.l.extra = prepares, &extra{keyword: "K", owner: x.owner, before: x.before, prepare: x.prepare, pre: x.pre}
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
	table := hook.NewTable(knobs(t, ""))
	s.r.HookTable = func() *hook.Table { return table }
	s.r.notices.Journal = nil
	request, err := s.r.Store.Request(s.l.task.Job)
	if err != nil {
		t.Fatal(err)
	}
	// Nor after a restart, with the journal that there always is: nobody is looked up.
	bare := &Runner{Journal: nothingWanted{}, Hooks: s.r.Hooks, HookTable: s.r.HookTable}
	if err := bare.findAgain(bare.newLife(s.l.task)); err != nil {
		t.Error(err)
	}
	l := s.r.newLife(s.l.task)
	n := testing.AllocsPerRun(100, func() {
		if err := s.r.findExtra(l, request, nil); err != nil || l.extra != nil || l.notices.On() {
			t.Fatal("something was found")
		}
		if err := s.r.prepare(l); err != nil {
			t.Fatal("something was prepared")
		}
		s.r.startUpdates(l, 0)
		s.r.changedState(l)
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
