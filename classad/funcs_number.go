package classad

import (
	"math"
	"strconv"
	"strings"
)

func numberFunctions(m map[string]*function) {
	m["int"] = &function{least: 1, most: 1, strict: toInteger}
	m["real"] = &function{least: 1, most: 1, strict: toRealNumber}
	m["bool"] = &function{least: 1, most: 1, strict: toBool}
	m["floor"] = &function{least: 1, most: 1, strict: rounding(math.Floor)}
	m["ceil"] = &function{least: 1, most: 1, strict: rounding(math.Ceil)}
	m["ceiling"] = &function{least: 1, most: 1, strict: rounding(math.Ceil)}
	m["round"] = &function{least: 1, most: 1, strict: rounding(math.RoundToEven)}
	m["pow"] = &function{least: 2, most: 2, strict: pow}
	m["quantize"] = &function{least: 2, most: 2, strict: quantize}
	m["random"] = &function{least: 0, most: 1, strict: random}
}

// number converts to a number as int and real do. It takes strings too.
func (c *context) number(v Value) (float64, bool) {
	if v.kind == StringKind {
		if !c.scan(len(v.str)) {
			return 0, false
		}
		return parseNumber(v.str)
	}
	return v.Number()
}

// parseNumber reads the decimal number at the beginning of a string, as strtod(3)
// does.
func parseNumber(s string) (float64, bool) {
	s = strings.TrimLeft(s, " \t\n\v\f\r")
	for _, word := range []string{"inf", "+inf", "-inf", "nan"} {
		if len(s) >= len(word) && equalFold(s[:len(word)], word) {
			r, _ := strconv.ParseFloat(word, 64)
			return r, true
		}
	}
	end, digits := numberEnd(s)
	if !digits {
		return 0, false
	}
	r, _ := strconv.ParseFloat(s[:end], 64) // out of range: the infinity of the sign
	return r, true
}

// numberEnd returns the length of the number at the beginning of a string, and
// whether it has any digits.
func numberEnd(s string) (end int, digits bool) {
	i := 0
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	count := 0
	run := func() {
		for ; i < len(s) && digit(s[i]); i++ {
			count++
		}
	}
	run()
	if i < len(s) && s[i] == '.' {
		i++
		run()
	}
	if count == 0 {
		return 0, false
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		end := i
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		count = 0
		if run(); count == 0 {
			return end, true
		}
	}
	return i, true
}

func toInteger(c *context, args []Value) Value {
	v := args[0]
	switch v.kind {
	case UndefinedKind, ErrorKind, IntKind:
		return v
	case StringKind:
		if !c.scan(len(v.str)) {
			return c.spent()
		}
		if i, err := strconv.ParseInt(v.str, 10, 64); err == nil {
			return Int(i)
		}
	case AbsTimeKind:
		return Int(int64(v.num))
	case RelTimeKind:
		return Int(toInt(v.real()))
	}
	if r, ok := c.number(v); ok {
		return Int(toInt(r))
	}
	return needs("number", v)
}

func toRealNumber(c *context, args []Value) Value {
	v := args[0]
	switch v.kind {
	case UndefinedKind, ErrorKind, RealKind:
		return v
	case AbsTimeKind:
		return Real(float64(int64(v.num)))
	case RelTimeKind:
		return Real(v.real())
	}
	if r, ok := c.number(v); ok {
		return Real(r)
	}
	return needs("number", v)
}

func toBool(_ *context, args []Value) Value {
	v := args[0]
	switch v.kind {
	case UndefinedKind, ErrorKind, BoolKind:
		return v
	case StringKind:
		if equalFold(v.str, "true") || equalFold(v.str, "false") {
			return Bool(len(v.str) == len("true"))
		}
		return Value{}
	}
	if t := v.truth(); t != truthError {
		return Bool(t == truthTrue)
	}
	return needs("boolean", v)
}

func rounding(round func(float64) float64) func(*context, []Value) Value {
	return func(c *context, args []Value) Value {
		v := args[0]
		if v.kind == IntKind {
			return v
		}
		r, ok := c.number(v)
		if !ok {
			return needs("number", v)
		}
		return Int(toInt(round(r)))
	}
}

func pow(c *context, args []Value) Value {
	base, exp := args[0], args[1]
	if base.kind == IntKind && exp.kind == IntKind && int64(exp.num) >= 0 {
		return Int(intPow(int64(base.num), int64(exp.num)))
	}
	b, ok := c.number(base)
	if !ok {
		return needs("number", base)
	}
	e, ok := c.number(exp)
	if !ok {
		return needs("number", exp)
	}
	return Real(math.Pow(b, e))
}

// intPow returns a power: exact where it fits, and else the nearest number that does.
func intPow(base, exp int64) int64 {
	r := math.Pow(float64(base), float64(exp))
	if math.Abs(r) >= 1<<62 {
		return toInt(r)
	}
	p := int64(1)
	for ; exp > 0; exp >>= 1 {
		if exp&1 != 0 {
			p *= base
		}
		base *= base
	}
	return p
}

// quantize returns the least multiple that is not below a number, or the first
// element of a list that is not.
func quantize(c *context, args []Value) Value {
	a, b := args[0], args[1]
	n, ok := c.number(a)
	if !ok {
		return needs("number", a)
	}
	if b.kind != ListKind {
		return c.multiple(a, n, b)
	}
	last := Value{}
	for i := range listLen(b) {
		last = c.elem(b, i)
		e, ok := c.number(last)
		if !ok {
			return needs("number", last)
		}
		if e >= n {
			return last
		}
	}
	if listLen(b) == 0 {
		return a
	}
	return c.multiple(a, n, last)
}

func (c *context) multiple(a Value, n float64, base Value) Value {
	if integral(a) && integral(base) {
		x, b := int64(a.num), int64(base.num)
		if b == 0 || b == -1 {
			return Int(x)
		}
		q := x / b
		if x%b != 0 && (x < 0) == (b < 0) {
			q++
		}
		return Int(q * b)
	}
	b, ok := c.number(base)
	switch {
	case !ok:
		return needs("number", base)
	case b == 0:
		return a
	case integral(base):
		return Int(toInt(math.Ceil(n/b) * b))
	}
	return Real(math.Ceil(n/b) * b)
}

func random(c *context, args []Value) Value {
	if c.env.Random == nil {
		return Error("no random numbers")
	}
	r := c.env.Random()
	if len(args) == 0 {
		return Real(r)
	}
	switch x := args[0]; x.kind {
	case IntKind:
		if int64(x.num) <= 0 {
			return Error("random needs a number above 0")
		}
		return Int(min(toInt(r*float64(int64(x.num))), int64(x.num)-1))
	case RealKind:
		return Real(r * x.real())
	default:
		return needs("number", x)
	}
}
