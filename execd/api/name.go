package api

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// notInName are the characters that Grid Engine forbids in the name of a job, and what
// it calls them: they would make it a path, a pattern, a column or a field.
var notInName = []struct {
	sign byte
	word string
}{
	{'\n', "Return"},
	{'\r', "Carriage return"},
	{'\t', "Tab"},
	{'/', "Slash ('/')"},
	{':', "Colon (':')"},
	{'@', "At ('@')"},
	{'\\', `Backslash ('\')`},
	{'*', "Asterisk ('*')"},
	{'?', "Questionmark ('?')"},
}

// CheckName returns an error for what cannot be the name of a job, in Grid
// Engine's words. Execd calls it, and qsub before it sends anything.
func CheckName(name string) error {
	reject := func(format string, args ...any) error { return Errorf(CodeRejected, format, args...) }
	switch {
	case name == "":
		return reject("job rejected cause there is no job_name in the request")
	case len(name) > MaxName:
		return reject("job name too long, maximum allowed length is %d characters", MaxName+1)
	case name[0] >= '0' && name[0] <= '9':
		return reject("denied: %q is not a valid object name (cannot start with a digit)", name)
	}
	for _, keyword := range []string{"NONE", "ALL", "TEMPLATE"} {
		if strings.EqualFold(name, keyword) {
			return reject("Keyword (%q) not allowed as objectname", keyword)
		}
	}
	if err := checkSigns(name); err != nil {
		return err
	}
	switch {
	case name[0] == '.':
		return reject("denied: %q is not a valid object name (cannot start with a dot)", name)
	case name != Visible(name):
		return reject("denied: %q is not a valid object name (not text)", name)
	}
	return nil
}

// PatternSigns are the characters that make a word a pattern.
const PatternSigns = `*?[\\`

// Limits of the words of a request that name jobs, users or queues: each may
// match all of them.
const (
	MaxWord     = 1023 // bytes of each
	MaxPatterns = 100  // patterns among them
)

// CheckWords returns an error for lists of words that are longer than anybody needs.
func CheckWords(words []string) error {
	if len(words) > MaxWords {
		return Errorf(CodeRejected, "%d words are too many, at most %d are possible in a request", len(words), MaxWords)
	}
	patterns := 0
	for _, w := range words {
		if len(w) > MaxWord {
			return Errorf(CodeRejected, "a word of %d bytes is too long, at most %d are possible", len(w), MaxWord)
		}
		if strings.ContainsAny(w, PatternSigns) {
			patterns++
		}
	}
	if patterns > MaxPatterns {
		return Errorf(CodeRejected, "%d patterns are too many, at most %d are possible in a request", patterns, MaxPatterns)
	}
	return nil
}

// CheckAccount returns an error for what cannot be an account string, a field
// of the accounting file.
func CheckAccount(text string) error {
	if err := checkSigns(text); err != nil {
		return err
	}
	if len(text) > MaxName || strings.Contains(text, " ") || text != Visible(text) {
		return Errorf(CodeRejected, "%q is not an account string", text[:min(len(text), 60)])
	}
	return nil
}

func checkSigns(name string) error {
	for _, c := range notInName {
		if strings.IndexByte(name, c.sign) >= 0 {
			return Errorf(CodeRejected, "%s not allowed in objectname", c.word)
		}
	}
	return nil
}

// IsVisible reports whether a character may be printed as it is: it neither
// moves the cursor of a terminal nor changes how the characters around it are
// shown. The joiners that some scripts need do neither.
func IsVisible(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	switch {
	case r < 0x7f:
		return r >= ' '
	case r < 0xa0: // control characters too, to some terminals
		return false
	case r == nonJoiner, r == joiner:
		return true
	}
	return !unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) // bidirectional marks, above all
}

// Visible returns text for a terminal: characters that would move its cursor or
// change the direction of writing, and bytes that are not UTF-8, become escapes
// as in Go (\n, \x1b, \u202e). Clients show names and paths of other users,
// which must not control the terminal.
func Visible(text string) string {
	plain := true
	for i := range len(text) {
		plain = plain && text[i] >= ' ' && text[i] < 0x7f
	}
	if plain {
		return text
	}
	const hex = "0123456789abcdef"
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == utf8.RuneError && n == 1, r < ' ', r == 0x7f:
			b.WriteString(`\x`)
			b.WriteByte(hex[text[0]>>4])
			b.WriteByte(hex[text[0]&15])
		case IsVisible(r):
			b.WriteString(text[:n])
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		text = text[n:]
	}
	return b.String()
}

// Short bounds what of somebody's text comes back in a message.
func Short(text string) string {
	if len(text) > 60 {
		return text[:60] + "..."
	}
	return text
}

// VisibleJSON returns a JSON text of the same meaning, in which JSON escapes
// stand for the characters that Visible escapes.
func VisibleJSON(text []byte) []byte {
	if !slices.ContainsFunc(text, func(c byte) bool { return c >= 0x7f }) {
		return text // the others are escaped already
	}
	var b []byte
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\n' || IsVisible(r):
			b = append(b, text[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		text = text[n:]
	}
	return b
}
