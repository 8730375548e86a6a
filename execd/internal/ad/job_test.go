package ad

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/classad"
	"paddock/execd/api"
)

// full is a job of qsub that asks for everything.
func full() JobInfo {
	c := complexes()
	r := &api.SubmitRequest{
		Name: "night", Account: "physics", Command: "job.sh", Script: []byte("x"), Args: []string{"a", "b c", "it's", ""},
		Cwd: "/w", Stdin: "in", Stdout: "out", Stderr: "err", Rerun: api.RerunYes, Tasks: api.Tasks{First: 1, Last: 9, Step: 1}, MaxRun: 3,
		Notify: true, PE: "s*", Slots: []api.Slots{{Min: 2, Max: 8, Step: 1}}, Reserve: true, Priority: -5, Checkpoint: "ck",
		Hard: []api.Resource{
			{Name: "h_vmem", Value: "1G"},
			{Name: "mf", Value: "10G"},
			{Name: "scratch_limit", Value: "1025"},
			{Name: "licence", Value: "1"},
			{Name: "gpus", Value: "1"},
			{Name: "h_rt", Value: "1:0:0"},
			{Name: "big", Value: "TRUE"},
			{Name: "arch", Value: "lx*"},
			{Name: "gone", Value: "1"},
			{Name: "speed", Value: "fast"},
		},
		Context: []string{"grid=EU", "flag", "owner=root"}, Env: []string{"SECRET=1 2", "B="},
	}
	return JobInfo{
		Number: 42, Task: 3, Host: "h.example", Owner: "u", Group: "g", Submitted: time.Unix(1000, 0), Request: r,
		Status: StatusRunning, EnteredStatus: time.Unix(2000, 0), Starts: 2, Started: time.Unix(2001, 0),
		Queue: "all.q", PE: "smp", Slots: 4, Slot: "slot7@h.example", SlotID: 7, Resources: AskedIn(c, r.Hard),
	}
}

func TestJob(t *testing.T) {
	in := full()
	want := map[string]string{
		"MyType": `"Job"`, "TargetType": `"Machine"`, "ClusterId": "42", "ProcId": "3", "JobId": `"42.3"`,
		"GlobalJobId": `"h.example#42.3#1000"`, "Owner": `"u"`, "User": `"u@h.example"`, "OwnerGroup": `"g"`, "JobUniverse": "5",
		"JobBatchName": `"night"`, "AccountingGroup": `"physics"`, "QDate": "1000", "Requirements": "true", "Rank": "0.0",
		"Cmd": `"job.sh"`, "Arguments": `"a 'b c' 'it''s' ''"`, "Iwd": `"/w"`, "In": `"in"`, "Out": `"out"`, "Err": `"err"`,
		"JobPrio": "-5", "Rerunable": "true", "JobMaxRunning": "3", "WantNotify": "true", "Reserve": "true", "Checkpoint": `"ck"`,
		"Interactive": "false", "PE": `"smp"`, "JobStatus": "2", "EnteredCurrentStatus": "2000", "NumJobStarts": "2",
		"JobStartDate": "2001", "JobCurrentStartDate": "2001", "Queue": `"all.q"`, "RemoteHost": `"slot7@h.example"`, "SlotID": "7",
		"RequestCpus": "4", "RequestMemory": "4096", "RequestDisk": "2",
		"Requesth_vmem": "4294967296", "Requestmem_free": "10737418240", "Requestscratch_limit": "1025", "Requestlicence": "1",
		"Requestgpus": "4", "Requesth_rt": "3600", "Requestbig": "true", "Requestarch": `"lx*"`,
		"Context_grid": `"EU"`, "Context_flag": `""`, "Context_owner": `"root"`,
	}
	if diff := cmp.Diff(want, attrs(Job(in))); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
	in.Environment = true
	if got := attrs(Job(in))["Environment"]; got != `"'SECRET=1 2' B="` {
		t.Errorf("Environment = %s", got)
	}
	// One that asks for nothing, and is not started.
	got := attrs(Job(JobInfo{Number: 1, Task: 1, Host: "h", Owner: "u", Submitted: time.Unix(1, 0), Request: &api.SubmitRequest{Name: "n", Merge: true, Stdout: "o"}}))
	for name, want := range map[string]string{"RequestCpus": "1", "RequestMemory": "1", "RequestDisk": "1", "In": `"/dev/null"`, "Out": `"o"`, "Err": `"o"`} {
		if got[name] != want {
			t.Errorf("%s = %s; want %s", name, got[name], want)
		}
	}
	for _, name := range []string{"JobStartDate", "Queue", "PE", "SlotID", "RemoteHost", "HoldReason", "Rerunable", "Environment"} {
		if v, ok := got[name]; ok {
			t.Errorf("%s = %s; want none", name, v)
		}
	}
}

// An environment that is too long for a line of an ad is left out of it: what was
// written must be read.
func TestJobOfLargeEnvironment(t *testing.T) {
	in := full()
	in.Environment, in.Request.Env = true, []string{"A=" + strings.Repeat("x", 100_000)}
	ad := Job(in)
	if _, ok := ad.Lookup("Environment"); ok {
		t.Error("an environment of 100000 bytes is in the ad")
	}
	if _, err := classad.ParseOld(ad.OldString()); err != nil {
		t.Errorf("the ad cannot be read: %v", err)
	}
}

