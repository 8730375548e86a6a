package submit

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/qsub/internal/qtest"
)

func TestAlter(t *testing.T) {
	e := qtest.NewExecd(t)
	t.Setenv("KEPT", "x")
	requests := qtest.Asked[api.AlterRequest](t, e, api.VerbAlter, api.AlterReply{Lines: []api.Line{{Text: "modified job name of job 1"}}})
	of := func(fields ...api.Field) []api.Field { return fields }
	for _, test := range []struct {
		args []string
		want api.AlterRequest
	}{
		{[]string{"-N", "n", "1"}, api.AlterRequest{Jobs: []string{"1"}, Fields: of("-N"), To: api.SubmitRequest{Name: "n"}}},
		{[]string{"1,2", "-N", "n", "x*"}, api.AlterRequest{Jobs: []string{"1", "2", "x*"}, Fields: of("-N"), To: api.SubmitRequest{Name: "n"}}},
		{[]string{"1"}, api.AlterRequest{Jobs: []string{"1"}}},
		{[]string{"-p", "-1", "1", "-p", "-3"}, api.AlterRequest{Jobs: []string{"1"}, Fields: of("-p"), To: api.SubmitRequest{Priority: -3}}},
		{[]string{"-l", "a=1,b", "-soft", "-l", "c=2", "-q", "s.q", "-hard", "-q", "h.q", "-l", "a=3", "1"}, api.AlterRequest{
			Jobs: []string{"1"}, Fields: of("-l", "-soft -l", "-soft -q", "-q"),
			To: api.SubmitRequest{
				Hard: []api.Resource{{Name: "b", Value: "TRUE"}, {Name: "a", Value: "3"}}, Soft: []api.Resource{{Name: "c", Value: "2"}},
				Queues: []string{"h.q"}, SoftQueues: []string{"s.q"},
			},
		}},
		{[]string{"-j", "n", "-r", "n", "-R", "n", "-notify", "-tc", "0", "1"}, api.AlterRequest{
			Jobs: []string{"1"}, Fields: of("-j", "-r", "-R", "-notify", "-tc"), To: api.SubmitRequest{Rerun: api.RerunNo, Notify: true},
		}},
		{[]string{"-wd", "/d", "-o", "o", "-e", "e", "-i", "i", "-S", "/s", "1"}, api.AlterRequest{
			Jobs: []string{"1"}, Fields: of("-cwd", "-o", "-e", "-i", "-S"),
			To: api.SubmitRequest{Cwd: "/d", Stdout: "o", Stderr: "e", Stdin: "i", Shell: "/s"},
		}},
		{[]string{"-pe", "smp", "2-4", "-masterq", "m.q", "-binding", "linear:1", "-ckpt", "c", "-c", "sx", "1"}, api.AlterRequest{
			Jobs: []string{"1"}, Fields: of("-pe", "-masterq", "-binding", "-ckpt", "-c"),
			To: api.SubmitRequest{
				PE: "smp", Slots: []api.Slots{{Min: 2, Max: 4, Step: 1}}, MasterQueues: []string{"m.q"}, Binding: "linear:1",
				Checkpoint: "c", CheckpointWhen: "sx",
			},
		}},
		{[]string{"-a", "203001020304", "-A", "acc", "-m", "e", "-m", "b", "-M", "a", "-M", "b@c", "1"}, api.AlterRequest{
			Jobs: []string{"1"}, Fields: of("-a", "-A", "-m", "-M"),
			To: api.SubmitRequest{After: time.Date(2030, 1, 2, 3, 4, 0, 0, time.UTC), Account: "acc", Mail: "be", MailTo: []string{"a", "b@c"}},
		}},
		{[]string{"-hold_jid", "1,x", "-hold_jid_ad", "y", "2"}, api.AlterRequest{
			Jobs: []string{"2"}, Fields: of("-hold_jid", "-hold_jid_ad"), To: api.SubmitRequest{HoldJobs: []string{"1", "x"}, HoldArray: []string{"y"}},
		}},
		{[]string{"-v", "A=1,KEPT", "1"}, api.AlterRequest{Jobs: []string{"1"}, Fields: of("-v"), To: api.SubmitRequest{Env: []string{"A=1", "KEPT=x"}}}},
		{[]string{"-ac", "a=1,b", "-dc", "a", "-sc", "c=x=y", "1"}, api.AlterRequest{Jobs: []string{"1"}, Context: []api.ContextChange{
			{Option: "-ac", Variables: []string{"a=1", "b"}}, {Option: "-dc", Variables: []string{"a"}}, {Option: "-sc", Variables: []string{"c=x=y"}},
		}}},
		{[]string{"-h", "u", "-h", "OS", "1.2-3"}, api.AlterRequest{Jobs: []string{"1.2-3"}, Hold: "uOS"}},
		{[]string{"-h", "n", "1", "-t", "2"}, api.AlterRequest{Jobs: []string{"1.2"}, Hold: "n"}},
		{[]string{"-u", "a,b", "-u", "c", "-w", "e"}, api.AlterRequest{Users: []string{"a", "b", "c"}, To: api.SubmitRequest{Verify: "e"}}},
		{[]string{"1", "--", "-N", "", "--"}, api.AlterRequest{Jobs: []string{"1"}, Fields: of("--"), To: api.SubmitRequest{Args: []string{"-N", "", "--"}}}},
	} {
		qtest.Want(t, qtest.Result{Out: "modified job name of job 1\n"}, call(t, "", append([]string{"qalter"}, test.args...)...))
		if diff := cmp.Diff([]api.AlterRequest{test.want}, requests()); diff != "" {
			t.Errorf("qalter %q (-want +got):\n%s", test.args, diff)
		}
	}
	if got := call(t, "", "qalter", "-V", "1"); got.Exit != 0 || !strings.Contains(strings.Join(requests()[0].To.Env, "\n"), "KEPT=x") {
		t.Errorf("qalter -V: %+v", got)
	}
}

