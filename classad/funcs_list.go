package classad

func listFunctions(m map[string]*function) {
	m["sum"] = &function{least: 1, most: 1, strict: sum}
	m["avg"] = &function{least: 1, most: 1, strict: avg}
	m["min"] = &function{least: 1, most: 1, strict: extreme(opLess)}
	m["max"] = &function{least: 1, most: 1, strict: extreme(opGreater)}
	m["member"] = &function{least: 2, most: 2, strict: member(opEqual)}
	m["identicalMember"] = &function{least: 2, most: 2, strict: member(opIs)}
	m["anyCompare"] = &function{least: 3, most: 3, strict: compareAll(true)}
	m["allCompare"] = &function{least: 3, most: 3, strict: compareAll(false)}
	m["size"] = &function{least: 1, most: 1, strict: size}
}

// numbers returns the elements of a list that are not undefined, or why they
// are not all numbers.
func (c *context) numbers(list Value) (vals []Value, wrong Value) {
	if list.kind != ListKind {
		if list.kind == UndefinedKind {
			return nil, Value{}
		}
		return nil, needs("list", list)
	}
	all := c.elems(list)
	vals = all[:0]
	for _, v := range all {
		if v.kind == UndefinedKind {
			continue
		}
		if _, ok := v.Number(); !ok {
			return nil, needs("number", v)
		}
		vals = append(vals, v)
	}
	return vals, Value{}
}

// add adds numbers, as a real if one of them is.
func add(vals []Value) Value {
	total := Int(0)
	for _, v := range vals {
		total = arithmetic(opAdd, total, v)
	}
	return total
}

func sum(c *context, args []Value) Value {
	vals, wrong := c.numbers(args[0])
	if vals == nil || len(vals) == 0 && listLen(args[0]) > 0 {
		return wrong
	}
	return add(vals)
}

func avg(c *context, args []Value) Value {
	vals, wrong := c.numbers(args[0])
	if vals == nil || len(vals) == 0 && listLen(args[0]) > 0 {
		return wrong
	}
	if len(vals) == 0 {
		return Int(0)
	}
	return average(vals)
}

func average(vals []Value) Value {
	if len(vals) == 0 {
		return Real(0)
	}
	total, ok := add(vals).Number()
	if !ok {
		return Error("number too large")
	}
	return Real(total / float64(len(vals)))
}

func extreme(o op) func(*context, []Value) Value {
	return func(c *context, args []Value) Value {
		vals, wrong := c.numbers(args[0])
		if len(vals) == 0 {
			return wrong
		}
		return most(o, vals)
	}
}

// most returns the least or the greatest number, as a real if one of them is.
func most(o op, vals []Value) Value {
	best, mixed := vals[0], false
	b, _ := best.Number()
	for _, v := range vals {
		mixed = mixed || v.kind == RealKind
		n, _ := v.Number()
		if o == opLess && n < b || o == opGreater && n > b {
			best, b = v, n
		}
	}
	if mixed {
		return Real(b)
	}
	return best
}

func scalar(v Value) bool { return v.kind != ListKind && v.kind != AdKind && v.kind != ErrorKind }

func member(o op) func(*context, []Value) Value {
	return func(c *context, args []Value) Value {
		x, list := args[0], args[1]
		switch {
		case list.kind == UndefinedKind || x.kind == UndefinedKind && o == opEqual:
			return Value{}
		case list.kind != ListKind:
			return needs("list", list)
		case !scalar(x):
			return needs("scalar", x)
		}
		for i := range listLen(list) {
			if c.operate(o, c.elem(list, i), x).True() {
				return Bool(true)
			}
		}
		return Bool(false)
	}
}

var comparisons = map[string]op{
	"<": opLess, "<=": opLessEqual, ">": opGreater, ">=": opGreaterEqual, "==": opEqual, "!=": opNotEqual,
	"is": opIs, "=?=": opIs, "isnt": opIsnt, "=!=": opIsnt,
}

// compareAll returns a function that tells whether a comparison holds for one
// element, or for all.
func compareAll(one bool) func(*context, []Value) Value {
	return func(c *context, args []Value) Value {
		name, list, x := args[0], args[1], args[2]
		o, ok := comparisons[name.str]
		switch {
		case list.kind == UndefinedKind || name.kind == UndefinedKind:
			return Value{}
		case name.kind != StringKind || !ok:
			return needs("comparison", name)
		case list.kind != ListKind:
			return needs("list", list)
		case !scalar(x):
			return needs("scalar", x)
		}
		for i := range listLen(list) {
			if c.operate(o, c.elem(list, i), x).True() == one {
				return Bool(one)
			}
		}
		return Bool(!one)
	}
}

func size(_ *context, args []Value) Value {
	switch v := args[0]; v.kind {
	case UndefinedKind, ErrorKind:
		return v
	case StringKind:
		return Int(int64(len(v.str)))
	case ListKind:
		return Int(int64(listLen(v)))
	case AdKind:
		return Int(int64(v.obj.ad.Len()))
	default:
		return Error("a " + v.kind.String() + " has no size")
	}
}
