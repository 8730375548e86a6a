package stage

import (
	"cmp"
	"fmt"
	"strings"
	"syscall"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/usage"
	"paddock/spool"
)

const sigkill = syscall.SIGKILL

// conclude makes of a run's outcome what is recorded of it: code, reason in
// words, and what becomes of the task.
func (r *Runner) conclude(l *life, out *spool.Outcome) *job.End {
	t := l.task
	e := endOf(out)
	if out.Usage == nil && e.Failed == 0 {
		// The shepherd was told to end the job before there was one.
		e.Failed = spool.FailedAfterJob
		if e.Reason == "" {
			e.Reason = "ended before the job started"
		}
	}
	if out.Usage != nil && e.Exit != 0 {
		if full := r.Launcher.ScratchFull(t.RunID()); full != "" {
			e.Reason = joined(e.Reason, full)
		}
	}
	want := r.Store.Want(t)
	switch {
	case want == nil || e.Failed == spool.FailedEnforcedLimit:
	case want.Reason != "":
		// A foreign shepherd does not know why it was to kill the job, and the
		// job may have ended of a warning, with any code.
		if out.Usage != nil && e.Failed != spool.FailedNoExitStatus {
			e.Cause, e.Failed, e.Reason = spool.CauseLimit, spool.FailedEnforcedLimit, want.Reason
		}
	case want.Requeue && cutShort(out, e.Failed):
		e.Cause, e.Failed, e.Reason = spool.CauseRescheduled, spool.FailedRescheduling, "rescheduled by "+want.By
	case want.Requeue, want.Slot && endedByItself(out):
	default:
		e.Cause = spool.CauseDeleted
		if want.Slot {
			e.Cause = spool.CauseEvicted
		}
		if e.Failed != 0 {
			e.Reason = string(e.Cause) + " by " + want.By
			if out.Usage == nil && e.Failed != spool.FailedNoExitStatus && e.Failed != spool.FailedBeforeJob {
				e.Reason += " before the job started"
			}
		}
	}
	e.Fate = r.fate(t, out, e.Failed, want != nil && !want.Requeue)
	if !l.postStatus.OK() && e.Fate == job.FateDone {
		e.Fate, e.Reason = job.FateError, joined(e.Reason, postReason(l.postStatus))
	}
	if r.isNobodys(l.task) {
		e.Fate = job.FateDone // who sent it is told
	}
	if e.Fate == job.FateRequeue && out.Checkpoint {
		e.Checkpoint, e.PID = true, r.Launcher.JobPID(t.RunID())
	}
	r.lose(l, e)
	return e
}

// endedByItself reports whether a job had come to its own end before it was asked for
// one. Of a foreign shepherd that is not known.
func endedByItself(out *spool.Outcome) bool {
	if out == nil || out.Usage == nil {
		return false
	}
	sig, known := out.Usage.Asked()
	return known && sig == 0
}

// cutShort reports whether a job that is to run again has not come to its own end. One
// that was asked to end may have done so in good order, and with 0. Where it is not
// known whether it was, what has exited is over.
func cutShort(out *spool.Outcome, failed int) bool {
	if out.Usage != nil {
		if sig, known := out.Usage.Asked(); known {
			return sig != 0
		}
	}
	return failed != 0
}

// isNobodys reports whether nobody would start the job of a task again.
func (r *Runner) isNobodys(t *job.Task) bool { return t.Job.Interactive || !r.from(t).Requeues() }

// postReason says how the script after a job has failed.
func postReason(s exit.Status) string {
	if s.Signal != 0 {
		return fmt.Sprintf("script after the job failed: killed by signal %s (%d)", spool.SignalName(s.Signal), s.Signal)
	}
	return fmt.Sprintf("script after the job failed: exit status %d", s.Code)
}

// lose makes of an end what becomes of it when its output does not arrive.
func (r *Runner) lose(l *life, e *job.End) {
	g := l.undelivered
	if g == nil {
		return
	}
	e.Reason = joined(e.Reason, "output transfer: "+g.Reason)
	switch {
	case r.isNobodys(l.task): // who sent it is told
	case g.Hold:
		e.Fate = job.FateError
	default:
		e.Fate = job.FateRequeue
	}
}

// joined is a reason with another one behind it.
func joined(reason, more string) string {
	if reason == "" {
		return more
	}
	return reason + "; " + more
}

// endOf is what an outcome says by itself.
func endOf(out *spool.Outcome) *job.End {
	e := &job.End{Failed: out.Failed, Reason: out.Reason, Cause: out.Cause()}
	if out.Usage == nil {
		return e
	}
	e.Exit = out.Usage.ExitStatus
	if e.Failed == 0 && out.Usage.Signal != 0 {
		// Grid Engine's "assumedly after job".
		e.Failed = spool.FailedAfterJob
	}
	if out.Usage.Signal != 0 && e.Reason == "" {
		e.Reason = fmt.Sprintf("killed by signal %s (%d)", spool.SignalName(out.Usage.Signal), out.Usage.Signal)
	}
	return e
}

