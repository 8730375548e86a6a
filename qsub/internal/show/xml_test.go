package show

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/qsub/internal/qtest"
	"paddock/test/structure"
)

// hostile is what people give to programs that read XML.
const hostile = "a<b>&\"c'd]]>\x01\ufffe\u009b\x1b[2J e\u00fc\n\t\r\x7f"

// shownHostile is what a parser reads of it.
const shownHostile = "a<b>&\"c'd]]>\\x01\\ufffe\u009b\\x1b[2J e\u00fc\n\t\r\x7f"

// visibleHostile is what a parser reads of it where it is an attribute of the
// host, as it is in a table.
var visibleHostile = strings.ReplaceAll(api.Visible(hostile), "\ufffe", `\ufffe`)

// manyJobs are jobs in all states, with all that can be said of them.
func manyJobs() []api.JobStatus {
	spread := []api.Granted{{Queue: "all.q@gehost", Slots: 2}, {Queue: "b.q@gehost", Slots: 1}}
	usage := &api.Usage{CPU: 1.5, Mem: 0.25, IO: 0.00002}
	return []api.JobStatus{
		{Job: 140, Priority: 0.25, Name: "longjobname_12345", Owner: "geuser", State: "r", Time: noon, Queue: "all.q@gehost", Slots: 1, More: &api.JobMore{
			Department: "defaultdepartment", Usage: usage, NormalTickets: 0.5, NormalPriority: 0.5, NormalUrgency: 0.125,
			Urgency: api.Urgency{Total: 1004, Resources: 1000, Waiting: 4}, Priority: -5,
			Hard:   []api.Requested{{Resource: api.Resource{Name: "h_rt", Value: "0:1:0"}, Urgency: 2}, {Resource: api.Resource{Name: "gone", Value: "1"}}},
			Soft:   []api.Resource{{Name: "a", Value: "lx-amd64"}},
			Queues: []string{"all.q", "all.q@*"}, SoftQueues: []string{"b.q"}, MasterQueues: []string{"c.q"}, Binding: "linear:1",
		}},
		{Job: 141, Priority: 0.5, Name: "par", Owner: "geuser", State: "s", Time: noon, Queue: "all.q@gehost", Slots: 3, More: &api.JobMore{
			Department: "defaultdepartment", PE: "p*", Slots: []api.Slots{{Min: 1, Max: 2, Step: 1}, {Min: 4, Max: 9, Step: 1}}, GrantedPE: "pe",
			Granted: spread,
		}, Granted: spread},
		{Job: 142, Priority: 0.25, Name: "arr", Owner: "geuser", State: "r", Time: noon, Queue: "all.q@gehost", Slots: 1, Tasks: "1", More: &api.JobMore{Department: "defaultdepartment"}},
		{Job: 142, Name: "arr", Owner: "geuser", State: "qw", Time: noon, Slots: 1, Tasks: "3-7:2,12", More: &api.JobMore{Department: "defaultdepartment"}},
		{Job: 143, Name: hostile, Owner: hostile, State: "hqw", Time: noon, Slots: 1, Holds: "uj", More: &api.JobMore{
			Department: "defaultdepartment", HoldJobs: []string{"140", "x*"}, WaitsFor: []int{140, 141}, HoldArray: []string{"142"}, WaitsForTasks: []int{142},
		}},
		{Job: 130, Name: "gone", Owner: "geuser", State: "z", Time: noon, Slots: 2, More: &api.JobMore{Department: "defaultdepartment"}},
	}
}

func oneHost() api.HostReply {
	return api.HostReply{Host: "gehost", Arch: "lx-amd64", Values: []api.HostValue{
		{Source: "hl", Name: "num_proc", Type: "INT", Value: "2"},
		{Source: "hl", Name: "load_avg", Value: "0.18"},
		{Source: "hl", Name: "np_load_avg", Value: "0.09"},
		{Source: "hl", Name: "mem_total", Value: "24000.000000M"},
		{Source: "hl", Name: "text", Value: hostile},
	}, Queues: []api.QueueStatus{
		{
			Name: "all.q", Type: "BIP", Used: 4, Total: 20, States: "aAdE", Reasons: []string{"too <much> load\nand more of it", "far too much", "", "failed"},
			Values: []api.HostValue{{Source: "qc", Name: "slots", Value: "16"}},
		},
		{Name: "b.q", Type: "P", Used: 1, Total: 2},
		{Name: "c.q", Type: "B", Total: 2, States: "s"},
	}}
}

