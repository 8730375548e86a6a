package stage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/account"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf/knob/knobtest"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/mail"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/source"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/finish"
	"paddock/execd/internal/stage/jobhook"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/usage"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/test/harness"
)

// stepOf returns the step in which a stage has failed.
func stepOf(err error) string {
	if s, ok := errors.AsType[*exit.StepError](err); ok {
		return s.Step
	}
	return ""
}

// memory is a journal, and a trace of what else is seen of an end.
type memory struct {
	mu      sync.Mutex
	trace   []string
	travels []string       // phases of transfers
	warned  string         // the last that the journal was warned of
	fails   map[string]int // how often what is written fails
	last    notice.Event
	flushed chan struct{}
}

// flush is an event of the tests: all before it are written.
const flush notice.EventKind = "flush"

// flush waits until all that has happened to the run is written.
func (s *scene) flush() {
	s.l.notices.Happened(notice.Event{Kind: flush})
	if s.l.notices.On() {
		<-s.memory.flushed
	}
}

func (m *memory) note(what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails[what] > 0 {
		m.fails[what]--
		m.trace = append(m.trace, what+" fails")
		return errors.New("disk full")
	}
	m.trace = append(m.trace, what)
	return nil
}

func (m *memory) Wants(*job.Task) bool { return true }
func (m *memory) Record(e notice.Event) error {
	if e.Kind == flush {
		m.flushed <- struct{}{}
		return nil
	}
	if e.Kind == notice.Travels {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.travels = append(m.travels, map[notice.Phase]string{notice.Queued: "queued", notice.Began: "began", notice.Arrived: "arrived"}[e.Travel.Phase])
		return nil
	}
	m.mu.Lock() // an execd that was killed may still be at it
	m.last = e
	if e.Kind == notice.Warned {
		m.warned = e.Text
	}
	m.mu.Unlock()
	return m.note("event " + string(e.Kind))
}

// wantTravels checks what the journal was told of the transfers, which nobody waits for.
func (s *scene) wantTravels(want ...string) {
	s.t.Helper()
	s.flush()
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if !slices.Equal(s.memory.travels, want) {
		s.t.Errorf("the files of the run: %q; want %q", s.memory.travels, want)
	}
}

func (m *memory) WriteAd(notice.Event) error { return m.note("ad") }

// Write is the log: its lines that tell of the end of the job are when people are
// told.
func (m *memory) Write(b []byte) (int, error) {
	if strings.Contains(string(b), ": ended: ") {
		_ = m.note("told")
	}
	return len(b), nil
}

// hooks is a Caller that is scripted.
type hooks struct {
	memory *memory
	mu     sync.Mutex
	calls  []hook.Call
	run    func(ctx context.Context, n int, c hook.Call) hook.Result // n counts from 1
}

func (h *hooks) Run(ctx context.Context, c hook.Call) hook.Result {
	h.mu.Lock()
	h.calls = append(h.calls, c)
	n := len(h.calls)
	h.mu.Unlock()
	_ = h.memory.note("hook " + strings.Join(c.Args, " "))
	res := hook.Result{Keyword: c.Hook.Keyword, Hook: c.Hook.Name, Started: time.Now()}
	if h.run != nil {
		res = h.run(ctx, n, c)
	}
	return res
}

// scene is a run whose processes are gone, and what it was made with.
type scene struct {
	r      *Runner
	l      *life
	memory *memory
	hooks  *hooks
	book   string // the accounting file
	t      *testing.T
}

// newScene returns a run that has exited with 3, in its directory.
func newScene(t *testing.T, work *api.Work) *scene {
	t.Helper()
	r, states, task := startedTask(t, api.SubmitRequest{Work: work}, false)
	r.Queue = queue.New(queue.Options{
		Store: r.Store, Claims: claim.NewTable(r.Config().Queues, queue.Holder), Config: r.Config(), States: states, Log: slog.New(slog.DiscardHandler),
	})
	r.Sources = source.Sources{"fetch": abandoned{told: new(int)}}
	m := &memory{fails: map[string]int{}, flushed: make(chan struct{})}
	s := &scene{r: r, memory: m, hooks: &hooks{memory: m}, book: filepath.Join(harness.Memory(t), "later", "accounting"), t: t}
	r.Log = slog.New(slog.NewTextHandler(m, nil))
	r.Launcher.Log = slog.New(slog.DiscardHandler)
	r.Journal, r.Hooks = m, s.hooks
	r.GIDs, r.Usage, r.Counts, r.Users = queue.NewGIDs(nil), &usage.Sampler{Log: r.Log}, &metrics.Counts{}, &user.Directory{}
	r.Patience = func() time.Duration { return time.Hour }
	r.Keep = func() time.Duration { return 0 }
	r.Book = account.New(s.book, r.Store)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Book.Run(ctx) })
	t.Cleanup(func() { r.Stop(); stop(); running.Wait() })

	d, err := r.Launcher.Root.Stage(task.RunID(), -1)
	if err != nil {
		t.Fatal(err)
	}
	config := &spool.Config{}
	for _, kv := range [][2]string{{spool.KeyTmpdir, harness.Memory(t)}, {spool.KeyCwd, "/"}, {spool.KeyRun, "0"}} {
		if err := config.Set(kv[0], kv[1]); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string][]byte{
		spool.FileConfig: config.Append(nil), spool.FileEnvironment: []byte("A=1\n"), spool.FileJobPID: []byte("77\n"),
	} {
		if err := d.WriteNew(name, data); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Launcher.Root.Activate(task.RunID()); err != nil {
		t.Fatal(err)
	}
	s.l = s.life(task)
	return s
}

