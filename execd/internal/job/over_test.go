package job

import (
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
)

// A task whose output is on its way runs no more: the next of -tc has its turn, while who
// waits for its end waits on. One whose output is stuck waits for somebody to look; qmod
// -cj has the output tried again, and the task stays over.
func TestOver(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	j := submit(t, s, api.SubmitRequest{Name: "a", Binary: true, Command: "true", Tasks: api.Tasks{First: 1, Last: 2, Step: 1}, MaxRun: 1})
	task := s.Take(j, Start{Queue: "all.q"}, time.Now())
	if err := s.Begin(task); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := s.Ready(j, time.Now()); n != 0 {
		t.Fatalf("%d tasks may start beside the first; -tc allows none", n)
	}
	if err := s.Over(task, &End{Fate: FateDone}); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := s.Ready(j, time.Now()); n != 1 {
		t.Errorf("%d tasks may start beside output on its way; want 1", n)
	}
	state := func(want string, sending, stuck int) {
		t.Helper()
		if got := task.letters(); got != want {
			t.Errorf("qstat shows %s; want %s", got, want)
		}
		if n := s.Tally(); n.Running != 0 || n.Sending != sending || n.Stuck != stuck {
			t.Errorf("%+v; want %d sending and %d stuck", n, sending, stuck)
		}
	}
	state("to", 1, 0)
	only := api.Tasks{First: 1, Last: 1, Step: 1}
	if _, over, why := s.Changed(j, only); over || why != (api.Stuck{}) {
		t.Errorf("who waits is told over %v, stuck %v, and its output has not arrived", over, why)
	}

	if err := s.Stick(task, Stuck{Text: "no space left on device", Errno: 28}); err != nil {
		t.Fatal(err)
	}
	state("Eto", 0, 1)
	if _, over, why := s.Changed(j, only); over || why.Reason != "no space left on device" {
		t.Errorf("who waits is told over %v, stuck %v", over, why)
	}
	var again []*Task
	modify := func(action api.Action, want string) {
		t.Helper()
		reply, err := s.Modify(t.Context(), &api.ModifyRequest{Action: action, Jobs: []string{"1.1"}}, Caller{UID: alice.UID, Name: "alice"},
			Hooks{Host: "here", Changed: func(task *Task) { again = append(again, task) }})
		if err != nil || len(reply.Lines) != 1 || !strings.Contains(reply.Lines[0].Text, want) {
			t.Errorf("%s: %+v, %v; want %q", action, reply, err, want)
		}
	}
	modify(api.ActionSuspend, "has ended, and its output is on its way")
	modify(api.ActionClear, "alice@here cleared error state of job-array task 1.1")
	if len(again) != 1 || again[0] != task {
		t.Errorf("the transfer of %v is tried again; want that of 1.1", again)
	}
	state("to", 1, 0)
	modify(api.ActionClear, "Job-array task 1.1 is not in error state")

	// What is deleted is not stuck afterwards, whatever its transfer says.
	if _, err := s.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"1.1"}}, Caller{UID: alice.UID, Name: "alice"}, func(*Task) {}); err != nil {
		t.Fatal(err)
	}
	if err := s.Stick(task, Stuck{Text: "canceled"}); err != nil {
		t.Fatal(err)
	}
	state("dto", 1, 0)
}
