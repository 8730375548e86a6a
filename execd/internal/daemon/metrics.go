package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"paddock/execd/internal/metrics"
	"paddock/execd/internal/server"
)

// snapshot gathers what is told to those who watch the host.
func (d *daemon) snapshot() *metrics.Snapshot {
	n := d.store.Tally()
	s := &metrics.Snapshot{
		Version: d.opts.Version, Host: d.host, Started: d.began, Counts: &d.counts,
		Tasks: map[string]int{"pending": n.Pending, "hold": n.Held, "running": n.Running, "suspended": n.Suspended, "error": n.Errored},
		Load:  map[string]float64{}, Problems: d.problems(),
	}
	for _, t := range d.store.Shown() {
		shown := metrics.Task{Job: t.Run.Job, Queue: t.Queue, Slots: t.Slots}
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

// metrics returns what there is to tell, as text.
func (d *daemon) metrics() []byte { return metrics.Text(d.snapshot()) }

// What clients of the metrics may take: who they are is not known, so there are few
// at a time, each of which has a while.
const (
	maxWatchers     = 16
	watcherPatience = 10 * time.Second
)

// serveMetrics answers on a loopback address until ctx is done. That it cannot
// is no reason to run no jobs.
func (d *daemon) serveMetrics(ctx context.Context, addr string) {
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "cannot "+r.Method+" metrics", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", metrics.ContentType)
		_, _ = w.Write(d.metrics()) // the client has gone: nothing to tell
	})
	l, err := net.Listen("tcp", addr)
	if err != nil {
		d.log.Error(fmt.Sprintf("execd: no metrics at %s: %v", addr, err))
		return
	}
	h := &http.Server{Handler: mux, ReadTimeout: watcherPatience, WriteTimeout: watcherPatience, MaxHeaderBytes: 16 << 10}
	h.SetKeepAlivesEnabled(false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		_ = h.Close()
	}()
	if err := h.Serve(server.LimitListener(l, maxWatchers)); ctx.Err() == nil {
		d.log.Error(fmt.Sprintf("execd: no metrics at %s: %v", addr, err))
		return
	}
	<-done
}
