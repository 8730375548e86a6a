package daemon

import (
	"time"

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
}

// leaving is called before tasks of a job leave the queue that did not run, and what it
// returns when they have.
func (d *daemon) leaving(j *job.Job) (left func(job.Tasks, string)) {
	h := d.stages.History
	nothing := func(job.Tasks, string) {}
	if !h.On() || j.UnderClaim() {
		return nothing
	}
	request, err := d.store.Request(j)
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
