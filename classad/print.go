package classad

import (
	"math"
	"strconv"
	"strings"
)

// String returns the expression in new syntax.
func (e Expr) String() string { return string((&printer{}).node(nil, e.node(), 0)) }

// OldString returns the expression in old syntax, on one line.
func (e Expr) OldString() string {
	return string((&printer{old: true, short: true}).line(nil, e.node()))
}

// String returns the value as an expression has it, for people.
func (v Value) String() string { return string((&printer{short: true}).value(nil, v)) }

// String returns the ad in new syntax, without its secrets.
func (ad *Ad) String() string { return string((&printer{}).ad(nil, ad)) }

// OldString returns the ad in old syntax, a line for each attribute, without
// its secrets.
func (ad *Ad) OldString() string { return string(ad.appendOld(nil, false)) }

// SecretString is OldString with the secrets: for the peer that is to have them.
func (ad *Ad) SecretString() string { return string(ad.appendOld(nil, true)) }

func (ad *Ad) appendOld(b []byte, secrets bool) []byte {
	p := &printer{old: true, short: true, secrets: secrets}
	for i := range ad.attrs {
		if a := &ad.attrs[i]; secrets || !a.private {
			b = append(p.name(b, a.name), " = "...)
			b = append(p.line(b, a.expr), '\n')
		}
	}
	return b
}

// printer appends text. Old syntax has one escape in strings, \", and so
// cannot have all of them: see string.
type printer struct {
	old, secrets bool
	short        bool // reals as in old syntax, though the rest is new
}

