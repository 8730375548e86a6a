package job

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/execd/internal/user"
)

var bob = &user.User{Name: "bob", UID: 1002, Group: "users", GID: 100}

func submit(t *testing.T, s *Store, r api.SubmitRequest) *Job {
	t.Helper()
	r.Binary, r.Command = true, "true"
	if r.Name == "" {
		r.Name = "j"
	}
	j, _, err := s.Submit(alice, alice.GID, &r, Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// ready is what Ready says, as "n from first".
func ready(s *Store, j *Job) string {
	n, first, at := s.Ready(j, time.Now())
	if !at.IsZero() {
		return "later"
	}
	return fmt.Sprintf("%d from %d", n, first)
}

func wantReady(t *testing.T, s *Store, j *Job, want string) {
	t.Helper()
	if got := ready(s, j); got != want {
		t.Errorf("Ready(job %d) = %s; want %s", j.Number, got, want)
	}
}

// live leads a task from its start to its end.
func live(t *testing.T, s *Store, j *Job, fate Fate) {
	t.Helper()
	task := s.Take(j, Start{Queue: "all.q"}, time.Now())
	if task == nil {
		t.Fatalf("job %d has nothing to start", j.Number)
	}
	if err := s.Begin(task); err != nil {
		t.Fatal(err)
	}
	end := &End{Fate: fate, Reason: "r"}
	for _, err := range s.End([]Ending{{Task: task, End: end, Time: time.Now()}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Settle(task); err != nil {
		t.Fatal(err)
	}
}

func linesOf(reply api.ModifyReply) []string {
	var texts []string
	for _, l := range reply.Lines {
		texts = append(texts, l.Text)
	}
	return texts
}

func modify(t *testing.T, s *Store, c Caller, req api.ModifyRequest) []string {
	t.Helper()
	reply, err := s.Modify(t.Context(), &req, c, Hooks{
		AtRest: func(*Task) bool { return true },
		Kill:   func(*Task) {}, Changed: func(*Task) {}, Host: "h",
		Rerunnable: func(task *Task) bool { return task.Job.Terms().Rerun == api.RerunYes },
	})
	if err != nil {
		return []string{err.Error()}
	}
	return linesOf(reply)
}

func TestHolds(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	owner := Caller{UID: alice.UID, Name: "alice"}
	j := submit(t, s, api.SubmitRequest{Tasks: api.Tasks{First: 1, Last: 9, Step: 2}, Hold: "u"})
	single := submit(t, s, api.SubmitRequest{})
	for _, tt := range []struct {
		caller Caller
		req    api.ModifyRequest
		lines  []string
		array  string
		single string
	}{
		{
			owner,
			api.ModifyRequest{Action: "release", Hold: "u", Jobs: []string{"1.3-5"}},
			[]string{"modified hold of job-array task 1.3", "modified hold of job-array task 1.5"},
			"2 from 3", "1 from 1",
		},
		{owner, api.ModifyRequest{Action: "release", Hold: "u", Jobs: []string{"1.3"}}, nil, "2 from 3", "1 from 1"},
		{
			owner,
			api.ModifyRequest{Action: "hold", Hold: "u", Jobs: []string{"2", "1.3"}},
			[]string{"modified hold of job 2", "modified hold of job-array task 1.3"},
			"1 from 5", "0 from 0",
		},
		{
			owner,
			api.ModifyRequest{Action: "hold", Hold: "o", Jobs: []string{"2"}},
			[]string{`denied: "alice" must be operator to set operator hold`},
			"1 from 5", "0 from 0",
		},
		{
			Caller{UID: 7, Name: "op", Operator: true},
			api.ModifyRequest{Action: "hold", Hold: "o", Jobs: []string{"1"}},
			[]string{
				"modified hold of job-array task 1.1", "modified hold of job-array task 1.3", "modified hold of job-array task 1.5",
				"modified hold of job-array task 1.7", "modified hold of job-array task 1.9",
			},
			"0 from 0", "0 from 0",
		},
		{
			Caller{UID: 7, Name: "op", Operator: true},
			api.ModifyRequest{Action: "hold", Hold: "s", Jobs: []string{"1"}},
			[]string{`denied: "op" must be manager to set manager hold`},
			"0 from 0", "0 from 0",
		},
		{
			Caller{UID: bob.UID, Name: "bob"},
			api.ModifyRequest{Action: "release", Hold: "u", Jobs: []string{"2", "9"}},
			[]string{`denied: "bob" must be at least owner of job 2 to change job attributes`, `denied: job "9" does not exist`},
			"0 from 0", "0 from 0",
		},
		{
			owner,
			api.ModifyRequest{Action: "release", Hold: "x", Jobs: []string{"2"}},
			[]string{`Unknown hold list "x" specified to -h option`},
			"0 from 0", "0 from 0",
		},
		{
			Caller{Name: "root", Manager: true},
			api.ModifyRequest{Action: "release", Hold: "uos", Jobs: []string{"j"}},
			[]string{
				"modified hold of job-array task 1.1", "modified hold of job-array task 1.3", "modified hold of job-array task 1.5",
				"modified hold of job-array task 1.7", "modified hold of job-array task 1.9", "modified hold of job 2",
			},
			"5 from 1", "1 from 1",
		},
	} {
		if diff := cmp.Diff(tt.lines, modify(t, s, tt.caller, tt.req)); diff != "" {
			t.Errorf("%+v: lines (-want +got):\n%s", tt.req, diff)
		}
		wantReady(t, s, j, tt.array)
		wantReady(t, s, single, tt.single)
		// What was said is on disk.
		again, _ := openStore(t, root)
		wantReady(t, again, again.Get(1), tt.array)
		wantReady(t, again, again.Get(2), tt.single)
	}
}

// A snapshot keeps holds and suspensions.
func TestHoldsInSnapshot(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	j := submit(t, s, api.SubmitRequest{Tasks: api.Tasks{First: 1, Last: 5, Step: 1}, Hold: "us"})
	modify(t, s, Caller{Manager: true}, api.ModifyRequest{Action: "release", Hold: "us", Jobs: []string{"1.2-3"}})
	task := s.Take(j, Start{Queue: "all.q"}, time.Now())
	if err := s.Begin(task); err != nil {
		t.Fatal(err)
	}
	if got, want := modify(t, s, Caller{Manager: true, Name: "root"}, api.ModifyRequest{Action: "suspend", Jobs: []string{"1"}}), []string{"root - suspended job-array task 1.2"}; !cmp.Equal(got, want) {
		t.Errorf("suspend: %q; want %q", got, want)
	}
	data, err := s.compacted(j)
	if err != nil {
		t.Fatal(err)
	}
	copied, _, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if free := s.graph.free(copied); free.format() != "3" {
		t.Errorf("free after the snapshot: %s; want 3", free.format())
	}
	if !copied.active[2].Suspended {
		t.Error("the snapshot forgets that task 2 is suspended")
	}
}

func TestPredecessors(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	var hinted []int
	s.OnWork(func(j *Job) { hinted = append(hinted, j.Number) })
	first := submit(t, s, api.SubmitRequest{Name: "prep"})
	second := submit(t, s, api.SubmitRequest{Name: "prep2"})
	after := submit(t, s, api.SubmitRequest{HoldJobs: []string{"prep*", "99"}})
	wantReady(t, s, after, "0 from 0")
	live(t, s, first, FateDone)
	wantReady(t, s, after, "0 from 0")
	// A new execd knows as well.
	s, _ = openStore(t, root)
	s.OnWork(func(j *Job) { hinted = append(hinted, j.Number) })
	after, second = s.Get(after.Number), s.Get(second.Number)
	wantReady(t, s, after, "0 from 0")
	live(t, s, second, FateError)
	wantReady(t, s, after, "0 from 0")
	if got, want := modify(t, s, Caller{Manager: true, Name: "root"}, api.ModifyRequest{Action: "clear", Jobs: []string{"2", "3"}}),
		[]string{"root@h cleared error state of job 2", "Modify operation can not be applied on job-array task 3.1 in pending/hold state"}; !cmp.Equal(got, want) {
		t.Errorf("clear: %q; want %q", got, want)
	}
	hinted = nil
	if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"2"}}, Caller{Manager: true}, func(*Task) {}); err != nil {
		t.Fatal(err)
	}
	wantReady(t, s, after, "1 from 1")
	if !cmp.Equal(hinted, []int{3, 2}) {
		t.Errorf("told of jobs %v; want 3, and 2 that is gone", hinted)
	}
}

func TestArrayPredecessors(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	first := submit(t, s, api.SubmitRequest{Name: "a", Tasks: api.Tasks{First: 1, Last: 6, Step: 2}})
	same := submit(t, s, api.SubmitRequest{HoldArray: []string{"a"}, Tasks: api.Tasks{First: 1, Last: 6, Step: 2}})
	finer := submit(t, s, api.SubmitRequest{HoldArray: []string{"1"}, Tasks: api.Tasks{First: 1, Last: 6, Step: 1}})
	wider := submit(t, s, api.SubmitRequest{HoldArray: []string{"1"}, Tasks: api.Tasks{First: 1, Last: 6, Step: 3}})
	for _, want := range [][3]string{
		{"0 from 0", "0 from 0", "0 from 0"},
		{"1 from 1", "2 from 1", "0 from 0"}, // 1 and 2 are done
		{"2 from 1", "4 from 1", "1 from 1"}, // 1 to 4 are done
		{"3 from 1", "6 from 1", "2 from 1"},
	} {
		wantReady(t, s, same, want[0])
		wantReady(t, s, finer, want[1])
		wantReady(t, s, wider, want[2])
		if s.Get(first.Number) != nil {
			live(t, s, first, FateDone)
		}
	}
	_, _, err := s.Submit(alice, alice.GID, &api.SubmitRequest{
		Name: "j", Binary: true, Command: "true", HoldArray: []string{"2"}, Tasks: api.Tasks{First: 1, Last: 5, Step: 1},
	}, Limits{}, time.Now())
	if err == nil || !strings.Contains(err.Error(), "must have the same range of sub-tasks") {
		t.Errorf("another range: %v", err)
	}
}

func TestNotBefore(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	j := submit(t, s, api.SubmitRequest{After: time.Now().Add(time.Hour)})
	wantReady(t, s, j, "later")
	if task := s.Take(j, Start{}, time.Now()); task != nil {
		t.Errorf("took %v before its time", task)
	}
	if n, _, _ := s.Ready(j, time.Now().Add(2*time.Hour)); n != 1 {
		t.Errorf("after its time Ready = %d; want 1", n)
	}
}

func TestSubtract(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	of := api.Tasks{First: 1, Last: 40, Step: 1}
	for range 2000 {
		a, b, want := NoTasks(of), NoTasks(of), NoTasks(of)
		for n := 1; n <= 40; n++ {
			inA, inB := rnd.IntN(3) > 0, rnd.IntN(3) > 0
			if inA {
				a.Add(n)
			}
			if inB {
				b.Add(n)
			}
			if inA && !inB {
				want.Add(n)
			}
		}
		text := a.format() + " - " + b.format()
		a.Subtract(&b)
		if a.format() != want.format() || a.Len() != want.Len() {
			t.Fatalf("%s = %s (%d); want %s (%d)", text, a.format(), a.Len(), want.format(), want.Len())
		}
	}
}

func TestReschedule(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	c := Caller{UID: alice.UID, Name: "alice"}
	no, yes := submit(t, s, api.SubmitRequest{}), submit(t, s, api.SubmitRequest{Rerun: api.RerunYes})
	for _, j := range []*Job{no, yes} {
		if err := s.Begin(s.Take(j, Start{Queue: "all.q"}, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	got := modify(t, s, c, api.ModifyRequest{Action: "reschedule", Jobs: []string{"1", "2"}})
	want := []string{"The job 1 is running in queue all.q where jobs are not rerunable.", "Pushed rescheduling of job 2 on host h"}
	if !cmp.Equal(got, want) {
		t.Errorf("reschedule: %q; want %q", got, want)
	}
	if w := yes.active[1].Want; w == nil || !w.Requeue {
		t.Errorf("Want = %+v; want one that requeues", w)
	}
	if got := modify(t, s, c, api.ModifyRequest{Action: "reschedule", Jobs: []string{"1"}, Force: true}); got[0] != "Forced rescheduling of job 1 on host h" {
		t.Errorf("forced: %q", got)
	}
}

// A task that has ended to run again is deleted when somebody says so before it
// is put back.
func TestDeleteBeforeRequeue(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	c := Caller{UID: alice.UID, Name: "alice"}
	for _, fate := range []Fate{FateRequeue, FateError, FateDone} {
		j := submit(t, s, api.SubmitRequest{})
		task := s.Take(j, Start{Queue: "all.q"}, time.Now())
		if err := s.Begin(task); err != nil {
			t.Fatal(err)
		}
		if err := s.End([]Ending{{Task: task, End: &End{Fate: fate}, Time: time.Now()}})[0]; err != nil {
			t.Fatal(err)
		}
		reply, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{fmt.Sprint(j.Number)}}, c, func(*Task) {})
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("alice has registered the job %d for deletion", j.Number)
		if fate == FateDone {
			want = fmt.Sprintf(`denied: job "%d" does not exist`, j.Number)
		}
		if got := reply.Lines[0].Text; got != want {
			t.Errorf("fate %s: %q; want %q", fate, got, want)
		}
		if err := s.Settle(task); err != nil {
			t.Fatal(err)
		}
		if s.Get(j.Number) != nil {
			t.Errorf("fate %s: the job is still there", fate)
		}
	}
}

// How often the jobs of a user wait for another is counted, over restarts too, and
// bounded.
func TestWaitsAreBounded(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	counts := func(when string, want int) {
		t.Helper()
		if n := s.graph.waits[alice.UID]; n != want {
			t.Errorf("%s: %d are waited for; want %d", when, n, want)
		}
	}
	for range 3 {
		submit(t, s, api.SubmitRequest{Name: "first"})
	}
	submit(t, s, api.SubmitRequest{Name: "then", HoldJobs: []string{"first", "1"}})
	last := submit(t, s, api.SubmitRequest{Name: "last", HoldJobs: []string{"*"}})
	counts("two wait", 3+4)
	s, _ = openStore(t, root)
	counts("after a restart", 3+4)
	alter := func(words ...string) string {
		reply, err := s.Alter(t.Context(), &api.AlterRequest{
			Jobs: []string{fmt.Sprint(last.Number)}, Fields: []api.Field{api.FieldHoldJobs}, To: api.SubmitRequest{HoldJobs: words},
		}, Caller{UID: alice.UID}, AlterHooks{Check: accept, Host: "h"})
		if err != nil {
			t.Fatal(err)
		}
		return reply.Lines[0].Text
	}
	alter("then")
	counts("after an alteration", 3+1)
	if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"1", "2"}}, Caller{UID: alice.UID}, func(*Task) {}); err != nil {
		t.Fatal(err)
	}
	counts("after two have gone", 1+1)

	s.graph.waits[alice.UID] = maxWaits - 1
	one := &api.SubmitRequest{Name: "x", Binary: true, Command: "true", HoldJobs: []string{"then"}}
	if _, _, err := s.Submit(alice, alice.GID, one, Limits{}, time.Now()); err != nil {
		t.Errorf("as many as may be: %v", err)
	}
	_, _, err := s.Submit(alice, alice.GID, one, Limits{}, time.Now())
	want := "job rejected: it waits for 1 jobs, those of user alice wait for 500000 others already, and at most 500000 are possible"
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeLimit || e.Text != want {
		t.Errorf("one more: %v; want %q", err, want)
	}
	if got := alter("then", "first"); got != want && !strings.HasPrefix(got, "job rejected: it waits for 2 jobs") {
		t.Errorf("altered to wait for more: %q", got)
	}
	free := &api.SubmitRequest{Name: "x", Binary: true, Command: "true"}
	if _, _, err := s.Submit(alice, alice.GID, free, Limits{}, time.Now()); err != nil {
		t.Errorf("one that waits for none: %v", err)
	}
}
