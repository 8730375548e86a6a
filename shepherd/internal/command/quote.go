package command

import (
	"errors"
	"strings"
)

// quoting follows the quotes of a text as sh reads it. There is no more to
// follow: a "$" never reaches the shell from the text, so that it has neither
// $() nor ${}, and without newlines it has no here-documents, and comments only
// at its end.
type quoting struct {
	in     byte // the quote that is open, 0 if none is
	back   bool // backquotes are open
	escape bool // the last byte was a backslash that quotes the next
	lost   bool // shells differ in what is quoted from here on
}

// read reads a piece of the text.
func (q *quoting) read(s string) {
	for i := range len(s) {
		c := s[i]
		switch {
		case q.back:
			// Up to the next backquote in any shell, unless there is one of these
			// between: some look for its partner first.
			switch c {
			case '`':
				q.back = false
			case '\\', '\'', '"', '#':
				q.lost = true
			}
		case q.escape:
			q.escape = false
		case q.in == '\'':
			if c == '\'' {
				q.in = 0
			}
		case c == '\\':
			q.escape = true
		case c == '`':
			q.back = true
		case c == q.in:
			q.in = 0
		case q.in == 0 && (c == '\'' || c == '"'):
			q.in = c
		}
	}
}

var errQuotes = errors.New("its value needs quotes, and backquotes are in the way")

// append appends a value so that the shell takes it as it is. What was appended
// before has been read.
func (q *quoting) append(b []byte, v string) ([]byte, error) {
	if q.back || q.lost {
		if !harmless(v) {
			return b, errQuotes
		}
		return append(b, v...), nil
	}
	escape := q.escape
	q.escape = false
	switch q.in {
	case '\'':
		return appendReplaced(b, v, "'", `'\''`), nil
	case '"':
		if escape {
			b = append(b, '\\') // before most bytes it stands for itself
		}
		for i := range len(v) {
			if strings.IndexByte("$`\"\\", v[i]) >= 0 {
				b = append(b, '\\')
			}
			b = append(b, v[i])
		}
		return b, nil
	}
	if escape {
		b = b[:len(b)-1] // it would quote our quote
	}
	if harmless(v) {
		return append(b, v...), nil
	}
	b = append(b, '\'')
	b = appendReplaced(b, v, "'", `'\''`)
	return append(b, '\''), nil
}

func appendReplaced(b []byte, s, old, by string) []byte {
	return append(b, strings.ReplaceAll(s, old, by)...)
}

// harmless reports whether a value is one word for a shell as it is.
func harmless(v string) bool {
	for i := range len(v) {
		if !letterOrDigit(v[i]) && strings.IndexByte("_-+=./:,@%", v[i]) < 0 {
			return false
		}
	}
	return v != ""
}
