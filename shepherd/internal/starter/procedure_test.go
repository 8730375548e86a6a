package starter

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// view is what a program says of itself, one fact a line.
const view = `grep -e '^[UG]id:' -e '^Groups:' -e '^CapEff:' -e '^SigIgn:' -e '^SigBlk:' /proc/self/status
echo "pwd $(pwd -P)"
echo "stdin $(readlink /proc/self/fd/0)"
echo "args $#:$0:$*"
echo "umask $(umask)"
echo "limits $(ulimit -v) $(ulimit -Hn) $(ulimit -c)"
echo "nice $(cut -d' ' -f19 /proc/self/stat)"
`

// TestProcedure runs each procedure as the owner and compares its trace with
// Grid Engine's.
func TestProcedure(t *testing.T) {
	for _, c := range []struct {
		kind     Kind
		name     string
		out, err string
	}{
		{Prolog, "prolog", "test.o1", "test.e1"},
		{PEStart, "pe_start", "test.po1", "test.pe1"},
		{PEStop, "pe_stop", "test.po1", "test.pe1"},
		{Epilog, "epilog", "test.o1", "test.e1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			out := r.base + "/out"
			r.set("stdout_path="+out, "stderr_path="+out, "pe_stdout_path="+out, "pe_stderr_path="+out+"/", "add_grp_id=54398",
				"h_vmem=2G", "h_descriptors=300", "s_core=0", "h_core=0", "priority=3", "min_uid=99999", "stdin_path=/etc/passwd")
			// What the procedures of a job need not have.
			r.without("shell_path", "script_file", "shell_start_mode", "njob_args", "starter_method", "stdin_path")
			path := r.script(view + `echo "$SGE_STDIN_PATH $SGE_STDOUT_PATH $SGE_STDERR_PATH $SGE_CWD_PATH $MINE $EXTRA"; echo to stderr >&2`)
			e := r.ran(Order{Kind: c.kind, Name: c.name, Argv: []string{path, "a", "*"}, Env: []string{"EXTRA=more"}})
			r.lines(
				r.read("out/"+c.out),
				"Uid:\t54321\t54321\t54321\t54321", "Gid:\t54322\t54322\t54322\t54322", "Groups:\t54322 54323 ",
				"CapEff:\t0000000000000000", "SigIgn:\t0000000000000000", "SigBlk:\t0000000000000000",
				"pwd "+out, "stdin /dev/null", "args 2:"+path+":a *", "umask 0022", "limits 2097152 300 0", "nice 3",
				"/dev/null "+out+"/"+c.out+" "+out+"/"+c.err+" "+out+" yes more",
			)
			if got := r.read("out/" + c.err); got != "to stderr\n" {
				t.Errorf("stderr %q", got)
			}
			if st, err := os.Stat(out + "/" + c.out); err != nil || st.Sys().(*syscall.Stat_t).Uid != 54321 || st.Mode() != 0o644 {
				t.Errorf("output: %v, %v; want the owner's, 0644", st, err)
			}
			want := []string{
				"[0] child: starting son(" + c.name + ", " + path + " a *, 0, 10000);",
				"[0] pid=P pgrp=P sid=P old pgrp=O getlogin()=<no login set>",
				"[0] reading passwd information for user 'owner'",
				"[0] setting environment",
				"[0] Initializing error file",
				"[0] switching to intermediate/target user",
				"[0] setting additional gid=0",
				"[54321] closing all filedescriptors",
				`[54321] further messages are in "error" and "trace"`,
				`[54321] using "/bin/dash" as shell of user "owner"`,
				"[54321] setting limits",
				"[54321] now running with uid=54321, euid=54321",
				"[54321] execvlp(" + path + `, "` + path + `" "a" "*")`,
			}
			if got := texts(t, e.trace); !slices.Equal(got, want) {
				t.Errorf("trace\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func TestProcedureMerged(t *testing.T) {
	r := newRig(t).set("merge_stderr=1", "stderr_path=/no/where", "pe_stdout_path=/dev/null", "pe_stderr_path=/no/where")
	path := r.script("echo out; echo err >&2; echo $SGE_STDERR_PATH")
	e := r.ran(Order{Kind: Epilog, Name: "epilog", Argv: []string{path}})
	if got, want := r.read("out/o"), "out\nerr\n"+r.base+"/out/o\n"; got != want {
		t.Errorf("stdout %q; want %q", got, want)
	}
	if !strings.Contains(e.trace, "using stdout as stderr") {
		t.Errorf("trace lacks that stderr is merged:\n%s", e.trace)
	}
	r.ran(Order{Kind: PEStop, Name: "pe_stop", Argv: []string{path}})
}

// TestProcedureOtherUser runs procedures as the user of `user@command`: with
// that one's groups, and output that the owner must be able to open.
func TestProcedureOtherUser(t *testing.T) {
	r := newRig(t)
	path := r.script(view)
	e := r.ran(Order{Kind: Prolog, Name: "prolog", User: "site", Argv: []string{path, "x"}})
	r.lines(
		r.read("out/o"),
		"Uid:\t54401\t54401\t54401\t54401", "Gid:\t54402\t54402\t54402\t54402", "Groups:\t54402 54403 54404 ",
		"CapEff:\t0000000000000000", "pwd "+r.base+"/out", "args 1:"+path+":x",
	)
	for _, name := range []string{"o", "e"} {
		if st, err := os.Stat(r.base + "/out/" + name); err != nil || st.Sys().(*syscall.Stat_t).Uid != 54321 {
			t.Errorf("%s: %v, %v; want the owner's", name, st, err)
		}
	}
	got := texts(t, e.trace)
	for _, want := range []string{
		"[0] reading passwd information for user 'site'",
		"[54321] closing all filedescriptors",
		`[54321] using "/bin/ksh" as shell of user "site"`,
		"[54401] now running with uid=54401, euid=54401",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("trace lacks %q:\n%s", want, e.trace)
		}
	}
	// A script that the owner can neither see nor execute.
	if err := os.Chown(path, 54401, 54402); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	r.ran(Order{Kind: Prolog, Name: "prolog", User: "site", Argv: []string{path}})

	r = newRig(t)
	r.ran(Order{Kind: Epilog, Name: "epilog", User: "root", Argv: []string{r.script(view)}})
	r.lines(r.read("out/o"), "Uid:\t0\t0\t0\t0", "Gid:\t0\t0\t0\t0", "Groups:\t0 ", "pwd "+r.base+"/out", "stdin /dev/null")
}

// TestOpenedAsOwner sees that no procedure opens, creates or enters for the
// owner what he could not himself.
func TestOpenedAsOwner(t *testing.T) {
	r := newRig(t)
	path := r.script("exit 0")
	secret := r.file("secret", "", 0o600)
	dir := r.base + "/closed"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"", "root", "site"} {
		for _, c := range []struct {
			set    string
			kind   Kind
			number int
			text   string
		}{
			{"stdout_path=" + secret, Prolog, 26, `error: can't open output file "` + secret + `": Permission denied`},
			{"stderr_path=" + secret, Epilog, 26, `error: can't open output file "` + secret + `": Permission denied`},
			{"stdout_path=" + dir, Prolog, 26, `error: can't open output file "` + dir + `/test.o1": Permission denied`},
			{"pe_stdout_path=" + secret, PEStart, 26, `error: can't open output file "` + secret + `": Permission denied`},
			{"cwd=" + dir, Prolog, 28, "error: can't chdir to " + dir + ": Permission denied"},
		} {
			e := newRig(t).set("pe_stdout_path=/dev/null", "pe_stderr_path=/dev/null", c.set).refused(Order{Kind: c.kind, Name: "it", User: user, Argv: []string{path}}, c.number, c.text)
			if e.fail != nil && e.fail.EUID != 54321 {
				t.Errorf("%s as %q: failed with euid %d; want the owner's", c.set, user, e.fail.EUID)
			}
		}
	}
	// Nor through a link, nor by appending to what is there.
	if err := os.Symlink(secret, r.base+"/out/o"); err != nil {
		t.Fatal(err)
	}
	r.refused(Order{Kind: Prolog, Name: "prolog", User: "root", Argv: []string{path}}, 26,
		`error: can't open output file "`+r.base+`/out/o": Permission denied`)
}

// TestPriority has a shepherd that is nice itself run what the queue has no nice value for.
func TestPriority(t *testing.T) {
	r := newRig(t)
	r.set("stdout_path="+r.base+"/out", "merge_stderr=1", "priority=0")
	r.before = func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, 5) }
	r.ran(Order{Kind: Prolog, Name: "prolog", Argv: []string{r.script(view)}})
	if got := r.read("out/test.o1"); !strings.Contains(got, "\nnice 0\n") {
		t.Errorf("got %q; want the nice value of the queue, not of who started the shepherd", got)
	}
}