const complexText = "#name shortcut type relop requestable consumable default urgency\n" +
	"h_rt h_rt TIME <= YES NO 0:0:0 0\narch a RESTRING == YES NO NONE 0\nmem_free mf MEMORY <= YES NO 0 0\nnum_proc p INT == YES NO 0 0\nrerun re BOOL == NO NO 0 0\n"

// grammar is read before a test goes to another directory.
var grammar, errGrammar = structure.Read("testdata/xml.txt")

// elements runs a command that prints XML. It must have the structure that is
// described. The elements with values are returned, without those of others.
func elements(t *testing.T, args ...string) (values []string) {
	t.Helper()
	got := call(t, "", args...)
	if got.Exit != 0 || got.Err != "" {
		t.Fatalf("%q: exit %d, %s", args, got.Exit, got.Err)
	}
	if errGrammar != nil {
		t.Fatal(errGrammar)
	}
	for _, problem := range grammar.Check([]byte(got.Out)) {
		t.Errorf("%q: %s", args, problem)
	}
	for _, r := range got.Out {
		if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 {
			t.Errorf("%q prints %q", args, r)
		}
	}
	root, err := structure.Parse([]byte(got.Out))
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	var visit func(path string, n *structure.Node)
	visit = func(path string, n *structure.Node) {
		path += "/" + n.Name
		for _, a := range n.Attr {
			if a.Name.Local != "xsd" {
				path += " " + a.Value
			}
		}
		if len(n.Children) == 0 {
			values = append(values, path+"="+n.Text)
		}
		for _, child := range n.Children {
			visit(path, child)
		}
	}
	visit("", root)
	return values
}

// only returns the values of elements of these names, without their paths.
func only(values []string, names ...string) (some []string) {
	for _, v := range values {
		path, value, _ := strings.Cut(v, "=")
		name, attributes, _ := strings.Cut(path[strings.LastIndexByte(path, '/')+1:], " ")
		if slices.Contains(names, name) {
			some = append(some, strings.TrimSpace(attributes+" "+value))
		}
	}
	return some
}

