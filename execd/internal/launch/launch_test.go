package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/user"
	"paddock/internal/proc"
	"paddock/spool"
	"paddock/spool/spooltest"
)

// The order that makes, as far as it is the same everywhere, the directory of
// the golden job batch-exit3.
func goldenOrder() (*Launcher, *Order) {
	l := New(Runs{Privileged: true})
	l.Host, l.BinDir, l.SGERoot = "gehost", "/usr/sbin/lx-amd64", "/var/lib/gridengine"
	o := &Order{
		Grant: &schedule.Grant{Queues: []schedule.QueueSlots{{Queue: "all.q", Slots: 1}}},
		Task: &job.Task{
			Job:    &job.Job{Number: 69, Submitter: &job.Submitter{}, Origin: &job.Origin{}, Submitted: time.Unix(1795191325, 0)},
			Number: 1, Start: job.Start{AddGID: 65401},
		},
		Request: &api.SubmitRequest{
			Name: "exit3.sh", Args: []string{"one", "two three"},
			Stdout: "/dev/null", Stderr: "/dev/null",
			Origin: []string{
				"TERM=", "SGE_O_HOME=/home/geuser", "SGE_O_LOGNAME=geuser", "SGE_O_PATH=/usr/local/bin:/usr/bin:/bin",
				"SGE_O_SHELL=/bin/sh", "SGE_O_MAIL=/var/mail/geuser", "SGE_O_HOST=gehost", "SGE_O_WORKDIR=/home/geuser",
			},
		},
		Owner: &user.User{Name: "geuser", UID: 1001, GID: 1001, Groups: []int{1001}, Home: "/home/geuser"},
		Queue: &conf.Queue{
			Name: "gold.q", Tmpdir: "/tmp", Shell: "/bin/sh", ShellStartMode: "unix_behavior",
			Prolog: "/opt/site/prolog.sh $job_id $queue", Epilog: "/opt/site/epilog.sh $job_id", Notify: time.Minute,
		},
		Global: &conf.Global{MinUID: 1000, MinGID: 1000, LoginShells: []string{"sh", "bash"}, ScriptTimeout: 2 * time.Minute},
		Script: "/var/spool/gridengine/execd/gehost/job_scripts/69",
	}
	return l, o
}

// config has Grid Engine's keys, in its order and with its values, but for
// what this jobs do not have, and ours behind them.
func TestConfigIsGridEngines(t *testing.T) {
	golden, err := spool.OpenDir("../../../spool/testdata/golden/batch-exit3").Config()
	if err != nil {
		t.Fatal(err)
	}
	l, o := goldenOrder()
	config, args, err := l.config(o)
	if err != nil || args != nil {
		t.Fatalf("config: args %q, %v", args, err)
	}
	other := map[string]string{
		"admin_user":  "none", // we flip no effective ids
		"inherit_env": "0",    // execd's environment is not the job's
	}
	var want, got []string
	for _, e := range golden.Entries() {
		if v, ok := other[e.Key]; ok {
			e.Value = v
		}
		want = append(want, e.Key+"="+e.Value)
	}
	for _, e := range config.Entries() {
		if !strings.HasPrefix(e.Key, "paddock_") {
			got = append(got, e.Key+"="+e.Value)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-Grid Engine's +ours):\n%s", diff)
	}
}

// What the administrator's files say about the ways of a job's life and end
// stands in config as sge_execd writes it.
func TestConfigOfMethods(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Launcher, *Order)
		want   string // keys that are there, or, with a !, are not
	}{
		{"as it is", func(*Launcher, *Order) {}, "notify=0 notify_kill_type=1 notify_kill=default notify_susp_type=1 notify_susp=default " +
			"suspend_method=NONE terminate_method=NONE script_timeout=120 forbid_reschedule=0 forbid_apperror=0 enable_addgrp_kill=1 " +
			"!skip_ngroups_max_silently !paddock_s_rt !paddock_h_rt !paddock_foreign !paddock_trace !sge_root"},
		{"-notify", func(_ *Launcher, o *Order) { o.Request.Notify = true }, "notify=60"},
		{"-notify of a queue without", func(_ *Launcher, o *Order) { o.Request.Notify, o.Queue.Notify = true, 0 }, "notify=0"},
		{"warnings", func(_ *Launcher, o *Order) {
			o.Global.NotifyKill, o.Global.NotifySusp = conf.Warning{Signal: "TERM"}, conf.Warning{Off: true}
		}, "notify_kill_type=0 notify_kill=TERM notify_susp_type=2 notify_susp=default"},
		{"the host's procedures", func(_ *Launcher, o *Order) {
			o.Queue.Prolog, o.Queue.Epilog = "", ""
			o.Global.Prolog, o.Global.Epilog = "root@/opt/p $host", "/opt/e"
		}, "prolog=root@/opt/p_$host epilog=/opt/e"},
		{"the queue's go before", func(_ *Launcher, o *Order) { o.Global.Prolog = "/opt/p" }, "prolog=/opt/site/prolog.sh_$job_id_$queue"},
		{"no procedures", func(_ *Launcher, o *Order) { o.Queue.Prolog, o.Queue.Epilog = "", "" }, "prolog=none epilog=none"},
		{"methods", func(_ *Launcher, o *Order) {
			o.Queue.SuspendMethod, o.Queue.ResumeMethod, o.Queue.TerminateMethod = "SIGTSTP", "18", "/opt/end $job_pid"
		}, "suspend_method=SIGTSTP resume_method=18 terminate_method=/opt/end_$job_pid"},
		{"variables of the cell", func(_ *Launcher, o *Order) { o.Queue.TerminateMethod = "/opt/end $sge_cell" }, "sge_root=/var/lib/gridengine sge_cell=default"},
		{"parameters", func(_ *Launcher, o *Order) {
			g := o.Global
			g.ScriptTimeout, g.SkipNGroups, g.NoAddGrpKill, g.ForbidReschedule, g.ForbidApperror = 5*time.Second, true, true, true, true
		}, "script_timeout=5 skip_ngroups_max_silently=yes enable_addgrp_kill=0 forbid_reschedule=1 forbid_apperror=1"},
		{"trace", func(_ *Launcher, o *Order) { o.Global.TraceDetail = true }, "paddock_trace=detail"},
		{"time limits", func(_ *Launcher, o *Order) { o.SRT, o.HRT = time.Minute, time.Hour }, "paddock_s_rt=60 paddock_h_rt=3600 !paddock_foreign"},
		{"hard limit alone", func(_ *Launcher, o *Order) { o.HRT = time.Hour }, "!paddock_s_rt paddock_h_rt=3600"},
		{"time limits of a foreign shepherd", func(l *Launcher, o *Order) {
			l.AsUser, o.SRT, o.HRT = &asuser.Starter{Shepherd: "/usr/sbin/shepherd"}, time.Minute, time.Hour
		}, "paddock_foreign=1 paddock_foreign_s_rt=60 paddock_foreign_h_rt=3600 !paddock_s_rt !paddock_h_rt"},
		{"foreign shepherd, no limits", func(l *Launcher, _ *Order) { l.AsUser = &asuser.Starter{Shepherd: "/usr/sbin/shepherd"} }, "paddock_foreign=1 !paddock_foreign_h_rt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, o := goldenOrder()
			tt.change(l, o)
			config, _, err := l.config(o)
			if err != nil {
				t.Fatal(err)
			}
			for word := range strings.FieldsSeq(tt.want) {
				key, absent := strings.CutPrefix(word, "!")
				key, value, _ := strings.Cut(key, "=")
				got, ok := config.Lookup(key)
				if ok == absent || strings.ReplaceAll(got, " ", "_") != value {
					t.Errorf("%s = %q, there %v; want %s", key, got, ok, word)
				}
			}
		})
	}
}