// TestSmallLimits gives procedures less than Go takes at its start: from the
// first limit to exec nothing may be allocated.
func TestSmallLimits(t *testing.T) {
	r := newRig(t).set("h_vmem=20M", "h_data=10M", "h_maxproc=20", "h_fsize=1")
	for i := range 20 { // an environment that makes Go's heap grow
		r.env = append(r.env, "V"+strconv.Itoa(i)+"="+strings.Repeat("y", 50000))
	}
	long := strings.Repeat("x", 9000)
	for _, user := range []string{"", "site", "root"} {
		r.ran(Order{Kind: Prolog, Name: "prolog", User: user, Argv: []string{r.script("ulimit -v; echo ${#1}"), long}})
		want := "20480\n9000\n"
		if user != "" { // the owner's limits are not to hinder anybody else
			want = "unlimited\n9000\n"
		}
		if got := r.read("out/o"); !strings.HasSuffix(got, want) {
			t.Errorf("as %q: %q; want %q at its end", user, got, want)
		}
		e := r.run(Order{Kind: Prolog, Name: "prolog", User: user, Argv: []string{"/bin", long}})
		if e.fail == nil || e.fail.Number != 7 || !strings.HasPrefix(e.fail.Text, `execvlp(/bin, "/bin" "xxx`) {
			t.Errorf("as %q: %.80v, %v; want a failure to execute", user, e.fail, e.status)
		}
	}
	r.ran(Order{Kind: Method, Name: "m", Argv: []string{"exit 0; " + long}})
}

