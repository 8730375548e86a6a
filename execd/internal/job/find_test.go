package job

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
)

// startTask starts the lowest task of a job.
func startTask(t *testing.T, s *Store, j *Job) *Task {
	t.Helper()
	task := s.Take(j, Start{Queue: "all.q", Boot: "b"}, time.Now())
	if task == nil {
		t.Fatal("no task to take")
	}
	if err := s.Begin(task); err != nil {
		t.Fatal(err)
	}
	return task
}

func endTask(t *testing.T, s *Store, task *Task, fate Fate) {
	t.Helper()
	end := &End{Fate: fate, Reason: "because", Accounting: "x"}
	if err := s.End([]Ending{{Task: task, End: end, Time: time.Now()}})[0]; err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	submitArray(t, s, 5)
	if _, _, err := s.Submit(bob, 1, &api.SubmitRequest{Name: "b", Binary: true, Command: "true"}, Limits{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	startTask(t, s, s.Get(1))
	array := api.Found{Job: 1, Name: "a", Owner: "alice", Array: true, Count: 5, Pending: 4, Running: 1}
	some := api.Found{Job: 1, Name: "a", Owner: "alice", Array: true, Tasks: api.Tasks{First: 1, Last: 3, Step: 2}, Count: 2, Pending: 1, Running: 1}
	single := api.Found{Job: 2, Name: "b", Owner: "bob", Count: 1, Pending: 1}
	for _, tt := range []struct {
		words   []string
		found   []api.Found
		missing []string
	}{
		{[]string{"1"}, []api.Found{array}, nil},
		{[]string{"1.1-3:2", "2"}, []api.Found{some, single}, nil},
		{[]string{"a"}, []api.Found{array}, nil},
		{[]string{"*"}, []api.Found{array}, nil}, // bob's are his own
		{[]string{"a", "a", "1", "a*"}, []api.Found{array}, nil},
		{[]string{"1", "a.1-3:2", "1.1-3:2"}, []api.Found{array, some}, nil},
		{[]string{"b", "3", "0", "-1"}, nil, []string{"b", "3", "0", "-1"}},
		{[]string{"2.1"}, []api.Found{{Job: 2, Name: "b", Owner: "bob", Tasks: api.Tasks{First: 1, Last: 1, Step: 1}, Count: 1, Pending: 1}}, nil},
	} {
		found, missing, whole, err := s.Find(t.Context(), tt.words, Caller{UID: alice.UID}, 10)
		if diff := cmp.Diff([]any{tt.found, tt.missing}, []any{found, missing}); diff != "" || err != nil || !whole {
			t.Errorf("Find(%q): whole %v, %v (-want +got):\n%s", tt.words, whole, err, diff)
		}
	}
	if _, _, _, err := s.Find(t.Context(), []string{"1", "2"}, Caller{UID: alice.UID}, 1); err == nil {
		t.Error("Find of more than may be is no error")
	}
	for _, word := range []string{"1.6", "a.6-8"} {
		if _, _, _, err := s.Find(t.Context(), []string{"2", word}, Caller{UID: alice.UID}, 9); err == nil || err.Error() != `job "1" task "`+word[2:]+`" does not exist` {
			t.Errorf("Find(%q): %v", word, err)
		}
	}
	if s.Last() != 2 {
		t.Errorf("Last() = %d; want 2", s.Last())
	}
}

// Tasks are over when they are accounted and do not run again, and those who
// wait are told, whatever the rest of the job does.
func TestChangedTasks(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	j := submitArray(t, s, 6)
	only := func(n int) api.Tasks { return api.Tasks{First: n, Last: n, Step: 1} }
	var changed <-chan struct{}
	is := func(when string, n int, over bool, reason string) {
		t.Helper()
		c, gotOver, stuck := s.Changed(j, only(n))
		if changed = c; gotOver != over || stuck.Reason != reason {
			t.Errorf("%s: task %d over %v, reason %q; want %v, %q", when, n, gotOver, stuck.Reason, over, reason)
		}
	}
	told := func(when string) {
		t.Helper()
		select {
		case <-changed:
		default:
			t.Errorf("%s: nobody was told", when)
		}
	}
	is("pending", 1, false, "")
	first, second, third := startTask(t, s, j), startTask(t, s, j), startTask(t, s, j)
	is("started", 1, false, "")
	endTask(t, s, first, FateDone)
	is("ended, not accounted", 1, false, "")
	s.Accounted(first)
	told("accounted")
	is("accounted", 1, true, "")
	if err := s.Settle(first); err != nil {
		t.Fatal(err)
	}
	is("settled", 1, true, "")

	endTask(t, s, second, FateRequeue)
	s.Accounted(second)
	is("runs again", 2, false, "")
	if err := s.Settle(second); err != nil {
		t.Fatal(err)
	}
	is("waits again", 2, false, "")

	endTask(t, s, third, FateError)
	s.Accounted(third)
	is("accounted", 3, false, "")
	if err := s.Settle(third); err != nil {
		t.Fatal(err)
	}
	told("in error")
	is("in error", 3, false, "because")

	is("pending", 5, false, "")
	if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"1.5"}}, Caller{UID: alice.UID, Name: "alice"}, func(*Task) {}); err != nil {
		t.Fatal(err)
	}
	told("deleted")
	is("deleted", 5, true, "")
	is("never was", 7, true, "")
	if _, over, stuck := s.Changed(j, api.Tasks{}); over || stuck.Reason != "" {
		t.Errorf("the job: over %v, reason %q", over, stuck.Reason)
	}

	// It was to run again, and was deleted before it did.
	again := startTask(t, s, j)
	endTask(t, s, again, FateRequeue)
	s.Accounted(again)
	is("runs again", again.Number, false, "")
	if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{again.String()}}, Caller{UID: alice.UID, Name: "alice"}, func(*Task) {}); err != nil {
		t.Fatal(err)
	}
	is("deleted", again.Number, false, "")
	if err := s.Settle(again); err != nil {
		t.Fatal(err)
	}
	told("settled")
	is("deleted", again.Number, true, "")
}

func TestWritten(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	j := submitArray(t, s, 5)
	startTask(t, s, j)
	list := func(tasks api.Tasks, most int) (numbers []int, more bool) {
		written, more := s.Written(j, tasks, most)
		for _, w := range written {
			if (w.State == "r") != (w.Run.Job == 1) {
				t.Errorf("%+v", w)
			}
			numbers = append(numbers, w.Task)
		}
		return numbers, more
	}
	for _, tt := range []struct {
		tasks api.Tasks
		most  int
		want  []int
		more  bool
	}{
		{api.Tasks{}, 10, []int{1}, false},
		{api.Tasks{First: 1, Last: 5, Step: 2}, 10, []int{1, 3, 5}, false},
		{api.Tasks{First: 1, Last: 5, Step: 1}, 2, []int{1, 2}, true},
		{api.Tasks{First: 6, Last: 9, Step: 1}, 10, nil, false},
	} {
		got, more := list(tt.tasks, tt.most)
		if diff := cmp.Diff(tt.want, got); diff != "" || more != tt.more {
			t.Errorf("Written(%v, %d): more %v (-want +got):\n%s", tt.tasks, tt.most, more, diff)
		}
	}
	if j, _ := s.Youngest("a", Caller{UID: alice.UID + 1}); j != nil {
		t.Errorf("Youngest is job %d of another user", j.Number)
	}
	second := submitArray(t, s, 1)
	if j, tasks := s.Youngest("a.1", Caller{UID: alice.UID}); j != second || tasks.First != 1 {
		t.Errorf("Youngest = %v, %v", j, tasks)
	}
}