func TestXMLJobs(t *testing.T) {
	qtest.UTC(t)
	e := qtest.NewExecd(t)
	e.Replies(api.VerbJobs, api.JobsReply{Jobs: manyJobs()[:1]})
	qtest.Want(t, qtest.Result{Out: `<?xml version='1.0'?>
<job_info xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
    <job_list state="running">
      <JB_job_number>140</JB_job_number>
      <JAT_prio>0.25000</JAT_prio>
      <JB_name>longjobname_12345</JB_name>
      <JB_owner>geuser</JB_owner>
      <state>r</state>
      <JAT_start_time>2026-11-20T16:07:01</JAT_start_time>
      <queue_name>all.q@gehost</queue_name>
      <slots>1</slots>
    </job_list>
  </queue_info>
  <job_info>
  </job_info>
</job_info>
`}, call(t, "", "qstat", "-xml"))
	e.Replies(api.VerbJobs, api.JobsReply{})
	if got := elements(t, "qstat", "-xml"); len(got) != 2 {
		t.Errorf("no jobs: %q", got)
	}

	e.Replies(api.VerbJobs, api.JobsReply{Jobs: manyJobs()})
	e.Replies(api.VerbHost, oneHost())
	e.Replies(api.VerbShow, api.ShowReply{Text: complexText})
	all := []string{
		"running 140", "running 141", "running 142", "pending 142", "pending 143", "zombie 130",
	}
	for _, test := range []struct {
		args string
		name string // of an element
		want []string
	}{
		{"", "JB_job_number", []string{"140", "141", "142", "142", "143", "130"}},
		{"", "JB_name", []string{"longjobname_12345", "par", "arr", "arr", shownHostile, "gone"}},
		{"", "tasks", []string{"1", "3-7:2,12"}},
		{"-g d", "tasks", []string{"1", "3", "5", "7", "12"}},
		{"-g t", "master", []string{"MASTER", "MASTER", "SLAVE", "SLAVE", "MASTER", "", "", ""}},
		{"-t", "queue_name", []string{"all.q@gehost", "all.q@gehost", "all.q@gehost", "b.q@gehost", "all.q@gehost", "", "", ""}},
		{"-t", "slots", []string{"1", "1", "1", "1", "1", "1", "1", "2"}},
		{"", "slots", []string{"1", "3", "1", "1", "1", "2"}},
		{"-f", "slots", []string{"1", "2", "1", "1", "1", "1", "2"}},
		{"-f", "name", []string{"all.q@gehost", "b.q@gehost", "c.q@gehost"}},
		{"-f -ne", "name", []string{"all.q@gehost", "b.q@gehost"}},
		{"-f", "state", []string{"aAdE", "r", "s", "r", "s", "s", "qw", "hqw", "z"}},
		{"-f -explain aE", "load-alarm-reason", []string{"too <much> load", "and more of it"}},
		{"-f -explain A", "suspend-alarm-reason", []string{"far too much"}},
		{"-f -explain aE", "message", []string{"failed"}},
		{"-f -explain E", "load-alarm-reason", nil},
		{"-F slots,text", "resource", []string{"text hl " + visibleHostile, "slots qc 16", "text hl " + visibleHostile, "text hl " + visibleHostile}},
		{"-ext", "JAT_start_time", nil},
		{"-ext", "cpu_usage", []string{"1.50000"}},
		{"-ext", "JAT_ntix", []string{"0.50000", "0.00000", "0.00000", "0.00000", "0.00000", "0.00000"}},
		{"-ext -urg", "JAT_start_time", slices.Repeat([]string{"2026-11-20T16:07:01"}, 3)},
		{"-urg", "JB_rrcontr", []string{"1000", "0", "0", "0", "0", "0"}},
		{"-pri", "JB_priority", []string{"-5", "0", "0", "0", "0", "0"}},
		{"-r", "hard_request", []string{"h_rt 2.000000 60", "gone 0.000000 1"}},
		{"-r", "soft_request", []string{"arch lx-amd64"}},
		{"-r", "requested_pe", []string{"p* 1,2,4-9"}},
		{"-r", "granted_pe", []string{"pe 3"}},
		{"-r", "predecessor_jobs", []string{"140", "141"}},
		{"-r", "ad_predecessor_jobs_req", []string{"142"}},
		{"-r", "binding", []string{"set linear:1", "NONE", "NONE", "NONE", "NONE", "NONE"}},
		{"-r -ncb", "binding", nil},
		{"-f -r -ext -urg -pri -t", "full_job_name", []string{"longjobname_12345", "par", "par", "arr", "par", "arr", shownHostile, "gone"}},
	} {
		got := only(elements(t, append([]string{"qstat", "-xml", "-s", "prsz"}, strings.Fields(test.args)...)...), test.name)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("qstat -xml %s: %s (-want +got):\n%s", test.args, test.name, diff)
		}
	}
	var states []string
	for _, v := range elements(t, "qstat", "-xml", "-s", "prsz") {
		if before, number, ok := strings.Cut(v, "/JB_job_number="); ok {
			states = append(states, before[strings.LastIndexByte(before, ' ')+1:]+" "+number)
		}
	}
	if diff := cmp.Diff(all, states); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

