package queue

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob/knobtest"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// gatedQueue is a queue of four managed slots, with the ads of a host, and many jobs
// that wait: of 50 users, who ask for 100 amounts of memory.
func gatedQueue(tb testing.TB, jobs int, policy string) *Queue {
	tb.Helper()
	config := &conf.Config{
		Hostname: "node", Queues: []conf.Queue{{Name: "all.q", Slots: 4, Batch: true}},
		Complex: []conf.Attribute{{Name: "h_vmem", Kind: conf.KindMemory, Relop: "<=", Requestable: conf.RequestableYes, Consumable: conf.ConsumableNo}},
		AnyHost: conf.Values{"h_vmem": {Text: "64G", Number: 64 << 30}},
	}
	root, err := spool.OpenRoot(tb.TempDir(), true)
	if err != nil {
		tb.Fatal(err)
	}
	store, err := job.Open(root, false, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	states, err := OpenStates(root, config.Queues, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	table := claim.NewTable(config.Queues, Holder)
	q := New(Options{
		Store: store, Claims: table, GIDs: NewGIDs(nil), Cores: NewCores(""), Boot: "boot", Config: config, States: states,
		Log: slog.New(slog.DiscardHandler), NeedLoad: func(bool) {}, Hold: func() string { return "" },
		Suspend: func(*job.Task, string) {}, Start: func(*job.Task, []*claim.Slot) {},
		Slots: Slots{JobAd: func(j *job.Job, _ *job.Task, names []string) *classad.Ad {
			terms := j.Terms()
			request := *terms.Needs.Request()
			request.Name, request.Account, request.Priority = terms.Name, terms.Account, terms.Priority
			info := ad.JobInfo{
				Number: j.Number, Task: 1, Host: "node", Owner: j.Owner, Group: j.Group, Submitted: j.Submitted, Request: &request,
				Status: ad.StatusIdle, Slots: 1, Only: names,
			}
			if ad.AboutResources(names) {
				info.Resources = ad.AskedIn(config, request.Hard)
			}
			return ad.Job(info)
		}, Look: func() {}},
	})
	err = table.Manage(claim.Options{Host: "node", Boot: time.Now(), Ad: func(in *claim.Info) *classad.Ad {
		info := ad.SlotInfo{
			ID: in.Slot.Number, Host: "node", Queue: in.Queue, Started: time.Now(), Now: in.Now,
			State: in.Machine.State().String(), Activity: in.Machine.Place().Activity.String(), Cpus: 1, Memory: 1 << 20, Disk: 1 << 30, TotalSlots: 4,
			Policy: []classad.Attr{{Name: "Start", Expr: in.Policy.Expr(slot.Start)}},
		}
		return ad.Slot(info)
	}})
	if err != nil {
		tb.Fatal(err)
	}
	setPolicy(tb, q, policy)
	for i := range jobs {
		_, _, err := store.Submit(&user.User{Name: fmt.Sprintf("user%d", i%50), UID: 1 + i%50}, 100, &api.SubmitRequest{
			Name: "j", Binary: true, Command: "true", Hard: []api.Resource{{Name: "h_vmem", Value: fmt.Sprintf("%dM", 100+i%100)}},
		}, job.Limits{}, time.Now())
		if err != nil {
			tb.Fatal(err)
		}
	}
	q.lookAgain()
	q.refresh()
	return q
}

func setPolicy(tb testing.TB, q *Queue, policy string) {
	tb.Helper()
	q.Policy(slot.NewPolicy(knobtest.Parse(tb, policy)), nil)
}

// refusals are policies that take none of the jobs.
var refusals = map[string]string{
	"owner":  `START = TARGET.Owner == "root"`,
	"memory": `START = TARGET.RequestMemory > 1000`,
	"time":   `START = time() < 0`,
	"number": `START = TARGET.ClusterId < 0`,
}

// BenchmarkRefused is a pass in which the slots refuse 10,000 jobs, after something
// has happened.
func BenchmarkRefused(b *testing.B) {
	q := gatedQueue(b, 10_000, "")
	for name, policy := range refusals {
		b.Run(name, func(b *testing.B) {
			setPolicy(b, q, policy)
			b.ReportAllocs()
			for b.Loop() {
				q.speak()
				if q.startOne() {
					b.Fatal("a job is started")
				}
			}
		})
	}
}

// BenchmarkRefusedFirst is the first such pass: nothing is remembered of it.
func BenchmarkRefusedFirst(b *testing.B) {
	q := gatedQueue(b, 10_000, "")
	for name, policy := range refusals {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				setPolicy(b, q, policy)
				if q.startOne() {
					b.Fatal("a job is started")
				}
			}
		})
	}
}
