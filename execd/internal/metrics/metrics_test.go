package metrics

import (
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
)

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*`)
)

// parse reads the text format 0.0.4 and checks what it demands: a family is in
// one piece behind its type, no series is there twice, histograms add up. It
// returns the values by series, with labels sorted and unescaped.
func parse(text string) (map[string]float64, error) {
	values, types := map[string]float64{}, map[string]string{}
	var current string
	var last float64 // of the buckets of a histogram, as they come
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, errors.New("no newline at the end")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, ok := strings.Cut(rest, " ")
			if !ok || help == "" || types[name] != "" {
				return nil, fmt.Errorf("bad line %q", line)
			}
			current = name
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if name != current || types[name] != "" || !slices.Contains([]string{"gauge", "counter", "histogram"}, kind) ||
				kind == "counter" != strings.HasSuffix(name, "_total") {
				return nil, fmt.Errorf("bad line %q", line)
			}
			types[name] = kind
			continue
		}
		name, labels, value, err := sample(line)
		if err != nil {
			return nil, fmt.Errorf("%w in %q", err, line)
		}
		base := name
		if types[current] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
		}
		if base != current || types[base] == "" {
			return nil, fmt.Errorf("%q is not in its family", line)
		}
		key := name + strings.Join(labels, "|")
		if _, ok := values[key]; ok {
			return nil, fmt.Errorf("%q is there twice", line)
		}
		if types[base] != "gauge" && value < 0 {
			return nil, fmt.Errorf("%q is negative", line)
		}
		values[key] = value
		if types[base] == "histogram" {
			if err := cumulates(&last, name, labels, value); err != nil {
				return nil, fmt.Errorf("%w in %q", err, line)
			}
		}
	}
	return values, nil
}

// cumulates checks the series of a histogram, of which last is the bucket before.
func cumulates(last *float64, name string, labels []string, value float64) error {
	bound := slices.ContainsFunc(labels, func(l string) bool { return strings.HasPrefix(l, "le=") })
	switch {
	case strings.HasSuffix(name, "_bucket"):
		if value < *last {
			return errors.New("a larger bucket with less")
		}
		*last = value
		if !bound {
			return errors.New("a bucket without a bound")
		}
	case strings.HasSuffix(name, "_count"):
		if value != *last {
			return errors.New("the last bucket has not all")
		}
		*last = 0
	}
	return nil
}

// sample parses NAME{LABEL="VALUE",...} NUMBER.
func sample(line string) (name string, labels []string, value float64, err error) {
	name = metricName.FindString(line)
	rest := line[len(name):]
	if name == "" {
		return "", nil, 0, errors.New("no name")
	}
	if strings.HasPrefix(rest, "{") {
		for rest[0] != '}' {
			rest = rest[1:]
			label := labelName.FindString(rest)
			quoted, ok := strings.CutPrefix(rest[len(label):], `="`)
			if label == "" || !ok {
				return "", nil, 0, errors.New("bad label")
			}
			var text strings.Builder
			for ; quoted != "" && quoted[0] != '"'; quoted = quoted[1:] {
				c := quoted[0]
				if c == '\\' && len(quoted) > 1 {
					quoted = quoted[1:]
					switch c = quoted[0]; c {
					case '\\', '"':
					case 'n':
						c = '\n'
					default:
						return "", nil, 0, errors.New("bad escape")
					}
				}
				text.WriteByte(c)
			}
			if len(quoted) < 2 || quoted[1] != ',' && quoted[1] != '}' {
				return "", nil, 0, errors.New("labels do not end")
			}
			rest = quoted[1:]
			labels = append(labels, label+"="+text.String())
		}
		rest = rest[1:]
	}
	slices.Sort(labels)
	number, ok := strings.CutPrefix(rest, " ")
	if !ok {
		return "", nil, 0, errors.New("no number")
	}
	if value, err = strconv.ParseFloat(number, 64); err != nil {
		return "", nil, 0, err
	}
	return name, labels, value, nil
}

// The checker finds what is wrong.
func TestParse(t *testing.T) {
	for _, text := range []string{
		"a 1", "a 1\n", "# TYPE a gauge\na 1\n", "# HELP a b\na 1\n",
		"# HELP a b\n# TYPE a gauge\na 1\na 2\n",
		"# HELP a b\n# TYPE a gauge\na x\n",
		"# HELP a b\n# TYPE a gauge\na{b=\"1} 2\n",
		"# HELP a b\n# TYPE a gauge\na{b=\"\\x\"} 2\n",
		"# HELP a b\n# TYPE a counter\na 1\n",
		"# HELP a_total b\n# TYPE a_total counter\na_total -1\n",
		"# HELP a b\n# TYPE a gauge\na 1\n# HELP c d\n# TYPE c gauge\na{x=\"1\"} 2\n",
		"# HELP a b\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\n",
		"# HELP a b\n# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_count 2\n",
	} {
		if v, err := parse(text); err == nil {
			t.Errorf("parse(%q) = %v; want an error", text, v)
		}
	}
}

