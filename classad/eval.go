package classad

import (
	"slices"
	"sync"
	"time"
)

// Bounds of what one evaluation may cost. Whoever writes an ad does not pay for it.
const (
	maxSteps = 100_000
	maxBytes = 1 << 20
	maxDepth = 400
)

// Env is where an expression is evaluated. Nothing but it and the expression
// decides the result. Any number of goroutines may use one.
type Env struct {
	My, Target *Ad // either may be nil

	// Now is the time, and its zone the local one. Without it time() is an error.
	Now time.Time
	// Random returns a number of [0, 1). Without it random() is an error.
	Random func() float64
	// Home returns the home directory of a user, and "" if there is none.
	// Without it nobody has one.
	Home func(user string) string

	// Steps bounds what several evaluations cost together: each takes the steps that
	// it needs, and is an error when it needs more than are left. Nil: each has only
	// its own bound. Evaluations that share it must not be made at the same time.
	Steps *int
}

// Eval returns the value of an expression.
func (env *Env) Eval(e Expr) Value {
	if l, ok := e.node().(*literal); ok {
		return l.v
	}
	c := newContext(env)
	defer c.release()
	return c.finish(c.eval(e.node(), &c.my))
}

// Attr returns the value of an attribute of My.
func (env *Env) Attr(name string) Value {
	if env.My == nil {
		return Value{}
	}
	i := env.My.find(name, hashName(name))
	if i < 0 {
		return Value{}
	}
	if l, ok := env.My.attrs[i].expr.(*literal); ok {
		return l.v
	}
	c := newContext(env)
	defer c.release()
	return c.finish(c.attr(&c.my, i))
}

// Match reports whether My and Target suit each other: the Requirements of
// each are true or a number that is not zero. Missing Requirements are
// undefined and so not satisfied.
func (env *Env) Match() bool {
	if !env.Attr("Requirements").True() {
		return false
	}
	other := *env
	other.My, other.Target = env.Target, env.My
	return other.Attr("Requirements").True()
}

// scope is an ad, and what is around it.
type scope struct {
	ad     *Ad
	parent *scope // the ad that this one is written in
	root   *scope // the outermost one
	other  *scope // of the outermost one: the other side of the match

	foreign bool // the ad is none of this side: its secrets are not seen
}

// find returns the index of an attribute that can be seen, -1 if there is none.
func (s *scope) find(name string, hash uint32, foreign bool) int {
	i := s.ad.find(name, hash)
	if i >= 0 && s.ad.attrs[i].private && (foreign || s.foreign) {
		return -1
	}
	return i
}

// context is one evaluation.
type context struct {
	env        *Env
	my, target scope
	steps      int
	given      int // of those that are shared
	bytes      int
	depth      int
	exhausted  string   // which budget is spent
	active     []active // attributes that are being evaluated
	stack      []Value  // arguments of calls
}

type active struct {
	ad   *Ad
	root *scope
	attr int
}

var contexts = sync.Pool{New: func() any { return new(context) }}

var noAttrs = &Ad{}

func newContext(env *Env) *context {
	c := contexts.Get().(*context)
	c.env = env
	c.steps, c.bytes, c.depth, c.exhausted = maxSteps, maxBytes, 0, ""
	if env.Steps != nil {
		c.steps = min(maxSteps, *env.Steps)
		c.given = c.steps
	}
	c.active, c.stack = c.active[:0], c.stack[:0]
	c.my = scope{ad: noAttrs, root: &c.my}
	if env.My != nil {
		c.my.ad = env.My
	}
	c.target = scope{}
	if env.Target != nil {
		c.target = scope{ad: env.Target, root: &c.target, other: &c.my}
		c.my.other = &c.target
	}
	return c
}

// release gives the context to the next evaluation. The context keeps no ads and
// values, and no memory that an unusual evaluation took.
func (c *context) release() {
	if s := c.env.Steps; s != nil {
		*s -= c.given - max(c.steps, 0)
	}
	const usual = 64
	if cap(c.stack) > usual {
		c.stack = nil
	}
	if cap(c.active) > usual {
		c.active = nil
	}
	clear(c.stack[:cap(c.stack)])
	clear(c.active[:cap(c.active)])
	c.env, c.my, c.target = nil, scope{}, scope{}
	contexts.Put(c)
}

// finish returns a value that no longer needs the context.
func (c *context) finish(v Value) Value {
	v = c.detach(v)
	if c.exhausted != "" {
		return Error(c.exhausted)
	}
	return v
}

