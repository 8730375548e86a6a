package finish

import (
	"context"
	"fmt"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/jobhook"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/stage/outcome"
	"paddock/spool"
)

// delivers reports whether the output of the run is transferred. Who runs again brings it
// then. One that was killed for a limit is over like one that ends by itself.
func (f *End) delivers() bool {
	if f.host.Output == nil || f.End == nil {
		return false
	}
	switch f.host.Store.State(f.of) {
	case job.Over:
		return true
	case job.Ended: // it has arrived, or nobody wants it
		return false
	}
	word := f.Word()
	if f.End.Cause == spool.CauseLimit {
		word = exit.WordExit
	}
	return f.leavesBy(word) || f.carried() && f.Ran() && f.left().streams
}

// leavings are what a run has left.
type leavings struct {
	look           sync.Once
	when           api.WhenOut // after which ends its files are transferred
	files, streams bool        // whether there are any, and whether it has written to streams of their own
}

// left looks at it once: all processes of the run are gone.
func (f *End) left() *leavings {
	l := &f.leavings
	l.look.Do(func() { l.when, l.files, l.streams = f.host.Output.Leaves(f.of) })
	return l
}

// carried reports whether another host pulls what the run leaves.
func (f *Tail) carried() bool {
	a := f.of.Job.Activation
	return a != nil && a.Carriage != nil
}

// carries returns what of it another host is to pull.
func (f *End) carries() job.Carries {
	word := f.Word()
	if f.End.Cause == spool.CauseLimit {
		word = exit.WordExit
	}
	switch {
	case !f.leavesBy(word):
		return job.CarriesStreams
	case word == exit.WordEvict:
		return job.CarriesAll
	}
	return job.CarriesOutput
}

// leavesBy reports whether a run that is ended so leaves output that somebody wants.
func (f *End) leavesBy(word exit.Word) bool {
	left := f.left()
	when := left.when
	if !left.files || f.End.Fate != job.FateDone || when == api.OutSuccess && (f.End.Failed != 0 || f.End.Exit != 0) {
		return false
	}
	return exit.WantsOutput(exit.Ending{SetUp: f.Ran(), Word: word, OnEviction: when == api.OutEvict || when == api.OutAlways, Final: when == api.OutAlways})
}

// deleted returns who has deleted a job as it came to its own end, which is told of like
// one that is deleted a moment later; nil: nobody has.
func (f *End) deleted() *job.Want {
	if f.host.Output == nil || f.End == nil || f.End.Cause != spool.CauseDeleted || f.End.Failed != 0 ||
		f.host.Store.State(f.of) != job.Started || !f.leavesBy(exit.WordExit) {
		return nil
	}
	return f.host.Store.Want(f.of)
}

// leave notes that output is on its way.
func (f *End) leave() {
	slot := f.Slot()
	if s := f.of.Start.Sandbox; slot == 0 && s != nil { // an earlier execd had it
		slot = s.Slot
	}
	f.host.Output.Freeze(f.of, slot)
	f.leaves = true
	if f.carried() && f.host.Store.State(f.of) == job.Started {
		f.End.Carries = f.carries()
	}
}

// Keep notes that a run has its slots, which an earlier execd has kept for it until its
// output has arrived.
func (f *End) Keep(slots []*claim.Slot) { f.Slots, f.holds = slots, true }

// Yield gives back slots that were kept until the output has arrived: it has, somebody has
// to look first, or the slots are wanted at once. The output still arrives.
func (f *End) Yield() {
	if f.holds {
		f.holds = false
		f.free()
	}
}

// Transfer takes the output of a job to where it belongs. What cannot be delivered is
// never thrown away by another run: it is tried again, or waits until somebody has looked.
func (f *End) Transfer() (exit.Result, error) {
	result := f.transfer()
	if !result.Over() {
		return result, nil
	}
	if result == exit.Done {
		at := f.Output.Standing()
		f.sent, f.arrived = jobhook.Output{Bytes: at.Bytes, Files: at.Files, Left: at.Left}, true
		if err := f.hooks.Note(jobhook.HookRun{Step: exit.StepTransfer, Output: &f.sent}); err != nil {
			return exit.Failed, err
		}
	}
	if f.leaves {
		f.host.Output.Arrived(f.of)
		f.host.Queue.Traffic()
	}
	f.Yield()
	return exit.Nothing, nil // it is noted
}

func (f *End) transfer() exit.Result {
	if !f.delivers() {
		if want := f.deleted(); want != nil {
			outcome.Undelivered(f.End, want, "")
		}
		return exit.Nothing
	}
	if !f.leaves {
		f.leave()
	}
	if want := f.unwanted(); want != nil {
		return f.discard(want)
	}
	if x := &f.Output; x.transfer == nil {
		end := *f.End
		if end.Accounting == "" {
			end.Accounting = f.Line() // a power cut may take all else that it is made of
		}
		t := &exit.Transfer{}
		t.Lost = func(attempt int, err error) { f.lost(t, attempt, err) }
		x.begin(f, t, "output", func() bool { return f.unwanted() != nil }, func(ctx context.Context, t *job.Task, report func(base.Progress)) error {
			if err := f.over(ctx, &end); err != nil {
				return err
			}
			if err := f.late(t); err != nil {
				return err
			}
			return f.host.Output.Send(ctx, t, report)
		})
	}
	return f.Output.step()
}

