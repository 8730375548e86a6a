package ad

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/spool"
)

// samples has for each row of the table that is also a field of requests what its
// attribute says and what then stands in the field, as JSON.
var samples = map[string]struct {
	attribute string // of an ad of work; "": the row reads nothing
	field     string
	change    func(*api.SubmitRequest) // of a job of qsub; nil: the row writes nothing
	written   string                   // the attribute then
}{
	"Cmd":       {`"/x"`, `"/x"`, func(r *api.SubmitRequest) { r.Command = "/x" }, `"/x"`},
	"Arguments": {`"a 'b c'"`, `["a","b c"]`, func(r *api.SubmitRequest) { r.Args = []string{"a", "b c"} }, `"a 'b c'"`},
	"Args":      {`"a b"`, `["a","b"]`, nil, ""},
	"JarFiles":  {`"j"`, `["-classpath","/bin:./j","M"]`, nil, ""},
	"Environment": {
		`"A=1 'B=c d'"`, `["A=1","B=c d"]`, func(r *api.SubmitRequest) { r.Env = []string{"A=1", "B=c d"} }, `"A=1 'B=c d'"`,
	},
	"Env":             {`"A=1;B=c d"`, `["A=1","B=c d"]`, nil, ""},
	"Script":          {`eval("\"#!/bin/sh\n\"")`, `"IyEvYmluL3NoCg=="`, nil, ""},
	"Shell":           {`"/bin/x"`, `"/bin/x"`, nil, ""},
	"ArrayTasks":      {`"3-9:2"`, `{"first":3,"last":9,"step":2}`, nil, ""},
	"ArrayTask":       {"5", `"5"`, nil, ""},
	"Iwd":             {`"/x"`, `"/x"`, func(r *api.SubmitRequest) { r.Cwd = "/x" }, `"/x"`},
	"In":              {`"/x"`, `"/x"`, func(r *api.SubmitRequest) { r.Stdin = "/x" }, `"/x"`},
	"Out":             {`"/x"`, `"/x"`, func(r *api.SubmitRequest) { r.Stdout = "/x" }, `"/x"`},
	"Err":             {`"/x"`, `"/x"`, func(r *api.SubmitRequest) { r.Stderr = "/x" }, `"/x"`},
	"JobBatchName":    {`"x"`, `"x"`, func(r *api.SubmitRequest) { r.Name = "x" }, `"x"`},
	"AccountingGroup": {`"x"`, `"x"`, func(r *api.SubmitRequest) { r.Account = "x" }, `"x"`},
	"RequestCpus": {
		"3", `[{"min":3,"max":3,"step":1}]`, func(r *api.SubmitRequest) { r.Slots = []api.Slots{{Min: 3, Max: 5, Step: 1}} }, "3",
	},
	"RequestMemory": {
		"3", `[{"name":"h_vmem","value":"3M"}]`, func(r *api.SubmitRequest) { r.Hard = []api.Resource{{Name: "h_vmem", Value: "3M"}} }, "3",
	},
	"RequestDisk": {
		"3", `[{"name":"scratch_limit","value":"3K"}]`, func(r *api.SubmitRequest) { r.Hard = []api.Resource{{Name: "scratch_limit", Value: "3K"}} }, "3",
	},
	"JobPrio":             {"", "", func(r *api.SubmitRequest) { r.Priority = -7 }, "-7"},
	"PE":                  {"", "", func(r *api.SubmitRequest) { r.PE = "x" }, `"x"`},
	"Rerunable":           {"", "", func(r *api.SubmitRequest) { r.Rerun = api.RerunYes }, "true"},
	"JobMaxRunning":       {"", "", func(r *api.SubmitRequest) { r.MaxRun = 3 }, "3"},
	"NoShell":             {"false", "", nil, ""},
	"Mail":                {`"be"`, `"be"`, nil, ""},
	"MailTo":              {`"a@b, c"`, `["a@b","c"]`, nil, ""},
	"WantNotify":          {"true", "true", func(r *api.SubmitRequest) { r.Notify = true }, "true"},
	"Reserve":             {"", "", func(r *api.SubmitRequest) { r.Reserve = true }, "true"},
	"Checkpoint":          {"", "", func(r *api.SubmitRequest) { r.Checkpoint = "x" }, `"x"`},
	"ShouldTransferFiles": {`"Yes"`, `"y"`, func(r *api.SubmitRequest) { r.Sandbox = "y" }, `"YES"`},
	"TransferInput": {
		`"a, /b/c"`, `[{"place":"a"},{"place":"/b/c"}]`,
		func(r *api.SubmitRequest) {
			r.Sandbox, r.StageIn = "y", []api.Staged{{Place: "a"}, {Name: "d", Place: "/b/c"}}
		}, `"a,/b/c"`,
	},
	"TransferOutput": {
		`"a, b/c"`, `[{"name":"a"},{"name":"b/c"}]`,
		func(r *api.SubmitRequest) { r.Sandbox, r.StageOut = "y", []api.Staged{{Name: "a"}, {Name: "b/c"}} }, `"a,b/c"`,
	},
	"TransferOutputRemaps": {
		`"a=/b; c\;d = e\=f=g"`, `[{"name":"*"},{"name":"a","place":"/b"},{"name":"c;d","place":"e=f=g"}]`,
		func(r *api.SubmitRequest) {
			r.Sandbox, r.StageOut = "y", []api.Staged{{Name: "a", Place: "/b"}, {Name: "c;d", Place: "e=f"}}
		}, `"a=/b;c\;d=e\=f"`,
	},
	"OutputDestination":    {`"/x$"`, `"/x$$"`, func(r *api.SubmitRequest) { r.Sandbox, r.StageOutTo = "y", "/x" }, `"/x"`},
	"WhenToTransferOutput": {`"ON_SUCCESS"`, `"success"`, func(r *api.SubmitRequest) { r.Sandbox, r.WhenOut = "y", "evict" }, `"ON_EXIT_OR_EVICT"`},
	"Interactive":          {"", "", func(r *api.SubmitRequest) { r.Interactive = &api.Interactive{} }, "true"},
}

