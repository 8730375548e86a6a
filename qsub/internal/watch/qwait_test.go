package watch

import (
	"os"
	"path/filepath"
	"testing"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/qsub/internal/qtest"
)

func TestExitOf(t *testing.T) {
	for _, tt := range []struct {
		end  api.TaskEnd
		want int
	}{
		{api.TaskEnd{Ran: true}, 0},
		{api.TaskEnd{Ran: true, Exit: 3}, 3},
		{api.TaskEnd{Ran: true, Exit: 137, Failed: 100, Signal: "SIGKILL"}, 137},
		{api.TaskEnd{Ran: true, Exit: 137}, 137},
		{api.TaskEnd{Failed: 8}, 1},
		{api.TaskEnd{Failed: 26, Exit: 5}, 1},
		{api.TaskEnd{Ran: true, Failed: 100}, 1},
		{api.TaskEnd{Ran: true, Failed: 19, Exit: 7}, 1},
		{api.TaskEnd{Ran: true, Exit: 256}, 1},
		{api.TaskEnd{Ran: true, Exit: 1000, Signal: "SIGX"}, 232},
	} {
		if got := exitOf(&tt.end); got != tt.want {
			t.Errorf("exitOf(%+v) = %d; want %d", tt.end, got, tt.want)
		}
	}
}

// The last end of a task counts, whatever stands before it, and no end of
// another job or task.
func TestTaskEnds(t *testing.T) {
	var e taskEnds
	of := api.Waited{Job: 7, Tasks: api.Tasks{First: 2, Last: 100, Step: 2}}
	for _, end := range []api.TaskEnd{
		{Job: 7, Task: 2, Failed: 19},
		{Job: 7, Task: 2, Ran: true}, // started again, and well
		{Job: 7, Task: 4, Failed: accounting.FailedRescheduling},
		{Job: 7, Task: 4, Ran: true, Exit: 3},
		{Job: 7, Task: 3, Ran: true, Exit: 9},
		{Job: 8, Task: 2, Ran: true, Exit: 9},
		{Job: 7, Task: 102, Ran: true, Exit: 9},
		{Job: 7, Task: 6, Ran: true},
		{Job: 7, Task: 6, Ran: true, Exit: 5},
		{Job: 7, Task: 1 << 40, Ran: true, Exit: 9},
		{Job: 7, Task: -5, Ran: true, Exit: 9},
	} {
		e.add(&of, &end, false)
	}
	if e.count != 3 || len(e.bad) != 2 || e.bad[4].Exit != 3 || e.bad[6].Exit != 5 || len(e.all) != 0 {
		t.Errorf("%+v", e)
	}
	var single taskEnds
	single.add(&api.Waited{Job: 7, Tasks: api.Tasks{First: 1, Last: 1, Step: 1}}, &api.TaskEnd{Job: 7, Ran: true, Exit: 2}, true)
	if single.count != 1 || single.all[1].Exit != 2 {
		t.Errorf("%+v", single)
	}
}

// What execd sends is what is asked for and told; the exit status is that of the
// first job of the command line that failed.
func TestQwait(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbFind, api.FindReply{Last: 9, User: "me", Cursor: "5:6", Found: []api.Found{{Job: 4, Count: 3, Array: true, Pending: 3}, {Job: 5, Count: 1}}})
	e.Replies(api.VerbEnds,
		api.EndsReply{Cursor: "5:7", Ended: []api.TaskEnd{{Job: 5, Ran: true, Exit: 6}}, Over: []int{1}},
		api.EndsReply{Cursor: "5:8"},
		api.EndsReply{Cursor: "5:9", Ended: []api.TaskEnd{{Job: 4, Task: 1, Ran: true}, {Job: 4, Task: 3, Failed: 8, Reason: "prolog \x1b failed"}}, Over: []int{0}},
	)
	qtest.Want(t, qtest.Result{Exit: 1, Err: "Unable to run job 4.3\nJob 4.3 failed: prolog \\x1b failed\n" +
		"Job 4: there is no accounting record of 1 tasks: they were deleted before they started, or the accounting file is a new one.\n" +
		"Job 5 exited with exit code 6.\n"}, call(t, "", "qwait", "4,5"))
	if got := qtest.Last[api.EndsRequest](t, e, api.VerbEnds); got.Cursor != "5:8" || len(got.Jobs) != 1 || got.Jobs[0].Job != 4 {
		t.Errorf("the last request was %+v", got)
	}
	e.Replies(api.VerbEnds, &api.Error{Code: api.CodeInternal, Text: "no accounting file"})
	qtest.Want(t, qtest.Result{Exit: 1, Err: "qwait: no accounting file\n"}, call(t, "", "qwait", "4"))
	e.Replies(api.VerbEnds, api.EndsReply{Stuck: []api.Stuck{{Place: 0, Reason: "bad"}, {Place: 77}}, Over: []int{1, 99, -1}})
	qtest.Want(t, qtest.Result{Exit: 1, Err: "Job 4 is in error state: bad\nJob 5 was deleted before it started.\n"}, call(t, "", "qwait", "4", "5"))
}

// Names mean the job that was accounted last, of the caller's.
func TestQwaitByName(t *testing.T) {
	e := qtest.NewExecd(t)
	var text []byte
	for _, r := range []accounting.Record{
		{JobNumber: 3, JobName: "x", Owner: "me"}, {JobNumber: 5, JobName: "x", Owner: "me"}, {JobNumber: 6, JobName: "x", Owner: "other"}, {JobNumber: 7, JobName: "xy", Owner: "me"},
	} {
		var err error
		if text, err = accounting.Append(text, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(e.Dir, "accounting"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	e.Replies(api.VerbFind, api.FindReply{Last: 9, User: "me", Missing: []string{"x.2"}})
	e.Replies(api.VerbEnds, api.EndsReply{Ended: []api.TaskEnd{{Job: 5, Task: 1, Ran: true, Exit: 3}, {Job: 5, Task: 2, Ran: true, Exit: 4}}, Over: []int{0}})
	qtest.Want(t, qtest.Result{Exit: 4, Err: "Job 5.2 exited with exit code 4.\n"}, call(t, "", "qwait", "x.2"))
	if got := qtest.Last[api.EndsRequest](t, e, api.VerbEnds); len(got.Jobs) != 1 || got.Jobs[0] != (api.Waited{Job: 5, Tasks: api.Tasks{First: 2, Last: 2, Step: 1}}) || got.Cursor != "" {
		t.Errorf("the request was %+v", got)
	}
	e.Replies(api.VerbFind, api.FindReply{Last: 9, User: "me", Missing: []string{"x*"}})
	qtest.Want(t, qtest.Result{Exit: 1, Err: "The job x* of user(s) me does not exist\n"}, call(t, "", "qwait", "x*"))
}
