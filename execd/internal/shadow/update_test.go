package shadow

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
)

// task returns the one that runs of a job.
func (h *home) task(j *job.Job) *job.Task {
	h.t.Helper()
	t, _ := h.store.RunningTask(j, 0)
	if t == nil {
		h.t.Fatalf("job %d does not run", j.Number)
	}
	return t
}

// kills returns how many runs the node was told to end.
func (h *home) kills() int {
	h.node.mu.Lock()
	defer h.node.mu.Unlock()
	return len(h.node.killed)
}

// runs returns how many it has begun.
func (h *home) runs() int {
	h.node.mu.Lock()
	defer h.node.mu.Unlock()
	return len(h.node.begun)
}

// held returns the reason for which a job waits in error.
func (h *home) held(j *job.Job) (reason string, why job.Why) {
	for _, w := range h.store.WaitingParts(j) {
		if w.Held && w.Why != nil {
			return w.Reason, *w.Why
		}
	}
	return "", why
}

const using = "RemoteUserCpu = %d.0\nImageSize = %d\nJobState = \"Running\"\n"

// update has the node tell of what a run uses.
func (h *home) update(cpu, size int) {
	h.event(api.ActivationEvent{Kind: api.ActivationUpdate, Ad: fmt.Sprintf(using, cpu, size)})
}

// REQ-FLOW-6, REQ-FLOW-11: the shadow looks at the policy of a job with each update, and by the
// time alone only where that decides.
func TestPolicy(t *testing.T) {
	for _, tt := range []struct {
		attributes []string
		update     bool
		wait       time.Duration
		reason     string
		why        job.Why
		deleted    string // the reason of its accounting line
	}{
		{attributes: []string{"PeriodicHold = ImageSize > 5", "PeriodicHoldSubCode=2"}, update: true, reason: "PeriodicHold is true: ImageSize > 5", why: job.Why{Code: 3, Subcode: 2}},
		{attributes: []string{"PeriodicHold = ImageSize > 7"}, update: true},
		{attributes: []string{`PeriodicRemove = JobState == "Running" && RemoteUserCpu > 1`, `PeriodicRemoveReason="slow"`}, update: true, deleted: "deleted by PeriodicRemove (slow)"},
		{attributes: []string{"AllowedJobDuration=100"}, wait: 101 * time.Second, reason: "AllowedJobDuration: it has run for 1m40s", why: job.Why{Code: 46}},
		{attributes: []string{"AllowedExecuteDuration=100"}, wait: 101 * time.Second, reason: "AllowedExecuteDuration: it has run for 1m40s", why: job.Why{Code: 47}},
		{attributes: []string{"TimerRemove=946684900"}, wait: 101 * time.Second, deleted: "deleted by TimerRemove (2000-01-01 00:01:40)"},
		{attributes: []string{"PeriodicHold = CurrentTime - 946684800 > 90"}, wait: 119 * time.Second},
		{attributes: []string{"PeriodicHold = CurrentTime - 946684800 > 90"}, wait: 121 * time.Second, reason: "PeriodicHold is true: CurrentTime - 946684800 > 90", why: job.Why{Code: 3}},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHome(t, 1)
			defer func() { h.stop() }()
			j := h.submit(api.SubmitRequest{Attributes: tt.attributes, Rerun: api.RerunNo})
			h.update(1, 4)
			if h.kills() > 0 {
				t.Fatalf("%q: killed too early", tt.attributes)
			}
			if tt.update {
				h.update(2, 6)
			}
			time.Sleep(tt.wait)
			synctest.Wait()
			reason, why := h.held(j)
			if reason != tt.reason || why != tt.why || (h.kills() > 0) != (tt.reason != "" || tt.deleted != "") {
				t.Errorf("%q: held for %q, %+v, killed %d;\nwant %q, %+v", tt.attributes, reason, why, h.kills(), tt.reason, tt.why)
			}
			l := h.lines()
			if tt.deleted != "" && (len(l) != 1 || !strings.HasPrefix(l[0].Reason, tt.deleted) || h.store.Get(j.Number) != nil) {
				t.Errorf("%q: %+v", tt.attributes, l)
			}
		})
	}
}