// life is what an execd knows of the run when its shepherd is gone.
func (s *scene) life(task *job.Task) *life {
	usage := &spool.Usage{ExitStatus: 3, Start: 1001, End: 1005, Wallclock: 4, UTime: 1500 * time.Millisecond}
	l := s.r.newLife(task)
	l.at, l.exited, l.end.Outcome, l.end.Taken = exits, true, &spool.Outcome{Usage: usage}, time.Now()
	l.end.End = l.end.Conclude(l.end.Outcome)
	s.r.add(l)
	l.notices.Find(s.r.Journal)
	s.r.setUp(l)
	return l
}

// byHand has what happens to a run not lead it on, which the test does.
func (s *scene) byHand() {
	l := s.l
	l.init(&s.r.Host, func(f func()) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if f != nil {
			f()
		}
	})
}

// restart has the execd that was be dead, and another find what it has left.
func (s *scene) restart() {
	s.t.Helper()
	s.l.mu.Lock()
	s.l.at = over
	s.l.mu.Unlock()
	d, _, err := s.r.Launcher.Find(s.l.task.RunID())
	if err != nil {
		s.t.Fatal(err)
	}
	list, err := jobhook.Read(d)
	if err != nil {
		s.t.Fatal(err)
	}
	l := s.life(s.l.task)
	l.hooks.Plan = s.l.hooks.Plan
	l.recall(list)
	if l.end.End = l.task.End; l.end.End == nil {
		l.end.End = l.end.Conclude(l.end.Outcome)
	}
	s.l = l
}

// hasHook gives the run a hook for its end.
func (s *scene) hasHook() {
	s.l.hooks.Plan = jobhook.Plan{
		Keyword: "K", Owner: &user.User{Name: "alice", UID: os.Getuid(), GID: os.Getgid()},
		Exit: &hook.Hook{Keyword: "K", Name: hook.JobExit, Path: "/bin/true", Limit: time.Minute},
	}
}

// enter enters the steps of the end once, and returns what came of it.
func (s *scene) enter() error {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	return s.r.exit(s.l)
}

// settled enters them until they wait for nothing that is under way.
func (s *scene) settled() (err error) {
	s.t.Helper()
	eventually(s.t, "settled", func() bool { err = s.enter(); return !errors.Is(err, errWait) })
	return err
}

// until enters them until they are over, as events and timers do.
func (s *scene) until() {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		err := s.enter()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("not over after a minute: %v", err)
		}
	}
}