func (c *context) detach(v Value) Value {
	switch v.kind {
	case ListKind:
		if !c.enter() {
			return v
		}
		vals := c.elems(v)
		for i := range vals {
			vals[i] = c.detach(vals[i])
		}
		c.depth--
		return List(vals...)
	case AdKind:
		return Value{kind: AdKind, obj: &object{ad: v.obj.ad}}
	}
	return v
}

// enter counts a step that goes deeper, and reports whether there is room.
func (c *context) enter() bool {
	c.depth++
	c.steps--
	if c.steps < 0 {
		c.exhaust("too many steps")
	} else if c.depth > maxDepth {
		c.exhaust("nested too deeply")
	}
	if c.exhausted != "" {
		c.depth--
		return false
	}
	return true
}

func (c *context) exhaust(why string) {
	if c.exhausted == "" {
		c.exhausted = why
	}
}

// scan pays for looking at n bytes, and reports whether it could.
func (c *context) scan(n int) bool {
	c.steps -= n >> 5
	if c.steps < 0 {
		c.exhaust("too many steps")
	}
	return c.exhausted == ""
}

// alloc pays for making n bytes, and reports whether it could.
func (c *context) alloc(n int) bool {
	c.bytes -= n
	if c.bytes < 0 {
		c.exhaust("too much memory")
	}
	return c.scan(n)
}

// spent is the value of what could not be paid for.
func (c *context) spent() Value { return Error(c.exhausted) }

// eval returns the value of a node in a scope.
func (c *context) eval(n node, s *scope) Value {
	if l, ok := n.(*literal); ok {
		return l.v
	}
	if !c.enter() {
		return c.spent()
	}
	v := c.evalNode(n, s)
	c.depth--
	return v
}

func (c *context) evalNode(n node, s *scope) Value {
	switch n := n.(type) {
	case *ref:
		return c.ref(n, s)
	case *binary:
		return c.binary(n, s)
	case *unary:
		return c.unary(n.op, c.eval(n.x, s))
	case *conditional:
		return c.conditional(n, s)
	case *call:
		return c.call(n, s)
	case *selection:
		return c.selection(n, s)
	case *subscript:
		return c.subscript(n, s)
	case *listNode:
		return Value{kind: ListKind, obj: &object{elems: n.elems, scope: s}}
	case *adNode:
		return adValue(&scope{ad: n.ad, parent: s, root: s.root})
	}
	return Value{}
}

// ref returns the value of a reference.
func (c *context) ref(n *ref, s *scope) Value {
	switch n.in {
	case inMy:
		return c.in(s, n)
	case inRoot:
		return c.in(s.root, n)
	case inTarget:
		return c.in(s.root.other, n)
	case inParent:
		return c.in(s.parent, n)
	}
	return c.lookup(s, n.name, n.hash, false)
}

// in returns the value of an attribute of one ad only.
func (c *context) in(s *scope, n *ref) Value {
	switch {
	case s == nil:
		return Value{}
	case n.name == "":
		return adValue(s)
	}
	i := s.find(n.name, n.hash, n.in == inTarget)
	if i < 0 {
		return c.currentTime(n.name)
	}
	return c.attr(s, i)
}

// lookup returns the value of an attribute of an ad, of those around it, or of the
// other side.
func (c *context) lookup(s *scope, name string, hash uint32, foreign bool) Value {
	t, i := c.place(s, name, hash, foreign)
	if i < 0 {
		return c.currentTime(name)
	}
	return c.attr(t, i)
}

// place returns the ad in which lookup finds an attribute, and the index there.
func (c *context) place(s *scope, name string, hash uint32, foreign bool) (*scope, int) {
	for t := s; t != nil; t = t.parent {
		if i := t.find(name, hash, foreign); i >= 0 {
			return t, i
		}
		c.steps--
	}
	if t := s.root.other; t != nil {
		return t, t.find(name, hash, true)
	}
	return nil, -1
}

// currentTime is the one attribute that every ad has.
func (c *context) currentTime(name string) Value {
	if equalFold(name, "CurrentTime") {
		return c.now()
	}
	return Value{}
}

func (c *context) now() Value {
	if c.env.Now.IsZero() {
		return Error("no clock")
	}
	return Int(c.env.Now.Unix())
}

// attr returns the value of an attribute. One that needs itself is an error.
func (c *context) attr(s *scope, i int) Value {
	expr := s.ad.attrs[i].expr
	if l, ok := expr.(*literal); ok {
		return l.v
	}
	a := active{s.ad, s.root, i}
	if slices.Contains(c.active, a) {
		return Error("circular reference to " + s.ad.attrs[i].name)
	}
	c.steps -= len(c.active) >> 4
	c.active = append(c.active, a)
	v := c.eval(expr, s)
	c.active = c.active[:len(c.active)-1]
	return v
}