// The policy decides at the end of a run what becomes of its job, by what its host says of it.
func TestPolicyAtEnd(t *testing.T) {
	for _, tt := range []struct {
		attribute    string
		exit, failed int
		reason       string // of a hold
		runs         int
	}{
		{"OnExitHold = ExitCode == 3 && !ExitBySignal && RemoteUserCpu >= 0", 3, 30, "OnExitHold is true: " + api.Short("ExitCode == 3 && !ExitBySignal && RemoteUserCpu >= 0"), 1},
		{"OnExitHold = ExitCode == 3", 4, 0, "", 1},
		{"OnExitRemove = ExitCode == 0", 4, 25, "", 2},
		{"OnExitRemove = ExitCode == 0", 0, 0, "", 1},
		{"PeriodicHold = JobStatus == 4", 0, 30, "PeriodicHold is true: JobStatus == 4", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHome(t, 1)
			defer func() { h.stop() }()
			j := h.submit(api.SubmitRequest{Attributes: []string{tt.attribute}, Rerun: api.RerunNo})
			h.endAll(tt.exit)
			if l := h.lines(); len(l) != 1 || l[0].Failed != tt.failed || h.runs() != tt.runs {
				t.Errorf("%s: %d runs, %+v", tt.attribute, h.runs(), l)
			}
			if reason, _ := h.held(j); reason != tt.reason {
				t.Errorf("%s: held for %q, want %q", tt.attribute, reason, tt.reason)
			}
		})
	}
}

// REQ-FLOW-104: what else there is to be known of a run than what it uses.
//
// REQ-FLOW-23, REQ-FLOW-24, REQ-FLOW-103: each SHADOW_QUEUE_UPDATE_INTERVAL what has changed of
// a run is recorded, and nothing else; what cannot be is left to the next time.
func TestQueueUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		j := h.submit(api.SubmitRequest{})
		task := h.task(j)
		record := filepath.Join(h.dir, "jobs", fmt.Sprint(j.Number))
		written := func() (events []string) {
			t.Helper()
			data, err := os.ReadFile(record)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(data)) {
				if _, update, ok := strings.Cut(line, `"update":`); ok {
					events = append(events, strings.TrimRight(update, "}\n"))
				}
			}
			return events
		}
		h.event(api.ActivationEvent{Kind: api.ActivationSuspended})
		h.event(api.ActivationEvent{Kind: api.ActivationResumed})
		h.update(5, 100) // it does not say when the next comes
		time.Sleep(899 * time.Second)
		if synctest.Wait(); len(written()) != 0 || len(h.store.Updated(task)) != 0 {
			t.Fatalf("too early: %q", written())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if u := h.store.Updated(task); len(written()) != 1 || u["RemoteUserCpu"] != "5.0" || u["ImageSize"] != "100" || u["JobState"] != `"Running"` || u["NumJobStarts"] != "1" || u["NumJobReconnects"] != "0" || u["JobStartDate"] != "946684800" || u["TotalSuspensions"] != "1" {
			t.Fatalf("%q; %q", u, written())
		}
		time.Sleep(900 * time.Second)
		if synctest.Wait(); len(written()) != 1 {
			t.Errorf("nothing has changed, and %q is written", written())
		}
		h.update(6, 100)
		time.Sleep(900 * time.Second)
		if synctest.Wait(); len(written()) != 2 || written()[1] != `{"RemoteUserCpu":"6.0"` {
			t.Errorf("one attribute has changed, and %q is written", written())
		}
		// One that fails is dropped, and what it had to say comes with the next.
		if err := os.Rename(record, record+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(record, 0o700); err != nil {
			t.Fatal(err)
		}
		h.update(7, 100)
		time.Sleep(900 * time.Second)
		synctest.Wait()
		if err := os.Remove(record); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(record+".away", record); err != nil {
			t.Fatal(err)
		}
		time.Sleep(899 * time.Second)
		if synctest.Wait(); len(written()) != 2 {
			t.Errorf("it is tried again too early: %q", written())
		}
		h.update(7, 200)
		time.Sleep(time.Second)
		if synctest.Wait(); len(written()) != 3 || written()[2] != `{"ImageSize":"200","RemoteUserCpu":"7.0"` {
			t.Errorf("%q", written())
		}
		// The next execd knows it before the host has said anything.
		h.stop()
		h.begin()
		synctest.Wait()
		if u := h.s.Used()[h.task(h.store.Get(j.Number)).RunID()]; u.CPU != 7 || u.VMem != 200*1024 {
			t.Errorf("after a restart: %+v", u)
		}
		// That the host was away before it has said anything counts, too.
		h.change(func(n *node) { n.down = true })
		time.Sleep(4 * time.Minute)
		h.change(func(n *node) { n.down = false })
		time.Sleep(2 * time.Minute)
		h.update(8, 200)
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if u := h.store.Updated(h.task(h.store.Get(j.Number))); u["NumJobReconnects"] != "1" {
			t.Errorf("a host that answers again after a restart: %q", u)
		}
		if h.endAll(0) != 1 || len(h.lines()) != 1 {
			t.Errorf("%+v", h.lines())
		}
	})
}

