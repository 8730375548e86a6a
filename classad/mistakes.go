package classad

import "slices"

// Mistakes returns the errors that parts of the expression are whatever the ads and
// the time are, each once and in the words of Value.Reason: a function that does not
// exist, a wrong number of arguments, a pattern or a string to evaluate that cannot be
// read. The expression itself may have a value, where other parts decide it.
func (e Expr) Mistakes() []string {
	var m mistakes
	m.node(e.node(), 0)
	return m.found
}

type mistakes struct{ found []string }

func (m *mistakes) add(why string) {
	if why = Error(why).Reason(); !slices.Contains(m.found, why) {
		m.found = append(m.found, why)
	}
}

// node looks at a node. within counts the strings that it is written in, each of
// which is shorter than the one around it.
func (m *mistakes) node(n node, within int) {
	if n, ok := n.(*call); ok {
		m.call(n, within)
	}
	children(n, func(part node) { m.node(part, within) })
}

func (m *mistakes) call(n *call, within int) {
	if wrong := n.uncallable(); wrong != "" {
		m.add(wrong)
		return
	}
	if len(n.args) == 0 {
		return
	}
	l, ok := n.args[0].(*literal)
	if !ok || l.v.kind != StringKind {
		return
	}
	const maxWithin = 10
	switch {
	case n.fn.pattern:
		if p := newPattern(l.v.str, ""); p.err != "" {
			m.add(p.err)
		}
	case n.fn == lookupFunction("eval") && within < maxWithin:
		if e, err := Parse(l.v.str); err != nil {
			m.add(err.Error())
		} else {
			m.node(e.root, within+1)
		}
	}
}
