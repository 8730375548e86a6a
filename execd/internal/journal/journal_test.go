package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/eventlog"
	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// world is all that a Journal talks to.
type world struct {
	ad    string
	text  map[string]string
	tails int
	hang  bool
	fail  error
	knobs *knob.Set
	err   strings.Builder
}

func (w *world) Request(*job.Job) (*api.SubmitRequest, error) {
	return &api.SubmitRequest{Work: &api.Work{Ad: w.ad, Slot: "2"}}, nil
}

func (w *world) ByID(_ context.Context, uid int) (*user.User, error) {
	return &user.User{Name: "alice", UID: uid, Home: "/home/alice"}, nil
}

func (w *world) AppendAs(ctx context.Context, u *user.User, path string, data []byte) error {
	if w.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if w.fail == nil {
		w.text[u.Name+" "+path] += string(data)
	}
	return w.fail
}

func (w *world) WriteAs(_ context.Context, u *user.User, path string, data []byte) error {
	if w.fail == nil {
		w.text[u.Name+" "+path] = string(data)
	}
	return w.fail
}

func (w *world) Tail(ctx context.Context, u *user.User, path string, _ int) ([]byte, error) {
	if w.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w.tails++
	return []byte(w.text[u.Name+" "+path]), nil
}

// journal is that of an execd that has just started.
func (w *world) journal() *Journal {
	if w.text == nil {
		w.text = make(map[string]string)
	}
	return &Journal{
		Log: &eventlog.Writer{Files: w}, Store: w, Users: w, Config: func() *conf.Config { return &conf.Config{Knobs: w.knobs} },
		Host: "h", Err: slog.New(slog.NewTextHandler(io.Writer(&w.err), nil)),
	}
}

func task() *job.Task {
	return &job.Task{Job: &job.Job{Number: 3, Submitter: &job.Submitter{UID: 1001, Owner: "alice"}, Origin: &job.Origin{Source: "fetch"}}, Number: 1}
}

