package knob

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// result is the expansion of a name.
type result struct {
	value string
	err   *failure
}

// failure is why something cannot be expanded, and the knob whose definition is wrong.
type failure struct {
	at   string
	text string
}

func (f *failure) Error() string { return f.text }

// functions are the functions of the language that this package lacks: to leave them as
// they stand would make a wrong value.
var functions = []string{
	"RANDOM_CHOICE", "RANDOM_INTEGER", "CHOICE", "SUBSTR", "INT", "REAL", "STRING", "EVAL", "BASENAME", "DIRNAME", "F", "UNLINK",
}

// builtin returns the value of a name that is always defined.
func (r *reader) builtin(name string) (string, bool) {
	switch name {
	case "DOLLAR":
		return "$", true
	case "MINUTE":
		return "60", true
	case "HOUR":
		return "3600", true
	case "HOSTNAME":
		short, _, _ := strings.Cut(r.Host, ".")
		return short, true
	case "FULL_HOSTNAME":
		return r.Host, true
	}
	return "", false
}

// resolve returns the knob that is used for a name, in capitals; "" for none.
func (r *reader) resolve(name string) string {
	for _, p := range prefixes {
		if k := r.knobs[p+name]; k != nil && k.Raw != "" {
			return p + name
		}
	}
	if k := r.knobs[name]; k != nil && k.Raw != "" {
		return name
	}
	return ""
}

// lookup returns the value of a name that is referred to: its definition, or execd's
// own default. ok is false if there is neither.
func (r *reader) lookup(name string) (v string, ok bool, err *failure) {
	if found := r.resolve(name); found != "" {
		v, err = r.value(found)
		return v, true, err
	}
	if v, ok := r.builtin(name); ok {
		return v, true, nil
	}
	if d := Find(name); d != nil && d.Default != "" {
		return d.Default, true, nil
	}
	return "", false, nil
}

// value expands a knob, whose name is in capitals, once.
func (r *reader) value(name string) (string, *failure) {
	if done, ok := r.memo[name]; ok {
		return done.value, done.err
	}
	at := name
	if len(r.stack) > 0 {
		at = r.stack[len(r.stack)-1]
	}
	if i := slices.Index(r.stack, name); i >= 0 {
		return "", &failure{at, "refers to itself: " + shorten(strings.Join(append(slices.Clone(r.stack[i:]), name), " -> "))}
	}
	if len(r.stack) == maxDepth {
		return "", &failure{at, fmt.Sprintf("more than %d knobs refer to each other", maxDepth)}
	}
	r.stack = append(r.stack, name)
	v, err := r.expand(r.knobs[name].Raw)
	r.stack = r.stack[:len(r.stack)-1]
	if err != nil {
		v = ""
	}
	r.memo[name] = result{v, err}
	return v, err
}