func (s *scene) accounting() int {
	b, _ := os.ReadFile(s.book)
	n := 0
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

func (s *scene) wantTrace(want ...string) {
	s.t.Helper()
	s.flush()
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if !slices.Equal(s.memory.trace, want) {
		s.t.Errorf("trace %q; want %q", s.memory.trace, want)
	}
}

// mend lets the accounting file be written.
func (s *scene) mend() {
	if err := os.MkdirAll(filepath.Dir(s.book), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// mine has a job be of the user who runs the test.
func mine(j *job.Job) {
	s := *j.Submitter // others share it
	s.UID = os.Getuid()
	j.Submitter = &s
}

// REQ-EXIT-12, REQ-EXIT-28, REQ-EXIT-30, REQ-EXIT-31, REQ-EXIT-41, REQ-EXIT-42: of a
// job of the queue the event log comes before the record, which is tried again
// until it succeeds, and nothing before it with it; then who waits is told, the ad
// is written, and all is gone.
func TestEndOfQueuedJob(t *testing.T) {
	s := newScene(t, nil)
	for range 3 {
		err := s.settled()
		var retry *exit.Retry
		if !errors.As(err, &retry) || stepOf(err) != finish.StepSave {
			t.Fatalf("without an accounting file: %v in step %q; want to be tried again", err, stepOf(err))
		}
		if left := s.l.flow.Reaped(); len(left) == 0 || left[0].Name() != childJob {
			t.Fatal("the job has left the list")
		}
	}
	s.wantTrace("event over")
	if s.r.Store.Want(s.l.task) != nil || s.accounting() != 0 {
		t.Fatal("accounted")
	}
	s.mend()
	s.until()
	s.wantTrace("event over", "told", "ad")
	if n := s.accounting(); n != 1 {
		t.Errorf("%d accounting lines; want 1", n)
	}
	if e := s.memory.last; e.Exit != exit.Exited || e.Status.Code != 3 || e.End.Exit != 3 {
		t.Errorf("event %+v", e)
	}
	if s.r.life(s.l.task.RunID()) != nil && s.r.Store.State(s.l.task) != job.Gone {
		t.Errorf("the task is %v; want gone", s.r.Store.State(s.l.task))
	}
}

// REQ-EXIT-27, REQ-EXIT-29, REQ-EXIT-34: of a job that did not come by qsub the
// event log comes first and then its ad; execd's own record follows, and no mail is
// sent. Its own part in execd ends by itself.
func TestEndOfFetchedJob(t *testing.T) {
	s := newScene(t, &api.Work{Ad: "Cmd = \"/bin/true\"\n", Holder: "fetch"})
	s.mend()
	s.until()
	s.wantTrace("event over", "ad", "told")
	if n := s.accounting(); n != 1 {
		t.Errorf("%d accounting lines; want 1", n)
	}
	// Mail would go through an Office, which was given nobody to send by: a job
	// of the queue that asks for it would have needed one.
}

// REQ-EXIT-36, REQ-EXIT-38: an event log that cannot be written stops what follows,
// and each record is written once in the end.
func TestEventLogFails(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	s.memory.fails["event over"], s.memory.fails["ad"] = 2, 1
	s.until()
	s.wantTrace("event over fails", "event over fails", "event over", "told", "ad fails", "ad")
	if n := s.accounting(); n != 1 {
		t.Errorf("%d accounting lines; want 1", n)
	}
}

// REQ-EXIT-10, REQ-EXIT-17, REQ-EXIT-104, REQ-HOOK-52, REQ-HOOK-53:
// nothing is seen of the end while the hook runs, and however often it is entered
// there is one.
func TestExitHookIsAwaited(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	s.hasHook()
	over := make(chan struct{})
	s.hooks.run = func(_ context.Context, _ int, c hook.Call) hook.Result {
		<-over
		return hook.Result{Keyword: "K", Hook: c.Hook.Name, Status: 1} // REQ-HOOK-51
	}
	for range 5 {
		if err := s.enter(); !errors.Is(err, errWait) {
			t.Fatalf("while the hook runs: %v", err)
		}
		if s.l.flow.Over(exit.StepFree) {
			t.Fatal("the slot is free")
		}
	}
	close(over)
	s.until()
	s.wantTrace("hook exit", "event over", "told", "ad")
	if in := string(s.hooks.calls[0].Stdin); !strings.Contains(in, "ExitCode = 3\n") || strings.Contains(in, "-----") {
		t.Errorf("the hook read %q", in)
	}
	if s.hooks.calls[0].As.Name != "alice" || s.hooks.calls[0].Dir == "" {
		t.Errorf("the hook ran as %+v in %q", s.hooks.calls[0].As, s.hooks.calls[0].Dir)
	}
}

// TMPDIR is its owner's, who may put a link in its place: nobody follows it with
// more rights than his.
func TestHookWhereTmpdirIsALink(t *testing.T) {
	for _, link := range []bool{false, true} {
		s := newScene(t, nil)
		s.mend()
		s.hasHook()
		scratch := s.r.Launcher.Scratch(s.l.task.RunID())
		want := scratch
		if link {
			want = ""
			if err := errors.Join(os.Remove(scratch), os.Symlink("/", scratch)); err != nil {
				t.Fatal(err)
			}
		}
		s.until()
		if got := s.hooks.calls[0].Dir; got != want {
			t.Errorf("with a link there: %v: a hook works in %q; want %q", link, got, want)
		}
	}
}

// REQ-EXIT-106: a hook that cannot be started is tried once more, and the job ends
// without it.
func TestExitHookCannotStart(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	s.hasHook()
	s.hooks.run = func(context.Context, int, hook.Call) hook.Result {
		return hook.Result{Keyword: "K", Hook: hook.JobExit, Err: errors.New("no such file")}
	}
	s.until()
	s.wantTrace("hook exit", "hook exit", "event over", "told", "ad")
}

// For want of descriptors it is not given up at once: they may be there in a moment.
func TestExitHookWithoutDescriptors(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	s.hasHook()
	s.hooks.run = func(_ context.Context, n int, c hook.Call) hook.Result {
		res := hook.Result{Keyword: "K", Hook: c.Hook.Name}
		if n <= 2 {
			res.Err = fmt.Errorf("cannot make a pipe: %w", unix.EMFILE)
		}
		return res
	}
	s.until()
	if runs := s.l.hooks.Runs(); len(runs) != 1 || runs[0].Result != (&hook.Result{}).String() {
		t.Errorf("hooks of the run: %+v; want one that has told", runs)
	}
}

// REQ-EXIT-107: a job that never ran has no such hook.
func TestNoExitHookWithoutJob(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	s.hasHook()
	s.l.end.Outcome.Usage = nil
	s.until()
	if len(s.hooks.calls) > 0 {
		t.Errorf("%d hooks were called", len(s.hooks.calls))
	}
}

// REQ-EXIT-115, REQ-EXIT-117: what is noted in the directory is not repeated by the
// next execd, wherever the last one was; an end that is recorded never runs again.
func TestEndAfterRestart(t *testing.T) {
	s := newScene(t, nil)
	s.hasHook()
	for err := s.enter(); stepOf(err) != finish.StepSave; err = s.enter() {
		time.Sleep(time.Millisecond)
	}
	s.wantTrace("hook exit", "event over")
	s.restart()
	s.mend()
	s.until()
	s.wantTrace("hook exit", "event over", "told", "ad")
	if runs := s.l.hooks.Runs(); len(runs) != 1 || runs[0].Hook != string(hook.JobExit) {
		t.Errorf("hooks of the run: %+v", runs)
	}
}

// A run keeps its hooks when execd is started while the name services do not answer.
func TestHooksWithoutNameServices(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	mine(s.l.task.Job)
	table := hook.NewTable(knobtest.Parse(t, "STARTER_DEFAULT_JOB_HOOK_KEYWORD = K\nK_HOOK_JOB_EXIT = /bin/true\n"))
	s.r.HookTable = func() *hook.Table { return table }
	silent := t.TempDir()
	if err := harness.WriteExecutable(filepath.Join(silent, "getent"), "#!/bin/sh\nexit 1\n"); err != nil {
		t.Fatal(err)
	}
	s.r.Users.Path = silent
	s.r.drop(s.l)
	l := s.life(s.l.task)
	l.found, l.hooks.Found, s.l = true, true, l
	s.r.add(l)
	if err := s.r.findAgain(l); err != nil {
		t.Fatal(err)
	}
	s.r.setUp(l)
	if _, retry := errors.AsType[*exit.Retry](s.settled()); !retry {
		t.Error("the hook is not waited for")
	}
	s.r.Users.Path = ""
	s.until()
	if len(s.hooks.calls) != 1 || s.hooks.calls[0].As.UID != os.Getuid() || s.hooks.calls[0].Behind == "" {
		t.Errorf("calls %+v; want the hook of the end, as its owner, behind one of an earlier execd", s.hooks.calls)
	}
}

// posted counts the letters that a post office has without a mailer.
type posted struct{ n atomic.Int32 }

func (p *posted) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "mail: not sent, there is no mailer: Job ") {
		p.n.Add(1)
	}
	return len(b), nil
}

// REQ-EXIT-38: an execd that is started while the last traces of a job go, which may
// take long or fail, sends no second mail.
func TestMailAfterRestart(t *testing.T) {
	for _, gone := range []bool{false, true} {
		s := newScene(t, nil)
		s.mend()
		p := &posted{}
		s.r.Mail = mail.New(s.r.Config, "h", slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug})))
		mine(s.l.task.Job)
		s.l.task.Job.Terms().Mail = "ae"
		d, _, err := s.r.Launcher.Find(s.l.task.RunID())
		if err != nil {
			t.Fatal(err)
		}
		s.r.Journal = nil
		s.l.notices.Find(s.r.Journal)
		if _, err := s.l.flow.Controller.Notify(nil); err != nil {
			t.Fatal(err)
		}
		if n := p.n.Load(); n != 1 {
			t.Fatalf("%d mails; want 1", n)
		}
		if gone {
			if err := os.RemoveAll(d.Path()); err != nil {
				t.Fatal(err)
			}
		}
		l, err := s.r.recoverTask(s.l.task)
		if err != nil {
			t.Fatal(err)
		}
		s.l = l
		s.byHand()
		s.r.setUp(l)
		if err := s.r.reap(l); err != nil {
			t.Fatal(err)
		}
		s.until()
		if n := p.n.Load(); n != 1 {
			t.Errorf("directory gone: %v: %d mails; want 1", gone, n)
		}
	}
}

