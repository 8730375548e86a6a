package conf

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// load reads a directory as the host that the real files are of.
func load(dir string) (*Config, error) {
	return Load(Options{Dir: dir, Tmpdir: "/tmp", Host: "gehost.example.org"})
}

func TestDefaults(t *testing.T) {
	c, err := Load(Options{Dir: filepath.Join(t.TempDir(), "missing"), Tmpdir: "/tmp", Host: "gehost"})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Queues) != 1 || c.Queues[0].Name != "all.q" || c.Slots() != runtime.NumCPU() {
		t.Errorf("without files: %+v; want all.q with a slot a processor", c.Queues)
	}
	if c.Global.MinUID < 100 {
		t.Errorf("min_uid = %d; want system users refused", c.Global.MinUID)
	}
}

// A queue as `qconf -sq` of Grid Engine 8.1.9 prints it.
const printed = `qname                 long.q
hostlist              @allhosts
seq_no                10
load_thresholds       NONE
suspend_thresholds    NONE
nsuspend              1
suspend_interval      00:05:00
priority              5
min_cpu_interval      00:05:00
processors            UNDEFINED
qtype                 BATCH INTERACTIVE
ckpt_list             NONE
pe_list               make smp \
                      mpi
rerun                 TRUE
slots                 3
tmpdir                /scratch
shell                 /bin/bash
prolog                NONE
epilog                NONE
shell_start_mode      unix_behavior
starter_method        NONE
suspend_method        NONE
resume_method         NONE
terminate_method      NONE
notify                00:00:60
owner_list            NONE
user_lists            NONE
xuser_lists           NONE
subordinate_list      NONE
complex_values        NONE
projects              NONE
xprojects             NONE
calendar              NONE
initial_state         default
s_rt                  INFINITY
h_rt                  INFINITY
s_cpu                 INFINITY
h_cpu                 10:00:00
s_fsize               INFINITY
h_fsize               INFINITY
s_data                INFINITY
h_data                INFINITY
s_stack               INFINITY
h_stack               INFINITY
s_core                INFINITY
h_core                0
s_rss                 INFINITY
h_rss                 INFINITY
s_vmem                INFINITY
h_vmem                2G
`

func TestPrintedQueue(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "queues/long.q", printed)
	write(t, dir, "queues/all.q", "# first come\nqname all.q\nslots 2\nseq_no 1\n")
	write(t, dir, "queues/long.q~", "garbage")
	write(t, dir, "queues/.long.q.swp", "\x00")
	c, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Queues) != 2 || c.Queues[0].Name != "all.q" || c.Slots() != 5 {
		t.Fatalf("queues = %+v; want all.q then long.q, 5 slots", c.Queues)
	}
	q := c.Queues[1]
	limits := q.Limits
	q.Limits = nil
	want := Queue{
		Name: "long.q", SeqNo: 10, Slots: 3, Priority: 5, Rerun: true,
		Tmpdir: "/scratch", Shell: "/bin/bash", ShellStartMode: "unix_behavior", Notify: time.Minute,
		PEs: []string{"make", "smp", "mpi"}, Batch: true, Interactive: true, Suspend: 1, SuspendInterval: 5 * time.Minute,
		MinCPUInterval: 5 * time.Minute, Complex: Values{},
	}
	if diff := cmp.Diff(want, q); diff != "" {
		t.Errorf("long.q (-want +got):\n%s", diff)
	}
	found := map[string]string{}
	for _, l := range limits {
		found[l.Key] = l.Value
	}
	if found["h_cpu"] != "10:00:00" || found["h_vmem"] != "2G" || len(limits) != 14 {
		t.Errorf("limits = %v; want all 14 with h_cpu and h_vmem as written", limits)
	}
}

// defaultGlobal is what holds without a file.
func defaultGlobal(t *testing.T) Global {
	t.Helper()
	c, err := load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c.Global
}

func TestGlobal(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "sge_conf", "#global:\nmin_uid 500\ngid_range 30000-30010,31000\n"+
		"execd_params S_DESCRIPTORS=1000,H_DESCRIPTORS=2000\nxterm /bin/xterm\nmax_u_jobs 7\nlogin_shells bash,sh\n")
	c, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := defaultGlobal(t)
	want.MinUID, want.MaxUserJobs, want.Xterm = 500, 7, "/bin/xterm"
	want.GIDRange = []Range{{30000, 30010}, {31000, 31000}}
	want.Limits = []Limit{{"s_descriptors", "1000"}, {"h_descriptors", "2000"}}
	want.LoginShells = []string{"bash", "sh"}
	if diff := cmp.Diff(want, c.Global); diff != "" {
		t.Errorf("sge_conf (-want +got):\n%s", diff)
	}
}

