package command

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
)

// Failure is an error with an exit status and a message of its own.
type Failure struct {
	Exit int
	Text string // printed as it is; "" if the user was told before
}

func (f *Failure) Error() string { return f.Text }

// Failf returns a failure with exit status 1.
func Failf(format string, args ...any) error {
	return FailWith(option.ExitFailed, format, args...)
}

// FailWith returns a failure.
func FailWith(exit int, format string, args ...any) error {
	return &Failure{Exit: exit, Text: fmt.Sprintf(format, args...)}
}

// exit prints the error of a command and returns its exit status.
func (inv *Invocation) exit(err error) int {
	if err == nil {
		return 0
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		if f.Text != "" {
			fmt.Fprintln(inv.Err, f.Text)
		}
		return f.Exit
	}
	if errors.Is(err, syscall.EPIPE) {
		return 1 // the reader has gone: there is nobody to tell
	}
	if e, ok := errors.AsType[*option.Error](err); ok {
		if e.Before != "" {
			fmt.Fprintf(inv.Err, "\n%s\n", e.Before)
		}
		if e.Alone {
			fmt.Fprintf(inv.Err, "%s\n\n", api.Visible(e.Error()))
			return e.Exit
		}
		fmt.Fprintln(inv.Err, inv.usagePrefix()+api.Visible(e.Error()))
		if e.Hint != "" {
			fmt.Fprintln(inv.Err, e.Hint)
		}
		if inv.Command&(option.Qsub|option.Qhold|option.Qrls|option.Qalter|option.Qresub|option.Qrsh|option.Qlogin|option.Qsh) != 0 {
			return e.Exit
		}
		return 1
	}
	fmt.Fprintf(inv.Err, "%s: %s\n", inv.Command, api.Visible(err.Error()))
	return 1
}

// usagePrefix returns what stands before an error in the use of options, as in
// Grid Engine: the name of the command, "error: " or nothing.
func (inv *Invocation) usagePrefix() string {
	switch inv.Command {
	case option.Qstat, option.Qselect, option.Qmod:
		return ""
	case option.Qhost, option.Qconf, option.Qdel:
		return "error: "
	}
	return inv.Command.String() + ": "
}

// errAnswered ends a command that was asked for help or the version, once that
// is printed.
var errAnswered = errors.New("help or version was printed")

// Answer prints help or the version if the settings ask for it, and returns
// errAnswered then.
func (inv *Invocation) Answer(settings []option.Setting) error {
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

// Rejected returns the failure of a submission that was refused, as in Grid Engine.
func Rejected(exit int, reason string) error {
	return FailWith(exit, "Unable to run job: %s\nExiting.", VisibleLines(reason))
}

// ErrorText returns the text of a system call's error with a capital letter, as
// the C library spells it: scripts look for it.
func ErrorText(err error) string {
	text := err.Error()
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		text = e.Error()
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// VisibleLines is api.Visible for a text of several lines.
func VisibleLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = api.Visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

// NoArguments returns the error of a command that was given nothing to do.
func (inv *Invocation) NoArguments() error {
	return Failf("ERROR! no option argument\nType \"%s -help\" for the options.", inv.Command)
}

// NoOperand returns the error of a word where only options may be.
func (inv *Invocation) NoOperand(o *option.Setting) error {
	hint := fmt.Sprintf("Type \"%s -help\" for the options.", inv.Command)
	if inv.Command == option.Qstat && o.Value() != "" {
		hint = fmt.Sprintf("Did you mean \"%s -j %s\"? %s", inv.Command, api.Visible(o.Value()), hint)
	}
	return &option.Error{Exit: option.ExitFailed, Text: fmt.Sprintf("invalid option argument \"%s\"", o.Value()), Hint: hint}
}
