package show

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/qsub/internal/qtest"
)

// shown is a situation in which Grid Engine was asked, and what it printed.
type shown struct {
	file  string
	load  string
	queue []api.QueueStatus
	jobs  []api.JobStatus
}

// more fills in what jobs here have in common.
func more(m api.JobMore) *api.JobMore {
	m.Department = "defaultdepartment"
	if m.Queues == nil {
		m.Queues = []string{"qstat.q"}
	}
	return &m
}

func urgency(resources, waiting float64) api.Urgency {
	return api.Urgency{Total: resources + waiting, Resources: resources, Waiting: waiting}
}

func requested(pairs ...string) (list []api.Requested) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, api.Requested{Resource: api.Resource{Name: pairs[i], Value: pairs[i+1]}})
	}
	return list
}

// situations are what there was when Grid Engine was asked.
func situations() []shown {
	used := &api.Usage{CPU: 0.01, Mem: 0.000001, IO: 0.00003}
	queued := func(number int, name, state, when string, m api.JobMore) api.JobStatus {
		return api.JobStatus{Job: number, Name: name, Owner: "geuser", State: state, Time: at(when), Slots: 1, More: more(m)}
	}
	running := func(number int, name, queue, when string, slots int, prior float64, m api.JobMore) api.JobStatus {
		j := queued(number, name, "r", when, m)
		j.Queue, j.Slots, j.Priority = queue+"@gehost", slots, prior
		return j
	}
	with := func(j api.JobStatus, change func(*api.JobStatus)) api.JobStatus {
		change(&j)
		return j
	}
	tasks := func(j api.JobStatus, text string) api.JobStatus {
		j.Tasks = text
		return j
	}
	mixed := []api.JobStatus{
		running(1327, "ser", "qstat.q", "21:04:41", 1, 0.250139, api.JobMore{
			Hard: requested("h_rt", "3600", "h_vmem", "2G"), Soft: []api.Resource{{Name: "virtual_free", Value: "1M"}},
			NormalUrgency: 0.00028, NormalPriority: 0.5, NormalTickets: 0.5, Urgency: urgency(1000, 3),
		}),
		running(1330, "par", "qstat.q", "21:04:42", 3, 0.749861, api.JobMore{
			PE: "qstat_pe", Slots: []api.Slots{{Min: 2, Max: 3, Step: 1}}, GrantedPE: "qstat_pe", MasterQueues: []string{"qstat.q"}, Priority: -100,
			NormalUrgency: 0.99972, NormalPriority: 0.451172, NormalTickets: 0.5, Urgency: urgency(2000, 3), Usage: used,
		}),
		tasks(running(1332, "arr", "qstat.q", "21:04:42", 1, 0.25, api.JobMore{NormalTickets: 0.5, Usage: used}), "1"),
		with(queued(1338, "err", "Eqw", "21:04:42", api.JobMore{NormalTickets: 0.5}), func(j *api.JobStatus) { j.Priority = 0.250139 }),
		tasks(queued(1332, "arr", "qw", "21:04:42", api.JobMore{}), "3-9:2"),
		with(queued(1334, "pend", "hqw", "21:04:42", api.JobMore{
			PE: "qstat_pe", Slots: []api.Slots{{Min: 4, Max: 4, Step: 1}, {Min: 6, Max: 8, Step: 1}}, Hard: requested("h_rt", "100"), Priority: -5,
			HoldJobs: []string{"ser"}, WaitsFor: []int{1327},
		}), func(j *api.JobStatus) { j.Slots = 4 }),
		queued(1336, "heldjob_with_long_name", "hqw", "21:04:42", api.JobMore{SoftQueues: []string{"all.q"}}),
		with(queued(1339, "ok", "z", "21:04:42", api.JobMore{NormalTickets: 0.5}), func(j *api.JobStatus) { j.Priority = 0.250139 }),
		with(queued(1341, "okarr", "z", "21:04:43", api.JobMore{NormalTickets: 0.5}), func(j *api.JobStatus) { j.Priority, j.Tasks = 0.25, "1-3:1" }),
	}
	spread := []api.JobStatus{
		with(running(1910, "two", "qstat.q", "21:31:28", 8, 0.75, api.JobMore{
			PE: "qstat_rr", Slots: []api.Slots{{Min: 8, Max: 8, Step: 1}}, GrantedPE: "qstat_rr", Queues: []string{"qstat.q", "qstat2.q"}, MasterApart: true,
			NormalUrgency: 1, NormalPriority: 0.5, NormalTickets: 0.5,
		}), func(j *api.JobStatus) {
			j.Granted = []api.Granted{{Queue: "qstat.q@gehost", Slots: 6}, {Queue: "qstat2.q@gehost", Slots: 2}}
		}),
		tasks(running(1913, "arr", "qstat2.q", "21:31:28", 1, 0.25, api.JobMore{
			Queues: []string{"qstat2.q"}, NormalPriority: 0.5, NormalTickets: 0.5, Usage: &api.Usage{IO: 0.00002},
		}), "1"),
		with(queued(1913, "arr", "qw", "21:31:28", api.JobMore{Queues: []string{"qstat2.q"}, NormalTickets: 0.5, Urgency: urgency(1000, 3)}),
			func(j *api.JobStatus) { j.Tasks, j.Priority = "3-9:2", 0.25 }),
	}
	waiting := []api.JobStatus{
		with(queued(1911, "rich", "hqw", "21:31:28", api.JobMore{
			PE: "qstat_rr", Slots: []api.Slots{{Min: 2, Max: 3, Step: 1}}, Checkpoint: "qstat_ck", Hard: requested("h_rt", "3600", "arch", "lx-amd64"),
			Soft: []api.Resource{{Name: "arch", Value: "x"}, {Name: "h_vmem", Value: "1G"}}, SoftQueues: []string{"all.q"}, MasterQueues: []string{"qstat.q"},
			HoldJobs: []string{"nosuch", "two"}, WaitsFor: []int{1910}, Binding: "pe linear:1",
		}), func(j *api.JobStatus) { j.Slots, j.Tasks = 2, "1-9:2" }),
		tasks(queued(1912, "after", "hqw", "21:31:28", api.JobMore{HoldArray: []string{"rich"}, WaitsForTasks: []int{1911}}), "1-9:2"),
	}
	later := slices.Clone(spread)
	later[1].More = more(*later[1].More)
	later[1].More.Usage = &api.Usage{Mem: 0.00002, IO: 0.00055}
	task := func(id string, cpu, mem float64) []api.Subtask {
		return []api.Subtask{{ID: id, Queue: "exptp.q", Usage: &api.Usage{CPU: cpu, Mem: mem, IO: 0.00003}}}
	}
	at := func(j api.JobStatus) api.JobStatus {
		j.Time = time.Date(2026, 11, 22, 18, 9, 13, 0, time.UTC)
		return j
	}
	subtasks := []api.JobStatus{
		at(running(23143, "par", "exptp.q", "21:04:42", 3, 0.75, api.JobMore{
			PE: "expt", Slots: []api.Slots{{Min: 3, Max: 3, Step: 1}}, GrantedPE: "expt", Queues: []string{"exptp.q"}, NormalTickets: 0.5,
			Usage: &api.Usage{IO: 0.00108}, Subtasks: task("2.gehost", 34, 0.05297), PastUsage: &api.Usage{},
		})),
		at(tasks(running(23144, "parnf", "exptp.q", "21:04:42", 2, 0.25, api.JobMore{
			PE: "exptnf", Slots: []api.Slots{{Min: 2, Max: 2, Step: 1}}, GrantedPE: "exptnf", Queues: []string{"exptp.q"}, NormalTickets: 0.5, MasterApart: true,
			Usage: &api.Usage{Mem: 0.00008, IO: 0.00073}, Subtasks: task("1.gehost", 32, 0.05212), PastUsage: &api.Usage{},
		}), "1")),
	}
	two := []api.QueueStatus{{Name: "qstat.q", Type: "BIPC", Used: 6, Total: 6}, {Name: "qstat2.q", Type: "BIP", Used: 3, Total: 3}}
	return []shown{
		{"qstat_mixed.txt", "3.07", []api.QueueStatus{{Name: "qstat.q", Type: "BIP", Used: 5, Total: 6}}, mixed},
		{"qstat_spread.txt", "5.68", two, slices.Concat(spread, waiting)},
		{"qstat_queue.txt", "5.68", two, later},
		{"qstat_tasks.txt", "9.58", []api.QueueStatus{{Name: "exptp.q", Type: "BIP", Used: 5, Total: 12}}, subtasks},
	}
}

