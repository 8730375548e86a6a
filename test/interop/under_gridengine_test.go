package interop

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/test/harness"
)

// clusterJob is a job in a real Grid Engine, under its own shepherd and under
// ours. Its script may use @LOG@, a file that is compared, and @GO@, one that
// step touch makes.
type clusterJob struct {
	name    string
	queue   string // run.iop when empty
	options string
	script  string
	args    string
	client  string // the command line instead of qsub's; it prints the number, and runs @SCRIPT@
	steps   []clusterStep
	records int // accounting records; 0 is 1
}

// clusterStep is done to a job, or waited for.
type clusterStep func(c *cluster, j *submitted) error

// submitted is such a job at work.
type submitted struct {
	clusterJob
	number string
	states []string // as qstat showed them, where a step asked
}

// inCluster waits until qstat shows the job in a state; none is that it is gone.
func inCluster(states ...string) clusterStep {
	return func(c *cluster, j *submitted) error {
		err := harness.WaitFor(patience, fmt.Sprintf("%s in state %q", j.name, states), func() (bool, error) {
			is, err := c.state(j.number)
			for _, s := range states {
				if s == is && err == nil {
					j.states = append(j.states, is)
					return true, nil
				}
			}
			return false, err
		})
		return err
	}
}

// inError waits until the job's queue is in state E.
func inError(_ *cluster, j *submitted) error {
	return harness.WaitFor(patience, "queue "+j.queue+" in error", func() (bool, error) {
		out, err := ge.Run("qstat", "-f", "-q", j.queue, "-explain", "E")
		return strings.Contains(out, "marked QERROR as result of job "+j.number+"'s failure"), err
	})
}

// logged waits until the job's log has a text.
func logged(text string) clusterStep {
	return func(c *cluster, j *submitted) error {
		return harness.WaitFor(patience, fmt.Sprintf("%q in the log of %s", text, j.name), func() (bool, error) {
			log, err := os.ReadFile(c.file(j.name, "log"))
			return strings.Contains(string(log), text), err
		})
	}
}

// administer runs a command of the administrator's on the job.
func administer(args ...string) clusterStep {
	return func(_ *cluster, j *submitted) error {
		_, err := ge.Run(append(args, j.number)...)
		return err
	}
}

// stopped waits until the job has stopped, which it has not yet when qstat shows it:
// a signal in quick succession might be forgotten. Of some thirty suspensions sge_execd
// forgets one, with either shepherd, although qstat shows it: it is asked again then.
func stopped(c *cluster, j *submitted) error {
	for tries := 5; ; tries-- {
		err := harness.WaitFor(10*time.Second, j.name+" to stop", func() (bool, error) {
			text, err := os.ReadFile(c.file(j.name, "go") + ".pid")
			pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
			return inProcessState(pid, "T"), err
		})
		if err == nil || tries == 1 {
			return err
		}
		if _, err := ge.Run("qmod", "-usj", j.number); err != nil {
			return err
		}
		if _, err := ge.Run("qmod", "-sj", j.number); err != nil {
			return err
		}
	}
}

func letGo(c *cluster, j *submitted) error {
	return os.WriteFile(c.file(j.name, "go"), nil, 0o666)
}

// inLog is the job's own word, with the number of the run before it.
const inLog = "say() { echo \"run ${RESTARTED:-0}: $*\" >>@LOG@; }\n"

