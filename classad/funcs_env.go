package classad

import "strings"

func envFunctions(m map[string]*function) {
	m["envV1ToV2"] = &function{least: 1, most: 1, strict: envV1ToV2}
	m["mergeEnvironment"] = &function{least: 0, most: -1, strict: mergeEnvironment}
	m["userHome"] = &function{least: 1, most: 2, strict: userHome}
	m["userMap"] = &function{least: 2, most: 4, strict: userMap}
}

// environment is variables in the order they came, each once.
type environment struct {
	names  []string
	values map[string]string
}

// set takes NAME=value.
func (e *environment) set(entry string) bool {
	name, value, ok := strings.Cut(entry, "=")
	if !ok || name == "" {
		return false
	}
	if e.values == nil {
		e.values = map[string]string{}
	}
	if _, known := e.values[name]; !known {
		e.names = append(e.names, name)
	}
	e.values[name] = value
	return true
}

// String returns the variables with spaces between them. Those with a space or
// a quote in them are quoted, and the quote itself is doubled.
func (e *environment) String() string {
	var b strings.Builder
	for i, name := range e.names {
		if i > 0 {
			b.WriteByte(' ')
		}
		entry := name + "=" + e.values[name]
		if strings.ContainsAny(entry, " \t\n\r\v\f'") {
			entry = "'" + strings.ReplaceAll(entry, "'", "''") + "'"
		}
		b.WriteString(entry)
	}
	return b.String()
}

// envV1ToV2 rewrites NAME=value;NAME=value.
func envV1ToV2(c *context, args []Value) Value {
	v := args[0]
	if v.kind == UndefinedKind {
		return v
	}
	if v.kind != StringKind {
		return needs("string", v)
	}
	if !c.alloc(8 * len(v.str)) {
		return c.spent()
	}
	var env environment
	for entry := range strings.SplitSeq(v.str, ";") {
		if entry != "" && !env.set(entry) {
			return Error("no name and value in environment")
		}
	}
	return c.text(env.String())
}

// mergeEnvironment puts environments together; the last value of a variable
// counts.
func mergeEnvironment(c *context, args []Value) Value {
	var env environment
	for _, v := range args {
		if v.kind == UndefinedKind {
			continue
		}
		if v.kind != StringKind {
			return needs("string", v)
		}
		if !c.alloc(8 * len(v.str)) {
			return c.spent()
		}
		entries, ok := unquote(v.str)
		if !ok {
			return Error("quote without end in environment")
		}
		for _, entry := range entries {
			if !env.set(entry) {
				return Error("no name and value in environment")
			}
		}
	}
	return c.text(env.String())
}

// unquote cuts at white space that is not within single quotes; within them
// two quotes are one.
func unquote(s string) (entries []string, ok bool) {
	var b []byte
	quoted, some := false, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\'' && quoted && i+1 < len(s) && s[i+1] == '\'':
			b = append(b, c)
			i++
		case c == '\'':
			quoted, some = !quoted, true
		case white(c) && !quoted:
			if some {
				entries = append(entries, string(b))
			}
			b, some = b[:0], false
		default:
			b, some = append(b, c), true
		}
	}
	if some {
		entries = append(entries, string(b))
	}
	return entries, !quoted
}

// userHome asks the caller; without an answer it is the second argument.
func userHome(c *context, args []Value) Value {
	if args[0].kind == UndefinedKind {
		return Value{}
	}
	if args[0].kind != StringKind {
		return needs("string", args[0])
	}
	if c.env.Home != nil {
		if home := c.env.Home(args[0].str); home != "" {
			return c.text(home)
		}
	}
	return optional(args, 1)
}

// userMap finds nobody, because there are no maps.
func userMap(_ *context, args []Value) Value { return optional(args, 3) }

func optional(args []Value, i int) Value {
	if len(args) > i {
		return args[i]
	}
	return Value{}
}
