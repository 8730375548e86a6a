package admin

import (
	"context"

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
		switch {
		case o.Option == nil:
			if err := jobs.Add(o.Value()); err != nil {
				return command.Failf("error: %s", err)
			}
		case o.Name == "-u":
			request.Users = append(request.Users, argument.List(o.Value())...)
		case o.Name == "-f":
			request.Force = true
		case o.Name == "-t":
			if err := jobs.Tasks(o, option.ExitFailed); err != nil {
				return err
			}
		}
	}
	request.Jobs = jobs.Words
	if len(request.Jobs) == 0 && len(request.Users) == 0 {
		return inv.NoArguments()
	}
	var reply api.DeleteReply
	if err := inv.Client.Call(ctx, api.VerbDelete, &request, &reply); err != nil {
		return inv.CallFailed(err)
	}
	return inv.Report(reply.Lines, func(api.Code) int { return option.ExitFailed })
}
