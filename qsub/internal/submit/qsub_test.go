package submit

import (
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
	"paddock/qsub/internal/qtest"
)

// submitted is the reply to a plain job.
var submitted = api.SubmitReply{Job: 7, Name: "job.sh", Cursor: "c0"}

// submit calls qsub and returns what execd got.
func submit(t *testing.T, e *qtest.Execd, stdin string, args ...string) api.SubmitRequest {
	t.Helper()
	got := call(t, stdin, append([]string{"qsub"}, args...)...)
	qtest.Want(t, qtest.Result{Out: "Your job 7 (\"job.sh\") has been submitted\n"}, got)
	return qtest.Last[api.SubmitRequest](t, e, api.VerbSubmit)
}

func TestSubmitRequest(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSubmit, submitted)
	const script = "#!/bin/sh\ntrue\n"
	qtest.Write(t, "job.sh", script)
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		stdin string
		args  []string
		want  api.SubmitRequest
	}{
		{"", []string{"job.sh"}, api.SubmitRequest{Name: "job.sh", Command: "job.sh", Script: []byte(script)}},
		{"", []string{"./job.sh", "-N", "", "a\nb"}, api.SubmitRequest{Name: "job.sh", Command: "./job.sh", Script: []byte(script), Args: []string{"-N", "", "a\nb"}}},
		{"true", nil, api.SubmitRequest{Name: "STDIN", Command: "STDIN", Script: []byte("true")}},
		{"true", []string{"-", "x"}, api.SubmitRequest{Name: "STDIN", Command: "STDIN", Script: []byte("true"), Args: []string{"x"}}},
		{"", []string{"-cwd", "--j", "y", "-N", "-x", "job.sh"}, api.SubmitRequest{Name: "-x", Cwd: cwd, Merge: true, Command: "job.sh", Script: []byte(script)}},
		{"", []string{"-b", "y", "-shell", "n", "/bin/echo", "a b"}, api.SubmitRequest{Name: "echo", Command: "/bin/echo", Args: []string{"a b"}, Binary: true, NoShell: true}},
		{"", []string{"-b", "YES", "--", "-x"}, api.SubmitRequest{Name: "-x", Command: "-x", Binary: true}},
		{"", []string{"-b", "y", "/bin/ls -l /tmp"}, api.SubmitRequest{Name: "ls", Command: "/bin/ls -l /tmp", Binary: true}},
		{"", []string{"-o", "a", "-o", "/b:c", "-e", "$HOME/e", "-i", "in", "-S", "/bin/bash", "-A", "acct", "-r", "n", "-t", "2-10:4", "-tc", "3", "job.sh"}, api.SubmitRequest{
			Name: "job.sh", Command: "job.sh", Script: []byte(script), Stdout: "/b:c", Stderr: "$HOME/e", Stdin: "in", Shell: "/bin/bash",
			Account: "acct", Rerun: api.RerunNo, Tasks: api.Tasks{First: 2, Last: 10, Step: 4}, MaxRun: 3,
		}},
		{"", []string{"-wd", "sub", "-r", "y", "-t", "5", "job.sh"}, api.SubmitRequest{
			Name: "job.sh", Command: "job.sh", Script: []byte(script), Cwd: cwd + "/sub", Rerun: api.RerunYes, Tasks: api.Tasks{First: 5, Last: 5, Step: 1},
		}},
		{"", []string{"-wd", "~/x", "job.sh"}, api.SubmitRequest{Name: "job.sh", Command: "job.sh", Script: []byte(script), Cwd: "~/x"}},
		{"", []string{"-cwd", "-N", "gone", "-v", "A=1", "-clear", "-j", "y", "job.sh"}, api.SubmitRequest{Name: "job.sh", Command: "job.sh", Script: []byte(script), Merge: true}},
		{"#$ -N fromscript -cwd\n#$ -b n", []string{"-N", "cmdline"}, api.SubmitRequest{Name: "cmdline", Cwd: cwd, Command: "STDIN", Script: []byte("#$ -N fromscript -cwd\n#$ -b n")}},
		{"#% -N other\n#$ -N no", []string{"-C", "#%"}, api.SubmitRequest{Name: "other", Command: "STDIN", Script: []byte("#% -N other\n#$ -N no")}},
		{"#$ -nonsense", []string{"-C", ""}, api.SubmitRequest{Name: "STDIN", Command: "STDIN", Script: []byte("#$ -nonsense")}},
		{"#$ -notify\ntrue", nil, api.SubmitRequest{Name: "STDIN", Notify: true, Command: "STDIN", Script: []byte("#$ -notify\ntrue")}},
		{"#$ -N x\n#$ -clear -j y", []string{"-A", "kept"}, api.SubmitRequest{Name: "STDIN", Account: "kept", Merge: true, Command: "STDIN", Script: []byte("#$ -N x\n#$ -clear -j y")}},
	} {
		got := submit(t, e, test.stdin, test.args...)
		if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(api.SubmitRequest{}, "Origin")); diff != "" {
			t.Errorf("qsub %q (-want +got):\n%s", test.args, diff)
		}
	}
}

