package admin

import (
	"cmp"
	"context"

	"paddock/execd/api"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// Exit statuses of qhold and qrls besides those of package option.
const (
	exitNoJob   = 3
	exitForeign = 18
)

// qhold sets holds of jobs and, as qrls, takes them away.
func qhold(ctx context.Context, inv *command.Invocation, args []string) error {
	settings, err := inv.Options(args)
	if err != nil {
		return err
	}
	request := api.ModifyRequest{Action: api.ActionHold, Hold: "u"}
	if inv.Command == option.Qrls {
		request.Action = api.ActionRelease
	}
	var jobs argument.Jobs
	for i := range settings {
		o := &settings[i]
		if taken, err := jobs.Take(o, option.ExitUsage, ""); err != nil {
			return err
		} else if !taken && o.Name == "-h" {
			var ok bool
			if request.Hold, ok = argument.Letters(o.Value(), "uos"); !ok {
				return o.Errorf(option.ExitValue, "Unknown hold list \"%s\" specified to -h option", o.Value())
			}
		}
	}
	if len(jobs.Words)+len(jobs.Users) == 0 {
		return inv.NoArguments()
	}
	request.Users = jobs.Users
	var failed error
	for _, request.Jobs = range batches(jobs.Words) {
		var reply api.ModifyReply
		if err := inv.Client.Call(ctx, api.VerbModify, &request, &reply); err != nil {
			return inv.CallFailed(err)
		}
		failed = cmp.Or(failed, inv.Report(reply.Lines, exitOfHold))
	}
	return failed
}

// exitOfHold is the exit status of qhold and qrls for a line that tells of a failure.
func exitOfHold(code api.Code) int {
	switch code {
	case api.CodeNotFound:
		return exitNoJob
	case api.CodeDenied:
		return option.ExitDenied
	case api.CodeForeign:
		return exitForeign
	}
	return option.ExitFailed
}