func TestXMLSummary(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbHost, oneHost())
	got := elements(t, "qstat", "-g", "c", "-xml")
	for name, wanted := range map[string][]string{
		"name": {"all.q", "b.q", "c.q"}, "load": {"0.09000", "0.09000", "0.09000"}, "used": {"4", "1", "0"}, "available": {"0", "1", "0"}, "total": {"20", "2", "2"},
		"temp_disabled": {"20", "0", "0"}, "manual_intervention": {"20", "0", "2"}, "error": nil,
	} {
		if diff := cmp.Diff(wanted, only(got, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	got = only(elements(t, "qstat", "-g", "c", "-ext", "-xml"), "suspend_manual", "load_alarm", "error")
	if diff := cmp.Diff([]string{"0", "20", "20", "0", "0", "0", "2", "0", "0"}, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

func TestXMLHost(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbHost, oneHost())
	e.Replies(api.VerbJobs, api.JobsReply{Jobs: manyJobs()[1:4]})
	for _, test := range []struct {
		args string
		name string
		want []string
	}{
		{"-q", "queuevalue", []string{
			"all.q qtype_string BIP", "all.q slots_used 4", "all.q slots 20", "all.q slots_resv 0", "all.q state_string aAdE",
			"b.q qtype_string P", "b.q slots_used 1", "b.q slots 2", "b.q slots_resv 0", "b.q state_string",
			"c.q qtype_string B", "c.q slots_used 0", "c.q slots 2", "c.q slots_resv 0", "c.q state_string s",
		}},
		{"-F text,num_proc", "resourcevalue", []string{"num_proc hl 2.000000", "text hl " + visibleHostile}},
		{"", "jobvalue", nil},
	} {
		got := only(elements(t, append([]string{"qhost", "-xml"}, strings.Fields(test.args)...)...), test.name)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("qhost -xml %s: %s (-want +got):\n%s", test.args, test.name, diff)
		}
	}
	if got := only(elements(t, "qhost", "-xml", "-ncb"), "hostvalue"); len(got) != 14 || slices.ContainsFunc(got, func(v string) bool { return strings.HasPrefix(v, "m_core") }) {
		t.Errorf("-ncb shows %q", got)
	}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"-j"}, []string{"all.q@gehost MASTER", "all.q@gehost SLAVE", "b.q@gehost SLAVE", "all.q@gehost MASTER"}},
		{[]string{"-q", "-j"}, []string{"all.q@gehost MASTER", "all.q@gehost SLAVE", "all.q@gehost MASTER", "b.q@gehost SLAVE"}},
	} {
		var got []string
		for _, v := range only(elements(t, append([]string{"qhost", "-xml"}, test.args...)...), "jobvalue") {
			if _, queue, ok := strings.Cut(v, "qinstance_name "); ok {
				got = append(got, queue)
			}
			if _, master, ok := strings.Cut(v, "pe_master "); ok {
				got[len(got)-1] += " " + master
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("qhost -xml %q (-want +got):\n%s", test.args, diff)
		}
	}
}