var clusterJobs = []clusterJob{
	{name: "batch", script: inLog + "say $1 $2; exit 3\n", args: "one 'two three'"},
	{name: "binary", options: "-b y", args: "'exit 5'"},
	{name: "array", options: "-t 1-3", script: inLog + "exit $SGE_TASK_ID\n", records: 3},
	{name: "parallel", options: "-pe interop 2", script: inLog + "say $PE $NSLOTS $(cut -d' ' -f1-2 $PE_HOSTFILE); exit 4\n"},
	{name: "prolog", queue: "fail.iop", script: inLog + "say never\n", steps: []clusterStep{inError, inCluster("qw"), administer("qdel")}},
	{
		name: "notified", options: "-notify", script: inLog + "trap 'trap : USR2; say USR2' USR2; say ready; until [ -e @GO@ ]; do sleep 0.4; done\n",
		steps: []clusterStep{logged("ready"), inCluster("r"), administer("qdel"), logged("USR2"), inCluster("dr")},
	},
	{name: "deleted", script: inLog + "say ready; sleep 1000\n", steps: []clusterStep{logged("ready"), inCluster("r"), administer("qdel")}},
	{
		name: "suspended", script: "echo $$ >@GO@.pid\n" + inLog + "trap 'say CONT; trap : CONT' CONT; say ready; until [ -e @GO@ ]; do sleep 0.4; done\n",
		steps: []clusterStep{logged("ready"), inCluster("r"), administer("qmod", "-sj"), inCluster("s"), stopped, administer("qmod", "-usj"), logged("CONT"), inCluster("r"), letGo},
	},
	{name: "exit99", script: inLog + "say here; [ ${RESTARTED:-0} != 0 ] || exit 99\n", records: 2},
	{name: "exit100", script: inLog + "exit 100\n", steps: []clusterStep{inCluster("Eqw"), administer("qdel")}},
	{name: "signal", script: "kill -TERM $$\n"},
	{name: "output", options: "-o /no/such/directory/out", script: "true\n", steps: []clusterStep{inCluster("Eqw"), administer("qdel")}},
	{name: "walltime", options: "-l h_rt=2", script: inLog + "sleep 1000\n"},
	// Twelve at once: the execd's sum is over the limit long before one of them is,
	// even when other jobs leave it little time to look. Where it is no limit the log
	// is never the same.
	{name: "cputime", options: "-l h_cpu=10", script: "ulimit -c 0; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do while :; do :; done & done; sleep 60; echo not ended: $$ >>@LOG@\n"},
	{
		name: "checkpoint", options: "-ckpt interop", script: inLog + "say ready; [ ${RESTARTED:-0} = 0 ] && sleep 1000\n", records: 2,
		steps: []clusterStep{logged("ready"), inCluster("r"), administer("qmod", "-sj"), logged("run 2")},
	},

	// What ours hands over to Grid Engine's own.
	{
		name: "qrsh", client: "echo read | qrsh -verbose -now n -q run.iop @SCRIPT@ 'one two'; echo \"client $?\" >>@LOG@",
		script: inLog + "read word; say $word $1 $# $JOB_NAME $REQUEST; tty >>@LOG@; exit 7\n",
	},
	{name: "qlogin", client: session("qlogin")},
	{name: "qrlogin", client: session("qrsh")},
	{
		name: "tight", options: "-pe tight.iop 2", records: 3,
		script: inLog + "for code in 0 6; do qrsh -inherit $HOSTNAME \"echo task \\$PE_HOSTFILE >>@LOG@; exit $code\"; say client $?; done; exit 4\n",
	},
}

// session returns a command line that types into an interactive client once the
// shell prompts: what is typed before is lost.
func session(client string) string {
	const until = "i=0; until grep -qs %s || [ $((i+=1)) -gt 1200 ]; do sleep 0.4; done; "
	return "{ " + fmt.Sprintf(until, "'[$] ' @LOG@.out") + "echo 'tty | cut -c1-9 >>@LOG@; echo done $JOB_ID >>@LOG@; exit 5'; " +
		fmt.Sprintf(until, "done @LOG@") + "} | " + client + " -verbose -now n -q run.iop >@LOG@.out 2>&1; echo \"client $?\" >>@LOG@; cat @LOG@.out"
}

// cluster is the real Grid Engine with one of the shepherds.
type cluster struct {
	dir string // of the files of its jobs

	mu    sync.Mutex // guards what follows
	seen  time.Time
	shown map[string]string // qstat, by job number
}

func (c *cluster) file(job, kind string) string { return filepath.Join(c.dir, job+"."+kind) }

// state returns a job's state as qstat shows it.
func (c *cluster) state(number string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.seen) > 200*time.Millisecond {
		out, err := ge.Run("qstat", "-u", user.Name)
		if err != nil {
			return "", err
		}
		c.shown = make(map[string]string)
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			if len(f) < 5 {
				continue
			}
			if _, err := strconv.Atoi(f[0]); err == nil {
				c.shown[f[0]] = f[4]
			}
		}
		c.seen = time.Now()
	}
	return c.shown[number], nil
}

// clusterResult is what became of a job.
type clusterResult struct {
	States   []string
	Accounts []string // failed, exit_status, slots, granted_pe and taskid of each record
	Log      string
	Err      string // what kept it from its end
}

