package outcome

import (
	"cmp"
	"fmt"

	"paddock/execd/api/accounting"
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

// Undelivered has an end say that the output of its run is not transferred to its end, and
// why. Left is where what had come of it is; empty: nowhere.
func Undelivered(e *job.End, want *job.Want, left string) {
	why := By(spool.CauseDeleted, want.By)
	if want.By == "" {
		why = "ended since " + cmp.Or(want.Cause, want.Reason, "its slot had to be left")
	}
	e.Failed, e.Reason = accounting.FailedTransfer, joined(e.Reason, why+" while its output was transferred")
	if left != "" {
		e.Reason = joined(e.Reason, "what had come of it is left: "+left)
	}
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
