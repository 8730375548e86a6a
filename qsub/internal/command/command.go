// Package command is what every client command needs: what one call of it has,
// how it talks to execd and waits for it, and how it ends. It knows no command;
// all packages of qsub but output and option may import it.
package command

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

// Invocation is one call of one command.
type Invocation struct {
	Command     option.Command
	In          io.Reader
	Out         *bufio.Writer
	Err         io.Writer
	OutTerminal *os.File // standard output if it is a terminal, else nil
	ErrTerminal *os.File // standard error if it is a terminal, else nil
	Places      api.Places
	Client      *api.Client
	help        func() error // prints the help
	version     func()       // prints the version
}

// Table has the functions of commands, which are called with the words of the
// command line.
type Table map[option.Command]func(context.Context, *Invocation, []string) error

// Program is several commands in one binary. The name it is called by says
// which one is meant.
type Program struct {
	Version string
	Tables  []Table
}

// Run runs the command that args[0] names. It returns the exit status.
func (p *Program) Run(ctx context.Context, args []string, in io.Reader, out, errout io.Writer) int {
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
	inv := &Invocation{Command: command, In: in, Out: bufio.NewWriter(out), Err: errout, Places: api.ClientPlaces()}
	inv.OutTerminal, inv.ErrTerminal = output.Terminal(out), output.Terminal(errout)
	inv.Client = api.NewClient(inv.Places.Socket)
	app := option.App(command, p.Version, inv.Out, func(c *cli.Context) error {
		inv.help = func() error { return cli.ShowAppHelp(c) }
		inv.version = func() { cli.ShowVersion(c) }
		for _, t := range p.Tables {
			if do := t[command]; do != nil {
				if err := do(ctx, inv, c.Args().Slice()); !errors.Is(err, errAnswered) {
					return err
				}
			}
		}
		return nil
	})
	err := app.RunContext(ctx, append([]string{name}, args[min(1, len(args)):]...))
	if flushed := inv.Out.Flush(); flushed != nil && err == nil {
		err = flushed
		if !errors.Is(err, syscall.EPIPE) {
			err = fmt.Errorf("cannot write standard output: %w", err)
		}
	}
	return inv.exit(err)
}

// Options parses a command line on which options and operands may stand in any order.
func (inv *Invocation) Options(args []string) ([]option.Setting, error) {
	settings, err := option.Mixed(inv.Command, args)
	if err == nil {
		err = inv.Answer(settings)
	}
	return settings, err
}

// PrintJSON prints a reply of execd as JSON.
func (inv *Invocation) PrintJSON(reply any) error {
	text, err := api.Document(reply)
	if err == nil {
		_, err = inv.Out.Write(text)
	}
	return err
}
