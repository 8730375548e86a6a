// Package finish carries out what follows the end of a job's processes, as the Controller
// of package exit. It collects the outcome, has package outcome decide on it, and does what
// was decided: slots are free, output is transferred, the end is recorded, accounted and
// told, and the last traces go. Package stage uses it, and shadow for runs on other hosts.
package finish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/jobhook"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/stage/outcome"
	"paddock/execd/internal/stage/subtask"
	"paddock/execd/internal/timeline"
	"paddock/execd/internal/usage"
	"paddock/spool"
)

// Steps that are noted beside those of package exit.
const (
	StepOutput = "output hook"
	StepRecord = "event log"
	StepReport = "report"
	StepSave   = "account"
	StepTell   = "notify"
	StepMail   = "mail"
	StepAd     = "output ad"
)

// End is the end of one run.
type End struct {
	Tail
	Slots  []*claim.Slot
	Input  Transit
	Output Transit
	// Warned says that the job was told of a soft limit that it exceeds, by SIGXCPU.
	Warned atomic.Bool

	sent    jobhook.Output // of the transfer of the output
	arrived bool           // it has

	hooks    *jobhook.Hooks
	tasks    *subtask.Tasks
	event    func(func()) // has something happen to the run, and leads it on
	attempts *int         // failed ones at the present step

	wanted   *job.Want   // what somebody wanted of the job when its end was concluded
	removal  Transit     // of output that nobody wants any more
	vain     atomic.Bool // the output could not be delivered until somebody has looked
	cleared  bool        // somebody has looked since the attempt that is under way was begun
	expiry   *time.Timer // gives up output that is stuck; nil: it never was
	decided  bool        // its end was, by this execd
	cleaned  bool        // nothing is left of it but its record
	final    bool        // those who follow it were told the last
	shed     atomic.Bool // what is scarce was given back before the output was transferred
	historic bool        // the history of the host has it
	holds    bool        // the slots are kept until the output has arrived
	leaves   bool        // output leaves the sandbox, or has left it
	leavings leavings    // see left
}

// Slot returns the first slot of the run, by its number in the queue; 0: it has none there.
func (f *End) Slot() int {
	if len(f.Slots) == 0 {
		return 0
	}
	return f.Slots[0].Index
}

// Init makes it that of a run. Event has something happen to it, and leads it on; attempts
// has how often the present step has failed.
func (f *End) Init(h *base.Host, of *job.Task, x *jobhook.Hooks, n *notice.Notices, ts *subtask.Tasks, event func(func()), attempts *int) {
	f.Tail.Init(h, of, n)
	f.hooks, f.tasks, f.event, f.attempts = x, ts, event, attempts
}

// Recall takes over what an earlier execd has noted, and reports whether that was of how
// the end is told.
func (f *End) Recall(h *jobhook.HookRun) bool {
	if h.Output != nil {
		f.sent, f.arrived = *h.Output, h.Step == exit.StepTransfer
	}
	switch h.Step {
	case StepOutput, StepRecord, StepAd, StepMail:
		f.Marks.Set(h.Step)
		return true
	}
	return false
}

// Reap collects the outcome of a run whose usage was looked at.
func (f *End) Reap(sampled api.Usage) error {
	state := f.host.Store.State(f.of)
	recorded := state == job.Ended // by an earlier execd
	if recorded {
		f.End = f.of.End
		if !f.notices.On() || f.Marks.Over(StepAd) {
			return nil
		}
		if _, _, err := f.host.Launcher.Find(f.of.RunID()); errors.Is(err, fs.ErrNotExist) {
			return nil // that was the last
		}
		sampled = api.Usage{}
	}
	gid := f.of.Start.AddGID
	if state == job.Over {
		gid = 0 // another run may have it
	}
	out, err := f.host.Launcher.Collect(f.of.RunID(), gid, f.of.Start.Boot != f.host.Boot)
	if err != nil {
		return err
	}
	f.Outcome, f.Total = &out, usage.Final(sampled, out.Usage)
	if u := out.Usage; u != nil && u.Start > 0 {
		f.host.Timeline.Account(f.of.RunID(), u.Start, u.End)
	}
	switch {
	case state == job.Over:
		f.resume()
	case !recorded:
		f.End = f.Conclude(&out)
	}
	return nil
}