func TestXMLDetail(t *testing.T) {
	qtest.UTC(t)
	e := qtest.NewExecd(t)
	e.On(api.VerbShow, func(body []byte) (int, any) {
		switch {
		case strings.Contains(string(body), "complex"):
			return 200, api.ShowReply{Text: complexText}
		case strings.Contains(string(body), `"known"`):
			return 200, api.ShowReply{Text: "ckpt_name known\nwhen sx\n"}
		}
		return 404, api.Errorf(api.CodeNotFound, "no such")
	})
	request := api.SubmitRequest{
		Name: hostile, Command: hostile, Args: []string{"", hostile + "\xff", "x"}, Env: []string{"A=", "B=" + hostile, "C"}, Cwd: "/w", Merge: true, Shell: "/bin/sh",
		Stdin: "/i", Stdout: "/o", Stderr: "/e", Rerun: api.RerunNo, Binary: true, NoShell: true, Notify: true, Reserve: true, Verify: "e",
		Tasks: api.Tasks{First: 1, Last: 9, Step: 2}, MaxRun: 2, PE: "pe", Slots: []api.Slots{{Min: 2, Max: api.MaxSlots}},
		Hard:   []api.Resource{{Name: "h_rt", Value: "1:0:0"}, {Name: "mf", Value: "1.5G"}, {Name: "p", Value: "2"}, {Name: "re", Value: "TRUE"}, {Name: "h_rt", Value: "INFINITY"}},
		Soft:   []api.Resource{{Name: "a", Value: "x"}, {Name: "gone", Value: "1"}},
		Queues: []string{"a", "b"}, SoftQueues: []string{"c"}, MasterQueues: []string{"d"}, HoldJobs: []string{"x", "5"}, HoldArray: []string{"6"},
		Mail: "abes", MailTo: []string{"u", "v@w"}, Priority: 7, After: noon, Checkpoint: "known", CheckpointWhen: "0:10:0", Binding: "env striding:2:3:1,0",
		Origin: []string{"TERM=", "SGE_O_HOME=/h", "SGE_O_HOST=gehost", "SGE_O_MAIL=/m"}, Context: []string{"c=1=2", "d"},
	}
	full := api.Detail{
		Job: 7, Owner: "u", UID: 1, Group: "g", GID: 2, Submitted: noon, Request: request, Holds: "uja",
		Tasks: []api.TaskDetail{
			{Task: 1, State: "r", Queue: "all.q@gehost", Started: noon, Usage: &api.Usage{CPU: 1, MaxVMem: 4096}},
			{Task: 3, State: "Eqw", Reason: hostile},
		},
		Reasons: []string{"held back by a user hold", "and more"}, WaitsFor: []int{4, 5, 6}, WaitsForTasks: []int{6}, Followers: []int{8}, ArrayFollowers: []int{9, 10},
		NormalUrgency: 0.25, NormalTickets: 0.5,
	}
	plain := api.Detail{Job: 8, Owner: "u", Group: "g", Submitted: noon, Request: api.SubmitRequest{Name: "n", Account: "acc", Command: "c", Origin: []string{"SGE_O_HOST=gehost"}}}
	e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{full, plain}})
	got := elements(t, "qstat", "-j", "*", "-xml")
	for name, wanted := range map[string][]string{
		"JB_job_number": {"7", "8"}, "JB_exec_file": {"job_scripts/7", "job_scripts/8"}, "JB_submission_time": {"1795190821", "1795190821"},
		"JB_account": {"sge", "acc"}, "JB_merge_stderr": {"true", "false"}, "MR_user": {"u", "v", "u"}, "MR_host": {"", "w", "gehost"},
		"JB_job_name": {strings.TrimSpace(shownHostile), "n"}, "PN_path": {"/o", "/bin/sh", "/e", "/i"},
		"CE_name": {"h_rt", "mem_free", "num_proc", "rerun", "h_rt", "arch", "gone"}, "CE_valtype": {"3", "4", "1", "5", "3", "9", "2"},
		"CE_stringval": {"3600", "1.5G", "2", "TRUE", "INFINITY", "x", "1"},
		"CE_doubleval": {"3600.000000", "1610612736.000000", "2.000000", "1.000000", fmt.Sprintf("%f", 0x1.fffffffffffffp1023), "0.000000", "0.000000"},
		"VA_variable":  {"__SGE_PREFIX__O_HOME", "__SGE_PREFIX__O_MAIL", "TERM", "__SGE_PREFIX__O_HOST", "A", "B", "C", "c", "d", "__SGE_PREFIX__O_HOST"},
		"VA_value":     {"/h", "/m", "gehost", strings.TrimSpace(shownHostile), "1=2", "gehost"}, "QR_name": {"a", "b", "c", "d"},
		"JAT_status": {"128", "0"}, "JAT_task_number": {"1", "3"}, "JAT_start_time": {"1795190821", "0"}, "JAT_ntix": {"0.500000", "0.500000"},
		"UA_value": {"1.000000", "0.000000", "0.000000", "0.000000", "0.000000", "4096.000000"}, "QIM_message": {strings.TrimSpace(shownHostile)},
		"JRE_job_number": {"4", "5", "0", "0", "8", "6", "0", "9", "10", "0", "0"}, "JRE_job_name": {"x", "5", "x", "5"},
		"ST_name": {strings.TrimSpace(shownHostile) + "\\xff", "x"}, "JB_execution_time": {"1795190821", "0"}, "JB_checkpoint_attr": {"6", "0"}, "JB_checkpoint_interval": {"600", "0"}, "JB_mail_options": {"6029312", "0"},
		"JB_priority": {"1031", "1024"}, "JB_restart": {"2", "0"}, "JB_verify_suitable_queues": {"2", "0"},
		"RN_min": {"2", "1", "1"}, "RN_max": {"9999999", "9", "1"}, "RN_step": {"1", "2", "1"}, "JB_type": {"448", "0"},
		"BN_strategy": {"striding", "no_job_binding"}, "BN_type": {"2", "0"}, "BN_parameter_n": {"2", "0"}, "BN_parameter_socket_offset": {"1", "0"},
		"BN_parameter_striding_step_size": {"3", "0"}, "BN_parameter_explicit": {"no_explicit_binding"}, "JB_ja_task_concurrency": {"2", "0"},
		"ULNG_value": {"7", "7"}, "MES_message_number": {"33", "33"}, "MES_message": {"held back by a user hold", "and more"}, "JB_nurg": {"0.250000", "0.000000"},
	} {
		if diff := cmp.Diff(wanted, only(got, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	// A document has one root: the unknown jobs, or those that are there.
	e.Replies(api.VerbDetail, api.DetailReply{Missing: []string{"77", "x<y"}})
	if diff := cmp.Diff([]string{"/unknown_jobs/ST_name=77", "/unknown_jobs/ST_name=x<y"}, elements(t, "qstat", "-j", "77,x<y", "-xml")); diff != "" {
		t.Errorf("unknown jobs (-want +got):\n%s", diff)
	}
	e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{plain}, Missing: []string{"77"}})
	mixed := call(t, "", "qstat", "-j", "8,77", "-xml")
	if mixed.Exit != 0 || mixed.Err != "Following jobs do not exist: \n77\n" || strings.Contains(mixed.Out, "unknown_jobs") {
		t.Errorf("with an unknown job: %+v", mixed)
	}
	plain.Request.Checkpoint = "removed"
	e.Replies(api.VerbDetail, api.DetailReply{Jobs: []api.Detail{plain}})
	if got := only(elements(t, "qstat", "-j", "8", "-xml"), "JB_checkpoint_name", "JB_checkpoint_attr"); !slices.Equal(got, []string{"removed", "0"}) {
		t.Errorf("a checkpointing environment that is gone: %q", got)
	}
}

