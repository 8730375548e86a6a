package starter

import (
	"errors"
	"strconv"
)

// procedure returns what a procedure runs: its words, without a shell. The path
// must be absolute: any other would be looked for in the PATH or in the
// directory of the job, which are its owner's to choose.
func procedure(name string, argv []string) (Command, error) {
	if len(argv) == 0 || argv[0] == "" {
		return Command{}, errors.New("cannot start " + name + ": no command is given")
	}
	if argv[0][0] != '/' {
		return Command{}, errors.New("cannot start " + name + ": " + strconv.Quote(argv[0]) + " is not an absolute path")
	}
	return Command{File: argv[0], Argv: argv, Script: argv[0]}, nil
}

// nameShell traces the login shell of whom the procedure runs as. Nothing
// depends on it: Grid Engine says it and does not use it.
func (s *stage) nameShell() {
	if s.shell == "" {
		s.shell = s.places.Shell(s.target.Name)
	}
	if s.shell != "" {
		s.say(`using "` + s.shell + `" as shell of user "` + s.target.Name + `"`)
	}
}
