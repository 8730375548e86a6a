package classad

import (
	"slices"
	"strings"
)

// References is what the value of an expression depends on besides itself.
type References struct {
	// My and Target are the attributes that are looked for in the own ad and
	// in the other one, sorted, each in one spelling, with those that the
	// attributes found refer to in their turn. A name without prefix is one of
	// My if the own ad has it, and else one of Target.
	My, Target []string

	Time   bool // it changes with the time
	Random bool // it is another one each time
	Any    bool // it may depend on any attribute and the time, as eval of a computed string does
}

// References returns what the expression refers to, directly and through the
// attributes of the two ads, either of which may be nil. Any is set where that is more
// than one evaluation would look at, as a hostile ad may have it.
func (e Expr) References(my, target *Ad) References {
	w := walker{my: my, target: target, steps: maxSteps}
	found := w.walk(e.node())
	if w.steps < 0 {
		found.Any, found.Time = true, true
	}
	return found
}

// Constant reports whether the value depends on nothing at all.
func (r References) Constant() bool {
	return !r.Time && !r.Random && !r.Any && len(r.My) == 0 && len(r.Target) == 0
}

// And returns what either of two expressions refers to, in no order, and what both do twice.
func (r References) And(other References) References {
	return References{
		My: slices.Concat(r.My, other.My), Target: slices.Concat(r.Target, other.Target),
		Time: r.Time || other.Time, Random: r.Random || other.Random, Any: r.Any || other.Any,
	}
}

// Has reports whether an attribute of this name matters, in whichever ad.
func (r References) Has(name string) bool {
	is := func(n string) bool { return equalFold(n, name) }
	return r.Any || slices.ContainsFunc(r.My, is) || slices.ContainsFunc(r.Target, is)
}

// walker goes through expressions and the attributes that they refer to. These
// wait in a queue: a long chain of them is not deep.
type walker struct {
	my, target *Ad
	steps      int
	found      References
	seen       [2]map[string]bool // by lower case names
	queue      []pending
}

// pending is an attribute to be walked. swapped says that it is one of target,
// for which the ads are the other way round.
type pending struct {
	expr    node
	swapped bool
}

// around is a list of the ads that an expression is written in, within that of its
// side.
type around struct {
	ad      *Ad
	parent  *around
	swapped bool
}

func (w *walker) walk(n node) References {
	w.seen = [2]map[string]bool{{}, {}}
	w.queue = []pending{{n, false}}
	for len(w.queue) > 0 && w.steps >= 0 {
		next := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		w.node(next.expr, &around{swapped: next.swapped})
	}
	byName := func(a, b string) int { return compareFold(a, b) }
	slices.SortFunc(w.found.My, byName)
	slices.SortFunc(w.found.Target, byName)
	return w.found
}

func (w *walker) node(n node, a *around) {
	if w.steps--; w.steps < 0 {
		return
	}
	switch n := n.(type) {
	case *ref:
		w.ref(n, a)
	case *call:
		if n.fn != nil && n.fn == lookupFunction("slotEval") {
			w.slotEval(n, a)
			return
		}
		w.call(n, a)
	case *adNode:
		a = &around{ad: n.ad, parent: a, swapped: a.swapped}
	case *selection:
		if equalFold(n.name, "CurrentTime") {
			w.found.Time = true
		}
	}
	children(n, func(part node) { w.node(part, a) })
}

func (w *walker) call(n *call, a *around) {
	switch {
	case n.fn == nil:
	case n.fn.clock && len(n.args) == 0:
		w.found.Time = true
	case n.fn == lookupFunction("random"):
		w.found.Random = true
	case n.fn == lookupFunction("eval"):
		w.eval(n, a)
	}
}

// slotEval notes the attribute of the own ad that stands for one of another slot.
func (w *walker) slotEval(n *call, a *around) {
	if len(n.args) != 2 {
		return
	}
	w.node(n.args[0], a)
	l, named := n.args[0].(*literal)
	attr, ok := n.args[1].(*ref)
	switch {
	case !ok || named && l.v.kind != StringKind:
	case !named:
		w.found.Any = true
	default:
		name := ofSlot(l.v.str, attr)
		w.attr(&ref{name: name, hash: hashName(name), in: inRoot}, a.swapped)
	}
}

// eval walks the expression in a string that is a literal.
func (w *walker) eval(n *call, a *around) {
	if len(n.args) != 1 {
		return
	}
	l, ok := n.args[0].(*literal)
	if !ok {
		w.found.Any, w.found.Time = true, true
		return
	}
	if l.v.kind == StringKind {
		w.steps -= len(l.v.str)
		if e, err := Parse(l.v.str); err == nil {
			w.node(e.root, a)
		}
	}
}

func (w *walker) ref(n *ref, a *around) {
	if n.name == "" {
		// Whoever has an ad as a whole may look at any attribute of it.
		w.found.Any = true
		return
	}
	switch n.in {
	case anywhere, inParent:
		inner := a
		if n.in == inParent && a.parent != nil {
			inner = a.parent
		}
		for ; inner.parent != nil; inner = inner.parent {
			if w.steps--; inner.ad.find(n.name, n.hash) >= 0 {
				return // walked with the ad
			}
		}
		w.outer(n, a.swapped, n.in == anywhere)
	case inMy:
		// An attribute of an ad within the ad is walked with that.
		if a.parent == nil {
			w.attr(n, a.swapped)
		}
	case inRoot:
		w.attr(n, a.swapped)
	case inTarget:
		w.attr(n, !a.swapped)
	}
}

// outer notes a reference without prefix to an attribute that the ads in between do
// not have.
func (w *walker) outer(n *ref, swapped, fallback bool) {
	own := w.side(swapped)
	if fallback && (own == nil || own.find(n.name, n.hash) < 0) {
		swapped = !swapped
	}
	w.attr(n, swapped)
}

func (w *walker) side(swapped bool) *Ad {
	if swapped {
		return w.target
	}
	return w.my
}

// attr notes a reference to an attribute of one side.
func (w *walker) attr(n *ref, swapped bool) {
	side, list := 0, &w.found.My
	if swapped {
		side, list = 1, &w.found.Target
	}
	key := strings.ToLower(n.name)
	if w.seen[side][key] {
		return
	}
	ad := w.side(swapped)
	i := -1
	if ad != nil {
		i = ad.find(n.name, n.hash)
	}
	if i < 0 && key == "currenttime" {
		w.found.Time = true
		return
	}
	w.seen[side][key] = true
	*list = append(*list, n.name)
	if i >= 0 {
		w.queue = append(w.queue, pending{ad.attrs[i].expr, swapped})
	}
}
