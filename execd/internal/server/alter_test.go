package server

import (
	"os"
	"strings"
	"testing"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
)

// What may not be submitted, a job cannot become either; the whole of a refused
// alteration is refused. A client that checks nothing sends it.
func TestAlterRefuses(t *testing.T) {
	c := serve(t, nil)
	req := good()
	req.Priority = -5
	if err := c.Call(t.Context(), api.VerbSubmit, &req, &api.SubmitReply{}); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", api.MaxPath+1)
	for _, tt := range []struct {
		field api.Field
		to    api.SubmitRequest
		want  string
	}{
		{"-N", api.SubmitRequest{Name: ""}, "job rejected cause there is no job_name in the request"},
		{"-N", api.SubmitRequest{Name: "a/b"}, "not allowed in objectname"},
		{api.FieldAccount, api.SubmitRequest{Account: "a:b"}, "not allowed in objectname"},
		{api.FieldCwd, api.SubmitRequest{Cwd: long}, "the path of -wd has 4096 bytes"},
		{"-o", api.SubmitRequest{Stdout: "a\nb"}, "the path of -o contains a control character"},
		{"-S", api.SubmitRequest{Shell: long}, "the path of -S has 4096 bytes"},
		{api.FieldEnv, api.SubmitRequest{Env: []string{"A"}}, "is not an environment variable"},
		{api.FieldEnv, api.SubmitRequest{Env: []string{"A=" + strings.Repeat("x", api.MaxVariable)}}, "environment variable A has"},
		{api.FieldArgs, api.SubmitRequest{Args: []string{"a\x00"}}, "an argument has"},
		{"-r", api.SubmitRequest{Rerun: "z"}, "is no value of -r"},
		{api.FieldPriority, api.SubmitRequest{Priority: -100_000}, "invalid priority \"-100000\".  Must be an integer from -1023 to 1024"},
		{api.FieldPriority, api.SubmitRequest{Priority: 2000}, "invalid priority \"2000\""},
		{"-m", api.SubmitRequest{Mail: "x"}, "is no value of -m"},
		{"-M", api.SubmitRequest{MailTo: []string{"a b"}}, "a b"},
		{"-binding", api.SubmitRequest{Binding: "nonsense"}, "nonsense"},
		{"-c", api.SubmitRequest{CheckpointWhen: "s"}, "checkpointing denied"},
		{api.FieldCheckpoint, api.SubmitRequest{Checkpoint: "nosuch"}, `denied: checkpointing environment "nosuch" does not exist`},
		{api.FieldPE, api.SubmitRequest{PE: "nosuch", Slots: []api.Slots{{Min: 1, Max: 1, Step: 1}}}, `denied: parallel environment "nosuch" does not exist`},
		{api.FieldHard, api.SubmitRequest{Hard: []api.Resource{{Name: "nosuch", Value: "1"}}}, `unknown resource "nosuch"`},
		{api.FieldQueues, api.SubmitRequest{Queues: []string{"nosuch.q"}}, `Job was rejected because job requests unknown queue "nosuch.q"`},
		{api.FieldHoldJobs, api.SubmitRequest{HoldJobs: []string{"1.1"}}, `denied: job "1.1" not found`},
		{"-tc", api.SubmitRequest{MaxRun: 1}, `invalid option argument "task concurrency"`},
	} {
		var reply api.AlterReply
		alter := api.AlterRequest{Jobs: []string{"1"}, Fields: []api.Field{"-notify", tt.field}, To: tt.to}
		alter.To.Notify = true
		if err := c.Call(t.Context(), api.VerbAlter, &alter, &reply); err != nil {
			t.Errorf("%s: %v", tt.field, err)
			continue
		}
		if len(reply.Lines) != 1 || !reply.Lines[0].Failed || !strings.Contains(reply.Lines[0].Text, tt.want) {
			t.Errorf("%s: %.200v; want a failure with %q", tt.field, reply.Lines, tt.want)
		}
	}
	for name, alter := range map[string]api.AlterRequest{
		"is no value of -w":       {Jobs: []string{"1"}, To: api.SubmitRequest{Verify: "z"}},
		"is no change of a cont":  {Jobs: []string{"1"}, Context: []api.ContextChange{{Option: "-xc"}}},
		`cannot alter "-b"`:       {Jobs: []string{"1"}, Fields: []api.Field{"-b"}},
		"specified to -h option":  {Jobs: []string{"1"}, Hold: "q"},
		"only on jobs and not on": {Jobs: []string{"1.1"}, Fields: []api.Field{"-N"}},
	} {
		if err := c.Call(t.Context(), api.VerbAlter, &alter, &api.AlterReply{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v; want %q", alter, err, name)
		}
	}
	var detail api.DetailReply
	if err := c.Call(t.Context(), api.VerbDetail, &api.DetailRequest{Jobs: []string{"1"}}, &detail); err != nil {
		t.Fatal(err)
	}
	if r := detail.Jobs[0].Request; r.Notify || r.Name != "ok" || r.Priority != -5 {
		t.Errorf("after what was refused it is %+v", r)
	}
}

// A copy is a submission like any other: it counts, and a script that its owner
// has made longer than any is not read.
func TestResubmit(t *testing.T) {
	global := conf.Global{}
	s := rooted(t, &conf.Config{})
	s.Config = func() *conf.Config { return &conf.Config{Global: global} }
	me := job.Caller{UID: os.Getuid(), GID: os.Getgid(), Name: "me"}
	if _, err := submitAs(t, s, me.UID, nil); err != nil {
		t.Fatal(err)
	}
	reply, err := s.resubmit(t.Context(), me, &api.ResubmitRequest{Jobs: []string{"1"}, Hold: "u"})
	if err != nil || reply.Failed != nil || len(reply.Submitted) != 1 || reply.Submitted[0].Job != 2 || reply.Submitted[0].From != 1 {
		t.Fatalf("resubmit = %+v, %v", reply, err)
	}
	path, err := s.Store.Script(s.Store.Get(2))
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(path)
	if err != nil || string(script) != string(good().Script) {
		t.Errorf("the script of the copy is %q, %v", script, err)
	}
	global.SubmitRate = 1
	for n := 0; reply.Failed == nil; n++ {
		if n == 100 {
			t.Fatal("100 copies in less than 100 seconds are accepted at one a second")
		}
		if reply, err = s.resubmit(t.Context(), me, &api.ResubmitRequest{Jobs: []string{"1"}}); err != nil {
			t.Fatal(err)
		}
	}
	if reply.Failed.Code != api.CodeLimit {
		t.Errorf("what comes too fast: %v", reply.Failed)
	}
	global.SubmitRate = 0
	for _, hold := range []string{"x", "nu"} {
		if _, err := s.resubmit(t.Context(), me, &api.ResubmitRequest{Jobs: []string{"1"}, Hold: hold}); err == nil {
			t.Errorf("hold %q is accepted", hold)
		}
	}
	s = rooted(t, &conf.Config{})
	if _, err := submitAs(t, s, me.UID, nil); err != nil {
		t.Fatal(err)
	}
	if path, err = s.Store.Script(s.Store.Get(1)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 2*api.MaxScript); err != nil {
		t.Fatal(err)
	}
	reply, err = s.resubmit(t.Context(), me, &api.ResubmitRequest{Jobs: []string{"1"}})
	if err != nil || reply.Failed == nil || !strings.Contains(reply.Failed.Text, "the script has") {
		t.Errorf("a script that is too long: %+v, %v", reply, err)
	}
}
