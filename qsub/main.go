// Command qsub is the client commands in one binary: qsub, qstat, qdel, qhold,
// qrls, qmod, qhost, qselect, qconf, qacct, qalter, qresub, qwait, qlog, qtop,
// qrsh, qlogin and qsh, told apart by the name it is called by. They speak to execd through
// execd/api and never read its spool; qacct reads the accounting file itself.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
)

// version is set by the linker.
var version = "0.1.0-dev"

func main() {
	os.Exit(run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// session is one call of one command.
type session struct {
	command option.Command
	in      io.Reader
	out     *bufio.Writer
	err     io.Writer
	screen  *os.File // standard output when it is a terminal, else nil
	notes   *os.File // and standard error
	places  api.Places
	client  *api.Client
	help    func() error // prints the help
	version func()       // prints the version
}

// actions are what the commands do with their words.
var actions = map[option.Command]func(*session, context.Context, []string) error{
	option.Qsub:    (*session).qsub,
	option.Qstat:   (*session).qstat,
	option.Qdel:    (*session).qdel,
	option.Qhold:   (*session).qhold,
	option.Qrls:    (*session).qhold,
	option.Qmod:    (*session).qmod,
	option.Qhost:   (*session).qhost,
	option.Qselect: (*session).qselect,
	option.Qconf:   (*session).qconf,
	option.Qacct:   (*session).qacct,
	option.Qalter:  (*session).qalter,
	option.Qresub:  (*session).qresub,
	option.Qrsh:    (*session).qrsh,
	option.Qlogin:  (*session).qrsh,
	option.Qsh:     (*session).qsh,
	option.Qwait:   (*session).qwait,
	option.Qlog:    (*session).qlog,
	option.Qtop:    (*session).qtop,
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, in io.Reader, out, errout io.Writer) int {
	name := "qsub"
	if len(args) > 0 {
		name = filepath.Base(args[0])
	}
	command, ok := option.ByName(name)
	if !ok {
		fmt.Fprintf(errout, "%s: cannot tell what to do: the program wants to be called", name)
		for _, c := range option.Commands() {
			fmt.Fprintf(errout, " %s", c)
		}
		fmt.Fprintln(errout)
		return option.ExitUsage
	}
	s := &session{command: command, in: in, out: bufio.NewWriter(out), err: errout, places: api.ClientPlaces()}
	s.screen, s.notes = terminal(out), terminal(errout)
	s.client = api.NewClient(s.places.Socket)
	app := option.App(command, version, s.out, func(c *cli.Context) error {
		s.help = func() error { return cli.ShowAppHelp(c) }
		s.version = func() { cli.ShowVersion(c) }
		if err := actions[command](s, ctx, c.Args().Slice()); !errors.Is(err, errAnswered) {
			return err
		}
		return nil
	})
	err := app.RunContext(ctx, append([]string{name}, args[min(1, len(args)):]...))
	if flushed := s.out.Flush(); flushed != nil && err == nil {
		err = flushed
		if !errors.Is(err, syscall.EPIPE) {
			err = fmt.Errorf("cannot write standard output: %w", err)
		}
	}
	return s.exit(err)
}

// failure is an end of a command that has its own words and exit status.
type failure struct {
	exit int
	text string // printed as it is; "": everything was said
}

func (f *failure) Error() string { return f.text }

// failf returns a failure with exit status 1.
func failf(format string, args ...any) error {
	return failWith(option.ExitFailed, format, args...)
}

// failWith returns a failure.
func failWith(exit int, format string, args ...any) error {
	return &failure{exit: exit, text: fmt.Sprintf(format, args...)}
}

// exit prints an error and returns the exit status.
func (s *session) exit(err error) int {
	if err == nil {
		return 0
	}
	if f, ok := errors.AsType[*failure](err); ok {
		if f.text != "" {
			fmt.Fprintln(s.err, f.text)
		}
		return f.exit
	}
	if errors.Is(err, syscall.EPIPE) {
		return 1 // whoever read has gone, and knows it
	}
	if e, ok := errors.AsType[*option.Error](err); ok {
		if e.Before != "" {
			fmt.Fprintf(s.err, "\n%s\n", e.Before)
		}
		if e.Alone {
			fmt.Fprintf(s.err, "%s\n\n", api.Visible(e.Error()))
			return e.Exit
		}
		fmt.Fprintln(s.err, s.usagePrefix()+api.Visible(e.Error()))
		if e.Hint != "" {
			fmt.Fprintln(s.err, e.Hint)
		}
		if s.command&(option.Qsub|option.Qhold|option.Qrls|option.Qalter|option.Qresub|option.Qrsh|option.Qlogin|option.Qsh) != 0 {
			return e.Exit
		}
		return 1
	}
	fmt.Fprintf(s.err, "%s: %s\n", s.command, api.Visible(err.Error()))
	return 1
}

// usagePrefix is what Grid Engine's commands begin with when they tell of their
// options: some their name, some that it is an error, and some nothing.
func (s *session) usagePrefix() string {
	switch s.command {
	case option.Qstat, option.Qselect, option.Qmod:
		return ""
	case option.Qhost, option.Qconf, option.Qdel:
		return "error: "
	}
	return s.command.String() + ": "
}

// errAnswered is the error of options that ask for help or the version, which
// was printed.
var errAnswered = errors.New("help or version was printed")

// asked prints help or the version if the settings ask for it, and returns
// errAnswered then.
func (s *session) asked(settings []option.Setting) error {
	for i := range settings {
		if settings[i].Option == nil {
			continue // an operand
		}
		switch settings[i].Name {
		case "-help":
			return cmp.Or(s.help(), errAnswered)
		case "-version":
			s.version()
			return errAnswered
		}
	}
	return nil
}

// mixed reads a command line on which options and operands mix.
func (s *session) mixed(args []string) ([]option.Setting, error) {
	settings, err := option.Mixed(s.command, args)
	if err == nil {
		err = s.asked(settings)
	}
	return settings, err
}
