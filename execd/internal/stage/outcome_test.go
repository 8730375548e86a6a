package stage

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// startedTask returns a task that runs, and a runner that knows it.
func startedTask(t *testing.T, req api.SubmitRequest, rerunQueue bool) (*Runner, *job.Store, *job.Task) {
	t.Helper()
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	store, err := job.Open(root, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	req.Name, req.Binary, req.Command = "j", true, "true"
	j, err := store.Submit(&user.User{Name: "alice", UID: 1001, Group: "users"}, &req, job.Limits{}, time.Unix(1000, 0))
	if err != nil {
		t.Fatal(err)
	}
	task, _ := store.Take(j, job.Start{Queue: "all.q"}, time.Unix(1001, 0))
	if err := store.Begin(task); err != nil {
		t.Fatal(err)
	}
	config := &conf.Config{Queues: []conf.Queue{{Name: "all.q", Rerun: rerunQueue, Priority: 3}}}
	return &Runner{Store: store, Host: "h", Config: func() *conf.Config { return config }, Log: slog.New(slog.DiscardHandler)}, store, task
}

func TestConclude(t *testing.T) {
	ran := func(exit, signal int) *spool.Usage {
		return &spool.Usage{ExitStatus: exit, Signal: signal, Start: 1001, End: 1005, Wallclock: 4, UTime: 1500 * time.Millisecond}
	}
	for _, tt := range []struct {
		name     string
		out      spool.Outcome
		rerun    api.Rerun
		queue    bool // rerun TRUE
		deleted  bool
		fate     job.Fate
		failed   int
		exit     int
		reason   string
		notInJob bool // the line has no start time
	}{
		{name: "exit 0", out: spool.Outcome{Usage: ran(0, 0)}, fate: job.FateDone},
		{name: "exit 3", out: spool.Outcome{Usage: ran(3, 0)}, fate: job.FateDone, exit: 3},
		{
			name: "signal", out: spool.Outcome{Failed: 100, Blame: spool.BlameJob, Reason: "job 1 died through signal SEGV (11)", Usage: ran(139, 11)},
			fate: job.FateDone, failed: 100, exit: 139, reason: "job 1 died through signal SEGV (11)",
		},
		{
			name: "deleted", out: spool.Outcome{Failed: 100, Blame: spool.BlameJob, Reason: "x", Usage: ran(137, 9)}, deleted: true,
			fate: job.FateDone, failed: 100, exit: 137, reason: "deleted by bob",
		},
		{name: "99", out: spool.Outcome{Failed: 25, Usage: ran(99, 0)}, fate: job.FateRequeue, failed: 25, exit: 99},
		{name: "99, deleted", out: spool.Outcome{Failed: 25, Usage: ran(99, 0)}, deleted: true, fate: job.FateDone, failed: 25, exit: 99, reason: "deleted by bob"},
		{name: "100", out: spool.Outcome{Failed: 30, Blame: spool.BlameJob, Reason: "r", Usage: ran(100, 0)}, fate: job.FateError, failed: 30, exit: 100, reason: "r"},
		{name: "no directory", out: spool.Outcome{Failed: 28, Blame: spool.BlameJob, Reason: "r"}, fate: job.FateError, failed: 28, reason: "r", notInJob: true},
		{name: "prolog", out: spool.Outcome{Failed: 8, Blame: spool.BlameQueue, Reason: "r"}, fate: job.FateError, failed: 8, reason: "r", notInJob: true},
		{name: "epilog after the job", out: spool.Outcome{Failed: 15, Blame: spool.BlameQueue, Reason: "r", Usage: ran(0, 0)}, fate: job.FateDone, failed: 15, reason: "r"},
		{name: "shepherd died", out: spool.ShepherdDied(true, nil), fate: job.FateDone, failed: 19, reason: "shepherd died before it wrote exit_status", notInJob: true},
		{name: "shepherd died, -r y", out: spool.ShepherdDied(true, nil), rerun: api.RerunYes, fate: job.FateRequeue, failed: 19, reason: "shepherd died before it wrote exit_status", notInJob: true},
		{name: "shepherd died, rerun TRUE", out: spool.ShepherdDied(true, nil), queue: true, fate: job.FateRequeue, failed: 19, reason: "shepherd died before it wrote exit_status", notInJob: true},
		{name: "shepherd died, rerun TRUE, -r n", out: spool.ShepherdDied(true, nil), queue: true, rerun: api.RerunNo, fate: job.FateDone, failed: 19, reason: "shepherd died before it wrote exit_status", notInJob: true},
		{name: "shepherd died after the job, -r y", out: spool.ShepherdDied(true, ran(0, 0)), rerun: api.RerunYes, fate: job.FateDone, failed: 19, reason: "shepherd died after the job had ended"},
		{name: "no shepherd", out: spool.ShepherdDied(false, nil), rerun: api.RerunYes, fate: job.FateError, failed: 1, reason: "shepherd died before it wrote its pid", notInJob: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, store, task := startedTask(t, api.SubmitRequest{Rerun: tt.rerun}, tt.queue)
			if tt.deleted {
				_, err := store.Delete(&api.DeleteRequest{Jobs: []string{"1"}}, job.Caller{UID: 1002, Name: "bob", Manager: true}, func(*job.Task) {})
				if err != nil {
					t.Fatal(err)
				}
			}
			e := r.conclude(task, &tt.out)
			if e.Fate != tt.fate || e.Failed != tt.failed || e.Exit != tt.exit || e.Reason != tt.reason {
				t.Errorf("conclude = fate %s, failed %d, exit %d, %q; want %s, %d, %d, %q",
					e.Fate, e.Failed, e.Exit, e.Reason, tt.fate, tt.failed, tt.exit, tt.reason)
			}
			rec, err := accounting.Parse([]byte(e.Accounting))
			if err != nil {
				t.Fatalf("accounting line %q: %v", e.Accounting, err)
			}
			start, cpu := int64(1001), 1.5
			if tt.notInJob {
				start, cpu = 0, 0
			}
			if rec.Failed != tt.failed || rec.ExitStatus != tt.exit || rec.StartTime != start || rec.CPU != cpu ||
				rec.SubmissionTime != 1000 || rec.Priority != 3 || rec.Owner != "alice" || rec.TaskNumber != 0 {
				t.Errorf("accounting record %+v", rec)
			}
		})
	}
}

// The list is what a reader sees first: each stage has a name, once, and the
// process side comes before the record of the end.
func TestStagesInOrder(t *testing.T) {
	var names []string
	for _, s := range stages {
		names = append(names, s.name)
	}
	if got, want := strings.Join(names, " "), "begin launch run reap release account notify clean"; got != want {
		t.Errorf("stages = %s; want %s", got, want)
	}
}
