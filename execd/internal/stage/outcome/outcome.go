// Package outcome decides what becomes of a run that has ended, and what is said of it:
// its code and the reason in words, whether it is run again, what hooks and the event log
// are told, what it counts as, and its accounting line. It has functions of values alone,
// without clock, file or lock. Stage, its packages and shadow use it.
package outcome

import (
	"fmt"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/stage/exit"
	"paddock/spool"
)

// Run is what a run is judged by beside its outcome.
type Run struct {
	Task       *job.Task
	Want       *job.Want   // what somebody wants of it; nil: nothing
	Requeues   bool        // somebody would start it again
	Rerunnable bool        // it may be repeated when it was cut short
	Full       string      // that its scratch directory was full; empty: it was not
	Post       exit.Status // of the script after the job
	// Hosted says that execd is itself a job of a batch system, which tells all processes of
	// it by a signal that they are to end.
	Hosted bool
	Warned bool // execd has sent the job SIGXCPU, for a soft limit
}

// Facts is what is known of the end of a run.
type Facts struct {
	Outcome *spool.Outcome // nil: another execd has recorded the end
	Total   api.Usage      // what the run has consumed
	End     *job.End

	Started, Ended time.Time // zero: execd did not see it
}

// Ran reports whether it is known that the job was started.
func (f *Facts) Ran() bool { return f.Outcome != nil && f.Outcome.Usage != nil }

// Conclude makes of a run's outcome what is recorded of it: code, reason in words, and
// what becomes of the task. Faulty says that its queue is to blame, and is to be in error.
func (r *Run) Conclude(out *spool.Outcome) (e *job.End, faulty bool) {
	e = Of(out)
	if out.Usage == nil && e.Failed == 0 {
		// The shepherd was told to end the job before there was one.
		e.Failed = spool.FailedAfterJob
		if e.Reason == "" {
			e.Reason = "ended" + beforeJob
		}
	}
	if r.Full != "" {
		e.Reason = joined(e.Reason, r.Full)
	}
	want := r.Want
	switch {
	case (want == nil || want.Slot && !want.Requeue && want.Reason == "") && r.Hosted && r.toldToEnd(out) && e.Cause != spool.CauseLimit && e.Cause != spool.CauseLease:
		e.Cause, e.Reason = spool.CauseEvicted, By(spool.CauseEvicted, "the batch system")+": "+e.Reason
	case want == nil || e.Cause == spool.CauseLimit || e.Cause == spool.CauseLease:
	case want.Reason != "":
		// A foreign shepherd does not know why it was to kill the job, and the
		// job may have ended of a warning, with any code.
		if out.Usage != nil && e.Cause != spool.CauseLost {
			e.Cause, e.Failed, e.Reason = spool.CauseLimit, spool.FailedEnforcedLimit, want.Reason
		}
	case want.Requeue && cutShort(out, e.Failed):
		if e.Cause, e.Failed = spool.CauseRescheduled, spool.FailedRescheduling; want.Error != "" {
			e.Cause = spool.CauseHeld
		}
		e.Reason = By(e.Cause, want.By)
	case want.Requeue, want.Slot && endedByItself(out):
	case want.Slot && want.Code == int(slot.ReasonReconnectFailed) && e.Cause != spool.CauseLost:
		// As the shepherd says it when execd does not live.
		e.Cause, e.Failed, e.Reason = spool.CauseLease, spool.FailedLease, spool.LeaseOver
	default:
		cause := spool.CauseDeleted
		if want.Slot {
			cause = spool.CauseEvicted
		}
		if e.Failed != 0 {
			e.Reason = By(cause, want.By)
			if out.Usage == nil && e.Cause != spool.CauseLost {
				e.Reason += beforeJob
			}
		}
		if e.Cause = cause; want.Error != "" {
			e.Cause = spool.CauseHeld
		}
	}
	e.Fate, faulty = r.fate(out, e.Failed)
	if !r.Post.OK() && e.Fate == job.FateDone {
		e.Fate, e.Reason = job.FateError, joined(e.Reason, "script after the job failed: "+how(r.Post))
	}
	if !r.Requeues {
		e.Fate = job.FateDone // who sent it is told
	}
	return e, faulty
}

