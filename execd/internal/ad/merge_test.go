package ad

import (
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"paddock/classad"
	"paddock/execd/api"
)

// REQ-HOOK-110: what a prepare hook prints is laid over the ad, its status and
// message are taken out.
func TestMerge(t *testing.T) {
	job := parse(t, "Owner = \"u\"\nJobId = \"1.1\"\nCmd = \"/bin/a\"\nArguments = \"old\"\nEnvironment = \"A=1\"\nRank = 0.0\n")
	code := func(n int) *int { return &n }
	for _, tt := range []struct {
		name, output string
		want         Merged
		ad           map[string]string // what is new or another; "": what is gone
	}{
		{"nothing", "", Merged{}, nil},
		{"comments", "# hello\n\n", Merged{}, nil},
		{"status", "HookStatusCode = 7\nhookstatusmessage = \" no\tdisk\x1b[2J \"\n", Merged{Status: code(7), Message: `no\tdisk\x1b[2J`}, nil},
		{"a warning", "HookStatusMessage = \"slow\"\n", Merged{Message: "slow"}, nil},
		{"a negative status says nothing", "HookStatusCode = -1\n", Merged{}, nil},
		{"retry", "HookStatusCode = 300\n", Merged{Status: code(300)}, nil},
		{
			"changes", "cmd = \"/bin/b\"\nNew = 1 + 1\nRank = 0.0\n",
			Merged{Changed: []string{"cmd", "New"}},
			map[string]string{"Cmd": `"/bin/b"`, "New": "1 + 1"},
		},
		{"what it was told, as it is", "Owner = \"u\"\nJobId = \"1.1\"\n", Merged{}, nil},
		{
			"the old way counts when it alone is new", "Args = \"a b\"\nEnv = \"B=2\"\n",
			Merged{Changed: []string{"Args", "Env"}},
			map[string]string{"Args": `"a b"`, "Env": `"B=2"`, "Arguments": "", "Environment": ""},
		},
	} {
		got, err := Merge(job, []byte(tt.output))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		want := attrs(job)
		for name, value := range tt.ad {
			if want[name] = value; value == "" {
				delete(want, name)
			}
		}
		if diff := cmp.Diff(want, attrs(got.Ad)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		tt.want.Ad = got.Ad
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: changed %q, status %v, message %q; want %+v", tt.name, got.Changed, got.Status, got.Message, tt.want)
		}
	}
}

// REQ-HOOK-110: one bad line, or one change that is not the hook's to make, and
// nothing is taken.
func TestMergeRefuses(t *testing.T) {
	job := parse(t, "Owner = \"u\"\nJobId = \"1.1\"\nCmd = \"/bin/a\"\n")
	for output, want := range map[string]string{
		"Cmd = \"/bin/b\"\nhello\n":             "line 2",
		"Cmd = \n":                              "line 1",
		"owner = \"root\"\n":                    "owner is not the hook's to change",
		"GlobalJobId = \"x\"\n":                 "GlobalJobId is not",
		"ClusterId = 3\n":                       "ClusterId is not",
		"RequestMemory = 99999\n":               "RequestMemory is not",
		"ClaimId = \"x\"\n":                     "ClaimId is not",
		"_condor_privX = 1\n":                   "_condor_privX is not",
		"HookStatusCode = \"1\"\n":              "HookStatusCode is",
		"HookStatusCode = 99999999999\n":        "HookStatusCode is",
		"HookStatusMessage = 4\n":               "HookStatusMessage is",
		strings.Repeat("x", 100_000) + " = 1\n": "line",
	} {
		m, err := Merge(job, []byte(output))
		if err == nil || !strings.Contains(err.Error(), want) || m.Ad != nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: %+v, error %v; want %q", output, m, err, want)
		}
	}
	for _, name := range protected {
		if _, err := Merge(job, []byte(name+" = 77\n")); err == nil {
			t.Errorf("%s was changed", name)
		}
	}
	var many strings.Builder
	for i := range 9999 {
		many.WriteString("A" + itoa(i) + " = 1\n")
	}
	if _, err := Merge(job, []byte(many.String())); err == nil {
		t.Error("an ad that could not be read again: no error")
	}
}

