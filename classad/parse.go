package classad

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Bounds of what one text may hold. Whoever writes more does not describe a job.
const (
	maxExprText = 64 << 10
	maxAdText   = 8 << 20
	maxAttrs    = 10_000
	maxNesting  = 400
)

// SyntaxError says where a text is not what it should be. Column counts bytes
// from 1.
type SyntaxError struct {
	Line, Column int
	Msg          string
}

// Error returns the place and what is wrong there.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Msg)
}

// Parse reads an expression.
func Parse(text string) (Expr, error) { return parseExpr(text, false) }

// ParseOldExpr reads an expression of old syntax, as stands behind a name in
// ParseOld: in strings a backslash is one unless a quote follows.
func ParseOldExpr(text string) (Expr, error) { return parseExpr(text, true) }

// CutOldString takes the attribute of a name out of the text of an ad in old syntax, whose
// value is a string of any length, as a script's, that the ad could not be parsed with. rest has an
// empty line in its place. line is where it was, and 0 if there was none. A name counts in any
// case, and the last of several.
func CutOldString(text, name string) (rest, value string, line int, err error) {
	var b strings.Builder
	number := 0
	for one := range strings.Lines(text) {
		number++
		expression, is := cutName(one, name)
		if !is {
			b.WriteString(one)
			continue
		}
		b.WriteByte('\n')
		line = number
		var ok bool
		if value, ok = parseOldString(expression); !ok {
			return "", "", 0, fmt.Errorf("line %d: %s is neither a string nor eval of one", line, name)
		}
	}
	return b.String(), value, line, nil
}

// cutName returns the expression of a line of old syntax, if that is about an attribute.
func cutName(line, name string) (expression string, is bool) {
	line = strings.Trim(line, " \t\r\n")
	if len(line) < len(name) || !equalFold(line[:len(name)], name) {
		return "", false
	}
	expression, is = strings.CutPrefix(strings.TrimLeft(line[len(name):], " \t"), "=")
	return expression, is && !strings.HasPrefix(expression, "=")
}

// parseOldString reads a string of old syntax of any length: in quotes or, as OldString
// writes one with line breaks, as eval("\"...\""). ok is false for any other expression.
func parseOldString(text string) (s string, ok bool) {
	var kinds []tokenKind
	scan := func(l lexer) {
		kinds = kinds[:0]
		for len(kinds) < 5 { // as many as eval("...") has, with its end
			t, msg := l.next()
			if msg != "" {
				kinds = nil
				return
			}
			switch kinds = append(kinds, t.kind); t.kind {
			case tokString:
				s = t.text
			case tokName:
				if !equalFold(t.text, "eval") {
					kinds = nil
					return
				}
			case tokEnd:
				return
			}
		}
	}
	scan(lexer{text: text, old: true})
	if slices.Equal(kinds, []tokenKind{tokName, tokOpen, tokString, tokClose, tokEnd}) {
		scan(lexer{text: s})
	}
	ok = slices.Equal(kinds, []tokenKind{tokString, tokEnd})
	return s, ok
}

func parseExpr(text string, old bool) (e Expr, err error) {
	if len(text) > maxExprText {
		return Expr{}, &SyntaxError{1, 1, "expression too long"}
	}
	p := parser{lexer: lexer{text: text, old: old}}
	defer p.recover(&err)
	p.next()
	root := p.conditional()
	p.end()
	return Expr{root}, nil
}

// ParseAd reads an ad of new syntax: [ name = expression; ... ].
func ParseAd(text string) (ad *Ad, err error) {
	if len(text) > maxAdText {
		return nil, &SyntaxError{1, 1, "ad too long"}
	}
	p := parser{lexer: lexer{text: text}}
	defer p.recover(&err)
	p.next()
	if p.tok.kind != tokOpenAd {
		p.fail("an ad begins with [")
	}
	ad = p.ad()
	p.end()
	return ad, nil
}

// ParseOld reads an ad of old syntax: a name = expression on each line. Empty
// lines and those that begin with # are skipped. The first line that cannot be
// read is an error.
func ParseOld(text string) (*Ad, error) {
	ad, errs := parseOld(text, false)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return ad, nil
}

// ParseOldLenient reads the lines of an ad of old syntax that can be read, and
// returns an error for each other line.
func ParseOldLenient(text string) (*Ad, []error) { return parseOld(text, true) }

func parseOld(text string, lenient bool) (*Ad, []error) {
	if len(text) > maxAdText {
		return New(), []error{&SyntaxError{1, 1, "ad too long"}}
	}
	ad := &Ad{attrs: make([]attr, 0, min(strings.Count(text, "\n")+1, maxAttrs))}
	var errs []error
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, " \t\r\n")
		if start := strings.TrimLeft(line, " \t"); start == "" || start[0] == '#' {
			continue
		}
		if err := ad.parseLine(line, number); err != nil {
			errs = append(errs, err)
			if !lenient || len(errs) > maxAttrs {
				break
			}
		}
	}
	return ad, errs
}

