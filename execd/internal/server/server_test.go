package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/account"
	"paddock/execd/internal/admit"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/drain"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/shadow"
	"paddock/execd/internal/source/program"
	"paddock/execd/internal/stage"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// newServer returns a server without any shepherds behind it, and a directory.
func newServer(t *testing.T) (*Server, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := spool.OpenRoot(filepath.Join(dir, "spool"), true)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	store, err := job.Open(root, false, log)
	if err != nil {
		t.Fatal(err)
	}
	drained, err := drain.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	config, err := conf.Load(conf.Options{Dir: filepath.Join(dir, "no"), Tmpdir: dir, Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	states, err := queue.OpenStates(root, config.Queues, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	q := queue.New(queue.Options{
		Store: store, Claims: claim.NewTable(config.Queues, queue.Holder), Config: config, States: states, Log: log, Hold: func() string { return "because" },
	})
	programs := &program.Programs{Slots: q, Config: func() *conf.Config { return config }}
	away := shadow.New(shadow.Execd{Peers: func() []api.PeerStatus { return nil }, Domain: func() string { return "" }})
	return &Server{
		Shadows: away, Store: store, Programs: programs, Book: account.New(filepath.Join(dir, "accounting"), store), Users: &user.Directory{},
		Config: func() *conf.Config { return config }, Queue: q, Stages: &stage.Runner{Host: base.Host{Store: store, Launcher: &launch.Launcher{}}},
		Drain: drained, Host: "h", Version: "test", Log: log, OwnerOnly: os.Getuid(),
	}, dir
}

// serve runs a server.
func serve(t *testing.T, change func(*Server)) *api.Client {
	t.Helper()
	s, dir := newServer(t)
	if change != nil {
		change(s)
	}
	socket := filepath.Join(dir, "s")
	l, err := Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	s.Open(ctx)
	wg.Go(func() {
		if err := s.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return api.NewClient(socket)
}

func good() api.SubmitRequest {
	return api.SubmitRequest{Name: "ok", Command: "ok.sh", Script: []byte("true\n"), Cwd: "/tmp"}
}

func TestSubmitRefuses(t *testing.T) {
	c := serve(t, nil)
	for _, tt := range []struct {
		name   string
		change func(*api.SubmitRequest)
		want   string
	}{
		{"no name", func(r *api.SubmitRequest) { r.Name = "" }, "there is no job_name in the request"},
		{"name of 10 kB", func(r *api.SubmitRequest) { r.Name = strings.Repeat("x", 10_000) }, "job name too long, maximum allowed length is 512 characters"},
		{"colon", func(r *api.SubmitRequest) { r.Name = "a:b" }, "Colon (':') not allowed in objectname"},
		{"newline", func(r *api.SubmitRequest) { r.Name = "a\nb" }, "Return not allowed in objectname"},
		{"digit", func(r *api.SubmitRequest) { r.Name = "1a" }, `denied: "1a" is not a valid object name (cannot start with a digit)`},
		{"account", func(r *api.SubmitRequest) { r.Account = "a:b" }, "Colon (':') not allowed in objectname"},
		{"control in path", func(r *api.SubmitRequest) { r.Stdout = "/x\nepilog=/bin/sh" }, "the path of -o contains a control character"},
		{"long path", func(r *api.SubmitRequest) { r.Cwd = "/" + strings.Repeat("x", 5000) }, "the path of -wd has 5001 bytes"},
		{"no script", func(r *api.SubmitRequest) { r.Script = nil }, "a script is needed"},
		{"variable", func(r *api.SubmitRequest) { r.Env = []string{"NOVALUE"} }, `"NOVALUE" is not an environment variable`},
		{"large variable", func(r *api.SubmitRequest) { r.Env = []string{"A=" + strings.Repeat("x", 200<<10)} }, "environment variable A has 204802 bytes"},
		{"large environment", func(r *api.SubmitRequest) {
			for range 20 {
				r.Env = append(r.Env, "A="+strings.Repeat("x", 100<<10))
			}
		}, "the environment has"},
		{"arguments", func(r *api.SubmitRequest) { r.Args = []string{strings.Repeat("x", 200<<10)} }, "an argument has 204800 bytes"},
		{"NUL", func(r *api.SubmitRequest) { r.Args = []string{"a\x00b"} }, "or a NUL"},
		{"task 0", func(r *api.SubmitRequest) { r.Tasks = api.Tasks{First: 0, Last: 5, Step: 1} }, "0 is an invalid task id"},
		{"tasks", func(r *api.SubmitRequest) { r.Tasks = api.Tasks{First: 5, Last: 2, Step: 1} }, "5-2:1 is not a range of tasks"},
		{"too many tasks", func(r *api.SubmitRequest) { r.Tasks = api.Tasks{First: 1, Last: 99_000_000, Step: 1} }, "more than the largest possible"},
		{"-tc", func(r *api.SubmitRequest) { r.MaxRun = -1 }, "-tc -1 is negative"},
		{"-M", func(r *api.SubmitRequest) { r.MailTo = []string{"bob", "-oQ/tmp"} }, `"-oQ/tmp" is not a mail address`},
		{"many -M", func(r *api.SubmitRequest) { r.MailTo = make([]string, api.MaxWords+1) }, "1001 mail addresses are too many"},
		{"-h", func(r *api.SubmitRequest) { r.Hold = "ux" }, `"ux" is no value of -h`},
		{"-m", func(r *api.SubmitRequest) { r.Mail = "bx" }, `"bx" is no value of -m`},
		{"-w", func(r *api.SubmitRequest) { r.Verify = "x" }, `"x" is no value of -w`},
		{"-c", func(r *api.SubmitRequest) { r.CheckpointWhen = "q" }, `"q" is no value of -c`},
		{"-c without -ckpt", func(r *api.SubmitRequest) { r.CheckpointWhen = "s" }, "checkpointing denied"},
		{"-ckpt that is not there, and -c n", func(r *api.SubmitRequest) { r.Checkpoint, r.CheckpointWhen = "x", "n" }, `the requested checkpointing environment "x" does not exist`},
		{"-hold_jid of a task", func(r *api.SubmitRequest) { r.HoldJobs = []string{"5.3"} }, `denied: job "5.3" not found`},
		{"many -hold_jid", func(r *api.SubmitRequest) { r.HoldJobs = make([]string, api.MaxWords+1) }, "it waits for 1001 jobs"},
		{"-hold_jid_ad", func(r *api.SubmitRequest) { r.HoldArray = []string{"5"} }, `Can only specify "-hold_jid_ad" option with an array job (using "-t" option)`},
		{"-binding", func(r *api.SubmitRequest) { r.Binding = "round" }, `"round" is no value of -binding`},
		{"-r", func(r *api.SubmitRequest) { r.Rerun = "x" }, `"x" is no value of -r`},
		{"-A for a terminal", func(r *api.SubmitRequest) { r.Account = "\x1b[2J" }, `"\x1b[2J" is not an account string`},
		{"-ac with a bidirectional mark", func(r *api.SubmitRequest) { r.Context = []string{"a=\u202e"} }, `"a=\u202e" is not a context variable`},
		{"-q with a bidirectional mark", func(r *api.SubmitRequest) { r.Queues = []string{"a\u2066"} }, `job rejected: "a\u2066" is not text`},
		{"-l for a terminal", func(r *api.SubmitRequest) { r.Hard = []api.Resource{{Name: "arch", Value: "\u009b"}} }, `job rejected: "\u009b" is not text`},
	} {
		req := good()
		tt.change(&req)
		var reply api.SubmitReply
		err := c.Call(t.Context(), api.VerbSubmit, req, &reply)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeRejected || !strings.Contains(e.Text, tt.want) || strings.Contains(e.Text, "\n") {
			t.Errorf("%s: %v; want one line with %q", tt.name, err, tt.want)
		}
	}
	// Not sent: what 64 MB cost as JSON is of no interest here.
	large := good()
	large.Script = make([]byte, api.MaxScript+1)
	if err := admit.Check(&large); err == nil || !strings.Contains(err.Error(), "the script has 67108865 bytes") {
		t.Errorf("script too large: %v", err)
	}
	// Nothing of all that is left, and the next is number 1 or above, in order.
	var jobs api.JobsReply
	if err := c.Call(t.Context(), api.VerbJobs, api.JobsRequest{Users: []string{"*"}}, &jobs); err != nil || len(jobs.Jobs) != 0 {
		t.Errorf("jobs = %+v, %v; want none", jobs.Jobs, err)
	}
	var reply api.SubmitReply
	if err := c.Call(t.Context(), api.VerbSubmit, good(), &reply); err != nil || reply.Job != 1 {
		t.Errorf("submit = %+v, %v; want job 1", reply, err)
	}
}

func TestLimitsAndDenials(t *testing.T) {
	call := func(c *api.Client) *api.Error {
		t.Helper()
		var reply api.SubmitReply
		e, _ := errors.AsType[*api.Error](c.Call(t.Context(), api.VerbSubmit, good(), &reply))
		return e
	}
	root := &conf.Config{Global: conf.Global{MinUID: os.Getuid() + 1}}
	if e := call(serve(t, func(s *Server) { s.OwnerOnly, s.Config = -1, func() *conf.Config { return root } })); e == nil ||
		!strings.Contains(e.Text, "is lower than minimum user id") {
		t.Errorf("min_uid: %v", e)
	}
	other := os.Getuid() + 1
	if e := call(serve(t, func(s *Server) { s.OwnerOnly = other })); e == nil || e.Code != api.CodeDenied {
		t.Errorf("another user's execd: %v; want denied", e)
	}
	few := &conf.Config{Global: conf.Global{MaxUserJobs: 1}}
	c := serve(t, func(s *Server) { s.Config = func() *conf.Config { return few } })
	if e := call(c); e != nil {
		t.Errorf("first job: %v", e)
	}
	if e := call(c); e == nil || e.Code != api.CodeLimit {
		t.Errorf("second job: %v; want the limit", e)
	}
}

func TestNotARequest(t *testing.T) {
	c := serve(t, nil)
	for verb, body := range map[string]any{"nonsense": struct{}{}, "submit": []int{1}, "../v1/jobs": struct{}{}} {
		var reply struct{}
		e, ok := errors.AsType[*api.Error](c.Call(t.Context(), verb, body, &reply))
		if !ok || e.Code != api.CodeBadRequest {
			t.Errorf("%s: %v; want a bad request", verb, e)
		}
	}
}

// A client that waits is answered by a deletion, and told to come again when
// execd stops.
func TestWaitEnds(t *testing.T) {
	c := serve(t, nil)
	var sub api.SubmitReply
	if err := c.Call(t.Context(), api.VerbSubmit, good(), &sub); err != nil {
		t.Fatal(err)
	}
	done := make(chan api.WaitReply, 1)
	go func() {
		var reply api.WaitReply
		if err := c.Call(context.Background(), api.VerbWait, api.WaitRequest{Job: sub.Job, Cursor: sub.Cursor}, &reply); err != nil {
			t.Error(err)
		}
		done <- reply
	}()
	select {
	case r := <-done:
		t.Fatalf("wait = %+v at once; want it to wait", r)
	case <-time.After(50 * time.Millisecond):
	}
	var del api.DeleteReply
	if err := c.Call(t.Context(), api.VerbDelete, api.DeleteRequest{Jobs: []string{"1"}}, &del); err != nil {
		t.Fatal(err)
	}
	if len(del.Lines) != 1 || !strings.HasSuffix(del.Lines[0].Text, "has deleted job 1") {
		t.Errorf("delete = %+v", del)
	}
	if r := <-done; !r.Done || len(r.Ended) != 0 {
		t.Errorf("wait = %+v; want done and nothing ended", r)
	}
}

func TestDetailHidesEnvironment(t *testing.T) {
	var store *job.Store
	c := serve(t, func(s *Server) { store = s.Store })
	owner := &user.User{Name: "other", UID: os.Getuid() + 4242}
	req := good()
	req.Env = []string{"SECRET=1"}
	req.Work = &api.Work{Ad: "Env = \"SECRET=1\"\n", Identity: "i", Holder: "fetch"}
	j, _, err := store.Submit(owner, owner.GID, &req, job.Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	_ = c
	for _, tt := range []struct {
		caller job.Caller
		want   int
	}{
		{job.Caller{UID: owner.UID}, 1},
		{job.Caller{UID: 1, Manager: true}, 1},
		{job.Caller{UID: owner.UID + 1}, 0},
	} {
		d, ok := store.Detail(j, tt.caller, "h", func(*job.Job) []string { return nil })
		if !ok || len(d.Request.Env) != tt.want {
			t.Errorf("detail for %+v = %+v; want %d variables", tt.caller, d, tt.want)
			continue
		}
		if w := d.Request.Work; w == nil || w.Identity != "i" || (w.Ad != "") != (tt.want > 0) {
			t.Errorf("work for %+v = %+v; want the ad only for those who see the environment", tt.caller, w)
		}
	}
	if r, err := store.Request(j); err != nil || len(r.Env) != 1 || r.Work.Ad == "" {
		t.Errorf("the job's own environment is gone: %v, %v", r.Env, err)
	}
}

// Nobody says of his own job that it was fetched, and under which claim.
func TestWorkOfClientsIsDropped(t *testing.T) {
	s := rooted(t, &conf.Config{})
	reply, err := submitAs(t, s, os.Getuid(), func(r *api.SubmitRequest) {
		r.Work = &api.Work{Ad: "Owner = \"root\"\n", Identity: "i", Slot: "1", Claim: "c", Holder: "fetch"}
	})
	if err != nil {
		t.Fatal(err)
	}
	jobs := s.Store.Pending()
	if len(jobs) != 1 {
		t.Fatalf("%d jobs wait; want job %d", len(jobs), reply.Job)
	}
	for _, j := range jobs {
		if j.Source != "" || j.Identity != "" {
			t.Errorf("job %d counts as fetched, with identity %q", j.Number, j.Identity)
		}
		if r, err := s.Store.Request(j); err != nil || r.Work != nil {
			t.Errorf("the record of job %d has work %+v, %v; want none", reply.Job, r.Work, err)
		}
	}
}

func TestLongSocketPath(t *testing.T) {
	_, err := Listen("/tmp/"+strings.Repeat("x", 200), 0o600)
	if err == nil || !strings.Contains(err.Error(), "longer than 107 bytes") {
		t.Errorf("Listen = %v", err)
	}
}
