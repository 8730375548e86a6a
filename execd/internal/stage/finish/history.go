package finish

import (
	"fmt"
	"time"

	"paddock/execd/api/accounting"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/stage/exit"
	"paddock/spool"
)

// leave writes the ad of a job that leaves the queue to the history, before its record may
// go. What came under a claim is in a queue elsewhere. After a crash the next execd may write
// it again.
func (f *Tail) leave() {
	if f.left || !f.host.History.On() || f.of.Job.UnderClaim() || f.host.Store.Fate(f.of) != job.FateDone {
		return
	}
	f.left = true
	request, err := f.host.Store.Peek(f.of.Job)
	if err != nil {
		f.host.Counts.Drop(metrics.ToHistory)
		f.host.Log.Warn(fmt.Sprintf("job %v: history: %v", f.of, err))
		return
	}
	past := ad.Past{Removed: f.End.Cause == spool.CauseDeleted || f.End.Fate != job.FateDone, Host: f.of.On(f.host.Name)}
	if past.Removed {
		past.Reason = f.End.Reason
	}
	e := f.lasting()
	f.host.History.Write(ad.Historic(ad.Ended(f.host.QueueAd(f.of.Job, f.of.Number, request, f.of), e), &e, past, e.Time))
}

// lasting is the end as it is recorded, which also the next execd knows: by the accounting
// line.
func (f *Tail) lasting() ad.End {
	e := ad.End{Reason: f.End.Reason, ExitCode: f.End.Exit, Time: time.Now()}
	rec, err := accounting.Parse([]byte(f.End.Accounting))
	if err != nil || rec.StartTime == 0 {
		return e
	}
	e.Time, e.Started, e.Duration = time.Unix(rec.EndTime, 0), time.Unix(rec.StartTime, 0), time.Duration(rec.RuWallclock)*time.Second
	e.SysCPU = time.Duration(rec.RuSTime * float64(time.Second))
	e.UserCPU = max(time.Duration(rec.CPU*float64(time.Second))-e.SysCPU, time.Duration(rec.RuUTime*float64(time.Second)))
	e.ImageSize, e.ResidentSetSize = int64(rec.MaxVMem/1024), int64(rec.RuMaxRSS)
	if out := f.Outcome; out != nil && out.Usage != nil {
		e.Signal, e.Core = out.Usage.Signal, out.Usage.WaitStatus.CoreDump()
	} else if rec.Failed != 0 && f.End.Exit > 128 {
		e.Signal = f.End.Exit - 128
	}
	return e
}

// record writes what this host has of a run to its history, before the slot is free. One
// whose end is recorded an earlier execd has written.
func (f *End) record() {
	if f.historic || !f.host.Runs.On() || f.host.Store.State(f.of) != job.Started {
		return
	}
	f.historic = true
	want, now := f.host.Store.Want(f.of), time.Now()
	own, err := f.hooks.JobAd()
	if err != nil {
		f.host.Counts.Drop(metrics.ToStartd)
		f.host.Log.Warn(fmt.Sprintf("job %v: history: %v", f.of, err))
		return
	}
	e := f.Ad(f.hooks.Status(f.Total), want, now)
	past := ad.Past{
		Removed: e.Signal != 0 || !f.Ran(), Reason: f.End.Reason, Host: f.host.Name,
		Exit: int(f.Code(exit.Status{Code: e.ExitCode, Signal: e.Signal, Core: e.Core})),
	}
	if want != nil && want.Slot {
		past.Draining = want.Vacate == int(slot.ReasonDraining)
		switch slot.Reason(want.Vacate) {
		case slot.ReasonPreemptPolicy, slot.ReasonRankPreempted, slot.ReasonPriorityPreempted:
			past.Preempted = true
		}
	}
	f.host.Runs.Write(ad.Historic(ad.Ended(own, e), &e, past, now))
}
