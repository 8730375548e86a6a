package admin

import (
	"context"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// What the words behind an option of qmod name.
const (
	ofJobs = 1 << iota
	ofQueues
)

// actionOf are the options of qmod that do something.
var actionOf = map[string]struct {
	action api.Action
	of     int
}{
	"-c":   {api.ActionClear, ofJobs | ofQueues},
	"-cj":  {api.ActionClear, ofJobs},
	"-cq":  {api.ActionClear, ofQueues},
	"-d":   {api.ActionDisable, ofQueues},
	"-e":   {api.ActionEnable, ofQueues},
	"-r":   {api.ActionReschedule, ofJobs | ofQueues},
	"-rj":  {api.ActionReschedule, ofJobs},
	"-rq":  {api.ActionReschedule, ofQueues},
	"-s":   {api.ActionSuspend, ofJobs | ofQueues},
	"-sj":  {api.ActionSuspend, ofJobs},
	"-sq":  {api.ActionSuspend, ofQueues},
	"-us":  {api.ActionResume, ofJobs | ofQueues},
	"-usj": {api.ActionResume, ofJobs},
	"-usq": {api.ActionResume, ofQueues},
}

// qmod changes the state of jobs and queues. Each of its options goes with the
// words up to the next one.
func qmod(ctx context.Context, inv *command.Invocation, args []string) error {
	settings, err := inv.Options(args)
	if err != nil {
		return err
	}
	type change struct {
		request api.ModifyRequest
		of      int
		jobs    argument.Jobs
	}
	var changes []change
	force := false
	for i := range settings {
		o := &settings[i]
		if o.Option != nil {
			if o.Name == "-f" {
				force = true
				continue
			}
			if what, ok := actionOf[o.Name]; ok {
				changes = append(changes, change{request: api.ModifyRequest{Action: what.action}, of: what.of})
			}
		}
		if len(changes) == 0 {
			return &option.Error{Text: "invalid option argument \"" + o.Value() + "\"", Hint: `Type "qmod -help" for the options.`}
		}
		c := &changes[len(changes)-1]
		if o.Option != nil && o.Name != "-t" && len(argument.List(o.Value())) == 0 {
			return &option.Error{Text: o.Name + " option must have argument"}
		}
		switch {
		case o.Option != nil && o.Name == "-t":
			if err := c.jobs.Tasks(o, option.ExitFailed); err != nil {
				return err
			}
		case c.of == ofQueues:
			c.request.Queues = append(c.request.Queues, argument.List(o.Value())...)
		default:
			if err := c.jobs.Add(o.Value()); err != nil {
				return command.Failf("%s", err)
			}
		}
	}
	if len(changes) == 0 {
		return inv.NoArguments()
	}
	var host *api.HostReply
	var lines []api.Line
	for i := range changes {
		c := &changes[i]
		c.request.Force = force
		for _, word := range c.jobs.Words {
			queue := false
			if c.of&ofQueues != 0 && !argument.IsNumber(word[:1]) {
				if host == nil {
					if host, err = inv.Host(ctx, &api.HostRequest{}); err != nil {
						return err
					}
				}
				// A name that no queue has is the name of a job, unless there
				// is an @ in it.
				queue = strings.Contains(word, "@") || slices.ContainsFunc(host.Queues, func(q api.QueueStatus) bool { return argument.MatchQueue(word, host, &q) })
			}
			if queue {
				c.request.Queues = append(c.request.Queues, word)
			} else {
				c.request.Jobs = append(c.request.Jobs, word)
			}
		}
		for _, c.request.Jobs = range batches(c.request.Jobs) {
			var reply api.ModifyReply
			if err := inv.Client.Call(ctx, api.VerbModify, &c.request, &reply); err != nil {
				return inv.CallFailed(err)
			}
			lines = append(lines, reply.Lines...)
			c.request.Queues = nil // the first request has them
		}
	}
	return inv.Report(lines, func(api.Code) int { return option.ExitFailed })
}
