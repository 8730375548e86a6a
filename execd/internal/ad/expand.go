package ad

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/api"
)

// A job refers to the slot that it is to run on by $$(name), $$(name:default) and
// $$([expression]), in its command, its arguments, and the strings of -attr. The references
// are expanded once the slot is known. What they have become is kept as attributes named
// MATCH_EXP_ and the name of that in which they stand, in new syntax: old syntax has not all
// strings.

// matchPrefix begins the names of these attributes.
const matchPrefix = "MATCH_EXP_"

// begin begins a reference.
const begin = "$$("

// These bound an expansion: the bytes of one value, which another host may have said, and of
// one reference, how often the end of an expression is looked for, and what all expressions
// of a job cost together, in bytes that are read and steps of their evaluation.
const (
	maxExpansion = 4 << 10
	maxEnds      = 16
	maxRead      = 1 << 20
	maxSteps     = 300_000
)

// dollars is the name that stands for two dollar signs.
const dollars = "DOLLARDOLLAR"

// Refers reports whether a job refers to its slot.
func Refers(r *api.SubmitRequest) bool {
	has := func(text string) bool { return strings.Contains(text, begin) }
	return r.Binary && has(r.Command) || slices.ContainsFunc(r.Args, has) || slices.ContainsFunc(r.Attributes, has)
}

// Expand expands the references of a job to a slot, both with their ads, and returns what
// they have become, each NAME=EXPRESSION. The error names the first that cannot be expanded.
func Expand(r *api.SubmitRequest, job, slot *classad.Ad, now time.Time) ([]api.Text, error) {
	steps := maxSteps
	x := &expander{
		job:  &classad.Env{My: job, Target: slot, Now: now, Steps: &steps},
		slot: &classad.Env{My: slot, Target: job, Now: now, Steps: &steps},
		name: "the slot", left: maxRead,
	}
	if name, ok := x.slot.Attr("Name").Str(); ok {
		x.name = api.Visible(api.Short(name))
	}
	var list []api.Text
	became := func(name string, e classad.Expr) {
		list = append(list, api.Text(matchPrefix+name+"="+e.String()))
	}
	if r.Binary {
		if command := x.text(r.Command); command != r.Command {
			became("Cmd", classad.String(command).Expr())
		}
	}
	args := make([]string, len(r.Args))
	for i, a := range r.Args {
		args[i] = x.text(a)
	}
	if !slices.Equal(args, r.Args) {
		became("Arguments", classad.String(FormatArguments(args)).Expr())
	}
	for _, text := range r.Attributes {
		name, value, _ := api.CutAttribute(text)
		if contains(extras, name) {
			continue // execd acts on it, also where the slot is not known
		}
		e, err := classad.ParseOldExpr(value)
		if err != nil {
			continue // it was checked
		}
		if expanded := x.strings(e); !expanded.Equal(e) {
			became(name, expanded)
		}
	}
	if x.err != nil {
		return nil, x.err
	}
	is := *Expanded(r, r.Attributes, list)
	if !is.Binary {
		is.Script = []byte{} // it is in the spool
	}
	_, err := Attributes(is.Attributes)
	if err = cmp.Or(err, is.Check()); err == nil && !slices.Equal(is.Args, args) {
		err = errors.New("the arguments are too long") // for package classad to read them
	}
	if err != nil {
		return nil, fmt.Errorf("cannot expand references to %s: %w", x.name, err)
	}
	return list, nil
}

// Expanded returns the request of a job with the references expanded to what they have
// become when it was started, with attributes as they were then. An attribute that has
// become another since stays as it is.
func Expanded(r *api.SubmitRequest, then []string, list []api.Text) *api.SubmitRequest {
	if len(list) == 0 {
		return r
	}
	is := *r
	is.Attributes = slices.Clone(r.Attributes)
	for _, a := range expansions(list) {
		name := strings.TrimPrefix(a.Name, matchPrefix)
		constant, _ := a.Expr.Constant()
		switch s, _ := constant.Str(); name {
		case "Cmd":
			is.Command = s
		case "Arguments":
			is.Args, _ = ParseArguments(s) // FormatArguments has written it
		default:
			i := slices.IndexFunc(is.Attributes, func(a string) bool {
				other, _, _ := api.CutAttribute(a)
				return other == name && slices.Contains(then, a)
			})
			if i >= 0 {
				is.Attributes[i] = name + "=" + a.Expr.OldString()
			}
		}
	}
	return &is
}

// WithExpansions returns the ad of a job with what its references have become.
func WithExpansions(of *classad.Ad, list []api.Text) *classad.Ad {
	return of.With(expansions(list)...)
}

// expansions reads what Expand has written.
func expansions(list []api.Text) (attrs []classad.Attr) {
	for _, text := range list {
		name, value, _ := strings.Cut(string(text), "=")
		if e, err := classad.Parse(value); err == nil {
			attrs = append(attrs, classad.Attr{Name: name, Expr: e})
		}
	}
	return attrs
}

