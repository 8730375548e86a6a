package show

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// schedulingReason is a reason why jobs do not start.
type schedulingReason struct {
	Reason string `json:"reason"`
	Jobs   []int  `json:"jobs"`
}

// schedulingInfo prints why pending jobs do not start, for qstat -j without a job.
func schedulingInfo(ctx context.Context, inv *command.Invocation, v *view) error {
	if v.xml {
		return &option.Error{Text: "-j without a job is not supported with -xml"}
	}
	users := v.users
	if len(users) == 0 {
		users = []string{"*"}
	}
	list := []*schedulingReason{}
	add := func(reason string, job int) {
		k := slices.IndexFunc(list, func(o *schedulingReason) bool { return o.Reason == reason })
		if k < 0 {
			k = len(list)
			list = append(list, &schedulingReason{Reason: reason})
		}
		list[k].Jobs = append(list[k].Jobs, job)
	}
	if err := eachJob(ctx, inv, &api.JobsRequest{Users: users, States: "p", Reasons: true}, func(j *api.JobStatus) {
		for _, reason := range whyWaiting(j) {
			add(reason, j.Job)
		}
	}); err != nil {
		return err
	}
	if v.json {
		return inv.PrintJSON(list)
	}
	if len(list) == 0 {
		fmt.Fprint(inv.Out, "scheduling info:            There are no messages available\n\n")
	}
	for i, o := range list {
		if i > 0 {
			fmt.Fprintln(inv.Out)
		}
		slices.Sort(o.Jobs)
		fmt.Fprintln(inv.Out, api.Visible(o.Reason))
		for k, job := range slices.Compact(o.Jobs) {
			switch {
			case k == 0:
			case k%jobsInLine == 0:
				fmt.Fprintln(inv.Out, ",")
			default:
				fmt.Fprint(inv.Out, ",")
			}
			fmt.Fprintf(inv.Out, "\t%d", job)
		}
		fmt.Fprintln(inv.Out)
	}
	return nil
}

// jobsInLine is how many jobs of a reason stand in a line.
const jobsInLine = 8

// whyWaiting returns the reasons why pending tasks do not start.
func whyWaiting(j *api.JobStatus) []string {
	if strings.Contains(j.State, "E") {
		return []string{"Jobs dropped because of error state"}
	}
	var why []string
	for _, kind := range []struct{ holds, reason string }{
		{"uos", "Jobs dropped because of hold state"},
		{"ja", "Job dropped because of job dependencies"},
		{"t", "Jobs dropped because execution time not reached"},
	} {
		if strings.ContainsAny(j.Holds, kind.holds) {
			why = append(why, kind.reason)
		}
	}
	if why == nil && j.Reason != "" {
		why = []string{j.Reason}
	}
	return why
}
