package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
)

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
func (inv *invocation) exit(err error) int {
	if err == nil {
		return 0
	}
	if f, ok := errors.AsType[*failure](err); ok {
		if f.text != "" {
			fmt.Fprintln(inv.err, f.text)
		}
		return f.exit
	}
	if errors.Is(err, syscall.EPIPE) {
		return 1 // whoever read has gone, and knows it
	}
	if e, ok := errors.AsType[*option.Error](err); ok {
		if e.Before != "" {
			fmt.Fprintf(inv.err, "\n%s\n", e.Before)
		}
		if e.Alone {
			fmt.Fprintf(inv.err, "%s\n\n", api.Visible(e.Error()))
			return e.Exit
		}
		fmt.Fprintln(inv.err, inv.usagePrefix()+api.Visible(e.Error()))
		if e.Hint != "" {
			fmt.Fprintln(inv.err, e.Hint)
		}
		if inv.command&(option.Qsub|option.Qhold|option.Qrls|option.Qalter|option.Qresub|option.Qrsh|option.Qlogin|option.Qsh) != 0 {
			return e.Exit
		}
		return 1
	}
	fmt.Fprintf(inv.err, "%s: %s\n", inv.command, api.Visible(err.Error()))
	return 1
}

// usagePrefix is what Grid Engine's commands begin with when they tell of their
// options: some their name, some that it is an error, and some nothing.
func (inv *invocation) usagePrefix() string {
	switch inv.command {
	case option.Qstat, option.Qselect, option.Qmod:
		return ""
	case option.Qhost, option.Qconf, option.Qdel:
		return "error: "
	}
	return inv.command.String() + ": "
}

// errAnswered is the error of options that ask for help or the version, which
// was printed.
var errAnswered = errors.New("help or version was printed")

// asked prints help or the version if the settings ask for it, and returns
// errAnswered then.
func (inv *invocation) asked(settings []option.Setting) error {
	for i := range settings {
		if settings[i].Option == nil {
			continue // an operand
		}
		switch settings[i].Name {
		case "-help":
			return cmp.Or(inv.help(), errAnswered)
		case "-version":
			inv.version()
			return errAnswered
		}
	}
	return nil
}

// rejected is Grid Engine's form of a submission that was refused.
func rejected(exit int, reason string) error {
	return failWith(exit, "Unable to run job: %s\nExiting.", visibleLines(reason))
}

// cause returns the system's words for an error of a file, spelled as the C
// library does, which is what scripts look for.
func cause(err error) string {
	text := err.Error()
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		text = e.Error()
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// visibleLines is api.Visible for a text of several lines.
func visibleLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = api.Visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

// noArguments is the error of a command that has nothing to do.
func (inv *invocation) noArguments() error {
	return failf("ERROR! no option argument\nType \"%s -help\" for the options.", inv.command)
}

// noOperand is the error of a word where only options may be.
func (inv *invocation) noOperand(o *option.Setting) error {
	hint := fmt.Sprintf("Type \"%s -help\" for the options.", inv.command)
	if inv.command == option.Qstat && o.Value() != "" {
		hint = fmt.Sprintf("Did you mean \"%s -j %s\"? %s", inv.command, api.Visible(o.Value()), hint)
	}
	return &option.Error{Exit: option.ExitFailed, Text: fmt.Sprintf("invalid option argument \"%s\"", o.Value()), Hint: hint}
}