// REQ-FLOW-25, REQ-FLOW-26: starts and reconnects wait for the interval, or are pushed at once
// if SHADOW_LAZY_QUEUE_UPDATE is false.
func TestLazyUpdate(t *testing.T) {
	for _, lazy := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHome(t, 1)
			h.stop()
			h.knobs = fmt.Sprintf("SHADOW_LAZY_QUEUE_UPDATE = %v\n", lazy)
			h.begin()
			defer func() { h.stop() }()
			task := h.task(h.submit(api.SubmitRequest{}))
			want := func(starts, reconnects string, n int) {
				t.Helper()
				if u := h.store.Updated(task); u["NumJobStarts"] != starts || u["NumJobReconnects"] != reconnects || len(u) != n {
					t.Errorf("lazy %v: %q, want %s and %s", lazy, u, starts, reconnects)
				}
			}
			if lazy {
				want("", "", 0)
			} else {
				want("1", "0", 2)
			}
			h.update(1, 1)
			h.change(func(n *node) { n.down = true })
			time.Sleep(4 * time.Minute)
			h.change(func(n *node) { n.down = false })
			time.Sleep(2 * time.Minute)
			if synctest.Wait(); lazy {
				want("", "", 0)
			} else {
				want("1", "1", 2)
			}
			time.Sleep(15 * time.Minute)
			synctest.Wait()
			if u := h.store.Updated(task); u["NumJobReconnects"] != "1" || u["RemoteUserCpu"] != "1.0" {
				t.Errorf("lazy %v: after the interval %q", lazy, u)
			}
		})
	}
}

// REQ-FLOW-8: TimerRemove is read again with each update of the record, and at once by a shadow
// that is told of the alteration.
func TestTimerRemove(t *testing.T) {
	for _, told := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHome(t, 1)
			defer func() { h.stop() }()
			j := h.submit(api.SubmitRequest{Attributes: []string{"TimerRemove=2000000000"}})
			hooks := job.AlterHooks{
				Check:   func(*job.Job, []api.Field, *api.SubmitRequest) ([]api.Line, bool, error) { return nil, false, nil },
				Changed: func(*job.Task) {}, Host: "login",
			}
			if told {
				hooks.Changed = h.s.Look
			}
			req := &api.AlterRequest{Jobs: []string{fmt.Sprint(j.Number)}, Fields: []api.Field{api.FieldAttributes}, To: api.SubmitRequest{Attributes: []string{"TimerRemove=946685000"}}}
			if _, err := h.store.Alter(t.Context(), req, job.Caller{Name: "anna", UID: 1001}, hooks); err != nil {
				t.Fatal(err)
			}
			first := 900 * time.Second // the update
			if told {
				first = 201 * time.Second // after TimerRemove
			}
			time.Sleep(first - time.Second)
			if synctest.Wait(); h.kills() != 0 {
				t.Fatal("it was read too early")
			}
			time.Sleep(time.Second)
			if synctest.Wait(); h.kills() != 1 || !strings.HasPrefix(h.lines()[0].Reason, "deleted by TimerRemove (2000-01-01 00:03:20)") {
				t.Errorf("told %v: killed %d; %+v", told, h.kills(), h.lines())
			}
		})
	}
}