// REQ-EXIT-113, REQ-HOOK-49: the word for the hook, by what was asked of the job.
func TestWordOfTheEnd(t *testing.T) {
	for _, tt := range []struct {
		name   string
		do     func(s *scene)
		failed int
		want   exit.Word
	}{
		{"by itself", func(*scene) {}, 0, "exit"},
		{"by a signal of its own", func(*scene) {}, spool.FailedAfterJob, "exit"},
		{"deleted", func(s *scene) {
			_, _ = s.r.Store.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"1"}}, job.Caller{UID: 1001, Name: "alice"}, func(*job.Task) {})
		}, 0, "remove"},
		{"a limit", func(s *scene) { _ = s.r.Store.Exceed(s.l.task, "h_vmem") }, 0, "remove"},
		{"a limit that the shepherd holds", func(*scene) {}, spool.FailedEnforcedLimit, "remove"},
		{"migrates", func(*scene) {}, spool.FailedMigrating, "evict"},
		{"leaves its slot", func(s *scene) { s.l.task.Want = &job.Want{Signal: 15, Slot: true} }, spool.FailedAfterJob, "evict"},
		{"leaves its slot to run again", func(s *scene) { s.l.task.Want = &job.Want{Signal: 15, Slot: true, Requeue: true} }, spool.FailedAfterJob, "evict"},
		{"leaves its slot and is held", func(s *scene) { s.l.task.Want = &job.Want{Signal: 15, Slot: true, Requeue: true, Error: "policy"} }, spool.FailedAfterJob, "hold"},
		{"leaves its slot, and nobody holds it", func(s *scene) { s.l.task.Want = &job.Want{Signal: 15, Slot: true, Error: "policy"} }, spool.FailedAfterJob, "hold"},
		{"has exited when it was to leave", func(s *scene) { s.l.task.Want = &job.Want{Signal: 15, Slot: true, Requeue: true} }, 0, "exit"},
		{"exits with 99", func(*scene) {}, spool.FailedRescheduling, "exit"},
		{"loses its shepherd", func(*scene) {}, spool.FailedNoExitStatus, "exit"},
	} {
		s := newScene(t, nil)
		tt.do(s)
		s.l.end.End = s.l.end.Conclude(&spool.Outcome{Failed: tt.failed, Usage: s.l.end.Outcome.Usage})
		s.l.task.Want = &job.Want{Signal: 9, By: "bob"} // and that comes too late
		if got := s.l.end.Word(); got != tt.want {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}

// A job that exceeded a limit has ended, and one that was deleted was killed: the
// event log has different events for them.
func TestCodeOfLimit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ran    bool
		failed int
		want   exit.Code
	}{
		{"a limit", true, spool.FailedEnforcedLimit, exit.Exited},
		{"a limit before the job", false, spool.FailedEnforcedLimit, exit.Killed},
		{"by itself", true, spool.FailedNone, exit.Exited},
	} {
		s := newScene(t, nil)
		s.mend()
		s.l.end.End.Cause = (&spool.Outcome{Failed: tt.failed, Usage: s.l.end.Outcome.Usage}).Cause()
		if !tt.ran {
			s.l.end.Outcome.Usage = nil
		}
		s.until()
		if s.memory.last.Exit != tt.want {
			t.Errorf("%s: code %d; want %d", tt.name, s.memory.last.Exit, tt.want)
		}
	}
}