// run submits the job and does its steps.
func (c *cluster) run(job clusterJob) (clusterResult, error) {
	script := ""
	replace := strings.NewReplacer("@LOG@", c.file(job.name, "log"), "@GO@", c.file(job.name, "go"), "@SCRIPT@", c.file(job.name, "sh")).Replace
	if job.script != "" {
		script = c.file(job.name, "sh")
		if err := harness.WriteExecutable(script, "#!/bin/sh\n"+replace(job.script)); err != nil {
			return clusterResult{}, err
		}
	}
	// Of an option that is given twice the last one counts.
	line := strings.Join([]string{"qsub -S /bin/sh -j y -o /dev/null -q", cmp.Or(job.queue, "run.iop"), "-N", job.name, job.options, script, job.args}, " ")
	out, err := ge.As(user.Name, cmp.Or(replace(job.client), line))
	if err != nil {
		return clusterResult{}, err
	}
	match := submission.FindStringSubmatch(out)
	if match == nil {
		return clusterResult{}, fmt.Errorf("%s prints no number of a job: %q", job.name, out)
	}
	number := match[1]
	j := &submitted{clusterJob: job, number: number}
	for _, s := range append(job.steps, inCluster("")) {
		if err := s(c, j); err != nil {
			return clusterResult{}, fmt.Errorf("job %s: %w", number, err)
		}
	}
	r := clusterResult{States: j.states}
	err = harness.WaitFor(patience, "the accounts of "+job.name, func() (bool, error) {
		out, err := ge.Run("qacct", "-j", number)
		r.Accounts = accounts(out)
		return len(r.Accounts) >= max(job.records, 1), err
	})
	slices.Sort(r.Accounts)                        // tasks end in any order
	log, _ := os.ReadFile(c.file(job.name, "log")) // not every job has one
	r.Log = string(log)
	return r, err
}

// submission is what a client says of a job's number.
var submission = regexp.MustCompile(`Your job(?:-array)? ([0-9]+)`)

// accounts reads what qacct prints.
func accounts(out string) []string {
	var records []string
	for block := range strings.SplitSeq(out, "==============================================================") {
		var words []string
		for line := range strings.Lines(block) {
			switch key, value, _ := strings.Cut(line, " "); key {
			case "granted_pe", "slots", "failed", "exit_status", "taskid":
				words = append(words, key+"="+strings.Join(strings.Fields(value), " "))
			}
		}
		if len(words) > 0 {
			records = append(records, strings.Join(words, " "))
		}
	}
	return records
}

// runAll runs jobs at once.
func (c *cluster) runAll(t *testing.T, jobs []clusterJob) map[string]clusterResult {
	t.Helper()
	results := make(map[string]clusterResult)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, job := range jobs {
		all.Go(func() {
			r, err := c.run(job)
			if err != nil {
				r.Err = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			results[job.name] = r
		})
	}
	all.Wait()
	return results
}

// testUnderGridEngine runs the same jobs in a real Grid Engine whose execd
// starts its own shepherd and ours: qstat and qacct say the same.
//
// That execd does not do the same each time: of some five hundred jobs it did
// not watch the usage of one, whose h_cpu then was no limit. What differs, or does
// not come to its end, is run by both again.
func testUnderGridEngine(t *testing.T) {
	configure(t)
	var differ []clusterJob
	for run, jobs := 1, clusterJobs; run <= 2 && len(jobs) > 0 && !t.Failed(); run, jobs = run+1, differ {
		theirs := newCluster(t, fmt.Sprintf("cluster-theirs-%d", run), "none").runAll(t, jobs)
		ours := newCluster(t, fmt.Sprintf("cluster-ours-%d", run), filepath.Join(bin, "shepherd")).runAll(t, jobs)
		differ = nil
		for _, job := range jobs {
			is, want := ours[job.name], theirs[job.name]
			if diff := gocmp.Diff(want, is); diff != "" || want.Err != "" || len(want.Accounts) == 0 {
				t.Logf("%s in run %d (-its own shepherd +ours):\n%s", job.name, run, cmp.Or(diff, fmt.Sprintf("%+v", is)))
				differ = append(differ, job)
			}
		}
		t.Logf("run %d, its own shepherd: %v", run, theirs)
		deleteJobs(t) // one may not have come to its end
	}
	for _, job := range differ {
		t.Errorf("%s: not once the same with either shepherd", job.name)
	}
	if !t.Failed() {
		t.Run("restarted execd", restartExecd)
	}
}

// restartExecd ends sge_execd and starts it again while a job runs: it finds
// the shepherd again, by its name, and learns how the job ended.
func restartExecd(t *testing.T) {
	c := newCluster(t, "cluster-restarted", filepath.Join(bin, "shepherd"))
	job := clusterJob{name: "survivor", script: inLog + "say ready; until [ -e @GO@ ]; do sleep 0.4; done; exit 4\n", steps: []clusterStep{
		logged("ready"), inCluster("r"),
		func(*cluster, *submitted) error {
			// It forks before it runs something: then there are two.
			if err := harness.WaitFor(patience, "one process of sge_execd", func() (bool, error) { return len(execds(t)) == 1, nil }); err != nil {
				return err
			}
			if _, err := ge.Run("qconf", "-ke", "gehost"); err != nil {
				return err
			}
			if err := harness.WaitFor(patience, "sge_execd to end", func() (bool, error) { return len(execds(t)) == 0, nil }); err != nil {
				return err
			}
			// The daemon must not hold the pipe of whoever waits for the command.
			_, err := ge.Run("sh", "-c", "/etc/init.d/gridengine-exec start >/dev/null 2>&1 </dev/null")
			return err
		},
		inCluster("r"), letGo,
	}}
	r, err := c.run(job)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Accounts) != 1 || !strings.Contains(r.Accounts[0], "failed=0 exit_status=4") {
		t.Errorf("accounts of a job that ran through a restart of sge_execd: %q; want failed=0 exit_status=4", r.Accounts)
	}
}