// Rerunnable reports whether a run of a queue that was cut short may be repeated. One that
// has a checkpointing interface may.
func Rerunnable(t *job.Task, q *conf.Queue) bool {
	switch t.Job.Terms().Rerun {
	case api.RerunYes:
		return true
	case api.RerunNo:
		return false
	}
	if t.Needs.Request().Checkpoint != "" {
		return true
	}
	return q != nil && q.Rerun
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

// toldToEnd reports whether a job died of a signal by which batch systems say that it is to
// end, and that nobody here has sent. SIGUSR2 to its shepherd reaches it as SIGXCPU, see
// shepherd(8), before or after its own.
func (r *Run) toldToEnd(out *spool.Outcome) bool {
	if out.Usage == nil {
		return false
	}
	asked, _ := out.Usage.Asked()
	byShepherd := syscall.Signal(asked) == syscall.SIGXCPU
	switch syscall.Signal(out.Usage.Signal) {
	case syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2:
		return asked == 0 || byShepherd
	case syscall.SIGXCPU:
		return byShepherd && !r.Warned
	}
	return false
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

// Of returns what an outcome says by itself.
func Of(out *spool.Outcome) *job.End {
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
		e.Reason = how(exit.Status{Signal: out.Usage.Signal})
	}
	return e
}

// maxLost bounds how often a task is started again after its shepherd, or the
// host, has died under it: it may be the cause.
const maxLost = 10

// fate decides what becomes of a task, in the order of Grid Engine's qmaster. After a
// failure before the job that is to be blamed on the queue or the host the task waits for
// another queue, or until somebody has cleared this one. One after the job changes nothing
// for a job that ran: Grid Engine runs it again when the epilog fails.
func (r *Run) fate(out *spool.Outcome, failed int) (f job.Fate, faulty bool) {
	switch failed {
	case spool.FailedNone, spool.FailedAfterJob, spool.FailedEnforcedLimit:
		return job.FateDone, false
	}
	switch {
	case r.Want != nil && !r.Want.Requeue:
		return job.FateDone, false
	case failed == spool.FailedMigrating, failed == spool.FailedRescheduling:
		return job.FateRequeue, false
	case failed == spool.FailedNoExitStatus, failed == spool.FailedThroughSignal:
		// The shepherd died, or the host did. What has ended is not run again.
		switch {
		case out.Usage != nil || !r.Rerunnable:
			return job.FateDone, false
		case r.Task.Run >= maxLost:
			return job.FateError, false
		}
		return job.FateRequeue, false
	}
	switch out.Blame {
	case spool.BlameJob:
		return job.FateError, false
	case spool.BlameQueue, spool.BlameHost, spool.BlameSystem:
		if out.Usage == nil {
			return r.fault(out)
		}
	}
	return job.FateDone, false
}

// fault says whether a failure that the job is not to blame for is its queue's, which then
// is in error, as in Grid Engine, so that no further jobs are lost to it; the task waits
// until it is cleared, or for another queue.
//
// The owner named what failed when the job itself was to be started: its shell, its
// program, its files. Closing a queue does not mend what the host lacked, or a directory
// that is gone: the task is run again after a while.
func (r *Run) fault(out *spool.Outcome) (f job.Fate, faulty bool) {
	switch {
	case out.Failed > spool.FailedPEStart, out.Failed == spool.FailedReadConfig: // of a directory that is its own
		return job.FateError, false
	case spool.HostFailed(out.Failed) && r.Task.Run < maxLost:
		return job.FateRequeue, false
	case spool.HostFailed(out.Failed):
		return job.FateError, false
	}
	return job.FateRequeue, true
}

// Forced is why a run had to leave its slot; nil: it had not, or had ended before.
func (f *Facts) Forced(want *job.Want) *ad.Forced {
	if f.End.Cause == spool.CauseLease {
		return &ad.Forced{Reason: slot.ReasonReconnectFailed.String(), Code: int(slot.ReasonReconnectFailed)}
	}
	w := f.Word()
	if want == nil || !want.Slot || want.Code == 0 || w != exit.WordEvict && w != exit.WordHold {
		return nil
	}
	return &ad.Forced{Held: w == exit.WordHold, Reason: want.Cause, Code: want.Code, Subcode: want.Subcode}
}

// Ad is what the ad of a job says of its end, of which this was its last status.
func (f *Facts) Ad(last ad.Status, want *job.Want, now time.Time) ad.End {
	e := ad.End{Status: last, Reason: f.End.Reason, Time: f.Ended, Forced: f.Forced(want)}
	if e.Time.IsZero() {
		e.Time = now // execd was away
	}
	e.Suspended, e.Processes = false, 0
	if e.Reason == "" {
		e.Reason = fmt.Sprintf("exited with status %d", f.End.Exit)
	}
	e.ExitCode = f.End.Exit
	if !f.Ran() {
		return e
	}
	u := f.Outcome.Usage
	e.Signal, e.Core, e.ExitCode, e.Started = u.Signal, u.WaitStatus.CoreDump(), u.ExitStatus, time.Unix(u.Start, 0)
	e.Duration = time.Duration(u.Wallclock) * time.Second
	if !f.Started.IsZero() && !f.Ended.IsZero() {
		e.Duration = f.Ended.Sub(f.Started)
	}
	// The shepherd knows better what it has reaped. Only the total has the rest, as
	// processes that left their session.
	user, sys := u.UTime, u.STime
	if rest := time.Duration(f.Total.CPU*float64(time.Second)) - user - sys; rest > 0 {
		inKernel := min(max(time.Duration(f.Total.SysCPU*float64(time.Second))-sys, 0), rest)
		user, sys = user+rest-inKernel, sys+inKernel
	}
	e.UserCPU, e.SysCPU = user, sys
	return e
}
