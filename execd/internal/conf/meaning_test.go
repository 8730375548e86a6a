package conf

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMeaning is what the objects that Grid Engine printed mean on their host.
func TestMeaning(t *testing.T) {
	c, err := load(realFiles)
	if err != nil {
		t.Fatal(err)
	}
	q := c.Queues[1]
	limits := map[string]string{}
	for _, l := range q.Limits {
		limits[l.Key] = l.Value
	}
	if limits["h_vmem"] != "2.5G" || limits["h_core"] != "0" || len(limits) != 14 {
		t.Errorf("limits of odd.q = %v; want h_vmem of the group", limits)
	}
	q.Limits = nil
	attribute := func(name string) *Attribute { return c.Attribute(name) }
	if diff := cmp.Diff(Queue{
		Name: "odd.q", SeqNo: 12, Slots: 8, Priority: -5, Rerun: true, Tmpdir: "/scratch", Shell: "/bin/sh", ShellStartMode: "unix_behavior",
		Prolog:        "root@/opt/site/prolog $job_id $job_owner $host $queue and words to make a long line of it",
		SuspendMethod: "SIGTSTP", ResumeMethod: "/opt/site/resume $job_pid", TerminateMethod: "15", Notify: 90 * time.Second,
		SRT: 59*time.Minute + 30*time.Second, HRT: time.Hour, Batch: true, PEs: []string{"odd"}, Checkpoints: []string{"odd", "odd2"},
		UserLists: []string{"oddusers", "oddothers"}, XUserLists: []string{"oddothers"}, Owners: []string{"root", "sgeadmin"},
		Complex: Values{"odd_mem": {"16G", 16 << 30, nil, nil}, "odd_time": {"3600", 3600, nil, nil}},
		LoadThresholds: []Threshold{
			{attribute("np_load_avg"), Value{"1.75", 1.75, nil, nil}},
			{attribute("mem_free"), Value{"100M", 100 << 20, nil, nil}},
			{attribute("mem_used"), Value{"20G", 20 << 30, nil, nil}},
		},
		SuspendThresholds: []Threshold{{attribute("load_avg"), Value{"20", 20, nil, nil}}},
		Suspend:           2, SuspendInterval: 90 * time.Second, Subordinates: []Subordinate{{"low.q", 2}}, InitiallyDisabled: true,
		Processors: "0-3,6", MinCPUInterval: 10 * time.Minute,
	}, q); diff != "" {
		t.Errorf("odd.q (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&PE{
		Name: "odd", Slots: 99, UserLists: []string{"oddusers"}, XUserLists: []string{"oddothers"},
		StartProcArgs: "root@/opt/site/pe start $pe_hostfile $host $job_owner $pe $pe_slots and some more words", StopProcArgs: "/opt/site/pe stop $job_id",
		Rule: "$round_robin", ControlSlaves: true, UrgencySlots: "avg", AccountingTotal: true,
	}, c.PEs["odd"]); diff != "" {
		t.Errorf("PE odd (-want +got):\n%s", diff)
	}
	if pe := c.PEs["odd2"]; pe.AllocationRule != 2 || pe.Slots != 0 || !pe.JobIsFirstTask || pe.UrgencySlots != "7" {
		t.Errorf("PE odd2 = %+v", pe)
	}
	if diff := cmp.Diff(&Checkpoint{
		Name: "odd", Kind: "application-level", Command: "/opt/site/ckpt $job_pid $ckpt_dir $job_owner $host $queue and many other words",
		Migrate: "/opt/site/migrate $job_pid", Dir: "/scratch", Signal: "USR1", When: "xs",
	}, c.Checkpoints["odd"]); diff != "" {
		t.Errorf("checkpointing interface odd (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&Attribute{"odd_mem", "omem", KindMemory, "<=", RequestableYes, ConsumableJob, "1.5G", 0}, c.Attribute("omem")); diff != "" {
		t.Errorf("odd_mem (-want +got):\n%s", diff)
	}
	if u := c.UserLists["oddusers"]; !u.ACL || len(u.Entries) != 16 || u.Entries[2] != "@staff" || u.Entries[12] != "leonard" {
		t.Errorf("oddusers = %+v", u)
	}
	if diff := cmp.Diff(Values{"odd_mem": {"64G", 64 << 30, nil, nil}, "odd_license_with_a_very_long_name": {"7", 7, nil, nil}}, c.Host); diff != "" {
		t.Errorf("host (-want +got):\n%s", diff)
	}
	if !cmp.Equal(c.LoadScaling, map[string]float64{"np_load_avg": 2, "mem_free": 0.5}) || !cmp.Equal(c.Access, []Access{{Allowed: []string{"oddusers"}}}) {
		t.Errorf("load_scaling %v, access %v", c.LoadScaling, c.Access)
	}
	if !slices.Equal(c.Managers, []string{"root", "sgeadmin"}) || c.Operators != nil {
		t.Errorf("managers %v, operators %v", c.Managers, c.Operators)
	}
	g := c.Global
	if g.Mailer != "/usr/bin/mail" || !slices.Equal(g.AdminMail, []string{"root"}) || g.MaxTasks != 75000 || g.MaxTasksAtOnce != 2000 || g.FinishedJobs != 100 ||
		g.LoadReportTime != 40*time.Second || g.LogLevel != "log_warning" || g.UsageInterval != time.Second {
		t.Errorf("sge_conf = %+v", g)
	}
	want := Scheduling{
		HalfTime: 7 * 24 * time.Hour, WeightTicket: 0.5, WeightUrgency: 0.5, WeightWaiting: 0.278, LoadFormula: "np_load_avg",
	}
	want.UsageWeights.CPU = 1
	if diff := cmp.Diff(want, c.Scheduling); diff != "" {
		t.Errorf("sched_conf (-want +got):\n%s", diff)
	}
	// pe_list of the stock queue names make, which no stock has.
	if len(c.Warnings) != 1 || !strings.HasSuffix(c.Warnings[0].Error(), `queues/low.q:13: pe_list: there is no parallel environment "make"`) {
		t.Errorf("warnings: %v", c.Warnings)
	}
}

// TestElsewhere reads the same as another host: the queues are not its own, and
// what they ask for is not looked at.
func TestElsewhere(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(realFiles)); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "queues/other.q", "hostlist elsewhere\ncalendar night\n")
	c, err := Load(Options{Dir: dir, Tmpdir: "/tmp", Host: "othello"})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Queues) != 0 || !slices.Equal(c.Elsewhere, []string{"low.q", "odd.q", "other.q"}) || len(c.Host) != 0 || c.Access != nil {
		t.Errorf("queues %v, elsewhere %v, host %v", c.Queues, c.Elsewhere, c.Host)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Text, "no queue has this host, othello: nothing is run") {
		t.Errorf("warnings: %v", c.Warnings)
	}
	// A name that is wrong is wrong everywhere.
	write(t, dir, "queues/other.q", "hostlist elsewhere\ncalender night\n")
	if _, err := Load(Options{Dir: dir, Host: "othello"}); err == nil || !strings.Contains(err.Error(), `other.q:2: unknown parameter "calender"`) {
		t.Errorf("a misspelt parameter: %v", err)
	}
}

