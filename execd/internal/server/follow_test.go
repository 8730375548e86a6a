package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/account"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/output"
	"paddock/spool"
)

// ask calls a verb that must succeed.
func ask[Rep any](t *testing.T, c *api.Client, verb string, request any) Rep {
	t.Helper()
	var reply Rep
	if err := c.Call(t.Context(), verb, request, &reply); err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	return reply
}

// refused calls a verb that must not.
func refused(t *testing.T, c *api.Client, verb string, request any, code api.Code, text string) {
	t.Helper()
	var reply any
	e, ok := errors.AsType[*api.Error](c.Call(t.Context(), verb, request, &reply))
	if !ok || e.Code != code || !strings.Contains(e.Text, text) {
		t.Errorf("%s %+v: %v; want %s with %q", verb, request, e, code, text)
	}
}

// A client that waits for several jobs is told of those that are over, and of
// the ends of all of them.
func TestEnds(t *testing.T) {
	c := serve(t, nil)
	for range 3 {
		ask[api.SubmitReply](t, c, api.VerbSubmit, good())
	}
	found := ask[api.FindReply](t, c, api.VerbFind, api.FindRequest{Jobs: []string{"ok", "9", "2"}})
	if len(found.Found) != 3 || len(found.Missing) != 1 || found.Last != 3 || found.User == "" || found.Cursor == "" {
		t.Errorf("find = %+v", found)
	}
	done := make(chan api.EndsReply, 1)
	go func() {
		var reply api.EndsReply
		request := api.EndsRequest{Jobs: []api.Waited{{Job: 1}, {Job: 2}, {Job: 3}}}
		if err := c.Call(context.Background(), api.VerbEnds, request, &reply); err != nil {
			t.Error(err)
		}
		done <- reply
	}()
	select {
	case r := <-done:
		t.Fatalf("ends = %+v at once; want it to wait", r)
	case <-time.After(50 * time.Millisecond):
	}
	ask[api.DeleteReply](t, c, api.VerbDelete, api.DeleteRequest{Jobs: []string{"2"}})
	if r := <-done; len(r.Over) != 1 || r.Over[0] != 1 || len(r.Ended) != 0 || len(r.Stuck) != 0 {
		t.Errorf("ends = %+v; want the second job over", r)
	}
	// What was never there is over too: the client knows better.
	if r := ask[api.EndsReply](t, c, api.VerbEnds, api.EndsRequest{Jobs: []api.Waited{{Job: 1}, {Job: 77}}}); len(r.Over) != 1 || r.Over[0] != 1 {
		t.Errorf("ends = %+v", r)
	}
}