func TestEnvironment(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSubmit, submitted)
	t.Setenv("NL", "a\nb")
	t.Setenv("BYTES", "Gr\xfc\xdfe")
	t.Setenv("EQ", "a=b=c")
	t.Setenv("BASH_FUNC_f%%", "() { :; }")
	for _, test := range []struct {
		list []string
		want []string
	}{
		{[]string{"NL,BYTES,EQ"}, []string{"NL=a\nb", "BYTES=Gr\xfc\xdfe", "EQ=a=b=c"}},
		{[]string{"A=1,B=,NOT_SET_ANYWHERE"}, []string{"A=1", "B=", "NOT_SET_ANYWHERE="}},
		{[]string{`A="x,y",B='1,2',C`}, []string{`A="x,y"`, "B='1,2'", "C="}},
		{[]string{"A=it's,B=1"}, []string{"A=it's,B=1"}},
		{[]string{"A=1", "B=2", "A=3"}, []string{"A=3", "B=2"}},
		{[]string{"A= x ,,B=x;y"}, []string{"A= x ", "B=x;y"}},
		{[]string{"EQ=x,EQ"}, []string{"EQ=a=b=c"}},
	} {
		var args []string
		for _, v := range test.list {
			args = append(args, "-v", v)
		}
		got := submit(t, e, "true", args...)
		if diff := cmp.Diff(test.want, got.Env); diff != "" {
			t.Errorf("-v %q (-want +got):\n%s", test.list, diff)
		}
	}
	// -V takes all, -v is stronger wherever it stands.
	for _, args := range [][]string{{"-V", "-v", "EQ=mine,NEW=1"}, {"-v", "EQ=mine,NEW=1", "-V"}} {
		got := submit(t, e, "true", args...).Env
		var some []string
		for _, v := range got {
			switch name, _, _ := strings.Cut(v, "="); name {
			case "NL", "BYTES", "EQ", "NEW", "BASH_FUNC_f%%":
				some = append(some, v)
			}
		}
		wanted := []string{"NL=a\nb", "BYTES=Gr\xfc\xdfe", "BASH_FUNC_f%%=() { :; }", "EQ=mine", "NEW=1"}
		if diff := cmp.Diff(wanted, some, cmpopts.SortSlices(strings.Compare)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", args, diff)
		}
		if len(got) < len(os.Environ()) {
			t.Errorf("%q: %d variables; want at least the caller's %d", args, len(got), len(os.Environ()))
		}
	}
	qtest.Want(t, qtest.Result{Exit: 7, Err: "qsub: Wrong variable list format -v \"=x\" or environment variable not set\n"}, call(t, "true", "qsub", "-v", "=x"))
}

