package main

import (
	"context"
	"fmt"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
)

// qdel deletes jobs.
func (s *session) qdel(ctx context.Context, args []string) error {
	settings, err := option.Mixed(option.Qdel, args)
	if err != nil {
		return err
	}
	if done, err := s.asked(settings); done {
		return err
	}
	var request api.DeleteRequest
	last := 0 // where the jobs of the last operand begin
	for i := range settings {
		o := &settings[i]
		switch {
		case o.Option == nil:
			last = len(request.Jobs)
			for _, job := range list(o.Value()) {
				if number, tasks, _ := strings.Cut(job, "."); strings.Trim(number, "0123456789-") == "" && !isNumber(number) || isNumber(number) && tasks != "" && !isRange(tasks) {
					return &failure{exitFailed, fmt.Sprintf("error: ERROR! \"%s\" is an invalid job-task identifier", api.Visible(job))}
				}
				request.Jobs = append(request.Jobs, job)
			}
		case o.Name == "-u":
			request.Users = append(request.Users, list(o.Value())...)
		case o.Name == "-f":
			request.Force = true
		case o.Name == "-t":
			if last == len(request.Jobs) {
				return &failure{exitFailed, fmt.Sprintf("error: found lonely '-t %s' option (The -t option needs a leading job name).", api.Visible(o.Value()))}
			}
			if !isRange(o.Value()) {
				return o.Errorf(exitFailed, "invalid task range \"%s\": want first[-last[:step]], three numbers", o.Value())
			}
			for k := last; k < len(request.Jobs); k++ {
				request.Jobs[k] += "." + o.Value()
			}
			last = len(request.Jobs)
		}
	}
	if len(request.Jobs) == 0 && len(request.Users) == 0 {
		return &option.Error{Text: "ERROR! no option argument", Hint: `Type "qdel -help" for the options.`}
	}
	var reply api.DeleteReply
	if err := s.client.Call(ctx, api.VerbDelete, &request, &reply); err != nil {
		return s.callFailed(err)
	}
	var failed error
	for _, line := range reply.Lines {
		fmt.Fprintln(s.out, api.Visible(line.Text))
		if line.Failed {
			failed = &failure{exit: exitFailed}
		}
	}
	return failed
}

// isNumber reports whether text is a number without sign.
func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// isRange reports whether text is first[-last[:step]].
func isRange(text string) bool {
	span, step, hasStep := strings.Cut(text, ":")
	first, last, hasLast := strings.Cut(span, "-")
	return isNumber(first) && (!hasLast || isNumber(last)) && (!hasStep || isNumber(step))
}