// Conclude makes of a run's outcome what is recorded of it.
func (f *End) Conclude(out *spool.Outcome) *job.End {
	t := f.of
	f.decided, f.wanted = true, f.host.Store.Want(t)
	config := f.host.Config()
	_, hosted := config.Knobs.Lookup(knob.Pilot)
	run := outcome.Run{
		Task: t, Want: f.wanted, Requeues: f.requeues(), Rerunnable: outcome.Rerunnable(t, config.Queue(t.Start.Queue)), Post: f.hooks.PostStatus,
		Hosted: hosted, Warned: f.Warned.Load(),
	}
	if out.Usage != nil && out.Usage.ExitStatus != 0 {
		run.Full = f.host.Launcher.ScratchFull(t.RunID())
		if run.Full == "" && t.Start.Sandbox != nil {
			run.Full = f.host.Sandboxes.Full(t)
		}
	}
	e, faulty := run.Conclude(out)
	if faulty && !f.fault(t, out) && run.Requeues {
		e.Fate = job.FateError
	}
	if f.End = e; f.hooks.HasPolicy() && run.Requeues {
		f.Obey(f.host.JobAd(t), f.hooks.Status(f.Total), time.Now())
	}
	if e.Fate != job.FateDone && f.keeps(out) {
		e.Sandbox = t.Start.Sandbox
	}
	if e.Fate == job.FateRequeue && out.Checkpoint {
		e.Checkpoint, e.PID = true, f.host.Launcher.JobPID(t.RunID())
	}
	return e
}

// keeps reports whether the next run goes on in the sandbox of this one: if it was not torn
// down with the host.
func (f *End) keeps(out *spool.Outcome) bool {
	s := f.of.Start.Sandbox
	return s != nil && (out.Usage != nil || s.Kept && f.of.Start.Boot == f.host.Boot) && f.host.Sandboxes.Keeps(f.of)
}

// requeues reports whether somebody would start the job again.
func (f *End) requeues() bool { return !f.of.Job.Interactive && f.host.From(f.of).Queued() }

// fault puts the queue of a task in error, and reports whether it is. But what runs as
// the job's owner, with his environment, he can make fail as he likes: where that failed
// for one owner alone his task is in error, not everybody's queue.
func (f *End) fault(t *job.Task, out *spool.Outcome) bool {
	sure := true
	if q := f.host.Config().Queue(t.Start.Queue); q != nil && f.host.Launcher.Privileged {
		procedure := ""
		switch out.Failed {
		case spool.FailedProlog:
			procedure = cmp.Or(q.Prolog, f.host.Config().Global.Prolog)
		case spool.FailedPEStart:
			if g := t.Start.Grant; g != nil && f.host.Config().PEs[g.PE] != nil {
				procedure = f.host.Config().PEs[g.PE].StartProcArgs
			}
		}
		_, _, other := conf.SplitProcedure(procedure)
		sure = procedure == "" || other
	}
	reason := fmt.Sprintf("job %v failed: %s", t, out.Reason)
	if !f.host.Queue.Fault(t.Start.Queue, t.Job, reason, sure) {
		return false
	}
	f.host.Log.Error(fmt.Sprintf("queue %s: in error state: %s", t.Start.Queue, reason))
	f.host.Mail.Admin("queue "+t.Start.Queue, fmt.Sprintf("Queue %s@%s is in error state", t.Start.Queue, f.host.Name), reason)
	return true
}

// Enter stops what goes on beside a job that runs. What is said of its end the
// stage before has fixed.
func (f *End) Enter() (exit.Result, error) {
	switch over, err := f.hooks.StopUpdates(); {
	case err != nil:
		return exit.Failed, err
	case !over:
		return exit.InProgress, nil
	}
	return exit.Nothing, nil
}

