// Package metrics writes the counters and states of execd in the text format of
// Prometheus, version 0.0.4. Only the daemon, and packages that count, import it; it
// measures nothing but execd's own process.
package metrics

import (
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"paddock/execd/api"
)

// Snapshot is the state of the host at one instant.
type Snapshot struct {
	Version string
	Host    string
	Started time.Time      // when execd was
	Tasks   map[string]int // unfinished tasks by state: pending, hold, running, suspended, sending, stuck, error
	Running []Task
	Queues  []Queue
	Load    map[string]float64 // load values that are numbers
	Counts  *Counts            // nil: none
	Reports map[string]int     // ends of fetched work that nobody has heard, by keyword
	// Lease is the least time that is left of a lease; nil: no claim has one.
	Lease *time.Duration
	// PilotEnd is when this execd, a pilot, ends; zero: it is none, or has no end.
	PilotEnd time.Time
	// Problems are those of execd -status; nil: nobody has looked.
	Problems []api.Alert
}

// Task is a running task. It has no owner, since everybody may read metrics.
type Task struct {
	Job, Task int // Task is 0 for a job that is no array
	Queue     string
	Slots     int
	Usage     api.Usage // zero: not known
}

// Queue is a queue of this host.
type Queue struct {
	Name        string
	Used, Total int // slots
}

// kind is the type of a family of series.
type kind string

const (
	gauge     kind = "gauge"
	counter   kind = "counter"
	histogram kind = "histogram"
)

// family is a metric with all its series.
type family struct {
	name string
	kind kind
	help string
	// write writes the series.
	write func(*writer, *Snapshot)
}