// What a job is told of the runs before.
func TestRestarted(t *testing.T) {
	for _, tt := range []struct {
		run        int
		checkpoint bool
		want       string
	}{{0, false, "0"}, {1, false, "1"}, {3, false, "1"}, {1, true, "2"}} {
		l, o := goldenOrder()
		o.Task.Run, o.Task.Checkpoint = tt.run, tt.checkpoint
		if env := l.environment(o, "/spool"); !slices.Contains(env, "RESTARTED="+tt.want) {
			t.Errorf("run %d, checkpoint %v: want RESTARTED=%s in %q", tt.run, tt.checkpoint, tt.want, env)
		}
	}
}

// Which of the two limits is due when, and when to look again.
func TestDue(t *testing.T) {
	start := time.Unix(1000, 0)
	both := TimeLimits{Soft: 10 * time.Second, Hard: 20 * time.Second}
	soft, hard := TimeLimits{Soft: both.Soft}, TimeLimits{Hard: both.Hard}
	for _, tt := range []struct {
		name   string
		limits TimeLimits
		clock  Clock
		after  time.Duration
		sig    syscall.Signal
		next   time.Duration
	}{
		{"no limits", TimeLimits{}, Clock{Started: start}, time.Hour, 0, 0},
		{"not started", both, Clock{}, time.Hour, 0, 10 * time.Second},
		{"not started, hard", hard, Clock{}, time.Hour, 0, 20 * time.Second},
		{"at the start", both, Clock{Started: start}, 0, 0, 10 * time.Second},
		{"before soft", both, Clock{Started: start}, 9 * time.Second, 0, time.Second},
		{"at soft", both, Clock{Started: start}, 10 * time.Second, syscall.SIGUSR1, 10 * time.Second},
		{"after soft", both, Clock{Started: start, Warned: true}, 12 * time.Second, 0, 8 * time.Second},
		{"at hard", both, Clock{Started: start, Warned: true}, 20 * time.Second, syscall.SIGKILL, 90 * time.Second},
		{"past both while nobody looked", both, Clock{Started: start}, time.Hour, syscall.SIGKILL, 90 * time.Second},
		{"soft alone", soft, Clock{Started: start}, 10 * time.Second, syscall.SIGUSR1, 0},
		{"soft alone, warned", soft, Clock{Started: start, Warned: true}, time.Hour, 0, 0},
		{"soft behind hard", TimeLimits{Soft: 30 * time.Second, Hard: 20 * time.Second}, Clock{Started: start}, 0, 0, 20 * time.Second},
		{"ended", both, Clock{Started: start, Ended: true}, time.Hour, 0, 0},
		{"clock set back", both, Clock{Started: start}, -time.Hour, 0, 10 * time.Second},
	} {
		sig, next := tt.limits.Due(tt.clock, start.Add(tt.after))
		if sig != tt.sig || next != tt.next {
			t.Errorf("%s: Due = %d, %v; want %d, %v", tt.name, sig, next, tt.sig, tt.next)
		}
	}
}

