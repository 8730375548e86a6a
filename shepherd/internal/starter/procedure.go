package starter

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"paddock/spool"
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
func (s *starter) nameShell() {
	if s.shell == "" {
		s.shell = s.places.Shell(s.target.Name)
	}
	if s.shell != "" {
		s.say(`using "` + s.shell + `" as shell of user "` + s.target.Name + `"`)
	}
}

// TokenFile holds the AFS token of the job's owner, as Grid Engine's execd has
// it from the client.
const TokenFile = "token.afs"

// becomeOurs turns into a command of the shepherd's own: as whoever it runs as,
// in its directory, with an environment that nobody else has made.
func (s *starter) becomeOurs() *Failure {
	var err error
	if s.owner.Name, err = s.config.String(spool.KeyJobOwner); err != nil {
		return s.failed(err)
	}
	groups, err := unix.Getgroups()
	if err != nil {
		return s.failed(err)
	}
	s.target = &IDs{Name: strconv.Itoa(unix.Geteuid()), UID: unix.Geteuid(), GID: unix.Getegid(), Groups: groups}
	s.streams = streams{in: nowhere, out: nowhere, err: nowhere, cwd: "."}
	if s.order.Kind == Token {
		s.streams.in.path = TokenFile
	}
	s.call(unix.SYS_UMASK, 0o022)
	s.open(false)
	return s.execFromNothing()
}

// execFromNothing turns into what was ordered, with an environment that nobody
// else has made.
func (s *starter) execFromNothing() *Failure {
	s.env = s.fromNothing()
	s.detailReady()
	cmd, err := s.command()
	if err != nil {
		return s.failed(err)
	}
	return s.exec(cmd)
}
