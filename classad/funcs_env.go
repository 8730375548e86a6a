package classad

import "strings"

func envFunctions(m map[string]*function) {
	m["envV1ToV2"] = &function{least: 1, most: 1, strict: envV1ToV2}
	m["mergeEnvironment"] = &function{least: 0, most: -1, strict: mergeEnvironment}
	m["argsToList"] = &function{least: 1, most: 2, strict: argsToList}
	m["listToArgs"] = &function{least: 1, most: 2, strict: listToArgs}
	m["userHome"] = &function{least: 1, most: 2, strict: userHome}
	m["userMap"] = &function{least: 2, most: 4, strict: userMap}
}

// environment is a list of variables in the order they came, each once.
type environment struct {
	names  []string
	values map[string]string
}

// set adds NAME=value, and reports whether it is of that form.
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

// String returns the variables with spaces between them.
func (e *environment) String() string {
	var b []byte
	for _, name := range e.names {
		b = appendQuoted(b, name+"="+e.values[name])
	}
	return string(b)
}

// appendQuoted appends an entry of an environment or a list of arguments, behind a
// space if it is not the first. One that is empty or has a space or a quote in it is
// quoted, and the quote itself is doubled.
func appendQuoted(b []byte, entry string) []byte {
	if len(b) > 0 {
		b = append(b, ' ')
	}
	if entry == "" || strings.ContainsAny(entry, spaces+"'") {
		entry = "'" + strings.ReplaceAll(entry, "'", "''") + "'"
	}
	return append(b, entry...)
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

// argumentVersion returns which of the two forms of a list of arguments is meant: 1
// has blanks between them and nothing else, 2 has quotes.
func argumentVersion(args []Value) (version int64, wrong Value) {
	if len(args) < 2 {
		return 2, Value{}
	}
	version, ok := args[1].Int()
	if !ok || version != 1 && version != 2 {
		return 0, needs("version of arguments", args[1])
	}
	return version, Value{}
}

func argsToList(c *context, args []Value) Value {
	version, wrong := argumentVersion(args)
	switch {
	case version == 0:
		return wrong
	case args[0].kind != StringKind:
		return needs("string", args[0])
	case !c.alloc((valueSize + 16) * (1 + len(args[0].str)/2)):
		return c.spent()
	}
	words, ok := strings.FieldsFunc(args[0].str, func(r rune) bool { return r < 128 && white(byte(r)) }), true
	if version == 2 {
		words, ok = unquote(args[0].str)
	}
	if !ok {
		return Error("quote without end in arguments")
	}
	vals := make([]Value, len(words))
	for i, word := range words {
		vals[i] = String(word)
	}
	return List(vals...)
}

func listToArgs(c *context, args []Value) Value {
	version, wrong := argumentVersion(args)
	switch {
	case version == 0:
		return wrong
	case args[0].kind != ListKind:
		return needs("list", args[0])
	}
	var b []byte
	for i := range listLen(args[0]) {
		v := c.elem(args[0], i)
		switch {
		case v.kind != StringKind:
			return needs("string", v)
		case version == 1 && (v.str == "" || strings.ContainsAny(v.str, spaces)):
			return Error("an argument that is empty or has a space needs version 2")
		case !c.alloc(2*len(v.str) + 3):
			return c.spent()
		}
		if version == 2 {
			b = appendQuoted(b, v.str)
			continue
		}
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, v.str...)
	}
	return String(string(b))
}

// userHome returns what Env.Home answers, else the second argument.
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

// userMap returns its default, because there are no maps.
func userMap(_ *context, args []Value) Value { return optional(args, 3) }

func optional(args []Value, i int) Value {
	if len(args) > i {
		return args[i]
	}
	return Value{}
}