// late has output that another host pulls, and may never, be given up when the job was
// deleted after its end was concluded, and before it was recorded that it is over.
func (f *End) late(t *job.Task) error {
	want := f.host.Store.Want(t)
	if !f.carried() || !f.decided || want == f.wanted || f.host.Store.NotDelivered(t) != nil {
		return nil
	}
	if err := f.host.Store.DropOutput(t, *want); err != nil {
		return err
	}
	return &exit.Cancelled{Err: errUnwanted}
}

// unwanted returns why nobody wants the output any more that is still to arrive; nil:
// somebody does. What is brought out also of a job that is deleted goes on, until it
// cannot be delivered.
func (f *End) unwanted() *job.Want {
	want := f.host.Store.NotDelivered(f.of)
	if want == nil || f.carried() { // then it is the other host's to know
		return want
	}
	if f.left().when == api.OutAlways && !f.vain.Load() && f.host.Store.Stuck(f.of) == nil {
		return nil
	}
	return want
}

// over records that the run is over, when nothing of it is left that could change its
// files, and these are on disk. What is scarce is given back: transfers may take days.
func (f *End) over(ctx context.Context, end *job.End) error {
	t := f.of
	if f.host.Store.State(t) != job.Started {
		return nil
	}
	if f.host.Launcher.KillRest(t.RunID(), t.Start.AddGID) {
		f.host.Log.Warn(fmt.Sprintf("job %v: had left processes: they were killed before its output is transferred", t))
	}
	if err := f.host.Output.Sync(ctx, t); err != nil {
		return err
	}
	if err := f.host.Store.Over(t, end); err != nil {
		return err
	}
	// Not before: what has become of the run is made out from it once more after a crash.
	if err := f.host.Launcher.Shed(t.RunID()); err != nil {
		f.host.Log.Warn(fmt.Sprintf("job %v: %v (tried again when its output has arrived)", t, err))
	}
	f.shed.Store(true)
	f.host.GIDs.Give(t.Start.AddGID)
	return nil
}

// resume goes on with a run that is over, as an earlier execd has recorded it.
func (f *End) resume() {
	end := *f.of.End
	if f.Ran() {
		end.Accounting = "" // it is composed when it is written
	}
	f.End = &end
	f.shed.Store(true)
	f.vain.Store(f.host.Store.Stuck(f.of) != nil)
}

// lost says when output that could not be delivered is tried again. Patience ends as long after
// the first failure, whatever execd that has met.
func (f *End) lost(t *exit.Transfer, attempt int, err error) {
	if f.sent.Failing.IsZero() {
		f.sent.Failing = time.Now()
		f.note()
	}
	looked := f.cleared && !f.carried() // what was mended may have come too late for this attempt
	f.cleared = false
	after, stuck, _ := f.Undelivered(&f.Output, f.sent.Failing, looked, attempt, err)
	if stuck != nil {
		f.vain.Store(true)
		f.Yield()
		f.host.Queue.Traffic()
		f.notices.Happened(notice.Event{Kind: notice.Warned, Text: stuck.Text})
		f.host.Counts.Transfer(true, metrics.GivenUp, 0, 0, 0)
		f.expire(t)
	}
	if after > 0 {
		time.AfterFunc(after, func() { f.event(t.Reconnected) })
	}
}

// expire gives up output that is stuck when its time has come, and looks again then if it
// has not.
func (f *End) expire(t *exit.Transfer) {
	if f.expiry != nil {
		f.expiry.Stop()
	}
	switch given, after := f.Expire(); {
	case given:
		go f.event(t.Reconnected)
	case after > 0:
		f.expiry = time.AfterFunc(after, func() { f.event(func() { f.expire(t) }) })
	}
}

// note writes down how the transfer stands. What cannot be written costs no more than
// patience, once execd is started again.
func (f *End) note() {
	at := f.sent
	if err := f.hooks.Note(jobhook.HookRun{Output: &at}); err != nil {
		f.host.Log.Warn(fmt.Sprintf("job %v: output: %v", f.of, err))
	}
}

// Again has output that was stuck tried to be delivered again, with new patience, when
// somebody has looked.
func (f *End) Again() {
	if f.Output.transfer == nil || f.host.Store.Stuck(f.of) != nil {
		return
	}
	f.cleared = f.Output.transfer.Active()
	if f.vain.Load() {
		f.vain.Store(false)
		f.sent.Failing = time.Time{}
		f.note()
		f.Output.transfer.Reconnected()
		f.host.Queue.Traffic() // it may be stuck no more
	}
}

// discard ends the transfer of output that is not wanted any more, and removes what of it
// is not whole where it was to arrive.
func (f *End) discard(want *job.Want) exit.Result {
	if f.Output.Cancel() {
		return exit.InProgress
	}
	if f.removal.transfer == nil {
		f.removal.begin(f, &exit.Transfer{Most: exit.MaxTransfers}, "output that is not wanted", func() bool { return false },
			func(ctx context.Context, t *job.Task, _ func(base.Progress)) error {
				return f.host.Output.Discard(ctx, t)
			})
	}
	if result := f.removal.step(); !result.Over() {
		return result
	}
	left := "" // it is in a directory of the user's, who can remove it: a run need not wait for ever
	if g := f.removal.transfer.GivenUp(); g != nil {
		left = g.Reason
		f.host.Log.Warn(fmt.Sprintf("job %v: output that is not wanted is left: %s", f.of, left))
	}
	if f.carried() && f.End.Failed != 0 {
		return exit.Nothing // by which the other host knows what becomes of the job
	}
	outcome.Undelivered(f.End, want, left)
	return exit.Nothing // the wish is on disk
}
