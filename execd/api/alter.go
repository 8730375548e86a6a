package api

import (
	"slices"
	"strings"
)

// The verbs of qalter and qresub.
const (
	VerbAlter    = "alter"    // AlterRequest -> AlterReply
	VerbResubmit = "resubmit" // ResubmitRequest -> ResubmitReply
)

// MaxContext bounds the bytes of a job's context.
const MaxContext = 64 << 10

// Field names a part of a SubmitRequest that can be altered, by the option that
// sets it, or one of these if there are several.
type Field string

// The fields.
const (
	FieldPriority       Field = "-p"
	FieldAfter          Field = "-a"
	FieldAccount        Field = "-A"
	FieldProject        Field = "-P"
	FieldCwd            Field = "-cwd"
	FieldCheckpoint     Field = "-ckpt"
	FieldCheckpointWhen Field = "-c"
	FieldStderr         Field = "-e"
	FieldStdin          Field = "-i"
	FieldReserve        Field = "-R"
	FieldMerge          Field = "-j"
	FieldHard           Field = "-l"
	FieldSoft           Field = "-soft -l"
	FieldMail           Field = "-m"
	FieldMailTo         Field = "-M"
	FieldName           Field = "-N"
	FieldHoldJobs       Field = "-hold_jid"
	FieldHoldArray      Field = "-hold_jid_ad"
	FieldHoldOK         Field = "-hold_jid_ok"
	FieldHoldArrayOK    Field = "-hold_jid_ad_ok"
	FieldNotify         Field = "-notify"
	FieldStdout         Field = "-o"
	FieldPE             Field = "-pe"
	FieldBinding        Field = "-binding"
	FieldQueues         Field = "-q"
	FieldSoftQueues     Field = "-soft -q"
	FieldMasterQueues   Field = "-masterq"
	FieldRerun          Field = "-r"
	FieldShell          Field = "-S"
	FieldEnv            Field = "-v"
	FieldArgs           Field = "--"
	FieldContext        Field = "-ac"
	FieldAttributes     Field = "-attr"
	FieldMaxRun         Field = "-tc"
)

// Alterable is a field and how it is altered.
type Alterable struct {
	Field Field
	// What is its name in "modified ... of job 42"; empty: nothing is said.
	What string
	Copy func(to, from *SubmitRequest)
}

// Alterables are all fields that can be altered, in the order in which Grid
// Engine tells of them.
var Alterables = []Alterable{
	{FieldPriority, "", func(to, from *SubmitRequest) { to.Priority = from.Priority }},
	{FieldAfter, "start time", func(to, from *SubmitRequest) { to.After = from.After }},
	{FieldAccount, "account", func(to, from *SubmitRequest) { to.Account = from.Account }},
	{FieldProject, "project", func(to, from *SubmitRequest) { to.Project = from.Project }},
	{FieldCwd, "working directory", func(to, from *SubmitRequest) { to.Cwd = from.Cwd }},
	{FieldCheckpoint, "checkpointing environment", func(to, from *SubmitRequest) { to.Checkpoint = from.Checkpoint }},
	{FieldCheckpointWhen, "", func(to, from *SubmitRequest) { to.CheckpointWhen = from.CheckpointWhen }},
	{FieldStderr, "stderr path list", func(to, from *SubmitRequest) { to.Stderr = from.Stderr }},
	{FieldStdin, "stdin path list", func(to, from *SubmitRequest) { to.Stdin = from.Stdin }},
	{FieldReserve, "reservation behaviour", func(to, from *SubmitRequest) { to.Reserve = from.Reserve }},
	{FieldMerge, "output merge behaviour", func(to, from *SubmitRequest) { to.Merge = from.Merge }},
	{FieldHard, "hard resource list", func(to, from *SubmitRequest) { to.Hard = from.Hard }},
	{FieldSoft, "soft resource list", func(to, from *SubmitRequest) { to.Soft = from.Soft }},
	{FieldMail, "mail options", func(to, from *SubmitRequest) { to.Mail = from.Mail }},
	{FieldMailTo, "mail list", func(to, from *SubmitRequest) { to.MailTo = from.MailTo }},
	{FieldName, "job name", func(to, from *SubmitRequest) { to.Name = from.Name }},
	{FieldHoldJobs, "job id hold list", func(to, from *SubmitRequest) { to.HoldJobs = from.HoldJobs }},
	{FieldHoldArray, "job id hold array list", func(to, from *SubmitRequest) { to.HoldArray = from.HoldArray }},
	{FieldHoldOK, "job id success hold list", func(to, from *SubmitRequest) { to.HoldOK = from.HoldOK }},
	{FieldHoldArrayOK, "job id success hold array list", func(to, from *SubmitRequest) { to.HoldArrayOK = from.HoldArrayOK }},
	{FieldNotify, "notify behaviour", func(to, from *SubmitRequest) { to.Notify = from.Notify }},
	{FieldStdout, "stdout path list", func(to, from *SubmitRequest) { to.Stdout = from.Stdout }},
	{FieldPE, "parallel environment", func(to, from *SubmitRequest) { to.PE, to.Slots = from.PE, from.Slots }},
	{FieldBinding, "binding", func(to, from *SubmitRequest) { to.Binding = from.Binding }},
	{FieldQueues, "hard queue list", func(to, from *SubmitRequest) { to.Queues = from.Queues }},
	{FieldSoftQueues, "soft queue list", func(to, from *SubmitRequest) { to.SoftQueues = from.SoftQueues }},
	{FieldMasterQueues, "master hard queue list", func(to, from *SubmitRequest) { to.MasterQueues = from.MasterQueues }},
	{FieldRerun, "restart behaviour", func(to, from *SubmitRequest) { to.Rerun = from.Rerun }},
	{FieldShell, "shell list", func(to, from *SubmitRequest) { to.Shell = from.Shell }},
	{FieldEnv, "environment", func(to, from *SubmitRequest) { to.Env = from.Env }},
	{FieldArgs, "script arguments", func(to, from *SubmitRequest) { to.Args = from.Args }},
	{FieldContext, "context", func(to, from *SubmitRequest) { to.Context = from.Context }},
	{FieldAttributes, "attributes", func(to, from *SubmitRequest) { to.Attributes = WithAttributes(to.Attributes, from.Attributes...) }},
	{FieldMaxRun, "task concurrency", func(to, from *SubmitRequest) { to.MaxRun = from.MaxRun }},
}

