package command

import (
	"errors"
	"strconv"
	"strings"

	"paddock/spool"
)

// A Procedure is a prolog, epilog, pe_start or pe_stop: [user@]/path args.
type Procedure struct {
	User string // empty: the job's owner
	// Argv is the path and the arguments. They are words of config's text, split
	// at blanks and tabs before variables are replaced, so that no job name can
	// become two of them.
	Argv []string
}

// ParseProcedure splits a text into user and words. It replaces no variables;
// they may stand in the words, not in the user.
func ParseProcedure(text string) (Procedure, error) {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) == 0 {
		return Procedure{}, errors.New("it has no command")
	}
	p := Procedure{Argv: words}
	user, path, ok := strings.Cut(words[0], "@")
	if !ok || words[0][0] == '/' {
		return p, nil
	}
	switch {
	case user == "":
		return Procedure{}, errors.New("it has no user before the @")
	case strings.Contains(user, "$"):
		return Procedure{}, errors.New("it has a variable in the name of its user, " + short(user))
	case path == "":
		return Procedure{}, errors.New("it has no command behind " + short(words[0]))
	}
	p.User, words[0] = user, path
	return p, nil
}

// ReadProcedure returns the procedure under a key, variables replaced. ok is
// false when there is none.
func ReadProcedure(key string, scope Scope, c *spool.Config) (p Procedure, ok bool, err error) {
	if key == spool.KeyPEStart || key == spool.KeyPEStop {
		// Grid Engine writes these keys only if there is a PE. If not, a job could
		// have written them itself; see trusted.
		if pe, _ := c.Lookup(spool.KeyPE); IsNone(pe) {
			return Procedure{}, false, nil
		}
	}
	text, err := c.String(key)
	if err != nil {
		return Procedure{}, false, err
	}
	if IsNone(strings.Trim(text, " \t")) {
		return Procedure{}, false, nil
	}
	fail := func(err error) (Procedure, bool, error) {
		return Procedure{}, false, errors.New("cannot use " + key + " " + short(text) + ": " + err.Error())
	}
	if p, err = ParseProcedure(text); err != nil {
		return fail(err)
	}
	size := len(p.User) + len(p.Argv)
	for i, word := range p.Argv {
		if p.Argv[i], err = Expand(word, scope, c, ""); err != nil {
			return fail(err)
		}
		if size += len(p.Argv[i]); size > MaxLength {
			return fail(errors.New("it is longer than " + strconv.Itoa(MaxLength) + " bytes with its variables replaced"))
		}
	}
	if !strings.HasPrefix(p.Argv[0], "/") {
		return Procedure{}, false, errors.New(key + " " + short(p.Argv[0]) + " is not an absolute path")
	}
	return p, true, nil
}