// Hook runs the hook for the end of a job that was started.
func (f *End) Hook() (exit.Result, error) {
	if f.hooks.Exit == nil || !f.Ran() || f.host.Store.State(f.of) == job.Ended {
		return exit.Nothing, nil
	}
	if !f.host.From(f.of).Queued() && (!f.delivers() || f.host.Output.Async(f.of)) {
		f.host.Queue.Ending(f.Slots)
	}
	want := f.host.Store.Want(f.of)
	return f.hooks.RunEnd(f.hooks.Exit, exit.StepHook, []string{string(f.Word())}, func() ([]byte, error) {
		a, err := f.ended(want)
		return ad.Stdin(a, nil), err
	}, *f.attempts)
}

// outputHook runs the hook for the end of the transfer of a job's output, if there was
// one.
func (f *End) outputHook() (exit.Result, error) {
	if f.hooks.Output == nil || f.host.Store.State(f.of) != job.Over {
		return exit.Nothing, nil
	}
	want, why := f.host.Store.Want(f.of), ""
	if !f.arrived {
		why = f.End.Reason
	}
	return f.hooks.RunEnd(f.hooks.Output, StepOutput, nil, func() ([]byte, error) {
		a, err := f.ended(want)
		if err != nil {
			return nil, err
		}
		return ad.Stdin(ad.Delivered(a, f.sent.Bytes, why), nil), nil
	}, *f.attempts)
}

// Free gives the slots back: what follows needs none, unless they are to be kept until the
// output has arrived.
func (f *End) Free() (exit.Result, error) {
	f.record()
	if f.delivers() {
		if f.holds = !f.host.Output.Async(f.of); f.holds {
			return exit.Nothing, nil
		}
		f.leave()
	}
	f.free()
	return exit.Nothing, nil
}

func (f *End) free() {
	f.host.From(f.of).Over(f.of.Job, f.told() == exit.WordEvict)
	used := f.tasks.Used()
	used.CPU, used.Mem, used.IO = used.CPU+f.Total.CPU, used.Mem+f.Total.Mem, used.IO+f.Total.IO
	f.host.Timeline.Note(f.of.RunID(), timeline.Span{Kind: timeline.Slot, End: time.Now()})
	f.host.Queue.Ended(f.of, f.Slots, used)
}

// Announce tells those who follow the job that it has ended, if its slots are free: otherwise
// they hear of its end when they are, unless one of them is to pull its output before.
func (f *End) Announce() (exit.Result, error) {
	if f.carried() && !f.leaves && f.delivers() { // also if an earlier execd has freed the slots
		f.leave()
	}
	if !f.holds || f.carried() {
		f.follow(api.ActivationOver)
	}
	return exit.Nothing, nil
}

// Gone removes the last traces, and what becomes of the task is recorded, as soon as those
// who follow it have acknowledged that.
func (f *End) Gone() (exit.Result, error) {
	if f.entry == nil { // it has to be written again
		if result, err := f.account(); err != nil {
			return result, err
		}
	}
	if f.carried() { // who has all of its files need not wait until they are removed here
		f.last()
	}
	if !f.cleaned {
		if err := f.clean(); err != nil {
			return exit.Failed, err
		}
		f.cleaned = true
	}
	f.last()
	if f.host.Followed(f.of) && !f.host.Followers.Acknowledged(f.of.Job, func() { f.event(nil) }) {
		return exit.InProgress, nil
	}
	if err := f.Settle(); err != nil {
		return exit.Failed, err
	}
	return exit.Nothing, nil
}

// last tells those who follow the job the last, once.
func (f *End) last() {
	if !f.final {
		f.final = true
		f.follow(api.ActivationFinal)
	}
}