func written(t *testing.T, s *Snapshot) map[string]float64 {
	t.Helper()
	text := string(Text(s))
	values, err := parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return values
}

func example() *Snapshot {
	c := &Counts{}
	c.Start(7 * time.Millisecond)
	c.Start(3 * time.Hour)
	c.Start(-time.Second)
	c.End(Done)
	c.End(Limit)
	c.End(Limit)
	c.Idle(20 * time.Millisecond)
	c.Transfer(true, Arrived, 100, 3, 20*time.Millisecond)
	c.Transfer(true, GivenUp, 0, 0, 0)
	c.Fetch("FARM", FetchedNone, time.Minute)
	c.Fetch("FARM", FetchedWork, 3*time.Millisecond)
	c.Fetch("LAB", FetchedFailed, time.Second)
	c.Stages(5*time.Millisecond, 400*24*time.Hour, time.Second)
	return &Snapshot{
		Version: "0.1.0", Host: "node7", Started: time.Unix(1795190461, 5e8),
		Tasks: map[string]int{"pending": 3, "running": 2},
		Running: []Task{
			{Job: 42, Queue: "all.q", Slots: 4, Usage: api.Usage{
				Wallclock: 10, CPU: 1.5, IO: 2, IOWait: 3, VMem: 4096, MaxVMem: 8192, MemLimit: 1 << 30, RSS: 1024, MaxRSS: 2048, PIDs: 5,
			}},
			{Job: 43, Task: 7, Queue: "b\\o\"b\n\xff", Slots: 1},
		},
		Queues: []Queue{{"all.q", 5, 16}, {"fast.q", 0, 1}},
		Load:   map[string]float64{"load_avg": 0.25, "odd": math.Inf(1), "odder": math.NaN()},
		Counts: c, Reports: map[string]int{"FARM": 2}, Lease: new(90 * time.Second), PilotEnd: time.Unix(1795194000, 0),
	}
}

func TestText(t *testing.T) {
	got := written(t, example())
	const first, second = "job=42|queue=all.q|task=", "job=43|queue=b\\o\"b\n\uFFFD|task=7"
	for key, want := range map[string]float64{
		"paddock_infohost=node7|version=0.1.0":                1,
		"paddock_tasksstate=pending":                          3,
		"paddock_tasks_started_total":                         3,
		"paddock_tasks_ended_totaloutcome=done":               1,
		"paddock_tasks_ended_totaloutcome=limit":              2,
		"paddock_tasks_ended_totaloutcome=failed":             0,
		"paddock_queue_wait_seconds_bucketle=0.005":           1,
		"paddock_queue_wait_seconds_bucketle=0.01":            2,
		"paddock_queue_wait_seconds_bucketle=3600":            2,
		"paddock_queue_wait_seconds_bucketle=14400":           3,
		"paddock_queue_wait_seconds_bucketle=+Inf":            3,
		"paddock_queue_wait_seconds_count":                    3,
		"paddock_queue_wait_seconds_sum":                      10800.007,
		"paddock_stage_seconds_bucketle=0.005|stage=starting": 1,
		"paddock_stage_seconds_bucketle=604800|stage=running": 0,
		"paddock_stage_seconds_bucketle=+Inf|stage=running":   1,
		"paddock_stage_seconds_bucketle=0.5|stage=returning":  0,
		"paddock_stage_seconds_bucketle=1|stage=returning":    1,
		"paddock_slot_idle_seconds_bucketle=0.01":             0,
		"paddock_slot_idle_seconds_bucketle=0.025":            1,
		"paddock_slot_idle_seconds_sum":                       0.02,
		"paddock_transfers_totaldirection=out|outcome=done":   1,
		"paddock_transfers_totaldirection=out|outcome=stuck":  1,
		"paddock_transfers_totaldirection=in|outcome=done":    0,
		"paddock_transfer_bytes_totaldirection=out":           100,
		"paddock_transfer_files_totaldirection=out":           3,
		"paddock_transfer_seconds_countdirection=out":         1,
		"paddock_fetch_totalkeyword=FARM|result=work":         1,
		"paddock_fetch_totalkeyword=FARM|result=none":         1,
		"paddock_fetch_totalkeyword=FARM|result=refused":      0,
		"paddock_fetch_totalkeyword=LAB|result=failed":        1,
		"paddock_fetch_seconds_count":                         3,
		"paddock_fetch_seconds_bucketle=0.005":                1,
		"paddock_reports_waitingkeyword=FARM":                 2,
		"paddock_lease_seconds_left":                          90,
		"paddock_pilot_end_time_seconds":                      1795194000,
		"paddock_slotsqueue=all.q":                            16,
		"paddock_slots_usedqueue=all.q":                       5,
		"paddock_loadname=load_avg":                           0.25,
		"paddock_loadname=odd":                                math.Inf(1),
		"paddock_task_slots" + first:                          4,
		"paddock_task_wallclock_seconds" + first:              10,
		"paddock_task_cpu_seconds_total" + first:              1.5,
		"paddock_task_io_bytes_total" + first:                 2 << 30,
		"paddock_task_io_wait_seconds_total" + first:          3,
		"paddock_task_memory_bytes" + first:                   4096,
		"paddock_task_memory_peak_bytes" + first:              8192,
		"paddock_task_memory_limit_bytes" + first:             1 << 30,
		"paddock_task_resident_bytes" + first:                 1024,
		"paddock_task_resident_peak_bytes" + first:            2048,
		"paddock_task_processes" + first:                      5,
		"paddock_task_cpu_seconds_total" + second:             0,
		"process_start_time_seconds":                          1795190461.5,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%q is %v, %v; want %v", key, v, ok, want)
		}
	}
	if !math.IsNaN(got["paddock_loadname=odder"]) {
		t.Error("NaN is not written")
	}
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "go_goroutines", "go_threads"} {
		if got[name] <= 0 {
			t.Errorf("%s is %v", name, got[name])
		}
	}
}

