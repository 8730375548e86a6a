package sandbox

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/sandbox/order"
)

// REQ-XFER-15, REQ-XFER-17, REQ-XFER-36, REQ-XFER-37, REQ-XFER-106: what leaves is known
// from the end of its run until its sandbox is removed, and travels until it has arrived or
// somebody has to look. It is known again after a restart, from the records.
func TestLeaving(t *testing.T) {
	r := newRig(t)
	told := 0
	r.Changed = func() { told++ }
	const claim = "<h>#b00t#7#..."
	task := r.planned(claim)
	r.must(r.make(task.Start.Sandbox, r.owner))
	r.must(r.Store.Begin(task))
	want := job.Leaving{Task: "1.1", ID: task.Start.Sandbox.ID, Claim: claim, Queue: "all.q", Slot: 1, Travels: true}
	is := func(what string) {
		t.Helper()
		if diff := cmp.Diff([]job.Leaving{want}, r.Leaving()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if n, kib := r.Pending(); n != 1 || kib != want.KiB {
			t.Errorf("%s: %d runs, %d KiB", what, n, kib)
		}
	}
	if list := r.Leaving(); list != nil {
		t.Errorf("%+v leaves before anything is over", list)
	}
	r.Freeze(task, 1)
	r.Freeze(task, 1)
	is("over")
	for _, p := range []struct{ total, kib int64 }{{1025, 2}, {0, 2}, {-5, 2}, {1 << 62, mostKiB}, {2048, 2}} {
		r.measured(task, order.Progress{Total: p.total})
		want.KiB = p.kib
		is("measured")
	}
	if told != 1 {
		t.Errorf("a size that changes all the time was told %d times at once", told)
	}
	r.must(r.Store.Over(task, &job.End{Fate: job.FateDone, Accounting: "x"}))
	r.must(r.Store.Stick(task, job.Stuck{Text: "gone", Since: time.Now(), KiB: 2}))
	want.Travels = false
	is("stuck")

	r.out = outbox{} // execd is another one
	r.Refreeze()
	is("after a restart")
	r.must(r.Store.Unstick(task))
	want.Travels = true
	is("tried again")
	r.Arrived(task)
	want.Travels = false
	is("arrived")
	r.Remove(task)
	if list := r.Leaving(); list != nil || told != 2 {
		t.Errorf("it is removed, and %+v leaves; told %d times", list, told)
	}
	r.Arrived(task)
	r.measured(task, order.Progress{Total: 1})
}

// REQ-XFER-7, REQ-XFER-101: the site, or the job, says that slots are kept until the output
// has arrived.
func TestAsync(t *testing.T) {
	for _, tt := range []struct {
		knobs string
		attrs []string
		work  string
		want  bool
	}{
		{"", nil, "", true},
		{"ASYNC_STAGEOUT = false", nil, "", false},
		{"ASYNC_STAGEOUT = false", []string{"AsyncStageout=true"}, "", false},
		{"MAX_OUTPUT_TRANSFERS_PER_CLAIM = 0", nil, "", false},
		{"", []string{"AsyncStageout=false"}, "", false},
		{"", []string{"asyncstageout = 1 > 2"}, "", false},
		{"", []string{"AsyncStageout=true"}, "", true},
		{"", []string{`AsyncStageout="false"`, "Other=false"}, "", true},
		{"", nil, "AsyncStageout = false\n", false},
		{"", nil, "Other = false\n", true},
	} {
		r := newRig(t)
		config := configured(tt.knobs)
		r.Config = func() *conf.Config { return config }
		req := &api.SubmitRequest{Name: "j", Binary: true, Command: "true", Sandbox: api.SandboxYes, Attributes: tt.attrs}
		if tt.work != "" {
			req.Work = &api.Work{Ad: tt.work}
		}
		j, _, err := r.Store.Submit(r.owner, r.owner.GID, req, job.Limits{}, time.Now())
		r.must(err)
		if got := r.Async(r.Store.Take(j, job.Start{Queue: "all.q"}, time.Now())); got != tt.want {
			t.Errorf("%q, %q, %q: %t", tt.knobs, tt.attrs, tt.work, got)
		}
	}
}
