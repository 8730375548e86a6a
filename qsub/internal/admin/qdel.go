package admin

import (
	"cmp"
	"context"
	"slices"

	"paddock/execd/api"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// qdel deletes jobs.
func qdel(ctx context.Context, inv *command.Invocation, args []string) error {
	settings, err := inv.Options(args)
	if err != nil {
		return err
	}
	var request api.DeleteRequest
	var jobs argument.Jobs
	for i := range settings {
		o := &settings[i]
		if taken, err := jobs.Take(o, option.ExitFailed, "error: "); err != nil {
			return err
		} else if !taken && o.Name == "-f" {
			request.Force = true
		}
	}
	if len(jobs.Words)+len(jobs.Users) == 0 {
		return inv.NoArguments()
	}
	request.Users = jobs.Users
	var failed error
	for _, request.Jobs = range batches(jobs.Words) {
		var reply api.DeleteReply
		if err := inv.Client.Call(ctx, api.VerbDelete, &request, &reply); err != nil {
			return inv.CallFailed(err)
		}
		failed = cmp.Or(failed, inv.Report(reply.Lines, func(api.Code) int { return option.ExitFailed }))
	}
	return failed
}

// batches are words of jobs, as many in each as a request may have. No words, as when users
// are named alone, are one request as well.
func batches(words []string) [][]string {
	if len(words) == 0 {
		return [][]string{nil}
	}
	return slices.Collect(slices.Chunk(words, api.MaxWords))
}