func TestBadFiles(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"slots", "qname bad.q\nslots many\n", `bad.q:2: slots: "many" is not a number`},
		{"range", "qname bad.q\nslots -1\n", `bad.q:2: slots: -1 is not between 0 and 100000`},
		{"unknown", "qname bad.q\n\nslotz 3\n", `bad.q:3: unknown parameter "slotz", did you mean "slots"?`},
		{"twice", "qname bad.q\nslots 1\nslots 2\n", `bad.q:3: slots is already set in line 2`},
		{"not supported", "qname bad.q\ncalendar night\n", `bad.q:2: calendar: not supported, only NONE is: there are no calendars`},
		{"override", "qname bad.q\nslots 4,[gehost]\n", `bad.q:2: slots: "[gehost]" is not [host=value]`},
		{"no value", "qname bad.q\nshell\n", `bad.q:2: shell has no value`},
		{"path", "qname bad.q\nshell bin/sh\n", `bad.q:2: shell: "bin/sh" is not an absolute path`},
		{"mode", "qname bad.q\nshell_start_mode raw\n", `bad.q:2: shell_start_mode: "raw" is none of`},
		{"limit", "qname bad.q\nh_vmem lots\n", `bad.q:2: h_vmem: "lots" is not a limit`},
		{"other name", "qname good.q\n", `bad.q:1: qname "good.q" is not the name of the file`},
		{"binary", "qname bad.q\nsl\x00ts 1\n", `bad.q:2: not a text file: NUL byte`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "queues/bad.q", tt.text)
			_, err := load(dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Load = %v; want %q", err, tt.want)
			}
		})
	}
	// All mistakes are reported at once.
	dir := t.TempDir()
	write(t, dir, "queues/bad.q", "qname bad.q\nslots x\nrerun maybe\n")
	write(t, dir, "sge_conf", "gid_range 5\nexecd_params KEEP_ACTIVE=maybe\n")
	_, err := load(dir)
	if n := strings.Count(err.Error(), "\n") + 1; n != 4 {
		t.Errorf("Load reports %d mistakes; want 4:\n%v", n, err)
	}
}