// execds lists the processes of sge_execd.
func execds(t *testing.T) []string {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range processes {
		// A process may have ended meanwhile.
		if comm, _ := os.ReadFile(p); string(comm) == "sge_execd\n" && !inProcessStateOf(filepath.Dir(p), "Z") {
			found = append(found, p)
		}
	}
	return found
}

func inProcessStateOf(dir, state string) bool {
	pid, err := strconv.Atoi(filepath.Base(dir))
	return err == nil && inProcessState(pid, state)
}

// configure gives Grid Engine what the jobs need: queues, a parallel
// environment, a checkpoint interface, and takes it away in the end.
func configure(t *testing.T) {
	t.Helper()
	dir := filepath.Join(base, "cluster")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"start": "#!/bin/sh\necho start \"$@\" >>" + dir + "/pe.log\n", "fail": "#!/bin/sh\nexit 1\n",
		"migrate": "#!/bin/sh\nkill -KILL -$1\n",
	} {
		if err := harness.WriteExecutable(filepath.Join(dir, name), text); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "pe.log"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "pe.log"), 0o666); err != nil {
		t.Fatal(err)
	}
	queue, err := ge.Run("qconf", "-sq", "all.q")
	if err != nil {
		t.Fatal(err)
	}
	queue = strings.NewReplacer("notify                00:00:60", "notify 00:00:20", "pe_list               make", "pe_list interop tight.iop",
		"ckpt_list             NONE", "ckpt_list interop").Replace(queue)
	pe := "pe_name interop\nslots 10\nuser_lists NONE\nxuser_lists NONE\n" +
		"start_proc_args " + dir + "/start start $pe_slots $host\nstop_proc_args " + dir + "/start stop $job_owner\n" +
		"allocation_rule $pe_slots\ncontrol_slaves FALSE\njob_is_first_task TRUE\nurgency_slots min\naccounting_summary FALSE\nqsort_args NONE\n"
	objects := []struct{ kind, add, remove, name, text string }{
		{"pe", "-Ap", "-dp", "interop", pe},
		{"pe", "-Ap", "-dp", "tight.iop", strings.NewReplacer("pe_name interop", "pe_name tight.iop", "control_slaves FALSE", "control_slaves TRUE").Replace(pe)},
		{"ckpt", "-Ackpt", "-dckpt", "interop", "ckpt_name interop\ninterface hibernator\nckpt_command none\nmigr_command " + dir + "/migrate $job_pid\n" +
			"restart_command none\nclean_command none\nckpt_dir /tmp\nsignal none\nwhen xsr\n"},
		{"queue", "-Aq", "-dq", "run.iop", strings.Replace(queue, "all.q", "run.iop", 1)},
		{"queue", "-Aq", "-dq", "fail.iop", strings.NewReplacer("all.q", "fail.iop", "prolog                NONE", "prolog "+dir+"/fail").Replace(queue)},
	}
	for _, o := range slices.Backward(objects) {
		_, _ = ge.Run("qconf", o.remove, o.name) // a run that was killed left it
	}
	for _, o := range objects {
		file := filepath.Join(dir, o.kind)
		if err := os.WriteFile(file, []byte(o.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ge.Run("qconf", o.add, file); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := ge.Run("qconf", o.remove, o.name); err != nil {
				t.Error(err)
			}
		})
	}
	for name, value := range map[string]string{
		"load_report_time": "00:00:02", "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00",
	} {
		set(t, name, value)
	}
	t.Cleanup(func() { deleteJobs(t) }) // before the queues are removed
}

