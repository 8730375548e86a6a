package classad

import (
	"math"
	"strconv"
	"strings"
)

func stringFunctions(m map[string]*function) {
	m["string"] = &function{least: 1, most: 1, strict: func(c *context, args []Value) Value { return c.string(args[0]) }}
	m["strcat"] = &function{least: 0, most: -1, lazy: strcat}
	m["join"] = &function{most: -1, strict: joinStrings}
	m["split"] = &function{least: 1, most: 2, strict: split}
	m["splitUserName"] = &function{least: 1, most: 1, strict: splitUserName}
	m["splitSlotName"] = &function{least: 1, most: 1, strict: splitSlotName}
	m["substr"] = &function{least: 2, most: 3, strict: substr}
	m["toUpper"] = &function{least: 1, most: 1, strict: mapping('a', 'z')}
	m["toLower"] = &function{least: 1, most: 1, strict: mapping('A', 'Z')}
	m["version_in_range"] = &function{least: 3, most: 3, strict: versionInRange}
	number := func(order int) Value { return Int(int64(order)) }
	m["strcmp"] = comparing(strings.Compare, number)
	m["stricmp"] = comparing(func(a, b string) int { return compareOrdered(int64(compareFold(a, b)), 0) }, number)
	m["versioncmp"] = comparing(compareVersions, number)
	for name, o := range map[string]op{
		"versionLT": opLess, "versionLE": opLessEqual, "versionEQ": opEqual, "versionGE": opGreaterEqual, "versionGT": opGreater,
	} {
		m[name] = comparing(compareVersions, func(order int) Value { return Bool(holds(o, order)) })
	}
}

// string converts to a string; undefined and errors stay.
func (c *context) string(v Value) Value {
	switch v.kind {
	case StringKind, UndefinedKind, ErrorKind:
		return v
	case RealKind:
		// A string need not be read as the same number again.
		if r := v.real(); r != 0 && !math.IsInf(r, 0) && !math.IsNaN(r) {
			return c.text(strconv.FormatFloat(r, 'E', 15, 64))
		}
	case AbsTimeKind:
		return c.text(string(appendAbsTime(nil, v)))
	case RelTimeKind:
		return c.text(string(appendRelTime(nil, v.real())))
	}
	return c.text(string((&printer{}).value(nil, v)))
}

// texts converts arguments to strings. If ok is false, v is the value of the call.
func (c *context) texts(args []Value) (v Value, ok bool) {
	if v, found := firstOf(args); found {
		return v, false
	}
	for i := range args {
		args[i] = c.string(args[i])
		if args[i].kind != StringKind || !c.scan(len(args[i].str)) {
			return c.spent(), false
		}
	}
	return Value{}, true
}

// strcat joins strings. It returns the first argument that is undefined or an error.
func strcat(c *context, s *scope, args []node) Value {
	var b []byte
	for _, a := range args {
		v := c.string(c.eval(a, s))
		if v.kind != StringKind {
			return v
		}
		if !c.alloc(len(v.str)) {
			return c.spent()
		}
		b = append(b, v.str...)
	}
	return String(string(b))
}

// joinStrings joins strings with a delimiter, and skips undefined ones.
func joinStrings(c *context, args []Value) Value {
	if len(args) == 0 {
		return String("")
	}
	sep, items := args[0], args[1:]
	if last := args[len(args)-1]; len(args) <= 2 && last.kind == ListKind {
		if len(args) == 1 {
			sep = String("")
		}
		items = c.elems(last)
	}
	undefined := sep.kind == UndefinedKind
	if sep = c.string(sep); sep.kind == ErrorKind {
		return sep
	}
	var b []byte
	some := false
	for _, item := range items {
		v := c.string(item)
		switch v.kind {
		case UndefinedKind:
			undefined = true
			continue
		case ErrorKind:
			return v
		}
		if !c.alloc(len(sep.str) + len(v.str)) {
			return c.spent()
		}
		if some {
			b = append(b, sep.str...)
		}
		b = append(b, v.str...)
		some = true
	}
	if undefined && !some {
		return Value{}
	}
	return String(string(b))
}