// line appends an expression that ends a line.
func (p *printer) line(b []byte, n node) []byte {
	if l, ok := n.(*literal); ok && l.v.kind == StringKind && strings.HasSuffix(l.v.str, `\`) && !strings.ContainsAny(l.v.str, lineBreaks) {
		return quoteOld(b, l.v.str)
	}
	return p.node(b, n, 0)
}

// node appends a node, in parentheses if it does not hold together as tightly
// as it has to.
func (p *printer) node(b []byte, n node, least int) []byte {
	if level(n) < least {
		return append(p.node(append(b, '('), n, 0), ')')
	}
	switch n := n.(type) {
	case *literal:
		return p.value(b, n.v)
	case *ref:
		return p.ref(b, n)
	case *selection:
		return p.name(append(p.selected(b, n.of), '.'), n.name)
	case *subscript:
		b = append(p.node(b, n.of, levelPostfix), '[')
		return append(p.node(b, n.index, 0), ']')
	case *unary:
		return p.unary(b, n)
	case *binary:
		return p.binary(b, n)
	case *conditional:
		return p.conditional(b, n)
	case *call:
		return append(p.nodes(append(append(b, n.name...), '('), n.args), ')')
	case *listNode:
		return p.list(b, n.elems)
	case *adNode:
		return p.ad(b, n.ad)
	}
	return b
}

// selected appends what a dot follows: behind a number it would be its point.
func (p *printer) selected(b []byte, n node) []byte {
	least := levelPostfix
	if l, ok := n.(*literal); ok && l.v.kind != StringKind {
		least++
	}
	return p.node(b, n, least)
}

func (p *printer) ref(b []byte, n *ref) []byte {
	prefix := whereNames[n.in]
	if n.name == "" {
		return append(b, strings.TrimSuffix(prefix, ".")...)
	}
	return p.name(append(b, prefix...), n.name)
}

func (p *printer) unary(b []byte, n *unary) []byte {
	b = append(b, ops[n.op].text...)
	// -5 is a number, - -5 is not.
	if l, ok := n.x.(*literal); ok && n.op == opMinus && negative(l.v) {
		b = append(b, ' ')
	}
	return p.node(b, n.x, levelUnary)
}

func (p *printer) binary(b []byte, n *binary) []byte {
	l := ops[n.op].level
	left, right := l, l+1
	if n.op == opElvis {
		left, right = levelPostfix, levelPostfix
	}
	b = p.node(b, n.x, left)
	b = p.node(p.op(b, n.op), n.y, right)
	for _, t := range n.more {
		b = p.node(p.op(b, t.op), t.y, right)
	}
	return b
}

func (p *printer) op(b []byte, o op) []byte {
	return append(append(append(b, ' '), ops[o].text...), ' ')
}

func (p *printer) conditional(b []byte, n *conditional) []byte {
	for {
		b = append(p.node(b, n.cond, levelOr), " ? "...)
		b = append(p.node(b, n.yes, 0), " : "...)
		next, ok := n.no.(*conditional)
		if !ok {
			return p.node(b, n.no, 0)
		}
		n = next
	}
}

func (p *printer) nodes(b []byte, nodes []node) []byte {
	for i, n := range nodes {
		if i > 0 {
			b = append(b, ',')
		}
		b = p.node(b, n, 0)
	}
	return b
}

func (p *printer) list(b []byte, elems []node) []byte {
	return append(p.nodes(append(b, "{ "...), elems), " }"...)
}

func (p *printer) ad(b []byte, ad *Ad) []byte {
	b = append(b, '[')
	sep := " "
	if len(ad.attrs) == 0 {
		b = append(b, ' ')
	}
	for i := range ad.attrs {
		a := &ad.attrs[i]
		if a.private && !p.secrets {
			continue
		}
		b = append(p.name(append(b, sep...), a.name), " = "...)
		b = p.node(b, a.expr, 0)
		sep = "; "
	}
	return append(b, " ]"...)
}

// name appends a name, in quotes if it is not a plain one.
func (p *printer) name(b []byte, name string) []byte {
	plain := name != "" && letter(name[0])
	for i := 0; plain && i < len(name); i++ {
		plain = letter(name[i]) || digit(name[i])
	}
	if plain && len(name) <= len("undefined") {
		kind, _ := keyword(name)
		plain = kind == tokName && scopeName(name) == anywhere
	}
	if plain {
		return append(b, name...)
	}
	return quote(b, name, '\'')
}

func (p *printer) value(b []byte, v Value) []byte {
	switch v.kind {
	case UndefinedKind:
		return append(b, "undefined"...)
	case ErrorKind:
		return append(b, "error"...)
	case BoolKind:
		return strconv.AppendBool(b, v.num != 0)
	case IntKind:
		return strconv.AppendInt(b, int64(v.num), 10)
	case RealKind:
		return p.real(b, v.real())
	case StringKind:
		return p.string(b, v.str)
	case ListKind:
		return p.node(b, v.Expr().root, 0)
	case AdKind:
		return p.ad(b, v.obj.ad)
	case AbsTimeKind:
		b = append(b, `absTime("`...)
		return append(appendAbsTime(b, v), `")`...)
	}
	b = append(b, `relTime("`...)
	return append(appendRelTime(b, v.real()), `")`...)
}

// real appends a real in the form of %.15E of printf(3) or, in old syntax, %.16G: with
// a point or an exponent, and with one more digit if it would otherwise be read as
// another number.
func (p *printer) real(b []byte, r float64) []byte {
	switch {
	case math.IsNaN(r):
		return append(b, `real("NaN")`...)
	case math.IsInf(r, 1):
		return append(b, `real("INF")`...)
	case math.IsInf(r, -1):
		return append(b, `real("-INF")`...)
	case r == 0:
		return strconv.AppendFloat(b, r, 'f', 1, 64)
	}
	start := len(b)
	for digits := 16; ; digits++ {
		if p.short {
			b = appendG(b[:start], r, digits)
		} else {
			b = strconv.AppendFloat(b[:start], r, 'E', digits-1, 64)
		}
		if back, err := strconv.ParseFloat(string(b[start:]), 64); digits == 17 || err == nil && back == r {
			return b
		}
	}
}

// appendG appends a number in the form of %.*G of printf(3).
func appendG(b []byte, r float64, digits int) []byte {
	start := len(b)
	b = strconv.AppendFloat(b, r, 'E', digits-1, 64)
	e := start + strings.IndexByte(string(b[start:]), 'E')
	exp, _ := strconv.Atoi(string(b[e+1:]))
	if -5 < exp && exp < digits {
		b = strconv.AppendFloat(b[:start], r, 'f', digits-1-exp, 64)
		if strings.IndexByte(string(b[start:]), '.') < 0 {
			return append(b, ".0"...)
		}
		for b[len(b)-1] == '0' {
			b = b[:len(b)-1]
		}
		if b[len(b)-1] == '.' {
			b = append(b, '0')
		}
		return b
	}
	m := e
	for b[m-1] == '0' {
		m--
	}
	if b[m-1] == '.' {
		m--
	}
	return append(b[:m], b[e:]...)
}

// lineBreaks are the characters that a string on a line of old syntax cannot hold.
const lineBreaks = "\n\r\x00"

// string appends a string. In old syntax one that cannot be written is a call of
// eval.
func (p *printer) string(b []byte, s string) []byte {
	if !p.old {
		return quote(b, s, '"')
	}
	if strings.ContainsAny(s, lineBreaks) || strings.HasSuffix(s, `\`) {
		b = append(b, "eval("...)
		return append(quoteOld(b, string(quote(nil, s, '"'))), ')')
	}
	return quoteOld(b, s)
}

func quoteOld(b []byte, s string) []byte {
	b = append(b, '"')
	for {
		i := strings.IndexByte(s, '"')
		if i < 0 {
			return append(append(b, s...), '"')
		}
		b = append(append(b, s[:i]...), `\"`...)
		s = s[i+1:]
	}
}

var escapes = [256]byte{'\a': 'a', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't', '\v': 'v', '\\': '\\'}

func quote(b []byte, s string, with byte) []byte {
	b = append(b, with)
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '\\' && c != with && c != 0x7f {
			continue
		}
		b = append(append(b, s[start:i]...), '\\')
		start = i + 1
		switch {
		case c == with:
			b = append(b, with)
		case escapes[c] != 0:
			b = append(b, escapes[c])
		default:
			b = append(b, '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		}
	}
	return append(append(b, s[start:]...), with)
}
