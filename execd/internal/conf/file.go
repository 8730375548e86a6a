package conf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
)

// maxFile bounds a configuration file: nobody writes a queue of a megabyte.
const maxFile = 1 << 20

// entry is one parameter of a file.
type entry struct {
	name, value string
	line        int
}

// readFile reads a file in Grid Engine's format: a name, blanks, a value;
// backslash at the end of a line continues it; '#' starts a comment line.
func readFile(path string) ([]entry, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read configuration: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, &Problem{File: path, Text: "not a regular file"}
	}
	if info.Size() > maxFile {
		return nil, &Problem{File: path, Text: fmt.Sprintf("%d bytes are too many for a configuration file", info.Size())}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read configuration: %w", err)
	}
	return parse(path, data)
}

// parse is readFile without the file.
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
		for strings.HasSuffix(text, `\`) && i+1 < len(lines) {
			i++
			// Grid Engine's own tools break long lists after a comma and
			// indent what follows.
			text = strings.TrimSuffix(text, `\`) + strings.Trim(lines[i], " \t\r")
		}
		name, value := cut(text)
		if name == "" {
			continue
		}
		entries = append(entries, entry{name, value, start})
	}
	return entries, nil
}

// cut splits a line at its first run of blanks.
func cut(text string) (name, value string) {
	text = strings.TrimSpace(text)
	i := strings.IndexAny(text, " \t")
	if i < 0 {
		return text, ""
	}
	return text[:i], strings.TrimSpace(text[i:])
}

// param is how one parameter is understood.
type param[T any] struct {
	name string
	set  func(*T, string) error
}

// apply gives each entry to its parameter. It goes on after a mistake, so that
// all are reported at once.
func apply[T any](path string, entries []entry, params []param[T], into *T) error {
	var problems []error
	seen := map[string]int{}
	for _, e := range entries {
		report := func(format string, args ...any) {
			problems = append(problems, &Problem{File: path, Line: e.line, Text: fmt.Sprintf(format, args...)})
		}
		if first, dup := seen[e.name]; dup {
			report("%s is already set in line %d", e.name, first)
			continue
		}
		seen[e.name] = e.line
		p := find(params, e.name)
		switch {
		case p == nil:
			report("unknown parameter %q%s", e.name, suggest(names(params), e.name, ""))
		case e.value == "":
			report("%s has no value", e.name)
		default:
			if err := p.set(into, e.value); err != nil {
				report("%s: %v", e.name, err)
			}
		}
	}
	return errors.Join(problems...)
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

// suggest names the one that was probably meant, behind its sign.
func suggest(names []string, name, sign string) string {
	best, at := "", len(name)/3+1
	for _, n := range names {
		if d := distance(strings.ToLower(name), n); d < at {
			best, at = n, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", sign+best)
}

// distance is the number of letters to change, add or drop (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
