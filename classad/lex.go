package classad

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEnd tokenKind = iota
	tokInt
	tokReal
	tokString
	tokName   // an identifier that is no keyword
	tokQuoted // a name in single quotes
	tokTrue
	tokFalse
	tokUndefined
	tokError
	tokOp // op tells which
	tokQuestion
	tokColon
	tokAssign
	tokDot
	tokComma
	tokSemicolon
	tokOpen // ( ) [ ] { }
	tokClose
	tokOpenList
	tokCloseList
	tokOpenAd
	tokCloseAd
)

type token struct {
	kind tokenKind
	op   op
	pos  int
	text string // a name, or what a string says
	num  uint64 // an integer or the bits of a real
}

// lexer cuts text into tokens.
type lexer struct {
	text string
	pos  int
	old  bool // strings have one escape only: \"
}

// next returns the next token; msg says what is wrong with it.
func (l *lexer) next() (t token, msg string) {
	if msg = l.space(); msg != "" {
		return token{pos: l.pos}, msg
	}
	t.pos = l.pos
	if l.pos == len(l.text) {
		return t, ""
	}
	c := l.text[l.pos]
	switch {
	case letter(c):
		l.name(&t)
		return t, ""
	case digit(c), c == '.' && l.pos+1 < len(l.text) && digit(l.text[l.pos+1]):
		return t, l.number(&t)
	case c == '"':
		t.kind = tokString
		t.text, msg = l.str()
		return t, msg
	case c == '\'':
		t.kind = tokQuoted
		l.pos++
		t.text, msg = l.escaped('\'')
		if msg == "" && t.text == "" {
			msg = "empty name"
		}
		return t, msg
	}
	return t, l.sign(&t, c)
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }
func digit(c byte) bool  { return '0' <= c && c <= '9' }

// space skips white space and comments.
func (l *lexer) space() string {
	for l.pos < len(l.text) {
		switch c := l.text[l.pos]; {
		case c == ' ' || '\t' <= c && c <= '\r':
			l.pos++
		case strings.HasPrefix(l.text[l.pos:], "//"):
			end := strings.IndexByte(l.text[l.pos:], '\n')
			if end < 0 {
				l.pos = len(l.text)
				return ""
			}
			l.pos += end + 1
		case strings.HasPrefix(l.text[l.pos:], "/*"):
			end := strings.Index(l.text[l.pos+2:], "*/")
			if end < 0 {
				return "comment without end"
			}
			l.pos += end + 4
		default:
			return ""
		}
	}
	return ""
}

func (l *lexer) name(t *token) {
	start := l.pos
	for l.pos < len(l.text) && (letter(l.text[l.pos]) || digit(l.text[l.pos])) {
		l.pos++
	}
	t.text = l.text[start:l.pos]
	t.kind, t.op = keyword(t.text)
}

func keyword(name string) (tokenKind, op) {
	switch len(name) {
	case len("is"):
		if equalFold(name, "is") {
			return tokOp, opIs
		}
	case len("true"):
		if equalFold(name, "true") {
			return tokTrue, 0
		}
		if equalFold(name, "isnt") {
			return tokOp, opIsnt
		}
	case len("false"):
		if equalFold(name, "false") {
			return tokFalse, 0
		}
		if equalFold(name, "error") {
			return tokError, 0
		}
	case len("undefined"):
		if equalFold(name, "undefined") {
			return tokUndefined, 0
		}
	}
	return tokName, 0
}

func (l *lexer) digits() bool {
	start := l.pos
	for l.pos < len(l.text) && digit(l.text[l.pos]) {
		l.pos++
	}
	return l.pos > start
}

func (l *lexer) at(c byte) bool { return l.pos < len(l.text) && l.text[l.pos] == c }

func (l *lexer) number(t *token) string {
	start, fraction := l.pos, false
	l.digits()
	if l.at('.') {
		l.pos++
		fraction = true
		if !l.digits() {
			return "number without digits after the point"
		}
	}
	if l.at('e') || l.at('E') {
		l.pos++
		fraction = true
		if l.at('+') || l.at('-') {
			l.pos++
		}
		if !l.digits() {
			return "number without digits in the exponent"
		}
	}
	if l.pos < len(l.text) && (letter(l.text[l.pos]) || l.at('.')) {
		return "malformed number"
	}
	text := l.text[start:l.pos]
	if fraction {
		t.kind = tokReal
		r, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "number too large"
		}
		t.num = Real(r).num
		return ""
	}
	t.kind = tokInt
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > 1<<63 {
		return "number too large"
	}
	t.num = n
	return ""
}

const openString = "string without end"

