package ad

import (
	"fmt"
	"slices"
	"strings"

	"paddock/classad"
	"paddock/execd/api"
)

// Merged is the output of a prepare hook, merged with the ad of its job.
type Merged struct {
	Ad *classad.Ad // of the job, changed
	// Status is HookStatusCode, which counts as the exit status of the hook; nil: it
	// says none. Message is the reason, in one line.
	Status  *int
	Message string
	Changed []string // attributes that are new or others than before, in their order
}

// maxStatus is the highest HookStatusCode. Beyond the exit statuses of programs it
// has room for the codes by which a hook asks that the job is tried again.
const maxStatus = 1 << 30

// maxMessage bounds HookStatusMessage in bytes.
const maxMessage = 4096

// protected are the attributes that no hook changes: who the job is, whose, and
// what execd itself says of it.
var protected = []string{
	"MyType", "TargetType", "ClusterId", "ProcId", "JobId", "GlobalJobId", "Owner", "User", "OwnerGroup", "AccountingGroup",
	"JobUniverse", "QDate", "JobStatus", "EnteredCurrentStatus", "NumJobStarts", "JobStartDate", "JobCurrentStartDate",
	"Queue", "PE", "SlotID", "RemoteHost", "HookKeyword", "RequestCpus", "RequestMemory", "RequestDisk",
	"StarterUserLog", "UserLog", "OutputAd",
}

// spellings are pairs of attributes that say the same, the one that counts first. When
// a hook sets one the other is removed from the ad.
var spellings = [][2]string{{"Arguments", "Args"}, {"Environment", "Env"}}

// Merge lays the output of a prepare hook, attributes in old syntax, over the ad of
// its job. A line that is no attribute is an error, and so is another value of a
// protected attribute: half a change is worse than none.
func Merge(job *classad.Ad, output []byte) (Merged, error) {
	said, err := classad.ParseOld(string(output))
	if err != nil {
		return Merged{}, fmt.Errorf("cannot read what the hook printed: %w", err)
	}
	m := Merged{}
	env := &classad.Env{My: said}
	if v := env.Attr("HookStatusCode"); v.Kind() != classad.UndefinedKind {
		n, ok := v.Int()
		if !ok || n > maxStatus {
			return Merged{}, fmt.Errorf("cannot read what the hook printed: HookStatusCode is %s", api.Short(v.String()))
		}
		if n >= 0 { // a negative one says nothing
			code := int(n)
			m.Status = &code
		}
	}
	if v := env.Attr("HookStatusMessage"); v.Kind() != classad.UndefinedKind {
		text, ok := v.Str()
		if !ok {
			return Merged{}, fmt.Errorf("cannot read what the hook printed: HookStatusMessage is %s", api.Short(v.String()))
		}
		m.Message = api.Visible(strings.TrimSpace(text[:min(len(text), maxMessage)]))
	}
	said = said.Without("HookStatusCode", "HookStatusMessage")

	var b builder
	for name, e := range said.All() {
		was, had := job.Lookup(name)
		if had && was.Equal(e) {
			continue
		}
		if classad.Private(name) || slices.ContainsFunc(protected, func(p string) bool { return strings.EqualFold(p, name) }) {
			return Merged{}, fmt.Errorf("cannot use what the hook printed: %s is not the hook's to change", api.Visible(name))
		}
		b.expr(name, e)
		m.Changed = append(m.Changed, name)
	}
	for _, s := range spellings {
		for i, name := range s {
			other := s[1-i]
			if !contains(m.Changed, name) || contains(m.Changed, other) {
				continue
			}
			job = job.Without(other)
		}
	}
	m.Ad = b.over(job)
	if err := fits(m.Ad); err != nil {
		return Merged{}, fmt.Errorf("cannot use what the hook printed: %w", err)
	}
	return m, nil
}

func contains(list []string, name string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, name) })
}

// launching are the attributes by which a hook changes how its job is run.
var launching = []string{"Cmd", "Arguments", "Args", "Environment", "Env", "Iwd", "In", "Out", "Err"}

// Relaunch returns the request of a job after a hook changed the attributes of its
// ad by which it is run: Cmd, Arguments or Args, Environment or Env, Iwd, In, Out,
// Err. Other changes have no effect on it. Relaunch does not modify req, and returns
// it if nothing is to be changed. A job with a script whose Cmd is changed becomes a
// program that is run as it is.
func Relaunch(req *api.SubmitRequest, m *Merged, o RequestOptions) (*api.SubmitRequest, error) {
	changed := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return contains(m.Changed, n) })
	}
	if !changed(launching...) {
		return req, nil
	}
	r := newReader(m.Ad, &o)
	to := *req
	if changed("Cmd") {
		to.Binary, to.NoShell, to.Script = true, true, nil
		if to.Command = r.program(); r.err == nil && to.Command == "" {
			r.fail("Cmd", errNoCommand)
		}
	}
	if changed("Arguments", "Args") {
		to.Args = r.arguments("Arguments", "Args")
	}
	if changed("Environment", "Env") {
		to.Env = r.environment()
	}
	if changed("Iwd") {
		to.Cwd = r.literal(r.cwd)
	}
	if changed("In") {
		to.Stdin = r.stream("In")
	}
	if changed("Out") {
		to.Stdout = r.stream("Out")
	}
	if changed("Err") {
		to.Stderr = r.stream("Err")
		to.Merge = false
	}
	if changed("Out", "Err") {
		to.Merge = to.Merge || to.Stdout != "" && to.Stdout == to.Stderr && to.Stdout != devNull
	}
	if r.err != nil {
		return nil, r.err
	}
	return &to, nil
}

// JobAttrs returns the attributes of a job's ad that STARTD_JOB_ATTRS names, for
// the ad of the slot, which everybody sees: never an environment or a secret.
func JobAttrs(job *classad.Ad, names []string) []classad.Attr {
	var list []classad.Attr
	for _, name := range names {
		if classad.Private(name) || contains(environments, name) {
			continue
		}
		if e, ok := job.Lookup(name); ok {
			list = append(list, classad.Attr{Name: name, Expr: e})
		}
	}
	return list
}