// REQ-HOOK-110: a merged ad changes how the job is run where it says so, and
// nothing else of it.
func TestRelaunch(t *testing.T) {
	req := &api.SubmitRequest{
		Name: "n", Command: "job.sh", Args: []string{"a"}, Env: []string{"A=1"}, Cwd: "/w", Stdin: "i", Stdout: "o", Merge: true,
		Hard: []api.Resource{{Name: "x", Value: "1"}},
	}
	before := *req
	job := Job(JobInfo{Number: 1, Task: 1, Owner: "u", Iwd: "/w", Request: req, Environment: true})
	for _, tt := range []struct {
		output string
		want   func(*api.SubmitRequest)
	}{
		{"New = 1\n", nil},
		{"Cmd = \"b\"\n", func(r *api.SubmitRequest) { r.Command, r.Binary, r.NoShell = "/w/b", true, true }},
		{"Arguments = \"'x y' z\"\n", func(r *api.SubmitRequest) { r.Args = []string{"x y", "z"} }},
		{"Args = \"'x y'\"\n", func(r *api.SubmitRequest) { r.Args = []string{"'x", "y'"} }},
		{"Environment = \"A=1 B='2 3'\"\n", func(r *api.SubmitRequest) { r.Env = []string{"A=1", "B=2 3"} }},
		{"Env = \"C=3;D=4\"\n", func(r *api.SubmitRequest) { r.Env = []string{"C=3", "D=4"} }},
		{"Iwd = \"/v$\"\nIn = \"x\"\n", func(r *api.SubmitRequest) { r.Cwd, r.Stdin = "/v$$", "/v$$/x" }},
		{"Iwd = \".\"\nOut = \"x\"\n", func(r *api.SubmitRequest) { r.Cwd, r.Stdout = "/tmp/1", "/tmp/1/x" }},
		{"Out = \"/p\"\n", func(r *api.SubmitRequest) { r.Stdout = "/p" }},
		{"Err = \"/p\"\n", func(r *api.SubmitRequest) { r.Stderr, r.Merge = "/p", false }},
		{"Out = \"/p\"\nErr = \"/p\"\n", func(r *api.SubmitRequest) { r.Stdout, r.Stderr = "/p", "/p" }},
	} {
		m, err := Merge(job, []byte(tt.output))
		if err != nil {
			t.Errorf("%q: %v", tt.output, err)
			continue
		}
		got, err := Relaunch(req, &m, RequestOptions{Scratch: "/tmp/1"})
		if err != nil {
			t.Errorf("%q: %v", tt.output, err)
			continue
		}
		want := before
		if tt.want != nil {
			tt.want(&want)
		} else if got != req {
			t.Errorf("%q: another request without a change", tt.output)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.output, diff)
		}
		if diff := cmp.Diff(&before, req); diff != "" {
			t.Fatalf("%q: the request given was changed:\n%s", tt.output, diff)
		}
	}
	for output, want := range map[string]string{
		"Cmd = \"\"\n":              "Cmd: it must say what to run",
		"Cmd = undefined\n":         "Cmd: it must say what to run",
		"Environment = \"A\"\n":     "Environment: ",
		"Iwd = \"../x\"\n":          "Iwd: ",
		"Out = \"a,b\"\n":           "Out: ",
		"Arguments = \"'\"\n":       "Arguments: ",
		"In = 4\n":                  "In: ",
		"Args = {1}\nRank = 1000\n": "Args: ",
	} {
		m, err := Merge(job, []byte(output))
		if err != nil {
			t.Errorf("%q: %v", output, err)
			continue
		}
		if r, err := Relaunch(req, &m, RequestOptions{Scratch: "/tmp/1"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, error %v; want %q", output, r, err, want)
		}
	}
}

// FuzzMerge: whatever a hook prints, an ad that comes of it can be read again and
// says the same of the job's owner.
func FuzzMerge(f *testing.F) {
	f.Add("Cmd = \"x\"\nEnv = \"A=1\"\nHookStatusCode = 3\nHookStatusMessage = \"m\"\n")
	f.Add("owner = \"u\"\nArguments = \"'\"\n")
	job := parse(f, "Owner = \"u\"\nCmd = \"/bin/a\"\nIwd = \"/w\"\nArguments = \"\"\nEnvironment = \"\"\n")
	f.Fuzz(func(t *testing.T, output string) {
		m, err := Merge(job, []byte(output))
		if err != nil {
			return
		}
		again, err := classad.ParseOld(m.Ad.OldString())
		if err != nil || !again.Equal(m.Ad) {
			t.Fatalf("%q: read again it is another, %v", output, err)
		}
		env := classad.Env{My: m.Ad}
		if owner, _ := env.Attr("Owner").Str(); owner != "u" {
			t.Fatalf("%q: the owner is %q", output, owner)
		}
		_, _ = Relaunch(&api.SubmitRequest{}, &m, RequestOptions{Scratch: "/t"})
	})
}

// The name of an attribute may be anything between quotes. It is no command to a terminal
// when it becomes part of the reason why a job waits.
func TestMergeNamesNothingThatActs(t *testing.T) {
	_, err := Merge(classad.New(), []byte("'_condor_priv\\033[2Jx' = 1\n"))
	if err == nil || strings.ContainsFunc(err.Error(), unicode.IsControl) {
		t.Errorf("the refusal is %q; want one without control characters", err)
	}
}
