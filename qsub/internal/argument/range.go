package argument

import (
	"fmt"
	"strconv"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// RangeNumber reads a number of a range. Its errors are Grid Engine's for all ranges.
func RangeNumber(o *option.Setting, text string) (int, error) {
	rest := strings.TrimLeft(text, "0123456789")
	n, err := strconv.Atoi(text[:len(text)-len(rest)])
	switch {
	case rest == text:
		e := o.Errorf(option.ExitValue, "Numerical value invalid!")
		e.Hint = fmt.Sprintf("The initial portion of string \"%s\" contains no decimal number", api.Visible(text))
		return 0, e
	case rest != "":
		return 0, o.Errorf(option.ExitValue, "Range specifier \"%s\" has unknown trailer \"%s\"", text, rest)
	case err != nil:
		return 0, command.Rejected(option.ExitFailed, "The input value for an argument is invalid.")
	}
	return n, nil
}

// taskNumbers reads first[-last[:step]] without looking whether it is a range
// of tasks.
func taskNumbers(o *option.Setting, text string) (t api.Tasks, err error) {
	if rest, minus := strings.CutPrefix(text, "-"); minus && rest != "" {
		return t, o.Errorf(option.ExitValue, "Range specifier \"%s\" has unknown trailer \"%s\"", text, rest)
	}
	span, step, hasStep := strings.Cut(text, ":")
	first, last, hasLast := strings.Cut(span, "-")
	if t.First, err = RangeNumber(o, first); err != nil {
		return t, err
	}
	t.Last, t.Step = t.First, 1
	if hasLast {
		if t.Last, err = RangeNumber(o, last); err != nil {
			return t, err
		}
	}
	if hasStep {
		t.Step, err = RangeNumber(o, step)
	}
	return t, err
}

// TaskRange reads a range of the tasks of an array. That there are not too many
// is execd's to see.
func TaskRange(o *option.Setting, text string) (api.Tasks, error) {
	t, err := taskNumbers(o, text)
	switch {
	case err != nil:
		return api.Tasks{}, err
	case t.Step == 0:
		return api.Tasks{}, o.Errorf(option.ExitValue, "Negative or zero step in range is not allowed")
	}
	if t.Last < t.First {
		t.First, t.Last = t.Last, t.First
	}
	if t.First == 0 {
		return api.Tasks{}, command.Rejected(option.ExitFailed, "job rejected: 0 is an invalid task id")
	}
	return t, nil
}
