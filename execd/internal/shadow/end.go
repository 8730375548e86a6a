package shadow

import (
	"context"
	"fmt"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/job"
	"paddock/execd/internal/policy"
	"paddock/execd/internal/shadow/report"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/outcome"
	"paddock/spool"
)

// maxLost bounds how often a task is started again after another host was lost under it.
const maxLost = 10

// conclude makes of what a host has said what is recorded of a run.
func (r *run) conclude(end report.End) {
	task := r.task
	if r.Host.Store.State(task) == job.Over {
		r.adoptRecorded(&end)
	}
	out := end.Outcome()
	want := r.Host.Store.Want(task)
	rerunnable := outcome.Rerunnable(task, r.Host.Config().Queue(task.Start.Queue))
	cause := spool.Cause(end.Cause)
	switch {
	case r.tail.End != nil:
	case want != nil && !want.Requeue:
	case cause == spool.CauseLease:
		r.tail.End = lost(task, rerunnable, r.host.name+" has ended it: the lease of its claim was over")
	case r.carries() && end.Failed == accounting.FailedTransfer: // before it was heard here that it is over
		r.tail.End = outputLost(task, rerunnable, fmt.Sprintf("%s has its output no more: %s", r.host.name, out.Reason))
	case want == nil && (cause == spool.CauseEvicted || cause == spool.CauseHeld):
		// What the policy of the host does not want there any more may run elsewhere.
		want = &job.Want{By: r.host.name, Requeue: rerunnable, Slot: true, Cause: out.Reason}
	}
	f := &r.tail.Facts
	f.Outcome, f.Started, f.Ended = &out, end.Started, end.Ended
	if u := end.Used; u != nil {
		f.Total = api.Usage{Wallclock: float64(u.RuWallclock), CPU: u.CPU, Mem: u.Mem, IO: u.IO, IOWait: u.IOW, MaxVMem: u.MaxVMem}
	}
	if r.tail.End == nil {
		judge := outcome.Run{Task: task, Want: want, Requeues: true, Rerunnable: rerunnable, Post: exit.Status{}}
		e, faulty := judge.Conclude(&out)
		if faulty && task.Run >= maxLost {
			e.Fate = job.FateError
		}
		if r.tail.End = e; policy.Any(task.Job.Terms().Needs.Attributes()) {
			r.mu.Lock()
			last := r.status
			r.mu.Unlock()
			f.Obey(r.Host.JobAd(task), last, time.Now())
		}
	}
	r.account(end.Used)
}

// account composes the accounting line.
func (r *run) account(used *accounting.Record) {
	r.accounted = used
	rec := outcome.Record(r.task, r.tail.End, r.host.name, r.Host.Config().Queue(r.task.Start.Queue))
	rec.Reason = outcome.LeftOut(rec.Reason, r.input.Standing().Left, r.output.Standing().Left)
	if used != nil {
		outcome.Elsewhere(&rec, used)
	}
	r.tail.End.Accounting = outcome.Line(rec, r.Host.Log)
}

// lost is the end of a run of which nobody can tell whether it has ended, and which goes on
// no more: it is run again, or waits for somebody to look.
func lost(t *job.Task, rerunnable bool, why string) *job.End {
	e := &job.End{Failed: spool.FailedLease, Cause: spool.CauseLease, Reason: why + "; it may have run", Fate: job.FateError}
	if rerunnable && t.Run < maxLost {
		e.Fate = job.FateRequeue
	}
	return e
}

// outputLost is lost for a run that has ended, and whose output is no more.
func outputLost(t *job.Task, rerunnable bool, why string) *job.End {
	e := lost(t, rerunnable, why)
	e.Reason = why + "; it has run, and its output is lost"
	return e
}

