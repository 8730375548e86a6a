// Package directive finds the options of qsub in files: in the '#$' lines of a
// job script, and in defaults files such as ~/.sge_request. It splits them into
// words, which package option parses. Package submit imports it.
package directive

import (
	"bytes"
	"fmt"
	"strings"

	"paddock/qsub/internal/option"
)

// DefaultPrefix begins the lines of a script that hold options.
const DefaultPrefix = "#$"

// Script returns the words of all lines of a script that begin with prefix;
// none if the prefix is empty. Errors have the name of the script.
func Script(name string, script []byte, prefix string) ([]option.Word, error) {
	if prefix == "" {
		return nil, nil
	}
	return scan(name, script, func(line []byte) ([]byte, bool) { return bytes.CutPrefix(line, []byte(prefix)) })
}

// File returns the words of a defaults file or a file of -@. Lines that begin
// with '#' are comments.
func File(name string, text []byte) ([]option.Word, error) {
	return scan(name, text, func(line []byte) ([]byte, bool) { return line, !bytes.HasPrefix(line, []byte("#")) })
}

func scan(name string, text []byte, pick func([]byte) ([]byte, bool)) ([]option.Word, error) {
	var words []option.Word
	number := 0
	for whole := range bytes.Lines(text) {
		number++
		line, ok := pick(whole)
		if !ok {
			continue
		}
		place := option.Place{File: name, Line: number}
		list, err := Split(string(line))
		if err != nil {
			return nil, &option.Error{Exit: option.ExitValue, Place: place, Text: err.Error()}
		}
		for _, w := range list {
			words = append(words, option.Word{Text: w, Place: place})
		}
	}
	return words, nil
}

// Split splits a line into words. They end at white space, single and double quotes
// group and are removed, and a '#' outside of quotes ends the line. There is no escape
// character. A carriage return is white space, for files from Windows.
func Split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	for len(line) > 0 {
		c := line[0]
		line = line[1:]
		switch {
		case c == '\'' || c == '"':
			end := strings.IndexByte(line, c)
			if end < 0 {
				return nil, fmt.Errorf("unmatched %c", c)
			}
			word.WriteString(line[:end])
			line = line[end+1:]
			inWord = true
		case c == '#' || isSpace(c):
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
			if c == '#' {
				return words, nil
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
