package job

import (
	"os"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
)

// failing leads the job's next task to an end that is no success.
func failing(t *testing.T, s *Store, j *Job) {
	t.Helper()
	task := startTask(t, s, j)
	for _, err := range s.End([]Ending{{Task: task, End: &End{Fate: FateDone, Exit: 3}, Time: time.Now()}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Settle(task); err != nil {
		t.Fatal(err)
	}
}

// All that depends on a job which has failed waits in vain, through however many others
// and ways, and who waits for it is told.
func TestVain(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	submit(t, s, api.SubmitRequest{Name: "a"})
	submit(t, s, api.SubmitRequest{Name: "l1", HoldOK: []string{"a"}})
	submit(t, s, api.SubmitRequest{Name: "l1", HoldOK: []string{"a"}})
	for _, on := range []string{"l1", "l2", "l3", "l4"} { // 2^4 ways lead to the last ones
		next := "l" + string(on[1]+1)
		submit(t, s, api.SubmitRequest{Name: next, HoldOK: []string{on}})
		submit(t, s, api.SubmitRequest{Name: next, HoldOK: []string{on}})
	}
	ends := submit(t, s, api.SubmitRequest{Name: "ends", HoldJobs: []string{"l5"}})
	last := s.Get(11)
	changed, _, stuck := s.Changed(last, api.Tasks{})
	if stuck.Reason != "" {
		t.Fatalf("before anything has failed: %+v", stuck)
	}
	failing(t, s, s.Get(1))
	select {
	case <-changed:
	default:
		t.Error("nobody was told")
	}
	const want = "job 8 never starts, since job 1 failed with exit code 3: it will never start; delete it by qdel"
	for range 2 {
		if _, _, stuck := s.Changed(s.Get(11), api.Tasks{}); stuck.Reason != want || !stuck.Vain {
			t.Errorf("%+v; want %q", stuck, want)
		}
		if _, _, stuck := s.Changed(s.Get(ends.Number), api.Tasks{}); stuck.Reason != "" {
			t.Errorf("what waits for an end alone is stuck: %+v", stuck)
		}
		s, _ = openStore(t, root) // a new execd says the same
	}
	// What is deleted has failed.
	if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"8", "9"}}, Caller{UID: alice.UID}, func(*Task) {}); err != nil {
		t.Fatal(err)
	}
	texts := s.graph.inVain(s.Get(11)).texts
	if len(texts) != 2 || !strings.HasPrefix(texts[0], "job 8 failed: deleted before it ran: it ") {
		t.Errorf("after the deletion of what it depends on: %q", texts)
	}
}

// Of a job that has ended and is not kept nobody says that it succeeded or failed: who names
// it is refused.
func TestSuccessForgotten(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	s.Keep(0, 1)
	for range 3 {
		live(t, s, submit(t, s, api.SubmitRequest{}), FateDone)
	}
	submit(t, s, api.SubmitRequest{})
	owner := Caller{UID: alice.UID, Name: "alice"}
	for number, want := range map[string]string{
		"1":  "job rejected: job 1 has ended and its record is not kept any more, so that nobody knows whether all of it succeeded; see qacct -j 1, and do not name it if it did",
		"3":  "",
		"99": "job rejected: there is no job 99, whose success could be waited for",
		"-1": "job rejected: there is no job -1, whose success could be waited for",
	} {
		to := api.SubmitRequest{Name: "j", Binary: true, Command: "true", HoldOK: []string{number}}
		if want == "" {
			s.Keep(0, 100)
			wantReady(t, s, submit(t, s, to), "1 from 1")
			continue
		}
		if _, _, err := s.Submit(alice, alice.GID, &to, Limits{}, time.Now()); err == nil || err.Error() != want {
			t.Errorf("submitted for the success of job %s: %v; want %q", number, err, want)
		}
		got := alter(t, s, owner, api.AlterRequest{Jobs: []string{"4"}, Fields: fields(api.FieldHoldOK), To: to})
		if len(got) != 1 || got[0] != "! "+want {
			t.Errorf("altered for the success of job %s: %q; want %q", number, got, want)
		}
	}
	wantReady(t, s, s.Get(4), "1 from 1")
}

// Tasks that can run do, before their array is stuck.
func TestVainTasks(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	three := api.Tasks{First: 1, Last: 3, Step: 1}
	a := submit(t, s, api.SubmitRequest{Name: "a", Tasks: three})
	b := submit(t, s, api.SubmitRequest{Name: "b", Tasks: three, HoldArrayOK: []string{"a"}})
	c := submit(t, s, api.SubmitRequest{Name: "c", Tasks: three, HoldArrayOK: []string{"b"}})
	is := func(j *Job, task int, want string) {
		t.Helper()
		if _, _, stuck := s.Changed(j, api.Tasks{First: task, Last: task, Step: 1}); !strings.HasPrefix(stuck.Reason, want) || (want == "") != (stuck.Reason == "") {
			t.Errorf("%v.%d is stuck for %q; want %q", j.Number, task, stuck.Reason, want)
		}
	}
	failing(t, s, a)
	for range 2 {
		live(t, s, a, FateDone)
	}
	failed := "tasks 1 of job 1 failed, the first with exit code 3: tasks 1 will never start"
	chained := "tasks 1 of job 2 never start, since tasks 1 of job 1 failed, the first with exit code 3: tasks 1 will never start"
	is(b, 1, failed)
	is(b, 2, "")
	is(c, 1, chained)
	is(c, 2, "")
	if _, _, stuck := s.Changed(b, api.Tasks{}); stuck.Reason != "" {
		t.Errorf("two tasks can run, and it is stuck: %+v", stuck)
	}
	for _, j := range []*Job{b, b, c, c} {
		live(t, s, j, FateDone)
	}
	is(c, 1, chained)
	if _, over, stuck := s.Changed(c, api.Tasks{}); over || !strings.HasPrefix(stuck.Reason, chained) {
		t.Errorf("the array is over %v, stuck %+v; want %q", over, stuck, chained)
	}
}

// What a job was altered not to wait for, while that failed, is recorded too late to
// hold it back.
func TestUnmetAfterAlteration(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	submit(t, s, api.SubmitRequest{Name: "a"})
	b := submit(t, s, api.SubmitRequest{Name: "b", HoldOK: []string{"a"}})
	failed := &unmet{dependency: dependency{Job: 1}, Tasks: "1", Why: "job 1 failed with exit code 3"}
	alter(t, s, Caller{UID: alice.UID}, api.AlterRequest{Jobs: []string{"2"}, Fields: fields(api.FieldHoldOK)})
	if err := s.commit(b, durable, nil, &line{Event: EventUnmet, Unmet: failed}); err != nil {
		t.Fatal(err)
	}
	wantReady(t, s, b, "1 from 1")
	s, _ = openStore(t, s.root)
	wantReady(t, s, s.Get(2), "1 from 1")
}

// A job whose record says nothing of it, since execd was killed, does not run after one
// that failed.
func TestOutcomeAfterCrash(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	s.Keep(0, 10)
	a := submit(t, s, api.SubmitRequest{Name: "a"})
	submit(t, s, api.SubmitRequest{Name: "b", HoldOK: []string{"a"}})
	record, err := os.ReadFile(s.path(2))
	if err != nil {
		t.Fatal(err)
	}
	failing(t, s, a)
	if err := os.WriteFile(s.path(2), record, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, _ = openStore(t, s.root)
		wantReady(t, s, s.Get(2), "0 from 0")
	}
}
