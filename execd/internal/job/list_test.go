package job

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/execd/internal/schedule"
)

// everybody looks at everybody's.
var everybody = []string{"*"}

// brief writes lines as "job state tasks".
func brief(lists ...[]api.JobStatus) string {
	var words []string
	for _, list := range lists {
		for _, l := range list {
			words = append(words, strings.TrimSpace(fmt.Sprintf("%d %s %s", l.Job, l.State, l.Tasks)))
		}
	}
	return strings.Join(words, "; ")
}

// runNext has the next task of a job run to its end.
func runNext(t *testing.T, s *Store, j *Job, start Start) {
	t.Helper()
	task := s.Take(j, start, time.Now())
	if task == nil {
		t.Fatalf("no task of job %d may start", j.Number)
	}
	if err := s.Begin(task); err != nil {
		t.Fatal(err)
	}
	end := &End{Fate: FateDone, Accounting: "x"}
	if err := s.End([]Ending{{Task: task, End: end, Time: time.Now()}})[0]; err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(task); err != nil {
		t.Fatal(err)
	}
}

func TestListMore(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	first := submitArray(t, s, 1)
	at := time.Unix(1000, 0)
	request := api.SubmitRequest{
		Name: "rich", Account: "acc", Script: []byte("true\n"), Priority: -5, Reserve: true, Checkpoint: "ck", Binding: "linear:1",
		Hard: []api.Resource{{Name: "x", Value: "1"}}, Soft: []api.Resource{{Name: "y", Value: "2"}}, Queues: []string{"all.q"},
		SoftQueues: []string{"b.q"}, MasterQueues: []string{"c.q"}, PE: "mpi*", Slots: []api.Slots{{Min: 2, Max: 4, Step: 1}},
		HoldJobs: []string{"a", "99"}, HoldArray: nil,
	}
	rich, _, err := s.Submit(alice, alice.GID, &request, Limits{}, at)
	if err != nil {
		t.Fatal(err)
	}
	want := api.JobMore{
		Submitted: at, Priority: -5, Account: "acc", Department: Department, Reserve: true, Checkpoint: "ck", Binding: "linear:1",
		Hard: []api.Requested{{Resource: request.Hard[0]}}, Soft: request.Soft, Queues: request.Queues,
		SoftQueues: request.SoftQueues, MasterQueues: request.MasterQueues, PE: "mpi*", Slots: request.Slots,
		HoldJobs: request.HoldJobs, WaitsFor: []int{first.Number},
	}
	ask := &api.JobsRequest{Users: everybody, More: true}
	l := s.List(ask, Caller{}, "h", math.MaxInt)
	if diff := cmp.Diff(&want, l.Waiting[1].More); diff != "" {
		t.Errorf("it waits (-want +got):\n%s", diff)
	}

	// A new execd knows the same, and of the one that runs what it holds.
	runNext(t, s, first, Start{Queue: "all.q"})
	start := Start{
		Queue: "all.q", Priority: 0.5, Parts: schedule.Parts{Priority: 0.1, Urgency: 0.2, Share: 0.3, Resources: 10, Waiting: 2},
		Grant: &schedule.Grant{PE: "mpi2", Queues: []schedule.QueueSlots{{Queue: "all.q", Slots: 1}, {Queue: "b.q", Slots: 2}}},
	}
	task := s.Take(rich, start, at)
	if task == nil {
		t.Fatal("it cannot start")
	}
	if err := s.Begin(task); err != nil {
		t.Fatal(err)
	}
	want.WaitsFor, want.Started, want.GrantedPE = nil, at, "mpi2"
	want.Granted = []api.Granted{{Queue: "all.q@h", Slots: 1}, {Queue: "b.q@h", Slots: 2}}
	want.NormalPriority, want.NormalUrgency, want.NormalTickets = 0.1, 0.2, 0.3
	want.Urgency = api.Urgency{Total: 12, Resources: 10, Waiting: 2}
	again, _ := openStore(t, s.root)
	for name, store := range map[string]*Store{"at once": s, "after a restart": again} {
		l := store.List(ask, Caller{}, "h", math.MaxInt)
		if len(l.Running) != 1 || l.Running[0].Priority != 0.5 || l.Running[0].Slots != 3 {
			t.Fatalf("%s: %+v runs", name, l.Running)
		}
		if diff := cmp.Diff(&want, l.Running[0].More); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if l := s.List(&api.JobsRequest{Users: everybody}, Caller{}, "h", math.MaxInt); l.Running[0].More != nil {
		t.Errorf("nobody asked for %+v", l.Running[0].More)
	}
}

func TestFinished(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	s.Keep(3, math.MaxInt)
	list := func() string {
		return brief(s.List(&api.JobsRequest{Users: everybody, States: "z", Finished: true, More: true}, Caller{}, "h", math.MaxInt).Finished)
	}
	check := func(want string) {
		t.Helper()
		if got := list(); got != want {
			t.Errorf("finished: %q; want %q", got, want)
		}
	}
	check("")
	array := submitArray(t, s, 5)
	runNext(t, s, array, Start{Queue: "q", Priority: 0.7})
	check("1 z 1")
	runNext(t, s, array, Start{Queue: "q"})
	runNext(t, s, array, Start{Queue: "q"})
	check("1 z 1-3:1")
	if got := brief(s.List(&api.JobsRequest{Users: everybody, Finished: true}, Caller{}, "h", math.MaxInt).Waiting); got != "1 qw 4,5" {
		t.Errorf("waiting: %q", got)
	}
	// A job that was deleted has finished too.
	if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"1"}}, Caller{UID: alice.UID, Name: "alice"}, func(*Task) {}); err != nil {
		t.Fatal(err)
	}
	check("1 z 1-5:1")
	for range 3 {
		j := submitArray(t, s, 1)
		if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{strconv.Itoa(j.Number)}}, Caller{UID: alice.UID, Name: "alice"}, func(*Task) {}); err != nil {
			t.Fatal(err)
		}
	}
	check("2 z 1; 3 z 1; 4 z 1")
	mine := &api.JobsRequest{Finished: true}
	if n := len(s.List(mine, Caller{UID: alice.UID}, "h", math.MaxInt).Finished); n != 3 {
		t.Errorf("alice sees %d of her jobs", n)
	}
	if got := brief(s.List(mine, Caller{UID: 5}, "h", math.MaxInt).Finished); got != "" {
		t.Errorf("somebody else sees %q", got)
	}
	s.Keep(1, math.MaxInt)
	check("4 z 1")
	s.Keep(0, math.MaxInt)
	check("")
	runNext(t, s, submitArray(t, s, 1), Start{Queue: "q"})
	check("")
}

// Whatever ends, no more is kept than was asked for.
func TestFinishedIsBounded(t *testing.T) {
	var m recent
	m.limit = 10
	for n := range 1000 {
		j := &Job{Number: n, Submitter: &Submitter{}, Origin: &Origin{}, particulars: &noParticulars, Tasks: api.Tasks{First: 1, Last: 10 * maxEndedRanges, Step: 1}}
		j.terms.Store(&Terms{Slots: 1})
		odd := NoTasks(j.Tasks)
		for number := 1; number <= j.Tasks.Last; number += 2 {
			if n == 999 {
				odd.Add(number)
				m.ran(&Task{Job: j, Number: number})
			}
		}
		m.deleted(j, &odd)
		all := AllTasks(j.Tasks)
		m.deleted(j, &all)
	}
	if len(m.jobs) != 10 || len(m.order) != 10 || cap(m.order) > 100 {
		t.Errorf("%d jobs are kept, and %d numbers of %d", len(m.jobs), len(m.order), cap(m.order))
	}
	if n := len(m.jobs[999].ended.runs); n > maxEndedRanges {
		t.Errorf("%d ranges are kept", n)
	}
}