// follow tells those who follow the job of its end.
func (f *End) follow(kind api.ActivationKind) {
	if !f.host.Followed(f.of) {
		return
	}
	e := api.ActivationEvent{Kind: kind, Time: time.Now(), End: outcome.Told(f.End, f.Outcome, f.host.Log)}
	if f.Outcome != nil {
		now := cmp.Or(f.Ended, e.Time)
		e.Ad = ad.Ended(classad.New(), f.Ad(f.hooks.Status(f.Total), f.host.Store.Want(f.of), now)).OldString()
	}
	if kind == api.ActivationOver {
		e.End.Accounting = "" // the last has it
		e.Outcome = f.outcome()
	}
	f.host.Followers.Tell(f.of.Job, e)
}

// outcome is what another host is to pull; nil: it pulls nothing of any job.
func (f *End) outcome() *api.Outcome {
	if !f.carried() {
		return nil
	}
	return &api.Outcome{
		Pull: f.leaves, Held: f.holds, Spool: f.End.Carries == job.CarriesAll,
		KiB: (f.host.Output.Size(f.of.Start.Sandbox) + 1023) >> 10,
	}
}

// Notify reports the end to who is told of output, the event log, the record and the accounting file, to those who
// wait, by mail, and in the file of the job's ad. The source of a job that did not come by
// qsub is told instead of getting mail, and the job's ad is written before that.
func (f *End) Notify(exit.Process) (exit.Result, error) {
	output := exit.Step{Name: StepOutput, Do: f.outputHook}
	record, publish := f.journal(StepRecord, notice.Journal.Record), f.journal(StepAd, notice.Journal.WriteAd)
	save, tell := exit.Step{Name: StepSave, Do: f.account}, exit.Step{Name: StepTell, Do: f.tell}
	if !f.host.From(f.of).Queued() {
		return f.Marks.Run([]exit.Step{output, record, publish, {Name: StepReport, Do: f.report}, save, tell})
	}
	return f.Marks.Run([]exit.Step{output, record, save, tell, {Name: StepMail, Do: f.Mail}, publish})
}

// journal is a step in which the journal writes of the end.
func (f *End) journal(step string, write func(notice.Journal, notice.Event) error) exit.Step {
	return exit.Step{Name: step, Do: func() (exit.Result, error) {
		if !f.notices.On() || f.Outcome == nil { // of an end that an earlier execd has recorded nothing more is known
			return exit.Nothing, nil
		}
		e := f.endEvent(f.hooks.PostStatus)
		e.Scratch = f.host.Launcher.Scratch(f.of.RunID())
		e.Ad, _ = f.ended(f.host.Store.Want(f.of))
		return f.notices.Write(step, e, write)
	}}
}

// told returns what who has brought the work is told. A run that was lost did not exit: nobody knows
// what it has done, and it is to be done again as one that had to leave. Nor did one that was never started, whose exit
// code is 0: somebody has to look after the work if that is to blame, or it may be done elsewhere.
func (f *End) told() exit.Word {
	switch {
	case f.End.Cause == spool.CauseLost:
		return exit.WordEvict
	case f.End.Cause != spool.CauseFailed || f.Outcome == nil || f.Ran():
		return f.Word()
	case f.End.Failed > spool.FailedPEStart: // of what the work itself names
		return exit.WordHold
	}
	return exit.WordEvict
}

// report has the source keep how the run has ended, until it is recorded.
func (f *End) report() (exit.Result, error) {
	if f.host.Store.State(f.of) == job.Ended { // an earlier execd has had it kept
		return exit.Nothing, nil
	}
	want := f.host.Store.Want(f.of)
	err := f.host.From(f.of).Report(f.of.Job, string(f.told()), func(work *classad.Ad) *classad.Ad {
		if a, err := f.ended(want); err == nil {
			return a
		}
		// The directory of the run is damaged: the end is told all the same.
		return ad.Ended(work, f.Ad(f.hooks.Status(f.Total), want, time.Now()))
	})
	if err != nil {
		return exit.Failed, &exit.Retry{Err: err}
	}
	return exit.Nothing, nil
}