// A core file is told of in the ad, and in how the end is counted.
func TestCoreDump(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	*s.l.end.Outcome.Usage = *spool.NewUsage(syscall.WaitStatus(11|0x80), time.Unix(1001, 0), time.Unix(1005, 0), &syscall.Rusage{})
	s.until()
	if e := s.memory.last; e.Exit != exit.CoreDumped || !strings.Contains(e.Ad.String(), "JobCoreDumped = true") {
		t.Errorf("event %d, ad %v; want a core", e.Exit, e.Ad)
	}
}

// sender is an Output that fails as often as it is told to, and then, where it has a
// channel, waits until that is closed or it is cancelled.
type sender struct {
	memory *memory
	fails  []error
	bytes  int64 // that it reports; 0: it reports nothing
	left   string
	queued bool // it reports that it waits for its turn first
	waits  chan struct{}
	begun  chan struct{} // read when it has begun, and when it is to end; nil: it ends
	keeps  bool          // slots, until it has arrived

	frozen, arrived atomic.Int32 // how often it was told so
}

func (o *sender) Async(*job.Task) bool  { return !o.keeps }
func (*sender) Size(*job.Sandbox) int64 { return 0 }
func (o *sender) Freeze(*job.Task, int) { o.frozen.Add(1) }
func (o *sender) Arrived(*job.Task)     { o.arrived.Add(1) }

func (*sender) Leaves(*job.Task) (when api.WhenOut, files, streams bool) {
	return api.OutExit, true, false
}

