package main

import (
	"fmt"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// jobWords gathers the jobs of a command line: numbers, numbers with tasks,
// names and patterns, and -t behind them.
type jobWords struct {
	words []string
	last  int // where the words of the last operand begin
}

// add adds the words of a list. The error has Grid Engine's text; what stands
// before it is the command's.
func (j *jobWords) add(text string) error {
	j.last = len(j.words)
	for _, job := range list(text) {
		number, tasks, _ := strings.Cut(job, ".")
		zero := isNumber(number) && strings.Trim(number, "0") == ""
		if zero || strings.Trim(number, "0123456789-") == "" && !isNumber(number) || isNumber(number) && tasks != "" && !isRange(tasks) {
			return fmt.Errorf("ERROR! \"%s\" is an invalid job-task identifier", api.Visible(job))
		}
		j.words = append(j.words, job)
	}
	return nil
}

// tasks applies -t to the words of the last operand.
func (j *jobWords) tasks(o *option.Setting, exit int) error {
	if j.last == len(j.words) {
		return command.FailWith(exit, "error: found lonely '-t %s' option (The -t option needs a leading job name).", api.Visible(o.Value()))
	}
	if strings.Contains(o.Value(), ",") {
		return o.Errorf(option.ExitValue, "-t option only allows one range specification")
	}
	if _, err := taskNumbers(o, o.Value()); err != nil {
		return err
	}
	for k := j.last; k < len(j.words); k++ {
		j.words[k] += "." + o.Value()
	}
	j.last = len(j.words)
	return nil
}
