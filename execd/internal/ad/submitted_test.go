package ad

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
)

// submissions has for each field of a request one or several values, and whether the ad of
// work has them: "" or the option that cannot be part of one. kept names an attribute that
// the ad has for who hands work out, which is no part of the request that it becomes.
var submissions = []struct {
	field  string
	set    func(*api.SubmitRequest)
	option string
	kept   string
}{
	{"name", func(r *api.SubmitRequest) { r.Name = "n" }, "", ""},
	{"account", func(r *api.SubmitRequest) { r.Account = "a" }, "", ""},
	{"project", func(r *api.SubmitRequest) { r.Project = "p" }, "-P", ""},
	{"script", func(r *api.SubmitRequest) { r.Script = []byte("#!/bin/sh\n\x00\"\\\n\xff") }, "", ""},
	{"command", func(r *api.SubmitRequest) { r.Command = "dir/$HOME" }, "", ""},
	{"args", func(r *api.SubmitRequest) { r.Args = []string{"", "it's", "b c\n"} }, "", ""},
	{"args", func(r *api.SubmitRequest) { r.Args = []string{strings.Repeat("x", 65<<10)} }, "Arguments is too long", ""},
	{"args", func(r *api.SubmitRequest) { r.Args = []string{"$$(Name)"} }, "$$(...)", ""},
	{"binary", func(r *api.SubmitRequest) { r.Binary, r.Script, r.Command = true, nil, "sleep" }, "", ""},
	{"no_shell", func(r *api.SubmitRequest) { r.Binary, r.Script, r.NoShell = true, nil, true }, "", ""},
	{"shell", func(r *api.SubmitRequest) { r.Shell = "/bin/ksh,h:/bin/$USER" }, "", ""},
	{"cwd", func(r *api.SubmitRequest) { r.Cwd = "/a b$" }, "", ""},
	{"cwd", func(r *api.SubmitRequest) { r.Cwd = "$HOME/x" }, "", ""},
	{"cwd", func(r *api.SubmitRequest) { r.Cwd = "~other/x" }, "directory", ""},
	{"stdin", func(r *api.SubmitRequest) { r.Stdin = "in.$TASK_ID" }, "", ""},
	{"stdout", func(r *api.SubmitRequest) { r.Stdout = "h:/x/$JOB_ID,dir" }, "", ""},
	{"stderr", func(r *api.SubmitRequest) { r.Stderr = "~/$$x" }, "", ""},
	{"merge", func(r *api.SubmitRequest) { r.Merge, r.Stdout, r.Stderr = true, "x", "x" }, "", ""},
	{"rerun", func(r *api.SubmitRequest) { r.Rerun = api.RerunYes }, "", "Rerunable"},
	{"tasks", func(r *api.SubmitRequest) { r.Tasks, r.Only = api.Tasks{First: 1, Last: 9, Step: 2}, "7" }, "", ""},
	{"only", func(r *api.SubmitRequest) { r.Tasks, r.Only = api.Tasks{First: 1, Last: 9, Step: 2}, "7" }, "", ""},
	{"max_run", func(r *api.SubmitRequest) { r.MaxRun = 1 }, "-tc", ""},
	{"notify", func(r *api.SubmitRequest) { r.Notify = true }, "", ""},
	{"hard", func(r *api.SubmitRequest) { r.Hard = []api.Resource{{Name: "h_vmem", Value: "7340032"}} }, "", ""},
	{"soft", func(r *api.SubmitRequest) { r.Soft = []api.Resource{{Name: "h_vmem", Value: "7M"}} }, "-soft", ""},
	{"queues", func(r *api.SubmitRequest) { r.Queues = []string{"a.q"} }, "-q", ""},
	{"soft_queues", func(r *api.SubmitRequest) { r.SoftQueues = []string{"a.q"} }, "-soft", ""},
	{"master_queues", func(r *api.SubmitRequest) { r.MasterQueues = []string{"a.q"} }, "-masterq", ""},
	{"pe", func(r *api.SubmitRequest) { r.PE, r.Slots = "smp", []api.Slots{{Min: 3, Max: 3, Step: 1}} }, "", "PE"},
	{"slots", func(r *api.SubmitRequest) { r.PE, r.Slots = "smp", []api.Slots{{Min: 3, Max: 3, Step: 1}} }, "", "RequestCpus"},
	{"slots", func(r *api.SubmitRequest) { r.PE, r.Slots = "smp", []api.Slots{{Min: 3, Max: 4, Step: 1}} }, "-pe", ""},
	{"binding", func(r *api.SubmitRequest) { r.Binding = "linear:1" }, "-binding", ""},
	{"reserve", func(r *api.SubmitRequest) { r.Reserve = true }, "-R", ""},
	{"priority", func(r *api.SubmitRequest) { r.Priority = -3 }, "", "JobPrio"},
	{"hold", func(r *api.SubmitRequest) { r.Hold = "u" }, "-h", ""},
	{"after", func(r *api.SubmitRequest) { r.After = time.Unix(1, 0) }, "-a", ""},
	{"hold_jobs", func(r *api.SubmitRequest) { r.HoldJobs = []string{"1"} }, "-hold_jid", ""},
	{"hold_array", func(r *api.SubmitRequest) { r.HoldArray = []string{"1"} }, "-hold_jid_ad", ""},
	{"hold_ok", func(r *api.SubmitRequest) { r.HoldOK = []string{"1"} }, "-hold_jid_ok", ""},
	{"hold_array_ok", func(r *api.SubmitRequest) { r.HoldArrayOK = []string{"1"} }, "-hold_jid_ad_ok", ""},
	{"now", func(r *api.SubmitRequest) { r.Now = true }, "-now", ""},
	{"checkpoint", func(r *api.SubmitRequest) { r.Checkpoint = "c" }, "-ckpt", ""},
	{"checkpoint_when", func(r *api.SubmitRequest) { r.CheckpointWhen = "s" }, "-c", ""},
	{"mail", func(r *api.SubmitRequest) { r.Mail = "be" }, "", ""},
	{"mail_to", func(r *api.SubmitRequest) { r.MailTo = []string{"a@b", "c"} }, "", ""},
	{"context", func(r *api.SubmitRequest) { r.Context = []string{"A=b"} }, "", "Context_A"},
	{"attributes", func(r *api.SubmitRequest) { r.Attributes = []string{`Rack="x"`} }, "", "Rack"},
	{"attributes", func(r *api.SubmitRequest) { r.Attributes = []string{`UserLog="x"`} }, "-attr", ""},
	{"sandbox", func(r *api.SubmitRequest) { r.Sandbox = api.SandboxYes }, "", ""},
	{"stage_in", func(r *api.SubmitRequest) {
		r.Sandbox, r.StageIn = api.SandboxYes, []api.Staged{{Place: "a$HOME"}, {Place: "/b"}}
	}, "", ""},
	{"stage_in", func(r *api.SubmitRequest) {
		r.Sandbox, r.StageIn = api.SandboxYes, []api.Staged{{Name: "d", Place: "/b"}}
	}, "-stagein", ""},
	{"stage_out", func(r *api.SubmitRequest) {
		r.Sandbox, r.StageOut = api.SandboxYes, []api.Staged{{Name: "a"}, {Name: "b", Place: "/c"}}
	}, "", ""},
	{"stage_out_to", func(r *api.SubmitRequest) { r.Sandbox, r.StageOutTo = api.SandboxYes, "/$HOME" }, "", ""},
	{"when_out", func(r *api.SubmitRequest) { r.Sandbox, r.WhenOut = api.SandboxYes, api.OutSuccess }, "", ""},
	{"env", func(r *api.SubmitRequest) { r.Env = []string{"A=x y", "B='", "C=\n"} }, "", ""},
	{"origin", func(r *api.SubmitRequest) { r.Env, r.Origin = []string{"SGE_O_A=1"}, []string{"TERM=", "SGE_O_A=2"} }, "", "Environment"},
}