func (ad *Ad) parseLine(line string, number int) (err error) {
	p := parser{lexer: lexer{text: line, old: true}, line: number - 1}
	defer p.recover(&err)
	if len(line) > maxExprText {
		p.fail("line too long")
	}
	p.next()
	name := p.attrName()
	root := p.conditional()
	p.end()
	p.put(ad, name, root)
	return nil
}

// parser reads by recursive descent. It gives up by panic, with an error that
// the functions above return.
type parser struct {
	lexer
	tok   token
	depth int
	line  int // lines before the text
	attrs int // of all ads so far
}

func (p *parser) recover(err *error) {
	switch r := recover().(type) {
	case nil:
	case *SyntaxError:
		*err = r
	default:
		panic(r)
	}
}

func (p *parser) fail(msg string) {
	before := p.text[:p.tok.pos]
	panic(&SyntaxError{
		Line:   p.line + 1 + strings.Count(before, "\n"),
		Column: len(before) - strings.LastIndexByte(before, '\n'),
		Msg:    msg,
	})
}

func (p *parser) next() {
	tok, msg := p.lexer.next()
	p.tok = tok
	if msg != "" {
		p.fail(msg)
	}
}

// unexpected fails at the token.
func (p *parser) unexpected() {
	if p.tok.kind == tokEnd {
		p.fail("unexpected end")
	}
	text := p.text[p.tok.pos:p.pos]
	if len(text) > 40 {
		text = text[:40] + "..."
	}
	p.fail(fmt.Sprintf("unexpected %q", text))
}

func (p *parser) expect(kind tokenKind) {
	if p.tok.kind != kind {
		p.unexpected()
	}
	p.next()
}

func (p *parser) end() {
	if p.tok.kind != tokEnd {
		p.unexpected()
	}
}

func (p *parser) deeper() {
	if p.depth++; p.depth > maxNesting {
		p.fail("nested too deeply")
	}
}

// attrName reads the name of an attribute and the =.
func (p *parser) attrName() string {
	name := p.tok.text
	if p.tok.kind != tokName && p.tok.kind != tokQuoted {
		p.unexpected()
	}
	p.next()
	p.expect(tokAssign)
	return name
}

func (p *parser) put(ad *Ad, name string, root node) {
	if p.attrs++; p.attrs > maxAttrs || ad.Len() >= maxAttrs {
		p.fail("too many attributes")
	}
	ad.put(name, root)
}

// ad reads an ad from its [.
func (p *parser) ad() *Ad {
	p.deeper()
	p.next()
	ad := &Ad{}
	for p.tok.kind != tokCloseAd {
		if p.tok.kind == tokSemicolon {
			p.next()
			continue
		}
		start := p.tok.pos
		name := p.attrName()
		root := p.conditional()
		if p.tok.pos-start > maxExprText {
			p.fail("expression too long")
		}
		p.put(ad, name, root)
		if p.tok.kind != tokCloseAd {
			p.expect(tokSemicolon)
		}
	}
	p.depth--
	p.next()
	return ad
}

// conditional reads an expression: a chain of conditions or an operation.
func (p *parser) conditional() node {
	p.deeper()
	var root node
	end := &root
	for {
		*end = p.binary(levelOr)
		if p.tok.kind != tokQuestion {
			p.depth--
			return root
		}
		p.next()
		if p.tok.kind == tokColon {
			p.next()
			*end = join(*end, opElvis, p.conditional())
			p.depth--
			return root
		}
		c := &conditional{cond: *end, yes: p.conditional()}
		p.expect(tokColon)
		*end = c
		end = &c.no
	}
}

// binary reads operations of at least this level.
func (p *parser) binary(least int) node {
	x := p.unary()
	for p.tok.kind == tokOp {
		o := p.tok.op
		l := ops[o].level
		if l < least || l > levelMultiply {
			break
		}
		p.next()
		p.deeper()
		x = join(x, o, p.binary(l+1))
		p.depth--
	}
	return x
}

func (p *parser) unary() node {
	if p.tok.kind != tokOp {
		return p.postfix()
	}
	o := p.tok.op
	switch o {
	case opSubtract:
		o = opMinus
	case opAdd:
		o = opPlus
	case opNot, opComplement:
	default:
		p.unexpected()
	}
	p.deeper()
	p.next()
	var x node
	if o == opMinus && p.tok.kind == tokInt && p.tok.num == 1<<63 {
		// This number exists with a minus only.
		p.next()
		x = &literal{Int(math.MinInt64)}
	} else {
		x = minus(o, p.unary())
	}
	p.depth--
	return x
}