// TestRecordedForms gives what Grid Engine had, and wants what it printed.
func TestRecordedForms(t *testing.T) {
	qtest.UTC(t)
	all := situations()
	outputs := make([]map[string]string, len(all))
	for i := range all {
		outputs[i] = recorded(t, all[i].file)
	}
	measured := recorded(t, "gridengine.txt")["qhost -F"]
	e := qtest.NewExecd(t) // elsewhere
	for n, situation := range all {
		host, _ := attributes(measured, "")
		for i := range host {
			switch host[i].Name {
			case "load_avg":
				host[i].Value = situation.load
			case "mem_used":
				host[i].Value = "1.3G"
			}
		}
		e.Replies(api.VerbHost, api.HostReply{Host: "gehost", Arch: "lx-amd64", Values: host, Queues: situation.queue})
		for command, output := range outputs[n] {
			e.Replies(api.VerbJobs, api.JobsReply{Jobs: situation.jobs})
			if diff := cmp.Diff(qtest.Result{Out: output}, call(t, "", strings.Fields(command)...)); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", situation.file, command, diff)
			}
		}
	}
}

// ours are the keys of qstat -j that Grid Engine does not have.
var ours = []string{"pending tasks", "finished tasks", "holds", "job_state", "start_time", "queue ", "restarts", "limits"}