// maxLost bounds how often a task is started again after its shepherd, or the
// host, has died under it: it may be the cause.
const maxLost = 10

// fate decides what becomes of a task, in the order of Grid Engine's qmaster
// (spec 6.4). After a failure before the job that is to be blamed on the queue
// or the host the task waits for another queue, or until somebody has cleared
// this one. One after the job changes nothing for a job that ran: Grid Engine
// runs it again when the epilog fails.
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
		switch {
		case out.Usage != nil || !r.Rerunnable(t):
			return job.FateDone
		case t.Run >= maxLost:
			return job.FateError
		}
		return job.FateRequeue
	}
	switch out.Blame {
	case spool.BlameJob:
		return job.FateError
	case spool.BlameQueue, spool.BlameHost, spool.BlameSystem:
		if out.Usage == nil {
			return r.fault(t, out)
		}
	}
	return job.FateDone
}

// fault puts the queue of a task in error, as Grid Engine does after a failure
// that the job is not to blame for, so that no further jobs are lost to it; the
// task waits until it is cleared, or for another queue. But what runs as the
// job's owner, with his environment, he can make fail as he likes: where that
// failed for one owner alone his task is in error, not everybody's queue.
//
// What failed when the job itself was to be started, he named: its shell, its
// program, its files. And what the host lacked, or a directory that is gone, is not
// mended by closing a queue: the task is run again after a while.
func (r *Runner) fault(t *job.Task, out *spool.Outcome) job.Fate {
	switch {
	case out.Failed > spool.FailedPEStart, out.Failed == spool.FailedReadConfig: // of a directory that is its own
		return job.FateError
	case spool.HostFailed(out.Failed) && t.Run < maxLost:
		return job.FateRequeue
	case spool.HostFailed(out.Failed):
		return job.FateError
	}
	sure := true
	if q := r.Config().Queue(t.Start.Queue); q != nil && r.Launcher.Privileged {
		procedure := ""
		switch out.Failed {
		case spool.FailedProlog:
			procedure = cmp.Or(q.Prolog, r.Config().Global.Prolog)
		case spool.FailedPEStart:
			if g := t.Start.Grant; g != nil && r.Config().PEs[g.PE] != nil {
				procedure = r.Config().PEs[g.PE].StartProcArgs
			}
		}
		_, _, other := conf.SplitProcedure(procedure)
		sure = procedure == "" || other
	}
	reason := fmt.Sprintf("job %v failed: %s", t, out.Reason)
	if !r.Queue.Fault(t.Start.Queue, t.Job, reason, sure) {
		return job.FateError
	}
	r.Log.Error(fmt.Sprintf("queue %s: in error state: %s", t.Start.Queue, reason))
	r.Mail.Admin("queue "+t.Start.Queue, fmt.Sprintf("Queue %s@%s is in error state", t.Start.Queue, r.Host), reason)
	return job.FateRequeue
}

// Rerunnable reports whether a run that was cut short may be repeated. One that
// has a checkpointing interface may (spec 8.4).
func (r *Runner) Rerunnable(t *job.Task) bool {
	switch t.Job.Terms().Rerun {
	case api.RerunYes:
		return true
	case api.RerunNo:
		return false
	}
	if t.Needs.Request().Checkpoint != "" {
		return true
	}
	q := r.Config().Queue(t.Start.Queue)
	return q != nil && q.Rerun
}

// line composes the accounting line.
func (r *Runner) line(l *life) string {
	rec := r.record(l.task, l.end)
	if u := l.outcome.Usage; u != nil {
		total := l.total
		if r.Config().Global.ReservedUsage {
			usage.Reserve(&total, l.task.Slots(), 0)
		}
		fill(&rec, u, &total)
		l.tasks.addSum(&rec)
	}
	return r.compose(l.task, rec)
}

// record is what an accounting line says beside what was used.
func (r *Runner) record(t *job.Task, e *job.End) accounting.Record {
	terms := t.Job.Terms()
	rec := accounting.Record{
		QName: t.Start.Queue, Hostname: r.Host, Group: t.Job.Group, Owner: t.Job.Owner,
		JobName: terms.Name, JobNumber: t.Job.Number, Account: terms.Account,
		SubmissionTime: t.Job.Submitted.Unix(), Failed: e.Failed, ExitStatus: e.Exit,
		Project: cmp.Or(t.Needs.Request().Project, accounting.None), Department: job.Department, GrantedPE: accounting.None,
		Slots: t.Slots(), Category: accounting.None, PETaskID: accounting.None, Reason: e.Reason,
	}
	if rec.Account == "" {
		rec.Account = "sge"
	}
	if t.Job.Tasks.IsArray() {
		rec.TaskNumber = t.Number
	}
	if q := r.Config().Queue(t.Start.Queue); q != nil {
		rec.Priority = q.Priority
	}
	if g := t.Start.Grant; g != nil && g.PE != "" {
		rec.GrantedPE = g.PE
	}
	if category := t.Needs.Category(); category != "" {
		rec.Category = category
	}
	return rec
}

// compose writes an accounting line without its end.
func (r *Runner) compose(t *job.Task, rec accounting.Record) string {
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