// REQ-FLOW-28, REQ-FLOW-29: an end that cannot be recorded is tried again five times, 30 seconds
// apart; then the job is to run again, with code 107, unless it may not.
func TestEndNotRecorded(t *testing.T) {
	for _, tt := range []struct {
		rerun  api.Rerun
		off    time.Duration
		failed []int
		runs   int
	}{
		{api.RerunYes, 149 * time.Second, []int{0}, 1},
		{api.RerunYes, 151 * time.Second, []int{25}, 2},
		{api.RerunNo, time.Hour, []int{0}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHome(t, 1)
			defer func() { h.stop() }()
			j := h.submit(api.SubmitRequest{Rerun: tt.rerun})
			book := filepath.Join(h.dir, "accounting")
			if err := os.Mkdir(book, 0o700); err != nil {
				t.Fatal(err)
			}
			h.endAll(0)
			time.Sleep(tt.off)
			synctest.Wait()
			if h.store.Get(j.Number) == nil || h.runs() != 1 {
				t.Fatalf("it is over, or runs again: %d runs", h.runs())
			}
			if err := os.Remove(book); err != nil {
				t.Fatal(err)
			}
			time.Sleep(31 * time.Second)
			synctest.Wait()
			l := h.lines()
			if len(l) != 1 || l[0].Failed != tt.failed[0] || l[0].CPU != 4 || h.runs() != tt.runs {
				t.Fatalf("off for %v: %d runs, %+v", tt.off, h.runs(), l)
			}
			if tt.runs > 1 && !strings.Contains(l[0].Reason, "(107)") {
				t.Errorf("%q", l[0].Reason)
			}
			if tt.runs > 1 && (h.endAll(0) != 1 || len(h.lines()) != 2) || h.store.Get(j.Number) != nil {
				t.Errorf("%+v", h.lines())
			}
		})
	}
}

// REQ-FLOW-102: a host that says within what time it tells of a run, and has not in three times
// that, is connected to anew; not while it tells, and not when the run is over.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		task := h.task(h.submit(api.SubmitRequest{}))
		for range 5 {
			time.Sleep(800 * time.Second)
			h.event(api.ActivationEvent{Kind: api.ActivationUpdate, Ad: fmt.Sprintf(using, 1, 1) + "JobInfoMaxInterval = 300\n"})
		}
		reconnects := func() string {
			time.Sleep(900 * time.Second) // for the record, and no longer than it may be quiet
			synctest.Wait()
			return h.store.Updated(task)["NumJobReconnects"]
		}
		if n := reconnects(); n != "0" {
			t.Fatalf("%s reconnects of one that tells", n)
		}
		time.Sleep(75 * time.Second)
		h.update(2, 2) // it is heard after it as before
		if u := h.s.Used()[task.RunID()]; u.CPU != 2 {
			t.Errorf("%+v", u)
		}
		if n := reconnects(); n != "1" {
			t.Errorf("%s reconnects of one that was quiet, want 1", n)
		}
	})
}

// REQ-FLOW-14: an older update never overwrites a newer one, unless its host may have begun to
// count anew.
func TestOlderUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		task := h.task(h.submit(api.SubmitRequest{}))
		h.update(7, 1)
		sandbox := task.Start.Remote.Sandbox
		late := api.ActivationEvent{Sandbox: api.SandboxID(sandbox), Seq: 1, Kind: api.ActivationSuspended, Ad: fmt.Sprintf(using, 3, 1)}
		h.s.mu.Lock()
		n := h.s.hosts.get("node")
		h.s.mu.Unlock()
		hear := func() float64 {
			n.take(nil, &api.FollowReply{Events: []api.ActivationEvent{late}})
			synctest.Wait()
			return h.s.Used()[task.RunID()].CPU
		}
		if used := hear(); used != 7 {
			t.Errorf("%v s are used by an older update", used)
		}
		h.change(func(n *node) { n.down = true })
		time.Sleep(5 * time.Minute)
		h.change(func(n *node) { n.down = false })
		time.Sleep(time.Minute)
		if used := hear(); used != 3 {
			t.Errorf("%v s are used by one of a host that answers again", used)
		}
	})
}

// The end of a run is acknowledged when it is recorded, also if its host has not answered meanwhile.
func TestEndAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t, 1)
		defer func() { h.stop() }()
		h.submit(api.SubmitRequest{})
		book := filepath.Join(h.dir, "accounting")
		if err := os.Mkdir(book, 0o700); err != nil {
			t.Fatal(err)
		}
		h.endAll(0)
		h.change(func(n *node) { n.down = true })
		time.Sleep(3 * time.Minute)
		h.change(func(n *node) { n.down = false })
		time.Sleep(time.Minute)
		if err := os.Remove(book); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		for _, e := range h.node.events {
			if e.Kind != "" {
				t.Errorf("%s is not acknowledged", e.Kind)
			}
		}
	})
}
