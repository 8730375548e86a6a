package stage

import (
	"errors"
	"fmt"
	"time"

	"paddock/execd/internal/ad"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/exit"
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
	r.findSlot(l)
	f := finish{r: r, l: l}
	if l.task.Job.Source != "" {
		l.flow.Controller = &local{f}
	} else {
		l.flow.Controller = &queued{f}
	}
	keep := func(step string) error { return r.note(l, HookRun{Step: step}) }
	l.flow.Keep, l.tail.Keep = keep, keep
	l.flow.Next = func(over exit.Process, active []exit.Process) exit.Process { return r.next(l, over, active) }
	if x := l.extra; x != nil && x.pre != nil && !l.launched && !x.prep.Over(stepPre) {
		l.flow.Spawned(&exit.Script{Of: childPre})
	} else {
		l.flow.Spawned(newJob())
	}
	l.flow.Spawned(&exit.Companion{Of: companion, Other: func(child string, _ exit.Status) bool { return r.tasksOver(l, child) }})
	if l.exited {
		l.flow.Reap(childJob, exit.Status{})
	}
}

func newJob() exit.Process { return &exit.Job{Script: exit.Script{Of: childJob}} }

// next says what is started when a process of a run is over.
func (r *Runner) next(l *life, over exit.Process, active []exit.Process) exit.Process {
	x := l.extra
	switch {
	case over.Name() == childPre:
		return newJob()
	case over.Name() == childPost || len(active) > 0 || x == nil || x.post == nil || l.flow.Over(stepPost):
		return nil
	case r.Store.State(l.task) == job.Ended:
		return nil
	}
	if r.unwelcome(l.task) {
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
	h := l.extra.post
	res, err := r.await(l, h, nil, func() ([]byte, error) { return nil, nil })
	if spool.Unread(err) || r.again(l, err) {
		return err
	}
	if err != nil {
		// The directory is gone, or a power cut has left half of it: it will never be
		// known how to call it.
		r.Log.Warn(fmt.Sprintf("job %v: script after the job: %v", l.task, err))
		res = &hook.Result{Keyword: h.Keyword, Hook: h.Name, Started: time.Now(), Err: err}
	}
	if res == nil {
		return errWait
	}
	if err := r.note(l, HookRun{Step: stepPost, Result: res}); err != nil {
		return err
	}
	l.extra.called()
	l.postStatus = statusOf(res)
	l.flow.Set(stepPost)
	l.flow.Reap(childPost, l.postStatus)
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
	switch over, err := f.r.stopUpdates(f.l); {
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
	if l.extra == nil || l.extra.exit == nil || l.outcome == nil || l.outcome.Usage == nil || r.Store.State(l.task) == job.Ended {
		return exit.Nothing, nil
	}
	h := l.extra.exit
	if l.task.Job.Source != "" {
		r.Queue.Ending(l.claims)
	}
	res, err := r.await(l, h, []string{r.why(l).Word()}, func() ([]byte, error) {
		a, err := r.jobAd(l)
		if err != nil {
			return nil, err
		}
		return ad.Stdin(ad.Ended(a, r.final(l)), nil), nil
	})
	if r.again(l, err) {
		return exit.Failed, err
	}
	if err != nil {
		// Nobody is helped by a job that never ends for want of its ad.
		r.Log.Warn(fmt.Sprintf("job %v: hook: keyword=%s hook=%s result=%q", l.task, h.Keyword, h.Name, err))
		res = &hook.Result{Keyword: h.Keyword, Hook: h.Name, Started: time.Now(), Err: err}
		l.exitTries = maxExitTries
	}
	if res == nil {
		return exit.InProgress, nil
	}
	if scarce(res.Err) && l.attempts < maxScarce {
		l.extra.called()
		return exit.Failed, &Retry{backoff(l.attempts + 1), res.Err.Error()}
	}
	if res.Err != nil && l.exitTries < maxExitTries {
		l.exitTries++
		r.Log.Warn(fmt.Sprintf("job %v: hook: keyword=%s hook=%s result=%q (tried again)", l.task, h.Keyword, h.Name, res.Err))
		l.extra.called()
		return f.Hook()
	}
	if !res.OK() {
		r.Log.Warn(fmt.Sprintf("job %v: hook: keyword=%s hook=%s took=%.3fs result=%q", l.task, h.Keyword, h.Name, res.Took.Seconds(), res.String()))
	}
	if err := r.note(l, HookRun{Step: exit.StepHook, Result: res}); err != nil {
		return exit.Failed, err
	}
	l.extra.called()
	return exit.Nothing, nil // it is noted
}

// maxExitTries is how often a hook for the end of a job that cannot be started is
// tried again.
const maxExitTries = 1

// maxScarce is how often more when there were no descriptors, processes or memory to
// start it, half a minute in all: that passes, and who is not told waits for ever.
const maxScarce = 5

// again reports whether a hook that could not be called is worth another try.
func (r *Runner) again(l *life, err error) bool {
	_, retry := errors.AsType[*Retry](err)
	return retry && l.attempts < maxLookups
}

// Free gives the slots back.
func (f *finish) Free() (exit.Result, error) {
	if f.l.released {
		return exit.Nothing, nil
	}
	f.r.release(f.l)
	return exit.Nothing, nil
}

// Transfer takes the output of a job to where it belongs.
func (f *finish) Transfer() (exit.Result, error) {
	r, l := f.r, f.l
	if r.Output == nil || l.end == nil {
		return exit.Nothing, nil
	}
	ran := l.outcome != nil && l.outcome.Usage != nil
	if e := (exit.Ending{SetUp: ran, Why: r.why(l)}); !exit.WantsOutput(e) || !r.Output.Wants(l.task, e) {
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
	if err := r.note(l, HookRun{Step: exit.StepTransfer, GivenUp: g}); err != nil {
		return exit.Failed, err
	}
	r.Log.Error(fmt.Sprintf("job %v: output: given up: %s", l.task, g.Reason))
	l.undelivered = g
	r.lose(l, l.end)
	return exit.Nothing, nil // it is noted
}

// transfer makes a transfer of the files of a run. Here no connection comes back that
// was lost: it is tried again after a while, and not before that, whatever enters
// meanwhile.
func (r *Runner) transfer(l *life, what string, code int, start func(done func(error))) *exit.Transfer {
	t := &exit.Transfer{Code: code, Start: start, Event: l.event}
	t.Lost = func(attempt int, err error) {
		after := backoff(attempt)
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
	return f.journal(stepRecord, func(e Event) error { return f.r.Journal.Record(e) })
}

// published writes the ad of the job that has ended.
func (f *finish) published() (exit.Result, error) {
	return f.journal(stepAd, func(e Event) error { return f.r.Journal.WriteAd(e) })
}

func (f *finish) journal(step string, write func(Event) error) (exit.Result, error) {
	r, l := f.r, f.l
	if !l.journal || l.outcome == nil { // of an end that an earlier execd has recorded nothing more is known
		return exit.Nothing, nil
	}
	why, ran := r.why(l), l.outcome.Usage != nil
	e := Event{Kind: Over, Task: l.task, Time: l.ended, End: l.end, Scratch: r.scratch(l)}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if ran {
		u := l.outcome.Usage
		e.Status = exit.Status{Code: u.ExitStatus, Signal: u.Signal, Core: u.WaitStatus.CoreDump()}
	}
	if ran && l.end.Cause == spool.CauseLimit {
		why.Remove = false // nobody has deleted it: it has ended, though not by itself
	}
	e.Exit = exit.CodeOf(why, ran, e.Status)
	if f := r.forced(l); f != nil {
		e.Text, e.Code, e.Subcode = f.Reason, f.Code, f.Subcode
	}
	if l.end.Fate == job.FateError {
		e.Exit = exit.Hold
		if g := l.undelivered; g != nil {
			e.Code, e.Subcode = g.Code, g.Subcode
		}
	}
	if a, err := r.jobAd(l); err == nil {
		e.Ad = ad.Ended(a, r.final(l))
	}
	return l.write(step, func() error { return write(e) })
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
			if !q.r.tell(q.l, q.l.ending()) {
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

// why is what was asked of a run before it ended.
func (r *Runner) why(l *life) exit.Why {
	var w exit.Why
	want := r.Store.Want(l.task)
	switch {
	case want != nil && (want.Requeue || want.Slot) && endedByItself(l.outcome): // it came too late
	case want != nil && want.Error != "":
		w.Hold = true
	case want != nil && (want.Requeue || want.Slot):
		w.Evict = true
	case want != nil:
		w.Remove = true // by somebody, or for a limit
	}
	if l.end != nil {
		w.Remove = w.Remove || l.end.Cause == spool.CauseLimit
		w.Evict = w.Evict || l.end.Cause == spool.CauseMigrated
	}
	return w
}

// forced is why a run had to leave its slot; nil: it had not, or had ended before.
func (r *Runner) forced(l *life) *ad.Forced {
	want := r.Store.Want(l.task)
	if w := r.why(l); want == nil || !want.Slot || want.Code == 0 || !w.Evict && !w.Hold {
		return nil
	}
	return &ad.Forced{Held: want.Error != "", Reason: want.Cause, Code: want.Code, Subcode: want.Subcode}
}

// stepOf returns the step in which a stage has failed; "" if that is not known.
func stepOf(err error) string {
	if s, ok := errors.AsType[*exit.StepError](err); ok {
		return s.Step
	}
	return ""
}