// AlterableBy returns how a field is altered, or nil.
func AlterableBy(f Field) *Alterable {
	if i := slices.IndexFunc(Alterables, func(a Alterable) bool { return a.Field == f }); i >= 0 {
		return &Alterables[i]
	}
	return nil
}

// AlterRequest is qalter: it changes jobs that are not finished. A job that is
// refused is left as it is, the others are altered.
type AlterRequest struct {
	Jobs  []string `json:"jobs,omitempty"`  // as in DeleteRequest; tasks only where nothing but Hold is asked for
	Users []string `json:"users,omitempty"` // -u
	// Fields says which fields of To replace those of the job. Verify of To
	// always applies.
	Fields []Field       `json:"fields,omitempty"`
	To     SubmitRequest `json:"to"`
	// Context changes the context of the job; FieldContext is not in Fields.
	Context []ContextChange `json:"context,omitempty"`
	// Hold has letters of u, o, s to set a hold, U, O, S to take it away, and n
	// to take all away.
	Hold string `json:"hold,omitempty"`
}

// HoldLetters are those of AlterRequest.Hold and ResubmitRequest.Hold.
const HoldLetters = "uosnUOS"

// SplitHold returns which of the holds u, o, s the letters set and which they
// take away. Taking away wins.
func SplitHold(letters string) (set, release string) {
	for _, h := range "uos" {
		switch upper := strings.ToUpper(string(h)); {
		case strings.Contains(letters, upper) || strings.Contains(letters, "n"):
			release += string(h)
		case strings.ContainsRune(letters, h):
			set += string(h)
		}
	}
	return set, release
}

// AlterReply has a line for each thing that was altered, as qalter prints it.
type AlterReply struct {
	Lines []Line `json:"lines"`
}

// ContextChange is one -ac, -dc or -sc.
type ContextChange struct {
	Option    string   `json:"option"`    // "-ac" adds, "-dc" takes away, "-sc" replaces all
	Variables []string `json:"variables"` // NAME=value or NAME; of -dc the names
}

// ChangeContext returns a job's context after a change. Each name stands once,
// at its first place.
func ChangeContext(context []string, c ContextChange) []string {
	same := func(a string) func(string) bool {
		name, _, _ := strings.Cut(a, "=")
		return func(b string) bool {
			other, _, _ := strings.Cut(b, "=")
			return name == other
		}
	}
	context = slices.Clone(context)
	if c.Option == "-sc" {
		context = nil
	}
	for _, v := range c.Variables {
		i := slices.IndexFunc(context, same(v))
		switch {
		case c.Option == "-dc" && i >= 0:
			context = slices.Delete(context, i, i+1)
		case c.Option == "-dc":
		case i >= 0:
			context[i] = v
		default:
			context = append(context, v)
		}
	}
	return context
}

// CutAttribute cuts an attribute of -attr, NAME=EXPRESSION, at its equals sign.
func CutAttribute(text string) (name, expression string, ok bool) {
	name, expression, ok = strings.Cut(text, "=")
	return strings.TrimSpace(name), expression, ok
}

// WithAttributes returns a list of attributes with others added to it. They
// replace those of the same names.
func WithAttributes(list []string, more ...string) []string {
	list = slices.Clone(list)
	for _, text := range more {
		name, _, _ := CutAttribute(text)
		i := slices.IndexFunc(list, func(s string) bool {
			other, _, _ := CutAttribute(s)
			return strings.EqualFold(other, name)
		})
		if i < 0 {
			list = append(list, text)
		} else {
			list[i] = text
		}
	}
	return list
}

// ResubmitRequest is qresub: it submits copies of jobs that are not finished,
// or finished and still kept.
type ResubmitRequest struct {
	Jobs []string `json:"jobs"` // numbers
	// Failed submits only the tasks that did not succeed.
	Failed bool `json:"failed,omitempty"`
	// Tasks are those of the arrays that the copies have, ranges with commas
	// between them; empty: all.
	Tasks string `json:"tasks,omitempty"`
	Hold  string `json:"hold,omitempty"` // as in AlterRequest; without it the copies have no hold
}

// ResubmitReply has the jobs that were submitted, and the failure of the one
// that was not.
type ResubmitReply struct {
	Submitted []Resubmitted `json:"submitted"`
	// Skipped has a line for each job without a failed task, if there are other jobs.
	Skipped []string `json:"skipped,omitempty"`
	Failed  *Error   `json:"failed,omitempty"`
}

// Resubmitted is the copy of a job.
type Resubmitted struct {
	From int `json:"from"`
	SubmitReply
}
