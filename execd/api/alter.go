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

// AlterRequest is qalter: it changes jobs that are not finished. A job that is
// refused is left as it is, the others are altered.
type AlterRequest struct {
	Jobs  []string `json:"jobs,omitempty"`  // as in DeleteRequest; tasks only where nothing but Hold is asked for
	Users []string `json:"users,omitempty"` // -u
	// Fields says which fields of To replace those of the job; Attributes of To
	// change those of the job. Verify of To always applies.
	Fields []Field       `json:"fields,omitempty"`
	To     SubmitRequest `json:"to"`
	// Context changes the context of the job; FieldContext is not in Fields.
	Context []ContextChange `json:"context,omitempty"`
	// Hold has letters of u, o, s to set a hold, U, O, S to take it away, and n
	// to take all away.
	Hold string `json:"hold,omitempty"`
	// Dry changes nothing: the reply has what would be refused.
	Dry bool `json:"dry,omitempty"`
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

// changeAttributes returns a job's attributes after qalter -attr: those that it says are
// undefined are gone.
func changeAttributes(list, change []string) []string {
	return slices.DeleteFunc(WithAttributes(list, change...), func(text string) bool {
		_, value, _ := CutAttribute(text)
		return strings.EqualFold(strings.TrimSpace(value), "undefined")
	})
}

// Apply makes of the request of a job what it is to become.
func (r *AlterRequest) Apply(to *SubmitRequest) {
	attributes := to.Attributes
	for _, f := range r.Fields {
		if a := AlterableBy(f); a != nil {
			a.Copy(to, &r.To)
		}
	}
	if slices.Contains(r.Fields, FieldAttributes) {
		to.Attributes = changeAttributes(attributes, r.To.Attributes)
	}
	for _, c := range r.Context {
		to.Context = ChangeContext(to.Context, c)
	}
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
