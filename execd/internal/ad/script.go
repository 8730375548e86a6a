package ad

import (
	"errors"
	"fmt"

	"paddock/classad"
	"paddock/execd/api"
)

// attrScript is the attribute by which fetched work brings its script.
const attrScript = "Script"

// CutScript takes the script of work out of the text of its ad, which is in old syntax: it
// may be larger than an ad. rest has an empty line in its place. A nil script: there is
// none.
func CutScript(text []byte) (rest string, script []byte, err error) {
	rest, s, line, err := classad.CutOldString(string(text), attrScript)
	switch {
	case err != nil:
		return "", nil, err
	case line == 0:
		return rest, nil, nil
	case s == "":
		return "", nil, fmt.Errorf("line %d: %s is empty", line, attrScript)
	case len(s) > api.MaxScript:
		return "", nil, fmt.Errorf("line %d: %s has %d bytes, at most %d are possible", line, attrScript, len(s), api.MaxScript)
	}
	return rest, []byte(s), nil
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