func TestProcedureRefused(t *testing.T) {
	r := newRig(t)
	data := r.file("data", "", 0o644)
	script := func(name, first string, mode os.FileMode) (path, cannot string) {
		path = r.file(name, first, mode)
		return path, `execvlp(` + path + `, "` + path + `") failed: `
	}
	gone, cannotGone := script("gone", "#! \t/no/such -x\ntrue\n", 0o755)
	dos, cannotDos := script("dos", "#!/bin/sh\r\n", 0o755)
	closed, cannotClosed := script("closed", "#!"+data, 0o755)
	itself, cannotItself := script("itself", "#!/no/such\n", 0o644)
	for _, c := range []struct {
		o    Order
		text string
	}{
		{Order{User: "root", Argv: []string{gone}}, cannotGone + "bad interpreter /no/such: No such file or directory"},
		{Order{User: "site", Argv: []string{dos}}, cannotDos + "bad interpreter /bin/sh?: No such file or directory"},
		{Order{User: "root", Argv: []string{closed}}, cannotClosed + "bad interpreter " + data + ": Permission denied"},
		{Order{User: "root", Argv: []string{itself}}, cannotItself + "Permission denied"},
		{Order{User: "nobody-here", Argv: []string{"/bin/true"}}, `can't get passwd entry for user "nobody-here"`},
		{Order{Argv: []string{"/no/such"}}, `unable to find epilog file "/no/such"`},
		{Order{Argv: []string{data}}, `epilog file "` + data + `" is not executable`},
		{Order{User: "site", Argv: []string{"/no/such", "x"}}, `execvlp(/no/such, "/no/such" "x") failed: No such file or directory`},
		{Order{User: "root", Argv: []string{data}}, `execvlp(` + data + `, "` + data + `") failed: Permission denied`},
		{Order{Argv: []string{"true"}}, `cannot start epilog: "true" is not an absolute path`},
		{Order{User: "root", Argv: []string{"./x"}}, `cannot start epilog: "./x" is not an absolute path`},
		{Order{}, "cannot start epilog: no command is given"},
	} {
		c.o.Kind, c.o.Name, c.o.State = Epilog, "epilog", 14
		r.refused(c.o, 14, c.text)
	}
	for _, c := range []struct {
		key  string
		o    Order
		text string
	}{
		{"stdout_path", Order{Kind: Prolog, Name: "prolog", State: 7}, `can't get configuration value for "stdout_path"`},
		{"pe_stdout_path", Order{Kind: PEStart, Name: "pe_start", State: 9}, `can't get configuration value for "pe_stdout_path"`},
		{"cwd", Order{Kind: Method, Name: "suspend_method", State: 11}, `can't get configuration value for "cwd"`},
		{"h_vmem", Order{Kind: PEStop, Name: "pe_stop", State: 12}, `can't get configuration value for "h_vmem"`},
		{"shell_path", Order{Kind: Job, Name: "job", State: 11}, `can't get configuration value for "shell_path"`},
		{"job_owner", Order{Kind: Epilog, Name: "epilog", State: 14}, `can't get configuration value for "job_owner"`},
	} {
		bare := newRig(t).set("pe_stderr_path=/dev/null")
		if c.key != "pe_stdout_path" {
			bare.set("pe_stdout_path=/dev/null")
		}
		bare.without(c.key).refused(c.o, c.o.State, c.text)
	}
	// A script without interpreter line.
	plain := r.file("plain", "echo $0 $1", 0o755)
	r.ran(Order{Kind: Prolog, Name: "prolog", Argv: []string{plain, "x"}})
	if got, want := r.read("out/o"), plain+" x\n"; got != want {
		t.Errorf("stdout %q; want %q", got, want)
	}
}