// fields returns a request as JSON, by field.
func fields(t *testing.T, r *api.SubmitRequest) map[string]string {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for k, v := range raw {
		m[k] = string(v)
	}
	return m
}

// TestTable tries each row in the directions that it says it has, and no row has
// one that it does not say.
func TestTable(t *testing.T) {
	base := parse(t, "Cmd = \"/bin/prog\"\n")
	options := RequestOptions{Config: complexes(), PE: "smp"}
	tags := map[string]bool{}
	for field := range reflect.TypeFor[api.SubmitRequest]().Fields() {
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		tags[tag] = true
	}
	seen := map[string]bool{}
	for _, row := range Table {
		if seen[row.Attribute] {
			t.Errorf("%s is there twice", row.Attribute)
		}
		seen[row.Attribute] = true
		if row.Field == "" {
			continue
		}
		s, ok := samples[row.Attribute]
		if !ok || !tags[row.Field] {
			t.Errorf("%s: no sample, or no field %q", row.Attribute, row.Field)
			continue
		}
		if row.Reads != (s.attribute != "") || row.Writes != (s.change != nil) {
			t.Errorf("%s: the table says reads %v, writes %v; the sample differs", row.Attribute, row.Reads, row.Writes)
			continue
		}
		if row.Reads {
			text := row.Attribute + " = " + s.attribute + "\n"
			work := base.OldString()
			if row.Attribute == "WhenToTransferOutput" {
				work += "ShouldTransferFiles = \"YES\"\n"
			}
			if row.Attribute == "JarFiles" {
				work += "JobUniverse = 10\nArgs = \"M\"\n"
			}
			switch row.Attribute {
			case "Shell":
				work += "Script = \"exit\"\n"
			case "ArrayTask":
				work += "ArrayTasks = \"1-9:2\"\n"
			case "ArrayTasks":
				work += "ArrayTask = 7\n"
			}
			rest, script, err := CutScript([]byte(work + text))
			if err != nil {
				t.Fatal(err)
			}
			o := options
			o.Script = script
			r, err := Request(parse(t, rest), o)
			if err != nil {
				t.Errorf("%s: %v", text, err)
			} else if got := fields(t, r)[row.Field]; got != s.field {
				t.Errorf("%s: field %s is %s; want %s", text, row.Field, got, s.field)
			}
		}
		if row.Writes {
			r := &api.SubmitRequest{Name: "n", Command: "c"}
			s.change(r)
			if _, ok := fields(t, r)[row.Field]; !ok {
				t.Errorf("%s: the sample does not set %s", row.Attribute, row.Field)
			}
			ad := Job(JobInfo{Number: 1, Task: 1, Submitted: time.Unix(1, 0), Request: r, Resources: AskedIn(complexes(), r.Hard), Environment: true})
			if e, _ := ad.Lookup(row.Attribute); e.OldString() != s.written {
				t.Errorf("%s is %v; want %s", row.Attribute, e, s.written)
			}
		}
	}
	for name := range samples {
		if !seen[name] {
			t.Errorf("the sample of %s has no row", name)
		}
	}
	// An attribute that a row only writes changes nothing in a request.
	plain, err := Request(base, options)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range Table {
		if row.Reads {
			continue
		}
		for _, value := range []string{`"x"`, "7", "true"} {
			r, err := Request(parse(t, base.OldString()+row.Attribute+" = "+value+"\n"), options)
			if diff := cmp.Diff(plain, r); err != nil || diff != "" {
				t.Errorf("%s = %s is read: %v\n%s", row.Attribute, value, err, diff)
			}
		}
	}
}