func (o *sender) Send(ctx context.Context, _ *job.Task, report func(base.Progress)) (err error) {
	_ = o.memory.note("output")
	if o.queued {
		report(base.Progress{Queued: true})
	}
	if o.bytes > 0 {
		report(base.Progress{Bytes: o.bytes, Files: 1, Left: o.left})
	}
	if o.begun != nil { // it is, and ends
		<-o.begun
		<-o.begun
	}
	if len(o.fails) > 0 {
		err, o.fails = o.fails[0], o.fails[1:]
		return err
	}
	if o.waits != nil {
		select {
		case <-o.waits:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
func (o *sender) Sync(context.Context, *job.Task) error    { return o.memory.note("sync") }
func (o *sender) Discard(context.Context, *job.Task) error { return o.memory.note("discard") }

// REQ-EXIT-11, REQ-EXIT-19, REQ-EXIT-21, REQ-EXIT-109, REQ-EXIT-111: the output is
// transferred between the hook and what people see of the end; a failure is tried
// again, and one for good when somebody has looked, while the job stays over.
func TestOutputOfQueuedJob(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	s.hasHook()
	s.r.Output = &sender{memory: s.memory, fails: []error{errors.New("reset")}}
	s.until()
	s.wantTrace("hook exit", "sync", "output", "output", "event over", "told", "ad")

	s = newScene(t, nil)
	s.mend()
	s.r.Output = &sender{memory: s.memory, fails: []error{&exit.Permanent{Errno: 13, Err: errors.New("permission denied")}}}
	s.r.advance(s.l, nil)
	eventually(t, "stuck", func() bool {
		s.l.mu.Lock() // it is told behind that
		defer s.l.mu.Unlock()
		return s.r.Store.Stuck(s.l.task) != nil
	})
	if why := s.r.Store.Stuck(s.l.task); why.Text != "output transfer: permission denied" || why.Errno != 13 || s.r.Store.State(s.l.task) != job.Over || s.accounting() != 0 {
		t.Errorf("the task is %v, %+v, accounted %d times", s.r.Store.State(s.l.task), why, s.accounting())
	}
	s.wantTrace("sync", "output", "event warned")
	if err := s.r.Store.Unstick(s.l.task); err != nil {
		t.Fatal(err)
	}
	s.r.Changed(s.l.task)
	eventually(t, "gone", func() bool { return s.r.Store.State(s.l.task) == job.Gone })
	s.wantTrace("sync", "output", "event warned", "output", "event over", "told", "ad")
}

// What somebody has mended while an attempt was under way that fails for it is tried again.
func TestClearedDuringAttempt(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	o := &sender{memory: s.memory, fails: []error{&exit.Permanent{Errno: 2, Err: errors.New("no such directory")}}, begun: make(chan struct{})}
	s.r.Output = o
	s.r.advance(s.l, nil)
	o.begun <- struct{}{}
	looked := make(chan struct{})
	s.r.advance(s.l, func() { s.l.end.Again(); close(looked) })
	<-looked
	o.begun <- struct{}{}
	o.begun <- struct{}{}
	o.begun <- struct{}{}
	eventually(t, "gone", func() bool { return s.r.Store.State(s.l.task) == job.Gone })
	s.wantTrace("sync", "output", "output", "event over", "told", "ad")
}

// hasOutputHook gives the run a sandbox, and a hook that is told of its output.
func (s *scene) hasOutputHook() {
	s.hasHook()
	s.l.hooks.Exit = nil
	s.l.hooks.Output = &hook.Hook{Keyword: "K", Name: hook.OutputDone, Path: "/bin/true", Limit: time.Minute}
}

// wantDelivered checks what the n-th hook has read of the output.
func (s *scene) wantDelivered(n int, success bool, bytes int, text string) {
	s.t.Helper()
	s.hooks.mu.Lock()
	defer s.hooks.mu.Unlock()
	if len(s.hooks.calls) != n {
		s.t.Fatalf("%d hooks were called; want %d", len(s.hooks.calls), n)
	}
	c := &s.hooks.calls[n-1]
	a, err := classad.ParseOld(string(c.Stdin))
	if err != nil {
		s.t.Fatal(err)
	}
	env := classad.Env{My: a}
	ok, _ := env.Attr("TransferOutputSuccess").Bool()
	got, _ := env.Attr("TransferOutputBytes").Int()
	why, _ := env.Attr("TransferOutputError").Str()
	if code, _ := env.Attr("ExitCode").Int(); ok != success || int(got) != bytes || !strings.Contains(why, text) || text == "" != (why == "") || code != 3 {
		s.t.Errorf("%s read that success is %v, of %d bytes, since %q, of a job that exited with %d", c.Hook.Name, ok, got, why, code)
	}
	if c.As.Name != "alice" || len(c.Args) > 0 {
		s.t.Errorf("it ran as %s, with %q", c.As.Name, c.Args)
	}
}

// Who gave the work is told that its output has arrived, before the end is accounted and
// told of; by the next execd if the first was killed, once if it had noted that.
func TestOutputHook(t *testing.T) {
	s := newScene(t, &api.Work{Ad: "Cmd = \"/bin/true\"\n", Holder: "fetch"})
	s.hasOutputHook()
	s.r.Output = &sender{memory: s.memory, bytes: 70, queued: true}
	called := make(chan struct{})
	s.hooks.run = func(_ context.Context, n int, c hook.Call) hook.Result {
		if n == 1 { // execd is killed meanwhile
			close(called)
			<-t.Context().Done()
		}
		return hook.Result{Keyword: "K", Hook: c.Hook.Name, Status: 1}
	}
	s.r.advance(s.l, nil)
	<-called
	s.wantDelivered(1, true, 70, "")
	s.wantTravels("queued", "began", "arrived")
	if s.r.Store.State(s.l.task) != job.Over || s.accounting() != 0 {
		t.Errorf("the hook runs, and the task is %v, accounted %d times", s.r.Store.State(s.l.task), s.accounting())
	}
	s.restart()
	s.byHand() // the accounting file cannot be written
	for err := s.enter(); stepOf(err) != finish.StepSave; err = s.enter() {
		time.Sleep(time.Millisecond)
	}
	s.wantDelivered(2, true, 70, "")
	s.restart()
	s.mend()
	s.until()
	s.wantDelivered(2, true, 70, "")
	s.wantTrace("sync", "output", "hook ", "hook ", "event over", "ad", "told")
	if runs := s.l.hooks.Runs(); len(runs) != 1 || runs[0].Hook != string(hook.OutputDone) {
		t.Errorf("hooks of the run: %+v; want the one that has ended", runs)
	}
}

// What is left out of the output is told of before its end.
func TestLeftOut(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	s.r.Output = &sender{memory: s.memory, bytes: 70, left: `left out: pipe "p"`}
	s.until()
	s.wantTrace("sync", "output", "event warned", "event over", "told", "ad")
	if want := `output: left out: pipe "p"`; s.memory.warned != want {
		t.Errorf("the event says %q; want %q", s.memory.warned, want)
	}
	if book, err := os.ReadFile(s.book); err != nil || !strings.HasSuffix(string(book), ":output%3A left out%3A pipe \"p\"\n") {
		t.Errorf("it is accounted as %s, %v", book, err)
	}
}

// He is told as well that it never will arrive.
func TestOutputHookOfDeleted(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	s.hasOutputHook()
	s.r.Output = &sender{memory: s.memory, bytes: 70, waits: make(chan struct{})}
	s.r.advance(s.l, nil)
	eventually(t, "begun", func() bool { return s.r.Store.State(s.l.task) == job.Over && s.l.end.Output.Standing().Bytes > 0 })
	if _, err := s.r.Store.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"1"}}, job.Caller{UID: 1001, Name: "alice"}, s.r.Kill); err != nil {
		t.Fatal(err)
	}
	eventually(t, "gone", func() bool { return s.r.Store.State(s.l.task) == job.Gone })
	s.wantDelivered(1, false, 0, "deleted by alice")
	if s.memory.last.Exit != exit.Killed {
		t.Errorf("the event log is told of code %d; want that it was killed", s.memory.last.Exit)
	}
	s.wantTravels("began")
	s.wantTrace("sync", "output", "discard", "hook ", "event over", "told", "ad")
}