// TestAlterRefused has the texts and exit codes of a Grid Engine 8.1.9, but for
// the second lines.
func TestAlterRefused(t *testing.T) {
	qtest.NewExecd(t)
	const (
		hint    = "Type \"qalter -help\" for the options.\n"
		noTasks = "denied: the selected option works only on jobs and not on tasks\n"
	)
	for _, test := range []struct {
		args []string
		exit int
		err  string
	}{
		{[]string{"qalter"}, 1, "ERROR! no option argument\n" + hint},
		{[]string{"qalter", "-N", "x"}, 1, "ERROR! no option argument\n" + hint},
		{[]string{"qalter", "-N"}, 2, "qalter: -N option must have argument\n"},
		{[]string{"qalter", "-N", "a/b", "1"}, 2, "qalter: argument to -N option must not contain / \n"},
		{[]string{"qalter", "-badopt", "1"}, 2, "qalter: invalid option argument \"-badopt\"\n" + hint},
		{[]string{"qalter", "-b", "n", "1"}, 2, "qalter: invalid option argument \"-b\"\n" + hint},
		{[]string{"qalter", "-shell", "n", "1"}, 2, "qalter: invalid option argument \"-shell\"\nDid you mean -help? " + hint},
		{[]string{"qalter", "-now", "y", "1"}, 5, "Unknown option -now y\n\n"},
		{[]string{"qalter", "-clear", "1"}, 5, "Unknown option -clear\n\n"},
		{[]string{"qalter", "-C", "x", "1"}, 5, "Unknown option -C x\n\n"},
		{[]string{"qalter", "-sync", "y", "1"}, 5, "Unknown option -sync y\n\n"},
		{[]string{"qalter", "-terse", "1"}, 5, "Unknown option -terse\n\n"},
		{[]string{"qalter", "-display", "x", "1"}, 5, "Unknown option -display x\n\n"},
		{[]string{"qalter", "-ot", "1", "1"}, 2, "qalter: option -ot is not supported: priorities are not made of override tickets; see -p\n"},
		{[]string{"qalter", "-p", "x", "1"}, 7, "qalter: invalid priority \"x\".  Must be an integer from -1023 to 1024\n"},
		{[]string{"qalter", "-p", "2000", "1"}, 7, "qalter: invalid priority \"2000\".  Must be an integer from -1023 to 1024\n"},
		{[]string{"qalter", "-tc", "-1", "1"}, 7, "qalter: invalid task concurrency number \"-1\". Must be an integer greater or equal to 0.\n"},
		{[]string{"qalter", "-m", "x", "1"}, 7, "qalter: Wrong mail options list format \"x\" specified to -m option\n"},
		{[]string{"qalter", "-M", "", "1"}, 7, "qalter: Wrong mail list format \"\" specified to -M option\n"},
		{[]string{"qalter", "-c", "zz", "1"}, 2, "qalter: -c specifier invalid\n"},
		{[]string{"qalter", "-q", "", "1"}, 7, "qalter: Wrong queue list format \"\" specified to -q option\n"},
		{[]string{"qalter", "-o", "", "1"}, 7, "qalter: Wrong stdout path list format \"\" specified to -o option\n"},
		{[]string{"qalter", "-v", "", "1"}, 7, "qalter: Wrong variable list format -v \"\" or environment variable not set\n"},
		{[]string{"qalter", "-r", "z", "1"}, 7, "qalter: invalid option argument \"-r z\"\n"},
		{[]string{"qalter", "-hold_jid", "", "1"}, 7, "qalter: Wrong jid_hold list format \"\" specified to -hold_jid option\n"},
		{[]string{"qalter", "-h", "x", "1"}, 7, "qalter: Unknown hold list \"x\" specified to -h option\n"},
		{[]string{"qalter", "-h", "1"}, 7, "qalter: Unknown hold list \"1\" specified to -h option\n"},
		{[]string{"qalter", "-ac", "", "1"}, 7, "qalter: Wrong context list format -ac \"\"\n"},
		{[]string{"qalter", "-ac", "=x", "1"}, 7, "qalter: Wrong context list format -ac \"=x\"\n"},
		{[]string{"qalter", "-ac", "a=\xff", "1"}, 7, "qalter: Wrong context list format -ac \"a=\\xff\"\n"},
		{[]string{"qalter", "-sc", "", "1"}, 7, "qalter: Wrong context list format -sc \"\"\n"},
		{[]string{"qalter", "-dc", "", "1"}, 7, "qalter: Wrong context list format -dc \"\"\n"},
		{[]string{"qalter", "-l", "a=", "1"}, 1, "denied: missing value for resource \"a\"\n"},
		{[]string{"qalter", "-binding", "nonsense", "1"}, 2, "qalter: -binding option contains errors: couldn't parse binding parameter (no strategy found)\n"},
		{[]string{"qalter", "1.x"}, 2, "ERROR! \"1.x\" is an invalid job-task identifier\n"},
		{[]string{"qalter", "-N", "x", "1.1"}, 4, noTasks},
		{[]string{"qalter", "-h", "u", "-p", "-1", "1.1"}, 4, noTasks},
		{[]string{"qalter", "-N", "x", "1", "-t", "1"}, 4, noTasks},
		{[]string{"qalter", "-t", "1-3", "1"}, 2, "error: found lonely '-t 1-3' option (The -t option needs a leading job name).\n"},
		{[]string{"qalter", "1", "--"}, 2, "qalter: -- option must be followed by job arguments\n"},
		{[]string{"qresub"}, 1, "ERROR! no option argument\nType \"qresub -help\" for the options.\n"},
		{[]string{"qresub", "-N", "x", "1"}, 5, "Unknown option -N x\n\n"},
		{[]string{"qresub", "-u", "x"}, 5, "Unknown option -u x\n\n"},
		{[]string{"qresub", "-h", "nu", "1"}, 7, "qresub: Unknown hold list \"nu\" specified to -h option\n"},
		{[]string{"qresub", "1.1"}, 4, noTasks},
	} {
		got := call(t, "", test.args...)
		if diff := cmp.Diff(qtest.Result{Exit: test.exit, Err: test.err}, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.args, diff)
		}
	}
}