// minus returns the operation, or the number that it makes of a number.
func minus(o op, x node) node {
	if l, ok := x.(*literal); ok && o == opMinus && !negative(l.v) {
		switch l.v.kind {
		case IntKind:
			if l.v.num != 0 {
				return &literal{Int(-int64(l.v.num))}
			}
		case RealKind:
			return &literal{Real(-l.v.real())}
		}
	}
	return &unary{o, x}
}

func (p *parser) postfix() node {
	x := p.selected()
	for p.tok.kind == tokOp && p.tok.op == opElvis {
		p.next()
		if p.tok.kind == tokOp {
			x = join(x, opElvis, p.unary())
		} else {
			x = join(x, opElvis, p.selected())
		}
	}
	return x
}

// selected reads a primary expression and what is taken out of it.
func (p *parser) selected() node {
	depth := p.depth
	x := p.primary()
	for {
		switch p.tok.kind {
		case tokDot:
			p.deeper()
			p.next()
			x = selected(x, p.name())
		case tokOpenAd:
			p.deeper()
			p.next()
			x = &subscript{x, p.conditional()}
			p.expect(tokCloseAd)
		default:
			p.depth = depth
			return x
		}
	}
}

func selected(x node, name string) node {
	if r, ok := x.(*ref); ok && r.name == "" {
		return newRef(name, r.in)
	}
	return &selection{of: x, name: name, hash: hashName(name)}
}

// name reads a name behind a dot.
func (p *parser) name() string {
	name := p.tok.text
	switch p.tok.kind {
	case tokName, tokQuoted:
	default:
		p.unexpected()
	}
	p.next()
	return name
}

func (p *parser) primary() node {
	tok := p.tok
	switch tok.kind {
	case tokInt:
		if tok.num == 1<<63 {
			p.fail("number too large")
		}
		p.next()
		return &literal{Value{kind: IntKind, num: tok.num}}
	case tokReal:
		p.next()
		return &literal{Value{kind: RealKind, num: tok.num}}
	case tokString:
		return p.strings()
	case tokTrue, tokFalse:
		p.next()
		return &literal{Bool(tok.kind == tokTrue)}
	case tokUndefined:
		p.next()
		return &literal{}
	case tokError:
		p.next()
		return &literal{Error("written as error")}
	case tokQuoted:
		p.next()
		return newRef(tok.text, anywhere)
	case tokName:
		return p.named()
	case tokDot:
		p.next()
		return newRef(p.name(), inRoot)
	case tokOpen:
		p.next()
		x := p.conditional()
		p.expect(tokClose)
		return x
	case tokOpenList:
		p.next()
		return &listNode{p.list(tokCloseList)}
	case tokOpenAd:
		return &adNode{p.ad()}
	}
	p.unexpected()
	return nil
}

// strings reads a string; strings side by side are one.
func (p *parser) strings() node {
	text := p.tok.text
	p.next()
	if p.tok.kind == tokString {
		b := []byte(text)
		for p.tok.kind == tokString {
			b = append(b, p.tok.text...)
			p.next()
		}
		text = string(b)
	}
	return &literal{String(text)}
}

func newRef(name string, in where) *ref { return &ref{name, hashName(name), in} }

// named reads what begins with a name: a call or a reference.
func (p *parser) named() node {
	name := p.tok.text
	p.next()
	if p.tok.kind == tokOpen {
		p.next()
		return p.called(name, p.list(tokClose))
	}
	in := scopeName(name)
	if in == anywhere {
		return newRef(name, anywhere)
	}
	if p.tok.kind != tokDot {
		return &ref{in: in}
	}
	p.next()
	return newRef(p.name(), in)
}

func scopeName(name string) where {
	switch {
	case equalFold(name, "MY"):
		return inMy
	case equalFold(name, "TARGET"):
		return inTarget
	case equalFold(name, "PARENT"):
		return inParent
	}
	return anywhere
}

// called returns a call. In old syntax some strings cannot be written but as the
// argument of eval, so that a call of it with a string is that string.
func (p *parser) called(name string, args []node) node {
	if p.old && len(args) == 1 && equalFold(name, "eval") {
		if l, ok := args[0].(*literal); ok && l.v.kind == StringKind {
			e, err := Parse(l.v.str)
			if v, ok := e.Constant(); err == nil && ok && v.kind == StringKind {
				return &literal{v}
			}
		}
	}
	return &call{name: name, fn: lookupFunction(name), args: args}
}

// list reads expressions up to a bracket. Between arguments a semicolon is as
// good as a comma.
func (p *parser) list(end tokenKind) []node {
	var elems []node
	if p.tok.kind == end {
		p.next()
		return nil
	}
	for {
		elems = append(elems, p.conditional())
		switch {
		case p.tok.kind == end:
			p.next()
			return elems
		case p.tok.kind == tokSemicolon && end == tokClose:
			p.next()
		default:
			p.expect(tokComma)
		}
	}
}