// REQ-EXIT-23, REQ-EXIT-37: a transfer that has failed waits for its own time, whatever
// enters the list of steps meanwhile.
func TestOutputIsNotTriedAtOnce(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	s.r.Output = &sender{memory: s.memory, fails: []error{errors.New("reset")}}
	for lost := false; !lost; time.Sleep(time.Millisecond) {
		if err := s.enter(); !errors.Is(err, errWait) {
			t.Fatal(err)
		}
		lost = s.l.end.Output.Standing().Failure != ""
	}
	for range 10 {
		if err := s.enter(); !errors.Is(err, errWait) {
			t.Fatalf("while it waits: %v; want that it goes on waiting", err)
		}
	}
	s.wantTrace("sync", "output")
	s.until()
	s.wantTrace("sync", "output", "output", "event over", "told", "ad")
}

// scripted gives the scene a job that has not ended, with a script after it.
func (s *scene) scripted() *life {
	l := s.life(s.l.task)
	l.at, l.exited = runs, false
	l.flow = exit.Pipeline{}
	l.hooks.Plan = jobhook.Plan{
		Keyword: "job", Owner: &user.User{Name: "alice"},
		Post: &hook.Hook{Keyword: "job", Name: jobhook.PostScript, Path: "/bin/false", Limit: time.Minute},
	}
	s.l = l
	return l
}

// REQ-EXIT-5, REQ-EXIT-7, REQ-EXIT-8, REQ-EXIT-102: tasks end by the job, the script
// after it comes when all have ended, and one that fails holds the job.
func TestScriptAfterTheJob(t *testing.T) {
	s := newScene(t, nil)
	l := s.scripted()
	s.r.setUp(l)
	s.byHand()
	run := l.task.RunID()
	run.PETask = "1.h"
	if _, err := s.r.Launcher.Root.StageTask(run); err != nil {
		t.Fatal(err)
	}
	d, err := s.r.Launcher.Root.ActivateTask(run)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := d.Lock() // its shepherd lives
	if err != nil {
		t.Fatal(err)
	}
	l.tasks.Find()
	s.hooks.run = func(context.Context, int, hook.Call) hook.Result {
		return hook.Result{Keyword: "job", Hook: jobhook.PostScript, Status: 4}
	}
	l.exited = true
	l.flow.Reap(childJob, exit.Status{})
	if err := s.r.run(l); !errors.Is(err, errWait) || len(s.hooks.calls) > 0 {
		t.Fatalf("with a task: %v, %d scripts; want to wait for it", err, len(s.hooks.calls))
	}
	lock.Close()
	s.r.Exited(run)
	eventually(t, "the script is over", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return s.r.run(l) == nil
	})
	if e := l.end.Conclude(&spool.Outcome{Usage: &spool.Usage{}}); e.Fate != job.FateError || e.Reason != "script after the job failed: exit status 4" {
		t.Errorf("fate %s, %q; want an error", e.Fate, e.Reason)
	}
	if len(s.hooks.calls) != 1 {
		t.Errorf("%d scripts were run; want 1", len(s.hooks.calls))
	}
}

