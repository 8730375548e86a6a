package ad

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"paddock/classad"
	"paddock/execd/api"
)

// attrScript is the attribute by which fetched work brings its script.
const attrScript = "Script"

// CutScript takes the script of work out of the text of its ad, which is in old syntax: it
// may be larger than an ad. rest has an empty line in its place. A nil script: there is
// none.
func CutScript(text []byte) (rest string, script []byte, err error) {
	var b strings.Builder
	number := 0
	for line := range bytes.Lines(text) {
		number++
		expression, is := cutName(line, attrScript)
		if !is {
			b.Write(line)
			continue
		}
		b.WriteByte('\n')
		s, ok := classad.ParseOldString(string(expression))
		switch {
		case !ok:
			return "", nil, fmt.Errorf("line %d: %s is neither a string nor eval of one", number, attrScript)
		case s == "":
			return "", nil, fmt.Errorf("line %d: %s is empty", number, attrScript)
		case len(s) > api.MaxScript:
			return "", nil, fmt.Errorf("line %d: %s has %d bytes, at most %d are possible", number, attrScript, len(s), api.MaxScript)
		}
		script = []byte(s)
	}
	return b.String(), script, nil
}

// cutName returns the expression of a line of old syntax, if that is about an attribute.
func cutName(line []byte, name string) (expression []byte, is bool) {
	line = bytes.Trim(line, " \t\r\n")
	if len(line) < len(name) || !strings.EqualFold(string(line[:len(name)]), name) {
		return nil, false
	}
	expression, is = bytes.CutPrefix(bytes.TrimLeft(line[len(name):], " \t"), []byte("="))
	return expression, is && !bytes.HasPrefix(expression, []byte("="))
}

// script reads by what the work is run, and makes the request one of a script, as if that had been submitted.
func (r *reader) script(req *api.SubmitRequest) {
	req.Shell = r.text("Shell")
	r.checkPath("Shell", req.Shell)
	if r.o.Script == nil {
		if _, has := r.value(attrScript); has {
			r.fail(attrScript, errors.New("only work that is fetched can bring its script"))
		}
		return
	}
	if r.integer("JobUniverse", universeVanilla) != universeVanilla {
		r.fail(attrScript, fmt.Errorf("work with it is of universe %d", universeVanilla))
	}
	req.Binary, req.NoShell, req.Script = false, false, r.o.Script
	if req.Command = r.text("Cmd"); req.Command == "" {
		req.Command = "STDIN"
	}
	r.checkPath("Cmd", req.Command)
}