// Of what is not there, nothing is said.
func TestTextOfNothing(t *testing.T) {
	for key := range written(t, &Snapshot{}) {
		if !strings.HasPrefix(key, "process_") && !strings.HasPrefix(key, "go_") && !strings.HasPrefix(key, "paddock_info") {
			t.Errorf("there is %s", key)
		}
	}
}

// TestManual holds the families against execd(8): each is there with its type,
// in this order, and nothing else is.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../../../man/man8/execd.8")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n.Sh METRICS\n")
	section, _, _ = strings.Cut(section, "\n.Sh ")
	var page, table []string
	for _, m := range regexp.MustCompile(`(?m)^\.It Li (\S+) Pq (\w+)`).FindAllStringSubmatch(section, -1) {
		page = append(page, m[1]+" "+m[2])
	}
	for _, f := range families {
		table = append(table, f.name+" "+string(f.kind))
	}
	if diff := cmp.Diff(table, page); diff != "" {
		t.Errorf("families and execd(8) differ (-table +page):\n%s", diff)
	}
	for _, name := range slices.Concat(outcomes[:], transfers[:], fetches[:], arrows[:]) {
		if !strings.Contains(section, ".Li "+name) {
			t.Errorf("execd(8) has no value %s of a label", name)
		}
	}
}

// TestExamples holds what monitors are given as an example to the families.
func TestExamples(t *testing.T) {
	known := map[string]bool{}
	for _, f := range families {
		known[f.name] = true
		if f.kind == histogram {
			known[f.name+"_bucket"], known[f.name+"_sum"], known[f.name+"_count"] = true, true, true
		}
	}
	for _, name := range []string{"alerts.yml", "grafana.json"} {
		text, err := os.ReadFile("../../../packaging/examples/prometheus/" + name)
		if err != nil {
			t.Fatal(err)
		}
		named := regexp.MustCompile(`\b(?:paddock|process)_\w+`).FindAllString(string(text), -1)
		if len(named) < 10 {
			t.Errorf("%s names %d metrics", name, len(named))
		}
		for _, metric := range named {
			if !known[metric] {
				t.Errorf("%s names %s, which execd does not have", name, metric)
			}
		}
	}
}

// A thousand running tasks.
func BenchmarkText(b *testing.B) {
	s := example()
	s.Running = nil
	for i := range 1000 {
		s.Running = append(s.Running, Task{Job: i, Queue: "all.q", Usage: api.Usage{CPU: float64(i) / 3}})
	}
	n := 0
	for b.Loop() {
		n = len(Text(s))
	}
	b.SetBytes(int64(n))
}
