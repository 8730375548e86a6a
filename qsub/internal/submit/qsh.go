package submit

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"paddock/execd/api"
	"paddock/qrsh/client"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
	"paddock/qsub/internal/show"
)

// nameWindow is the name of jobs of qsh, as Grid Engine has it.
const nameWindow = "INTERACTIVE"

// qsh opens a terminal window as a job, with the words behind the options as its
// arguments.
func qsh(ctx context.Context, inv *command.Invocation, args []string) error {
	defaults, line, words, err := readOptions(inv, args)
	if err != nil {
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
		j.req.Env = append(j.req.Env, "XAUTHORITY="+value) // the X server may refuse the window without it
	}
	if j.verify {
		show.Job(inv.Out, &api.Detail{Request: j.req}, true)
		return nil
	}
	// Signals are caught before the job is submitted, so that none leaves it behind.
	waiting, stop := signal.NotifyContext(ctx, client.Endings()...)
	defer stop()
	reply, err := submitInteractive(ctx, inv, j)
	if err != nil || reply.Job == 0 {
		return err
	}
	if !j.req.Now {
		err := waitForStart(waiting, inv, reply)
		if err != nil && waiting.Err() != nil && ctx.Err() == nil {
			stop() // the next signal ends the program
			return cancelInteractive(ctx, inv, reply.Job)
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(inv.Err, "Your interactive job %d has been successfully scheduled.\n", reply.Job)
	return nil
}

// waitForStart returns when the job, for which there may be no slot yet, has started.
func waitForStart(ctx context.Context, inv *command.Invocation, job *api.SubmitReply) error {
	request := api.WaitRequest{Job: job.Job, Cursor: job.Cursor, Start: true}
	for {
		var reply api.WaitReply
		err := inv.Patiently(ctx, nil, api.VerbWait, &request, &reply)
		switch {
		case err != nil:
			return inv.CallFailed(err)
		case reply.Started || len(reply.Ended) > 0:
			return nil
		case reply.Error != "":
			return command.Failf("%s: job %d: %s", inv.Command, job.Job, api.Visible(reply.Error))
		case reply.Done:
			return notScheduled(inv)
		}
		request.Cursor = reply.Cursor
	}
}

// whichDisplay returns the X display for the window.
func (j *job) whichDisplay() (string, error) {
	display, ok := j.display, j.display != ""
	if !ok {
		display, ok = os.LookupEnv("DISPLAY")
	}
	if !ok {
		return "", command.Failf("error: no DISPLAY variable found with interactive job")
	}
	if display == "" {
		return "", command.Failf("error: empty DISPLAY variable delivered with interactive job")
	}
	if !api.PlainDisplay(display) {
		return "", &option.Error{Exit: option.ExitValue, Text: fmt.Sprintf("%q is not an X display", display)}
	}
	return display, nil
}