// TestBadOrders refuses what cannot be sent, and what no shepherd orders.
func TestBadOrders(t *testing.T) {
	r := newRig(t)
	for _, o := range []Order{
		{Kind: Job, User: "root"},
		{Kind: Job, Argv: []string{"a", "b"}},
		{Kind: Method, User: "root", Argv: []string{"id"}},
		{Kind: Method},
		{Kind: Method, Argv: []string{""}},
		{Kind: kinds, Argv: []string{"/bin/true"}},
		{Kind: Prolog, Argv: []string{"/bin/true\x00LD_PRELOAD=x"}},
	} {
		o.Name, o.State = "it", 9
		r.refused(o, 9, "internal error: bad order for the starter")
	}
}

// TestMethod runs a method beside a job.
func TestMethod(t *testing.T) {
	r := newRig(t).set("add_grp_id=54398", "h_vmem=2G", "h_descriptors=300", "h_core=0", "s_core=0", "stdout_path=/no/where")
	r.without("stdin_path", "merge_stderr", "shell_path", "njob_args", "job_name")
	text := "{ " + view + `for fd in 0 1 2; do readlink /proc/self/fd/$fd; done; tr '\0' '|' </proc/$$/cmdline; echo; echo "env $MINE $EXTRA"; } >got 2>&1`
	text = strings.ReplaceAll(text, "\n", "; ")
	e := r.ran(Order{Kind: Method, Name: "suspend_method", State: 11, Argv: []string{text}, Env: []string{"EXTRA=more"}})
	r.lines(
		r.read("out/got"),
		"Uid:\t54321\t54321\t54321\t54321", "Gid:\t54322\t54322\t54322\t54322", "Groups:\t54322 54323 54398 ",
		"pwd "+r.base+"/out", "stdin /dev/null", "umask 0022", "limits 2097152 300 0", text+"|-c|"+text+"|", "env yes more",
	)
	if got := texts(t, e.trace); len(got) != 2 || got[0] != "[54321] now running with uid=54321, euid=54321" ||
		!strings.HasPrefix(got[1], "[54321] execvlp(/bin/sh, ") {
		t.Errorf("trace:\n%s", e.trace)
	}
	r.ran(Order{Kind: Method, Name: "suspend_method", Argv: []string{
		"for fd in 0 1 2; do test /proc/$$/fd/$fd -ef /dev/null || exit 1; done; test ! -e /proc/$$/fd/3",
	}})
}

// TestRestart restarts a job from a checkpoint: all is a job's but the script.
func TestRestart(t *testing.T) {
	r := newRig(t).set("add_grp_id=54398", "shell_start_mode=script_from_stdin", "script_file=/no/such", "shell_path=/no/such")
	text := `grep Groups: /proc/self/status; echo "$0|$EXTRA|$SGE_STDOUT_PATH"; cat; echo err >&2`
	in := r.file("in", "input\n", 0o644)
	r.set("stdin_path=" + in)
	e := r.ran(Order{Name: "job", State: 11, Argv: []string{text}, Env: []string{"EXTRA=more"}})
	if got, want := r.read("out/o"), "Groups:\t54322 54323 54398 \n"+text+"|more|"+r.base+"/out/o\ninput\n"; got != want {
		t.Errorf("stdout %q; want %q", got, want)
	}
	if got := r.read("out/e"); got != "err\n" {
		t.Errorf("stderr %q", got)
	}
	for _, want := range []string{"child: starting son(job, " + text + ", 0, 10000);", "RLIMIT_CPU setting: ", "setosjobid: "} {
		if !strings.Contains(e.trace, want) {
			t.Errorf("trace lacks %q:\n%s", want, e.trace)
		}
	}
}

func TestJobEnv(t *testing.T) {
	r := newRig(t).set("script_file=/usr/bin/env")
	r.ran(Order{Name: "job", State: 11, Env: []string{"MINE=no", "MORE=1"}})
	r.lines(r.read("out/o"), "MINE=no", "MORE=1", "JOB_ID=1", "PATH=/usr/bin:/bin")
}

