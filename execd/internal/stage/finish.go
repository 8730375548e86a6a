package stage

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/jobhook"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/stage/outcome"
	"paddock/execd/internal/usage"
	"paddock/spool"
)

// The processes of a run, as its list of processes has them.
const (
	childPre  = "pre script"
	childJob  = "job"
	childPost = "post script"
	companion = "tasks"
)

// Steps that are noted beside those of package exit.
const (
	stepPost   = childPost
	stepRecord = "event log"
	stepSave   = "account"
	stepTell   = "notify"
	stepMail   = "mail"
	stepAd     = "output ad"
)

// Output takes the files of a job to where they belong, when it has ended.
type Output interface {
	// Wants reports whether a run has files to be transferred.
	Wants(t *job.Task, e exit.Ending) bool
	// Send begins to and returns at once; it calls done, once, at the end.
	Send(t *job.Task, done func(error))
}

// setUp makes the list of a run's processes and chooses who is told of its end. It
// is called when it is known what the run has beside its job.
func (r *Runner) setUp(l *life) {
	l.hooks.FindSlot(l.claims)
	f := finish{r: r, l: l}
	if l.task.Job.Source != "" {
		l.flow.Controller = &local{f}
	} else {
		l.flow.Controller = &queued{f}
	}
	keep := func(step string) error { return l.hooks.Note(jobhook.HookRun{Step: step}) }
	l.flow.Keep, l.tail.Keep, l.prep.Keep = keep, keep, keep
	l.flow.Next = func(over exit.Process, active []exit.Process) exit.Process { return r.next(l, over, active) }
	if l.hooks.Pre != nil && l.at <= launches && !l.prep.Over(stepPre) {
		l.flow.Spawned(&exit.Script{Of: childPre})
	} else {
		l.flow.Spawned(newJob())
	}
	l.flow.Spawned(&exit.Companion{Of: companion, Other: func(child string, _ exit.Status) bool { return (child == childJob || l.exited) && l.tasks.Close() }})
	if l.exited {
		l.flow.Reap(childJob, exit.Status{})
	}
}

func newJob() exit.Process { return &exit.Job{Script: exit.Script{Of: childJob}} }

// next says what is started when a process of a run is over.
func (r *Runner) next(l *life, over exit.Process, active []exit.Process) exit.Process {
	switch {
	case over.Name() == childPre:
		return newJob()
	case over.Name() == childPost || len(active) > 0 || l.hooks.Post == nil || l.flow.Over(stepPost):
		return nil
	case r.Store.State(l.task) == job.Ended:
		return nil
	}
	if l.hooks.Unwelcome() {
		return nil
	}
	return &exit.Script{Of: childPost}
}

// runPost runs the script that the job wants to be run after it, when its turn has
// come.
func (r *Runner) runPost(l *life) error {
	if active := l.flow.Active(); len(active) != 1 || active[0].Name() != childPost {
		return errWait
	}
	if over, err := l.hooks.RunPost(stepPost, l.attempts); err != nil {
		return err
	} else if !over {
		return errWait
	}
	l.flow.Set(stepPost)
	l.flow.Reap(childPost, l.hooks.PostStatus)
	if !l.flow.Idle() {
		return errWait
	}
	return nil
}

// finish is what all who are told of an end have in common.
type finish struct {
	exit.Base
	r *Runner
	l *life
}

// Enter stops what goes on beside a job that runs. What is said of its end the
// stage before has fixed.
func (f *finish) Enter() (exit.Result, error) {
	switch over, err := f.l.hooks.StopUpdates(); {
	case err != nil:
		return exit.Failed, err
	case !over:
		return exit.InProgress, nil
	}
	return exit.Nothing, nil
}

// Hook runs the hook for the end of a job that was started.
func (f *finish) Hook() (exit.Result, error) {
	r, l := f.r, f.l
	if l.hooks.Exit == nil || !l.Ran() || r.Store.State(l.task) == job.Ended {
		return exit.Nothing, nil
	}
	if l.task.Job.Source != "" {
		r.Queue.Ending(l.claims)
	}
	want := r.Store.Want(l.task)
	return l.hooks.RunExit(string(l.Word()), func() ([]byte, error) {
		a, err := l.ended(want)
		return ad.Stdin(a, nil), err
	}, l.attempts)
}

// Free gives the slots back.
func (f *finish) Free() (exit.Result, error) {
	f.r.release(f.l)
	return exit.Nothing, nil
}

