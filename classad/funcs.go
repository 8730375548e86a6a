package classad

import "strings"

// function is a built-in function. A call with the wrong number of arguments is an
// error, and its arguments are not evaluated.
type function struct {
	least, most int  // most -1: any number
	pattern     bool // the first argument is a pattern
	clock       bool // without arguments its value depends on the time
	strict      func(c *context, args []Value) Value
	lazy        func(c *context, s *scope, args []node) Value
}

var functions map[string]*function

const longestName = 32

func lookupFunction(name string) *function {
	var buf [longestName]byte
	if len(name) > len(buf) {
		return nil
	}
	for i := range len(name) {
		buf[i] = lower(name[i])
	}
	return functions[string(buf[:len(name)])]
}

// The table is filled at the start, since its functions call eval, which uses it.
func init() {
	functions = make(map[string]*function, 100)
	for _, add := range []func(map[string]*function){
		typeFunctions, numberFunctions, listFunctions, stringFunctions,
		stringListFunctions, regexpFunctions, timeFunctions, envFunctions,
	} {
		add(functions)
	}
	for name, f := range functions {
		if lowered := strings.ToLower(name); lowered != name {
			delete(functions, name)
			functions[lowered] = f
		}
	}
}

// uncallable returns why a call is an error whatever its arguments are, or "".
func (n *call) uncallable() string {
	switch {
	case n.fn == nil:
		return "no function " + n.name
	case len(n.args) < n.fn.least || n.fn.most >= 0 && len(n.args) > n.fn.most:
		return "wrong number of arguments to " + n.name
	}
	return ""
}

// call calls a function.
func (c *context) call(n *call, s *scope) Value {
	fn := n.fn
	if wrong := n.uncallable(); wrong != "" {
		return Error(wrong)
	}
	if fn.lazy != nil {
		return fn.lazy(c, s, n.args)
	}
	bottom := len(c.stack)
	for _, a := range n.args {
		v := c.eval(a, s)
		c.stack = append(c.stack, v)
	}
	v := fn.strict(c, c.stack[bottom:])
	c.stack = c.stack[:bottom]
	if c.exhausted != "" {
		return c.spent()
	}
	return v
}

// firstOf returns the first argument that is undefined, or else an error.
func firstOf(args []Value) (Value, bool) {
	for _, a := range args {
		if a.kind == UndefinedKind {
			return a, true
		}
	}
	for _, a := range args {
		if a.kind == ErrorKind {
			return a, true
		}
	}
	return Value{}, false
}

// needs is the error of a function that got the wrong kind of value, or the
// error that it got.
func needs(what string, got Value) Value {
	if got.kind == ErrorKind {
		return got
	}
	return Error(got.kind.String() + " is no " + what)
}

func typeFunctions(m map[string]*function) {
	for name, kind := range map[string]Kind{
		"isUndefined": UndefinedKind,
		"isError":     ErrorKind,
		"isString":    StringKind,
		"isInteger":   IntKind,
		"isReal":      RealKind,
		"isList":      ListKind,
		"isClassAd":   AdKind,
		"isBoolean":   BoolKind,
		"isAbsTime":   AbsTimeKind,
		"isRelTime":   RelTimeKind,
	} {
		m[name] = &function{least: 1, most: 1, strict: func(_ *context, args []Value) Value {
			return Bool(args[0].kind == kind)
		}}
	}
	m["ifThenElse"] = &function{least: 3, most: 3, lazy: ifThenElse}
	m["eval"] = &function{least: 1, most: 1, lazy: evalString}
	m["unparse"] = &function{least: 1, most: 1, lazy: unparse}
	m["unresolved"] = &function{least: 1, most: 2, lazy: unresolved}
	// debug logs nothing: the log of a daemon is not for whoever wrote the ad.
	m["debug"] = &function{least: 1, most: 1, strict: func(_ *context, args []Value) Value { return args[0] }}
	m["evalInEachContext"] = &function{least: 2, most: 2, lazy: evalInEachContext}
	m["countMatches"] = &function{least: 2, most: 2, lazy: countMatches}
	m["slotEval"] = &function{least: 2, most: 2, lazy: slotEval}
}

// slotEval returns an attribute of another slot, as the own ad has it:
// SlotEval("slot2", State) is slot2_State.
func slotEval(c *context, s *scope, args []node) Value {
	slot := c.eval(args[0], s)
	if slot.kind != StringKind {
		return needs("string", slot)
	}
	attr, ok := args[1].(*ref)
	if !ok || attr.name == "" || attr.in != anywhere && attr.in != inMy {
		return Error("SlotEval needs an attribute")
	}
	name := ofSlot(slot.str, attr)
	if !c.alloc(len(name)) {
		return c.spent()
	}
	// The other ad is not asked: its author could invent slots.
	if i := s.root.find(name, hashName(name), false); i >= 0 {
		return c.attr(s.root, i)
	}
	return Value{}
}

