package stage

import (
	"fmt"
	"strings"
	"syscall"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/job"
	"paddock/spool"
)

const sigkill = syscall.SIGKILL

// conclude makes of a run's outcome what is recorded of it: code, reason in
// words, what becomes of the task, and the accounting line.
func (r *Runner) conclude(t *job.Task, out *spool.Outcome) *job.End {
	e := &job.End{Failed: out.Failed, Reason: out.Reason}
	if out.Usage != nil {
		e.Exit = out.Usage.ExitStatus
		if e.Failed == 0 && out.Usage.Signal != 0 {
			// Grid Engine's "assumedly after job".
			e.Failed = spool.FailedAfterJob
		}
		if out.Usage.Signal != 0 && e.Reason == "" {
			e.Reason = fmt.Sprintf("killed by signal %s (%d)", spool.SignalName(out.Usage.Signal), out.Usage.Signal)
		}
	} else if e.Failed == 0 {
		// The shepherd was told to end the job before there was one.
		e.Failed = spool.FailedAfterJob
		if e.Reason == "" {
			e.Reason = "ended before the job started"
		}
	}
	want := r.Store.Want(t)
	switch {
	case want == nil || e.Failed == spool.FailedEnforcedLimit:
	case want.Reason != "":
		// A foreign shepherd does not know why it was to kill the job, and the
		// job may have ended of a warning, with any code.
		if out.Usage != nil && e.Failed != spool.FailedNoExitStatus {
			e.Failed, e.Reason = spool.FailedEnforcedLimit, want.Reason
		}
	case e.Failed != 0:
		e.Reason = "deleted by " + want.By
		if out.Usage == nil && e.Failed != spool.FailedNoExitStatus && e.Failed != spool.FailedBeforeJob {
			e.Reason += " before the job started"
		}
	}
	e.Fate = r.fate(t, out, e.Failed, want != nil)
	e.Checkpoint = e.Fate == job.FateRequeue && out.Checkpoint
	e.Accounting = r.line(t, out, e)
	return e
}

// fate decides what becomes of a task, in the order of Grid Engine's qmaster
// (spec 6.4). A failure before the job that Grid Engine would blame on the
// queue or the host puts the task in error here: there is no other queue to
// try, and to try the same again would go on for ever. One after the job
// changes nothing for a job that ran: Grid Engine runs it again when the epilog
// fails.
func (r *Runner) fate(t *job.Task, out *spool.Outcome, failed int, unwanted bool) job.Fate {
	switch failed {
	case spool.FailedNone, spool.FailedAfterJob, spool.FailedEnforcedLimit:
		return job.FateDone
	}
	switch {
	case unwanted:
		return job.FateDone
	case failed == spool.FailedMigrating, failed == spool.FailedRescheduling:
		return job.FateRequeue
	case failed == spool.FailedNoExitStatus, failed == spool.FailedThroughSignal:
		// The shepherd died, or the host did. What has ended is not run again.
		if out.Usage == nil && r.rerunnable(t) {
			return job.FateRequeue
		}
		return job.FateDone
	}
	switch out.Blame {
	case spool.BlameJob:
		return job.FateError
	case spool.BlameQueue, spool.BlameHost, spool.BlameSystem:
		if out.Usage == nil {
			return job.FateError
		}
	}
	return job.FateDone
}

// rerunnable reports whether a run that was cut short may be repeated.
func (r *Runner) rerunnable(t *job.Task) bool {
	switch t.Job.Rerun {
	case api.RerunYes:
		return true
	case api.RerunNo:
		return false
	}
	for _, q := range r.Config().Queues {
		if q.Name == t.Start.Queue {
			return q.Rerun
		}
	}
	return false
}

// line composes the accounting line.
func (r *Runner) line(t *job.Task, out *spool.Outcome, e *job.End) string {
	rec := accounting.Record{
		QName: t.Start.Queue, Hostname: r.Host, Group: t.Job.Group, Owner: t.Job.Owner,
		JobName: t.Job.Name, JobNumber: t.Job.Number, Account: t.Job.Account,
		SubmissionTime: t.Job.Submitted.Unix(), Failed: e.Failed, ExitStatus: e.Exit,
		Project: accounting.None, Department: "defaultdepartment", GrantedPE: accounting.None,
		Slots: 1, Category: accounting.None, PETaskID: accounting.None,
	}
	if rec.Account == "" {
		rec.Account = "sge"
	}
	if t.Job.Tasks.IsArray() {
		rec.TaskNumber = t.Number
	}
	for _, q := range r.Config().Queues {
		if q.Name == t.Start.Queue {
			rec.Priority = q.Priority
		}
	}
	if out.Usage != nil {
		fill(&rec, out.Usage)
	}
	b, err := accounting.Append(nil, rec)
	if err != nil {
		// Names are checked at submission; a group's comes from outside.
		rec.Group = strings.Map(func(c rune) rune {
			if c == ':' || c < ' ' {
				return '_'
			}
			return c
		}, rec.Group)
		b, err = accounting.Append(nil, rec)
	}
	if err != nil {
		r.Log.Error(fmt.Sprintf("internal error: job %v: cannot compose accounting line: %v", t, err))
	}
	return strings.TrimSuffix(string(b), "\n")
}