func white(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// split cuts at any of the delimiters. Two of them side by side have an empty
// string between them, unless one is white space.
func split(c *context, args []Value) Value {
	delimiters := ", \t\r\n\v\f"
	if args[0].kind != StringKind {
		return needs("string", args[0])
	}
	if len(args) == 2 {
		if args[1].kind != StringKind {
			return needs("string", args[1])
		}
		delimiters = args[1].str
	}
	s := args[0].str
	if !c.scan(len(s) * (1 + len(delimiters)/8)) {
		return c.spent()
	}
	vals := []Value{}
	for len(s) > 0 {
		hard := 0
		for len(s) > 0 && strings.IndexByte(delimiters, s[0]) >= 0 {
			if !white(s[0]) {
				hard++
			}
			s = s[1:]
		}
		if !c.alloc(valueSize * max(hard, 1)) {
			return c.spent()
		}
		for ; hard > 1; hard-- {
			vals = append(vals, String(""))
		}
		end := strings.IndexAny(s, delimiters)
		if end < 0 {
			end = len(s)
		}
		if end > 0 {
			vals = append(vals, String(s[:end]))
		}
		s = s[end:]
	}
	return List(vals...)
}

func splitUserName(_ *context, args []Value) Value {
	if args[0].kind != StringKind {
		return needs("string", args[0])
	}
	user, domain, _ := strings.Cut(args[0].str, "@")
	return List(String(user), String(domain))
}

func splitSlotName(_ *context, args []Value) Value {
	if args[0].kind != StringKind {
		return needs("string", args[0])
	}
	slot, machine, found := strings.Cut(args[0].str, "@")
	if !found {
		slot, machine = "", slot
	}
	return List(String(slot), String(machine))
}

// substr returns a part of a string. A negative offset counts from the end, and a
// negative length is how much to leave off there.
func substr(_ *context, args []Value) Value {
	if v, found := firstOf(args); found {
		return v
	}
	s := args[0].str
	if args[0].kind != StringKind {
		return needs("string", args[0])
	}
	if args[1].kind != IntKind {
		return needs("integer", args[1])
	}
	offset := clamp(int64(args[1].num), len(s))
	s = s[offset:]
	if len(args) == 2 {
		return String(s)
	}
	if args[2].kind != IntKind {
		return needs("integer", args[2])
	}
	return String(s[:clamp(int64(args[2].num), len(s))])
}

// clamp returns the offset i within n bytes; a negative i counts from their end.
func clamp(i int64, n int) int {
	if i < 0 {
		return int(max(i, -int64(n))) + n
	}
	return int(min(i, int64(n)))
}

// mapping returns a function that changes the case of the letters from first to last.
func mapping(first, last byte) func(*context, []Value) Value {
	return func(c *context, args []Value) Value {
		if v, ok := c.texts(args); !ok {
			return v
		}
		b := []byte(args[0].str)
		for i, ch := range b {
			if first <= ch && ch <= last {
				b[i] = ch ^ ('a' - 'A')
			}
		}
		return c.text(string(b))
	}
}

func comparing(compare func(a, b string) int, result func(order int) Value) *function {
	return &function{least: 2, most: 2, strict: func(c *context, args []Value) Value {
		if v, ok := c.texts(args); !ok {
			return v
		}
		return result(compare(args[0].str, args[1].str))
	}}
}

func versionInRange(c *context, args []Value) Value {
	if v, ok := c.texts(args); !ok {
		return v
	}
	version := args[0].str
	return Bool(compareVersions(args[1].str, version) <= 0 && compareVersions(version, args[2].str) <= 0)
}

// compareVersions compares strings by their bytes, and numbers in them by value. Of
// equal numbers the one with more leading zeros is the smaller.
func compareVersions(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	start := i
	for start > 0 && digit(a[start-1]) {
		start--
	}
	inA, inB := i < len(a) && digit(a[i]), i < len(b) && digit(b[i])
	common := a[start:i]
	switch {
	case common == "" && (!inA || !inB || a[i] == '0' || b[i] == '0'):
	case common != "" && common[0] == '0':
		if strings.Trim(common, "0") == "" && inA != inB {
			return sign(inB)
		}
	case inA && inB:
		if n, m := digits(a[i:]), digits(b[i:]); n != m {
			return n - m
		}
	case inA != inB:
		return sign(inA)
	}
	return byteAt(a, i) - byteAt(b, i)
}

func sign(positive bool) int {
	if positive {
		return 1
	}
	return -1
}

func digits(s string) int {
	n := 0
	for n < len(s) && digit(s[n]) {
		n++
	}
	return n
}

func byteAt(s string, i int) int {
	if i < len(s) {
		return int(s[i])
	}
	return 0
}
