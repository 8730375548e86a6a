package classad

import "math"

// node is a part of an expression: *literal, *ref, *selection, *subscript,
// *unary, *binary, *conditional, *call, *listNode or *adNode.
type node any

type literal struct{ v Value }

// where says in which ad a name is looked for.
type where uint8

const (
	anywhere where = iota // own ad, those around it, the other side
	inMy
	inTarget
	inParent
	inRoot // written .name
)

var whereNames = [...]string{anywhere: "", inMy: "MY.", inTarget: "TARGET.", inParent: "PARENT.", inRoot: "."}

// ref is a reference to an attribute or, with an empty name, to the ad itself.
type ref struct {
	name string
	hash uint32
	in   where
}

type selection struct {
	of   node
	name string
	hash uint32
}

type subscript struct{ of, index node }

type unary struct {
	op op
	x  node
}

// binary is x op y and all that follows to the right at the same level, so
// that long chains are not deep.
type binary struct {
	op   op
	x, y node
	more []term
}

type term struct {
	op op
	y  node
}

type conditional struct{ cond, yes, no node }

type call struct {
	name string
	fn   *function // nil: there is none of this name
	args []node
}

type listNode struct{ elems []node }

type adNode struct{ ad *Ad }

// op is an operator.
type op uint8

const (
	opOr op = iota + 1
	opAnd
	opBitOr
	opBitXor
	opBitAnd
	opEqual
	opNotEqual
	opIs
	opIsnt
	opLess
	opLessEqual
	opGreater
	opGreaterEqual
	opLeft
	opRight
	opLogicalRight
	opAdd
	opSubtract
	opMultiply
	opDivide
	opModulo
	opElvis
	opMinus
	opPlus
	opNot
	opComplement
)

// The levels of precedence, weakest first.
const (
	levelConditional = iota
	levelOr
	levelAnd
	levelBitOr
	levelBitXor
	levelBitAnd
	levelEqual
	levelLess
	levelShift
	levelAdd
	levelMultiply
	levelUnary
	levelElvis
	levelPostfix
)

var ops = [...]struct {
	text  string
	level int
}{
	opOr:           {"||", levelOr},
	opAnd:          {"&&", levelAnd},
	opBitOr:        {"|", levelBitOr},
	opBitXor:       {"^", levelBitXor},
	opBitAnd:       {"&", levelBitAnd},
	opEqual:        {"==", levelEqual},
	opNotEqual:     {"!=", levelEqual},
	opIs:           {"=?=", levelEqual},
	opIsnt:         {"=!=", levelEqual},
	opLess:         {"<", levelLess},
	opLessEqual:    {"<=", levelLess},
	opGreater:      {">", levelLess},
	opGreaterEqual: {">=", levelLess},
	opLeft:         {"<<", levelShift},
	opRight:        {">>", levelShift},
	opLogicalRight: {">>>", levelShift},
	opAdd:          {"+", levelAdd},
	opSubtract:     {"-", levelAdd},
	opMultiply:     {"*", levelMultiply},
	opDivide:       {"/", levelMultiply},
	opModulo:       {"%", levelMultiply},
	opElvis:        {"?:", levelElvis},
	opMinus:        {"-", levelUnary},
	opPlus:         {"+", levelUnary},
	opNot:          {"!", levelUnary},
	opComplement:   {"~", levelUnary},
}

// children calls f with the parts of a node, of a chain of ?: with those of all its
// links: it is as long as the text, and no deeper than one.
func children(n node, f func(node)) {
	switch n := n.(type) {
	case *selection:
		f(n.of)
	case *subscript:
		f(n.of)
		f(n.index)
	case *unary:
		f(n.x)
	case *binary:
		f(n.x)
		f(n.y)
		for _, t := range n.more {
			f(t.y)
		}
	case *conditional:
		for {
			f(n.cond)
			f(n.yes)
			next, ok := n.no.(*conditional)
			if !ok {
				f(n.no)
				return
			}
			n = next
		}
	case *call:
		for _, arg := range n.args {
			f(arg)
		}
	case *listNode:
		for _, e := range n.elems {
			f(e)
		}
	case *adNode:
		for i := range n.ad.attrs {
			f(n.ad.attrs[i].expr)
		}
	}
}