// TestRecordedDetail wants of qstat -j the lines that Grid Engine printed, in
// their order, between ours.
func TestRecordedDetail(t *testing.T) {
	qtest.UTC(t)
	outputs := recorded(t, "qstat_detail.txt")
	e := qtest.NewExecd(t)
	origin := []string{
		"SGE_O_HOME=/home/geuser", "SGE_O_LOGNAME=geuser", "SGE_O_PATH=/usr/bin:/bin", "SGE_O_SHELL=/bin/sh", "SGE_O_HOST=gehost", "SGE_O_WORKDIR=/home/geuser",
	}
	waits := api.Detail{
		Job: 2084, Owner: "geuser", UID: 1003, Group: "geuser", GID: 1003, Submitted: at("21:39:44"), ScriptFile: "job_scripts/2084",
		Request: api.SubmitRequest{
			Name: "rich", Account: "myacc", Checkpoint: "qstat_ck", CheckpointWhen: "sx", Cwd: "/home/geuser", Stderr: "err", Stdout: "out", Stdin: "/dev/null",
			Reserve: true, Merge: true, Hard: []api.Resource{{Name: "h_rt", Value: "3600"}, {Name: "arch", Value: "lx-amd64"}}, Soft: []api.Resource{{Name: "h_vmem", Value: "1G"}},
			Mail: "abes", MailTo: []string{"a@b", "c@d"}, Notify: true, Priority: -7, Queues: []string{"qstat.q", "qstat2.q"}, SoftQueues: []string{"all.q"},
			Rerun: api.RerunYes, Shell: "/bin/sh", Env: []string{"TERM=", "A=b", "C="}, Args: []string{"x", "y z"}, MasterQueues: []string{"qstat.q"}, Command: "loop.sh",
			PE: "qstat_rr", Slots: []api.Slots{{Min: 2, Max: 3, Step: 1}}, HoldJobs: []string{"nosuch", "ended"},
			Tasks: api.Tasks{First: 1, Last: 9, Step: 2}, MaxRun: 1, Binding: "linear:1", Origin: origin,
		},
		Holds: "j", WaitsFor: []int{2082}, Followers: []int{2085}, ArrayFollowers: []int{2086}, Pending: "1-9:2",
	}
	runs := waits
	runs.WaitsFor, runs.Holds, runs.Pending = nil, "", "3-9:2"
	runs.Tasks = []api.TaskDetail{{
		Task: 1, State: "r", Queue: "qstat.q@gehost", Started: at("21:39:46"), Binding: "ScC",
		Usage: &api.Usage{IO: 0.00002, VMem: 3.414 * (1 << 20), MaxVMem: 3.414 * (1 << 20)},
	}}
	bad := api.Detail{
		Job: 2087, Owner: "geuser", UID: 1003, Group: "geuser", GID: 1003, Submitted: at("21:39:44"), ScriptFile: "job_scripts/2087",
		Request: api.SubmitRequest{
			Name: "bad", Cwd: "/nonexistent", Queues: []string{"qstat2.q"}, Env: []string{"TERM="}, Command: "loop.sh", Tasks: api.Tasks{First: 1, Last: 2, Step: 1}, Origin: origin,
		},
		Tasks: []api.TaskDetail{
			{Task: 1, State: "Eqw", Reason: "11/21/2026 21:39:45 [1003:7338]: error: can't chdir to /nonexistent: No such file or directory"},
			{Task: 2, State: "Eqw", Reason: "11/21/2026 21:39:45 [1003:7346]: error: can't chdir to /nonexistent: No such file or directory"},
		},
	}
	for name, d := range map[string]api.Detail{"waits": waits, "runs": runs, "error": bad} {
		e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{d}})
		var lines []string
		for line := range strings.Lines(call(t, "", "qstat", "-j", "1").Out) {
			if strings.HasPrefix(line, "scheduling info:") {
				break
			}
			if !slices.ContainsFunc(ours, func(key string) bool { return strings.HasPrefix(line, key) }) {
				lines = append(lines, line)
			}
		}
		if diff := cmp.Diff(outputs[name], strings.Join(lines, "")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{runs}})
	if out := call(t, "", "qstat", "-ncb", "-j", "1").Out; strings.Contains(out, "binding") {
		t.Errorf("qstat -ncb -j prints the binding:\n%s", out)
	}
}

