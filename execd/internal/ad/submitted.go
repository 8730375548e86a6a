package ad

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"paddock/classad"
	"paddock/execd/api"
)

// attrSubmitted says of an ad of work that it has paths as qsub has them: pseudo variables
// in them are expanded, lists of them may name hosts, and none is below Iwd as HTCondor has
// it. What has no path then has the one of a job of qsub.
const attrSubmitted = "AsSubmitted"

// home is the directory of a job that asks for none.
const home = "$HOME"

// unfit are the options of a submission that no ad of work can have, since who hands work
// out decides what they are about, or its slot does.
var unfit = []struct {
	option string
	in     func(*api.SubmitRequest) bool
}{
	{"-P", func(r *api.SubmitRequest) bool { return r.Project != "" }},
	{"-tc", func(r *api.SubmitRequest) bool { return r.MaxRun > 0 }},
	{"-soft", func(r *api.SubmitRequest) bool { return len(r.Soft)+len(r.SoftQueues) > 0 }},
	{"-q", func(r *api.SubmitRequest) bool { return len(r.Queues) > 0 }},
	{"-masterq", func(r *api.SubmitRequest) bool { return len(r.MasterQueues) > 0 }},
	{"-pe with a range", func(r *api.SubmitRequest) bool {
		return len(r.Slots) > 1 || len(r.Slots) == 1 && r.Slots[0].Min != r.Slots[0].Max
	}},
	{"-binding", func(r *api.SubmitRequest) bool { return r.Binding != "" }},
	{"-R", func(r *api.SubmitRequest) bool { return r.Reserve }},
	{"-h", func(r *api.SubmitRequest) bool { return r.Hold != "" }},
	{"-a", func(r *api.SubmitRequest) bool { return !r.After.IsZero() }},
	{"-hold_jid", func(r *api.SubmitRequest) bool { return len(r.HoldJobs) > 0 }},
	{"-hold_jid_ad", func(r *api.SubmitRequest) bool { return len(r.HoldArray) > 0 }},
	{"-hold_jid_ok", func(r *api.SubmitRequest) bool { return len(r.HoldOK) > 0 }},
	{"-hold_jid_ad_ok", func(r *api.SubmitRequest) bool { return len(r.HoldArrayOK) > 0 }},
	{"-now", func(r *api.SubmitRequest) bool { return r.Now }},
	{"-ckpt", func(r *api.SubmitRequest) bool { return r.Checkpoint != "" }},
	{"-c", func(r *api.SubmitRequest) bool { return r.CheckpointWhen != "" }},
	{"$$(...)", Refers},
	{"-stagein with a name", func(r *api.SubmitRequest) bool {
		return slices.ContainsFunc(r.StageIn, func(s api.Staged) bool { return s.Name != "" })
	}},
	{"-attr of an event log, or OutputAd,", func(r *api.SubmitRequest) bool {
		return slices.ContainsFunc(atHome, func(name string) bool { return names(r.Attributes, name) })
	}},
}

// ofRun are the attributes of the ad of a job that are no part of what was submitted.
var ofRun = []string{
	"MyType", "TargetType", "ClusterId", "ProcId", "JobId", "GlobalJobId", "User", "OwnerGroup", "QDate", "Requirements", "Rank",
	"JobUniverse", "JobStatus", "EnteredCurrentStatus", "NumJobStarts", "Reserve", "Interactive", "In", "Out", "Err",
}

// Submitted returns the ad of work that a submission would be, in old syntax, with its
// script. Of an array it is that of any task, and lacks ArrayTask. Request makes the same
// request of it.
func Submitted(r *api.SubmitRequest, owner string, resources []Asked) (string, error) {
	for _, u := range unfit {
		if u.in(r) {
			return "", fmt.Errorf("%s cannot be part of an ad", u.option)
		}
	}
	full := Job(JobInfo{Owner: owner, Request: r, Resources: resources, Environment: true})
	var b builder
	b.flag(attrSubmitted, true)
	if strings.HasPrefix(r.Cwd, "~") {
		if r.Cwd != "~" && r.Cwd[1] != '/' {
			return "", fmt.Errorf("directory %q cannot be part of an ad", api.Short(r.Cwd))
		}
		b.text("Iwd", home+r.Cwd[1:])
	}
	out, err := r.Stdout, r.Stderr
	if r.Merge {
		if out == "" && r.Tasks.IsArray() {
			out = "$JOB_NAME.o$JOB_ID.$TASK_ID"
		} else if out == "" {
			out = "$JOB_NAME.o$JOB_ID"
		}
		err = out
	}
	b.text("In", r.Stdin)
	b.text("Out", out)
	b.text("Err", err)
	if r.Binary {
		b.flag("NoShell", r.NoShell)
	}
	b.text("Shell", r.Shell)
	b.text("Mail", r.Mail)
	b.long("MailTo", strings.Join(r.MailTo, ","))
	env := environmentOf(r)
	b.long("Environment", FormatEnvironment(env))
	if r.Tasks.IsArray() {
		b.text("ArrayTasks", r.Tasks.String())
	}
	work := b.over(full.Without(ofRun...))
	// What is longer than a line of an ad may be is not in it.
	want := map[string]bool{"Arguments": len(r.Args) > 0, "Environment": len(env) > 0, "MailTo": len(r.MailTo) > 0, "TransferInput": len(r.StageIn) > 0}
	for _, c := range r.Context {
		name, value, _ := strings.Cut(c, "=")
		want["Context_"+name] = value != ""
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, has := work.Lookup(name); want[name] && !has {
			return "", fmt.Errorf("%s is too long to be part of an ad", name)
		}
	}
	text := work.OldString()
	if !r.Binary {
		text += attrScript + " = " + classad.String(string(r.Script)).Expr().OldString() + "\n"
	}
	return text, nil
}

// environmentOf returns the variables that a job gets from where it was submitted.
func environmentOf(r *api.SubmitRequest) []string {
	env := slices.Clone(r.Env)
	for _, v := range r.Origin {
		name, _, _ := strings.Cut(v, "=")
		if !slices.ContainsFunc(r.Env, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
			env = append(env, v)
		}
	}
	return env
}

// mail reads whom the owner of work has told of it.
func (r *reader) mail(req *api.SubmitRequest) {
	req.Mail = r.text("Mail")
	if list := r.files("MailTo"); len(list) > 0 {
		req.MailTo = list
	}
}
