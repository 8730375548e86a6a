package daemon

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"paddock/execd/internal/metrics"
)

// snapshot gathers what is told to those who watch the host.
func (d *daemon) snapshot() *metrics.Snapshot {
	s := &metrics.Snapshot{
		Version: d.opts.Version, Host: d.host, Started: d.began, Counts: &d.counts,
		Tasks: d.store.Tally(), Load: map[string]float64{},
	}
	for _, t := range d.store.Shown() {
		shown := metrics.Task{Job: t.Run.Job, Owner: t.Owner, Queue: t.Queue, Slots: t.Slots}
		if t.Array {
			shown.Task = t.Run.Task
		}
		shown.Usage, _ = d.usage.Usage(t.Run)
		s.Running = append(s.Running, shown)
	}
	for _, q := range d.queue.Status() {
		s.Queues = append(s.Queues, metrics.Queue{Name: q.Name, Used: q.Used, Total: q.Total})
	}
	for name, v := range d.load.Values() {
		if a := d.config.Current().Attribute(name); a != nil && a.Kind.Number() {
			s.Load[name] = v.Number
		}
	}
	return s
}

// serveMetrics answers on a loopback address until ctx is done. That it cannot
// is no reason to run no jobs.
func (d *daemon) serveMetrics(ctx context.Context, addr string) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics.Handler(d.snapshot))
	h := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		_ = h.Close()
	}()
	if err := h.ListenAndServe(); ctx.Err() == nil {
		d.log.Error(fmt.Sprintf("execd: no metrics at %s: %v", addr, err))
		return
	}
	<-done
}