// An ad keeps what it was when a hook has changed it.
func TestJobAdOfTheRun(t *testing.T) {
	s := newScene(t, nil)
	s.hasHook()
	a, err := s.l.hooks.JobAd()
	if err != nil {
		t.Fatal(err)
	}
	env := &classad.Env{My: a}
	if word, _ := env.Attr("HookKeyword").Str(); word != "K" {
		t.Errorf("HookKeyword = %q; want K", word)
	}
	d, _, _ := s.r.Launcher.Find(s.l.task.RunID())
	if err := d.Write(spool.FileJobAd, []byte("Site = 7\n")); err != nil {
		t.Fatal(err)
	}
	if a, err = s.l.hooks.JobAd(); err != nil {
		t.Fatal(err)
	}
	if n, _ := (&classad.Env{My: a}).Attr("Site").Int(); n != 7 {
		t.Errorf("Site = %d; want 7", n)
	}
}

// A script after the job that cannot be called any more, since the directory of the run
// is gone or half of it is after a power cut, does not keep the job from its end.
func TestScriptAfterTheJobWithoutDirectory(t *testing.T) {
	for name, damage := range map[string]func(d spool.Dir) error{
		"directory":   func(d spool.Dir) error { return os.RemoveAll(d.Path()) },
		"config":      func(d spool.Dir) error { return os.Remove(d.Path(spool.FileConfig)) },
		"zeroes":      func(d spool.Dir) error { return os.WriteFile(d.Path(spool.FileConfig), make([]byte, 100), 0o600) },
		"environment": func(d spool.Dir) error { return os.Remove(d.Path(spool.FileEnvironment)) },
	} {
		s := newScene(t, nil)
		l := s.scripted()
		s.r.setUp(l)
		s.hooks.run = func(context.Context, int, hook.Call) hook.Result { return hook.Result{} }
		d, _, err := s.r.Launcher.Find(l.task.RunID())
		if err != nil {
			t.Fatal(err)
		}
		if err := damage(d); err != nil {
			t.Fatal(err)
		}
		l.exited = true
		l.flow.Reap(childJob, exit.Status{})
		eventually(t, "called or given up", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			err = s.r.run(l)
			return !errors.Is(err, errWait)
		})
		if err != nil || len(s.hooks.calls) > 0 || l.hooks.PostStatus.OK() {
			t.Errorf("%s: %v, %d scripts, status %+v; want the job to go on to its end, and the script failed", name, err, len(s.hooks.calls), l.hooks.PostStatus)
		}
	}
}

// Who wants a job gone does not wait for the script after it, which may take an hour.
func TestKillEndsScriptAfterTheJob(t *testing.T) {
	s := newScene(t, nil)
	s.r.drop(s.l)
	l := s.scripted()
	s.r.add(l)
	s.r.setUp(l)
	l.steer.up = true // it had a shepherd
	begun := make(chan struct{})
	s.hooks.run = func(ctx context.Context, _ int, _ hook.Call) hook.Result {
		close(begun)
		<-ctx.Done()
		return hook.Result{Keyword: "job", Hook: jobhook.PostScript, Err: ctx.Err()}
	}
	s.byHand()
	l.exited = true
	l.flow.Reap(childJob, exit.Status{})
	if err := s.r.run(l); !errors.Is(err, errWait) {
		t.Fatal(err)
	}
	<-begun
	if _, err := s.r.Store.Evict(l.task, job.Want{Signal: int(sigkill), By: "bob"}); err != nil {
		t.Fatal(err)
	}
	s.r.Kill(l.task)
	eventually(t, "over", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return s.r.run(l) == nil
	})
}

// The hook for the end of a job runs to its own end, whoever wants the job gone
// meanwhile, also of an execd that has not seen the job run.
func TestKillLeavesExitHook(t *testing.T) {
	s := newScene(t, nil)
	s.mend()
	s.hasHook()
	begun, goOn, left := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s.hooks.run = func(ctx context.Context, n int, _ hook.Call) hook.Result {
		if n == 1 {
			close(begun)
			<-goOn
			left <- ctx.Err()
		}
		return hook.Result{Keyword: "K", Hook: hook.JobExit}
	}
	if err := s.enter(); !errors.Is(err, errWait) {
		t.Fatal(err)
	}
	<-begun
	if _, err := s.r.Store.Evict(s.l.task, job.Want{Signal: int(sigkill), By: "bob"}); err != nil {
		t.Fatal(err)
	}
	s.r.Kill(s.l.task)
	close(goOn)
	if err := <-left; err != nil {
		t.Errorf("the hook was ended: %v", err)
	}
	s.until()
}