func TestXMLAndJSON(t *testing.T) {
	qtest.NewExecd(t)
	for command, prefix := range map[string]string{"qstat": "", "qhost": "error: "} {
		qtest.Want(t, qtest.Result{Exit: 1, Err: prefix + "options -json and -xml exclude each other\n"}, call(t, "", command, "-json", "-xml"))
	}
	for _, of := range []string{"-slots", "-slotad"} {
		qtest.Want(t, qtest.Result{Exit: 1, Err: "error: there is no XML of slots: use -json\n"}, call(t, "", "qhost", "-xml", of))
	}
}

func TestReasonNumber(t *testing.T) {
	for _, test := range []struct {
		d    api.Detail
		want int
	}{
		{api.Detail{Holds: "u"}, 33},
		{api.Detail{Holds: "a"}, 33},
		{api.Detail{Holds: "j"}, 35},
		{api.Detail{Request: api.SubmitRequest{After: noon.AddDate(1000, 0, 0)}}, 31},
		{api.Detail{Request: api.SubmitRequest{After: noon.AddDate(-1000, 0, 0)}}, 0},
		{api.Detail{Tasks: []api.TaskDetail{{State: "Eqw"}}}, 32},
		{api.Detail{Tasks: []api.TaskDetail{{State: "r"}}, Request: api.SubmitRequest{MaxRun: 1}}, 45},
		{api.Detail{}, 0},
	} {
		if got := reasonNumber(&test.d); got != test.want {
			t.Errorf("reasonNumber(%+v) = %d; want %d", test.d, got, test.want)
		}
	}
}

func TestParseBinding(t *testing.T) {
	for text, want := range map[string]bindingParts{
		"":                     {"no_job_binding", "0", "0", "0", "0", "no_explicit_binding", 0},
		"linear:1":             {"linear_automatic", "1", "0", "0", "0", "", 3},
		"env linear:2":         {"linear_automatic", "2", "0", "0", "0", "", 2},
		"pe linear:2:0,1":      {"linear", "2", "0", "1", "0", "", 1},
		"striding:2:1":         {"striding_automatic", "2", "0", "0", "1", "", 3},
		"set striding:2:3:1,0": {"striding", "2", "1", "0", "3", "", 3},
		"explicit:0,0:0,1":     {"explicit", "0", "0", "0", "0", "explicit:0,0:0,1", 3},
		"linear":               {"linear_automatic", "", "0", "0", "0", "", 3},
	} {
		if got := parseBinding(text); got != want {
			t.Errorf("parseBinding(%q) = %+v; want %+v", text, got, want)
		}
	}
}

// TestXMLLint has another parser read what ours has read.
func TestXMLLint(t *testing.T) {
	lint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Skip("xmllint(1) is not installed")
	}
	e := qtest.NewExecd(t)
	e.Replies(api.VerbJobs, api.JobsReply{Jobs: manyJobs()})
	e.Replies(api.VerbHost, oneHost())
	for _, args := range [][]string{{"qstat", "-xml"}, {"qstat", "-f", "-F", "-ext", "-xml"}, {"qhost", "-q", "-j", "-F", "-xml"}} {
		file := filepath.Join(t.TempDir(), "out.xml")
		if err := os.WriteFile(file, []byte(call(t, "", args...).Out), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(lint, "--noout", file).CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}