func TestOverrides(t *testing.T) {
	for _, tt := range []struct {
		slots string
		want  int
		err   string
	}{
		{"2", 2, ""},
		{"2,[gehost=4]", 4, ""},
		{"2, [gehost.example.org=4]", 4, ""},
		{"2,[GEHOST=4]", 4, ""},
		{"2,[gehost.example.com=4]", 2, ""},
		{"2,[node=4],[gehost2=5]", 2, ""},
		{"2,[@in=4]", 4, ""},
		{"2,[@nested=4]", 4, ""},
		{"2,[@out=4]", 2, ""},
		{"2,[gehost=8],[@in=4]", 8, ""},
		{"2,[@in=4],[@nested=4]", 4, ""},
		{"2,[@allhosts=4]", 4, ""},
		{"2,[@in=4],[@nested=5]", 0, "slots: [@in=4] and [@nested=5] are both for this host"},
		{"2,[gehost=4],[gehost.example.org=5]", 0, "slots: [gehost=4] and [gehost.example.org=5] are both for this host"},
		{"[gehost=4]", 0, "slots: the value for all other hosts is missing before the first ["},
		{"2,[gehost=]", 0, `slots: "[gehost=]" is not [host=value]`},
		{"2,[=4]", 0, `slots: "[=4]" is not [host=value]`},
		{"2,[gehost=4", 0, `slots: "[gehost=4" is not [host=value]`},
		{"2,[gehost=4]5", 0, `slots: "5" after the overrides for hosts`},
		{"2,[@none=4]", 0, `slots: Host group "@none" does not exist`},
		{"2,[gehost=many]", 0, `slots: "many" is not a number`},
	} {
		dir := t.TempDir()
		write(t, dir, "hostgroups/@in", "group_name @in\nhostlist a gehost b\n")
		write(t, dir, "hostgroups/@nested", "hostlist @out @in\n")
		write(t, dir, "hostgroups/@out", "hostlist a b\n")
		write(t, dir, "queues/all.q", "slots "+tt.slots+"\n")
		c, err := load(dir)
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), "all.q:1: "+tt.err) {
				t.Errorf("%s: %v; want %q", tt.slots, err, tt.err)
			}
		case err != nil || c.Queues[0].Slots != tt.want:
			t.Errorf("%s: %v, %v; want %d", tt.slots, c, err, tt.want)
		case c.Hostname != "gehost.example.org" || !slices.Equal(c.HostGroups, []string{"@in", "@nested"}):
			t.Errorf("host %q in groups %q; want gehost.example.org in @in and @nested", c.Hostname, c.HostGroups)
		}
	}
}

