package daemon

import (
	"fmt"
	"time"

	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/history"
	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
)

// buildHistories makes the files that other programs read of jobs.
func (d *daemon) buildHistories() {
	knobs := func() *knob.Set { return d.config.Current().Knobs }
	file := func(name string, arrow metrics.Arrow) *history.File {
		return &history.File{Knob: name, Knobs: knobs, Arrow: arrow, Counts: &d.counts, Log: d.log}
	}
	h := &d.stages.Host
	h.History, h.Runs = file(history.KnobHistory, metrics.ToHistory), file(history.KnobStartd, metrics.ToStartd)
	d.store.OnLeave(d.leaving)

	l := &d.queueLog
	l.Knobs, l.Counts, l.Log, l.Numbers, l.Ads = knobs, &d.counts, d.log, d.store.Numbers, d.queued
	l.Init()
	d.store.OnChange(l.Changed)
}

// queued returns a job as the log of the queue has it.
func (d *daemon) queued(number, version int) (history.Ads, bool) {
	q, ok := d.store.Queued(number)
	if !ok || q.Job.UnderClaim() {
		return history.Ads{}, false
	}
	j := q.Job
	ads := history.Ads{Version: q.Version, Tasks: map[int]*classad.Ad{}}
	if version != q.Version {
		request, err := d.store.Peek(j)
		if err != nil { // it is over by now, or cannot be read
			ads.Version = version
			d.log.Debug(fmt.Sprintf("job %d: %v", number, err))
		} else {
			ads.Job = ad.Cluster(d.stages.QueueAd(j, 1, request, nil))
		}
	}
	task := func(n int, s ad.JobStatus) ad.Queued {
		return ad.Queued{Job: number, Task: n, Host: d.host, Submitted: j.Submitted, Entered: j.Submitted, Status: s}
	}
	for i := range q.Tasks {
		t := &q.Tasks[i]
		of := task(t.Number, status(t))
		of.Entered, of.Starts, of.HoldReason = t.Entered(), t.Run, t.Reason
		if t.State != job.Errored {
			of.Starts, of.Started, of.Queue, of.RemoteHost = t.Run+1, t.Started, t.Start.Queue, t.On(d.host)
		}
		ads.Tasks[t.Number] = ad.Proc(of)
	}
	switch {
	case j.Tasks.IsArray():
		ads.More = ad.Waiting(j.Tasks.Count(), q.Pending.String(), q.Held.String(), q.Pending.Len())
	case q.Held.Len() > 0:
		ads.Tasks[1] = ad.Proc(task(1, ad.StatusHeld))
	case q.Pending.Len() > 0:
		ads.Tasks[1] = ad.Proc(task(1, ad.StatusIdle))
	}
	return ads, true
}

// status is the state of a task that does not wait as ads number it.
func status(t *job.Task) ad.JobStatus {
	switch {
	case t.State == job.Errored:
		return ad.StatusHeld
	case t.State == job.Over:
		return ad.StatusTransfer
	case t.State == job.Ended && t.End.Fate == job.FateDone:
		return ad.StatusCompleted
	case t.Suspended || t.Stopped != "":
		return ad.StatusSuspended
	}
	return ad.StatusRunning
}

// leaving is called before tasks of a job leave the queue that did not run, and what it
// returns when they have.
func (d *daemon) leaving(j *job.Job) (left func(job.Tasks, string)) {
	h := d.stages.History
	nothing := func(job.Tasks, string) {}
	if !h.On() || j.UnderClaim() {
		return nothing
	}
	request, err := d.store.Peek(j)
	if err != nil {
		d.counts.Drop(metrics.ToHistory)
		return nothing
	}
	return func(tasks job.Tasks, why string) {
		past := ad.Past{Removed: true, Reason: why}
		if tasks.Len() > 1 {
			past.Tasks = tasks.String()
		}
		h.Write(ad.Historic(d.stages.QueueAd(j, tasks.Min(), request, nil), nil, past, time.Now()))
	}
}
