package show

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/qtest"
)

// recorded returns what Grid Engine printed, by command line.
func recorded(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	outputs := map[string]string{}
	for _, section := range strings.Split(string(text), "\n$ ")[1:] {
		command, output, _ := strings.Cut(section, "\n")
		if output == "" {
			t.Fatalf("%s: nothing is recorded of %s", file, command)
		}
		outputs[command] = strings.TrimSuffix(output, "\n") + "\n"
	}
	if len(outputs) < 3 {
		t.Fatalf("%d recorded outputs in %s", len(outputs), file)
	}
	return outputs
}

// attributes returns the attributes that stand in a listing, those of the host
// and those of the queue of that name.
func attributes(listing, queue string) (host, own []api.HostValue) {
	in := queue == ""
	seen := map[string]bool{}
	for line := range strings.Lines(listing) {
		if strings.Contains(line, "@gehost ") {
			in = strings.HasPrefix(line, queue+"@")
		}
		source, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, value, ok := strings.Cut(rest, "=")
		if !ok || len(source) != 2 {
			continue
		}
		switch v := (api.HostValue{Source: source, Name: name, Value: value}); {
		case source[0] == 'h' && !seen[name]:
			seen[name] = true
			host = append(host, v)
		case source[0] == 'q' && in:
			own = append(own, v)
		}
	}
	return host, own
}

func at(clock string) time.Time {
	when, err := time.Parse("15:04:05", clock)
	if err != nil {
		panic(err)
	}
	return time.Date(2026, 11, 21, when.Hour(), when.Minute(), when.Second(), 0, time.UTC)
}

