// Package argument reads the arguments that several commands take: jobs and tasks,
// queues, lists, resources, dates and times. It knows no command; the packages of
// the commands import it.
package argument

import (
	"fmt"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// Jobs gathers the jobs of a command line: numbers, numbers with tasks,
// names and patterns, and -t behind them.
type Jobs struct {
	Words []string
	last  int // where the words of the last operand begin
}

// Add adds the words of a list. The error has Grid Engine's text; what stands
// before it is the command's.
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

// Tasks applies -t to the words of the last operand.
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
