package ad

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"paddock/execd/api"
)

// Ads have two forms for the arguments and the environment of a job. The old one (Args,
// Env) has no quoting: an argument cannot have a space, nor a variable a semicolon. The
// new one (Arguments, Environment) has single quotes, doubled to stand for themselves.

// blanks separate arguments.
const blanks = " \t\n\v\f\r"

// ParseArgs reads arguments in the old form.
func ParseArgs(text string) []string {
	return slices.Collect(strings.FieldsFuncSeq(text, isBlank))
}

func isBlank(r rune) bool { return strings.ContainsRune(blanks, r) }

// ParseArguments reads arguments in the new form.
func ParseArguments(text string) ([]string, error) {
	var words []string
	var b []byte
	quoted, some := false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\'' && quoted && i+1 < len(text) && text[i+1] == '\'':
			b = append(b, c)
			i++
		case c == '\'':
			quoted, some = !quoted, true
		case !quoted && strings.IndexByte(blanks, c) >= 0:
			if some {
				words = append(words, string(b))
			}
			b, some = b[:0], false
		default:
			b, some = append(b, c), true
		}
	}
	if quoted {
		return nil, errors.New("a quote without end")
	}
	if some {
		words = append(words, string(b))
	}
	return words, nil
}

// FormatArguments writes arguments in the new form.
func FormatArguments(words []string) string {
	var b strings.Builder
	for i, word := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		if word == "" || strings.ContainsAny(word, blanks+"'") {
			word = "'" + strings.ReplaceAll(word, "'", "''") + "'"
		}
		b.WriteString(word)
	}
	return b.String()
}

// ParseEnv reads an environment in the old form: NAME=value;NAME=value.
func ParseEnv(text string) ([]string, error) {
	var entries []string
	for entry := range strings.SplitSeq(text, ";") {
		if entry = strings.TrimLeft(entry, blanks); entry != "" {
			entries = append(entries, entry)
		}
	}
	return variables(entries)
}

// ParseEnvironment reads an environment in the new form: NAME=value NAME='a value'.
func ParseEnvironment(text string) ([]string, error) {
	entries, err := ParseArguments(text)
	if err != nil {
		return nil, err
	}
	return variables(entries)
}

// FormatEnvironment writes an environment in the new form.
func FormatEnvironment(entries []string) string { return FormatArguments(entries) }

// variables returns the variables, each with its last value. It refuses an entry that
// is not NAME=value.
func variables(entries []string) ([]string, error) {
	at := make(map[string]int, len(entries))
	var list []string
	for _, entry := range entries {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" || strings.ContainsAny(name, "\r\n") {
			return nil, fmt.Errorf("%q is not NAME=value", api.Short(entry))
		}
		if i, twice := at[name]; twice {
			list[i] = entry
			continue
		}
		at[name] = len(list)
		list = append(list, entry)
	}
	return list, nil
}