func newRoot(t *testing.T) *spool.Root {
	t.Helper()
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// activeRun makes a run that is active, and what has launched it.
func activeRun(t *testing.T) (*Launcher, spool.RunID, spool.Dir) {
	t.Helper()
	l, run := New(Runs{Root: newRoot(t)}), spool.RunID{Job: 7, Task: 1}
	if _, err := l.Root.Stage(run, -1); err != nil {
		t.Fatal(err)
	}
	d, err := l.Root.Activate(run)
	if err != nil {
		t.Fatal(err)
	}
	return l, run, d
}

// A job is over when usage is there, or nobody has its number who had it when the
// number was written.
func TestJobOver(t *testing.T) {
	l, run, d := activeRun(t)
	over := func(what string, want bool) {
		t.Helper()
		if got := l.JobOver(run); got != want {
			t.Errorf("%s: JobOver = %t; want %t", what, got, want)
		}
	}
	over("it has not begun", false)
	if err := d.WriteNew(spool.FileJobPID, spool.AppendNumber(nil, os.Getpid())); err != nil {
		t.Fatal(err)
	}
	over("its process is there", false)
	then := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(d.Path(spool.FileJobPID), then, then); err != nil {
		t.Fatal(err)
	}
	over("its number is that of a younger process", true)
}

// The clock of a run is what its directory says.
func TestClock(t *testing.T) {
	l, run, d := activeRun(t)
	look := func(what string, want Clock) {
		t.Helper()
		got, err := l.Clock(run)
		if err != nil || !got.Started.Equal(want.Started) || got.Ended != want.Ended || got.Warned != want.Warned {
			t.Errorf("%s: Clock = %+v, %v; want %+v", what, got, err, want)
		}
	}
	put := func(name, text string) {
		t.Helper()
		if err := d.Append(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.TimeLimits(run); err == nil {
		t.Error("TimeLimits without config: no error")
	}
	put(spool.FileConfig, "paddock_format=1\npaddock_foreign=1\npaddock_foreign_s_rt=5\npaddock_foreign_h_rt=7\n")
	if got, err := l.TimeLimits(run); err != nil || got != (TimeLimits{5 * time.Second, 7 * time.Second}) {
		t.Errorf("TimeLimits = %+v, %v; want 5 s and 7 s", got, err)
	}
	look("nothing", Clock{})
	put(spool.FileJobPID, "")
	look("emptied job_pid", Clock{})
	put(spool.FileJobPID, "4194305\n") // more than any process has
	started := time.Unix(1234, 0)
	if err := os.Chtimes(d.Path(spool.FileJobPID), started, started); err != nil {
		t.Fatal(err)
	}
	look("started", Clock{Started: started})
	put(spool.FileSignals, "9 1\n")
	look("killed", Clock{Started: started})
	put(spool.FileSignals, "10 2\n")
	look("warned", Clock{Started: started, Warned: true})
	put(spool.FileUsage, testUsage)
	look("ended", Clock{Started: started, Ended: true, Warned: true})
	// A clock that was set forward makes nobody older.
	if err := os.WriteFile(d.Path(spool.FileJobPID), spool.AppendNumber(nil, os.Getpid()), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(d.Path(spool.FileJobPID), started, started); err != nil {
		t.Fatal(err)
	}
	if got := l.Since(run, started); !got.Equal(started) {
		t.Errorf("Since = %v without a shepherd; want what was noted", got)
	}
	put(spool.FilePID, string(spool.AppendNumber(nil, os.Getpid())))
	if got := l.Since(run, started); time.Since(got) > time.Hour {
		t.Errorf("Since = %v; want the start of the process", got)
	}
	if got, err := l.Clock(run); err != nil || time.Since(got.Started) > time.Hour {
		t.Errorf("of a process that runs: Clock = %+v, %v; want its own start", got, err)
	}
}

// A run whose shepherd died after the job is not run again, unless the job had
// asked for it.
func TestAbnormal(t *testing.T) {
	const own = "paddock_format=1\n"
	exit := func(code string) string { return strings.Replace(testUsage, "exit_status=0", "exit_status="+code, 1) }
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  spool.Outcome
	}{
		{"exit 0", map[string]string{"config": own + "forbid_reschedule=0\n", "usage": testUsage}, spool.Outcome{Failed: 19, Blame: spool.BlameSystem}},
		{"exit 99", map[string]string{"config": own + "forbid_reschedule=0\n", "usage": exit("99")}, spool.Outcome{Failed: 25}},
		{"exit 99 forbidden", map[string]string{"config": own + "forbid_reschedule=1\n", "usage": exit("99")}, spool.Outcome{Failed: 19, Blame: spool.BlameSystem}},
		{"exit 99, no config", map[string]string{"usage": exit("99")}, spool.Outcome{Failed: 19, Blame: spool.BlameSystem}},
		{"migrates", map[string]string{"config": own, "usage": testUsage, "checkpointed": "1\n"}, spool.Outcome{Failed: 24, Checkpoint: true}},
		{"migrates without", map[string]string{"config": own, "usage": testUsage, "checkpointed": "0\n"}, spool.Outcome{Failed: 24}},
	} {
		d := runDir(t, tt.files)
		got := abnormal(d, Unreported)
		if got.Usage == nil {
			t.Errorf("%s: no usage", tt.name)
		}
		got.Usage, got.Reason = nil, ""
		if got != tt.want {
			t.Errorf("%s: abnormal = %+v; want %+v", tt.name, got, tt.want)
		}
	}
}

func TestEnvironmentIsGridEngines(t *testing.T) {
	golden, err := spool.OpenDir("../../../spool/testdata/golden/batch-exit3").Environment()
	if err != nil {
		t.Fatal(err)
	}
	l, o := goldenOrder()
	got := l.environment(o, "/var/spool/gridengine/execd/gehost/active_jobs/69.1")
	for i := range got { // the golden host's architecture is not necessarily ours
		got[i] = strings.ReplaceAll(got[i], "="+Arch(), "=lx-amd64")
	}
	if diff := cmp.Diff(golden, got); diff != "" {
		t.Errorf("environment (-Grid Engine's +ours):\n%s", diff)
	}
}

func TestUsersVariablesKeepTheirPlace(t *testing.T) {
	l, o := goldenOrder()
	o.Request.Env = []string{"A=1", "JOB_ID=mine", "PATH=/my/bin", "PADDOCK_HOOK_SERVER=K@/spool", "B=x\ny", "TERM=vt100"}
	got := l.environment(o, "/spool")
	want := []string{"TERM=vt100", "A=1", "JOB_ID=69", "PATH=/tmp/69.1.gold.q:/my/bin", "B=x\ny"}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("first variables (-want +got):\n%s", diff)
	}
	for i, v := range got {
		name, _, _ := strings.Cut(v, "=")
		if j := slices.IndexFunc(got, func(w string) bool { return strings.HasPrefix(w, name+"=") }); j != i {
			t.Errorf("%s stands twice", name)
		}
	}
}

// A job on a slot, and a task in it, is told of the slot and of the ads of the run,
// whatever it brings; one of qsub keeps what it brings.
func TestJobOnASlotHasHTCondorsVariables(t *testing.T) {
	l, o := goldenOrder()
	o.Request.Env = []string{"_CONDOR_SLOT=mine", "BATCH_SYSTEM=mine"}
	told := func(dir string) []string {
		return slices.DeleteFunc(l.environment(o, dir), func(v string) bool {
			return !strings.HasPrefix(v, "_CONDOR_") && !strings.HasPrefix(v, "BATCH_SYSTEM=")
		})
	}
	if diff := cmp.Diff(o.Request.Env, told("/spool/69.1")); diff != "" {
		t.Errorf("of qsub (-want +got):\n%s", diff)
	}
	o.Slot = "slot1_2"
	want := []string{
		"_CONDOR_SLOT=slot1_2", "BATCH_SYSTEM=HTCondor", "_CONDOR_SCRATCH_DIR=" + o.tmpdir(),
		"_CONDOR_MACHINE_AD=/spool/69.1/machine.ad", "_CONDOR_JOB_AD=/spool/69.1/job.ad",
	}
	for _, v := range want[2:] {
		if name, _, _ := strings.Cut(v, "="); !knob.OfJob(name) {
			t.Errorf("%s would be a knob of an execd that a job starts", name)
		}
	}
	if diff := cmp.Diff(want, told("/spool/69.1")); diff != "" {
		t.Errorf("on a slot (-want +got):\n%s", diff)
	}
	o.Sub = &Subtask{Name: "1.gehost"}
	if diff := cmp.Diff(want, told("/spool/69.1/1.gehost")); diff != "" {
		t.Errorf("of a task (-want +got):\n%s", diff)
	}
}

// No argument, name or path can add a line to config or change another.
func TestNothingCanAddALine(t *testing.T) {
	l, o := goldenOrder()
	evil := "x\nepilog=root@/bin/echo"
	o.Request.Args = []string{evil, "plain"}
	config, args, err := l.config(o)
	if err != nil {
		t.Fatal(err)
	}
	list, err := spool.ParseArgs(args)
	if err != nil || !slices.Equal(list, o.Request.Args) {
		t.Errorf("args = %q, %v; want %q", list, err, o.Request.Args)
	}
	back, err := spool.ParseConfig(config.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := back.Lookup("epilog"); v != "/opt/site/epilog.sh $job_id" {
		t.Errorf("epilog = %q; want the queue's", v)
	}
	for what, set := range map[string]func(*api.SubmitRequest){
		"name":    func(r *api.SubmitRequest) { r.Name = evil },
		"account": func(r *api.SubmitRequest) { r.Account = evil },
		"cwd":     func(r *api.SubmitRequest) { r.Cwd = "/" + evil },
		"stdout":  func(r *api.SubmitRequest) { r.Stdout = "/" + evil },
		"shell":   func(r *api.SubmitRequest) { r.Shell = "/" + evil },
		"command": func(r *api.SubmitRequest) { r.Binary, r.Command = true, evil },
	} {
		l, o := goldenOrder()
		set(o.Request)
		if _, _, err := l.config(o); err == nil {
			t.Errorf("a newline in the %s is accepted", what)
		}
	}
}

func TestExpand(t *testing.T) {
	n := names{home: "/home/geuser", user: "geuser", jobName: "tid", host: "gehost", job: 153}
	for _, tt := range []struct{ text, want string }{
		// As captured from Grid Engine 8.1.9.
		{"/home/geuser/tid.$TASK_ID.$JOB_ID.$JOB_NAME.$USER.$HOSTNAME.$$.$FOO", "/home/geuser/tid.0.153.tid.geuser.gehost.$.$FOO"},
		{"~/out", "/home/geuser/out"},
		{"~", "/home/geuser"},
		{"~other/x", "~other/x"},
		{"$HOME/x", "/home/geuser/x"},
		{"$USERX", "geuserX"},
		{"$", "$"},
		{"a$", "a$"},
	} {
		if got := n.expand(tt.text); got != tt.want {
			t.Errorf("expand(%q) = %q; want %q", tt.text, got, tt.want)
		}
	}
}

func TestStream(t *testing.T) {
	n := names{home: "/home/u", user: "u", host: "gehost"}
	for _, tt := range []struct{ requested, want string }{
		{"", "/wd"},
		{"out", "/wd/out"},
		{"logs/", "/wd/logs/"}, // and never a file logs
		{"/abs", "/abs"},
		{"gehost:/here,other:/there", "/here"},
		{"other:/there,/fallback", "/fallback"},
		{"gehost.example.com:/here", "/here"},
		{":/old", "/old"},
		{"other:/there", "/wd"},
	} {
		if got := n.stream(tt.requested, "/wd", "/wd"); got != tt.want {
			t.Errorf("stream(%q) = %q; want %q", tt.requested, got, tt.want)
		}
	}
}

// testUsage is the usage of a job that exited with 0.
const testUsage = "wait_status=1\nexit_status=0\nsignal=0\nstart_time=1\nend_time=2\nru_wallclock=1\n" +
	"ru_utime=0.000000\nru_stime=0.000000\nru_maxrss=1\nru_ixrss=0\nru_idrss=0\nru_isrss=0\nru_minflt=0\nru_majflt=0\n" +
	"ru_nswap=0\nru_inblock=0\nru_oublock=0\nru_msgsnd=0\nru_msgrcv=0\nru_nsignals=0\nru_nvcsw=0\nru_nivcsw=0\n"

// runDir makes the directory of a run, with these files.
func runDir(t *testing.T, files map[string]string) spool.Dir {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return spool.OpenDir(dir)
}

// Every row of the table of recovery, from real directories.
func TestVerdict(t *testing.T) {
	const usage = testUsage
	for _, tt := range []struct {
		name  string
		files map[string]string
		held  bool
		want  Verdict
	}{
		{"held", map[string]string{"pid": "1\n"}, true, Lives},
		{"held with everything", map[string]string{"pid": "1\n", "exit_status": "0\n", "usage": usage}, true, Lives},
		{"status", map[string]string{"pid": "1\n", "exit_status": "0\n"}, false, HasEnded},
		{"status and usage", map[string]string{"pid": "1\n", "exit_status": "8\n", "usage": usage}, false, HasEnded},
		{"empty status, usage", map[string]string{"pid": "1\n", "exit_status": "", "usage": usage}, false, Unreported},
		{"no status, usage", map[string]string{"pid": "1\n", "usage": usage}, false, Unreported},
		{"torn usage", map[string]string{"pid": "1\n", "exit_status": "", "usage": usage[:20]}, false, ShepherdDied},
		{"empty status", map[string]string{"pid": "1\n", "exit_status": ""}, false, ShepherdDied},
		{"pid", map[string]string{"pid": "1\n"}, false, ShepherdDied},
		{"garbage in status", map[string]string{"pid": "1\n", "exit_status": "\xff\x00"}, false, ShepherdDied},
		{"nothing", map[string]string{}, false, NeverStarted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := runDir(t, tt.files)
			if tt.held {
				lock, err := d.Lock()
				if err != nil {
					t.Fatal(err)
				}
				defer lock.Close()
			}
			e, err := Look(d)
			if err != nil {
				t.Fatal(err)
			}
			if got := e.Verdict(); got != tt.want {
				t.Errorf("Verdict of %+v = %v; want %v", e, got, tt.want)
			}
		})
	}
}

// A copy of the lock that is about to go is no shepherd that lives.
func TestCopyOfLock(t *testing.T) {
	d := runDir(t, map[string]string{"pid": "1\n", "exit_status": "0\n", "usage": testUsage})
	lock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	info, err := lock.Stat()
	if err != nil {
		t.Fatal(err)
	}
	file := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
	ctx, cancel := context.WithCancel(t.Context())
	var copied sync.WaitGroup
	copied.Go(func() {
		defer lock.Close()
		isWaitedFor := func(line string) bool { return strings.Contains(line, "-> FLOCK") && strings.Contains(line, file) }
		for ctx.Err() == nil {
			locks, err := os.ReadFile("/proc/locks")
			if err != nil || slices.ContainsFunc(strings.Split(string(locks), "\n"), isWaitedFor) {
				return
			}
			runtime.Gosched()
		}
	})
	e, err := lookBack(d)
	cancel()
	copied.Wait()
	if err != nil || e.Verdict() != HasEnded {
		t.Errorf("lookBack = %v, %v; want that it has ended", e.Verdict(), err)
	}
}

// What cannot be read for now is no evidence of a shepherd that has died.
func TestUnreadEvidence(t *testing.T) {
	d := runDir(t, map[string]string{"pid": "1\n", "exit_status": "0\n", "usage": testUsage})
	for _, name := range []string{"pid", "exit_status", "usage"} {
		restore := spooltest.FailReads(t, "/"+name, unix.EMFILE)
		e, err := Look(d)
		restore()
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("%s: %v, %v; want the error", name, e.Verdict(), err)
		}
	}
}

func TestWatcherTellsOfEachEnd(t *testing.T) {
	l := &Launcher{}
	ended := make(chan spool.RunID, 8)
	w, err := newWatcher(func(run spool.RunID) { ended <- run }, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.forks = newForker()
	stop, done := make(chan struct{}), make(chan struct{}, 2)
	go func() { l.forks.run(stop); done <- struct{}{} }()
	go func() { w.run(); done <- struct{}{} }()
	lock, err := spool.LockFile(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	want := map[spool.RunID]bool{}
	for i := 1; i <= 5; i++ {
		run := spool.RunID{Job: i, Task: 1}
		_, pidfd, err := l.forks.start(&fork{path: "/bin/true", name: "true", dir: "/", lock: lock})
		if err != nil {
			t.Fatal(err)
		}
		want[run] = true
		w.add(run, pidfd)
	}
	for range 5 {
		delete(want, <-ended)
	}
	if len(want) > 0 {
		t.Errorf("not told of %v", want)
	}
	close(stop)
	w.stop()
	<-done
	<-done
}

// The TMPDIR of a run from before the host was restarted may be gone, and its name be
// that of somebody's directory.
func TestYoungerTmpdir(t *testing.T) {
	l, _ := goldenOrder()
	l.Privileged, l.Log = false, slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "69.1.gold.q")
	file := filepath.Join(path, "file")
	run := spool.OpenDir(t.TempDir())
	var c spool.Config
	err := errors.Join(os.Mkdir(path, 0o755), os.WriteFile(file, nil, 0o600), c.Set(spool.KeyTmpdir, path),
		c.Set(spool.KeyUID, "0"), c.Set(spool.KeyGID, "0"), c.Set(spool.KeyGroups, "0"))
	if err == nil {
		err = run.WriteNew(spool.FileConfig, c.Append(nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME, &st); err != nil || st.Mask&unix.STATX_BTIME == 0 {
		t.Skip("the file system does not know when a directory was made")
	}
	before := time.Now().Add(-proc.Uptime() - time.Hour)
	if err := os.Chtimes(run.Path(spool.FileConfig), before, before); err != nil {
		t.Fatal(err)
	}
	if err := l.removeTmpdir(run, &c); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(file); err != nil {
		t.Errorf("what is somebody else's was removed: %v", err)
	}
	now := time.Now()
	if err := os.Chtimes(run.Path(spool.FileConfig), now, now); err != nil {
		t.Fatal(err)
	}
	if err := l.removeTmpdir(run, &c); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the TMPDIR of a run is left")
	}
}

// A TMPDIR's name may be taken, by another execd's job of the same number or by
// somebody who means harm: it is left alone and another is used.
func TestTakenTmpdir(t *testing.T) {
	l, o := goldenOrder()
	l.Privileged = false
	o.Queue.Tmpdir = t.TempDir()
	taken := filepath.Join(o.Queue.Tmpdir, "69.1.gold.q")
	if err := os.WriteFile(taken, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := l.makeTmpdir(o)
	if err != nil {
		t.Fatal(err)
	}
	dir.Close()
	if got := o.tmpdir(); !strings.HasPrefix(got, taken+".") {
		t.Errorf("TMPDIR = %q; want another than %q", got, taken)
	}
	config, _, err := l.config(o)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := config.Lookup("tmpdir"); got != o.tmpdir() {
		t.Errorf("tmpdir in config = %q; want %q", got, o.tmpdir())
	}
	if env := l.environment(o, "/spool"); !slices.Contains(env, "TMPDIR="+o.tmpdir()) {
		t.Errorf("environment lacks TMPDIR=%s", o.tmpdir())
	}
	if b, err := os.ReadFile(taken); err != nil || string(b) != "mine" {
		t.Errorf("what was there before: %q, %v", b, err)
	}
	if err := l.removeTmpdir(spool.OpenDir(t.TempDir()), config); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(o.tmpdir()); !os.IsNotExist(err) {
		t.Errorf("TMPDIR is left: %v", err)
	}
}

// A try that could not be taken back, for want of descriptors, say, has left its
// directory in staging. The next try removes it with the TMPDIR that it names.
func TestBuildAgain(t *testing.T) {
	l, o := goldenOrder()
	l.Root, l.Privileged, o.Queue.Tmpdir = newRoot(t), false, t.TempDir()
	for range 2 {
		o.chosen = ""
		if err := l.Build(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Discard(o.Task.RunID()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(o.Queue.Tmpdir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// What may be another job's of the same owner stays, since it was made after
// the host started.
func TestLivingTmpdir(t *testing.T) {
	l, o := goldenOrder()
	l.Privileged = false
	o.Owner.UID = os.Getuid()
	o.Queue.Tmpdir = t.TempDir()
	taken := filepath.Join(o.Queue.Tmpdir, "69.1.gold.q")
	if err := os.Mkdir(taken, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := l.makeTmpdir(o)
	if err != nil {
		t.Fatal(err)
	}
	dir.Close()
	if err := l.CleanOld(spool.ID{Job: 69, Task: 1}, o.Queue, o.Owner); err != nil {
		t.Error(err)
	}
	// Nor does a clock that is set forward make it older than the host.
	booted := l.bootTime()
	if booted.After(time.Now()) {
		t.Errorf("bootTime = %v", booted)
	}
	l.booted = booted.Add(-time.Hour)
	if again := l.bootTime(); !again.Equal(l.booted) {
		t.Errorf("bootTime = %v; want the earlier one", again)
	}
	if info, err := os.Stat(taken); o.tmpdir() == taken || err != nil || !info.IsDir() {
		t.Errorf("TMPDIR = %s; the one before: %v", o.tmpdir(), err)
	}
}

// Who started the host again is told so, and who removed the directory of a
// job that ran is not.
func TestCollectLost(t *testing.T) {
	l := New(Runs{Root: newRoot(t)})
	for rebooted, want := range map[bool]string{true: hostRestarted, false: "the job's spool directory is gone"} {
		out, err := l.Collect(spool.RunID{Job: 987654321, Task: 1}, 0, rebooted)
		if err != nil || out.Failed != spool.FailedNoExitStatus || out.Reason != want {
			t.Errorf("Collect(rebooted=%v) = %+v, %v; want the reason %q", rebooted, out, err, want)
		}
	}
}

// A job that was ended with the host is cut short, whatever its shepherd has reported.
func TestCollectFallen(t *testing.T) {
	const asked = "asked_to_end="
	for _, tt := range []struct {
		name, signal, asked string
		rebooted            bool
		failed              int
		stops               bool
	}{
		{"with the host", "15", "0", true, spool.FailedNoExitStatus, false},
		{"with its terminal", "1", "0", true, spool.FailedNoExitStatus, false},
		{"while the host went on", "15", "0", false, spool.FailedAfterJob, false},
		{"of itself", "11", "0", true, spool.FailedAfterJob, false},
		{"since somebody wanted it", "15", "15", true, spool.FailedAfterJob, false},
		{"by a foreign shepherd", "15", "", true, spool.FailedAfterJob, false},
		{"in good order", "0", "0", true, spool.FailedNone, false},
		{"in good order, with the host", "0", "0", true, spool.FailedNoExitStatus, true},
		{"in good order, while its shepherd was sent SIGTERM", "0", "0", false, spool.FailedNone, true},
		{"in good order, since somebody wanted it", "0", "15", true, spool.FailedNone, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, run, d := activeRun(t)
			usage := strings.Replace(testUsage, "\nsignal=0\n", "\nsignal="+tt.signal+"\n", 1)
			if tt.asked != "" {
				usage += asked + tt.asked + "\n"
			}
			if tt.stops {
				usage += "host_stops=1\n"
			}
			for name, text := range map[string]string{"pid": "1\n", "usage": usage, "exit_status": "0\n"} {
				if err := os.WriteFile(d.Path(name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			out, err := l.Collect(run, 0, tt.rebooted)
			if err != nil || out.Failed != tt.failed || (out.Reason == hostRestarted) != (tt.failed == spool.FailedNoExitStatus) {
				t.Errorf("Collect = %+v, %v; want the code %d", out, err, tt.failed)
			}
		})
	}
}

// What a power cut has left of the results of a run proves nothing; without one somebody has
// to look at them.
func TestCollectTorn(t *testing.T) {
	for _, rebooted := range []bool{true, false} {
		l, run, d := activeRun(t)
		l.Log = slog.New(slog.DiscardHandler)
		for name, text := range map[string]string{"pid": "1\n", "usage": strings.Repeat("\x00", 300), "exit_status": "0\n"} {
			if err := os.WriteFile(d.Path(name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out, err := l.Collect(run, 0, rebooted)
		if err != nil || (out.Reason == hostRestarted) != rebooted || strings.Contains(out.Reason, "cannot be read") == rebooted {
			t.Errorf("rebooted %v: %+v, %v", rebooted, out, err)
		}
	}
}

func TestTmpdirParent(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	l := New(Runs{Privileged: true})
	if _, err := l.openParent(dir); err == nil {
		t.Error("a parent that others may write to, without sticky bit, is accepted")
	}
	if _, err := l.openParent(filepath.Join(dir, "missing")); err == nil {
		t.Error("a parent that is not there is accepted")
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
			t.Fatal(err)
		}
		if parent, err := l.openParent(dir); err == nil {
			parent.Close()
		} else {
			t.Errorf("a sticky parent of root's: %v", err)
		}
	}
}

// What is done to a scratch directory is done to the one that was made, whatever has
// its name by then; and one that is not ours is not opened.
func TestSwappedTmpdir(t *testing.T) {
	l, o := goldenOrder()
	l.Privileged = os.Geteuid() == 0
	o.Owner.UID, o.Owner.GID = os.Getuid()+1, os.Getgid()+1
	if !l.Privileged {
		o.Owner.UID, o.Owner.GID = os.Getuid(), os.Getgid()
	}
	o.Queue.Tmpdir = t.TempDir()
	dir, err := l.makeTmpdir(o)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if info, err := os.Stat(o.tmpdir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("before config names it: %v, %v; want mode 0700", info, err)
	}
	moved := filepath.Join(o.Queue.Tmpdir, "moved")
	if err := errors.Join(os.Rename(o.tmpdir(), moved), os.Mkdir(o.tmpdir(), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := l.giveTmpdir(o, dir); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		uid  int
		mode fs.FileMode
	}{moved: {o.Owner.UID, 0o755}, o.tmpdir(): {os.Getuid(), 0o700}} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if uid := int(info.Sys().(*syscall.Stat_t).Uid); uid != want.uid || info.Mode().Perm() != want.mode {
			t.Errorf("%s: uid %d, mode %v; want %+v", path, uid, info.Mode(), want)
		}
	}
	parent, err := l.openParent(o.Queue.Tmpdir)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	if err := os.Symlink(filepath.Base(o.tmpdir()), filepath.Join(o.Queue.Tmpdir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"moved", "link"} {
		if f, err := openOwn(parent, name); err == nil {
			f.Close()
			t.Errorf("%s is taken for one that was just made", name)
		}
	}
}

// What an execd that was killed has made, and no run has, goes; what may be in use
// stays, whoever's it is.
func TestSweepTmpdirs(t *testing.T) {
	root := newRoot(t)
	l, o := goldenOrder()
	l.Root, l.Privileged, l.Log = root, os.Geteuid() == 0, slog.New(slog.DiscardHandler)
	parent := t.TempDir()
	o.Queue.Tmpdir = parent
	dir, err := l.makeTmpdir(o)
	if err != nil {
		t.Fatal(err)
	}
	dir.Close()
	lost := filepath.Base(o.tmpdir())
	stays := map[string]fs.FileMode{
		"70.1.gold.q":                  0o755, // another execd's, of a job that runs
		"71.1.gold.q":                  0o700, // ours, in use
		"72.1.gold.qq":                 0o700, // of no queue of ours
		"73.1.gold.q":                  0o700, // not empty
		"1.gold.q":                     0o700,
		"x.1.gold.q":                   0o700,
		"74.1.gold.q.private-00000000": 0o700, // not empty, and another execd's
	}
	goes := []string{lost, "75.1.gold.q.1x2", "76.2.gold.q.private"}
	for name, mode := range stays {
		if err := errors.Join(os.Mkdir(filepath.Join(parent, name), mode), os.Chmod(filepath.Join(parent, name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range goes[1:] {
		if err := os.Mkdir(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"73.1.gold.q", "74.1.gold.q.private-00000000"} {
		if err := os.WriteFile(filepath.Join(parent, name, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run, err := root.Stage(spool.RunID{Job: 71, Task: 1}, -1)
	if err != nil {
		t.Fatal(err)
	}
	var c spool.Config
	if err := c.Set(spool.KeyTmpdir, filepath.Join(parent, "71.1.gold.q")); err != nil {
		t.Fatal(err)
	}
	if err := run.WriteNew(spool.FileConfig, c.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if err := l.Sweep([]conf.Queue{*o.Queue}); err != nil {
		t.Fatal(err)
	}
	for name := range stays {
		if _, err := os.Lstat(filepath.Join(parent, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range goes {
		if _, err := os.Lstat(filepath.Join(parent, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}