// deleteJobs deletes the user's jobs and waits until they are gone.
func deleteJobs(t *testing.T) {
	t.Helper()
	_, _ = ge.Run("qdel", "-f", "-u", user.Name) // there may be none
	if err := harness.WaitFor(patience, "the jobs to be gone", func() (bool, error) {
		out, err := ge.Run("qstat", "-u", user.Name)
		return out == "", err
	}); err != nil {
		t.Error(err)
	}
}

// set sets a parameter of Grid Engine for the time of the test.
func set(t *testing.T, name, value string) {
	t.Helper()
	was, err := ge.Set(name, value)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := ge.Set(name, was); err != nil {
			t.Error(err)
		}
	})
}

// newCluster has Grid Engine's execd start a shepherd, "none" is its own, and
// returns when it does.
func newCluster(t *testing.T, name, shepherd string) *cluster {
	t.Helper()
	c := &cluster{dir: filepath.Join(user.Home, name)}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(c.dir, user.UID, user.GID); err != nil {
		t.Fatal(err)
	}
	if _, err := ge.Run("qmod", "-cq", "*.iop"); err != nil {
		t.Fatal(err)
	}
	set(t, "shepherd_cmd", shepherd)
	// Its own is called with -bg. The execd learns of the change some time.
	probe := clusterJob{name: "shepherd", script: "tr '\\0' ' ' </proc/$PPID/cmdline >>@LOG@; echo >>@LOG@\n"}
	if err := harness.WaitFor(patience, "sge_execd to start "+shepherd, func() (bool, error) {
		r, err := c.run(probe)
		lines := strings.Split(strings.TrimSpace(r.Log), "\n")
		return strings.Contains(lines[len(lines)-1], "-bg") == (shepherd == "none") && r.Log != "", err
	}); err != nil {
		t.Fatal(err)
	}
	return c
}

// testForeignShepherd runs jobs under our execd and Grid Engine's shepherd.
func testForeignShepherd(t *testing.T) {
	d := startOurs(t, "foreign", "shepherd_cmd "+harness.GEShepherd)
	submit := func(line string) int {
		t.Helper()
		out, err := asUser(d.Dir, "cd && qsub -terse -j y -o /dev/null -N foreign "+line)
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, out, d.Log())
		}
		number, _, _ := strings.Cut(strings.TrimSpace(out), ".")
		job, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	ready := filepath.Join(user.Home, "foreign.ready")
	jobs := []struct {
		number int
		want   []string
	}{
		{submit("-b y /bin/true"), []string{"failed=0 exit_status=0"}},
		{submit("-b y /bin/sh -c 'exit\\ 3'"), []string{"failed=0 exit_status=3"}},
		{submit("-t 2-4 -b y 'exit $SGE_TASK_ID'"), []string{"failed=0 exit_status=2", "failed=0 exit_status=3", "failed=0 exit_status=4"}},
		{submit("-b y 'kill -TERM $$'"), []string{"failed=100 : assumedly after job exit_status=143"}},
		{submit("-b y 'echo >" + ready + "; sleep 1000'"), []string{"failed=100 : assumedly after job exit_status=137"}},
	}
	if err := harness.WaitFor(patience, "the job to run", func() (bool, error) {
		_, err := os.Stat(ready)
		return err == nil, err
	}); err != nil {
		t.Fatalf("%v\n%s", err, d.Log())
	}
	// The shepherd forgets a signal that comes while it does something else than wait.
	last := jobs[len(jobs)-1].number
	pidFile := filepath.Join(api.DevPlaces(d.Dir).Spool, "active_jobs", strconv.Itoa(last)+".1", "pid")
	if err := harness.WaitFor(patience, "the shepherd to sleep", func() (bool, error) {
		pid, err := strconv.Atoi(strings.TrimSpace(read(t, pidFile)))
		return err == nil && inProcessState(pid, "S"), nil
	}); err != nil {
		t.Fatal(err)
	}
	if out, err := asUser(d.Dir, "qdel "+strconv.Itoa(last)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, job := range jobs {
		if err := d.WaitJob(job.number); err != nil {
			t.Fatalf("%v\n%s", err, d.Log())
		}
		out, err := asUser(d.Dir, "qacct -j "+strconv.Itoa(job.number))
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got := accounts(out)
		slices.Sort(got) // tasks end in any order
		if len(got) != len(job.want) {
			t.Errorf("job %d: got %q; want %q", job.number, got, job.want)
			continue
		}
		for i, want := range job.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("job %d: got %q; want %q", job.number, got[i], want)
			}
		}
	}
}