// families are all metrics, in the order of execd(8).
var families = []family{
	{"paddock_info", gauge, "Version of execd.", func(w *writer, s *Snapshot) {
		w.series(1, "version", s.Version, "host", s.Host)
	}},
	{"paddock_problems", gauge, "Things that somebody should look at, of execd -status.", func(w *writer, s *Snapshot) {
		if s.Problems != nil {
			w.series(float64(len(s.Problems)))
		}
	}},
	{"paddock_tasks", gauge, "Tasks that are not finished, by state.", func(w *writer, s *Snapshot) {
		each(s.Tasks, func(state string, n int) { w.series(float64(n), "state", state) })
	}},
	{"paddock_tasks_started_total", counter, "Runs that were started.", func(w *writer, s *Snapshot) {
		w.counts(s, func(c *Counts) { w.series(float64(c.started)) })
	}},
	{"paddock_tasks_ended_total", counter, "Runs that have ended, by outcome.", func(w *writer, s *Snapshot) {
		w.counts(s, func(c *Counts) {
			for outcome, name := range outcomes {
				w.series(float64(c.ended[outcome]), "outcome", name)
			}
		})
	}},
	{"paddock_queue_wait_seconds", histogram, "Time from submission until a slot was taken.", func(w *writer, s *Snapshot) {
		w.counts(s, func(c *Counts) { w.histogram(&c.waiting) })
	}},
	{"paddock_stage_seconds", histogram, "Time of a run in its stages.", func(w *writer, s *Snapshot) {
		w.counts(s, func(c *Counts) {
			w.histogram(&c.starting, "stage", "starting")
			w.histogram(&c.running, "stage", "running")
			w.histogram(&c.returning, "stage", "returning")
		})
	}},
	{"paddock_slot_idle_seconds", histogram, "Time that a claim had nothing to run until it had something.", func(w *writer, s *Snapshot) {
		w.counts(s, func(c *Counts) { w.histogram(&c.idle) })
	}},
	transfer("s_total", counter, "Attempts to transfer files of sandboxes, by their end.", func(w *writer, d *direction, of string) {
		for end, name := range transfers {
			w.series(float64(d.ended[end]), "direction", of, "outcome", name)
		}
	}),
	transfer("_bytes_total", counter, "Bytes that have arrived.", func(w *writer, d *direction, of string) { w.series(float64(d.bytes), "direction", of) }),
	transfer("_files_total", counter, "Files that have arrived.", func(w *writer, d *direction, of string) { w.series(float64(d.files), "direction", of) }),
	transfer("_seconds", histogram, "Time of transfers that have arrived.", func(w *writer, d *direction, of string) { w.histogram(&d.took, "direction", of) }),
	{"paddock_fetch_total", counter, "Calls of FETCH_WORK, by what they have come to.", func(w *writer, s *Snapshot) {
		w.counts(s, func(c *Counts) {
			each(c.fetched, func(keyword string, n *[len(fetches)]uint64) {
				for result, name := range fetches {
					w.series(float64(n[result]), "keyword", keyword, "result", name)
				}
			})
		})
	}},
	{"paddock_fetch_seconds", histogram, "Time of calls of FETCH_WORK.", func(w *writer, s *Snapshot) {
		w.counts(s, func(c *Counts) { w.histogram(&c.fetching) })
	}},
	{"paddock_reports_waiting", gauge, "Ends of fetched work that REPORT_WORK has not heard yet.", func(w *writer, s *Snapshot) {
		each(s.Reports, func(keyword string, n int) { w.series(float64(n), "keyword", keyword) })
	}},
	{"paddock_lease_seconds_left", gauge, "The least time that is left of the lease of a claim.", func(w *writer, s *Snapshot) {
		if s.Lease != nil {
			w.series(s.Lease.Seconds())
		}
	}},
	{"paddock_pilot_end_time_seconds", gauge, "When this pilot ends.", func(w *writer, s *Snapshot) {
		if !s.PilotEnd.IsZero() {
			w.series(float64(s.PilotEnd.Unix()))
		}
	}},
	{"paddock_updates_dropped_total", counter, "What could not be said of jobs and was dropped, by whom it was for.", func(w *writer, s *Snapshot) {
		w.counts(s, func(c *Counts) {
			for to, name := range arrows {
				w.series(float64(c.dropped[to]), "to", name)
			}
		})
	}},
	{"paddock_slots", gauge, "Slots of a queue.", func(w *writer, s *Snapshot) {
		for _, q := range s.Queues {
			w.series(float64(q.Total), "queue", q.Name)
		}
	}},
	{"paddock_slots_used", gauge, "Slots of a queue in use.", func(w *writer, s *Snapshot) {
		for _, q := range s.Queues {
			w.series(float64(q.Used), "queue", q.Name)
		}
	}},
	{"paddock_load", gauge, "Load values that are numbers, by name; memory in bytes.", func(w *writer, s *Snapshot) {
		each(s.Load, func(name string, v float64) { w.series(v, "name", name) })
	}},
	task("slots", gauge, "Slots of a running task.", func(t *Task) float64 { return float64(t.Slots) }),
	task("wallclock_seconds", gauge, "Time since it was started.", func(t *Task) float64 { return t.Usage.Wallclock }),
	task("cpu_seconds_total", counter, "Processor time.", func(t *Task) float64 { return t.Usage.CPU }),
	task("io_bytes_total", counter, "Bytes read and written.", func(t *Task) float64 { return t.Usage.IO * (1 << 30) }),
	task("io_wait_seconds_total", counter, "Time waited for disks.", func(t *Task) float64 { return t.Usage.IOWait }),
	task("memory_bytes", gauge, "Memory, resident and swap.", func(t *Task) float64 { return t.Usage.VMem }),
	task("memory_peak_bytes", gauge, "The most of it so far.", func(t *Task) float64 { return t.Usage.MaxVMem }),
	task("memory_limit_bytes", gauge, "Its limit; 0: none.", func(t *Task) float64 { return t.Usage.MemLimit }),
	task("resident_bytes", gauge, "Resident memory.", func(t *Task) float64 { return t.Usage.RSS }),
	task("resident_peak_bytes", gauge, "The most of it so far.", func(t *Task) float64 { return t.Usage.MaxRSS }),
	task("processes", gauge, "Processes and threads.", func(t *Task) float64 { return float64(t.Usage.PIDs) }),
	{"process_start_time_seconds", gauge, "When execd was started.", func(w *writer, s *Snapshot) {
		w.series(float64(s.Started.UnixMilli()) / 1000)
	}},
	{"process_cpu_seconds_total", counter, "Processor time of execd.", func(w *writer, _ *Snapshot) {
		var ru syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) == nil {
			w.series(float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9)
		}
	}},
	{"process_resident_memory_bytes", gauge, "Resident memory of execd.", func(w *writer, _ *Snapshot) {
		// The fields are size, resident and shared, in pages.
		if b, err := os.ReadFile("/proc/self/statm"); err == nil {
			if words := strings.Fields(string(b)); len(words) > 1 {
				pages, _ := strconv.Atoi(words[1])
				w.series(float64(pages * os.Getpagesize()))
			}
		}
	}},
	{"go_goroutines", gauge, "Goroutines of execd.", func(w *writer, _ *Snapshot) {
		w.series(float64(runtime.NumGoroutine()))
	}},
	{"go_threads", gauge, "Threads that execd has made.", func(w *writer, _ *Snapshot) {
		n, _ := runtime.ThreadCreateProfile(nil)
		w.series(float64(n))
	}},
}