// A job that qsub submits and the ad that it has, read as work, are run alike.
func TestThereAndBack(t *testing.T) {
	want := plain(func(r *api.SubmitRequest) {
		r.Account, r.Args, r.Env = "a", []string{"", "it's", "b c"}, []string{"A=x y", "B='"}
		r.Hard = []api.Resource{{Name: "h_vmem", Value: "7M"}, {Name: "scratch_limit", Value: "9K"}}
	})
	ad := Job(JobInfo{Number: 1, Task: 1, Owner: "u", Submitted: time.Unix(1, 0), Request: want, Resources: AskedIn(complexes(), want.Hard), Environment: true})
	ad = ad.Without("Requesth_vmem", "Requestscratch_limit") // they would say the same in bytes
	got, err := Request(ad, RequestOptions{Config: complexes()})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestKeys holds the keys of the table against those of config and the names of
// files in the spool.
func TestKeys(t *testing.T) {
	text, err := os.ReadFile("../../../spool/config.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range Table {
		if row.Key == "" {
			continue
		}
		if file, ok := strings.CutPrefix(row.Key, "the file "); ok {
			if !slices.ContainsFunc(spool.Files, func(f spool.File) bool { return f.Name == file }) {
				t.Errorf("%s: there is no file %s", row.Attribute, file)
			}
			continue
		}
		key := row.Key
		if own, ok := strings.CutPrefix(key, "paddock_"); ok {
			key = own
		}
		if !regexp.MustCompile(`(?m)^\tKey\w+ += (ownPrefix \+ )?"` + key + `"`).Match(text) {
			t.Errorf("%s: config has no key %s", row.Attribute, row.Key)
		}
	}
}

// page returns job(5).
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../man/man5/job.5")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestManualTable holds the table against job(5): its rows stand there, in their
// order and with what they say, and no other.
func TestManualTable(t *testing.T) {
	var want strings.Builder
	for _, row := range Table {
		otherwise := row.Otherwise
		switch {
		case !row.Reads:
			otherwise = "not read"
		case otherwise == "-":
			otherwise = "required"
		}
		fmt.Fprintf(&want, "%s\n%s; %s.\n", row.Attribute, row.Kind, otherwise)
		if row.Field != "" {
			fmt.Fprintf(&want, "In a request: %s.\n", row.Field)
		}
		if row.Key != "" {
			fmt.Fprintf(&want, "In the job directory: %s.\n", row.Key)
		}
		if row.Writes {
			want.WriteString("Of every job.\n")
		}
	}
	text := page(t)
	_, text, _ = strings.Cut(text, ".\\\" begin table\n")
	text, _, ok := strings.Cut(text, ".\\\" end table\n")
	if !ok {
		t.Fatal("job.5 has no comments around the table")
	}
	var got strings.Builder
	for _, item := range strings.Split(text, ".It Va ")[1:] {
		head, _, _ := strings.Cut(item, ".Pp\n")
		got.WriteString(strings.TrimPrefix(head, `\&`)) // a name that is a macro, too
	}
	if diff := cmp.Diff(want.String(), got.String()); diff != "" {
		t.Errorf("the table and job.5 differ (-table +page):\n%s", diff)
	}
}

// TestManualNames looks in job(5) for every attribute that an ad of ours has.
func TestManualNames(t *testing.T) {
	text := page(t)
	job := full()
	job.Environment, job.Resources = true, nil
	job.Request.Context = nil
	ads := []*classad.Ad{Job(job), Running(Job(job), running), Ended(Job(job), End{Signal: 9, Reason: "x"}), Ended(Job(job), End{Reason: "x"})}
	for _, in := range fullSlots() {
		in.Extra, in.Spent = nil, nil
		ads = append(ads, Slot(in))
	}
	for _, ad := range ads {
		for name := range ad.All() {
			if !regexp.MustCompile(`(?m)^\.(It )?Va .*\b` + name + `\b`).MatchString(text) {
				t.Errorf("job.5 does not name %s", name)
			}
		}
	}
}
