package show

import (
	"bufio"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/qsub/internal/qtest"
	"paddock/test/fill"
)

var noon = time.Date(2026, 11, 20, 16, 7, 1, 0, time.UTC)

func TestQstat(t *testing.T) {
	qtest.UTC(t)
	e := qtest.NewExecd(t)
	e.Replies(api.VerbJobs, api.JobsReply{Jobs: []api.JobStatus{
		{Job: 140, Priority: 0.25, Name: "longjobname_12345", Owner: "geuser", State: "r", Time: noon, Queue: "all.q@gehost", Slots: 1},
		{Job: 142, Priority: 0.25, Name: "arr", Owner: "geuser", State: "r", Time: noon, Queue: "all.q@gehost", Slots: 1, Tasks: "1"},
		{Job: 142, Name: "arr", Owner: "geuser", State: "qw", Time: noon, Slots: 1, Tasks: "3,5"},
		{Job: 143, Name: "held", Owner: "geuser", State: "hqw", Time: noon, Slots: 1, Holds: "uj"},
		{Job: 144, Name: "later", Owner: "geuser", State: "qw", Time: noon, Slots: 1, Holds: "t"},
	}})
	const head = "job-ID  prior   name       user         state submit/start at     queue                          slots ja-task-ID \n" +
		"-----------------------------------------------------------------------------------------------------------------\n"
	lines := []string{
		"    140 0.25000 longjobnam geuser       r     11/20/2026 16:07:01 all.q@gehost                       1        \n",
		"    142 0.25000 arr        geuser       r     11/20/2026 16:07:01 all.q@gehost                       1 1\n",
		"    142 0.00000 arr        geuser       qw    11/20/2026 16:07:01                                    1 3,5\n",
		"    143 0.00000 held       geuser       hqw   11/20/2026 16:07:01                                    1        \n",
		"    144 0.00000 later      geuser       qw    11/20/2026 16:07:01                                    1        \n",
	}
	for _, test := range []struct {
		args []string
		ask  api.JobsRequest
		want string
	}{
		{nil, api.JobsRequest{}, strings.Join(lines, "")},
		{[]string{"-u", "*"}, api.JobsRequest{Users: []string{"*"}}, strings.Join(lines, "")},
		{[]string{"-u", "a,b", "-u", "c"}, api.JobsRequest{Users: []string{"a", "b", "c"}}, strings.Join(lines, "")},
		{[]string{"-s", "p"}, api.JobsRequest{States: "p"}, lines[2] + lines[3] + lines[4]},
		{[]string{"-s", "r"}, api.JobsRequest{States: "r"}, lines[0] + lines[1]},
		{[]string{"-s", "rp"}, api.JobsRequest{}, strings.Join(lines, "")},
		{[]string{"-s", "hu"}, api.JobsRequest{}, lines[3]},
		{[]string{"-s", "hohj"}, api.JobsRequest{}, lines[3]},
		{[]string{"-s", "ha"}, api.JobsRequest{}, lines[4]},
		{[]string{"-s", "hdhshop"}, api.JobsRequest{}, lines[2] + lines[3] + lines[4]},
		{[]string{"-s", "hd", "-s", "hs"}, api.JobsRequest{}, ""},
		{[]string{"-s", "rh"}, api.JobsRequest{}, lines[0] + lines[1] + lines[3] + lines[4]},
		{[]string{"-s", "a"}, api.JobsRequest{}, strings.Join(lines, "")},
		{[]string{"-s", "s"}, api.JobsRequest{States: "s"}, ""},
	} {
		wanted := test.want
		if wanted != "" {
			wanted = head + wanted
		}
		qtest.Want(t, qtest.Result{Out: wanted}, call(t, "", append([]string{"qstat"}, test.args...)...))
		if diff := cmp.Diff(test.ask, qtest.Last[api.JobsRequest](t, e, api.VerbJobs)); diff != "" {
			t.Errorf("qstat %q asked (-want +got):\n%s", test.args, diff)
		}
	}
	e.Replies(api.VerbJobs, api.JobsReply{})
	qtest.Want(t, qtest.Result{}, call(t, "", "qstat"))
	// Other people's names are not commands to the terminal.
	e.Replies(api.VerbJobs, api.JobsReply{Jobs: []api.JobStatus{{Job: 1, Name: "Grüßgott\x1b[2J", Owner: "o", State: "qw", Time: noon, Slots: 12}}})
	qtest.Want(t, qtest.Result{Out: head + "      1 0.00000 Grüßgott\\x o            qw    11/20/2026 16:07:01                                   12        \n"}, call(t, "", "qstat"))
}