// TestStaging opens staged streams in the job's TMPDIR, by their own names.
func TestStaging(t *testing.T) {
	r := newRig(t)
	tmp := r.base + "/out/tmp"
	if err := os.Mkdir(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(tmp, 54321, 54322); err != nil {
		t.Fatal(err)
	}
	r.file("out/tmp/in", "staged\n", 0o644)
	r.set("tmpdir="+tmp, "fs_stdin_file_staging=1", "stdin_path=/no/in", "fs_stdout_file_staging=1", "stdout_path=/no/out",
		"fs_stderr_file_staging=1", "stderr_path=/no/err", "script_file="+r.script("echo $SGE_STDOUT_PATH; cat; echo err >&2"))
	r.ran(Order{Name: "job", State: 11})
	if got, want := r.read("out/tmp/out"), tmp+"/out\nstaged\n"; got != want {
		t.Errorf("stdout %q; want %q", got, want)
	}
	if got := r.read("out/tmp/err"); got != "err\n" {
		t.Errorf("stderr %q", got)
	}
	r.ran(Order{Kind: Epilog, Name: "epilog", Argv: []string{"/bin/echo", "epilog"}})
	if got := r.read("out/tmp/out"); !strings.HasSuffix(got, "staged\nepilog\n") {
		t.Errorf("stdout %q; want the epilog's behind the job's", got)
	}
	r.set("stdin_path=/no/other").refused(Order{Name: "job", State: 11}, 26,
		"error: can't open "+tmp+"/other as dummy input file: No such file or directory")
	r.set("fs_stdin_file_staging=0").refused(Order{Name: "job", State: 11}, 26,
		"error: can't open /no/other as dummy input file: No such file or directory")
}

// TestQsubGID takes another group of the owner's for the first.
func TestQsubGID(t *testing.T) {
	want := "54321 54323 54322 54323\n"
	const ids = `echo $(id -u) $(id -g) $(sed -n 's/^Groups://p' /proc/self/status)`
	for _, foreign := range []bool{false, true} {
		r := newRig(t).set("qsub_gid=54323")
		r.set("script_file=" + r.script(ids))
		if foreign {
			r.without("paddock_format", "paddock_run", "paddock_uid", "paddock_gid", "paddock_groups", "paddock_home")
		}
		r.ran(Order{Name: "job", State: 11})
		r.ran(Order{Kind: Prolog, Name: "prolog", Argv: []string{r.base + "/procedure"}})
		if got := r.read("out/o"); got != want+want {
			t.Errorf("foreign %v: ids %q; want %q twice", foreign, got, want)
		}
		for _, bad := range []string{"0", "54324"} {
			r.set("qsub_gid="+bad).refused(Order{Name: "job", State: 11}, 11, "cannot use qsub_gid: user owner is not in group "+bad)
		}
		r.refused(Order{Kind: Epilog, Name: "epilog", State: 14, Argv: []string{"/bin/true"}}, 14, "cannot use qsub_gid: user owner is not in group 54324")
		r.set("qsub_gid=-1").refused(Order{Name: "job", State: 11}, 11, `cannot use qsub_gid: bad id "-1"`)
		// The user of a procedure has his own groups.
		r.set("qsub_gid=54323").ran(Order{Kind: Prolog, Name: "prolog", User: "site", Argv: []string{r.base + "/procedure"}})
		if got := r.read("out/o"); !strings.HasSuffix(got, "54401 54402 54402 54403 54404\n") {
			t.Errorf("foreign %v: ids of another user %q", foreign, got)
		}
	}
}

func TestMinimums(t *testing.T) {
	r := newRig(t).set("min_uid=54322")
	r.refused(Order{Name: "job", State: 11}, 11, "uid of user owner (54321) less than minimum allowed in conf (54322)")
	r.ran(Order{Kind: Method, Name: "resume_method", Argv: []string{"exit 0"}})
	r.ran(Order{Kind: Prolog, Name: "prolog", User: "root", Argv: []string{"/bin/true"}})
}

// TestProcedureUserMode runs procedures under a shepherd that is no root.
func TestProcedureUserMode(t *testing.T) {
	r := newRig(t).set("add_grp_id=54398")
	r.uid = 54321
	r.ran(Order{Kind: Prolog, Name: "prolog", Argv: []string{r.script("id -u; echo $MINE")}})
	if got := r.read("out/o"); got != "54321\nyes\n" {
		t.Errorf("stdout %q", got)
	}
	r.ran(Order{Kind: Method, Name: "suspend_method", Argv: []string{"exit 0"}})
	r.refused(Order{Kind: Epilog, Name: "epilog", User: "root", State: 14, Argv: []string{"/bin/true"}}, 14,
		"cannot run epilog as user root (uid 0): the shepherd runs as uid 54321, not as root")
}