// Transfer takes the output of a job to where it belongs.
func (f *finish) Transfer() (exit.Result, error) {
	r, l := f.r, f.l
	if r.Output == nil || l.End == nil {
		return exit.Nothing, nil
	}
	if e := (exit.Ending{SetUp: l.Ran(), Word: l.Word()}); !exit.WantsOutput(e) || !r.Output.Wants(l.task, e) {
		return exit.Nothing, nil
	}
	if l.output == nil {
		l.output = r.transfer(l, "output", exit.HoldOutput, func(done func(error)) { r.Output.Send(l.task, done) })
	}
	result := step(l.output)
	g := l.output.GivenUp()
	if g == nil {
		return result, nil
	}
	if err := l.hooks.Note(jobhook.HookRun{Step: exit.StepTransfer, GivenUp: g}); err != nil {
		return exit.Failed, err
	}
	r.Log.Error(fmt.Sprintf("job %v: output: given up: %s", l.task, g.Reason))
	l.undelivered = g
	outcome.Lose(l.End, g, !r.isNobodys(l.task))
	return exit.Nothing, nil // it is noted
}

// transfer makes a transfer of the files of a run. Here no connection comes back that
// was lost: it is tried again after a while, and not before that, whatever enters
// meanwhile.
func (r *Runner) transfer(l *life, what string, code int, start func(done func(error))) *exit.Transfer {
	t := &exit.Transfer{Code: code, Start: start, Event: l.event}
	t.Lost = func(attempt int, err error) {
		after := exit.Retries.After(attempt)
		r.Log.Warn(fmt.Sprintf("job %v: %s: %v (tried again in %v)", l.task, what, err, after))
		time.AfterFunc(after, func() { l.event(t.Reconnected) })
	}
	return t
}

// step enters a transfer. One that waits to be tried again is in progress: its event
// is on the way.
func step(t *exit.Transfer) exit.Result {
	result, err := t.Step()
	if err != nil {
		return exit.InProgress
	}
	return result
}

// Gone removes the last traces, and what becomes of the task is recorded.
func (f *finish) Gone() (exit.Result, error) {
	if f.l.entry == nil { // it has to be written again
		if err := f.r.account(f.l); err != nil {
			return exit.Failed, err
		}
	}
	if err := f.r.clean(f.l); err != nil {
		return exit.Failed, err
	}
	return exit.Nothing, nil
}

// saved makes the end durable; the record and the accounting file tell of it.
func (f *finish) saved() (exit.Result, error) {
	if err := f.r.account(f.l); err != nil {
		return exit.Failed, err
	}
	return exit.Nothing, nil
}

// recorded writes the event of the end.
func (f *finish) recorded() (exit.Result, error) {
	return f.journal(func(e notice.Event) (exit.Result, error) { return f.l.notices.Ended(stepRecord, e) })
}

// published writes the ad of the job that has ended.
func (f *finish) published() (exit.Result, error) {
	return f.journal(func(e notice.Event) (exit.Result, error) { return f.l.notices.Ad(stepAd, e) })
}

func (f *finish) journal(write func(notice.Event) (exit.Result, error)) (exit.Result, error) {
	r, l := f.r, f.l
	if !l.notices.On() || l.Outcome == nil { // of an end that an earlier execd has recorded nothing more is known
		return exit.Nothing, nil
	}
	e := notice.Event{Kind: notice.Over, Task: l.task, Time: l.Ended, End: l.End, Scratch: r.Launcher.Scratch(l.task.RunID())}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if l.Ran() {
		u := l.Outcome.Usage
		e.Status = exit.Status{Code: u.ExitStatus, Signal: u.Signal, Core: u.WaitStatus.CoreDump()}
	}
	e.Exit = l.Code(e.Status)
	if f := l.Forced(r.Store.Want(l.task)); f != nil {
		e.Text, e.Code, e.Subcode = f.Reason, f.Code, f.Subcode
	}
	if e.Exit == exit.Hold {
		e.Code, e.Subcode = l.Hold(l.undelivered, l.hooks.PostStatus)
	}
	e.Ad, _ = l.ended(r.Store.Want(l.task))
	return write(e)
}

// ended is the ad of a job that has ended.
func (l *life) ended(want *job.Want) (*classad.Ad, error) {
	a, err := l.hooks.JobAd()
	if err != nil {
		return nil, err
	}
	return ad.Ended(a, l.Ad(l.hooks.Status(l.Total), want, time.Now())), nil
}