// What did not come by qsub has its claim in qstat -j, and what it is called where it
// came from.
func TestClaimOfJob(t *testing.T) {
	e := qtest.NewExecd(t)
	for _, c := range []struct {
		work *api.Work
		want string
	}{
		{nil, ""},
		{&api.Work{Slot: "1_2", Holder: "fetch", Identity: "a\x1bb"}, "claim:                      slot=1_2, holder=fetch, work=a\\x1bb"},
		{&api.Work{Slot: "2", Holder: "alice"}, "claim:                      slot=2, holder=alice"},
	} {
		e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{{Job: 1, Request: api.SubmitRequest{Work: c.work}}}})
		got := ""
		for line := range strings.Lines(call(t, "", "qstat", "-j", "1").Out) {
			if strings.HasPrefix(line, "claim") {
				got = strings.TrimSuffix(line, "\n")
			}
		}
		if got != c.want {
			t.Errorf("%+v: %q; want %q", c.work, got, c.want)
		}
	}
}

// What a job has used is that of the job itself and of all that was started in it, and
// in the lines of slots that of what runs there.
func TestUsageOfTasks(t *testing.T) {
	use := func(cpu float64) *api.Usage { return &api.Usage{CPU: cpu} }
	tasks := []api.Subtask{
		{ID: "1.h", Queue: "a", Usage: use(2)},
		{ID: "2.h", Queue: "b", Usage: use(4)},
		{ID: "into.1", Queue: "a", Usage: use(8)},
		{ID: "3.h", Queue: "a"},
		{ID: "4.h", Queue: "b", Usage: use(16)},
		{ID: "5.h", Queue: "a", Usage: use(32)},
	}
	j := api.JobStatus{
		Job: 1, State: "r", Queue: "a@h", Slots: 5, Granted: []api.Granted{{Queue: "a@h", Slots: 3}, {Queue: "b@h", Slots: 2}},
		More: &api.JobMore{GrantedPE: "pe", Usage: use(1), PastUsage: use(100), Subtasks: tasks},
	}
	type line struct {
		queue, role, tasks string
		cpu                float64 // -1: not known
	}
	lines := func(f form) (list []line) {
		f.rows(&j, nil, func(r *jobRow) {
			l := line{queue: r.queue, role: r.role, cpu: -1}
			for _, task := range r.tasks {
				l.tasks += task.ID + " "
			}
			if u := r.usage(); u != nil {
				l.cpu = u.CPU
			}
			list = append(list, l)
		})
		return list
	}
	if diff := cmp.Diff([]line{{"a@h", "", "", 163}}, lines(form{}), cmp.AllowUnexported(line{})); diff != "" {
		t.Errorf("the job (-want +got):\n%s", diff)
	}
	want := []line{
		{"a@h", "MASTER", "5.h ", 33},
		{"a@h", "SLAVE", "1.h ", 2},
		{"a@h", "SLAVE", "3.h ", -1},
		{"b@h", "SLAVE", "4.h ", 16},
		{"b@h", "SLAVE", "2.h ", 4},
	}
	if diff := cmp.Diff(want, lines(form{slots: true}), cmp.AllowUnexported(line{})); diff != "" {
		t.Errorf("its slots (-want +got):\n%s", diff)
	}
}