// TestRecordedHost gives what Grid Engine had, and wants what it printed.
func TestRecordedHost(t *testing.T) {
	qtest.UTC(t)
	outputs := recorded(t, "gridengine.txt")
	e := qtest.NewExecd(t)
	for command, output := range outputs {
		args := strings.Fields(command)
		host := api.HostReply{Host: "gehost", Arch: "lx-amd64"}
		var jobs []api.JobStatus
		if args[0] == "qhost" {
			host.Values, _ = attributes(outputs["qhost -F"], "")
			host.Queues = []api.QueueStatus{{Name: "all.q", Type: "BIP", Used: 1, Total: 100}, {Name: "run.iop", Type: "BIPC", Used: 4, Total: 100}}
			jobs = []api.JobStatus{
				{Job: 835, Priority: 0.5, Name: "pcd", Owner: "geuser", State: "s", Time: at("17:43:40"), Queue: "all.q@gehost", Slots: 1},
				{Job: 834, Priority: 0.25, Name: "pcc2", Owner: "geuser", State: "r", Time: at("17:43:09"), Queue: "run.iop@gehost", Slots: 1, Tasks: "1"},
				{Job: 834, Priority: 0.25, Name: "pcc2", Owner: "geuser", State: "r", Time: at("17:43:09"), Queue: "run.iop@gehost", Slots: 1, Tasks: "2"},
				{Job: 849, Priority: 0.75, Name: "t.sh", Owner: "other", State: "r", Time: at("17:43:41"), Queue: "run.iop@gehost", Slots: 2},
				{Job: 850, Name: "waits", Owner: "other", State: "qw", Time: at("17:43:41"), Slots: 2},
			}
		} else {
			var all, run []api.HostValue
			host.Values, all = attributes(outputs["qstat -f -F"], "all.q")
			if command == "qstat -g c" { // recorded a moment later
				host.Values = []api.HostValue{{Name: "np_load_avg", Value: "0.65"}}
			}
			_, run = attributes(outputs["qstat -f -F"], "run.iop")
			host.Queues = []api.QueueStatus{
				{Name: "all.q@gehost", Type: "BIP", Total: 100, Load: 0.65, States: "d", Values: all},
				{Name: "run.iop@gehost", Type: "BIPC", Used: 2, Total: 100, Load: 0.65, Values: run},
			}
			jobs = []api.JobStatus{
				{Job: 834, Priority: 0.5, Name: "pcc2", Owner: "geuser", State: "r", Time: at("17:43:09"), Queue: "run.iop@gehost", Slots: 1, Tasks: "1"},
				{Job: 834, Priority: 0.5, Name: "pcc2", Owner: "geuser", State: "r", Time: at("17:43:09"), Queue: "run.iop@gehost", Slots: 1, Tasks: "2"},
				{Job: 831, Name: "pca", Owner: "geuser", State: "hqw", Time: at("17:43:08"), Slots: 1, Tasks: "1-5:2"},
				{Job: 835, Name: "pcd", Owner: "geuser", State: "hqw", Time: at("17:43:08"), Slots: 1},
			}
		}
		e.Replies(api.VerbHost, host)
		e.Replies(api.VerbJobs, api.JobsReply{Jobs: jobs})
		if diff := cmp.Diff(qtest.Result{Out: output}, call(t, "", args...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
	}
}

func TestHostChoices(t *testing.T) {
	qtest.UTC(t)
	e := qtest.NewExecd(t)
	host := api.HostReply{Host: "gehost.example", Arch: "lx-amd64", HostGroups: []string{"@h", "@g"}, Values: []api.HostValue{{Source: "hl", Name: "mem_free", Value: "1G"}}, Queues: []api.QueueStatus{
		{Name: "all.q", Type: "BP", Total: 4, Used: 1, States: "E", Load: -1, Reasons: []string{"queue all.q marked QERROR"}, Values: []api.HostValue{{Source: "qc", Name: "mem_free", Value: "2G"}}},
		{Name: "long.q", Type: "B", Total: 2, States: "aS", Reasons: []string{"alarm hl:load_avg=9", ""}},
	}}
	jobs := []api.JobStatus{
		{Job: 1, Name: "a", Owner: "u", State: "r", Time: noon, Queue: "all.q@gehost.example", Slots: 1},
		{Job: 2, Name: "b", Owner: "u", State: "qw", Time: noon, Slots: 1},
	}
	e.Replies(api.VerbHost, host)
	e.Replies(api.VerbJobs, api.JobsReply{Jobs: jobs})
	const head = "queuename                      qtype resv/used/tot. load_avg arch          states\n"
	const rule = "---------------------------------------------------------------------------------\n"
	const all = rule + "all.q@gehost.example           BP    0/1/4          -NA-     lx-amd64      E\n"
	const long = rule + "long.q@gehost.example          B     0/0/2          -NA-     lx-amd64      aS\n"
	const job = "      1 0.00000 a          u            r     11/20/2026 16:07:01     1        \n"
	const pending = "\n############################################################################\n - PENDING JOBS - PENDING JOBS - PENDING JOBS - PENDING JOBS - PENDING JOBS\n" +
		"############################################################################\n      2 0.00000 b          u            qw    11/20/2026 16:07:01     1        \n"
	for _, test := range []struct {
		args string
		want qtest.Result
	}{
		{"qselect", qtest.Result{Out: "all.q@gehost.example\nlong.q@gehost.example\n"}},
		{"qselect -q l*", qtest.Result{Out: "long.q@gehost.example\n"}},
		{"qselect -q *@gehost*,x -qs aE", qtest.Result{Out: "all.q@gehost.example\nlong.q@gehost.example\n"}},
		{"qselect -qs E", qtest.Result{Out: "all.q@gehost.example\n"}},
		{"qselect -qs d", qtest.Result{Exit: 1}},
		{"qselect -q nosuch", qtest.Result{Exit: 1, Err: "No cluster queue or queue instance matches the phrase \"nosuch\"\n"}},
		{"qselect -q all.q@other", qtest.Result{Exit: 1, Err: "No cluster queue or queue instance matches the phrase \"all.q@other\"\n"}},
		{"qselect -q *@@g", qtest.Result{Out: "all.q@gehost.example\nlong.q@gehost.example\n"}},
		{"qselect -q l*@@G*", qtest.Result{Out: "long.q@gehost.example\n"}},
		{"qselect -q l*@@other", qtest.Result{Exit: 1, Err: "No cluster queue or queue instance matches the phrase \"l*@@other\"\n"}},
		{"qselect -q @@g", qtest.Result{Exit: 1, Err: "No cluster queue or queue instance matches the phrase \"@@g\"\n"}},
		{"qselect -q *@g", qtest.Result{Exit: 1, Err: "No cluster queue or queue instance matches the phrase \"*@g\"\n"}},
		{"qstat -f -qs S -q l*@@g", qtest.Result{Out: head + long + pending}},
		{"qselect -qs x", qtest.Result{Exit: 1, Err: "error: unknown queue state: x found in string: x\n"}},
		{"qselect foo", qtest.Result{Exit: 1, Err: "invalid option argument \"foo\"\nType \"qselect -help\" for the options.\n"}},
		{"qstat -f -explain aE", qtest.Result{Out: head + all + "\tqueue all.q marked QERROR\n" + job + long + "\talarm hl:load_avg=9\n" + pending}},
		{"qstat -explain a", qtest.Result{Out: head + all + job + long + "\talarm hl:load_avg=9\n" + pending}},
		{"qstat -F mem_free -s r", qtest.Result{Out: head + all + "\tqc:mem_free=2G\n" + job + long + "\thl:mem_free=1G\n"}},
		{"qstat -f -qs S", qtest.Result{Out: head + long + pending}},
		{"qstat -f -qs d -s r", qtest.Result{}},
		{"qstat -explain x", qtest.Result{Exit: 1, Err: "error: unknown queue state: x found in string: x\n"}},
		{"qstat -g c", qtest.Result{Out: "CLUSTER QUEUE                   CQLOAD   USED    RES  AVAIL  TOTAL aoACDS  cdsuE  \n" +
			"--------------------------------------------------------------------------------\n" +
			"all.q                             -NA-      1      0      0      4      0      4 \n" +
			"long.q                            -NA-      0      0      0      2      2      0 \n"}},
		{"qstat -g x", qtest.Result{Exit: 1, Err: "wrong character 'x' for -g option\n"}},
		{"qstat -g dcx", qtest.Result{Exit: 1, Err: "wrong character 'x' for -g option\n"}},
		{"qstat -g c -ext", qtest.Result{Out: "CLUSTER QUEUE                   CQLOAD   USED    RES  AVAIL  TOTAL aoACDS  cdsuE      s     A     S     C     u     a     d     D     c     o     E\n" +
			"--------------------------------------------------------------------------------------------------------------------------------------------------\n" +
			"all.q                             -NA-      1      0      0      4      0      4     0     0     0     0     0     0     0     0     0     0     4 \n" +
			"long.q                            -NA-      0      0      0      2      2      0     0     0     2     0     0     2     0     0     0     0     0 \n"}},
		{"qstat -explain aEd", qtest.Result{Exit: 1, Err: "error: unknown queue state: d found in string: aEd\n"}},
		{"qstat -explain E -explain a -q l*", qtest.Result{Out: head + long + "\talarm hl:load_avg=9\n" + pending}},
		{"qstat -l =x", qtest.Result{Exit: 1, Err: "Wrong resource list format \"=x\" specified to -l option\n"}},
		{"qhost -h gehost,GEHOST.example -q", qtest.Result{Out: strings.Replace(unknown, "gehost                 ", "gehost.example         ", 1) +
			"   all.q                BP    0/1/4         E\n   long.q               B     0/0/2         aS\n"}},
		{"qhost -h nosuch", qtest.Result{Exit: 1, Err: "error: can't resolve hostname \"nosuch\"\n"}},
		{"qhost foo", qtest.Result{Exit: 1, Err: "error: invalid option argument \"foo\"\nType \"qhost -help\" for the options.\n"}},
	} {
		if diff := cmp.Diff(test.want, call(t, "", strings.Fields(test.args)...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.args, diff)
		}
	}
	for _, test := range []struct {
		args string
		jobs api.JobsRequest
		host api.HostRequest
	}{
		{"qhost -u a,b", api.JobsRequest{Users: []string{"a", "b"}, States: "r", More: true}, api.HostRequest{}},
		{"qhost -l a=1,b -l c=2", api.JobsRequest{}, api.HostRequest{Now: []api.Resource{{Name: "a", Value: "1"}, {Name: "b", Value: "TRUE"}, {Name: "c", Value: "2"}}}},
		{"qstat -l a=1 -pe x,y -pe z -U u,v -r", api.JobsRequest{Queues: []string{"all.q", "long.q"}, More: true}, api.HostRequest{
			Resources: []api.Resource{{Name: "a", Value: "1"}}, PEs: []string{"x", "y", "z"}, Users: []string{"u", "v"},
		}},
		{"qselect -l a=1 -l a=2 -pe x -U u", api.JobsRequest{}, api.HostRequest{
			Resources: []api.Resource{{Name: "a", Value: "2"}}, PEs: []string{"x"}, Users: []string{"u"},
		}},
	} {
		e.Forget()
		call(t, "", strings.Fields(test.args)...)
		if diff := cmp.Diff(test.host, qtest.Last[api.HostRequest](t, e, api.VerbHost)); diff != "" {
			t.Errorf("%s asked for the host (-want +got):\n%s", test.args, diff)
		}
		if len(e.Seen[api.VerbJobs]) == 0 && cmp.Equal(test.jobs, api.JobsRequest{}) {
			continue
		}
		if diff := cmp.Diff(test.jobs, qtest.Last[api.JobsRequest](t, e, api.VerbJobs)); diff != "" {
			t.Errorf("%s asked for jobs (-want +got):\n%s", test.args, diff)
		}
	}
	e.Replies(api.VerbHost, api.HostReply{Host: "gehost", Excluded: true})
	qtest.Want(t, qtest.Result{}, call(t, "", "qhost", "-l", "a=1"))
	e.Replies(api.VerbHost, api.Errorf(api.CodeNotFound, `unknown resource "a"`))
	qtest.Want(t, qtest.Result{Exit: 1, Err: "error: unknown resource \"a\"\n"}, call(t, "", "qhost", "-l", "a=1"))
	e.Replies(api.VerbHost, host)

	// JSON is what execd sent.
	for _, test := range []struct {
		args string
		want any
	}{
		{"qhost -json", host},
		{"qhost -j -json", hostAndJobs{&host, []api.JobStatus{withMore(jobs[0])}}},
		{"qselect -json", host.Queues},
		{"qstat -g c -json", host},
		{"qstat -json -s p", api.JobsReply{Jobs: jobs[1:]}},
		{"qstat -f -json", hostAndJobs{&host, jobs}},
		{"qstat -q all.q -json", api.JobsReply{Jobs: jobs}},
		{"qstat -q long.q -json", api.JobsReply{Jobs: jobs[1:]}},
		{"qstat -r -json", api.JobsReply{Jobs: []api.JobStatus{withMore(jobs[0]), withMore(jobs[1])}}},
		{"qhost -l a=1 -json", host},
	} {
		sent, err := json.Marshal(test.want)
		if err != nil {
			t.Fatal(err)
		}
		var want, got any
		r := call(t, "", strings.Fields(test.args)...)
		if json.Unmarshal(sent, &want) != nil || json.Unmarshal([]byte(r.Out), &got) != nil || r.Exit != 0 || !cmp.Equal(want, got) {
			t.Errorf("%s: %+v; want %s", test.args, r, sent)
		}
	}
}

// withMore returns a job as an execd sends it when more is asked for.
func withMore(j api.JobStatus) api.JobStatus {
	j.More = &api.JobMore{}
	return j
}

// unknown is what qhost prints of a host of which nothing is known.
const unknown = `HOSTNAME                ARCH         NCPU NSOC NCOR NTHR  LOAD  MEMTOT  MEMUSE  SWAPTO  SWAPUS
----------------------------------------------------------------------------------------------
global                  -               -    -    -    -     -       -       -       -       -
gehost                  lx-amd64        -    -    -    -     -       -       -       -       -
`

// qhost -slots shows what is left of a slot that others are carved out of, and below
// it what these have; where there is none, neither.
func TestSlots(t *testing.T) {
	e := qtest.NewExecd(t)
	static := api.SlotStatus{Slot: "3", Name: "slot3@h", Queue: "b.q", State: "Claimed", Activity: "Busy", Holder: "queue", Job: "7.1"}
	e.Replies(api.VerbSlots, api.SlotsReply{Host: "h", Slots: []api.SlotStatus{static}}, api.SlotsReply{Host: "h", Slots: []api.SlotStatus{
		{Slot: "1", Queue: "a.q", State: "Unclaimed", Activity: "Idle", Type: "Partitionable", Cpus: 3, Memory: 900},
		{Slot: "1_2", Queue: "a.q", State: "Claimed", Activity: "Idle", Holder: "fetch", Type: "Dynamic", Cpus: 2, Memory: 128, Job: "8.1"},
		static,
	}})
	qtest.Want(t, qtest.Result{Out: `SLOT QUEUE STATE   ACTIVITY HOLDER JOB
--------------------------------------
3    b.q   Claimed Busy     queue  7.1
`}, call(t, "", "qhost", "-slots"))
	qtest.Want(t, qtest.Result{Out: `SLOT QUEUE STATE     ACTIVITY HOLDER TYPE          CPUS MEMORY JOB
------------------------------------------------------------------
1    a.q   Unclaimed Idle            Partitionable    3   900M
1_2  a.q   Claimed   Idle     fetch  Dynamic          2   128M 8.1
3    b.q   Claimed   Busy     queue  Static                    7.1
`}, call(t, "", "qhost", "-slots"))
}

// A slot is named by its numbers or its name.
func TestSlotNames(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbSlots, api.SlotsReply{Host: "h", Slots: []api.SlotStatus{{Slot: "1_2", Ad: "SlotID = 1\n"}}})
	for name, slot := range map[string]api.SlotID{"3": "3", "slot3": "3", "1_2": "1_2", "slot1_2": "1_2", "slot1_2@h.example": "1_2"} {
		qtest.Want(t, qtest.Result{Out: "SlotID = 1\n"}, call(t, "", "qhost", "-slotad", name))
		if got := qtest.Last[api.SlotsRequest](t, e, api.VerbSlots); got.Slot != slot || !got.Ads {
			t.Errorf("%s: asked for %+v", name, got)
		}
	}
	for _, name := range []string{"0", "x", "slot", "1_", "_1", "1_0", "01", "1_2_3", "-1"} {
		if got := call(t, "", "qhost", "-slotad", name); got.Exit != 1 {
			t.Errorf("%s: %+v; want it refused", name, got)
		}
	}
}

// A host that hangs is not waited for, and the others are shown.
func TestSandboxesOfOneThatHangs(t *testing.T) {
	e := qtest.NewExecd(t)
	e.Replies(api.VerbBoxes, api.SandboxesReply{Host: "h"})
	e.Replies(api.VerbPeers, api.PeersReply{Peers: []api.PeerStatus{{Name: "node", State: api.PeerUp}}})
	enough := make(chan struct{})
	defer close(enough)
	e.On(api.OnHost+"/node/"+api.VerbBoxes, func([]byte) (int, any) {
		<-enough
		return 200, api.SandboxesReply{}
	})
	all, err := boxes(t.Context(), &command.Invocation{Client: api.NewClient(e.Dir + "/execd.sock")}, nil, 50*time.Millisecond)
	want := []unreached{{"node", "it has not answered for 50ms"}}
	if err != nil || !cmp.Equal(all.Unreached, want) {
		t.Errorf("%+v, %v; want %+v", all, err, want)
	}
}

// qhost -sandboxes shows those of jobs on all hosts, and behind those of a host what no job has there
// any more, by the name of its directory. A host that cannot be asked is named with the reason.
func TestSandboxes(t *testing.T) {
	e := qtest.NewExecd(t)
	reply := api.SandboxesReply{Host: "h", Sandboxes: []api.SandboxStatus{
		{Dir: "/e/7.1.0-0123456789abcdef", Job: "7.1", User: "anna", Slot: "3", State: api.SandboxExecuting, Size: 3 << 20},
		{Dir: "/e/6.2.1-0123456789abcdef", Job: "6.2", User: "bert", State: api.SandboxStuck, Tries: 4, Error: "no space\nleft", Transfer: &api.Transfer{Output: true, Bytes: 1 << 19, Attempt: 4}},
		{Dir: "/e/lost+found", State: api.SandboxAlone, Error: "it has no name of a sandbox"},
	}}
	there := api.SandboxesReply{Host: "liar", Sandboxes: []api.SandboxStatus{{
		Dir: "/f/301.1.0-0123456789abcdef", Job: "301.1", From: "h 5.1", User: "anna", State: api.SandboxSending, Size: 1 << 20, Tries: 1,
		Transfer: &api.Transfer{Output: true, Bytes: 1 << 19, Attempt: 1, Peer: "h"},
	}}}
	e.Replies(api.VerbBoxes, reply)
	e.Replies(api.OnHost+"/node1.site/"+api.VerbBoxes, there)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	e.Replies(api.VerbPeers, api.PeersReply{Peers: []api.PeerStatus{
		{Name: "node1.site", State: api.PeerUp},
		{Name: "node2.site", State: api.PeerDown, Since: since, Error: "no route to host"},
	}})
	const heading = `JOB        HOST       FROM  USER SLOT STATE       SIZE     SENT RATE LEFT PEER  TRIES LAST-ERROR
----------------------------------------------------------------------------------------------------------
`
	qtest.Want(t, qtest.Result{Out: heading + `7.1        h          -     anna 3    executing 3.000M        -    -    - -         - -
6.2        h          -     bert -    stuck          - 512.000K    -    - local     4 no space\nleft
lost+found h          -     -    -    alone          -        -    -    - -         - it has no name of a sandbox
301.1      node1.site h 5.1 anna -    sending   1.000M 512.000K    -    - h         1 -
-          node2.site -     -    -    -              -        -    -    - -         - down since 2026-01-02 03:04:05: no route to host
`}, call(t, "", "qhost", "-sandboxes"))
	var got boxesOf
	if err := json.Unmarshal([]byte(call(t, "", "qhost", "-sandboxes", "-json").Out), &got); err != nil || len(got.Sandboxes) != 4 || got.Sandboxes[1].Error != "no space\nleft" ||
		got.Sandboxes[1].On != "h" || got.Sandboxes[3].On != "node1.site" || len(got.Unreached) != 1 || got.Unreached[0].Host != "node2.site" {
		t.Errorf("JSON: %v, %+v", err, got)
	}
	out := call(t, "", "qhost", "-sandboxes", "-xml").Out
	for _, want := range []string{
		"<job>7.1</job>", "<state>stuck</state>", "<size>3145728</size>", "<sent>524288</sent>", "<dir>/e/lost+found</dir>", "<host>node1.site</host>", "<from>h 5.1</from>", "<unreached>",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the XML lacks %s:\n%s", want, out)
		}
	}
	if out := call(t, "", "qhost", "-sandboxes", "-h", "node1").Out; strings.Count(out, "\n") != 3 || !strings.Contains(out, "\n301.1 ") {
		t.Errorf("-h node1: %s", out)
	}
	if out := call(t, "", "qhost", "-sandboxes", "-h", "h").Out; strings.Count(out, "\n") != 5 {
		t.Errorf("-h h: %s", out)
	}
	if got := call(t, "", "qhost", "-sandboxes", "-h", "node3"); got.Exit != 1 || !strings.Contains(got.Err, `can't resolve hostname "node3"`) {
		t.Errorf("-h node3: %+v", got)
	}
	e.Replies(api.VerbBoxes, api.SandboxesReply{Host: "h", Sandboxes: []api.SandboxStatus{}})
	e.Replies(api.VerbPeers, api.PeersReply{})
	if out := call(t, "", "qhost", "-sandboxes").Out; strings.Count(out, "\n") != 2 {
		t.Errorf("of none: %s", out)
	}
}