func TestQstatRefuses(t *testing.T) {
	qtest.NewExecd(t)
	for _, test := range []struct {
		args []string
		err  string
	}{
		{[]string{"-badopt"}, "invalid option argument \"-badopt\"\nType \"qstat -help\" for the options.\n"},
		{[]string{"-s", "hx"}, "ERROR! wrong argument to -s option\n"},
		{[]string{"-s", "q"}, "ERROR! wrong argument to -s option\n"},
		{[]string{"-g"}, "-g option must have argument\n"},
		{[]string{"-l"}, "-l option must have argument\n"},
		{[]string{"-pe"}, "-pe option must have argument\n"},
		{[]string{"-u"}, "-u option must have argument\n"},
		{[]string{"-j", "-xml"}, "-j without a job is not supported with -xml\n"},
		{[]string{"foo"}, "invalid option argument \"foo\"\nDid you mean \"qstat -j foo\"? Type \"qstat -help\" for the options.\n"},
	} {
		qtest.Want(t, qtest.Result{Exit: 1, Err: test.err}, call(t, "", append([]string{"qstat"}, test.args...)...))
	}
}

func TestQstatObstacles(t *testing.T) {
	e := qtest.NewExecd(t)
	const never = "Jobs can not run because no host can satisfy the resource requirements"
	jobs := []api.JobStatus{
		{Job: 3, State: "qw", Reason: never},
		{Job: 1, State: "qw", Reason: never},
		{Job: 2, State: "hqw", Holds: "u"},
		{Job: 2, State: "qw", Reason: never},
		{Job: 4, State: "hqw", Holds: "jo"},
		{Job: 5, State: "qw", Holds: "t"},
		{Job: 6, State: "Eqw", Reason: "broken"},
		{Job: 7, State: "qw"},
		{Job: 8, State: "qw", Reason: "odd\x1b"},
	}
	for n := range 9 {
		jobs = append(jobs, api.JobStatus{Job: 11 + n, State: "hqw", Holds: "a"})
	}
	e.Replies(api.VerbJobs, api.JobsReply{Jobs: jobs})
	const out = never + "\n\t1,\t2,\t3\n\nJobs dropped because of hold state\n\t2,\t4\n\n" +
		"Job dropped because of job dependencies\n\t4,\t11,\t12,\t13,\t14,\t15,\t16,\t17,\n\t18,\t19\n\n" +
		"Jobs dropped because execution time not reached\n\t5\n\nJobs dropped because of error state\n\t6\n\nodd\\x1b\n\t8\n"
	qtest.Want(t, qtest.Result{Out: out}, call(t, "", "qstat", "-j"))
	if diff := cmp.Diff(api.JobsRequest{Users: []string{"*"}, States: "p", Reasons: true}, qtest.Last[api.JobsRequest](t, e, api.VerbJobs)); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	qtest.Want(t, qtest.Result{Out: out}, call(t, "", "qstat", "-j", "", "-u", "u"))
	e.Replies(api.VerbJobs, api.JobsReply{Jobs: jobs[2:3]})
	qtest.Want(t, qtest.Result{Out: "[\n  {\n    \"reason\": \"Jobs dropped because of hold state\",\n    \"jobs\": [\n      2\n    ]\n  }\n]\n"}, call(t, "", "qstat", "-j", "-json"))
	e.Replies(api.VerbJobs, api.JobsReply{})
	qtest.Want(t, qtest.Result{Out: "scheduling info:            There are no messages available\n\n"}, call(t, "", "qstat", "-j"))
}

