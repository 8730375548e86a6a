package conf

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"paddock/spool"
)

// Rewrite changes parameters in the text of a file and leaves everything else, comments
// above all, byte by byte. It adds a parameter that the file does not have at the end,
// and removes one whose new value is empty. It checks only that names and values do not
// make other lines.
func Rewrite(data []byte, set map[string]string) ([]byte, error) {
	for name, value := range set {
		switch {
		case name == "" || strings.Trim(name, variableLetters) != "":
			return nil, fmt.Errorf("%q is not the name of a parameter", name)
		case !spool.PlainValue(value) || strings.HasSuffix(value, `\`) || strings.Trim(value, " \t") != value:
			return nil, fmt.Errorf("%s: %q is not a value in one line", name, value)
		}
	}
	return rewrite(data, set)
}

// rewrite is Rewrite for names and values that were checked. The lines of the files
// complexes, managers and operators begin with a name too.
func rewrite(data []byte, set map[string]string) ([]byte, error) {
	entries, err := parse("the file", data)
	if err != nil {
		return nil, err
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	var out bytes.Buffer
	next := 1 // the next line to copy
	done := map[string]bool{}
	for _, e := range entries {
		value, changed := set[e.name]
		if !changed {
			continue
		}
		end := min(e.end, len(lines)+1)
		for ; next < e.line; next++ {
			out.Write(lines[next-1])
		}
		if value != "" && !done[e.name] {
			// The name and the blanks around it stay as they are.
			first := lines[e.line-1]
			at := bytes.Index(first, []byte(e.name)) + len(e.name)
			gap := len(first[at:]) - len(bytes.TrimLeft(first[at:], " \t"))
			out.Write(first[:at+gap])
			if gap == 0 {
				out.WriteByte(' ')
			}
			out.WriteString(value)
			out.WriteByte('\n')
		}
		next, done[e.name] = end, true
	}
	for ; next <= len(lines); next++ {
		out.Write(lines[next-1])
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if done[name] || set[name] == "" {
			continue
		}
		if text := out.Bytes(); len(text) > 0 && text[len(text)-1] != '\n' {
			out.WriteByte('\n')
		}
		if bytes.HasSuffix(bytes.TrimRight(out.Bytes(), " \t\r\n"), []byte(`\`)) {
			out.WriteByte('\n') // the value continues in an empty line
		}
		fmt.Fprintf(&out, "%s %s\n", name, set[name])
	}
	return out.Bytes(), nil
}
