package watch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/qrsh/client"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// deleteTime is how long the deletion of the job after ^C may take.
const deleteTime = 10 * time.Second

// Wait waits for the end of a job and returns a failure with the exit status of
// qsub -sync.
func Wait(ctx context.Context, inv *command.Invocation, job *api.SubmitReply, terse bool) error {
	err := command.Interruptible(ctx, func(ctx context.Context) error {
		return follow(ctx, inv, job, terse)
	}, syscall.SIGINT, syscall.SIGTERM)
	if !errors.As(err, &client.Signaled{}) {
		return err
	}
	fmt.Fprintf(inv.Err, "\nInterrupted!\nPlease wait while qsub shuts down.\n")
	ctx, stop := context.WithTimeout(ctx, deleteTime)
	defer stop()
	var reply api.DeleteReply
	err = inv.Client.Call(ctx, api.VerbDelete, &api.DeleteRequest{Jobs: []string{strconv.Itoa(job.Job)}}, &reply)
	if err != nil {
		return command.Failf("qsub: cannot delete job %d: %s", job.Job, api.Visible(err.Error()))
	}
	return &command.Failure{Exit: option.ExitFailed}
}

// follow prints how tasks end until none is left.
func follow(ctx context.Context, inv *command.Invocation, job *api.SubmitReply, terse bool) error {
	w := syncWait{inv: inv, job: job, terse: terse}
	request := api.WaitRequest{Job: job.Job, Cursor: job.Cursor}
	var line *command.StatusLine
	if job.Tasks.IsArray() {
		line = inv.Progress(ctx, []string{strconv.Itoa(job.Job)}, job.Count())
		defer line.End()
	}
	for {
		var reply api.WaitReply
		if err := inv.Patiently(ctx, line, api.VerbWait, &request, &reply); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("cannot wait for job %d: %w", job.Job, err)
		}
		request.Cursor = reply.Cursor
		if done, err := w.reply(line, &reply); done {
			return err
		}
	}
}

// reply prints the ends of a reply, and reports whether the job is over.
func (w *syncWait) reply(line *command.StatusLine, reply *api.WaitReply) (done bool, err error) {
	line.Hold()
	defer line.Release()
	for i := range reply.Ended {
		w.task(&reply.Ended[i], reply.Error)
	}
	switch {
	case reply.Error != "":
		// Here Grid Engine waits without end.
		if !w.unable {
			fmt.Fprintf(w.inv.Err, "Unable to run job %d\n", w.job.Job)
		}
		return true, command.Failf("%s", stuckText(w.job.Job, &api.Stuck{Reason: reply.Error, Vain: reply.Vain}))
	case reply.Done:
		return true, w.end()
	}
	if err := w.inv.Out.Flush(); err != nil {
		return true, fmt.Errorf("cannot write standard output: %w", err)
	}
	return false, nil
}

// stuckText says why a job does not end by itself.
func stuckText(job any, stuck *api.Stuck) string {
	state := "is in error state"
	if stuck.Vain {
		state = "waits in vain"
	}
	return fmt.Sprintf("Job %v %s: %s", job, state, api.Visible(stuck.Reason))
}

// syncWait gathers the ends of a job's tasks.
type syncWait struct {
	inv   *command.Invocation
	job   *api.SubmitReply
	terse bool
	ended taskSet
	exit  int // the first that is not 0
	// unable says that the user was told of a task that could not be run.
	unable bool
}

// task prints how a task ended. A reason that equals inError, the reason of the
// error state of the whole job, is not printed again.
func (w *syncWait) task(e *api.TaskEnd, inError string) {
	if e.Failed == accounting.FailedMigrating || e.Failed == accounting.FailedRescheduling {
		return
	}
	id, number := strconv.Itoa(w.job.Job), 1
	if t := w.job.Tasks; t.IsArray() {
		if !t.Has(e.Task) {
			return
		}
		id += "." + strconv.Itoa(e.Task)
		number = e.Task
	}
	w.ended.add(number) // perhaps again, after a requeue
	exit, out := option.ExitFailed, w.inv.Err
	w.unable = w.unable || !e.Ran
	if text := endText(id, e); text != "" {
		fmt.Fprintln(out, text)
		if e.Ran && e.Signal == "" && e.Failed != accounting.FailedNoStatus {
			exit = e.Exit
		}
	} else {
		if e.Failed == 0 {
			exit = 0
		}
		if !w.terse {
			fmt.Fprintf(w.inv.Out, "Job %s exited with exit code 0.\n", id)
		}
	}
	if e.Failed != 0 && e.Reason != "" && e.Reason != inError {
		fmt.Fprintf(out, "Job %s failed: %s\n", id, api.Visible(e.Reason))
	}
	if w.exit == 0 {
		w.exit = exit
	}
}

// endText returns how a task ended, in the words of Grid Engine; "" for exit code 0.
func endText(id string, e *api.TaskEnd) string {
	switch {
	case !e.Ran:
		return "Unable to run job " + id
	case e.Signal != "":
		return fmt.Sprintf("Job %s exited because of signal %s", id, e.Signal)
	case e.Failed == accounting.FailedNoStatus:
		return fmt.Sprintf("No information available on job %s's exit status.", id)
	case e.Exit != 0:
		return fmt.Sprintf("Job %s exited with exit code %d.", id, e.Exit)
	}
	return ""
}

// end returns the result of the whole job.
func (w *syncWait) end() error {
	if left := w.job.Count() - w.ended.count; left > 0 {
		// These were deleted before they started, and are not accounted.
		if w.ended.count == 0 {
			fmt.Fprintf(w.inv.Err, "Unable to run job %d\n", w.job.Job)
		} else {
			fmt.Fprintf(w.inv.Err, "Unable to run %d tasks of job %d\n", left, w.job.Job)
		}
		if w.exit == 0 {
			w.exit = option.ExitFailed
		}
	}
	if w.exit == 0 {
		return nil
	}
	return &command.Failure{Exit: w.exit}
}