// What runs beside a job, and how it is ended.
func TestProcedures(t *testing.T) {
	const all = "/p $host $ja_task_id $job_owner $job_id $job_name $queue $processors $stdin_path $stdout_path $stderr_path " +
		"$merge_stderr $fs_stdin_host $fs_stdout_path $fs_stderr_tmp_path $fs_stdin_file_staging $sge_root/$sge_cell"
	for _, tt := range []struct {
		name, value string
		want        any    // what is kept of it
		err         string // or why it is refused
	}{
		{"prolog", "NONE", "", ""},
		{"prolog", "none", "", ""},
		{"prolog", "/opt/site/p", "/opt/site/p", ""},
		{"prolog", "root@/opt/site/p  $job_id\tx@y", "root@/opt/site/p  $job_id\tx@y", ""},
		{"prolog", all, all, ""},
		{"epilog", "alice@/e $queue-$job_id", "alice@/e $queue-$job_id", ""},
		{"prolog", "p", nil, `prolog: "p" is not an absolute path`},
		{"prolog", "root@p", nil, `prolog: "p" is not an absolute path`},
		{"prolog", "@/p", nil, `prolog: no user before the @`},
		{"prolog", "root@", nil, `prolog: "" is not an absolute path`},
		{"prolog", "SIGTERM", nil, `prolog: "SIGTERM" is not an absolute path`},
		{"prolog", "/p $job_idx", nil, `prolog: unknown variable $job_idx, did you mean "$job_id"?`},
		{"prolog", "/p $job_pid", nil, `prolog: unknown variable $job_pid`},
		{"epilog", "/p $pe_hostfile", nil, `epilog: unknown variable $pe_hostfile`},
		{"prolog", "/p $FOO", nil, `prolog: unknown variable $FOO`},
		{"prolog", "/p ${job_id}", nil, `prolog: a $ without the name of a variable behind it`},
		{"prolog", "/p $$", nil, `prolog: a $ without the name of a variable behind it`},
		{"prolog", "/p,[gehost=/q]", "/q", ""},
		{"prolog", "/p,[gehost=q]", nil, `prolog: "q" is not an absolute path`},
		{"prolog", "/p \x01", nil, `prolog: contains a control character`},
		{"suspend_method", "NONE", "", ""},
		{"suspend_method", "SIGTSTP", "SIGTSTP", ""},
		{"resume_method", "18", "18", ""},
		{"terminate_method", "/opt/end $job_pid $job_id", "/opt/end $job_pid $job_id", ""},
		{"terminate_method", "TERM", nil, `terminate_method: "TERM" is neither NONE nor a signal`},
		{"terminate_method", "SIGNIX", nil, `terminate_method: "SIGNIX" is neither NONE nor a signal`},
		{"terminate_method", "0", nil, `terminate_method: 0 is not the number of a signal`},
		{"terminate_method", "99999999999999999999", nil, `terminate_method: 99999999999999999999 is not the number of a signal`},
		{"terminate_method", "-9", nil, `terminate_method: "-9" is neither NONE nor a signal`},
		{"terminate_method", "/opt/end $stdout_path", nil, `terminate_method: unknown variable $stdout_path`},
		{"suspend_method", "root@/opt/s", nil, `suspend_method: "root@/opt/s" is neither NONE nor a signal`},
		{"notify", "00:01:30", 90 * time.Second, ""},
		{"notify", "0", time.Duration(0), ""},
		{"notify", "INFINITY", nil, `notify: "INFINITY" is not a time`},
		{"notify", "2G", nil, `notify: "2G" is not a time`},
		{"s_rt", "INFINITY", time.Duration(0), ""},
		{"s_rt", "3600", time.Hour, ""},
		{"h_rt", "24:00:00", 24 * time.Hour, ""},
		{"h_rt", "0:0:0", nil, `h_rt: 0 s would end every job at once`},
		{"h_rt", "1.5", nil, `h_rt: "1.5" is not a time`},
		{"h_rt", "99999999999", nil, `h_rt: 99999999999 is too long`},
		{"h_rt", "24:0:0,[gehost=1:0:0]", time.Hour, ""},
	} {
		t.Run(tt.name+" "+tt.value, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "queues/all.q", "qname all.q\n\n"+tt.name+" "+tt.value+"\n")
			c, err := load(dir)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), "all.q:3: "+tt.err) {
					t.Errorf("Load = %v; want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			q := &c.Queues[0]
			got := map[string]any{
				"prolog": q.Prolog, "epilog": q.Epilog, "suspend_method": q.SuspendMethod, "resume_method": q.ResumeMethod,
				"terminate_method": q.TerminateMethod, "notify": q.Notify, "s_rt": q.SRT, "h_rt": q.HRT,
			}[tt.name]
			if got != tt.want {
				t.Errorf("%v; want %v", got, tt.want)
			}
		})
	}
}