// at is when all happens, so that a log is the same everywhere.
var at = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func parse(t *testing.T, text string) *classad.Ad {
	t.Helper()
	a, err := classad.ParseOld(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const (
	logged = "Cmd = \"/bin/true\"\nIwd = \"/work\"\nStarterUserLog = \"log\"\nOutputAd = \"/out/ad\"\nClusterId = 7\nProcId = 8\n"
	ended  = "ExitCode = 3\nRemoteUserCpu = 1.5\nRemoteSysCpu = 0.5\nJobDuration = 4.0\nRequestCpus = 1\nResidentSetSize = 2049\n" +
		"Environment = \"SECRET=1\"\nClaimId = \"secret\"\n"
)

func TestWants(t *testing.T) {
	for ad, want := range map[string]bool{
		"Cmd = \"/bin/true\"\n":                        false,
		"Cmd = \"/bin/true\"\nStarterUserLog = \"/l\"": true,
		"Cmd = \"/bin/true\"\nOutputAd = \"/l\"":       true,
	} {
		w := &world{ad: ad}
		if got := w.journal().Wants(task()); got != want {
			t.Errorf("%q: %v; want %v", ad, got, want)
		}
		queued := task()
		queued.Job.Source = ""
		if w.journal().Wants(queued) {
			t.Errorf("%q: a job of qsub has a log", ad)
		}
	}
}

// The life of a run, as its owner reads it.
func TestLife(t *testing.T) {
	w := &world{ad: logged}
	j := w.journal()
	tk := task()
	over := notice.Event{
		Kind: notice.Over, Task: tk, Time: at, Exit: exit.Exited, Status: exit.Status{Code: 3}, End: &job.End{Fate: job.FateDone}, Ad: parse(t, ended),
	}
	for _, e := range []notice.Event{
		{Kind: notice.Warned, Text: "slow"},
		{Kind: notice.Travels, Travel: notice.Travel{Phase: notice.Queued}},
		{Kind: notice.Travels, Travel: notice.Travel{Phase: notice.Began, Waited: 2 * time.Second}, Time: at.Add(time.Microsecond)},
		{Kind: notice.Travels, Travel: notice.Travel{Phase: notice.Arrived}, Time: at.Add(2 * time.Microsecond)},
		{Kind: notice.Executing},
		{Kind: notice.Suspended},
		{Kind: notice.Resumed},
		{Kind: notice.Travels, Travel: notice.Travel{Output: true, Phase: notice.Began}, Time: at.Add(3 * time.Microsecond)},
		{Kind: notice.Travels, Travel: notice.Travel{Output: true, Phase: notice.Arrived}, Time: at.Add(4 * time.Microsecond)},
	} {
		if e.Task = tk; e.Time.IsZero() {
			e.Time = at
		}
		if err := j.Record(e); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := j.Record(over); err != nil {
			t.Error(err)
		}
	}
	if err := j.WriteAd(over); err != nil {
		t.Error(err)
	}
	want := `021 (007.008.000) 03/04 05:06:07 Warning from starter on slot2@h:
	slow
	EventId: h/3.1.0#021.1772600767000000
...
040 (007.008.000) 03/04 05:06:07 Entered queue to transfer input files
	EventId: h/3.1.0#040.1772600767000000
...
040 (007.008.000) 03/04 05:06:07 Started transferring input files
	Seconds spent in queue: 2
	Transferring to host: <h>
	EventId: h/3.1.0#040.1772600767000001
...
040 (007.008.000) 03/04 05:06:07 Finished transferring input files
	EventId: h/3.1.0#040.1772600767000002
...
001 (007.008.000) 03/04 05:06:07 Job executing on host: <h>
	SlotName: slot2@h
	EventId: h/3.1.0#001
...
010 (007.008.000) 03/04 05:06:07 Job was suspended.
	Number of processes actually suspended: 0
	EventId: h/3.1.0#010.1772600767000000
...
011 (007.008.000) 03/04 05:06:07 Job was unsuspended.
	EventId: h/3.1.0#011.1772600767000000
...
040 (007.008.000) 03/04 05:06:07 Started transferring output files
	EventId: h/3.1.0#040.1772600767000003
...
040 (007.008.000) 03/04 05:06:07 Finished transferring output files
	EventId: h/3.1.0#040.1772600767000004
...
005 (007.008.000) 03/04 05:06:07 Job terminated.
	(1) Normal termination (return value 3)
		Usr 0 00:00:02, Sys 0 00:00:01  -  Run Remote Usage
		Usr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
		Usr 0 00:00:02, Sys 0 00:00:01  -  Total Remote Usage
		Usr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage
	0  -  Run Bytes Sent By Job
	0  -  Run Bytes Received By Job
	0  -  Total Bytes Sent By Job
	0  -  Total Bytes Received By Job
	Partitionable Resources :    Usage  Request Allocated 
	   Cpus                 :     0.50        1         1 
	   Disk (KB)            :                             
	   Memory (MB)          :        3                    

	Job terminated of its own accord at 2026-03-04T05:06:07Z with exit-code 3.
	EventId: h/3.1.0#005
...
`
	if diff := cmp.Diff(want, w.text["alice /work/log"]); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
	if got := w.text["alice /out/ad"]; !strings.HasPrefix(got, "ExitCode = 3\n") || strings.Contains(strings.ToLower(got), "secret") {
		t.Errorf("the ad is %q; want it without what is secret", got)
	}
	if w.tails != 1 { // before anything was known of the run
		t.Errorf("the log was searched %d times; want 1", w.tails)
	}
	if len(j.runs) != 0 {
		t.Errorf("%d runs are remembered after their end", len(j.runs))
	}
}

// REQ-EXIT-38: an end that the execd before has told is not told again.
func TestRestart(t *testing.T) {
	w := &world{ad: logged}
	over := notice.Event{Kind: notice.Over, Task: task(), Time: at, Exit: exit.Exited, End: &job.End{Fate: job.FateDone}}
	for range 3 {
		if err := w.journal().Record(over); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Count(w.text["alice /work/log"], "Job terminated.\n"); got != 1 {
		t.Errorf("it stands there %d times; want 1", got)
	}
}

// coreLine is what an event says of a core, as the kernel of this host keeps them.
func coreLine() string {
	pattern, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
	if dir := coreIn(string(pattern), "/work"); dir != "" {
		return "\t(1) Corefile in: " + dir + "\n"
	}
	return "\t(0) No core file\n"
}

// What an end is called depends on what becomes of the job.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		e    notice.Event
		want string
	}{
		"signal": {notice.Event{Exit: exit.Exited, Status: exit.Status{Signal: 9}, End: &job.End{}}, "(0) Abnormal termination (signal 9)"},
		"core":   {notice.Event{Exit: exit.CoreDumped, Status: exit.Status{Signal: 11}, End: &job.End{}}, "(0) Abnormal termination (signal 11)"},
		"where": {
			notice.Event{Exit: exit.CoreDumped, Status: exit.Status{Signal: 11, Core: true}, End: &job.End{}, Ad: parse(t, "Iwd = \"/work\"\n")},
			coreLine(),
		},
		"limit": {
			notice.Event{Exit: exit.Exited, Status: exit.Status{Signal: 9}, End: &job.End{Cause: spool.CauseLimit, Reason: "too long"}},
			"(0) Abnormal termination (signal 9)",
		},
		"who": {
			notice.Event{Exit: exit.Exited, Status: exit.Status{Signal: 9}, End: &job.End{Cause: spool.CauseLimit, Reason: "too long"}},
			"Job terminated by execd at 2026-03-04T05:06:07Z with signal 9.\n\tReason: too long\n",
		},
		"delete": {notice.Event{Exit: exit.Killed, End: &job.End{Reason: "deleted by bob"}}, "Job was aborted.\n\tdeleted by bob\n"},
		"never":  {notice.Event{Exit: exit.NotStarted, End: &job.End{Reason: "no shell"}}, "Job was aborted.\n\tno shell\n"},
		"evict": {
			notice.Event{Exit: exit.Requeue, End: &job.End{Fate: job.FateRequeue, Reason: "preempted", Checkpoint: true}},
			"(1) Job was checkpointed.\n",
		},
		"preempted": {
			notice.Event{Exit: exit.Requeue, Text: "PREEMPT is true", Code: 1011, End: &job.End{Reason: "evicted by slot1"}},
			"(0) Job was not checkpointed.\n",
		},
		"held by its slot": {
			notice.Event{Exit: exit.Killed, Text: "too large", Code: 21, Subcode: 7, End: &job.End{Reason: "evicted by slot1"}},
			"\tReason: too large\n\tCode 21 Subcode 7\n",
		},
		"held in its queue by its slot": {
			notice.Event{Exit: exit.Requeue, Text: "too large", Code: 21, Subcode: 7, End: &job.End{Fate: job.FateRequeue, Cause: spool.CauseHeld, Reason: "rescheduled by slot1"}},
			"Job was held.\n\ttoo large\n\tCode 21 Subcode 7\n",
		},
		"error": {notice.Event{Exit: exit.Hold, End: &job.End{Fate: job.FateError, Reason: "bad"}, Code: 19, Subcode: 2}, "Job was held.\n\tbad\n\tCode 19 Subcode 2\n"},
	} {
		w := &world{ad: logged}
		c.e.Kind, c.e.Task, c.e.Time = notice.Over, task(), at
		if err := w.journal().Record(c.e); err != nil {
			t.Error(err)
		}
		if got := w.text["alice /work/log"]; !strings.Contains(got, c.want) {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
	for pattern, want := range map[string]string{"core": "/work", "cores/%e": "/work/cores", "/var/%e.%p": "/var", "|/bin/keep %p": ""} {
		if got := coreIn(pattern, "/work"); got != want {
			t.Errorf("with the pattern %s a core is in %q; want %q", pattern, got, want)
		}
	}
	for kind, want := range map[notice.EventKind]string{
		notice.Held: "Job was held.\n\tno input\n\tCode 19 Subcode 4\n", notice.Postponed: "Error from starter on slot2@h:\n\tno input\n\tCode 19 Subcode 4\n",
	} {
		w := &world{ad: logged}
		j := w.journal()
		if err := j.Record(notice.Event{Kind: kind, Task: task(), Time: at, Text: "no input", Code: 19, Subcode: 4}); err != nil {
			t.Error(err)
		}
		if got := w.text["alice /work/log"]; !strings.Contains(got, want) || len(j.runs) != 0 {
			t.Errorf("%s: %q, %d runs remembered; want %q", kind, got, len(j.runs), want)
		}
	}
}

// The administrator chooses how logs are written, and a job that it is XML.
func TestForms(t *testing.T) {
	for name, c := range map[string]struct{ options, ad, want string }{
		"default": {"", "", "009 (007.008.000) 03/04 05:06:07 Job"},
		"iso":     {"ISO_DATE, UTC", "", "009 (007.008.000) 2026-03-04 05:06:07Z Job"},
		"json":    {"JSON", "", `{"MyType": "JobAbortedEvent"`},
		"xml":     {"JSON UTC", "StarterUserLogUseXML = true\n", "<c>\n    <a n=\"MyType\"><s>JobAbortedEvent</s></a>"},
		"wrong":   {"YAML", "", "009 (007.008.000) 03/04 05:06:07 Job"},
	} {
		knobs, problems := knob.Parse("hooks.conf", Options+" = "+c.options+"\n")
		if len(problems) > 0 && name != "wrong" {
			t.Errorf("%s: %v", name, problems)
		}
		w := &world{ad: logged + c.ad, knobs: knobs}
		e := notice.Event{Kind: notice.Over, Task: task(), Time: at, Exit: exit.Killed, End: &job.End{}}
		if err := w.journal().Record(e); err != nil {
			t.Error(err)
		}
		if got := w.text["alice /work/log"]; !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
		if said := strings.Contains(w.err.String(), "YAML"); said != (name == "wrong") {
			t.Errorf("%s: our log says %q", name, w.err.String())
		}
	}
}

// A log that cannot be written does not keep its job for ever.
func TestGivesUp(t *testing.T) {
	w := &world{ad: logged, fail: errors.New("permission denied")}
	j := w.journal()
	e := notice.Event{Kind: notice.Over, Task: task(), Time: at, Exit: exit.Exited, End: &job.End{}, Ad: parse(t, ended)}
	for try := 1; try < maxTries; try++ {
		if err := j.Record(e); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("try %d: %v", try, err)
		}
	}
	if err := j.Record(e); err != nil {
		t.Errorf("the event is not given up: %v", err)
	}
	if err := j.WriteAd(e); err != nil {
		t.Errorf("the ad is not given up at once: %v", err)
	}
	if got := strings.Count(w.err.String(), "given up"); got != 2 {
		t.Errorf("our log has %q; want both", w.err.String())
	}
}

// What hooks.conf may say of the form of logs is what they can be written in.
func TestOptions(t *testing.T) {
	known := knob.Find(Options)
	if known == nil || len(known.Words) == 0 {
		t.Fatalf("%s may be anything", Options)
	}
	for _, word := range known.Words {
		if _, _, err := eventlog.ParseOptions(word); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := eventlog.ParseOptions("YAML"); err == nil || !strings.HasSuffix(err.Error(), "want "+strings.Join(known.Words[:len(known.Words)-1], ", ")+" or "+known.Words[len(known.Words)-1]) {
		t.Errorf("%v; want it to name %q", err, known.Words)
	}
}

// A user whose file system hangs, or is refused, keeps nobody's run for long.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{ad: logged, hang: true}
		j := w.journal()
		over := func(number int) notice.Event {
			tk := task()
			tk.Number = number
			return notice.Event{Kind: notice.Over, Task: tk, Time: at, Exit: exit.Exited, End: &job.End{}}
		}
		began := time.Now()
		var told atomic.Int32
		record := func(number int) {
			if err := j.Record(over(number)); err != nil {
				t.Errorf("run %d is told again: %v", number, err)
			}
			told.Add(1)
		}
		for number := range maxBacklog {
			go record(number)
		}
		synctest.Wait()
		time.Sleep(2 * stuck)
		record(maxBacklog)
		if n := told.Load(); n != 1 || time.Since(began) > 2*stuck {
			t.Errorf("%d are told after %v; want the last alone, at once", n, time.Since(began))
		}
		time.Sleep(eventlog.Limit)
		synctest.Wait()
		if n := told.Load(); n != maxBacklog+1 || len(j.backlogs.users) > 0 {
			t.Errorf("%d are told; want all, and nobody waits: %v", n, j.backlogs.users)
		}
	})
	w := &world{ad: logged, fail: fmt.Errorf("no: %w", asuser.ErrRefused)}
	e := notice.Event{Kind: notice.Over, Task: task(), Time: at, Exit: exit.Exited, End: &job.End{}}
	if err := w.journal().Record(e); err != nil || !strings.Contains(w.err.String(), "given up (try 1): no") {
		t.Errorf("%v, and our log says %q; want it given up", err, w.err.String())
	}
}