func TestOrigin(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSubmit, submitted)
	for _, v := range []string{"LOGNAME=alice", "PATH=/bin", "SHELL=/bin/zsh", "MAIL=/var/mail/alice", "TERM=xterm"} {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	cwd, _ := os.Getwd()
	wanted := []string{
		"TERM=", "SGE_O_HOME=" + os.Getenv("HOME"), "SGE_O_LOGNAME=alice", "SGE_O_PATH=/bin", "SGE_O_SHELL=/bin/zsh",
		"SGE_O_MAIL=/var/mail/alice", "SGE_O_HOST=" + host, "SGE_O_WORKDIR=" + cwd, "SGE_O_TZ=UTC",
	}
	if diff := cmp.Diff(wanted, submit(t, e, "true").Origin); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range []string{"HOME", "LOGNAME", "PATH", "SHELL", "MAIL", "TZ"} {
		os.Unsetenv(name) // restored by t.Setenv
	}
	if diff := cmp.Diff([]string{"TERM=", "SGE_O_HOST=" + host, "SGE_O_WORKDIR=" + cwd}, submit(t, e, "true").Origin); diff != "" {
		t.Errorf("without environment (-want +got):\n%s", diff)
	}
}

func TestDefaultsFiles(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSubmit, submitted)
	root := t.TempDir()
	if err := os.MkdirAll(root+"/default/common", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SGE_ROOT", root)
	home := os.Getenv("HOME")
	qtest.Write(t, root+"/default/common/sge_request", "# the cluster's\n-A cluster -S /cluster -o /cluster -N cluster -v A=1\n")
	qtest.Write(t, e.Dir+"/etc/sge_request", "-S /host -o /host -N host\n")
	qtest.Write(t, home+"/.sge_request", "-o '/ho me' -N home -nostdin -display :0 -v B=2\n")
	qtest.Write(t, ".sge_request", "-N cwd\n")
	check := func(stdin string, wanted api.SubmitRequest, args ...string) {
		t.Helper()
		got := submit(t, e, stdin, args...)
		if diff := cmp.Diff(wanted, got, cmpopts.IgnoreFields(api.SubmitRequest{}, "Origin", "Script", "Command")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	env := []string{"A=1", "B=2"}
	check("true", api.SubmitRequest{Account: "cluster", Shell: "/host", Stdout: "/ho me", Name: "cwd", Env: env})
	check("#$ -N script", api.SubmitRequest{Account: "cluster", Shell: "/host", Stdout: "/ho me", Name: "script", Env: env})
	check("#$ -N script", api.SubmitRequest{Account: "cluster", Shell: "/host", Stdout: "/ho me", Name: "line", Env: env}, "-N", "line")
	check("#$ -clear -N script", api.SubmitRequest{Name: "script"})
	check("#$ -N script", api.SubmitRequest{Name: "STDIN"}, "-clear")

	// The home directory's file is not read twice.
	t.Chdir(home)
	qtest.Write(t, home+"/.sge_request", "-v B=2\n-t 1-2\n")
	check("true", api.SubmitRequest{Account: "cluster", Shell: "/host", Stdout: "/host", Name: "host", Env: env, Tasks: api.Tasks{First: 1, Last: 2, Step: 1}})

	// Errors name file and line.
	for text, wanted := range map[string]qtest.Result{
		"\n-badopt\n":  {Exit: 2, Err: home + "/.sge_request:2: invalid option argument \"-badopt\"\nType \"qsub -help\" for the options.\n"},
		"-js 1":        {Exit: 2, Err: home + "/.sge_request:1: option -js is not supported: there is no share tree; see -p\n"},
		"-cwd word":    {Exit: 5, Err: home + "/.sge_request:1: Unknown option \"word\"\n"},
		"-N\njob":      {Exit: 2, Err: home + "/.sge_request:1: -N option must have argument\n"},
		"-cwd\n-N 'a":  {Exit: 7, Err: home + "/.sge_request:2: unmatched '\n"},
		"-help":        {Exit: 5, Err: home + "/.sge_request:1: -help not allowed in this context\n"},
		"# c\n-sync q": {Exit: 7, Err: home + "/.sge_request:2: invalid option argument \"-sync q\"\n"},
		"-@ /no/such":  {Exit: 2, Err: home + "/.sge_request:1: cannot read option file /no/such: No such file or directory\n"},
	} {
		qtest.Write(t, home+"/.sge_request", text)
		wanted.Err = "qsub: " + wanted.Err
		qtest.Want(t, wanted, call(t, "true", "qsub"))
	}
	// What others can write is not obeyed, wherever they can.
	for path, why := range map[string]string{
		home: "its directory may be written by others (mode 0757)", home + "/.sge_request": "it may be written by others (mode 0646)",
	} {
		qtest.Write(t, home+"/.sge_request", "-N evil")
		info, err := os.Stat(path)
		if err == nil {
			err = os.Chmod(path, info.Mode().Perm()|0o002)
		}
		if err != nil {
			t.Fatal(err)
		}
		got := call(t, "true", "qsub")
		if got.Err != "qsub: warning: defaults file "+home+"/.sge_request is not read: "+why+"\n" || got.Exit != 0 {
			t.Errorf("%s: got %+v", path, got)
		}
		if err := os.Chmod(path, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(home + "/.sge_request"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(home+"/.sge_request", 0o755); err != nil {
		t.Fatal(err)
	}
	qtest.Want(t, qtest.Result{Exit: 1, Err: "qsub: cannot read defaults file " + home + "/.sge_request: Is a directory\n"}, call(t, "true", "qsub"))
}

func TestOptionFile(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSubmit, submitted)
	qtest.Write(t, "opts", "# options\n-N 'a b' -v A=at # rest\n-@ more\n")
	qtest.Write(t, "more", "-v B=2\n")
	got := submit(t, e, "#$ -@ more\n", "-N", "first", "-@", "opts")
	if got.Name != "a b" || !cmp.Equal(got.Env, []string{"B=2", "A=at"}) {
		t.Errorf("got name %q, env %q", got.Name, got.Env)
	}
	qtest.Write(t, "loop", "-@ loop\n")
	qtest.Want(t, qtest.Result{Exit: 7, Err: "qsub: loop:1: option files include each other more than 10 deep\n"}, call(t, "true", "qsub", "-@", "loop"))
	qtest.Write(t, "bad", "-N x\nword\n")
	qtest.Want(t, qtest.Result{Exit: 5, Err: "qsub: bad:2: Unknown option \"word\"\n"}, call(t, "true", "qsub", "-@", "bad"))
}

func TestSubmitReplies(t *testing.T) {
	e := qtest.NewExecd(t)
	array := api.SubmitReply{Job: 121, Name: "arr", Tasks: api.Tasks{First: 3, Last: 7, Step: 2}}
	for _, test := range []struct {
		reply any
		args  []string
		want  qtest.Result
	}{
		{api.SubmitReply{Job: 120, Name: "spooltest"}, nil, qtest.Result{Out: "Your job 120 (\"spooltest\") has been submitted\n"}},
		{array, nil, qtest.Result{Out: "Your job-array 121.3-7:2 (\"arr\") has been submitted\n"}},
		{api.SubmitReply{Job: 97}, []string{"-terse"}, qtest.Result{Out: "97\n"}},
		{array, []string{"-terse"}, qtest.Result{Out: "121.3-7:2\n"}},
		{api.Errorf(api.CodeRejected, "job rejected: no"), nil, qtest.Result{Exit: 1, Err: "Unable to run job: job rejected: no\nExiting.\n"}},
		{api.Errorf(api.CodeLimit, "too many"), nil, qtest.Result{Exit: 25, Err: "Unable to run job: too many\nExiting.\n"}},
		{api.Errorf(api.CodeInternal, "disk full"), nil, qtest.Result{Exit: 1, Err: "Unable to run job: disk full\nExiting.\n"}},
	} {
		e.Replies(api.VerbSubmit, test.reply)
		qtest.Want(t, test.want, call(t, "true", append([]string{"qsub"}, test.args...)...))
	}
	// An answer that is none, and a connection that breaks.
	e.On(api.VerbSubmit, nil)
	qtest.Want(t, qtest.Result{Exit: 1, Err: "Unable to run job: execd at " + e.Dir + "/execd.sock answered 404 Not Found\nExiting.\n"}, call(t, "true", "qsub"))
	e.On(api.VerbSubmit, func([]byte) (int, any) { panic(http.ErrAbortHandler) })
	qtest.Want(t, qtest.Result{Exit: 1, Err: "Unable to run job: cannot reach execd at " + e.Dir + "/execd.sock: the connection broke; whether it was submitted is not known, see qstat\nExiting.\n"},
		call(t, "true", "qsub"))
}

func TestClientRefuses(t *testing.T) {
	e := qtest.NewExecd(t)
	e.On(api.VerbSubmit, func([]byte) (int, any) {
		t.Error("a request was sent")
		return 200, submitted
	})
	qtest.Write(t, "job.sh", "true")
	qtest.Write(t, "empty.sh", "")
	qtest.Write(t, "bad.sh", "true\n#$ -badopt\n")
	qtest.Write(t, "cdw.sh", "#$ -cdw\n")
	if err := os.Mkdir("dir", 0o755); err != nil {
		t.Fatal(err)
	}
	qtest.Write(t, "big.sh", "")
	if err := os.Truncate("big.sh", api.MaxScript+1); err != nil {
		t.Fatal(err)
	}
	const hint = "Type \"qsub -help\" for the options.\n"
	const exiting = "\nExiting.\n"
	for _, test := range []struct {
		args []string
		exit int
		err  string
	}{
		{[]string{"-badopt"}, 2, "qsub: invalid option argument \"-badopt\"\n" + hint},
		{[]string{"-teres", "job.sh"}, 2, "qsub: invalid option argument \"-teres\"\nDid you mean -terse? " + hint},
		{[]string{"-x", "job.sh"}, 2, "qsub: invalid option argument \"-x\"\n" + hint},
		{[]string{"-nostdin", "job.sh"}, 2, "qsub: invalid option argument \"-nostdin\"\n" + hint},
		{[]string{"-N"}, 2, "qsub: -N option must have argument\n"},
		{[]string{"-v"}, 2, "qsub: -v option must have variable list argument\n"},
		{[]string{"-sync", "maybe", "job.sh"}, 7, "qsub: invalid option argument \"-sync maybe\"\n"},
		{[]string{"-b", "y"}, 2, "qsub: command required for a binary job\n"},
		{[]string{"nofile.sh"}, 14, "Unable to read script file because of error: error opening nofile.sh: No such file or directory\n"},
		{[]string{"job.sh/x"}, 14, "Unable to read script file because of error: error opening job.sh/x: Not a directory\n"},
		{[]string{""}, 14, "Unable to read script file because of error: error opening : No such file or directory\n"},
		{[]string{"dir"}, 4, "Unable to read script file because of error: error reading from file dir: Is a directory\n"},
		{[]string{"empty.sh"}, 1, "Unable to run job: job rejected: no script in your request" + exiting},
		{nil, 4, "Unable to read script file because of error: no input read from stdin\n"},
		{[]string{"big.sh"}, 1, "Unable to run job: job rejected: the script has more than 64 MB" + exiting},
		{[]string{"bad.sh"}, 2, "qsub: bad.sh:2: invalid option argument \"-badopt\"\n" + hint},
		{[]string{"cdw.sh"}, 2, "qsub: cdw.sh:1: invalid option argument \"-cdw\"\nDid you mean -cwd? " + hint},
		{[]string{"-N", "a/b", "job.sh"}, 2, "qsub: argument to -N option must not contain / \n"},
		{[]string{"-N", "a:b", "job.sh"}, 1, "Unable to run job: Colon (':') not allowed in objectname" + exiting},
		{[]string{"-N", "a\x1b\nb", "job.sh"}, 1, "Unable to run job: Return not allowed in objectname" + exiting},
		{[]string{"-N", "", "job.sh"}, 1, "Unable to run job: job rejected cause there is no job_name in the request" + exiting},
		{[]string{"-N", strings.Repeat("x", 10240), "job.sh"}, 1, "Unable to run job: job name too long, maximum allowed length is 512 characters" + exiting},
		{[]string{"-b", "y", "/bin/1st"}, 1, "Unable to run job: denied: \"1st\" is not a valid object name (cannot start with a digit)\nIt is called as its command; give it another name: -N job-1st" + exiting},
		{[]string{"-t", "0-5", "job.sh"}, 1, "Unable to run job: job rejected: 0 is an invalid task id" + exiting},
		{[]string{"-t", "5-0", "job.sh"}, 1, "Unable to run job: job rejected: 0 is an invalid task id" + exiting},
		{[]string{"-t", "1-3:0", "job.sh"}, 7, "qsub: Negative or zero step in range is not allowed\n"},
		{[]string{"-t", "1-3,", "job.sh"}, 7, "qsub: Numerical value invalid!\nThe initial portion of string \"\" contains no decimal number\n"},
		{[]string{"-t", "3,0", "job.sh"}, 1, "Unable to run job: job rejected: 0 is an invalid task id" + exiting},
		{[]string{"-t", "a", "job.sh"}, 7, "qsub: Numerical value invalid!\nThe initial portion of string \"a\" contains no decimal number\n"},
		{[]string{"-t", "5-", "job.sh"}, 7, "qsub: Numerical value invalid!\nThe initial portion of string \"\" contains no decimal number\n"},
		{[]string{"-t", "1-99999999999999999999", "job.sh"}, 1, "Unable to run job: The input value for an argument is invalid." + exiting},
		{[]string{"-tc", "-1", "job.sh"}, 7, "qsub: invalid task concurrency number \"-1\". Must be an integer greater or equal to 0.\n"},
		{[]string{"-o", "", "job.sh"}, 7, "qsub: Wrong stdout path list format \"\" specified to -o option\n"},
		{[]string{"-wd", "", "job.sh"}, 7, "qsub: Wrong directory \"\" specified to -wd option\n"},
	} {
		got := call(t, "", append([]string{"qsub"}, test.args...)...)
		if diff := cmp.Diff(qtest.Result{Exit: test.exit, Err: test.err}, got); diff != "" {
			t.Errorf("qsub %.60q (-want +got):\n%s", test.args, diff)
		}
	}
}

func TestOptionsAreApplied(t *testing.T) {
	for _, o := range option.Of(option.Qsub | option.Qrsh | option.Qlogin | option.Qsh) {
		_, ok := apply[o.Name]
		elsewhere := o.Name == "-help" || o.Name == "-version" || o.Name == "-@"
		if ok == (o.Refused || elsewhere) {
			t.Errorf("%s: refused %t, but applied %t", o.Name, o.Refused, ok)
		}
	}
	for name := range apply {
		if _, ok := option.Lookup(option.Qsub|option.Qrsh|option.Qsh, name); !ok {
			t.Errorf("%s is applied, but not in the table", name)
		}
	}
}

func TestSync(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSubmit, submitted)
	first := "Your job 7 (\"job.sh\") has been submitted\n"
	ended := func(e ...api.TaskEnd) api.WaitReply { return api.WaitReply{Ended: e, Done: true} }
	for _, test := range []struct {
		name    string
		replies []any
		want    qtest.Result
	}{
		{"ok", []any{ended(api.TaskEnd{Ran: true})}, qtest.Result{Out: first + "Job 7 exited with exit code 0.\n"}},
		{"code", []any{ended(api.TaskEnd{Ran: true, Exit: 5})}, qtest.Result{Exit: 5, Out: first, Err: "Job 7 exited with exit code 5.\n"}},
		{
			"signal",
			[]any{ended(api.TaskEnd{Ran: true, Exit: 137, Signal: "SIGKILL", Failed: 100, Reason: "deleted by alice"})},
			qtest.Result{Exit: 1, Out: first, Err: "Job 7 exited because of signal SIGKILL\nJob 7 failed: deleted by alice\n"},
		},
		{"never ran", []any{ended(api.TaskEnd{Failed: 1, Reason: "cannot start shepherd"})}, qtest.Result{Exit: 1, Out: first, Err: "Unable to run job 7\nJob 7 failed: cannot start shepherd\n"}},
		{
			"no status",
			[]any{ended(api.TaskEnd{Ran: true, Failed: 19, Reason: "the shepherd died"})},
			qtest.Result{Exit: 1, Out: first, Err: "No information available on job 7's exit status.\nJob 7 failed: the shepherd died\n"},
		},
		{"epilog", []any{ended(api.TaskEnd{Ran: true, Failed: 15, Reason: "epilog exited 1"})}, qtest.Result{Exit: 1, Out: first + "Job 7 exited with exit code 0.\n", Err: "Job 7 failed: epilog exited 1\n"}},
		{"deleted while pending", []any{api.WaitReply{Done: true}}, qtest.Result{Exit: 1, Out: first, Err: "Unable to run job 7\n"}},
		{
			"in error",
			[]any{api.WaitReply{Error: "can't chdir to /x", Ended: []api.TaskEnd{{Failed: 28, Reason: "can't chdir to /x"}}}},
			qtest.Result{Exit: 1, Out: first, Err: "Unable to run job 7\nJob 7 is in error state: can't chdir to /x\n"},
		},
		{"in error later", []any{api.WaitReply{}, api.WaitReply{Error: "no shell"}}, qtest.Result{Exit: 1, Out: first, Err: "Unable to run job 7\nJob 7 is in error state: no shell\n"}},
		{
			"run again",
			[]any{api.WaitReply{Ended: []api.TaskEnd{{Ran: true, Failed: 25, Exit: 99}}}, ended(api.TaskEnd{Ran: true})},
			qtest.Result{Out: first + "Job 7 exited with exit code 0.\n"},
		},
		{"refused", []any{api.Errorf(api.CodeInternal, "no\x1b")}, qtest.Result{Exit: 1, Out: first, Err: "qsub: cannot wait for job 7: no\\x1b\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e.Replies(api.VerbWait, test.replies...)
			qtest.Want(t, test.want, call(t, "true", "qsub", "-sync", "y"))
		})
	}
	e.Replies(api.VerbWait, ended(api.TaskEnd{Ran: true}))
	qtest.Want(t, qtest.Result{Out: "7\n"}, call(t, "true", "qsub", "-sync", "y", "-terse"))
	e.Replies(api.VerbWait, ended(api.TaskEnd{Ran: true, Exit: 5}))
	qtest.Want(t, qtest.Result{Exit: 5, Out: "7\n", Err: "Job 7 exited with exit code 5.\n"}, call(t, "true", "qsub", "-sync", "y", "-terse"))
}

func TestSyncArray(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSubmit, api.SubmitReply{Job: 8, Name: "arr", Tasks: api.Tasks{First: 3, Last: 9, Step: 2}, Cursor: "c0"})
	e.Replies(api.VerbWait,
		api.WaitReply{Cursor: "c1", Ended: []api.TaskEnd{{Task: 3, Ran: true}, {Task: 7, Ran: true, Exit: 4}}},
		api.WaitReply{Cursor: "c2"},
		api.WaitReply{Cursor: "c3", Ended: []api.TaskEnd{{Task: 5, Ran: true, Exit: 9}, {Task: 1000}, {Task: -5}}, Done: true})
	qtest.Want(t, qtest.Result{Exit: 4, Out: "Your job-array 8.3-9:2 (\"arr\") has been submitted\nJob 8.3 exited with exit code 0.\n", Err: "Job 8.7 exited with exit code 4.\nJob 8.5 exited with exit code 9.\nUnable to run 1 tasks of job 8\n"}, call(t, "true", "qsub", "-sync", "y", "-t", "3-9:2"))
	if got := qtest.Last[api.WaitRequest](t, e, api.VerbWait); got != (api.WaitRequest{Job: 8, Cursor: "c2"}) {
		t.Errorf("last wait was %+v; want job 8 from c2", got)
	}
}

// TestSyncOverRestart has execd go away during the wait and come back.
func TestSyncOverRestart(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSubmit, submitted)
	var asked atomic.Int32
	e.On(api.VerbWait, func([]byte) (int, any) {
		if asked.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		return 200, api.WaitReply{Ended: []api.TaskEnd{{Ran: true, Exit: 3}}, Done: true}
	})
	qtest.Want(t, qtest.Result{Exit: 3, Out: "Your job 7 (\"job.sh\") has been submitted\n", Err: "Job 7 exited with exit code 3.\n"}, call(t, "true", "qsub", "-sync", "y"))
	if got := qtest.Last[api.WaitRequest](t, e, api.VerbWait); got != (api.WaitRequest{Job: 7, Cursor: "c0"}) || asked.Load() != 2 {
		t.Errorf("after %d waits the last was %+v; want 2, job 7 from c0", asked.Load(), got)
	}
}

func TestSyncInterrupted(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSubmit, submitted)
	e.Replies(api.VerbDelete, api.DeleteReply{Lines: []api.Line{{Text: "alice has registered the job 7 for deletion"}}})
	release := make(chan struct{})
	defer close(release)
	e.On(api.VerbWait, func([]byte) (int, any) {
		// The command waits now: its handler is in place.
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
		select {
		case <-release:
		case <-time.After(time.Minute):
		}
		return 200, api.WaitReply{}
	})
	qtest.Want(t, qtest.Result{Exit: 1, Out: "Your job 7 (\"job.sh\") has been submitted\n", Err: "\nInterrupted!\nPlease wait while qsub shuts down.\n"}, call(t, "true", "qsub", "-sync", "y"))
	if got := qtest.Last[api.DeleteRequest](t, e, api.VerbDelete); !cmp.Equal(got, api.DeleteRequest{Jobs: []string{"7"}}) {
		t.Errorf("delete request %+v; want job 7", got)
	}
}