// adoptRecorded takes over what is recorded of a run that is over. What its host says now is only
// what it has used.
func (r *run) adoptRecorded(end *report.End) {
	recorded := *r.task.End
	e := *end.ActivationEnd
	e.Failed, e.Exit, e.Reason = recorded.Failed, recorded.Exit, recorded.Reason
	end.ActivationEnd = &e
	recorded.Accounting, recorded.Holds = "", false
	if r.output.unwanted != nil {
		outcome.Undelivered(&recorded, r.output.unwanted, "")
	}
	if recorded.Carries == job.CarriesAll {
		recorded.Sandbox = r.task.Start.Sandbox
	}
	r.tail.End = &recorded
}

// concludeWithoutOutput records the end of a run that is over, and whose output never comes.
func (r *run) concludeWithoutOutput(why string) {
	t := r.task
	if t.End.Carries != job.CarriesOutput { // its end is what it is
		e := *t.End
		e.Carries, e.Holds, e.Accounting, e.Reason = "", false, "", outcome.LeftOut(e.Reason, "", "what it had left is lost: "+why)
		r.tail.End = &e
	} else {
		r.tail.End = outputLost(t, outcome.Rerunnable(t, r.Host.Config().Queue(t.Start.Queue)), why)
	}
	r.tail.Ended = time.Now()
	var used *accounting.Record
	r.mu.Lock()
	if r.final != nil {
		used = report.EndOf(r.final).Used
	}
	r.mu.Unlock()
	r.account(used)
}

// giveUp records the end of a run of which its host says nothing.
func (r *run) giveUp(why string) {
	t := r.task
	e := lost(t, outcome.Rerunnable(t, r.Host.Config().Queue(t.Start.Queue)), why)
	if want := r.Host.Store.Want(t); want != nil {
		switch {
		case !want.Requeue:
			e.Cause, e.Fate = spool.CauseDeleted, job.FateDone
			e.Reason = outcome.By(spool.CauseDeleted, want.By) + "; " + why
		case want.Error == "":
			e.Fate = job.FateRequeue
		}
	}
	r.tail.End, r.tail.Ended = e, time.Now()
	r.account(nil)
}

// silence says in words what is known of a run whose host is not heard of any more.
func (r *run) silence() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.leaseOf()
	since := r.host.silent
	if since.IsZero() {
		since = l.renewed
	}
	return fmt.Sprintf("%s has not answered since %s; the lease ended at %s at the latest", r.host.name, since.Format(time.DateTime), l.lost().Format(time.DateTime))
}

// save records the end of a run. If that cannot be done for a while the run counts for
// nothing and its job runs again, if it may.
func (r *run) save(ctx context.Context) error {
	knobs := r.Host.Config().Knobs
	delay := max(knobs.Duration("SHADOW_JOB_CLEANUP_RETRY_DELAY", 30*time.Second), time.Second)
	most := knobs.Int("SHADOW_MAX_JOB_CLEANUP_RETRIES", 5)
	return again(ctx, func(int) time.Duration { return delay }, func(attempt int) bool {
		_, err := r.tail.Save()
		if err == nil {
			return true
		}
		r.warnf("%v: %v (tried again in %v)", r, err, delay)
		if attempt > most {
			r.putBack(err)
		}
		return false
	})
}

// putBack has the job of a run whose end cannot be recorded run again, as soon as that can be
// recorded: unless the record may have the end, or the job may not run again.
func (r *run) putBack(why error) {
	e, t := r.tail.End, r.task
	if e.Fate != job.FateDone || r.Host.Store.Recorded(t) || r.Host.Store.Want(t) != nil || !outcome.Rerunnable(t, r.Host.Config().Queue(t.Start.Queue)) {
		return
	}
	r.warnf("%v: runs again: its end cannot be recorded", r)
	e.Failed, e.Cause, e.Fate = spool.FailedRescheduling, spool.CauseRescheduled, job.FateRequeue
	e.Reason = fmt.Sprintf("its end could not be recorded, and it runs again (%d): %s", exit.Requeue, api.Visible(why.Error()))
	r.account(r.accounted)
}