// TestMistakes has each file complain, with its line, or warn.
func TestMistakes(t *testing.T) {
	for _, tt := range []struct{ file, line, want string }{
		{"hostgroups/@a", "hostlist @b", `Host group "@b" does not exist`},
		{"hostgroups/@a", "hostlist @a", `host group "@a" has itself as a member`},
		{"hostgroups/a", "hostlist NONE", `group_name: "a" does not begin with @`},
		{"queues/a", "hostlist @b", `a:1: hostlist: Host group "@b" does not exist`},
		{"queues/a", "calendar night", "a:1: calendar: not supported, only NONE is: there are no calendars"},
		{"queues/a", "projects p", `a:1: projects: Project "p" does not exist`},
		{"queues/a", "qtype PARALLEL", `a:1: qtype: "PARALLEL" is none of BATCH, INTERACTIVE and NONE`},
		{"queues/a", "load_thresholds np_load=1", `a:1: load_thresholds: Complex attribute "np_load" does not exist`},
		{"queues/a", "load_thresholds np_load_avg", `a:1: load_thresholds: "np_load_avg" is not name=value`},
		{"queues/a", "load_thresholds np_load_avg=high", `a:1: load_thresholds: np_load_avg: "high" is not a DOUBLE`},
		{"queues/a", "user_lists friends", `a:1: user_lists: access list "friends" does not exist`},
		{"queues/a", "pe_list make", `warning a:1: pe_list: there is no parallel environment "make"`},
		{"queues/a", "ckpt_list c", `warning a:1: ckpt_list: there is no checkpointing interface "c"`},
		{"queues/a", "subordinate_list b=1", `warning a: subordinate_list: there is no queue "b"`},
		{"queues/a", "subordinate_list a", "a: subordinate_list: a queue cannot be its own subordinate"},
		{"queues/a", "subordinate_list slots=2(b:1:sr)", "a:1: subordinate_list: slotwise preemption, slots=N(queue), is not supported"},
		{"queues/a", "subordinate_list b=0", "a:1: subordinate_list: b: 0 is not between 1"},
		{"queues/a", "owner_list a/b", `a:1: owner_list: "a/b" is not a name of a user`},
		{"queues/a", "processors 3-1", `a:1: processors: "3-1" is not a range of processors`},
		{"queues/a", "initial_state on", `a:1: initial_state: "on" is none of default, enabled, disabled`},
		{"queues/a b", "slots 1", `qname: "a b" is not a queue name`},
		{"pes/p", "slots many", `p:1: slots: "many" is not a number`},
		{"pes/p", "allocation_rule $some", `p:1: allocation_rule: "$some" is none of $pe_slots, $fill_up, $round_robin`},
		{"pes/p", "allocation_rule many", `p:1: allocation_rule: "many" is none of $pe_slots, $fill_up, $round_robin`},
		{"pes/p", "allocation_rule 0", "p:1: allocation_rule: 0 is not between 1"},
		{"pes/p", "urgency_slots most", `p:1: urgency_slots: "most" is none of min, max, avg, or a number`},
		{"pes/p", "start_proc_args start.sh", `p:1: start_proc_args: "start.sh" is not an absolute path`},
		{"pes/p", "start_proc_args /s $pe_hostfil", `p:1: start_proc_args: unknown variable $pe_hostfil, did you mean "$pe_hostfile"?`},
		{"pes/p", "qsort_args lib f", "p:1: qsort_args: not supported, only NONE is"},
		{"ckpts/c", "interface magic", `c:1: interface: "magic" is none of`},
		{"ckpts/c", "ckpt_command dump $job_pids", "c:1: ckpt_command: unknown variable $job_pids"},
		{"ckpts/c", "interface transparent", "c: signal: a transparent interface needs one"},
		{"ckpts/c", "signal MAYBE", `c:1: signal: "MAYBE" is not a signal`},
		{"ckpts/c", "when q", `c:1: when: "q" has other letters than s, m, x and r`},
		{"userlists/u", "type LIST", `u:1: type: "LIST" is none of ACL, DEPT`},
		{"userlists/u", "fshare 10", "u:1: fshare: not supported, only 0 is: there are no tickets"},
		{"userlists/u", "entries a/b", `u:1: entries: "a/b" is not a name of a user or of a @group`},
		{"userlists/u", "name v", `u:1: name "v" is not the name of the file`},
		{"hosts/gehost", "load_scaling np_load_avg=much", `gehost:1: load_scaling: "np_load_avg=much" is not the factor of a number`},
		{"hosts/gehost", "usage_scaling cpu=2", "warning gehost:1: usage_scaling: accepted, without effect here: with one host"},
		{"hosts/gehost.example.org", "complex_values lic=1", `Complex attribute "lic" does not exist`},
		{"managers", "alice bob", "managers:1: want the name of one user in a line"},
		{"operators", "../x", "operators:1: want the name of one user in a line"},
		{"sched_conf", "algorithm mine", "sched_conf:1: algorithm: not supported, only default is: there is one scheduler"},
		{"sched_conf", "schedule_interval 0", "sched_conf:1: schedule_interval: 0 does not stop the scheduler here"},
		{"sched_conf", "weight_tickets_share 100", "sched_conf:1: weight_tickets_share: not supported, only 0 is: there are no tickets"},
		{"sched_conf", "weight_deadline 1", "warning sched_conf:1: weight_deadline: accepted, without effect here: no job has a deadline"},
		{"sched_conf", "weight_priority -1", `sched_conf:1: weight_priority: "-1" is not a weight`},
		{"sched_conf", "job_load_adjustments load_avg=1", "warning sched_conf:1: job_load_adjustments: accepted, without effect here"},
		{"sched_conf", "load_formula np_load*2", `sched_conf:1: load_formula: Complex attribute "np_load" does not exist`},
		{"sched_conf", "load_formula arch", "sched_conf:1: load_formula: arch is not a number"},
		{"sched_conf", "load_formula load_avg*x", `sched_conf:1: load_formula: "x" is not a factor`},
		{"sched_conf", "queue_sort_method random", `sched_conf:1: queue_sort_method: "random" is none of load, seqno`},
		{"sched_conf", "usage_weight_list cpu=1,net=2", `sched_conf:1: usage_weight_list: "net" is none of cpu, mem and io`},
		{"sched_conf", "schedd_job_info false", "warning sched_conf:1: schedd_job_info: accepted, without effect"},
		{"sched_conf", "reprioritize_interval 0:2:0", "sched_conf:1: reprioritize_interval: not supported, only 0:0:0 is"},
		{"sge_conf", "enforce_user true", "sge_conf:1: enforce_user: there is no list of users"},
		{"sge_conf", "jsv_url /bin/jsv", "sge_conf:1: jsv_url: not supported, only none is"},
		{"sge_conf", "reprioritize true", "sge_conf:1: reprioritize: there are no tickets"},
		{"sge_conf", "loglevel debug", `sge_conf:1: loglevel: "debug" is none of log_err, log_warning, log_info`},
		{"sge_conf", "load_sensor sensor.sh", `sge_conf:1: load_sensor: "sensor.sh" is not an absolute path`},
		{"sge_conf", "load_report_time 0", "sge_conf:1: load_report_time: 0 s are too short"},
		{"sge_conf", "administrator_mail -x", `sge_conf:1: administrator_mail: "-x" is not an address`},
		{"sge_conf", "qlogin_command /usr/bin/ssh", "warning sge_conf: qlogin_daemon: it is builtin, qlogin_command is not"},
		{"sge_conf", "rsh_daemon /usr/sbin/sshd -i", "warning sge_conf:1: rsh_daemon: rsh_command is builtin: clients cannot connect"},
		{"sge_conf", "rsh_daemon none", "warning sge_conf:1: rsh_daemon: none means builtin here: execd has no rsh programs"},
		{"sge_conf", "rlogin_daemon sshd -i", `sge_conf:1: rlogin_daemon: "sshd -i" is neither builtin nor a command with an absolute path`},
		{"sge_conf", "user_lists friends", `sge_conf:1: user_lists: access list "friends" does not exist`},
		{"sge_conf", "reporting_params accounting=false", "sge_conf:1: reporting_params: accounting: not supported, only TRUE is"},
		{"sge_conf", "reporting_params joblog=true", "warning sge_conf:1: reporting_params: joblog accepted, without effect here: there is no reporting file"},
		{"sge_conf", "execd_params INHERIT_ENV=true", "sge_conf:1: execd_params: INHERIT_ENV: not supported, only FALSE is"},
		{"sge_conf", "execd_params PDC_INTERVAL=0", "sge_conf:1: execd_params: PDC_INTERVAL: 0 s are too short"},
		{"sge_conf", "execd_params USE_CGROUPS=no", "warning sge_conf:1: execd_params: USE_CGROUPS accepted, without effect here"},
		{"sge_conf", "qmaster_params SUBMITRATE=3", `sge_conf:1: qmaster_params: SUBMITRATE is not supported, did you mean "SUBMIT_RATE"?`},
		{"queue/all.q", "slots 1", `warning queue: not read by anything, did you mean "queues"?`},
	} {
		dir := t.TempDir()
		write(t, dir, tt.file, tt.line+"\n")
		c, err := load(dir)
		if warning, ok := strings.CutPrefix(tt.want, "warning "); ok {
			if err != nil {
				t.Errorf("%s: %s: %v; want a warning", tt.file, tt.line, err)
			} else if len(c.Warnings) != 1 || !strings.Contains(filepath.ToSlash(c.Warnings[0].Error()), "/"+warning) {
				t.Errorf("%s: %s: warnings %v; want %q", tt.file, tt.line, c.Warnings, warning)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %s: %v; want %q", tt.file, tt.line, err, tt.want)
		}
	}
}

// TestNeutral: nothing is said of what says nothing, in whatever way.
func TestNeutral(t *testing.T) {
	for file, text := range map[string]string{
		"queues/a": "calendar none\nprojects NONE\npe_list none\nuser_lists none\ncomplex_values none\nprocessors undefined\nsubordinate_list none\n",
		"sge_conf": "enforce_user false\nreprioritize false\njsv_url NONE\nauto_user_fshare 0\nqlogin_command BUILTIN\nmax_advance_reservations 5\n" +
			"libjvm_path /x\nexecd_params INHERIT_ENV=false,USE_CGROUPS=true,PTF_MIN_PRIORITY=-999\nmailer none\nadministrator_mail none\n",
		"sched_conf": "compensation_factor 5\nweight_deadline 3600000\nweight_tickets_share 0\njob_load_adjustments none\nschedd_job_info TRUE\nreprioritize_interval 00:00:00\n",
		"hosts/x":    "usage_scaling cpu=2\n", // another host's
	} {
		dir := t.TempDir()
		write(t, dir, file, text)
		if c, err := load(dir); err != nil || len(c.Warnings) > 0 {
			t.Errorf("%s: %v, %+v; want neither an error nor a warning", file, err, c)
		}
	}
}

// TestConnection: a daemon and its command are taken as they stand.
func TestConnection(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "sge_conf", "qlogin_command /usr/bin/login.sh\nqlogin_daemon /usr/sbin/sshd -i -f /etc/sshd\nrsh_command Builtin\nxterm none\n")
	c, err := load(dir)
	if err != nil || len(c.Warnings) > 0 {
		t.Fatalf("%v, warnings %v", err, c.Warnings)
	}
	want := defaultGlobal(t)
	want.Qlogin, want.Xterm = Connection{"/usr/bin/login.sh", "/usr/sbin/sshd -i -f /etc/sshd"}, ""
	if diff := cmp.Diff(want, c.Global); diff != "" {
		t.Errorf("sge_conf (-want +got):\n%s", diff)
	}
}

