package finish

import (
	"time"

	"paddock/execd/api/accounting"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/notice"
)

// endEvent is the event of the end of a run, for the files that its owner has asked for. Post
// is the status of the script after the job.
func (f *Tail) endEvent(post exit.Status) notice.Event {
	e := notice.Event{Kind: notice.Over, Task: f.of, Time: f.Ended, End: f.End}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if f.Ran() {
		u := f.Outcome.Usage
		e.Status = exit.Status{Code: u.ExitStatus, Signal: u.Signal, Core: u.WaitStatus.CoreDump()}
	}
	if e.Exit = f.Code(e.Status); f.End.Failed == accounting.FailedTransfer {
		e.Exit = exit.Killed // who waits for its output waits in vain
	}
	if why := f.Forced(f.host.Store.Want(f.of)); why != nil {
		e.Text, e.Code, e.Subcode = why.Reason, why.Code, why.Subcode
	}
	if e.Exit == exit.Hold {
		e.Code, e.Subcode = f.Hold(post)
	}
	return e
}

// Record writes of the end of a run on another host what its owner has asked for. It is to be
// called again after the event that it waits for.
func (f *Tail) Record() (exit.Result, error) {
	step := func(name string, write func(notice.Journal, notice.Event) error) exit.Step {
		return exit.Step{Name: name, Do: func() (exit.Result, error) {
			e := f.endEvent(exit.Status{})
			if request, err := f.host.Store.Peek(f.of.Job); err == nil {
				e.Ad = ad.Ended(f.host.QueueAd(f.of.Job, f.of.Number, request, f.of), f.lasting())
			}
			return f.notices.Write(name, e, write)
		}}
	}
	return f.Marks.Run([]exit.Step{step(StepRecord, notice.Journal.Record), step(StepAd, notice.Journal.WriteAd)})
}