func TestQstatDetail(t *testing.T) {
	qtest.UTC(t)
	e := qtest.NewExecd(t)
	array := api.Detail{
		Job: 126, Owner: "geuser1", UID: 1001, Group: "users", GID: 100, Submitted: noon, ScriptFile: "job_scripts/126",
		Request: api.SubmitRequest{
			Name: "arr", Account: "acc", Command: "e.sh", Args: []string{"a", "b c"}, Cwd: "/tmp/gtw", Stdout: "a", Stderr: "b", Stdin: "c",
			Merge: true, Rerun: api.RerunYes, Shell: "/bin/sh", Tasks: api.Tasks{First: 1, Last: 9, Step: 1}, MaxRun: 2, Env: []string{"A=1", "B=", "C=x\ny"},
			Origin: []string{"TERM=", "SGE_O_HOME=/x", "SGE_O_LOGNAME=ln", "SGE_O_PATH=/bin", "SGE_O_SHELL=/bin/zz", "SGE_O_MAIL=/m", "SGE_O_HOST=gehost", "SGE_O_WORKDIR=/tmp/gtw", "SGE_O_TZ=UTC"},
		},
		Tasks: []api.TaskDetail{
			{Task: 3, State: "r", Queue: "all.q@gehost", Started: noon, Run: 1},
			{Task: 4, State: "Eqw", Reason: "can't chdir to /nonexist: No such file or directory"},
		},
		Pending: "5-9:1", Finished: 2, Reasons: []string{"slots: all 2 are in use", "job is behind 3 others"},
	}
	binary := api.Detail{
		Job: 127, Owner: "u", Group: "g", Submitted: noon, Request: api.SubmitRequest{Name: "b", Command: "sleep", Binary: true, NoShell: true},
		Tasks: []api.TaskDetail{{Task: 1, State: "Eqw", Reason: "no"}},
	}
	const wantArray = `==============================================================
job_number:                 126
exec_file:                  job_scripts/126
submission_time:            Fri Nov 20 16:07:01 2026
owner:                      geuser1
uid:                        1001
group:                      users
gid:                        100
sge_o_home:                 /x
sge_o_log_name:             ln
sge_o_path:                 /bin
sge_o_shell:                /bin/zz
sge_o_tz:                   UTC
sge_o_workdir:              /tmp/gtw
sge_o_host:                 gehost
account:                    acc
cwd:                        /tmp/gtw
stderr_path_list:           NONE:NONE:b
merge:                      y
mail_list:                  geuser1@gehost
notify:                     FALSE
job_name:                   arr
stdout_path_list:           NONE:NONE:a
stdin_path_list:            NONE:NONE:c
jobshare:                   0
restart:                    y
shell_list:                 NONE:/bin/sh
env_list:                   TERM=NONE,A=1,B=NONE,C=x\ny
job_args:                   a,b c
script_file:                e.sh
job-array tasks:            1-9:1
maximum concurrency:        2
pending tasks:              5-9:1
finished tasks:             2
binding:                    NONE
job_type:                   NONE
job_state     3:            r
start_time    3:            11/20/2026 16:07:01
queue         3:            all.q@gehost
restarts      3:            1
job_state     4:            Eqw
binding       3:            NONE
error reason          4:      can't chdir to /nonexist: No such file or directory
scheduling info:            slots: all 2 are in use
                            job is behind 3 others
`
	const wantBinary = `==============================================================
job_number:                 127
submission_time:            Fri Nov 20 16:07:01 2026
owner:                      u
uid:                        0
group:                      g
gid:                        0
account:                    sge
notify:                     FALSE
job_name:                   b
jobshare:                   0
env_list:                   TERM=NONE
script_file:                sleep
binding:                    NONE
job_type:                   binary,noshell
job_state     1:            Eqw
error reason          1:      no
scheduling info:            Job is in error state
`
	e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{array, binary, array}})
	qtest.Want(t, qtest.Result{Out: wantArray + wantBinary}, call(t, "", "qstat", "-j", "arr,127", "126"))
	if got := qtest.Last[api.DetailRequest](t, e, api.VerbDetail); !cmp.Equal(got.Jobs, []string{"arr", "127", "126"}) {
		t.Errorf("asked for %q", got.Jobs)
	}
	e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{binary}, Missing: []string{"1", "nosuch"}})
	qtest.Want(t, qtest.Result{Exit: 1, Out: wantBinary, Err: "Following jobs do not exist: \n1, nosuch\nFor jobs that have ended, see qacct -j 1\n"}, call(t, "", "qstat", "-j", "1,127,nosuch"))
	e.Replies(api.VerbDetail, api.Errorf(api.CodeInternal, "broken"))
	qtest.Want(t, qtest.Result{Exit: 1, Err: "qstat: broken\n"}, call(t, "", "qstat", "-j", "1"))
}

