package spool

import (
	"bytes"
	"errors"
	"strings"
)

// MaxEnvironmentLine is the longest line of environment, without its newline,
// that Grid Engine's shepherd reads whole. Ours has no such limit.
const MaxEnvironmentLine = 9999

// CheckVariable returns an error unless a string can be a NAME=value of a
// process's environment: it must have a name, and no NUL byte.
func CheckVariable(entry string) error {
	if entry == "" || entry[0] == '=' {
		return cannot("set variable", entry, errors.New("it has no name"))
	}
	if strings.IndexByte(entry, 0) >= 0 {
		return cannot("set variable", entry, errors.New("it contains a NUL byte"))
	}
	return nil
}

// ParseEnvironment parses environment: lines NAME=value, where \n and \\ stand
// for newline and backslash. Other backslashes stand for themselves, as in
// Grid Engine.
func ParseEnvironment(b []byte) ([]string, error) {
	env := make([]string, 0, bytes.Count(b, []byte{'\n'}))
	text := string(b) // most variables are parts of this one copy
	for n := 1; text != ""; n++ {
		line, rest, ok := strings.Cut(text, "\n")
		if !ok {
			return nil, syntax(FileEnvironment, n, "no newline at the end")
		}
		text = rest
		if strings.IndexByte(line, '=') <= 0 {
			return nil, syntax(FileEnvironment, n, "want NAME=value, got "+short([]byte(line)))
		}
		if strings.IndexByte(line, 0) >= 0 {
			return nil, syntax(FileEnvironment, n, "contains a NUL byte")
		}
		env = append(env, unescape(line))
	}
	return env, nil
}

func unescape(line string) string {
	if strings.IndexByte(line, '\\') < 0 {
		return line
	}
	out := make([]byte, 0, len(line))
	for i := 0; i < len(line); i++ {
		c := line[i]
		if c == '\\' && i+1 < len(line) {
			switch line[i+1] {
			case 'n':
				c = '\n'
				i++
			case '\\':
				i++
			}
		}
		out = append(out, c)
	}
	return string(out)
}

// AppendEnvironment appends the content of environment. A name without "=" is
// written with an empty value. An entry that CheckVariable refuses is left
// out, since no process can have it.
func AppendEnvironment(b []byte, env []string) []byte {
	for _, entry := range env {
		if CheckVariable(entry) != nil {
			continue
		}
		// The name is escaped as well: nothing in an entry adds a line.
		for i := 0; i < len(entry); i++ {
			switch c := entry[i]; c {
			case '\n':
				b = append(b, `\n`...)
			case '\\':
				b = append(b, `\\`...)
			default:
				b = append(b, c)
			}
		}
		if strings.IndexByte(entry, '=') < 0 {
			b = append(b, '=')
		}
		b = append(b, '\n')
	}
	return b
}
