// Package argument parses arguments that several commands take: jobs and tasks,
// queues, lists, resources, dates and times. It knows no command; the packages
// of the commands import it.
package argument

import (
	"fmt"
	"strconv"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// Jobs gathers the jobs of a command line: numbers, numbers with tasks,
// names and patterns, -t behind them, and -u.
type Jobs struct {
	Words []string
	Users []string
	last  int // index of the first word of the last operand
}

// Take adds an operand, -t or -u, and reports whether the setting is one of
// them. An error has the exit status, and before in front of its text.
func (j *Jobs) Take(o *option.Setting, exit int, before string) (taken bool, err error) {
	switch {
	case o.Option == nil:
		if err := j.Add(o.Value()); err != nil {
			return true, command.FailWith(exit, "%s%s", before, err)
		}
	case o.Name == "-u":
		j.Users = append(j.Users, List(o.Value())...)
	case o.Name == "-t":
		return true, j.Tasks(o, exit)
	default:
		return false, nil
	}
	return true, nil
}

// Add adds the words of a list. Commands differ in what they print before the
// text of the error.
func (j *Jobs) Add(text string) error {
	j.last = len(j.Words)
	for _, job := range List(text) {
		number, tasks, _ := strings.Cut(job, ".")
		zero := IsNumber(number) && strings.Trim(number, "0") == ""
		if zero || strings.Trim(number, "0123456789-") == "" && !IsNumber(number) || IsNumber(number) && tasks != "" && !IsRange(tasks) {
			return fmt.Errorf("ERROR! \"%s\" is an invalid job-task identifier", api.Visible(job))
		}
		j.Words = append(j.Words, job)
	}
	return nil
}

// Tasks appends the tasks of -t to the words of the last operand.
func (j *Jobs) Tasks(o *option.Setting, exit int) error {
	if j.last == len(j.Words) {
		return command.FailWith(exit, "error: found lonely '-t %s' option (The -t option needs a leading job name).", api.Visible(o.Value()))
	}
	if strings.Contains(o.Value(), ",") {
		return o.Errorf(option.ExitValue, "-t option only allows one range specification")
	}
	if _, err := taskNumbers(o, o.Value()); err != nil {
		return err
	}
	for k := j.last; k < len(j.Words); k++ {
		j.Words[k] += "." + o.Value()
	}
	j.last = len(j.Words)
	return nil
}

// RangeNumber reads a number of a range. Grid Engine has the same errors for
// all ranges.
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

// taskNumbers reads first[-last[:step]], whatever the numbers are.
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

// TaskRange reads a range of tasks of an array. Execd checks that there are not
// too many.
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
