package client

import (
	"errors"
	"io"
	"os"
	"strings"
)

const (
	// DefaultEscape is the escape character of ssh.
	DefaultEscape = '~'
	// NoEscape stands for no escape character.
	NoEscape = 0
)

// What may follow the escape character.
const (
	escapeLeave   = '.'
	escapeSuspend = 'Z' & 0x1f
	escapeHelp    = '?'
)

// ParseEscape reads an escape character: itself, ^X for a control character, or none.
func ParseEscape(text string) (byte, error) {
	switch {
	case text == "none":
		return NoEscape, nil
	case len(text) == 1 && text[0] > ' ' && text[0] < 0x7f:
		return text[0], nil
	case len(text) == 2 && text[0] == '^' && (text[1] >= 'A' && text[1] <= '_' || text[1] >= 'a' && text[1] <= 'z'):
		c := text[1] & 0x1f
		if c != '\r' && c != '\n' {
			return c, nil
		}
	}
	return 0, errors.New("neither a character, nor ^ and a letter, nor none")
}

// escapes is a reader of typed keys without those for the client itself: the
// escape character at the beginning of a line, and the key behind it.
type escapes struct {
	from io.Reader
	char byte
	do   func(key byte) (end bool)

	line bool // something is on the line already
	held bool // the escape character was typed
	rest []byte
	err  error
	buf  [4096]byte
}

func (e *escapes) Read(b []byte) (int, error) {
	for len(e.rest) == 0 && e.err == nil {
		n, err := e.from.Read(e.buf[:])
		e.err = err
		e.sift(e.buf[:n])
		if e.err != nil && e.held { // nothing follows
			e.rest, e.held = append(e.rest, e.char), false
		}
	}
	n := copy(b, e.rest)
	if e.rest = e.rest[n:]; len(e.rest) > 0 || n > 0 {
		return n, nil
	}
	return 0, e.err
}

// sift puts the keys for the job into rest.
func (e *escapes) sift(typed []byte) {
	e.rest = e.rest[:0]
	for _, key := range typed {
		switch {
		case !e.held && !e.line && key == e.char:
			e.held = true
			continue
		case e.held && (key == escapeLeave || key == escapeSuspend || key == escapeHelp):
			e.held = false
			if e.do(key) {
				e.err = os.ErrClosed // the job's input has not ended
				return
			}
			continue
		case e.held && key != e.char:
			e.rest = append(e.rest, e.char)
		}
		e.held = false
		e.rest = append(e.rest, key)
		e.line = key != '\r' && key != '\n'
	}
}

// escapeHelpText lists the keys behind the escape character.
func escapeHelpText(char byte) string {
	c := string(rune(char))
	if char < ' ' {
		c = "^" + string(rune(char|0x40))
	}
	return strings.ReplaceAll(`at the beginning of a line:
C.   leave the job, which waits for qrsh -reconnect
C^Z  suspend qrsh
C?   this help
CC   the character itself`, "C", c)
}