func TestAlterReplies(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbAlter,
		api.AlterReply{Lines: []api.Line{{Text: "modified\x1b"}, {Text: "denied", Failed: true, Code: api.CodeDenied}}},
		api.Errorf(api.CodeDenied, "denied: you"),
		api.AlterReply{Lines: []api.Line{{Text: "no", Failed: true, Code: api.CodeRejected}}},
	)
	qtest.Want(t, qtest.Result{Exit: 1, Out: "modified\\x1b\ndenied\n"}, call(t, "", "qalter", "-N", "x", "1"))
	qtest.Want(t, qtest.Result{Exit: 1, Out: "denied: you\n"}, call(t, "", "qalter", "-h", "o", "1"))
	qtest.Want(t, qtest.Result{Exit: 1, Out: `{
  "lines": [
    {
      "text": "no",
      "failed": true,
      "code": "rejected"
    }
  ]
}
`}, call(t, "", "qalter", "-json", "-N", "x", "1"))
	e.On(api.VerbAlter, func([]byte) (int, any) {
		return http.StatusInternalServerError, api.Errorf(api.CodeInternal, "no space")
	})
	qtest.Want(t, qtest.Result{Exit: 1, Err: "qalter: no space\n"}, call(t, "", "qalter", "-N", "x", "1"))
	// What -verify would change is asked for first.
	refuse := func(lines ...api.Line) {
		e.On(api.VerbAlter, func(body []byte) (int, any) {
			if !strings.Contains(string(body), `"dry":true`) {
				t.Errorf("-verify alters: %s", body)
			}
			return http.StatusOK, api.AlterReply{Lines: lines}
		})
	}
	refuse(api.Line{Text: "denied: no", Failed: true, Code: api.CodeRejected})
	qtest.Want(t, qtest.Result{Exit: 1, Out: "denied: no\n"}, call(t, "", "qalter", "-verify", "-N", "new", "1"))
	refuse(api.Line{Text: `denied: job "9" does not exist`, Failed: true, Code: api.CodeNotFound})
	e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{{Job: 1, Request: api.SubmitRequest{Name: "old", Context: []string{"a", "b=2"}}}}, Missing: []string{"9"}})
	got := call(t, "", "qalter", "-verify", "-N", "new", "-ac", "c=3", "1", "9")
	if got.Exit != 1 || !strings.Contains(got.Out, "job_name:                   new\n") ||
		!strings.Contains(got.Out, "context:                    a=NONE,b=2,c=3\n") || !strings.Contains(got.Out, "denied: job \"9\" does not exist\n") {
		t.Errorf("qalter -verify: %+v", got)
	}
	refuse()
	e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{{Job: 1, Owner: "me"}, {Job: 2, Owner: "you"}}})
	got = call(t, "", "qalter", "-verify", "-N", "new", "-u", "y*")
	if got.Exit != 0 || strings.Contains(got.Out, "job_number:                 1\n") || !strings.Contains(got.Out, "job_number:                 2\n") {
		t.Errorf("qalter -verify -u: %+v", got)
	}
}

