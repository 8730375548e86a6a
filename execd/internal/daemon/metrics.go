package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"paddock/execd/internal/metrics"
	"paddock/execd/internal/server"
	"paddock/execd/internal/slot"
)

// snapshot gathers the values of the metrics.
func (d *daemon) snapshot() *metrics.Snapshot {
	n := d.store.Tally()
	s := &metrics.Snapshot{
		Version: d.opts.Version, Host: d.host, Started: d.began, Counts: &d.counts,
		Tasks: map[string]int{"pending": n.Pending, "hold": n.Held, "running": n.Running, "suspended": n.Suspended, "sending": n.Sending, "stuck": n.Stuck, "error": n.Errored},
		Load:  map[string]float64{}, Problems: d.problems(), Reports: d.fetch.Reports(),
	}
	if p := d.config.Current().Pilot(); p != nil {
		s.PilotEnd = p.Ends
	}
	for _, v := range d.queue.Views(slot.ID{}, false) {
		if v.Lease > 0 && (s.Lease == nil || v.Left < *s.Lease) {
			s.Lease = &v.Left
		}
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

// ofLoopback reports whether a Host of HTTP names this host as only its own programs can.
func ofLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// watched answers who reads the metrics over the network of this host.
func watched(text func() []byte) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		// A page that has its name resolved to this host would read them otherwise.
		if !ofLoopback(r.Host) {
			http.Error(w, fmt.Sprintf("%q is not this host", r.Host), http.StatusMisdirectedRequest)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "cannot "+r.Method+" metrics", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", metrics.ContentType)
		_, _ = w.Write(text()) // an error means that the client has gone
	})
	return mux
}

// serveMetrics answers on a loopback address until ctx is done. If it cannot, execd
// runs jobs all the same.
func (d *daemon) serveMetrics(ctx context.Context, addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		d.log.Error(fmt.Sprintf("execd: no metrics at %s: %v", addr, err))
		return
	}
	h := &http.Server{Handler: watched(d.metrics), ReadTimeout: watcherPatience, WriteTimeout: watcherPatience, MaxHeaderBytes: 16 << 10}
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
