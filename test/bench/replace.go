package main

import (
	"time"

	"paddock/test/harness"
)

// replaced measures how long clients wait while execd is replaced beneath jobs, as an
// upgrade does: from its stop to the answer of the next one.
func (b *bench) replaced() error {
	const jobs = 20
	d, err := b.startOurs("replaced", jobs)
	if err != nil {
		return err
	}
	defer func() { d.Kill() }()
	job, err := b.sleep(d, jobs)
	if err != nil {
		return err
	}
	if err := b.started(d, job, jobs); err != nil {
		return err
	}
	var waits []time.Duration
	for range b.size(20, 2) {
		begin := time.Now()
		if err := d.Stop(); err != nil {
			return err
		}
		next, err := harness.Start(harness.Options{Bin: b.bin, Dir: d.Dir, Mode: "-root"})
		if err != nil {
			return err
		}
		d = next
		if _, err := d.Jobs(); err != nil {
			return err
		}
		waits = append(waits, time.Since(begin))
	}
	b.report(row{what: "clients without an answer while execd is replaced, 20 jobs", unit: "ms", ours: milliseconds(median(waits)), alone: true, limit: 2000})
	return b.endAll(d, job)
}
