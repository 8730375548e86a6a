package outcome

import (
	"cmp"
	"fmt"

	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/exit"
	"paddock/spool"
)

// The words for why a run has ended, which are its Reason wherever it is shown: in
// qstat, mail, the accounting file and event logs. What failed around the job is said by
// the shepherd, which has seen it.

// By says who has ended a run.
func By(c spool.Cause, who string) string { return string(c) + " by " + who }

const beforeJob = " before the job started"

// how says how a process has ended.
func how(s exit.Status) string {
	if s.Signal != 0 {
		return fmt.Sprintf("killed by signal %s (%d)", spool.SignalName(s.Signal), s.Signal)
	}
	return fmt.Sprintf("exit status %d", s.Code)
}

// Undelivered is the reason of a run, with why its output is not transferred to its end.
func Undelivered(reason string, want *job.Want, left string) string {
	why := By(spool.CauseDeleted, want.By)
	if want.By == "" {
		why = "ended since " + cmp.Or(want.Cause, want.Reason, "its slot had to be left")
	}
	reason = joined(reason, why+" while its output was transferred")
	if left != "" {
		reason = joined(reason, "what had come of it is left: "+left)
	}
	return reason
}

// LeftOut is a reason with what was left out of the files that were brought to the job, and
// of its output.
func LeftOut(reason, input, output string) string {
	if input != "" {
		reason = joined(reason, "input: "+input)
	}
	if output != "" {
		reason = joined(reason, "output: "+output)
	}
	return reason
}

// joined is a reason with another one behind it.
func joined(reason, more string) string {
	if reason == "" {
		return more
	}
	return reason + "; " + more
}
