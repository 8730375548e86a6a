package classad

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
)

// Patterns are those of RE2: the time of a match grows with the text and the
// pattern, never faster, and so there is neither look-around nor a reference
// to what has been matched.

const (
	maxPattern = 4 << 10
	maxProgram = 5000  // instructions that a pattern becomes
	maxCached  = 50000 // instructions
)

// pattern is a compiled pattern with its size.
type pattern struct {
	re   *regexp.Regexp
	size int
	err  string
}

// patterns is the cache of compiled patterns, for all evaluations.
var patterns = struct {
	sync.RWMutex
	compiled map[string]*pattern
	size     int
}{compiled: map[string]*pattern{}}

func regexpFunctions(m map[string]*function) {
	m["regexp"] = &function{least: 2, most: 3, pattern: true, strict: matchRegexp}
	m["regexpMember"] = &function{least: 2, most: 3, pattern: true, strict: regexpMember}
	m["regexps"] = &function{least: 3, most: 4, pattern: true, strict: replacing("")}
	m["replace"] = &function{least: 3, most: 4, pattern: true, strict: replacing("f")}
	m["replaceAll"] = &function{least: 3, most: 4, pattern: true, strict: replacing("fg")}
}

// compile returns the compiled pattern, and pays for what is new.
func (c *context) compile(text, options string) *pattern {
	flags := ""
	if strings.ContainsAny(options, "iI") {
		flags += "i"
	}
	if strings.ContainsAny(options, "mM") {
		flags += "m"
	}
	if strings.ContainsAny(options, "sS") {
		flags += "s"
	}
	key := flags + "/" + text
	patterns.RLock()
	p := patterns.compiled[key]
	patterns.RUnlock()
	if p != nil {
		return p
	}
	p = newPattern(text, flags)
	c.steps -= 16 + p.size
	patterns.Lock()
	defer patterns.Unlock()
	if patterns.size += p.size; patterns.size > maxCached {
		clear(patterns.compiled)
		patterns.size = p.size
	}
	patterns.compiled[strings.Clone(key)] = p
	return p
}

func newPattern(text, flags string) *pattern {
	if flags != "" {
		text = "(?" + flags + ":" + text + ")"
	}
	// Patterns that do not compile are kept in the cache, too.
	const bad = 100
	if len(text) > maxPattern {
		return &pattern{size: bad, err: "pattern too long"}
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return &pattern{size: bad, err: err.Error()}
	}
	size := programSize(tree)
	if size > maxProgram {
		return &pattern{size: bad, err: "pattern too large"}
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return &pattern{size: bad, err: err.Error()}
	}
	return &pattern{re: re, size: size}
}

// programSize estimates what a pattern compiles to: repetitions are written out.
func programSize(re *syntax.Regexp) int {
	size := 2 + len(re.Rune)/2
	for _, sub := range re.Sub {
		if size += programSize(sub); size > maxProgram {
			return size
		}
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min, re.Max, 1)
	}
	return size
}

// find pays for a search in a text, and reports whether it could.
func (c *context) find(p *pattern, text string) bool {
	if p.err != "" {
		return false
	}
	return c.scan(2*len(text)*min(p.size, 1000) + 32)
}

// matches tells whether a pattern matches somewhere in a text.
func (c *context) matches(text, in, options string) Value {
	p := c.compile(text, options)
	if !c.find(p, in) {
		return c.unfound(p)
	}
	return Bool(p.re.MatchString(in))
}

func (c *context) unfound(p *pattern) Value {
	if p.err != "" {
		return Error(p.err)
	}
	return c.spent()
}

// option returns the argument with the options, "" if it is not there.
func option(args []Value, i int) string {
	if len(args) > i {
		return args[i].str
	}
	return ""
}

// allStrings reports whether the arguments are strings. If not, wrong is the value
// of the call: an error among the arguments comes first, then undefined, then the
// error about another kind.
func allStrings(args []Value) (wrong Value, ok bool) {
	ok = true
	for _, a := range args {
		switch {
		case a.kind == ErrorKind:
			return a, false
		case a.kind == UndefinedKind:
			wrong, ok = a, false
		case a.kind != StringKind && ok:
			wrong, ok = needs("string", a), false
		}
	}
	return wrong, ok
}

func matchRegexp(c *context, args []Value) Value {
	if v, ok := allStrings(args); !ok {
		return v
	}
	return c.matches(args[0].str, args[1].str, option(args, 2))
}

func regexpMember(c *context, args []Value) Value {
	list := args[1]
	args[1] = String("")
	if v, ok := allStrings(args); !ok {
		return v
	}
	if list.kind == UndefinedKind {
		return list
	}
	if list.kind != ListKind {
		return needs("list", list)
	}
	result := Bool(false)
	for i := range listLen(list) {
		v := c.elem(list, i)
		switch v.kind {
		case UndefinedKind:
			result = v
			continue
		case StringKind:
			v = c.matches(args[0].str, v.str, option(args, 2))
		default:
			v = needs("string", v)
		}
		if v.kind == ErrorKind || v.num != 0 {
			return v
		}
	}
	return result
}

// replacing substitutes what matches: the first place or, with the option g,
// every one. The result is what was substituted or, with f, the whole text.
func replacing(always string) func(*context, []Value) Value {
	return func(c *context, args []Value) Value {
		if v, ok := allStrings(args); !ok {
			return v
		}
		options := always + option(args, 3)
		return c.replace(args[0].str, args[1].str, args[2].str, options)
	}
}

func (c *context) replace(text, in, with, options string) Value {
	p := c.compile(text, options)
	if !c.find(p, in) {
		return c.unfound(p)
	}
	full, all := strings.ContainsAny(options, "fF"), strings.ContainsAny(options, "gG")
	count := 1
	if all {
		// Each place costs as much as its list of groups.
		count = -1
		if !c.scan(len(in) * p.re.NumSubexp()) {
			return c.spent()
		}
	}
	var b []byte
	end := 0
	for _, at := range p.re.FindAllStringSubmatchIndex(in, count) {
		if full {
			b = append(b, in[end:at[0]]...)
		}
		end = at[1]
		start := len(b)
		var ok bool
		if b, ok = expand(b, with, in, at); !ok {
			return Error("no such group in the pattern")
		}
		if !c.alloc(len(b) - start) {
			return c.spent()
		}
	}
	if full {
		b = append(b, in[end:]...)
	}
	return c.text(string(b))
}

// expand appends a substitute, in which \0 to \9 are what matched. ok is false if it
// refers to a group behind the last one that took part in the match.
func expand(b []byte, with, in string, at []int) (_ []byte, ok bool) {
	for at[len(at)-1] < 0 {
		at = at[:len(at)-2]
	}
	for i := 0; i < len(with); i++ {
		ch := with[i]
		if ch != '\\' || i+1 == len(with) {
			b = append(b, ch)
			continue
		}
		i++
		if !digit(with[i]) {
			b = append(b, '\\', with[i])
			continue
		}
		g := 2 * int(with[i]-'0')
		if g >= len(at) {
			return b, false
		}
		if at[g] >= 0 {
			b = append(b, in[at[g]:at[g+1]]...)
		}
	}
	return b, true
}