// What happens to jobs of qsub that wait is written in its order, and before they run.
func TestNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		j := w.journal()
		of := &job.Job{Number: 3, Submitter: &job.Submitter{UID: 1001, Owner: "alice"}, Origin: &job.Origin{}, Tasks: api.Tasks{First: 2, Last: 4, Step: 2}}
		request := &api.SubmitRequest{Cwd: "/work", Tasks: of.Tasks, Attributes: []string{`UserLog="log"`}}
		j.Notice(of, request, job.Notice{Kind: job.NoticeSubmitted, Tasks: job.AllTasks(of.Tasks)})
		j.Notice(of, request, job.Notice{Kind: job.NoticeHeld, Tasks: job.AllTasks(of.Tasks), Reason: "via qhold"})
		j.Notice(of, request, job.Notice{Kind: job.NoticeReleased, Tasks: job.AllTasks(of.Tasks), Reason: "via qrls"})
		j.Notice(of, request, job.Notice{Kind: job.NoticeDeleted, Tasks: job.AllTasks(of.Tasks), Reason: "via qdel"})
		synctest.Wait()
		var got []string
		for l := range strings.Lines(w.text["alice /work/log"]) {
			if strings.HasPrefix(l, "0") {
				got = append(got, l[:17])
			}
		}
		want := []string{
			"000 (003.002.000)", "000 (003.004.000)", "012 (003.002.000)", "012 (003.004.000)",
			"013 (003.002.000)", "013 (003.004.000)", "009 (003.002.000)", "009 (003.004.000)",
		}
		if diff := cmp.Diff(want, got); diff != "" || len(j.queues.jobs)+len(j.backlogs.users) > 0 {
			t.Errorf("(-want +got):\n%s%v %v", diff, j.queues.jobs, j.backlogs.users)
		}
		// Where each task has a log of its own there is nothing to write into yet.
		w.text = map[string]string{}
		request.Attributes = []string{`UserLog=strcat("log.", ProcId)`}
		j.Notice(of, request, job.Notice{Kind: job.NoticeSubmitted, Tasks: job.AllTasks(of.Tasks)})
		synctest.Wait()
		if len(w.text) > 0 {
			t.Errorf("written: %v", w.text)
		}
		// Too much of one job is left out, and said.
		request.Attributes = []string{`UserLog="log"`}
		w.hang = true
		for range maxWaiting + 2 { // one is being written
			j.Notice(of, request, job.Notice{Kind: job.NoticeHeld, Tasks: job.AllTasks(of.Tasks)})
		}
		time.Sleep((maxWaiting + 2) * eventlog.Limit)
		synctest.Wait()
		if !strings.Contains(w.err.String(), "held is left out: 64 events wait to be written") {
			t.Errorf("our log says %q", w.err.String())
		}
	})
}