// ofSlot returns the name that an attribute of another slot has in the own ad. The
// slot may be named with its host.
func ofSlot(slot string, attr *ref) string {
	slot, _, _ = strings.Cut(slot, "@")
	return slot + "_" + attr.name
}

func ifThenElse(c *context, s *scope, args []node) Value {
	v := c.eval(args[0], s)
	switch v.truth() {
	case truthTrue:
		return c.eval(args[1], s)
	case truthFalse:
		return c.eval(args[2], s)
	case truthUndefined:
		return Value{}
	}
	return needs("condition", v)
}

// evalString evaluates the expression in a string. Other values stay as they are.
func evalString(c *context, s *scope, args []node) Value {
	v := c.eval(args[0], s)
	if v.kind != StringKind {
		return v
	}
	// Parsing takes a little time and far more memory than the text.
	if !c.alloc(len(v.str)) || !c.scan(8*len(v.str)) {
		return c.spent()
	}
	e, err := Parse(v.str)
	if err != nil {
		return Error(err.Error())
	}
	return c.eval(e.root, s)
}

// attribute returns the expression of the attribute that a node refers to, nil if
// there is no such attribute. ok is false if the node is no reference.
func (c *context) attribute(n node, s *scope) (in *scope, expr node, ok bool) {
	r, ok := n.(*ref)
	if !ok || r.name == "" {
		return nil, nil, false
	}
	i := -1
	switch r.in {
	case anywhere:
		in, i = c.place(s, r.name, r.hash, false)
	case inMy:
		in = s
	case inRoot:
		in = s.root
	case inTarget:
		in = s.root.other
	case inParent:
		in = s.parent
	}
	if in != nil && r.in != anywhere {
		i = in.find(r.name, r.hash, r.in == inTarget)
	}
	if i < 0 {
		return nil, nil, true
	}
	return in, in.ad.attrs[i].expr, true
}

func unparse(c *context, s *scope, args []node) Value {
	_, expr, ok := c.attribute(args[0], s)
	if !ok {
		return Error("unparse needs an attribute")
	}
	if expr == nil {
		return String("")
	}
	return c.text(Expr{expr}.String())
}

// text returns a string that a function has made, and pays for it.
func (c *context) text(s string) Value {
	if !c.alloc(len(s)) {
		return c.spent()
	}
	return String(s)
}

// unresolved lists the attributes that another one refers to and its ad does
// not have, or tells whether one of them matches a pattern.
func unresolved(c *context, s *scope, args []node) Value {
	in, expr, ok := c.attribute(args[0], s)
	if !ok {
		return Error("unresolved needs an attribute")
	}
	if expr == nil {
		return Value{}
	}
	w := walker{my: in.ad, steps: c.steps}
	names := w.walk(expr).Target
	if c.steps = w.steps; !c.scan(0) {
		return c.spent()
	}
	if len(args) == 1 {
		return c.text(strings.Join(names, ","))
	}
	pattern := c.eval(args[1], s)
	if pattern.kind != StringKind {
		return needs("pattern", pattern)
	}
	for _, name := range names {
		if v := c.matches(pattern.str, name, ""); v.kind == ErrorKind || v.num != 0 {
			return v
		}
	}
	return Bool(false)
}

// meant returns what the first argument of evalInEachContext and countMatches stands
// for, and the ad that it is written in. The name of an attribute stands for its
// expression, so that RequireGPUs of a job is asked of each GPU of a slot. Anything
// else stands for itself.
func (c *context) meant(n node, s *scope) (node, *scope) {
	if in, expr, ok := c.attribute(n, s); ok && expr != nil {
		return expr, in
	}
	return n, s
}

// inContext evaluates a node in the ad v, in which names are looked for first.
func (c *context) inContext(n node, v Value, s *scope) Value {
	foreign := v.foreign(s) || v.obj.scope.foreign
	return c.eval(n, &scope{ad: v.obj.ad, parent: s, root: s.root, foreign: foreign})
}

func evalInEachContext(c *context, s *scope, args []node) Value {
	list := c.eval(args[1], s)
	switch list.kind {
	case UndefinedKind:
		return list
	case ListKind:
	default:
		return needs("list", list)
	}
	vals := c.elems(list)
	expr, in := c.meant(args[0], s)
	for i, v := range vals {
		switch v.kind {
		case UndefinedKind:
		case AdKind:
			vals[i] = c.inContext(expr, v, in)
		default:
			vals[i] = needs("ad", v)
		}
	}
	return List(vals...)
}

func countMatches(c *context, s *scope, args []node) Value {
	list := c.eval(args[1], s)
	switch list.kind {
	case UndefinedKind:
		return Int(0)
	case AdKind:
		list = List(list)
	case ListKind:
	default:
		return needs("list", list)
	}
	count := 0
	expr, in := c.meant(args[0], s)
	for i := range listLen(list) {
		if v := c.elem(list, i); v.kind == AdKind && c.inContext(expr, v, in).True() {
			count++
		}
	}
	return Int(int64(count))
}