// The words of execd_params and qmaster_params that concern how jobs end.
func TestParams(t *testing.T) {
	for _, tt := range []struct {
		line string
		want func(*Global)
		err  string
	}{
		{"execd_params NONE", func(*Global) {}, ""},
		{"execd_params NOTIFY_KILL=TERM,NOTIFY_SUSP=SIGUSR2", func(g *Global) { g.NotifyKill.Signal, g.NotifySusp.Signal = "TERM", "USR2" }, ""},
		{"execd_params NOTIFY_KILL=none,NOTIFY_SUSP=default", func(g *Global) { g.NotifyKill.Off = true }, ""},
		{"execd_params SCRIPT_TIMEOUT=0:5:0", func(g *Global) { g.ScriptTimeout = 5 * time.Minute }, ""},
		{
			"execd_params IGNORE_NGROUPS_MAX_LIMIT=true ENABLE_ADDGRP_KILL=false",
			func(g *Global) { g.SkipNGroups, g.NoAddGrpKill = true, true }, "",
		},
		{"execd_params ENABLE_ADDGRP_KILL", func(*Global) {}, ""},
		{"execd_params CPU_QUOTA=slots", func(g *Global) { g.CPUQuota = true }, ""},
		{"execd_params CPU_QUOTA=none", func(*Global) {}, ""},
		{"execd_params CPU_QUOTA=NONE CPU_WEIGHT=SLOTS", func(g *Global) { g.CPUWeight = true }, ""},
		{"execd_params CPU_QUOTA=2", nil, `execd_params: CPU_QUOTA: "2" is neither slots nor NONE`},
		{"prolog root@/opt/p $host", func(g *Global) { g.Prolog = "root@/opt/p $host" }, ""},
		{"epilog NONE", func(*Global) {}, ""},
		{
			"qmaster_params ENABLE_FORCED_QDEL=true,FORBID_RESCHEDULE,FORBID_APPERROR=1 MONITOR_TIME=0:0:10",
			func(g *Global) { g.ForbidReschedule, g.ForbidApperror = true, true }, "",
		},
		{"qmaster_params forbid_reschedule=false", func(*Global) {}, ""},
		{"qmaster_params none", func(*Global) {}, ""},
		{"execd_params NOTIFY_KILL=NIX", nil, `execd_params: NOTIFY_KILL: "NIX" is neither a signal nor none nor default`},
		{"execd_params NOTIFY_KILL", nil, `execd_params: NOTIFY_KILL: "" is neither a signal`},
		{"execd_params SCRIPT_TIMEOUT=0", nil, `execd_params: SCRIPT_TIMEOUT: 0 s are too short`},
		{"execd_params SCRIPT_TIMEOUT=INFINITY", nil, `execd_params: SCRIPT_TIMEOUT: "INFINITY" is not a time`},
		{"execd_params ENABLE_ADDGRP_KILL=maybe", nil, `execd_params: ENABLE_ADDGRP_KILL: "maybe" is neither TRUE nor FALSE`},
		{"execd_params QRSH_LOST=Stop:end", func(g *Global) { g.SessionLost = []string{"stop", "end"} }, ""},
		{"execd_params QRSH_LOST=stop:never", nil, `execd_params: QRSH_LOST: "never" is none of end, stop and keep`},
		{"execd_params QRSH_LOST=stop:stop", nil, `execd_params: QRSH_LOST: stop is there twice`},
		{"execd_params SHEPHERD_TRACE=all", nil, `execd_params: SHEPHERD_TRACE: "all" is neither detail nor NONE`},
		{"execd_params SCRATCH_LIMIT=10G,SCRATCH_PROJECTS=1000-1999,SCRATCH_TMPFS", func(g *Global) {
			g.ScratchLimit, g.ScratchIDs, g.ScratchTmpfs = 10<<30, []Range{{1000, 1999}}, true
		}, ""},
		{"execd_params SCRATCH_LIMIT=none,SCRATCH_PROJECTS=NONE,SCRATCH_TMPFS=false", func(*Global) {}, ""},
		{"execd_params SCRATCH_LIMIT=INFINITY", nil, `execd_params: SCRATCH_LIMIT: "INFINITY" is not a number of bytes, like 10G`},
		{"execd_params SCRATCH_LIMIT=10K", nil, `execd_params: SCRATCH_LIMIT: 10K is not between 1M and 1048576T`},
		{"execd_params SCRATCH_PROJECTS=0-10", nil, `execd_params: SCRATCH_PROJECTS: "0-10" is not a range of numbers of projects`},
		{"execd_params SCRATCH_PROJECTS=10", nil, `execd_params: SCRATCH_PROJECTS: "10" is not a range of numbers of projects`},
		{"execd_params SCRATCH_PROJECTS=10-4294967295", nil, `execd_params: SCRATCH_PROJECTS: "10-4294967295" is not a range`},
		{"set_token_cmd /usr/bin/tok", nil, `set_token_cmd: not supported, only none is: qsub brings no AFS token`},
		{"execd_params USE_QSUB_GIT=true", nil, `execd_params: USE_QSUB_GIT is not supported, did you mean "USE_QSUB_GID"?`},
		{"qmaster_params FORBID_APPERROR=often", nil, `qmaster_params: FORBID_APPERROR: "often" is neither TRUE nor FALSE`},
		{"prolog relative", nil, `prolog: "relative" is not an absolute path`},
	} {
		t.Run(tt.line, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "sge_conf", tt.line+"\n")
			c, err := load(dir)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), "sge_conf:1: "+tt.err) {
					t.Errorf("Load = %v; want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := defaultGlobal(t)
			tt.want(&want)
			if diff := cmp.Diff(want, c.Global); diff != "" {
				t.Errorf("sge_conf (-want +got):\n%s", diff)
			}
		})
	}
}

// testLoader is one that has read nothing yet.
func testLoader() *loader {
	return &loader{Options: Options{Host: "gehost"}, conf: &Config{Complex: defaultComplex(), objects: map[string]map[string][]line{}}}
}
