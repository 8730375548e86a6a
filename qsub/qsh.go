package main

import (
	"context"
	"fmt"
	"os"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
)

// nameWindow is the name of jobs of qsh, as Grid Engine has it.
const nameWindow = "INTERACTIVE"

// qsh opens a terminal window as a job, with the words behind the options as its
// arguments.
func (s *session) qsh(ctx context.Context, args []string) error {
	defaults, line, words, done, err := s.readOptions(args)
	if err != nil || done {
		return err
	}
	j, err := newJob(defaults, line)
	if err != nil {
		return err
	}
	display, err := j.whichDisplay()
	if err != nil {
		return err
	}
	if !j.hasName {
		j.req.Name, j.hasName = nameWindow, true
	}
	j.req.Binary = true
	if err := j.compose("", nil, append([]string{nameWindow}, words...)); err != nil {
		return err
	}
	j.req.Interactive = &api.Interactive{Display: display}
	j.onlyInteractive()
	if value, ok := os.LookupEnv("XAUTHORITY"); ok {
		j.req.Env = append(j.req.Env, "XAUTHORITY="+value) // without it nobody may open the window
	}
	if j.verify {
		writeDetail(s.out, &api.Detail{Request: j.req}, true)
		return nil
	}
	reply, err := s.submitInteractive(ctx, j)
	if err != nil || reply.Job == 0 {
		return err
	}
	if j.req.Now {
		fmt.Fprintf(s.err, "Your interactive job %d has been successfully scheduled.\n", reply.Job)
	}
	return nil
}

// whichDisplay returns where the window is to open.
func (j *job) whichDisplay() (string, error) {
	display, ok := j.display, j.display != ""
	if !ok {
		display, ok = os.LookupEnv("DISPLAY")
	}
	if !ok {
		return "", &failure{exitFailed, "error: no DISPLAY variable found with interactive job"}
	}
	if display == "" {
		return "", &failure{exitFailed, "error: empty DISPLAY variable delivered with interactive job"}
	}
	if !api.PlainDisplay(display) {
		return "", &option.Error{Exit: option.ExitValue, Text: fmt.Sprintf("%q is not an X display", display)}
	}
	return display, nil
}
