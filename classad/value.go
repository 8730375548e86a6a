package classad

import (
	"math"
	"strings"
	"unicode"
)

// Kind is what a value is.
type Kind uint8

// The kinds of values. A missing attribute is undefined; what makes no sense,
// like 10 * "a", is an error.
const (
	UndefinedKind Kind = iota
	ErrorKind
	BoolKind
	IntKind
	RealKind
	StringKind
	ListKind
	AdKind
	AbsTimeKind // a point of time, with the offset of its zone
	RelTimeKind // a length of time
)

var kindNames = [...]string{
	UndefinedKind: "undefined",
	ErrorKind:     "error",
	BoolKind:      "boolean",
	IntKind:       "integer",
	RealKind:      "real",
	StringKind:    "string",
	ListKind:      "list",
	AdKind:        "ad",
	AbsTimeKind:   "absolute time",
	RelTimeKind:   "relative time",
}

// String returns the word for the kind, as messages have it.
func (k Kind) String() string { return kindNames[k] }

// Value is what an expression evaluates to. The zero value is undefined.
type Value struct {
	kind Kind
	zone int32  // of an absolute time: seconds east of Greenwich
	num  uint64 // a boolean, an integer, the bits of a real, the seconds of a time
	str  string // of an error: the reason
	obj  *object
}

// object is what a list or an ad has beside the fields of Value. The elements of a
// list in an expression are evaluated when somebody asks for them.
type object struct {
	elems []node
	vals  []Value // of a list that a function made
	ad    *Ad
	scope *scope // where elems are evaluated, or that of the ad itself
}

// Undefined returns the value of an attribute that is not there.
func Undefined() Value { return Value{} }

// Error returns the value of what makes no sense, with the reason.
func Error(reason string) Value { return Value{kind: ErrorKind, str: reason} }

// Bool returns a boolean.
func Bool(b bool) Value {
	v := Value{kind: BoolKind}
	if b {
		v.num = 1
	}
	return v
}

// Int returns an integer.
func Int(i int64) Value { return Value{kind: IntKind, num: uint64(i)} }

// Real returns a real number.
func Real(r float64) Value { return Value{kind: RealKind, num: math.Float64bits(r)} }

// String returns a string.
func String(s string) Value { return Value{kind: StringKind, str: s} }

// List returns a list.
func List(vals ...Value) Value { return Value{kind: ListKind, obj: &object{vals: vals}} }

func adValue(s *scope) Value { return Value{kind: AdKind, obj: &object{ad: s.ad, scope: s}} }

func absTime(seconds int64, zone int) Value {
	return Value{kind: AbsTimeKind, num: uint64(seconds), zone: int32(zone)}
}

func relTime(seconds float64) Value {
	return Value{kind: RelTimeKind, num: math.Float64bits(seconds)}
}

// Kind returns the kind of the value.
func (v Value) Kind() Kind { return v.kind }

// Reason returns why the value is an error, in one line of at most 200 bytes, which
// may quote names and patterns of whoever wrote the ad.
func (v Value) Reason() string {
	const longest = 200
	if v.kind != ErrorKind {
		return ""
	}
	s := strings.ToValidUTF8(v.str, "?")
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest-3], "") + "..."
	}
	return s
}

// Bool returns a boolean, and reports whether the value is one.
func (v Value) Bool() (b, ok bool) { return v.num != 0, v.kind == BoolKind }

// Int returns an integer, and reports whether the value is one.
func (v Value) Int() (int64, bool) { return int64(v.num), v.kind == IntKind }

// Number returns an integer, a real or, as 0 and 1, a boolean, and reports
// whether the value is one of them.
func (v Value) Number() (float64, bool) {
	switch v.kind {
	case IntKind, BoolKind:
		return float64(int64(v.num)), true
	case RealKind:
		return v.real(), true
	}
	return 0, false
}

// Str returns a string, and reports whether the value is one.
func (v Value) Str() (string, bool) {
	if v.kind != StringKind {
		return "", false
	}
	return v.str, true
}

// List returns the elements of a list, nil for anything else.
func (v Value) List() []Value {
	if v.kind != ListKind {
		return nil
	}
	return v.obj.vals
}

// Ad returns an ad, nil for anything else. What it refers to in the ads around
// it is not there any more.
func (v Value) Ad() *Ad {
	if v.kind != AdKind {
		return nil
	}
	return v.obj.ad
}

// True reports whether a policy or Requirements of this value are satisfied:
// by true and by every number but zero, and by nothing else.
func (v Value) True() bool { return v.truth() == truthTrue }

// Rank returns the number that the value is, and 0 if it is none.
func (v Value) Rank() float64 {
	n, _ := v.Number()
	if math.IsNaN(n) {
		return 0
	}
	return n
}

// Expr returns the expression that has the value.
func (v Value) Expr() Expr {
	switch v.kind {
	case AdKind:
		return Expr{&adNode{v.obj.ad}}
	case ListKind:
		if v.obj.vals == nil {
			return Expr{&listNode{v.obj.elems}}
		}
		elems := make([]node, len(v.obj.vals))
		for i, e := range v.obj.vals {
			elems[i] = e.Expr().root
		}
		return Expr{&listNode{elems}}
	}
	return Expr{&literal{v}}
}

func (v Value) real() float64 { return math.Float64frombits(v.num) }

// truth is what a value is as an operand of && and ||.
type truth uint8

const (
	truthFalse truth = iota
	truthTrue
	truthUndefined
	truthError
)

func (v Value) truth() truth {
	yes := false
	switch v.kind {
	case BoolKind, IntKind:
		yes = v.num != 0
	case RealKind:
		yes = v.real() != 0
	case UndefinedKind:
		return truthUndefined
	default:
		return truthError
	}
	if yes {
		return truthTrue
	}
	return truthFalse
}
