package main

import (
	"bufio"
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
	"paddock/qsub/internal/output"
)

// invocation is one call of one command.
type invocation struct {
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

// table says what commands do with their words.
type table map[option.Command]func(context.Context, *invocation, []string) error

// program is commands in one binary, told apart by the name it is called by.
type program struct {
	version string
	tables  []table
}

// run is one call of the program. It returns the exit status.
func (p *program) run(ctx context.Context, args []string, in io.Reader, out, errout io.Writer) int {
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
	inv := &invocation{command: command, in: in, out: bufio.NewWriter(out), err: errout, places: api.ClientPlaces()}
	inv.screen, inv.notes = output.Terminal(out), output.Terminal(errout)
	inv.client = api.NewClient(inv.places.Socket)
	app := option.App(command, p.version, inv.out, func(c *cli.Context) error {
		inv.help = func() error { return cli.ShowAppHelp(c) }
		inv.version = func() { cli.ShowVersion(c) }
		for _, t := range p.tables {
			if do := t[command]; do != nil {
				if err := do(ctx, inv, c.Args().Slice()); !errors.Is(err, errAnswered) {
					return err
				}
			}
		}
		return nil
	})
	err := app.RunContext(ctx, append([]string{name}, args[min(1, len(args)):]...))
	if flushed := inv.out.Flush(); flushed != nil && err == nil {
		err = flushed
		if !errors.Is(err, syscall.EPIPE) {
			err = fmt.Errorf("cannot write standard output: %w", err)
		}
	}
	return inv.exit(err)
}

// mixed reads a command line on which options and operands mix.
func (inv *invocation) mixed(args []string) ([]option.Setting, error) {
	settings, err := option.Mixed(inv.command, args)
	if err == nil {
		err = inv.asked(settings)
	}
	return settings, err
}
