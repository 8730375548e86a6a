package classad

import (
	"math"
	"strings"
	"unsafe"
)

const valueSize = int(unsafe.Sizeof(Value{}))

func (c *context) unary(o op, v Value) Value {
	switch v.kind {
	case UndefinedKind, ErrorKind:
		return v
	}
	switch o {
	case opNot:
		if t := v.truth(); t != truthError {
			return Bool(t == truthFalse)
		}
	case opComplement:
		if v.kind == IntKind {
			return Int(^int64(v.num))
		}
	default:
		return signed(o, v)
	}
	return wrongOperand(o, v)
}

func signed(o op, v Value) Value {
	switch {
	case v.kind != IntKind && v.kind != RealKind && v.kind != RelTimeKind:
		return wrongOperand(o, v)
	case o == opPlus:
		return v
	case v.kind == IntKind:
		return Int(-int64(v.num))
	}
	v.num ^= 1 << 63 // the sign of a real
	return v
}

func wrongOperand(o op, v Value) Value {
	return Error("cannot apply " + ops[o].text + " to " + v.kind.String())
}

func wrongOperands(o op, x, y Value) Value {
	return Error("cannot apply " + ops[o].text + " to " + x.kind.String() + " and " + y.kind.String())
}

// operate applies an operator that takes both operands.
func (c *context) operate(o op, x, y Value) Value {
	switch o {
	case opIs, opIsnt:
		return c.identity(o, x, y)
	}
	switch {
	case x.kind == ErrorKind:
		return x
	case y.kind == ErrorKind:
		return y
	case x.kind == UndefinedKind || y.kind == UndefinedKind:
		return Value{}
	}
	switch ops[o].level {
	case levelEqual, levelLess:
		return c.compare(o, x, y)
	case levelAdd, levelMultiply:
		return arithmetic(o, x, y)
	}
	if x.kind != IntKind || y.kind != IntKind {
		return wrongOperands(o, x, y)
	}
	return bits(o, int64(x.num), int64(y.num))
}

// identity applies =?= or =!=, which tell types apart and the case of letters.
func (c *context) identity(o op, x, y Value) Value {
	same := x.kind == y.kind
	if same {
		switch x.kind {
		case StringKind:
			if !c.scan(min(len(x.str), len(y.str))) {
				return c.spent()
			}
			same = x.str == y.str
		case RealKind, RelTimeKind:
			same = x.real() == y.real()
		case ListKind, AdKind:
			return wrongOperands(o, x, y)
		case ErrorKind:
		default:
			same = x.num == y.num
		}
	}
	return Bool(same == (o == opIs))
}

// compare applies a comparison, for which letters of strings have no case.
func (c *context) compare(o op, x, y Value) Value {
	var order int
	switch {
	case x.kind == StringKind && y.kind == StringKind:
		if !c.scan(min(len(x.str), len(y.str))) {
			return c.spent()
		}
		order = compareFold(x.str, y.str)
	case integral(x) && integral(y), x.kind == AbsTimeKind && y.kind == AbsTimeKind:
		order = compareOrdered(int64(x.num), int64(y.num))
	default:
		a, okA := x.Number()
		b, okB := y.Number()
		if x.kind == RelTimeKind && y.kind == RelTimeKind {
			a, b, okA, okB = x.real(), y.real(), true, true
		}
		if !okA || !okB {
			return wrongOperands(o, x, y)
		}
		if math.IsNaN(a) || math.IsNaN(b) {
			return Bool(o == opNotEqual)
		}
		order = compareOrdered(a, b)
	}
	return Bool(holds(o, order))
}

func holds(o op, order int) bool {
	switch o {
	case opEqual:
		return order == 0
	case opNotEqual:
		return order != 0
	case opLess:
		return order < 0
	case opLessEqual:
		return order <= 0
	case opGreater:
		return order > 0
	}
	return order >= 0
}

func compareOrdered[T int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func compareFold(a, b string) int {
	for i := range min(len(a), len(b)) {
		if x, y := lower(a[i]), lower(b[i]); x != y {
			return int(x) - int(y)
		}
	}
	return len(a) - len(b)
}

func integral(v Value) bool { return v.kind == IntKind || v.kind == BoolKind }

func arithmetic(o op, x, y Value) Value {
	if integral(x) && integral(y) {
		return integers(o, int64(x.num), int64(y.num))
	}
	a, okA := x.Number()
	b, okB := y.Number()
	if !okA || !okB {
		return timeArithmetic(o, x, y)
	}
	var r float64
	switch o {
	case opAdd:
		r = a + b
	case opSubtract:
		r = a - b
	case opMultiply:
		r = a * b
	case opDivide:
		r = a / b
	default:
		return wrongOperands(o, x, y)
	}
	if math.IsInf(r, 1) {
		return Error("number too large")
	}
	return Real(r)
}

// integers applies an operator to integers, which wrap around.
func integers(o op, a, b int64) Value {
	switch o {
	case opAdd:
		return Int(a + b)
	case opSubtract:
		return Int(a - b)
	case opMultiply:
		return Int(a * b)
	}
	switch {
	case b == 0:
		return Error("division by zero")
	case o == opModulo && b == -1:
		return Int(0)
	case o == opModulo:
		return Int(a % b)
	case b == -1 && a == math.MinInt64:
		return Int(math.MaxInt64)
	}
	return Int(a / b)
}

// bits applies an operator to bits. Shifts go by the count modulo 64.
func bits(o op, a, b int64) Value {
	switch o {
	case opBitOr:
		return Int(a | b)
	case opBitXor:
		return Int(a ^ b)
	case opBitAnd:
		return Int(a & b)
	case opLeft:
		return Int(a << (b & 63))
	case opRight:
		return Int(a >> (b & 63))
	}
	return Int(int64(uint64(a) >> (b & 63)))
}

// timeArithmetic adds and subtracts times, and multiplies and divides lengths.
func timeArithmetic(o op, x, y Value) Value {
	n, isNumber := y.Number()
	switch {
	case x.kind == AbsTimeKind && y.kind == AbsTimeKind && o == opSubtract:
		return relTime(float64(int64(x.num) - int64(y.num)))
	case x.kind == AbsTimeKind && y.kind == RelTimeKind && o == opAdd:
		return absTime(int64(x.num)+toInt(y.real()), int(x.zone))
	case x.kind == AbsTimeKind && y.kind == RelTimeKind && o == opSubtract:
		return absTime(int64(x.num)-toInt(y.real()), int(x.zone))
	case x.kind == RelTimeKind && y.kind == AbsTimeKind && o == opAdd:
		return absTime(int64(y.num)+toInt(x.real()), int(y.zone))
	case x.kind == RelTimeKind && y.kind == RelTimeKind && o == opAdd:
		return relTime(x.real() + y.real())
	case x.kind == RelTimeKind && y.kind == RelTimeKind && o == opSubtract:
		return relTime(x.real() - y.real())
	case x.kind == RelTimeKind && isNumber && o == opMultiply:
		return relTime(x.real() * n)
	case x.kind == RelTimeKind && isNumber && o == opDivide && n != 0:
		return relTime(x.real() / n)
	}
	return wrongOperands(o, x, y)
}

// toInt returns the integer part of a number. One that does not fit becomes the
// nearest number that does, and NaN becomes 0.
func toInt(r float64) int64 {
	switch {
	case math.IsNaN(r):
		return 0
	case r >= 1<<63:
		return math.MaxInt64
	case r <= -1<<63:
		return math.MinInt64
	}
	return int64(r)
}

// lowerString is strings.ToLower for ASCII alone.
func lowerString(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}