// transfer returns a family of the transfers in each direction.
func transfer(name string, k kind, help string, write func(*writer, *direction, string)) family {
	return family{"paddock_transfer" + name, k, help, func(w *writer, s *Snapshot) {
		w.counts(s, func(c *Counts) {
			for i, of := range directions {
				write(w, &c.transfers[i], of)
			}
		})
	}}
}

// task returns a family with one series for each running task, so that there are never
// more series than slots.
func task(name string, k kind, help string, value func(*Task) float64) family {
	return family{"paddock_task_" + name, k, help, func(w *writer, s *Snapshot) {
		for i := range s.Running {
			w.line("", value(&s.Running[i]), w.tasks[i])
		}
	}}
}

// each calls do for all elements in the order of their keys.
func each[T any](m map[string]T, do func(string, T)) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		do(name, m[name])
	}
}

// ContentType is the media type of Text.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Text returns all metrics. A family without series is left out.
func Text(s *Snapshot) []byte {
	w := &writer{tasks: make([]string, len(s.Running))}
	for i, t := range s.Running {
		number := ""
		if t.Task > 0 {
			number = strconv.Itoa(t.Task)
		}
		w.tasks[i] = labels("job", strconv.Itoa(t.Job), "task", number, "queue", t.Queue)
	}
	for _, f := range families {
		w.family, w.begun = f, false
		f.write(w, s)
	}
	return w.text
}

// writer writes families one after the other.
type writer struct {
	text   []byte
	family family
	begun  bool
	tasks  []string // labels of the tasks that run
}

// counts calls do if runs are counted.
func (w *writer) counts(s *Snapshot, do func(*Counts)) {
	if s.Counts != nil {
		s.Counts.mu.Lock()
		defer s.Counts.mu.Unlock()
		do(s.Counts)
	}
}

// series writes a series of the family with pairs of label and value.
func (w *writer) series(v float64, pairs ...string) { w.line("", v, labels(pairs...)) }

func (w *writer) histogram(h *durations, pairs ...string) {
	n := uint64(0)
	bucket := func(i int, bound float64) {
		n += h.counts[i]
		w.line("_bucket", float64(n), labels(append(slices.Clone(pairs), "le", string(appendNumber(nil, bound)))...))
	}
	for i, bound := range buckets {
		bucket(i, bound)
	}
	bucket(len(buckets), math.Inf(1))
	w.line("_sum", h.sum, labels(pairs...))
	w.line("_count", float64(n), labels(pairs...))
}

// line writes a line of the family, and what the family is before its first line.
func (w *writer) line(suffix string, v float64, labels string) {
	if !w.begun {
		w.text = append(w.text, "# HELP "+w.family.name+" "+w.family.help+"\n# TYPE "+w.family.name+" "+string(w.family.kind)+"\n"...)
		w.begun = true
	}
	w.text = append(w.text, w.family.name...)
	w.text = append(w.text, suffix...)
	w.text = append(w.text, labels...)
	w.text = append(w.text, ' ')
	w.text = append(appendNumber(w.text, v), '\n')
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// labels formats pairs of label and value.
func labels(pairs ...string) string {
	if len(pairs) == 0 {
		return ""
	}
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(pairs[i] + `="` + escape.Replace(strings.ToValidUTF8(pairs[i+1], "\uFFFD")) + `"`)
	}
	return b.String() + "}"
}

// appendNumber appends a number. The format writes +Inf, -Inf and NaN as Go does.
func appendNumber(b []byte, v float64) []byte {
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}