func TestResubmit(t *testing.T) {
	e := qtest.NewExecd(t)
	reply := api.ResubmitReply{Submitted: []api.Resubmitted{
		{From: 1, SubmitReply: api.SubmitReply{Job: 3, Name: "a"}},
		{From: 2, SubmitReply: api.SubmitReply{Job: 4, Name: "b", Tasks: api.Tasks{First: 1, Last: 4, Step: 1}}},
	}}
	requests := qtest.Asked[api.ResubmitRequest](t, e, api.VerbResubmit, &reply)
	const both = "Your job 3 (\"a\") has been submitted\nYour job-array 4.1-4:1 (\"b\") has been submitted\n"
	qtest.Want(t, qtest.Result{Out: both}, call(t, "", "qresub", "-h", "u", "1,2"))
	if diff := cmp.Diff([]api.ResubmitRequest{{Jobs: []string{"1", "2"}, Hold: "u"}}, requests()); diff != "" {
		t.Error(diff)
	}
	failed := api.ResubmitReply{Submitted: reply.Submitted, Failed: api.Errorf(api.CodeLimit, "job rejected: only 2 jobs are allowed per cluster")}
	qtest.Asked[api.ResubmitRequest](t, e, api.VerbResubmit, &failed)
	qtest.Want(t, qtest.Result{Exit: 4, Out: both + "job rejected: only 2 jobs are allowed per cluster\n"}, call(t, "", "qresub", "1", "2", "5"))
	got := call(t, "", "qresub", "-json", "1", "2", "5")
	if got.Exit != 4 || !strings.Contains(got.Out, `"from": 2`) || !strings.Contains(got.Out, `"text": "job rejected: only`) {
		t.Errorf("qresub -json: %+v", got)
	}
	e.Replies(api.VerbResubmit,
		api.Errorf(api.CodeDenied, `denied: "u" must be operator to set operator hold`),
		api.Errorf(api.CodeNotFound, `job "9" does not exist`))
	qtest.Want(t, qtest.Result{Exit: 10, Out: "denied: \"u\" must be operator to set operator hold\n"}, call(t, "", "qresub", "-h", "o", "1"))
	qtest.Want(t, qtest.Result{Exit: 4, Out: "job \"9\" does not exist\n"}, call(t, "", "qresub", "9"))
}

// The context that qsub makes of its options, and how it is shown.
func TestContext(t *testing.T) {
	e := qtest.NewExecd(t)
	for _, test := range []struct{ args, want string }{
		{"-ac a=1", "a=1"},
		{"-ac k=v,l,m -ac k=w -ac l=2,n", "k=w,l=2,m=NONE,n=NONE"},
		{"-ac k=v -sc a,b=,c=x=y -dc b", "a=NONE,c=x=y"},
		{"-sc q -ac r=1 -dc q,zz", "r=1"},
		{"-ac r=1 -dc r=5", ""},
	} {
		got := call(t, "", append(append([]string{"qsub", "-verify", "-b", "y"}, strings.Fields(test.args)...), "true")...)
		shown := ""
		for line := range strings.Lines(got.Out) {
			if text, ok := strings.CutPrefix(line, "context:"); ok {
				shown = strings.TrimSpace(text)
			}
		}
		if got.Exit != 0 || shown != test.want {
			t.Errorf("qsub %s: %+v; want the context %s", test.args, got, test.want)
		}
	}
	requests := qtest.Asked[api.SubmitRequest](t, e, api.VerbSubmit, api.SubmitReply{Job: 1, Name: "true"})
	call(t, "", "qsub", "-b", "y", "-ac", "a=1,b", "true")
	if diff := cmp.Diff([]string{"a=1", "b"}, requests()[0].Context); diff != "" {
		t.Error(diff)
	}
	qtest.Want(t, qtest.Result{Exit: 7, Err: "qsub: Wrong context list format -ac \"=x\"\n"}, call(t, "", "qsub", "-ac", "=x", "-b", "y", "true"))
}