// queued is the end of a job of execd's own queue. What the end makes of the job was
// decided by the stage before, while it still had its slots: a queue that is to
// blame must not start another one.
type queued struct{ finish }

// Notify tells of the end of the job: the event log, the record and the accounting
// file, those who wait and mail, and the file of the job's ad.
func (q *queued) Notify(exit.Process) (exit.Result, error) {
	return q.l.tail.Run([]exit.Step{
		{Name: stepRecord, Do: q.recorded},
		{Name: stepSave, Do: q.saved},
		{Name: stepTell, Do: func() (exit.Result, error) {
			q.r.notify(q.l)
			return exit.Nothing, nil
		}},
		{Name: stepMail, Do: func() (exit.Result, error) {
			if !q.l.notices.MailEnd(&q.l.Facts) {
				return exit.Nothing, nil
			}
			return exit.Done, nil
		}},
		{Name: stepAd, Do: q.published},
	})
}

// local is the end of a job that did not come by qsub: who sent it is told by hooks,
// and nobody gets mail.
type local struct{ finish }

// Notify tells of the end of the job.
func (c *local) Notify(exit.Process) (exit.Result, error) {
	return c.l.tail.Run([]exit.Step{
		{Name: stepRecord, Do: c.recorded},
		{Name: stepAd, Do: c.published},
		{Name: stepSave, Do: c.saved},
		{Name: stepTell, Do: func() (exit.Result, error) {
			c.r.notify(c.l)
			return exit.Nothing, nil
		}},
	})
}

// exit leads a run from the end of its processes to its own.
func (r *Runner) exit(l *life) error {
	result, err := l.flow.AllDone()
	switch {
	case err != nil:
		return err
	case !result.Over():
		return errWait
	}
	return nil
}

// stepOf returns the step in which a stage has failed; "" if that is not known.
func stepOf(err error) string {
	if s, ok := errors.AsType[*exit.StepError](err); ok {
		return s.Step
	}
	return ""
}

// conclude makes of a run's outcome what is recorded of it.
func (r *Runner) conclude(l *life, out *spool.Outcome) *job.End {
	t := l.task
	run := outcome.Run{Task: t, Want: r.Store.Want(t), Requeues: !r.isNobodys(t), Rerunnable: r.Rerunnable(t), Post: l.hooks.PostStatus}
	if out.Usage != nil && out.Usage.ExitStatus != 0 {
		run.Full = r.Launcher.ScratchFull(t.RunID())
	}
	e, faulty := run.Conclude(out)
	if faulty && !r.fault(t, out) && run.Requeues {
		e.Fate = job.FateError
	}
	if e.Fate == job.FateRequeue && out.Checkpoint {
		e.Checkpoint, e.PID = true, r.Launcher.JobPID(t.RunID())
	}
	outcome.Lose(e, l.undelivered, run.Requeues)
	return e
}

// isNobodys reports whether nobody would start the job of a task again.
func (r *Runner) isNobodys(t *job.Task) bool { return t.Job.Interactive || !r.from(t).Requeues() }

// fault puts the queue of a task in error, and reports whether it is. But what runs as
// the job's owner, with his environment, he can make fail as he likes: where that failed
// for one owner alone his task is in error, not everybody's queue.
func (r *Runner) fault(t *job.Task, out *spool.Outcome) bool {
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
		return false
	}
	r.Log.Error(fmt.Sprintf("queue %s: in error state: %s", t.Start.Queue, reason))
	r.Mail.Admin("queue "+t.Start.Queue, fmt.Sprintf("Queue %s@%s is in error state", t.Start.Queue, r.Host), reason)
	return true
}

// Rerunnable reports whether a run that was cut short may be repeated. One that
// has a checkpointing interface may.
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
	rec := outcome.Record(l.task, l.End, r.Host, r.Config().Queue(l.task.Start.Queue))
	if u := l.Outcome.Usage; u != nil {
		total := l.Total
		if r.Config().Global.ReservedUsage {
			usage.Reserve(&total, l.task.Slots(), 0)
		}
		outcome.Fill(&rec, u, &total)
		l.tasks.AddSum(&rec)
	}
	return outcome.Line(rec, r.Log)
}

// count counts the end of a run.
func (r *Runner) count(l *life) {
	r.Counts.End(outcome.Counted(l.End))
	if !l.Started.IsZero() && !l.Ended.IsZero() {
		r.Counts.Stages(l.Started.Sub(l.taken), l.Ended.Sub(l.Started), time.Since(l.Ended))
	}
}