// level returns how tightly a node holds together when it is printed.
func level(n node) int {
	switch n := n.(type) {
	case *binary:
		return ops[n.op].level
	case *unary:
		return levelUnary
	case *conditional:
		return levelConditional
	case *literal:
		if negative(n.v) {
			return levelUnary
		}
	}
	return levelPostfix
}

// negative reports whether a value is printed with a sign in front.
func negative(v Value) bool {
	switch v.kind {
	case IntKind:
		return int64(v.num) < 0
	case RealKind:
		r := v.real()
		return math.Signbit(r) && !math.IsInf(r, -1) && !math.IsNaN(r)
	}
	return false
}

// join returns x op y, which lengthens the chain x if that is of the same level.
func join(x node, o op, y node) node {
	if b, ok := x.(*binary); ok && ops[b.op].level == ops[o].level {
		b.more = append(b.more, term{o, y})
		return b
	}
	return &binary{op: o, x: x, y: y}
}

// Expr is an expression. It does not change: any number of goroutines may
// evaluate it. The zero value is the expression undefined.
type Expr struct{ root node }

var undefinedNode = &literal{}

func (e Expr) node() node {
	if e.root == nil {
		return undefinedNode
	}
	return e.root
}

// Equal reports whether two expressions are the same but for the case of names.
func (e Expr) Equal(other Expr) bool { return equal(e.node(), other.node()) }

// Constant returns the value of an expression that is a literal.
func (e Expr) Constant() (Value, bool) {
	if l, ok := e.node().(*literal); ok {
		return l.v, true
	}
	return Value{}, false
}

func equal(x, y node) bool {
	switch x := x.(type) {
	case *literal:
		y, ok := y.(*literal)
		return ok && x.v.kind == y.v.kind && x.v.num == y.v.num && x.v.zone == y.v.zone &&
			(x.v.kind != StringKind || x.v.str == y.v.str)
	case *ref:
		y, ok := y.(*ref)
		return ok && x.in == y.in && equalFold(x.name, y.name)
	case *selection:
		y, ok := y.(*selection)
		return ok && equalFold(x.name, y.name) && equal(x.of, y.of)
	case *subscript:
		y, ok := y.(*subscript)
		return ok && equal(x.of, y.of) && equal(x.index, y.index)
	case *unary:
		y, ok := y.(*unary)
		return ok && x.op == y.op && equal(x.x, y.x)
	case *binary:
		y, ok := y.(*binary)
		return ok && equalBinary(x, y)
	case *conditional:
		return equalConditional(x, y)
	case *call:
		y, ok := y.(*call)
		return ok && equalFold(x.name, y.name) && equalAll(x.args, y.args)
	case *listNode:
		y, ok := y.(*listNode)
		return ok && equalAll(x.elems, y.elems)
	case *adNode:
		y, ok := y.(*adNode)
		return ok && x.ad.Equal(y.ad)
	}
	return false
}

func equalBinary(x, y *binary) bool {
	if x.op != y.op || len(x.more) != len(y.more) || !equal(x.x, y.x) || !equal(x.y, y.y) {
		return false
	}
	for i, t := range x.more {
		if t.op != y.more[i].op || !equal(t.y, y.more[i].y) {
			return false
		}
	}
	return true
}

// equalConditional follows a chain of ?: without going deeper.
func equalConditional(x *conditional, n node) bool {
	for {
		y, ok := n.(*conditional)
		if !ok || !equal(x.cond, y.cond) || !equal(x.yes, y.yes) {
			return false
		}
		next, ok := x.no.(*conditional)
		if !ok {
			return equal(x.no, y.no)
		}
		x, n = next, y.no
	}
}

func equalAll(x, y []node) bool {
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if !equal(x[i], y[i]) {
			return false
		}
	}
	return true
}