// expander expands references. After the first error it expands nothing.
type expander struct {
	job, slot *classad.Env
	name      string // of the slot
	left      int    // bytes of expressions that may still be read
	err       error
}

func (x *expander) fail(err error) { x.err = cmp.Or(x.err, err) }

// text returns a text with its references expanded. What is none stays, and in what was
// inserted none is looked for.
func (x *expander) text(text string) string {
	var b strings.Builder
	rest := text
	for x.err == nil {
		before, of, after, ok := x.cut(rest)
		if !ok || x.err != nil {
			break
		}
		value, err := x.value(of)
		if err != nil {
			x.fail(fmt.Errorf("cannot expand $$(%s): %w", api.Visible(api.Short(of.text)), err))
			return text
		}
		if b.Len()+len(before)+len(value) >= api.MaxVariable {
			x.fail(fmt.Errorf("cannot expand $$(%s): the text would have more than the %d bytes that are possible", api.Visible(api.Short(of.text)), api.MaxVariable-1))
			return text
		}
		b.WriteString(before)
		b.WriteString(value)
		rest = after
	}
	b.WriteString(rest)
	return b.String()
}

// strings returns an expression with the references in its strings expanded.
func (x *expander) strings(e classad.Expr) classad.Expr {
	text := e.String()
	if !strings.Contains(text, begin) {
		return e
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		quote, end := text[i], i+1
		if quote == '"' || quote == '\'' { // of a string, or of a name
			for text[end] != quote {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end++
		}
		part := text[i:end]
		if quote == '"' {
			literal, _ := classad.Parse(part) // e was printed
			v, _ := literal.Constant()
			s, _ := v.Str()
			part = classad.String(x.text(s)).Expr().String()
		}
		b.WriteString(part)
		i = end
	}
	is, err := classad.Parse(b.String())
	if err != nil {
		x.fail(err)
	}
	return is
}

// reference is one reference.
type reference struct {
	text string // between the parentheses
	name string // of an attribute; empty: it is an expression
	expr classad.Expr
	// otherwise is what stands for an attribute that the slot does not have, if there is
	// a default.
	otherwise string
	defaults  bool
}

// cut cuts a text around its first reference.
func (x *expander) cut(text string) (before string, of reference, after string, ok bool) {
	for at := 0; ; at += len(begin) {
		i := strings.Index(text[at:], begin)
		if i < 0 || x.err != nil {
			return text, of, "", false
		}
		at += i
		if of, n := x.parse(text[at+len(begin):]); n > 0 {
			return text[:at], of, text[at+len(begin)+n:], true
		}
	}
}

// parse parses what stands behind $$( and returns how long it is with its end; 0: it is no
// reference.
func (x *expander) parse(text string) (of reference, n int) {
	text = text[:min(len(text), maxExpansion)]
	if strings.HasPrefix(text, "[") {
		// The brackets may stand in the expression as well.
		for end, tries := 1, 0; tries < maxEnds; tries++ {
			i := strings.Index(text[end:], "])")
			if i < 0 {
				break
			}
			end += i
			if x.left -= end; x.left < 0 {
				x.fail(errors.New("cannot expand $$([...]): the expressions are too many, or too long"))
				break
			}
			if e, err := classad.Parse(text[1:end]); err == nil {
				return reference{text: text[:end+1], expr: e}, end + len("])")
			}
			end++
		}
		return of, 0
	}
	end := strings.IndexByte(text, ')')
	if end < 0 {
		return of, 0
	}
	of.text = text[:end]
	of.name, of.otherwise, of.defaults = strings.Cut(of.text, ":")
	if !attributeName.MatchString(of.name) {
		return reference{}, 0
	}
	return of, end + len(")")
}

// value returns what stands for a reference.
func (x *expander) value(of reference) (string, error) {
	var v classad.Value
	switch {
	case of.name == "":
		v = x.job.Eval(of.expr)
	case strings.EqualFold(of.name, dollars):
		return "$$", nil
	case !classad.Private(of.name):
		v = x.slot.Attr(of.name)
	}
	switch v.Kind() {
	case classad.UndefinedKind:
		if of.defaults {
			return of.otherwise, nil
		}
		if of.name != "" {
			return "", fmt.Errorf("%s has no %s", x.name, of.name)
		}
		return "", fmt.Errorf("it is undefined for %s", x.name)
	case classad.ErrorKind:
		return "", fmt.Errorf("it is an error for %s: %s", x.name, api.Visible(v.Reason()))
	}
	text, is := v.Str()
	if !is {
		text = v.String()
	}
	switch {
	case len(text) > maxExpansion:
		return "", fmt.Errorf("%s has %d bytes for it, at most %d are possible", x.name, len(text), maxExpansion)
	case text != api.Visible(text):
		return "", errors.New(x.name + " has characters for it that cannot be shown")
	}
	return text, nil
}