// What defaults files say for batch jobs alone keeps no interactive job from its start.
func TestInteractiveDefaults(t *testing.T) {
	e := qtest.NewExecd(t)
	t.Setenv("DISPLAY", ":1")
	e.Replies(api.VerbSubmit, api.Errorf(api.CodeRejected, "refused"))
	qtest.Write(t, ".sge_request", "-t 1-2\n-tc 1\n-h\n-r y\n-c s\n-ckpt x\n-stagein a\n-stageout b\n-stageout_to c\n-when_out always\n")
	for _, command := range []string{"qlogin", "qrsh", "qsh"} {
		call(t, "", command)
		r := qtest.Last[api.SubmitRequest](t, e, api.VerbSubmit)
		want := api.SubmitRequest{Name: r.Name, Command: r.Command, Args: r.Args, Binary: r.Binary, Now: true, Interactive: r.Interactive, Origin: r.Origin, Env: r.Env}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
	}
}

// An interactive job that is interrupted when execd has taken it, and has not yet
// said so, is deleted.
func TestSubmissionInterrupted(t *testing.T) {
	t.Cleanup(func() { signal.Reset(syscall.SIGINT) })
	for _, command := range []string{"qsh", "qrsh"} {
		e := qtest.NewExecd(t)
		t.Setenv("DISPLAY", ":1")
		heard := make(chan os.Signal, 1)
		signal.Notify(heard, syscall.SIGINT)
		e.On(api.VerbSubmit, func([]byte) (int, any) {
			if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
				t.Error(err)
			}
			<-heard
			return 200, submitted
		})
		e.Replies(api.VerbDelete, api.DeleteReply{Lines: []api.Line{{Text: "alice has registered the job 7 for deletion"}}})
		qtest.Want(t, qtest.Result{Exit: 1, Err: "Request for interactive job has been canceled.\n"}, call(t, "", command))
		if got := qtest.Last[api.DeleteRequest](t, e, api.VerbDelete); !cmp.Equal(got, api.DeleteRequest{Jobs: []string{"7"}}) {
			t.Errorf("%s: delete request %+v; want job 7", command, got)
		}
	}
}

func TestScriptFromPipe(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSubmit, submitted)
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		f, err := os.OpenFile("pipe", os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("#$ -j y\n")
			f.Close()
		}
		done <- err
	}()
	got := submit(t, e, "", "pipe")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !got.Merge || string(got.Script) != "#$ -j y\n" {
		t.Errorf("got %+v", got)
	}
}
