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

// snapshot gathers the values of the metrics.
func (d *daemon) snapshot() *metrics.Snapshot {
	n := d.store.Tally()
	s := &metrics.Snapshot{
		Version: d.opts.Version, Host: d.host, Started: d.began, Counts: &d.counts,
		Tasks: map[string]int{"pending": n.Pending, "hold": n.Held, "running": n.Running, "suspended": n.Suspended, "sending": n.Sending, "stuck": n.Stuck, "error": n.Errored},
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

// metrics returns the metrics as text.
func (d *daemon) metrics() []byte { return metrics.Text(d.snapshot()) }

// Clients of the metrics are not known by name, so that there may be few at a time,
// each for a limited time.
const (
	maxWatchers     = 16
	watcherPatience = 10 * time.Second
)

// serveMetrics answers on a loopback address until ctx is done. If it cannot, execd
// runs jobs all the same.
func (d *daemon) serveMetrics(ctx context.Context, addr string) {
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "cannot "+r.Method+" metrics", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", metrics.ContentType)
		_, _ = w.Write(d.metrics()) // an error means that the client has gone
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
