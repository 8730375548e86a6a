package stage

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/mail"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/usage"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/test/harness"
)

// nobodys is a group that no process of the host has. Who looks by it for what a run has left need not wait for
// processes of others that are in the middle of exec, which no clock of a test knows of.
const nobodys = 2_000_000_000

// startedTask returns a task that runs, and a runner that knows it.
func startedTask(t *testing.T, req api.SubmitRequest, rerunQueue bool) (*Runner, *queue.States, *job.Task) {
	t.Helper()
	root, err := spool.OpenRoot(harness.Memory(t), true)
	if err != nil {
		t.Fatal(err)
	}
	store, err := job.Open(root, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	req.Name, req.Binary, req.Command = "j", true, "true"
	j, _, err := store.Submit(&user.User{Name: "alice", UID: 1001, Group: "users"}, 100, &req, job.Limits{}, time.Unix(1000, 0))
	if err != nil {
		t.Fatal(err)
	}
	task := store.Take(j, job.Start{Queue: "all.q", AddGID: nobodys}, time.Unix(1001, 0))
	if err := store.Begin(task); err != nil {
		t.Fatal(err)
	}
	config := &conf.Config{Queues: []conf.Queue{{Name: "all.q", Rerun: rerunQueue, Priority: 3}}}
	states, err := queue.OpenStates(root, config.Queues, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	return &Runner{Host: base.Host{
		Mail:  mail.New(func() *conf.Config { return config }, "h", log),
		Store: store, Launcher: launch.New(launch.Runs{Root: root}), Name: "h", Config: func() *conf.Config { return config }, Log: log,
		Queue:  queue.New(queue.Options{Store: store, Config: config, States: states, Claims: claim.NewTable(config.Queues, queue.Holder), Log: log}),
		SlotOf: func(*job.Task, bool) (slot.ID, *classad.Ad) { return slot.ID{}, nil },
	}}, states, task
}

// REQ-EXIT-43: how a run has ended says what becomes of the job.
func TestConclude(t *testing.T) {
	ran := func(exit, signal int) *spool.Usage {
		return &spool.Usage{ExitStatus: exit, Signal: signal, Start: 1001, End: 1005, Wallclock: 4, UTime: 1500 * time.Millisecond}
	}
	asked := func(signal int, u *spool.Usage) *spool.Usage {
		u.Ask(signal)
		return u
	}
	for _, tt := range []struct {
		name     string
		out      spool.Outcome
		rerun    api.Rerun
		queue    bool // rerun TRUE
		deleted  bool
		evicted  *job.Want
		exceeded string // the limit for which execd wanted it killed
		ckpt     bool   // the next run goes on from a checkpoint
		fate     job.Fate
		failed   int
		exit     int
		reason   string
		notInJob bool // the line has no start time
		faulty   bool // the queue is in error
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
		{name: "prolog", out: spool.Outcome{Failed: 8, Blame: spool.BlameQueue, Reason: "r"}, fate: job.FateRequeue, faulty: true, failed: 8, reason: "r", notInJob: true},
		{name: "epilog after the job", out: spool.Outcome{Failed: 15, Blame: spool.BlameQueue, Reason: "r", Usage: ran(0, 0)}, fate: job.FateDone, failed: 15, reason: "r"},
		{name: "prolog deleted", out: spool.Outcome{}, deleted: true, fate: job.FateDone, failed: 100, reason: "deleted by bob before the job started", notInJob: true},
		{
			name: "prolog deleted, and it failed of that", out: spool.Outcome{Failed: 8, Blame: spool.BlameQueue, Reason: "exit_status of prolog = 143"}, deleted: true,
			fate: job.FateDone, failed: 8, reason: "deleted by bob before the job started", notInJob: true,
		},
		{
			name: "prolog deleted, and the epilog fails", out: spool.Outcome{Failed: 15, Blame: spool.BlameQueue, Reason: "r"}, deleted: true,
			fate: job.FateDone, failed: 15, reason: "deleted by bob before the job started", notInJob: true,
		},
		{name: "cancelled by nobody", out: spool.Outcome{}, fate: job.FateDone, failed: 100, reason: "ended before the job started", notInJob: true},
		{name: "cancelled, and why", out: spool.Outcome{Reason: "r"}, fate: job.FateDone, failed: 100, reason: "r", notInJob: true},
		{name: "prolog, -r y", out: spool.Outcome{Failed: 8, Blame: spool.BlameQueue, Reason: "r"}, rerun: api.RerunYes, fate: job.FateRequeue, faulty: true, failed: 8, reason: "r", notInJob: true},
		{name: "prolog exits 99", out: spool.Outcome{Failed: 25, Reason: "exit_status of prolog = 99"}, fate: job.FateRequeue, failed: 25, reason: "exit_status of prolog = 99", notInJob: true},
		{
			name: "prolog exits 100", out: spool.Outcome{Failed: 30, Blame: spool.BlameJob, Reason: "exit_status of prolog = 100"},
			fate: job.FateError, failed: 30, reason: "exit_status of prolog = 100", notInJob: true,
		},
		{name: "before the prolog", out: spool.Outcome{Failed: 7, Blame: spool.BlameHost, Reason: "r"}, fate: job.FateRequeue, failed: 7, reason: "r", notInJob: true},
		{name: "a config that makes no sense", out: spool.Outcome{Failed: 5, Blame: spool.BlameQueue, Reason: "r"}, fate: job.FateError, failed: 5, reason: "r", notInJob: true},
		{name: "pe_start", out: spool.Outcome{Failed: 10, Blame: spool.BlameQueue, Reason: "r"}, fate: job.FateRequeue, faulty: true, failed: 10, reason: "r", notInJob: true},
		{name: "before pe_stop", out: spool.Outcome{Failed: 12, Blame: spool.BlameSystem, Reason: "r", Usage: ran(3, 0)}, rerun: api.RerunYes, fate: job.FateDone, failed: 12, exit: 3, reason: "r"},
		{name: "pe_stop", out: spool.Outcome{Failed: 13, Blame: spool.BlameQueue, Reason: "r", Usage: ran(3, 0)}, rerun: api.RerunYes, fate: job.FateDone, failed: 13, exit: 3, reason: "r"},
		{name: "before the epilog", out: spool.Outcome{Failed: 14, Blame: spool.BlameSystem, Reason: "r", Usage: ran(3, 0)}, queue: true, fate: job.FateDone, failed: 14, exit: 3, reason: "r"},
		{name: "epilog, rerun TRUE", out: spool.Outcome{Failed: 15, Blame: spool.BlameQueue, Reason: "r", Usage: ran(3, 0)}, queue: true, fate: job.FateDone, failed: 15, exit: 3, reason: "r"},
		{name: "epilog exits 99", out: spool.Outcome{Failed: 25, Reason: "r", Usage: ran(3, 0)}, fate: job.FateRequeue, failed: 25, exit: 3, reason: "r"},
		{name: "epilog without a job", out: spool.Outcome{Failed: 15, Blame: spool.BlameQueue, Reason: "r"}, fate: job.FateError, failed: 15, reason: "r", notInJob: true},
		{name: "migrates", out: spool.Outcome{Failed: 24, Usage: ran(137, 9)}, rerun: api.RerunNo, fate: job.FateRequeue, failed: 24, exit: 137, reason: "killed by signal KILL (9)"},
		{
			name: "migrates with a checkpoint", out: spool.Outcome{Failed: 24, Checkpoint: true, Usage: ran(0, 0)},
			fate: job.FateRequeue, ckpt: true, failed: 24,
		},
		{name: "migrates in the prolog", out: spool.Outcome{Failed: 24}, fate: job.FateRequeue, failed: 24, notInJob: true},
		{
			name: "migrates, deleted", out: spool.Outcome{Failed: 24, Checkpoint: true, Usage: ran(137, 9)}, deleted: true,
			fate: job.FateDone, failed: 24, exit: 137, reason: "deleted by bob",
		},
		{
			name: "used up its processor time", out: spool.Outcome{Failed: 100, Blame: spool.BlameJob, Reason: "job used up its processor time: h_cpu 2 s", Usage: ran(137, 9)},
			fate: job.FateDone, failed: 100, exit: 137, reason: "job used up its processor time: h_cpu 2 s",
		},
		{
			name: "h_rt", out: spool.Outcome{Failed: 37, Blame: spool.BlameJob, Reason: "h_rt 2 s", Usage: ran(137, 9)}, rerun: api.RerunYes,
			fate: job.FateDone, failed: 37, exit: 137, reason: "h_rt 2 s",
		},
		{
			name: "h_rt, and deleted", out: spool.Outcome{Failed: 37, Blame: spool.BlameJob, Reason: "h_rt 2 s", Usage: ran(137, 9)}, deleted: true,
			fate: job.FateDone, failed: 37, exit: 137, reason: "h_rt 2 s",
		},
		{
			name: "h_rt of a foreign shepherd", out: spool.Outcome{Failed: 100, Blame: spool.BlameJob, Reason: "died", Usage: ran(137, 9)}, exceeded: "h_rt 2 s",
			fate: job.FateDone, failed: 37, exit: 137, reason: "h_rt 2 s",
		},
		{
			name: "h_rt of a foreign shepherd, then deleted", out: spool.Outcome{Failed: 100, Blame: spool.BlameJob, Reason: "died", Usage: ran(137, 9)},
			exceeded: "h_rt 2 s", deleted: true, fate: job.FateDone, failed: 37, exit: 137, reason: "h_rt 2 s",
		},
		{
			name: "h_rt of a foreign shepherd, warned before", out: spool.Outcome{Usage: ran(0, 0)}, exceeded: "h_rt 2 s",
			fate: job.FateDone, failed: 37, reason: "h_rt 2 s",
		},
		{
			name: "h_rt of a foreign shepherd, which died", out: spool.ShepherdDied(true, nil), rerun: api.RerunYes, exceeded: "h_rt 2 s",
			fate: job.FateDone, failed: 19, reason: "shepherd died before it wrote exit_status", notInJob: true,
		},
		{name: "shepherd died, deleted", out: spool.ShepherdDied(true, nil), deleted: true, fate: job.FateDone, failed: 19, reason: "deleted by bob", notInJob: true},
		{name: "shepherd died", out: spool.ShepherdDied(true, nil), fate: job.FateDone, failed: 19, reason: "shepherd died before it wrote exit_status", notInJob: true},
		{name: "shepherd died, -r y", out: spool.ShepherdDied(true, nil), rerun: api.RerunYes, fate: job.FateRequeue, failed: 19, reason: "shepherd died before it wrote exit_status", notInJob: true},
		{name: "shepherd died, rerun TRUE", out: spool.ShepherdDied(true, nil), queue: true, fate: job.FateRequeue, failed: 19, reason: "shepherd died before it wrote exit_status", notInJob: true},
		{name: "shepherd died, rerun TRUE, -r n", out: spool.ShepherdDied(true, nil), queue: true, rerun: api.RerunNo, fate: job.FateDone, failed: 19, reason: "shepherd died before it wrote exit_status", notInJob: true},
		{name: "shepherd died after the job, -r y", out: spool.ShepherdDied(true, ran(0, 0)), rerun: api.RerunYes, fate: job.FateDone, failed: 19, reason: "shepherd died after the job had ended"},
		{
			name: "leaves its slot", out: spool.Outcome{Failed: 100, Blame: spool.BlameJob, Usage: asked(15, ran(143, 15))}, evicted: &job.Want{Requeue: true, Slot: true},
			fate: job.FateRequeue, failed: 25, exit: 143, reason: "rescheduled by slot1",
		},
		{
			name: "leaves its slot in good order", out: spool.Outcome{Usage: asked(15, ran(0, 0))}, evicted: &job.Want{Requeue: true, Slot: true},
			fate: job.FateRequeue, failed: 25, reason: "rescheduled by slot1",
		},
		{
			name: "had ended when it was to leave", out: spool.Outcome{Usage: asked(0, ran(0, 0))}, evicted: &job.Want{Requeue: true, Slot: true},
			fate: job.FateDone,
		},
		{
			name: "had crashed when it was to leave", out: spool.Outcome{Failed: 100, Blame: spool.BlameJob, Reason: "r", Usage: asked(0, ran(139, 11))},
			evicted: &job.Want{Requeue: true, Slot: true}, fate: job.FateDone, failed: 100, exit: 139, reason: "r",
		},
		{
			name: "had asked to run again when it was to leave", out: spool.Outcome{Failed: 25, Reason: "r", Usage: asked(0, ran(99, 0))},
			evicted: &job.Want{Requeue: true, Slot: true}, fate: job.FateRequeue, failed: 25, exit: 99, reason: "r",
		},
		{
			name: "leaves its slot, as a foreign shepherd tells", out: spool.Outcome{Failed: 100, Blame: spool.BlameJob, Usage: ran(143, 15)},
			evicted: &job.Want{Requeue: true, Slot: true}, fate: job.FateRequeue, failed: 25, exit: 143, reason: "rescheduled by slot1",
		},
		{
			name: "has exited, as a foreign shepherd tells", out: spool.Outcome{Usage: ran(0, 0)},
			evicted: &job.Want{Requeue: true, Slot: true}, fate: job.FateDone,
		},
		{
			name: "leaves its slot before it began", out: spool.Outcome{}, evicted: &job.Want{Requeue: true, Slot: true},
			fate: job.FateRequeue, failed: 25, reason: "rescheduled by slot1", notInJob: true,
		},
		{
			name: "leaves its slot and may not run again", out: spool.Outcome{Failed: 100, Blame: spool.BlameJob, Usage: asked(9, ran(137, 9))},
			evicted: &job.Want{Slot: true}, fate: job.FateDone, failed: 100, exit: 137, reason: "evicted by slot1",
		},
		{
			name: "had crashed when it was to leave for good", out: spool.Outcome{Failed: 100, Blame: spool.BlameJob, Reason: "r", Usage: asked(0, ran(139, 11))},
			evicted: &job.Want{Slot: true}, fate: job.FateDone, failed: 100, exit: 139, reason: "r",
		},
		{
			name: "its lease is over", out: spool.Outcome{Failed: 100, Blame: spool.BlameJob, Usage: asked(9, ran(137, 9))},
			evicted: &job.Want{Slot: true, Code: int(slot.ReasonReconnectFailed)}, fate: job.FateDone, failed: 112, exit: 137, reason: spool.LeaseOver,
		},
		{
			name: "its lease is over, and it ends in good order", out: spool.Outcome{Usage: asked(9, ran(0, 0))},
			evicted: &job.Want{Slot: true, Code: int(slot.ReasonReconnectFailed)}, fate: job.FateDone, failed: 112, reason: spool.LeaseOver,
		},
		{
			name: "it has ended before its lease", out: spool.Outcome{Usage: asked(0, ran(3, 0))},
			evicted: &job.Want{Slot: true, Code: int(slot.ReasonReconnectFailed)}, fate: job.FateDone, exit: 3,
		},
		{
			name: "its lease is over before it began", out: spool.Outcome{},
			evicted: &job.Want{Slot: true, Code: int(slot.ReasonReconnectFailed)}, fate: job.FateDone, failed: 112, reason: spool.LeaseOver, notInJob: true,
		},
		{
			name: "its shepherd has seen that its lease is over", out: spool.Outcome{Failed: 112, Reason: spool.LeaseOver, Usage: asked(9, ran(137, 9))}, rerun: api.RerunYes,
			fate: job.FateDone, failed: 112, exit: 137, reason: spool.LeaseOver,
		},
		{
			name: "so has execd, after it", out: spool.Outcome{Failed: 112, Reason: spool.LeaseOver, Usage: asked(9, ran(137, 9))},
			evicted: &job.Want{Slot: true, Code: int(slot.ReasonReconnectFailed)}, fate: job.FateDone, failed: 112, exit: 137, reason: spool.LeaseOver,
		},
		{name: "no shepherd", out: spool.ShepherdDied(false, nil), rerun: api.RerunYes, fate: job.FateRequeue, faulty: true, failed: 1, reason: "shepherd died before it wrote its pid", notInJob: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, states, task := startedTask(t, api.SubmitRequest{Rerun: tt.rerun}, tt.queue)
			if tt.exceeded != "" {
				if err := r.Store.Exceed(task, tt.exceeded); err != nil {
					t.Fatal(err)
				}
			}
			if tt.deleted {
				_, err := r.Store.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"1"}}, job.Caller{UID: 1002, Name: "bob", Manager: true}, func(*job.Task) {})
				if err != nil {
					t.Fatal(err)
				}
			}
			if tt.evicted != nil {
				tt.evicted.Signal, tt.evicted.By = 15, "slot1"
				if news, err := r.Store.Evict(task, *tt.evicted); err != nil || !news {
					t.Fatalf("Evict = %v, %v", news, err)
				}
			}
			l := r.newLife(task)
			l.end.Outcome, l.end.Total = &tt.out, usage.Final(api.Usage{}, tt.out.Usage)
			e := l.end.Conclude(&tt.out)
			if e.Fate != tt.fate || e.Failed != tt.failed || e.Exit != tt.exit || e.Reason != tt.reason || e.Checkpoint != tt.ckpt {
				t.Errorf("conclude = fate %s, failed %d, exit %d, %q, checkpoint %v; want %s, %d, %d, %q, %v",
					e.Fate, e.Failed, e.Exit, e.Reason, e.Checkpoint, tt.fate, tt.failed, tt.exit, tt.reason, tt.ckpt)
			}
			letters, reasons := states.Letters("all.q", "h")
			if (letters == "E") != tt.faulty {
				t.Errorf("the queue is in states %q; want an error: %v", letters, tt.faulty)
			}
			if tt.faulty && !strings.HasPrefix(reasons[0], "queue all.q marked QERROR as result of job 1's failure at host h\nin error since ") {
				t.Errorf("the queue is in error because of %q", reasons[0])
			}
			l.end.End = e
			rec, err := accounting.Parse([]byte(l.end.Line()))
			if err != nil {
				t.Fatalf("accounting line: %v", err)
			}
			start, cpu := int64(1001), 1.5
			if tt.notInJob {
				start, cpu = 0, 0
			}
			if rec.Failed != tt.failed || rec.ExitStatus != tt.exit || rec.StartTime != start || rec.CPU != cpu ||
				rec.SubmissionTime != 1000 || rec.Priority != 3 || rec.Owner != "alice" || rec.TaskNumber != 0 || rec.Reason != tt.reason {
				t.Errorf("accounting record %+v", rec)
			}
			task.Job.Origin, r.Sources = &job.Origin{Source: "fetch"}, source.Sources{"fetch": abandoned{told: new(int)}}
			if e := l.end.Conclude(&tt.out); e.Fate != job.FateDone {
				t.Errorf("the fate of a job that goes back to no queue is %s; want it over", e.Fate)
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
	if got, want := strings.Join(names, " "), "begin prepare launch run reap exit"; got != want {
		t.Errorf("stages = %s; want %s", got, want)
	}
}