// decided are the fields of a request that qsub does not have, and those that are over when
// it has become an ad.
var decided = []string{"verify", "interactive", "plain", "work"}

// REQ-HOOK-124: what a submission asks for the ad of work has, so that the request that it becomes asks for
// the same; or the submission is refused by the name of the option.
func TestSubmitted(t *testing.T) {
	seen := slices.Clone(decided)
	for _, tt := range submissions {
		seen = append(seen, tt.field)
		r := &api.SubmitRequest{Name: "job", Command: "job.sh", Script: []byte("exit\n"), Rerun: api.RerunNo}
		tt.set(r)
		text, err := Submitted(r, "u", AskedIn(complexes(), r.Hard))
		if tt.option != "" || err != nil {
			if err == nil || tt.option == "" || !strings.HasPrefix(err.Error(), tt.option+" ") {
				t.Errorf("%s: %v; want that %q cannot be", tt.field, err, tt.option)
			}
			continue
		}
		if r.Only != "" {
			text += "ArrayTask = " + r.Only + "\n"
		}
		rest, script, err := CutScript([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		work := parse(t, rest)
		if tt.kept != "" {
			if _, ok := work.Lookup(tt.kept); !ok {
				t.Errorf("%s: the ad has no %s:\n%s", tt.field, tt.kept, text)
			}
			continue
		}
		got, err := Request(work, RequestOptions{Config: complexes(), Script: script})
		if err != nil {
			t.Errorf("%s: %v\n%s", tt.field, err, text)
			continue
		}
		if want, got := fields(t, r)[tt.field], fields(t, got)[tt.field]; got != want {
			t.Errorf("%s: is %s; want %s\n%s", tt.field, got, want, text)
		}
	}
	for field := range reflect.TypeFor[api.SubmitRequest]().Fields() {
		if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); !slices.Contains(seen, tag) {
			t.Errorf("nobody has decided whether %s can be part of an ad", tag)
		}
	}
}

// A submission that asks for nothing in particular becomes a job like the one of qsub.
func TestSubmittedPlain(t *testing.T) {
	for _, merge := range []bool{false, true} {
		want := &api.SubmitRequest{Name: "job", Command: "job.sh", Script: []byte("exit\n"), Rerun: api.RerunNo, Merge: merge}
		text, err := Submitted(want, "u", nil)
		if err != nil {
			t.Fatal(err)
		}
		rest, script, err := CutScript([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Request(parse(t, rest), RequestOptions{Config: complexes(), Script: script})
		if err != nil {
			t.Fatal(err)
		}
		want.Cwd = "$HOME"
		if merge {
			want.Stdout, want.Stderr = "$JOB_NAME.o$JOB_ID", "$JOB_NAME.o$JOB_ID"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("merged %v (-want +got):\n%s", merge, diff)
		}
		if raw, err := json.Marshal(got); err != nil || strings.Contains(string(raw), "work") {
			t.Errorf("%s, %v", raw, err)
		}
	}
}