func TestGlobalValues(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "userlists/friends", "entries alice\n")
	write(t, dir, "sge_conf", `mailer /usr/bin/mail
administrator_mail ops@example.org,root
load_sensor /opt/a -x 1, /opt/b
load_report_time 0:1:0
user_lists friends
max_aj_tasks 10
max_aj_instances 3
finished_jobs 0
loglevel log_err
execd_params PDC_INTERVAL=PER_LOAD_REPORT,ACCT_RESERVED_USAGE=true,KEEP_ACTIVE=error,USE_QSUB_GID,SHEPHERD_TRACE=detail,PRIVATE_TMP
qmaster_params SUBMIT_RATE=20
`)
	c, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := defaultGlobal(t)
	want.Mailer, want.AdminMail, want.LoadSensors = "/usr/bin/mail", []string{"ops@example.org", "root"}, []string{"/opt/a -x 1", "/opt/b"}
	want.LoadReportTime, want.UsageInterval, want.UserLists = time.Minute, time.Minute, []string{"friends"}
	want.MaxTasks, want.MaxTasksAtOnce, want.FinishedJobs, want.LogLevel = 10, 3, 0, "log_err"
	want.ReservedUsage, want.KeepFailed, want.QsubGID, want.SubmitRate = true, true, true, 20
	want.TraceDetail, want.PrivateTmp = true, true
	if diff := cmp.Diff(want, c.Global); diff != "" {
		t.Errorf("sge_conf (-want +got):\n%s", diff)
	}
	for word, want := range map[string]time.Duration{"NEVER": 0, "0:0:5": 5 * time.Second, "never": 0} {
		write(t, dir, "sge_conf", "execd_params PDC_INTERVAL="+word+"\n")
		if c, err := load(dir); err != nil || c.Global.UsageInterval != want {
			t.Errorf("PDC_INTERVAL=%s: %v, %v; want %v", word, c.Global.UsageInterval, err, want)
		}
	}
}

// TestDefaultsAreGood: no default of the tables is a mistake, or needs a
// warning, and all that is said of a problem has its place.
func TestDefaultsAreGood(t *testing.T) {
	l := testLoader()
	apply(l, "queue", nil, queueParams, &Queue{}, nil)
	apply(l, "pe", nil, peParams, &PE{}, nil)
	apply(l, "ckpt", nil, ckptParams, &Checkpoint{}, nil)
	apply(l, "conf", nil, globalParams, &Global{}, nil)
	apply(l, "sched", nil, schedParams, &Scheduling{}, nil)
	apply(l, "list", nil, userListParams, &UserList{}, nil)
	apply(l, "group", nil, hostGroupParams, &hostGroup{}, nil)
	apply(l, "host", nil, hostParams, &host{}, nil)
	if len(l.problems) > 0 || len(l.conf.Warnings) > 0 {
		t.Errorf("%v %v", l.problems, l.conf.Warnings)
	}
	if got := fmt.Sprint(&Problem{File: "f", Text: "t"}, " ", &Problem{File: "f", Line: 3, Text: "t"}); got != "f: t f:3: t" {
		t.Errorf("problems are printed as %q", got)
	}
}
