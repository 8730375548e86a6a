package watch

import (
	"bufio"
	"bytes"
	"testing"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
)

// Of an array with a list of tasks the numbers may be much larger than their count.
func TestSyncList(t *testing.T) {
	var out, errout bytes.Buffer
	w := syncWait{
		inv: &command.Invocation{Out: bufio.NewWriter(&out), Err: &errout},
		job: &api.SubmitReply{Job: 7, Tasks: api.Tasks{First: 1, Last: 200, Step: 1}, Only: "1,200"},
	}
	for _, end := range []api.TaskEnd{{Job: 7, Task: 1, Ran: true}, {Job: 7, Task: 200, Ran: true, Exit: 3}, {Job: 7, Task: 200, Ran: true}} {
		w.task(&end, "")
	}
	err := w.end()
	if f, ok := err.(*command.Failure); !ok || f.Exit != 3 { //nolint:errorlint // end returns it unwrapped
		t.Errorf("end: %v; want exit status 3", err)
	}
	if want := "Job 7.200 exited with exit code 3.\n"; errout.String() != want {
		t.Errorf("said %q; want %q", errout.String(), want)
	}
}