// The ends of jobs that are over come from the accounting file.
func TestEndsAccounted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "accounting")
	c := serve(t, func(s *Server) { s.Book = account.New(file, s.Store) })
	var text []byte
	for _, r := range []accounting.Record{
		{JobNumber: 1, ExitStatus: 3, StartTime: 5}, {JobNumber: 2, TaskNumber: 7, ExitStatus: 137, Failed: spool.FailedAfterJob, StartTime: 5}, {JobNumber: 21},
	} {
		r.PETaskID = accounting.None
		var err error
		if text, err = accounting.Append(text, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	r := ask[api.EndsReply](t, c, api.VerbEnds, api.EndsRequest{Jobs: []api.Waited{{Job: 2}, {Job: 1}}})
	if len(r.Over) != 2 || len(r.Ended) != 2 || r.Ended[0].Job != 1 || r.Ended[0].Exit != 3 || r.Ended[1].Task != 7 || r.Ended[1].Signal != "SIGKILL" {
		t.Errorf("ends = %+v", r)
	}
}

func TestFollowRefuses(t *testing.T) {
	c := serve(t, nil)
	refused(t, c, api.VerbFind, api.FindRequest{Jobs: make([]string, api.MaxWaited+1)}, api.CodeRejected, "too many")
	refused(t, c, api.VerbEnds, api.EndsRequest{}, api.CodeBadRequest, "cannot wait for 0 jobs")
	refused(t, c, api.VerbEnds, api.EndsRequest{Jobs: make([]api.Waited, api.MaxWaited+1)}, api.CodeBadRequest, "cannot wait for 1001 jobs")
	refused(t, c, api.VerbEnds, api.EndsRequest{Jobs: []api.Waited{{Job: 1}}, Cursor: "x"}, api.CodeBadRequest, "not a cursor")
	for _, tasks := range []api.Tasks{{First: 0, Last: 1, Step: 1}, {First: 2, Last: 1, Step: 1}, {First: 1, Last: 1}, {First: 1, Last: api.MaxTask + 1, Step: 1}} {
		refused(t, c, api.VerbEnds, api.EndsRequest{Jobs: []api.Waited{{Job: 1, Tasks: tasks}}}, api.CodeBadRequest, "not a range")
	}
	refused(t, c, api.VerbOutput, api.OutputRequest{Job: "77"}, api.CodeNotFound, `denied: job "77" does not exist`)
	refused(t, c, api.VerbOutput, api.OutputRequest{Job: "nix"}, api.CodeNotFound, "The job nix of user(s) ")
	refused(t, c, api.VerbOutput, api.OutputRequest{}, api.CodeNotFound, "does not exist")
}

// Where a job writes is known before it starts and after it is over.
func TestOutput(t *testing.T) {
	var index *output.Index
	c := serve(t, func(s *Server) {
		root, err := spool.OpenRoot(filepath.Join(t.TempDir(), "o"), true)
		if err != nil {
			t.Fatal(err)
		}
		index = output.New(root)
		s.Streams, s.Stages.Launcher = index, launch.New(launch.Runs{Root: root})
	})
	request := good()
	request.Stdout, request.Merge = "out.$JOB_ID", true
	ask[api.SubmitReply](t, c, api.VerbSubmit, request)
	r := ask[api.OutputReply](t, c, api.VerbOutput, api.OutputRequest{Job: "ok"})
	if len(r.Outputs) != 1 || r.Finished || r.Outputs[0].State != "qw" || !r.Outputs[0].Merged || r.Outputs[0].Stdout.Path != "/tmp/out.1" || r.Outputs[0].Stdout.Name != "ok.o1" {
		t.Errorf("output = %+v", r)
	}
	request.Tasks = api.Tasks{First: 1, Last: 1000, Step: 1}
	ask[api.SubmitReply](t, c, api.VerbSubmit, request)
	if r := ask[api.OutputReply](t, c, api.VerbOutput, api.OutputRequest{Job: "2"}); len(r.Outputs) != 0 || !r.Array {
		t.Errorf("output of an array that waits = %+v", r)
	}
	if r := ask[api.OutputReply](t, c, api.VerbOutput, api.OutputRequest{Job: "2.5-1000"}); len(r.Outputs) != api.MaxOutputs || !r.More || r.Outputs[0].Task != 5 {
		t.Errorf("output of many tasks: %d, more %v", len(r.Outputs), r.More)
	}
	ask[api.DeleteReply](t, c, api.VerbDelete, api.DeleteRequest{Jobs: []string{"1", "2"}})
	refused(t, c, api.VerbOutput, api.OutputRequest{Job: "1"}, api.CodeNotFound, "not known any more")
	for _, s := range []launch.Streams{{Job: 1, Name: "ok", UID: os.Getuid(), Stdout: "/x"}, {Job: 2, Name: "ok", UID: os.Getuid(), Stdout: "/y.$TASK_ID", Array: true}} {
		if err := index.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if r := ask[api.OutputReply](t, c, api.VerbOutput, api.OutputRequest{Job: "1"}); len(r.Outputs) != 1 || !r.Finished || r.Outputs[0].Stdout.Path != "/x" {
		t.Errorf("output of a job that is over = %+v", r)
	}
	if r := ask[api.OutputReply](t, c, api.VerbOutput, api.OutputRequest{Job: "ok.7-9:2"}); r.Job != 2 || len(r.Outputs) != 2 || r.Outputs[1].Stdout.Path != "/y.9" {
		t.Errorf("output of tasks that are over = %+v", r)
	}
	if r := ask[api.OutputReply](t, c, api.VerbOutput, api.OutputRequest{Job: "2"}); len(r.Outputs) != 0 || !r.Finished || !r.Array {
		t.Errorf("output of an array that is over = %+v", r)
	}
	refused(t, c, api.VerbOutput, api.OutputRequest{Job: "1.2"}, api.CodeNotFound, `denied: job "1" task "2" does not exist`)
}

func TestTop(t *testing.T) {
	c := serve(t, nil)
	request := good()
	request.Tasks = api.Tasks{First: 1, Last: 3, Step: 1}
	ask[api.SubmitReply](t, c, api.VerbSubmit, request)
	request = good()
	request.Hold = "u"
	ask[api.SubmitReply](t, c, api.VerbSubmit, request)
	r := ask[api.TopReply](t, c, api.VerbTop, api.TopRequest{})
	if r.Host != "h" || r.Pending != 3 || r.Held != 1 || r.Running != 0 || len(r.Jobs) != 2 || r.Jobs[0].Tasks != "1-3:1" || r.Jobs[1].State != "hqw" || r.Jobs[0].Usage != nil {
		t.Errorf("top = %+v", r)
	}
	if r := ask[api.TopReply](t, c, api.VerbTop, api.TopRequest{Users: []string{"nobody-else"}}); r.Jobs == nil || len(r.Jobs) != 0 || r.Pending != 3 {
		t.Errorf("top of another = %+v", r)
	}
}