// ended is the ad of a job that has ended.
func (f *End) ended(want *job.Want) (*classad.Ad, error) {
	a, err := f.hooks.JobAd()
	if err != nil {
		return nil, err
	}
	return ad.Ended(a, f.Ad(f.hooks.Status(f.Total), want, time.Now())), nil
}

// account makes the end durable and writes its accounting line. The line says what
// has become of the job up to here; of an end that is recorded the record has it.
func (f *End) account() (exit.Result, error) {
	if f.End.Accounting == "" {
		f.End.Accounting = f.Line()
	} else if f.host.Store.State(f.of) == job.Over {
		f.amend()
	}
	return f.Save()
}

// tell tells the log and those who wait.
func (f *End) tell() (exit.Result, error) {
	if f.Outcome == nil && f.host.Followed(f.of) { // the execd before has told them, and waited for it to be acknowledged
		f.host.Store.Accounted(f.of)
		return exit.Nothing, nil
	}
	f.host.From(f.of).Recorded(f.of.Job)
	return f.Tell()
}

// clean removes the last traces, but for those that KEEP_ACTIVE wants, and returns when the
// accounting line is on disk. What becomes of the task is recorded after it: a task that runs
// again must not meet its old directory, and the record must not go before the line.
func (f *End) clean() error {
	t := f.of
	g := &f.host.Config().Global
	err := f.host.Launcher.Clean(t.RunID(), g.KeepActive || g.KeepFailed && f.End.Failed != 0)
	if errors.Is(err, launch.ErrTmpdir) && *f.attempts >= maxCleans {
		f.host.Log.Warn(fmt.Sprintf("job %v: %v (tried again when execd is started next)", t, err))
		err = nil
	}
	if err != nil {
		return err
	}
	if t.Start.Boot != f.host.Boot {
		f.cleanOld(t)
	}
	if f.host.Sandboxes != nil && f.End.Sandbox == nil {
		f.host.Sandboxes.Remove(t)
	}
	if err := f.Synced(); err != nil {
		return err
	}
	if !f.shed.Load() {
		f.host.GIDs.Give(t.Start.AddGID)
	}
	return nil
}

// maxCleans is how often TMPDIR is tried to be removed again, for a minute in all:
// what was killed may still write into it, and its owner may have no process left
// that could remove it. What he has mounted there may stay for ever.
const maxCleans = 6

// cleanOld removes what the directory of a run cannot tell of any more, since
// the host was restarted.
func (f *End) cleanOld(t *job.Task) {
	q := f.host.Config().Queue(t.Start.Queue)
	if q == nil {
		return
	}
	owner, err := f.host.Users.ByID(context.Background(), t.Job.UID)
	if err == nil {
		err = f.host.Launcher.CleanOld(t.RunID().ID(), q, owner)
	}
	if err != nil {
		f.host.Log.Warn(fmt.Sprintf("job %v: %v", t, err))
	}
}

// Line composes the accounting line.
func (f *End) Line() string {
	rec := outcome.Record(f.of, f.End, f.host.Name, f.host.Config().Queue(f.of.Start.Queue))
	rec.Reason = f.why()
	if u := f.Outcome.Usage; u != nil {
		total := f.Total
		if f.host.Config().Global.ReservedUsage {
			usage.Reserve(&total, f.of.Slots(), 0)
		}
		outcome.Fill(&rec, u, &total)
		f.tasks.AddSum(&rec)
	}
	return outcome.Line(rec, f.host.Log)
}

// amend makes the line that was composed before the output was transferred, and may be all
// that is left of a run, say what has become of that.
func (f *End) amend() {
	if rec, err := accounting.Parse([]byte(f.End.Accounting)); err == nil {
		rec.Failed, rec.Reason = f.End.Failed, f.why()
		f.End.Accounting = outcome.Line(rec, f.host.Log)
	}
}

// why is the reason in the accounting line: that of the end, with what was left out of the
// files that travelled.
func (f *End) why() string {
	return outcome.LeftOut(f.End.Reason, f.Input.Standing().Left, f.sent.Left)
}