// expand replaces every $(NAME) in a text by its value. $$(NAME) and $$([ expression ])
// belong to jobs and stay.
func (r *reader) expand(text string) (string, *failure) {
	at := ""
	if len(r.stack) > 0 {
		at = r.stack[len(r.stack)-1]
	}
	var b strings.Builder
	put := func(s string) *failure {
		r.work -= len(s) + 1
		switch {
		case r.work < 0:
			return &failure{at, "the values of all knobs together are too long"}
		case b.Len()+len(s) > maxValue:
			return &failure{at, fmt.Sprintf("a value of more than %d bytes", maxValue)}
		}
		b.WriteString(s)
		return nil
	}
	for text != "" {
		i := strings.IndexByte(text, '$')
		if i < 0 {
			i = len(text)
		}
		if err := put(text[:i]); err != nil {
			return "", err
		}
		text = text[i:]
		if strings.HasPrefix(text, "$$") {
			if err := put("$$"); err != nil {
				return "", err
			}
			text = text[2:]
			continue
		}
		if f := function(text); f != "" {
			return "", &failure{at, fmt.Sprintf("$%s() is not known here", f)}
		}
		const env = "$ENV"
		if variable, ok := reference("$" + strings.TrimPrefix(text, env)); ok && strings.HasPrefix(text, env+"(") {
			text = text[len(env)+variable.len-1:]
			v, err := r.variable(variable)
			if err == nil {
				err = put(v)
			}
			if err != nil {
				return "", err
			}
			continue
		}
		ref, ok := reference(text)
		if !ok {
			n := min(1, len(text))
			if err := put(text[:n]); err != nil {
				return "", err
			}
			text = text[n:]
			continue
		}
		text = text[ref.len:]
		r.refers[ref.name] = true
		v, found, err := r.lookup(ref.name)
		if err == nil && !found && ref.hasDefault {
			// The default is part of the same knob, one level deeper.
			v, err = r.nested(ref.def)
		}
		if err == nil {
			err = put(v)
		}
		if err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// variable returns the value of an environment variable. One that is not set, and has
// no default, is the word UNDEFINED.
func (r *reader) variable(ref ref) (string, *failure) {
	for _, e := range r.Environ {
		if name, value, _ := strings.Cut(e, "="); name == ref.written {
			return value, nil
		}
	}
	if ref.hasDefault {
		return r.nested(ref.def)
	}
	return "UNDEFINED", nil
}

// nested expands the default of a reference. It is shorter than the text with the
// reference; its depth is bounded together with that of the knobs.
func (r *reader) nested(def string) (string, *failure) {
	if strings.Count(def, "$(") > maxDepth {
		return "", &failure{r.top(), fmt.Sprintf("more than %d references in a default", maxDepth)}
	}
	return r.expand(def)
}

func (r *reader) top() string {
	if len(r.stack) == 0 {
		return ""
	}
	return r.stack[len(r.stack)-1]
}

// ref is a reference, $(NAME) or $(NAME:default).
type ref struct {
	name       string // in capitals
	written    string // the same, as it is written
	def        string
	hasDefault bool
	len        int // bytes from the dollar to the parenthesis
}

// reference reads a reference at the beginning of a text. Any other dollar stands for
// itself, as in a pattern.
func reference(text string) (ref, bool) {
	if !strings.HasPrefix(text, "$(") {
		return ref{}, false
	}
	end := 2
	for end < len(text) && end <= maxName+2 && (text[end] == '.' || IsKeyword(text[end:end+1])) {
		end++
	}
	name := key(text[2:end])
	switch {
	case name == "" || end == len(text) || !validName(name):
	case text[end] == ')':
		return ref{name: name, written: text[2:end], len: end + 1}, true
	case text[end] == ':':
		depth := 1
		for i := end + 1; i < min(len(text), end+maxDefault); i++ {
			switch text[i] {
			case '(':
				depth++
			case ')':
				depth--
			}
			if depth == 0 {
				return ref{name: name, written: text[2:end], def: text[end+1 : i], hasDefault: true, len: i + 1}, true
			}
		}
	}
	return ref{}, false
}

// function returns the name of a function that is called at the beginning of a text.
func function(text string) string {
	name, _, ok := strings.Cut(strings.TrimPrefix(text[:min(len(text), maxName)], "$"), "(")
	if !ok || text[0] != '$' {
		return ""
	}
	// The letters behind $F select parts of a file's name.
	if strings.HasPrefix(name, "F") && strings.Trim(name[1:], "pdnxqabw") == "" {
		return name
	}
	if slices.Contains(functions, name) {
		return name
	}
	return ""
}

// ownValue replaces references of a definition to itself by the earlier value as it was
// written. A name with a daemon before it is the same knob.
func (r *reader) ownValue(name, text string) (string, error) {
	earlier := func() (string, bool) {
		if k := r.knobs[name]; k != nil && k.Raw != "" {
			return k.Raw, true
		}
		if k := r.knobs[bare(name)]; k != nil && k.Raw != "" {
			return k.Raw, true
		}
		if v, ok := r.builtin(bare(name)); ok {
			return v, true
		}
		if d := Find(name); d != nil && d.Default != "" {
			return d.Default, true
		}
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		ref, ok := reference(text[i:])
		switch {
		case strings.HasPrefix(text[i:], "$$"):
			b.WriteString("$$")
			i += 2
		case ok && (ref.name == name || ref.name == bare(name)):
			v, found := earlier()
			if !found {
				v = ref.def
			}
			b.WriteString(v)
			i += ref.len
		default:
			b.WriteByte(text[i])
			i++
		}
		if b.Len() > maxValue {
			return "", fmt.Errorf("a value of more than %d bytes", maxValue)
		}
	}
	// Definitions that each contain the one before take quadratic work.
	if r.work -= b.Len(); r.work < 0 {
		return "", errors.New("the values of all knobs together are too long")
	}
	return b.String(), nil
}
