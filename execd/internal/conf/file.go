package conf

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"paddock/execd/api"
	"paddock/execd/internal/conf/spell"
)

// maxFile bounds a configuration file: no queue has a megabyte.
const maxFile = 1 << 20

// entry is one parameter of a file.
type entry struct {
	name, value string
	line, end   int // first line, and the line behind the last, from 1
}

// readFile reads a regular file of the administrator.
func (l *loader) readFile(path string) ([]byte, error) {
	if data, ok := l.instead[path]; ok && data != nil {
		return data, nil
	} else if ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	if l.kept != nil {
		return l.kept.file(path)
	}
	// A pipe in its place must not block.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, &Problem{File: path, Text: "not a regular file"}
	case info.Size() > maxFile:
		return nil, &Problem{File: path, Text: fmt.Sprintf("%d bytes are too many for a configuration file", info.Size())}
	}
	if err := l.trust(path, info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err == nil && l.conf.read != nil {
		l.conf.read.Files[path] = data
	}
	return data, err
}

// trust refuses a file that others than root and the user of execd can write, since it
// names programs that are run with his rights.
func (l *loader) trust(path string, info fs.FileInfo) error {
	if err := api.Untrusted(info, os.Geteuid()); err != nil {
		return &Problem{File: path, Text: err.Error() + ": it decides what is run as the user of execd"}
	}
	return nil
}

// parse parses a file in Grid Engine's format: a name, blanks, a value; a backslash at
// the end continues the line; '#' starts a comment line.
func parse(path string, data []byte) ([]entry, error) {
	if before, _, found := bytes.Cut(data, []byte{0}); found {
		line := 1 + bytes.Count(before, []byte("\n"))
		return nil, &Problem{File: path, Line: line, Text: "not a text file: NUL byte"}
	}
	var entries []entry
	lines := strings.Split(string(data), "\n")
	for i := 0; i < len(lines); i++ {
		start := i + 1
		text := strings.TrimRight(lines[i], " \t\r")
		if strings.HasPrefix(strings.TrimLeft(text, " \t"), "#") {
			continue
		}
		for strings.HasSuffix(text, `\`) {
			// Grid Engine breaks long values behind a comma or a blank, and indents what
			// follows.
			text = strings.TrimRight(strings.TrimSuffix(text, `\`), " \t")
			if i+1 == len(lines) {
				break
			}
			i++
			text += " " + strings.Trim(lines[i], " \t\r")
		}
		name, value := cut(text)
		if name == "" {
			continue
		}
		entries = append(entries, entry{name, value, start, i + 2})
	}
	return entries, nil
}

// cut splits a line at its first run of blanks.
func cut(text string) (name, value string) {
	text = strings.Trim(text, " \t")
	i := strings.IndexAny(text, " \t")
	if i < 0 {
		return text, ""
	}
	return text[:i], strings.Trim(text[i:], " \t")
}

// form is how a value of a parameter is printed.
type form int

const (
	plain   form = iota // as it was written
	command             // as it was written; a comma is part of a word
	word                // a command, NONE in capitals
	truth               // TRUE or FALSE
	spaced              // a list with blanks between its elements
	commas              // a list with commas
)

// canonical returns a value as it is printed.
func (f form) canonical(v string) string {
	switch {
	case f != plain && f != command && isNone(v):
		return "NONE"
	case f == truth:
		var b bool
		if setBool(&b, v) == nil {
			return strings.ToUpper(strconv.FormatBool(b))
		}
	case f == spaced:
		return strings.Join(list(v), " ")
	case f == commas:
		return strings.Join(list(v), ",")
	}
	return v
}

// param is how one parameter is read and printed.
type param[T any] struct {
	name string
	// standard is the value if a file leaves the parameter out. A parameter without one
	// is then not printed.
	standard string
	form     form
	set      func(*scope, *T, string) error
}

// scope is the place of a parameter that is being read.
type scope struct {
	*loader
	file string
	line int
	name string
}

// warn reports why a value is accepted and changes nothing.
func (s *scope) warn(format string, args ...any) {
	s.conf.Warnings = append(s.conf.Warnings, Problem{File: s.file, Line: s.line, Text: s.name + ": " + fmt.Sprintf(format, args...)})
}

// line is a parameter of an object.
type line struct {
	name    string
	written string // as it is printed
	inForce string // its value on this host, without overrides
	form    form
	number  int // of the line in the file; 0: it is not in the file
}

// apply sets each parameter to its value in the file or its standard, and returns all
// as they are printed. It continues after a mistake, so that all are reported at once.
// If into is nil, the object is another host's, and its values are not checked. For a
// queue, which alone may have overrides, absent has the values of parameters that are
// left out and already set.
func apply[T any](l *loader, path string, entries []entry, params []param[T], into *T, absent map[string]string) []line {
	before := len(l.problems)
	defer func() {
		slices.SortStableFunc(l.problems[before:], func(a, b *Problem) int { return cmp.Compare(a.Line, b.Line) })
	}()
	found := map[string]entry{}
	for _, e := range entries {
		first, dup := found[e.name]
		switch {
		case dup:
			l.problem(path, e.line, "%s is already set in line %d", e.name, first.line)
		case find(params, e.name) == nil:
			l.problem(path, e.line, "unknown parameter %q%s", e.name, suggest(names(params), e.name, ""))
		case strings.Trim(e.value, listSeparators) == "":
			l.problem(path, e.line, "%s has no value", e.name)
		default:
			found[e.name] = e
		}
	}
	var lines []line
	for _, p := range params {
		e, given := found[p.name]
		if !given {
			if v := absent[p.name]; v != "" {
				lines = append(lines, line{name: p.name, written: v, inForce: v, form: p.form})
			}
			if p.standard == "" {
				continue
			}
			e.value = p.standard
		}
		written, inForce := p.form.canonical(e.value), e.value
		if absent != nil && given {
			v, err := parseOverrides(e.value)
			if err == nil {
				written = v.print(p.form)
				inForce, err = v.resolve(l)
			}
			if err != nil {
				l.problem(path, e.line, "%s: %v", p.name, err)
				continue
			}
		}
		if into != nil {
			if err := p.set(&scope{l, path, e.line, p.name}, into, inForce); err != nil {
				l.mistake(path, e.line, p.name+": ", err)
				continue
			}
		}
		lines = append(lines, line{p.name, written, p.form.canonical(inForce), p.form, e.line})
	}
	return lines
}

func find[T any](params []param[T], name string) *param[T] {
	for i := range params {
		if params[i].name == name {
			return &params[i]
		}
	}
	return nil
}

// names returns the names of parameters.
func names[T any](params []param[T]) []string {
	list := make([]string, len(params))
	for i := range params {
		list[i] = params[i].name
	}
	return list
}

// inWords is fmt.Errorf for Grid Engine's own messages.
func inWords(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return &worded{text, text}
}

// worded is an error for which Grid Engine has a message of its own.
type worded struct{ text, words string }

func (w *worded) Error() string { return w.text }

// suggest returns the name that was probably meant, behind a sign.
func suggest(names []string, name, sign string) string {
	best := spell.Nearest(names, name, len(name)/3+1)
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", sign+best)
}