// TestQstatDetailAsks has the lines that Grid Engine's qstat -j printed for
// these requests, and those of a task that runs.
func TestQstatDetailAsks(t *testing.T) {
	qtest.UTC(t)
	e := qtest.NewExecd(t)
	d := api.Detail{
		Job: 831, Owner: "geuser", UID: 1001, Group: "users", GID: 100, Submitted: noon, ScriptFile: "job_scripts/831",
		Request: api.SubmitRequest{
			Name: "pca", Command: "sleep", Binary: true, Origin: []string{"SGE_O_HOST=gehost"}, After: noon, Checkpoint: "x", CheckpointWhen: "0:05:00",
			Reserve: true, Hard: []api.Resource{{Name: "h_rt", Value: "10"}, {Name: "h_vmem", Value: "1G"}}, Soft: []api.Resource{{Name: "arch", Value: "x"}},
			Mail: "abe", Notify: true, Priority: -3, Queues: []string{"a.q", "b.q"}, SoftQueues: []string{"all.q"}, MasterQueues: []string{"m.q"},
			PE: "make", Slots: []api.Slots{{Min: 1, Max: 5, Step: 1}, {Min: 8, Max: 8, Step: 1}, {Min: 16, Max: api.MaxSlots, Step: 2}},
			HoldJobs: []string{"foo", "pc*"}, Binding: "env linear:1",
		},
		Holds: "uj", WaitsFor: []int{17, 18},
		Tasks: []api.TaskDetail{{Task: 1, State: "r", Usage: &api.Usage{
			Wallclock: 61, CPU: 90061.5, Mem: 0.5, IO: 0.00004, VMem: 3.43 * 1024 * 1024, MaxVMem: 3 * 1024, RSS: 1 << 30, MaxRSS: 3 << 29, PIDs: 3,
			MemLimit: 2 << 30, CPULimit: 100, TimeLimit: 3600, PIDsLimit: 50, LimitsFrom: "cgroup",
		}}},
	}
	wanted := `==============================================================
job_number:                 831
exec_file:                  job_scripts/831
submission_time:            Fri Nov 20 16:07:01 2026
owner:                      geuser
uid:                        1001
group:                      users
gid:                        100
sge_o_host:                 gehost
execution_time:             Fri Nov 20 16:07:01 2026
account:                    sge
checkpoint_object:          x
checkpoint_interval:        300 seconds
reserve:                    y
hard resource_list:         h_rt=10,h_vmem=1G
soft resource_list:         arch=x
mail_options:               abe
mail_list:                  geuser@gehost
notify:                     TRUE
job_name:                   pca
priority:                   -3
jobshare:                   0
hard_queue_list:            a.q,b.q
soft_queue_list:            all.q
env_list:                   TERM=NONE
master hard queue_list:     m.q
script_file:                sleep
parallel environment:  make range: 1-5,8,16-9999999:2
jid_predecessor_list (req): foo,pc*
jid_predecessor_list:       17,18
binding:                    env linear:1
job_type:                   binary
holds:                      uj
job_state     1:            r
usage         1:            cpu=1:01:01:01, mem=0.50000 GB s, io=0.00004 GB, vmem=3.430M, maxvmem=3.000K
limits        1:            wallclock=00:01:01 of 01:00:00, cpu=1:01:01:01 of 00:01:40, rss=1.000G, maxrss=1.500G of 2.000G, maxvmem=3.000K, pids=3 of 50, by cgroup
`
	e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{d}})
	qtest.Want(t, qtest.Result{Out: wanted}, call(t, "", "qstat", "-j", "831"))

	// Without control groups it is the address space that is limited.
	d.Tasks[0].Usage = &api.Usage{MemLimit: 1 << 30, MaxVMem: 512, LimitsFrom: "rlimit"}
	e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{d}})
	out := call(t, "", "qstat", "-j", "831").Out
	const limits = "limits        1:            wallclock=00:00:00, cpu=00:00:00, rss=N/A, maxrss=N/A, maxvmem=512.000 of 1.000G, pids=0, by rlimit\n"
	if !strings.HasSuffix(out, "vmem=N/A, maxvmem=512.000\n"+limits) {
		t.Errorf("got %s; want at its end %s", out, limits)
	}

	// JSON is what execd sent, each job once, and has the missing ones too.
	reply := api.DetailReply{Jobs: []api.Detail{d}, Missing: []string{"x"}}
	e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{d, d}, Missing: []string{"x"}})
	r := call(t, "", "qstat", "-j", "831,pca,x", "-json")
	var got api.DetailReply
	if err := json.Unmarshal([]byte(r.Out), &got); err != nil || r.Exit != 1 || r.Err != "Following jobs do not exist: \nx\nFor jobs that have ended, see qacct -j x\n" {
		t.Errorf("%+v, %v", r, err)
	}
	if diff := cmp.Diff(reply, got); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// TestDetailFields holds the fields of a request against what qstat -j shows of a job.
func TestDetailFields(t *testing.T) {
	text := func(r *api.SubmitRequest) string {
		var out strings.Builder
		b := bufio.NewWriter(&out)
		Job(b, &api.Detail{Job: 1, Request: *r}, true)
		_ = b.Flush()
		return out.String()
	}
	none := text(&api.SubmitRequest{})
	// Shown with another field, or of no interest.
	hidden := []string{"script", "only", "max_run", "slots", "hold", "verify", "interactive", "origin", "plain"}
	fill.Fields(func(name string, with *api.SubmitRequest) {
		if (text(with) != none) == slices.Contains(hidden, name) {
			t.Errorf("%s of a request must either be shown, or stand in hidden", name)
		}
	})
}