// str reads a string with its quotes.
func (l *lexer) str() (text, msg string) {
	l.pos++
	if l.old {
		return l.oldString()
	}
	return l.escaped('"')
}

// oldString reads the rest of a string of old syntax. A backslash at its end looks
// like an escaped quote, unless the quote is the end of the text.
func (l *lexer) oldString() (text, msg string) {
	start := l.pos
	var b strings.Builder // what was before start, if that was escaped
	for l.plain('"') {
		if l.text[l.pos] == '"' {
			return l.closed(&b, start), ""
		}
		if l.pos+1 < len(l.text) && l.text[l.pos+1] == '"' && strings.TrimSpace(l.text[l.pos+2:]) != "" {
			b.WriteString(l.text[start:l.pos])
			l.pos++
			start = l.pos
		}
		l.pos++
	}
	return "", openString
}

// closed goes behind the quote at which a string ends, and returns what the string says: what is in b, and the
// text from start on.
func (l *lexer) closed(b *strings.Builder, start int) string {
	text := l.text[start:l.pos]
	l.pos++
	if b.Len() == 0 {
		return text
	}
	b.WriteString(text)
	return b.String()
}

// plain goes on to the next quote or backslash, and says whether there is one. Strings may
// be long, as those of scripts are.
func (l *lexer) plain(quote byte) bool {
	rest := l.text[l.pos:]
	n := 0
	for n < len(rest) && rest[n] != quote && rest[n] != '\\' {
		n++
	}
	l.pos += n
	return n < len(rest)
}

// escaped reads the rest of a string or name with the escapes of C.
func (l *lexer) escaped(quote byte) (text, msg string) {
	start := l.pos
	var b strings.Builder // what was before start, if that was escaped
	for l.plain(quote) {
		if l.text[l.pos] == quote {
			return l.closed(&b, start), ""
		}
		b.WriteString(l.text[start:l.pos])
		l.pos++
		if l.pos == len(l.text) {
			break
		}
		b.WriteByte(l.escape())
		start = l.pos
	}
	return "", openString
}

// escape reads what follows a backslash.
func (l *lexer) escape() byte {
	c := l.text[l.pos]
	l.pos++
	switch c {
	case 'a':
		return '\a'
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'v':
		return '\v'
	}
	if c < '0' || '7' < c {
		return c
	}
	// A third octal digit belongs to the escape only if all make one byte.
	n, room := c-'0', 1
	if c <= '3' {
		room = 2
	}
	for ; room > 0 && l.pos < len(l.text) && '0' <= l.text[l.pos] && l.text[l.pos] <= '7'; room-- {
		n = n<<3 | (l.text[l.pos] - '0')
		l.pos++
	}
	return n
}

// signs are the tokens of more than one character, longest first.
var signs = map[byte][]struct {
	text string
	op   op
}{
	'=': {{"=?=", opIs}, {"=!=", opIsnt}, {"==", opEqual}},
	'!': {{"!=", opNotEqual}, {"!", opNot}},
	'<': {{"<<", opLeft}, {"<=", opLessEqual}, {"<", opLess}},
	'>': {{">>>", opLogicalRight}, {">>", opRight}, {">=", opGreaterEqual}, {">", opGreater}},
	'&': {{"&&", opAnd}, {"&", opBitAnd}},
	'|': {{"||", opOr}, {"|", opBitOr}},
	'?': {{"?:", opElvis}},
	'^': {{"^", opBitXor}},
	'+': {{"+", opAdd}},
	'-': {{"-", opSubtract}},
	'*': {{"*", opMultiply}},
	'/': {{"/", opDivide}},
	'%': {{"%", opModulo}},
	'~': {{"~", opComplement}},
}

// sign reads an operator or a bracket.
func (l *lexer) sign(t *token, c byte) string {
	for _, s := range signs[c] {
		if strings.HasPrefix(l.text[l.pos:], s.text) {
			l.pos += len(s.text)
			t.kind, t.op = tokOp, s.op
			return ""
		}
	}
	switch c {
	case '?':
		t.kind = tokQuestion
	case ':':
		t.kind = tokColon
	case '=':
		t.kind = tokAssign
	case '.':
		t.kind = tokDot
	case ',':
		t.kind = tokComma
	case ';':
		t.kind = tokSemicolon
	case '(':
		t.kind = tokOpen
	case ')':
		t.kind = tokClose
	case '{':
		t.kind = tokOpenList
	case '}':
		t.kind = tokCloseList
	case '[':
		t.kind = tokOpenAd
	case ']':
		t.kind = tokCloseAd
	default:
		r, _ := utf8.DecodeRuneInString(l.text[l.pos:])
		return "unexpected " + strconv.QuoteRune(r)
	}
	l.pos++
	return ""
}