// conditional evaluates a chain of ?: without going deeper.
func (c *context) conditional(n *conditional, s *scope) Value {
	for {
		var next node
		cond := c.eval(n.cond, s)
		switch cond.truth() {
		case truthTrue:
			next = n.yes
		case truthFalse:
			next = n.no
		case truthUndefined:
			return Value{}
		default:
			return needs("condition", cond)
		}
		chain, ok := next.(*conditional)
		if !ok {
			return c.eval(next, s)
		}
		n = chain
		if c.steps--; c.steps < 0 {
			c.exhaust("too many steps")
			return c.spent()
		}
	}
}

func (c *context) binary(n *binary, s *scope) Value {
	v := c.eval(n.x, s)
	switch n.op {
	case opAnd:
		return c.logical(n, s, v, truthFalse, truthTrue)
	case opOr:
		return c.logical(n, s, v, truthTrue, truthFalse)
	case opElvis:
		if v.kind == UndefinedKind {
			v = c.eval(n.y, s)
		}
		for i := 0; i < len(n.more) && v.kind == UndefinedKind; i++ {
			v = c.eval(n.more[i].y, s)
		}
		return v
	}
	v = c.operate(n.op, v, c.eval(n.y, s))
	for _, t := range n.more {
		if c.exhausted != "" {
			break
		}
		c.steps--
		v = c.operate(t.op, v, c.eval(t.y, s))
	}
	return v
}

// logical combines operands from the left, up to the first that decides. An error
// to the left of that one makes the whole an error.
func (c *context) logical(n *binary, s *scope, v Value, decides, neutral truth) Value {
	acc := v.truth()
	for i := -1; i < len(n.more); i++ {
		if acc == decides || acc == truthError {
			break
		}
		y := n.y
		if i >= 0 {
			y = n.more[i].y
			c.steps--
		}
		v = c.eval(y, s)
		if r := v.truth(); acc == neutral || r != neutral {
			acc = r
		}
	}
	switch acc {
	case truthUndefined:
		return Value{}
	case truthError:
		if v.kind == ErrorKind {
			return v
		}
		return Error(v.kind.String() + " is not a condition")
	}
	return Bool(acc == truthTrue)
}

func (c *context) selection(n *selection, s *scope) Value {
	v := c.eval(n.of, s)
	if v.kind != ListKind {
		return c.selected(v, n, s)
	}
	vals := c.elems(v)
	for i := range vals {
		vals[i] = c.selected(vals[i], n, s)
	}
	return List(vals...)
}

func (c *context) selected(v Value, n *selection, s *scope) Value {
	switch v.kind {
	case UndefinedKind, ErrorKind:
		return v
	case AdKind:
		return c.lookup(v.obj.scope, n.name, n.hash, v.foreign(s))
	}
	return Error("a " + v.kind.String() + " has no attributes")
}

// foreign reports whether an ad is not of the side that looks at it.
func (v Value) foreign(s *scope) bool { return v.obj.scope.root != s.root }

func (c *context) subscript(n *subscript, s *scope) Value {
	v, index := c.eval(n.of, s), c.eval(n.index, s)
	switch {
	case v.kind == UndefinedKind || v.kind == ErrorKind:
		return v
	case index.kind == UndefinedKind || index.kind == ErrorKind:
		return index
	case v.kind == ListKind && index.kind == IntKind:
		if i := int64(index.num); 0 <= i && i < int64(listLen(v)) {
			return c.elem(v, int(i))
		}
		return Error("no such element")
	case v.kind == AdKind && index.kind == StringKind:
		if !c.scan(len(index.str)) {
			return c.spent()
		}
		return c.lookup(v.obj.scope, index.str, hashName(index.str), v.foreign(s))
	}
	return Error("cannot index " + v.kind.String() + " by " + index.kind.String())
}

func listLen(v Value) int {
	if v.obj.vals != nil {
		return len(v.obj.vals)
	}
	return len(v.obj.elems)
}

// elem returns an element of a list.
func (c *context) elem(v Value, i int) Value {
	c.steps--
	if v.obj.vals != nil {
		return v.obj.vals[i]
	}
	return c.eval(v.obj.elems[i], v.obj.scope)
}

// elems returns all elements of a list in a slice of its own.
func (c *context) elems(v Value) []Value {
	n := listLen(v)
	if !c.alloc(n * valueSize) {
		return []Value{}
	}
	vals := make([]Value, n)
	for i := range vals {
		vals[i] = c.elem(v, i)
	}
	return vals
}
