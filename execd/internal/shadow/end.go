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
	"paddock/execd/internal/stage/finish"
	"paddock/execd/internal/stage/outcome"
	"paddock/spool"
)

// maxLost bounds how often a task is started again after another host was lost under it.
const maxLost = 10

// These are what is known of a run whose end is not.
const (
	mayHaveRun = "it may have run"
	outputLost = "it has run, and its output is lost"
)

// ending is the end of a run as it is recorded here. The goroutine of the run alone uses it.
type ending struct {
	finish.Tail
	run       *run
	accounted *accounting.Record // as the host has accounted it; nil: it has not
}

// conclude makes of what a host has said what is recorded of the run.
func (e *ending) conclude(said report.End) {
	r, task := e.run, e.run.task
	if r.Host.Store.State(task) == job.Over {
		e.adopt(&said)
	}
	out := said.Outcome()
	want := r.Host.Store.Want(task)
	cause := spool.Cause(said.Cause)
	switch {
	case e.End != nil:
	case want != nil && !want.Requeue:
	case cause == spool.CauseLease:
		e.End = e.lost(r.host.name+" has ended it: the lease of its claim was over", mayHaveRun)
	case r.carries() && said.Failed == accounting.FailedTransfer: // before it was heard here that it is over
		e.End = e.lost(fmt.Sprintf("%s has its output no more: %s", r.host.name, out.Reason), outputLost)
	case want == nil && (cause == spool.CauseEvicted || cause == spool.CauseHeld):
		// What the policy of the host does not want there any more may run elsewhere.
		want = &job.Want{By: r.host.name, Requeue: e.rerunnable(), Slot: true, Cause: out.Reason}
	}
	e.Outcome, e.Started, e.Ended = &out, said.Started, said.Ended
	if u := out.Usage; u != nil && u.Start > 0 {
		r.Host.Timeline.Account(task.RunID(), u.Start, u.End)
	}
	if u := said.Used; u != nil {
		e.Total = api.Usage{Wallclock: float64(u.RuWallclock), CPU: u.CPU, Mem: u.Mem, IO: u.IO, IOWait: u.IOW, MaxVMem: u.MaxVMem}
	}
	if e.End == nil {
		judge := outcome.Run{Task: task, Want: want, Requeues: true, Rerunnable: e.rerunnable(), Post: exit.Status{}}
		end, faulty := judge.Conclude(&out)
		if faulty && task.Run >= maxLost {
			end.Fate = job.FateError
		}
		if e.End = end; policy.Any(task.Job.Terms().Needs.Attributes()) {
			r.mu.Lock()
			last := r.status
			r.mu.Unlock()
			e.Obey(r.Host.JobAd(task), last, time.Now())
		}
	}
	e.account(said.Used)
}

// account composes the accounting line.
func (e *ending) account(used *accounting.Record) {
	r := e.run
	e.accounted = used
	rec := outcome.Record(r.task, e.End, r.host.name, r.Host.Config().Queue(r.task.Start.Queue))
	rec.Reason = outcome.LeftOut(rec.Reason, r.input.Standing().Left, r.output.Standing().Left)
	if used != nil {
		outcome.Elsewhere(&rec, used)
	}
	e.End.Accounting = outcome.Line(rec, r.Host.Log)
}

// rerunnable reports whether the job may run again.
func (e *ending) rerunnable() bool {
	return outcome.Rerunnable(e.run.task, e.run.Host.Config().Queue(e.run.task.Start.Queue))
}

// lost is the end of a run of which nobody can tell how it has ended, and which goes on no more: it
// is run again, or waits for somebody to look. What is known of it is said behind why.
func (e *ending) lost(why, known string) *job.End {
	end := &job.End{Failed: spool.FailedLease, Cause: spool.CauseLease, Reason: why + "; " + known, Fate: job.FateError}
	if e.rerunnable() && e.run.task.Run < maxLost {
		end.Fate = job.FateRequeue
	}
	return end
}

// adopt takes over what is recorded of a run that is over. What its host says now is only what it
// has used.
func (e *ending) adopt(said *report.End) {
	recorded := *e.run.task.End
	as := *said.ActivationEnd
	as.Failed, as.Exit, as.Reason = recorded.Failed, recorded.Exit, recorded.Reason
	said.ActivationEnd = &as
	recorded.Accounting, recorded.Holds = "", false
	if want := e.run.output.unwanted; want != nil {
		outcome.Undelivered(&recorded, want, "")
	}
	if recorded.Carries == job.CarriesAll {
		recorded.Sandbox = e.run.task.Start.Sandbox
	}
	e.End = &recorded
}

// withoutOutput makes the end of a run that is over, and whose output never comes.
func (e *ending) withoutOutput(why string) {
	r := e.run
	if recorded := *r.task.End; !recorded.Awaited() { // its end is what it is
		recorded.Carries, recorded.Holds, recorded.Accounting = "", false, ""
		recorded.Reason = outcome.LeftOut(recorded.Reason, "", "what it had left is lost: "+why)
		e.End = &recorded
	} else {
		e.End = e.lost(why, outputLost)
	}
	e.Ended = time.Now()
	var used *accounting.Record
	r.mu.Lock()
	if r.final != nil {
		used = report.EndOf(r.final).Used
	}
	r.mu.Unlock()
	e.account(used)
}

// giveUp makes the end of a run of which its host says nothing.
func (e *ending) giveUp(why string) {
	end := e.lost(why, mayHaveRun)
	if want := e.run.Host.Store.Want(e.run.task); want != nil {
		switch {
		case !want.Requeue:
			end.Cause, end.Fate = spool.CauseDeleted, job.FateDone
			end.Reason = outcome.By(spool.CauseDeleted, want.By) + "; " + why
		case want.Error == "":
			end.Fate = job.FateRequeue
		}
	}
	e.End, e.Ended = end, time.Now()
	e.account(nil)
}

// saveOrRequeue records the end of the run. If that cannot be done for a while the run counts for
// nothing and its job runs again, if it may.
func (e *ending) saveOrRequeue(ctx context.Context) error {
	r, knobs := e.run, e.run.Host.Config().Knobs
	delay := max(knobs.Duration("SHADOW_JOB_CLEANUP_RETRY_DELAY", 30*time.Second), time.Second)
	most := knobs.Int("SHADOW_MAX_JOB_CLEANUP_RETRIES", 5)
	return again(ctx, func(int) time.Duration { return delay }, func(attempt int) bool {
		_, err := e.Save()
		if err == nil {
			return true
		}
		r.warnf("%v: %v (tried again in %v)", r, err, delay)
		if attempt > most {
			e.requeue(err)
		}
		return false
	})
}

// requeue has the job of a run whose end cannot be recorded run again, as soon as that can be
// recorded: unless the record may have the end, or the job may not run again.
func (e *ending) requeue(why error) {
	r, end := e.run, e.End
	if end.Fate != job.FateDone || r.Host.Store.Recorded(r.task) || r.Host.Store.Want(r.task) != nil || !e.rerunnable() {
		return
	}
	r.warnf("%v: runs again: its end cannot be recorded", r)
	end.Failed, end.Cause, end.Fate = spool.FailedRescheduling, spool.CauseRescheduled, job.FateRequeue
	end.Reason = fmt.Sprintf("its end could not be recorded, and it runs again (%d): %s", exit.Requeue, api.Visible(why.Error()))
	e.account(e.accounted)
}
