package knob

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// lines is one file being read.
type lines struct {
	r      *reader
	file   string
	text   string // the rest of the text
	line   int    // number of the line that was read last, from 1
	at     int    // line of the template that is being read; 0: it is a file
	blocks []block
}

// block is an if that is not ended yet.
type block struct {
	line  int
	taken bool // one of its branches was read
	on    bool // the current branch is read
	ended bool // there was an else
	outer bool // the block around it is read
}

const maxBlocks = 64

func (l *lines) problem(line int, format string, args ...any) {
	l.r.problem(l.file, line, format, args...)
}

// next returns the next line as it is.
func (l *lines) next() (string, bool) {
	if l.text == "" {
		return "", false
	}
	line, rest, _ := strings.Cut(l.text, "\n")
	l.text = rest
	if l.line++; l.at > 0 {
		l.line = l.at
	}
	return strings.TrimSuffix(line, "\r"), true
}

func isComment(line string) bool {
	return strings.HasPrefix(strings.TrimLeft(line, " \t"), "#")
}

// statement returns the next line that is no comment, with its continuations, and its
// line number. Comments within a continuation are skipped.
func (l *lines) statement() (string, int, bool) {
	for {
		line, ok := l.next()
		if !ok {
			return "", 0, false
		}
		if isComment(line) {
			continue
		}
		first := l.line
		var b strings.Builder
		for {
			line = strings.TrimRight(line, " \t")
			body, more := strings.CutSuffix(line, `\`)
			if b.Len() > 0 {
				body = strings.TrimLeft(body, " \t")
			}
			b.WriteString(body)
			if !more {
				break
			}
			if line, ok = l.following(); !ok {
				break
			}
		}
		return strings.Trim(b.String(), " \t"), first, true
	}
}

// following returns the next line that is no comment.
func (l *lines) following() (string, bool) {
	for {
		line, ok := l.next()
		if !ok || !isComment(line) {
			return line, ok
		}
	}
}

// read reads the file.
func (l *lines) read() {
	if before, _, found := strings.Cut(l.text, "\x00"); found {
		l.problem(1+strings.Count(before, "\n"), "not a text file: NUL byte")
		return
	}
	for {
		text, line, ok := l.statement()
		if !ok {
			break
		}
		if text != "" {
			l.one(text, line)
		}
	}
	for _, b := range l.blocks {
		l.problem(b.line, "if without its endif")
	}
}

// on reports whether the current branch is read.
func (l *lines) on() bool {
	return len(l.blocks) == 0 || l.blocks[len(l.blocks)-1].on
}

// one handles a statement.
func (l *lines) one(text string, line int) {
	first, rest := word(text)
	isValue := strings.HasPrefix(rest, "=")
	switch lower := strings.ToLower(first); {
	case isValue:
	case lower == "if":
		l.begin(rest, line)
		return
	case lower == "elif", lower == "else", lower == "endif":
		l.branch(lower, rest, line)
		return
	}
	name, value, ok := strings.Cut(text, "=")
	here := ok && strings.HasSuffix(name, "@")
	tag := ""
	if here {
		name, tag = strings.TrimSuffix(name, "@"), strings.TrimSpace(value)
		value = l.until(tag, line)
	}
	if !l.on() {
		return
	}
	lower := strings.ToLower(first)
	switch {
	case !isValue && (lower == "include" || strings.HasPrefix(lower, "include:")):
		l.include(strings.TrimSpace(text[len("include"):]), line)
	case !isValue && isUse(lower):
		l.use(strings.TrimPrefix(text, "@")[len("use"):], line)
	case !ok:
		l.problem(line, "cannot read %q: want NAME = value", shorten(text))
	default:
		l.r.define(assignment{name: strings.TrimSpace(name), value: strings.TrimSpace(value), file: l.file, line: line})
	}
}

// word returns the first word of a statement, and the rest.
func word(text string) (first, rest string) {
	i := strings.IndexAny(text, " \t")
	if i < 0 {
		return text, ""
	}
	return text[:i], strings.TrimLeft(text[i:], " \t")
}

// until returns the lines before the one that is @tag, as they are.
func (l *lines) until(tag string, line int) string {
	if !validName(tag) {
		l.problem(line, "@= wants a word that ends the value")
		return ""
	}
	var all []string
	for {
		text, ok := l.next()
		if !ok {
			l.problem(line, "no line @%s ends the value", tag)
			return ""
		}
		if strings.EqualFold(strings.TrimSpace(text), "@"+tag) {
			return strings.Join(all, "\n")
		}
		all = append(all, text)
	}
}

// begin opens an if.
func (l *lines) begin(condition string, line int) {
	if len(l.blocks) == maxBlocks {
		l.problem(line, "more than %d ifs within each other", maxBlocks)
		l.text = ""
		l.blocks = nil
		return
	}
	b := block{line: line, outer: l.on()}
	if b.outer {
		b.on = l.condition(condition, line)
		b.taken = b.on
	}
	l.blocks = append(l.blocks, b)
}

// branch begins another branch of an if, or ends it.
func (l *lines) branch(what, condition string, line int) {
	if len(l.blocks) == 0 {
		l.problem(line, "%s without an if", what)
		return
	}
	b := &l.blocks[len(l.blocks)-1]
	if what != "elif" && condition != "" {
		l.problem(line, "%s has nothing behind it, not %q", what, shorten(condition))
	}
	switch {
	case what == "endif":
		l.blocks = l.blocks[:len(l.blocks)-1]
		return
	case b.ended:
		l.problem(line, "%s behind the else of the if in line %d", what, b.line)
		b.on = false
		return
	case what == "else":
		b.ended = true
		b.on = b.outer && !b.taken
	default:
		b.on = b.outer && !b.taken && l.condition(condition, line)
	}
	b.taken = b.taken || b.on
}

// condition evaluates what follows an if: defined NAME, or an expression that is true
// or false once it is expanded, each perhaps behind an exclamation mark.
func (l *lines) condition(text string, line int) bool {
	rest, not := strings.CutPrefix(text, "!")
	rest = strings.TrimSpace(rest)
	b, err := l.holds(rest)
	if err != nil {
		l.problem(line, "cannot tell whether %q holds: %v", shorten(text), err)
		return false
	}
	return b != not
}

func (l *lines) holds(text string) (bool, error) {
	what, rest := word(text)
	if what == "" {
		return false, errors.New("there is no condition")
	}
	if comparison, ok := cutWord(text, "version"); ok {
		return compareVersion(comparison)
	}
	expanded, failed := l.r.expand(text)
	if failed != nil {
		return false, failed
	}
	if strings.EqualFold(what, "defined") {
		_, name := word(strings.TrimSpace(expanded))
		name = strings.TrimSpace(name)
		switch {
		case name == "" && rest != "":
			return false, nil // a reference to nothing
		case !validName(name):
			return false, fmt.Errorf("%q is no name of a knob", shorten(name))
		}
		_, ok, failed := l.r.lookup(key(name))
		if failed != nil {
			return false, failed
		}
		return ok, nil
	}
	return truth(strings.TrimSpace(expanded))
}

// isUse reports whether the first word of a statement, in small letters, uses a
// template. HTCondor accepts @use too.
func isUse(word string) bool {
	word = strings.TrimPrefix(word, "@")
	return word == "use" || strings.HasPrefix(word, "use:")
}

// cutWord cuts a word from the beginning of a text, unless the text goes on with a
// letter of a name.
func cutWord(text, w string) (rest string, ok bool) {
	if len(text) < len(w) || !strings.EqualFold(text[:len(w)], w) {
		return "", false
	}
	rest = text[len(w):]
	return strings.TrimSpace(rest), rest == "" || !IsKeyword(rest[:1]) && rest[0] != '.'
}

// language is the version of HTCondor whose language and knobs are followed.
var language = [...]int{25, 14, 0}

// compareVersion compares language with the version behind the operator, as far as that
// goes: 25 and 25.14 are both equal to it.
func compareVersion(text string) (bool, error) {
	op := text[:len(text)-len(strings.TrimLeft(text, "<>=!"))]
	order := 0
	for i, part := range strings.Split(strings.TrimSpace(text[len(op):]), ".") {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil || i >= len(language) {
			return false, errors.New("want version OPERATOR NUMBER.NUMBER.NUMBER")
		}
		if order == 0 {
			order = cmp.Compare(language[i], int(n))
		}
	}
	switch op {
	case "<":
		return order < 0, nil
	case "<=":
		return order <= 0, nil
	case "=", "==":
		return order == 0, nil
	case "!=":
		return order != 0, nil
	case ">=":
		return order >= 0, nil
	case ">":
		return order > 0, nil
	}
	return false, errors.New("versions are compared by <, <=, ==, !=, >= or >")
}

// include reads another file: include [ifexist] : path.
func (l *lines) include(text string, line int) {
	option, path, ok := strings.Cut(text, ":")
	option = strings.ToLower(strings.TrimSpace(option))
	path = strings.TrimSpace(path)
	switch {
	case !ok:
		l.problem(line, "include: want include : FILE")
		return
	case option != "" && option != "ifexist":
		l.problem(line, "include %s: only files are included here", shorten(option))
		return
	}
	expanded, failed := l.r.expand(path)
	if failed != nil {
		l.problem(line, "include: %v", failed)
		return
	}
	if expanded = strings.TrimSpace(expanded); expanded == "" {
		l.problem(line, "include: no file is named")
		return
	}
	path = l.r.path(l.file, expanded)
	l.r.read[path] = true
	data, err := l.r.Read(path)
	switch {
	case err == nil:
		l.r.file(path, data)
	case option == "ifexist" && errors.Is(err, fs.ErrNotExist):
	default:
		l.r.cannot(l.file, line, path, err)
	}
}