// The ad of fetched work is the base: what it says stays, but for what execd
// knows better. No secret of it goes further.
func TestJobOfWork(t *testing.T) {
	in := full()
	in.Request = &api.SubmitRequest{Name: "n", Command: "/bin/a", Cwd: "/w", Work: &api.Work{Ad: `Cmd = "a"
Args = "x 'y"
Env = "SECRET=1"
PreEnvironment = "S=2"
ClaimId = "secret"
ClusterId = 900
ProcId = 5
GlobalJobId = "outside#1"
owner = "root"
JobStatus = 5
SlotID = 99
Requirements = TARGET.Memory > 10
Custom = Memory * 2
HoldReason = "of another time"
HookKeyword = "KW"
`, Identity: "outside#1", Slot: "7", Holder: "fetch"}}
	in.Resources = nil
	got := attrs(Job(in))
	for name, want := range map[string]string{
		"Cmd": `"a"`, "Args": `"x 'y"`, "ClusterId": "900", "ProcId": "5", "GlobalJobId": `"outside#1"`, "Owner": `"u"`, "JobStatus": "2",
		"SlotID": "7", "Requirements": "TARGET.Memory > 10", "Custom": "Memory * 2", "HookKeyword": `"KW"`, "JobId": `"42.3"`,
		"Iwd": `"/w"`, "JobUniverse": "5", "RequestCpus": "4", "Queue": `"all.q"`,
	} {
		if got[name] != want {
			t.Errorf("%s = %s; want %s", name, got[name], want)
		}
	}
	for _, name := range []string{"Env", "Environment", "PreEnvironment", "ClaimId", "Arguments", "owner", "HoldReason"} {
		if v, ok := got[name]; ok {
			t.Errorf("%s = %s; want none", name, v)
		}
	}
	in.Environment = true
	ad := Job(in)
	if got := attrs(ad); got["Env"] != `"SECRET=1"` || got["ClaimId"] != "" || got["Environment"] != "" {
		t.Errorf("for a hook of the job: Env = %s, ClaimId = %s, Environment = %s", got["Env"], got["ClaimId"], got["Environment"])
	}
	if text := Public(ad).SecretString(); strings.Contains(text, "SECRET") || strings.Contains(text, "S=2") {
		t.Errorf("for everybody:\n%s", text)
	}
	for _, a := range JobAttrs(ad, []string{"env", "Environment", "ClaimId", "Custom", "nothing"}) {
		if a.Name != "Custom" {
			t.Errorf("%s = %v gets to everybody", a.Name, a.Expr)
		}
	}
}

// Who wants some attributes of a job gets them as all have them, and no others; and of a
// job that came by qsub none refers to another.
func TestOnly(t *testing.T) {
	in := full()
	in.Environment = true
	all := Job(in)
	for name, e := range all.All() {
		if refs := e.References(all, nil); !refs.Constant() {
			t.Errorf("%s is %v, and refers to %+v", name, e, refs)
		}
		in.Only = []string{"Nothing", strings.ToUpper(name)}
		some := Job(in)
		if got, ok := some.Lookup(name); !ok || got.String() != e.String() || some.Len() != 1 {
			t.Errorf("%s alone is %v; want %v", name, some, e)
		}
	}
	in.Only = []string{}
	if none := Job(in); none.Len() != 0 {
		t.Errorf("no attributes are %v", none)
	}
}

// While files travel the ad says so, whatever the job came with; output has a status of its
// own, and the end another.
func TestTransferring(t *testing.T) {
	info := JobInfo{Status: StatusRunning, Request: &api.SubmitRequest{Work: &api.Work{Ad: "Cmd = \"/bin/true\"\nTransferringOutput = \"no\"\nTransferQueued = 1\n"}}}
	for _, tt := range []struct {
		transfer *api.Transfer
		want     string // JobStatus, TransferringInput, TransferringOutput, TransferQueued
	}{
		{nil, "2 undefined undefined undefined"},
		{&api.Transfer{Queued: true}, "2 true false true"},
		{&api.Transfer{Output: true}, "6 false true false"},
		{&api.Transfer{Output: true, Queued: true}, "6 false true true"},
	} {
		info.Transfer = tt.transfer
		env := classad.Env{My: Job(info)}
		var got []string
		for _, name := range []string{"JobStatus", "TransferringInput", "TransferringOutput", "TransferQueued"} {
			got = append(got, env.Attr(name).String())
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%+v: %s; want %s", tt.transfer, got, tt.want)
		}
	}
	env := classad.Env{My: Delivered(Ended(Job(info), End{ExitCode: 3}), 70, "deleted")}
	if s, _ := env.Attr("JobStatus").Int(); s != int64(StatusCompleted) {
		t.Errorf("JobStatus %d", s)
	}
	if why, _ := env.Attr("TransferOutputError").Str(); why != "deleted" {
		t.Errorf("TransferOutputError %q", why)
	}
}
