package soak

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/test/harness"
)

// TestFetched has four slots fetch units of a directory, by the example that is
// shipped, while execd is killed at random moments. Every unit runs once and is
// reported once.
func TestFetched(t *testing.T) {
	drawSeed()
	units, kills := part(10000, 60), part(20, 3)
	t.Logf("%d units, %d kills; repeat with -scale %g -seed %d", units, kills, *scale, *seed)
	base, err := os.MkdirTemp(top, "") //nolint:usetesting // kept when the test fails
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{base: base, dir: filepath.Join(base, "pd"), bin: filepath.Join(base, "bin")}
	t.Cleanup(func() { s.cleanUp(t) })
	queue := prepareFetched(t, s)
	s.start(t)

	begin := time.Now()
	var killer sync.WaitGroup
	var idle idleTimes
	killer.Go(func() { s.killAtRandom(t, kills, units, func() { idle.add(t, s) }) })
	done := 0
	for fed := 0; done < units; {
		// A few hundred at a time, as they would come.
		for waiting := count(t, filepath.Join(queue, "todo")); fed < units && waiting < 200; waiting++ {
			feed(t, queue, fmt.Sprintf("unit%06d", fed), base)
			fed++
		}
		before, at := done, time.Now()
		if err := harness.WaitFor(3*harness.Patience, fmt.Sprintf("more than %d units to be reported", done), func() (bool, error) {
			done = count(t, filepath.Join(queue, "done")) / 2
			return done == units || done >= before+100 || done > before && time.Since(at) > 5*time.Second, nil
		}); err != nil {
			t.Fatalf("%v\n%s", err, s.daemon.Log())
		}
		if t.Failed() {
			return
		}
	}
	killer.Wait()
	elapsed := time.Since(begin)
	if err := harness.WaitFor(harness.Patience, "the last job to be over", func() (bool, error) { return s.left(t) == 0, nil }); err != nil {
		t.Fatal(err)
	}
	idle.add(t, s)
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
	checkFetched(t, s, queue, units)
	t.Logf("%d units in %.1f s (%.0f a second), execd killed %d times", units, elapsed.Seconds(), float64(units)/elapsed.Seconds(), kills)
	t.Logf("from the end of a unit to the beginning of the next of its slot: %v (median, as units see it); slots were Claimed/Idle for %v between two",
		medianGap(t, s), &idle)
}

// idleTimes is how long slots were Claimed/Idle by their own state, by what each
// execd has counted.
type idleTimes struct {
	buckets map[float64]float64 // how many were not longer than so many seconds
	count   float64
	sum     float64
}

var idleLine = regexp.MustCompile(`(?m)^paddock_slot_idle_seconds_(bucket\{le="([^"]*)"\}|sum|count) (\S+)$`)

// add asks the execd that runs.
func (i *idleTimes) add(t *testing.T, s *soak) {
	t.Helper()
	socket := api.DevPlaces(s.dir).Socket
	client := http.Client{Timeout: harness.Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	answer, err := client.Get("http://execd/metrics")
	if err != nil {
		t.Error(err)
		return
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
		return
	}
	if i.buckets == nil {
		i.buckets = map[float64]float64{}
	}
	for _, m := range idleLine.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatalf("line %q", m[0])
		}
		switch m[1] {
		case "sum":
			i.sum += n
		case "count":
			i.count += n
		default:
			bound, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatalf("line %q", m[0])
			}
			i.buckets[bound] += n
		}
	}
}

// String tells between which bounds the median is, and the mean.
func (i *idleTimes) String() string {
	if i.count == 0 {
		return "no time"
	}
	low := 0.0
	for _, bound := range slices.Sorted(maps.Keys(i.buckets)) {
		if i.buckets[bound] >= i.count/2 {
			return fmt.Sprintf("%g to %g ms (median), %.1f ms (mean)", 1000*low, 1000*bound, 1000*i.sum/i.count)
		}
		low = bound
	}
	return "ever"
}

// prepareFetched makes what the run needs, and returns the queue.
func prepareFetched(t *testing.T, s *soak) string {
	t.Helper()
	s.prepare(t)
	hooks := filepath.Join(s.base, "hooks")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	run("cp", "-r", filepath.Join(harness.Root(), "packaging", "examples", "hooks", "directory"), hooks)
	run("chmod", "-R", "go-w", hooks)
	run(filepath.Join(hooks, "setup"), "-user")
	conf, err := os.ReadFile(filepath.Join(hooks, "hooks.conf"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(conf), "/etc/paddock/hooks/directory", hooks)
	for _, hook := range []string{"REPLY_FETCH", "EVICT_CLAIM", "JOB_EXIT"} {
		text += "DIRECTORY_HOOK_" + hook + "_TIMEOUT = 600\n" // a host that stands still is no reason to cut it short
	}
	for name, text := range map[string]string{
		"pd/etc/hooks.conf":   strings.ReplaceAll(text, "? 0 : 10", "? 0 : 1"),
		"pd/etc/queues/all.q": "qname all.q\nslots 4\n",
		"unit.sh":             "b=$(date +%s%N)\necho $1 $b $(date +%s%N) >>" + s.base + "/ran\n",
	} {
		if err := os.WriteFile(filepath.Join(s.base, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(hooks, "queue")
}

// feed puts a unit into the queue.
func feed(t *testing.T, queue, name, base string) {
	t.Helper()
	ad := fmt.Sprintf("Cmd = \"/bin/sh\"\nArgs = \"%s/unit.sh %s\"\nIwd = \"/\"\n", base, name)
	fresh := filepath.Join(queue, "todo", ".new")
	if err := os.WriteFile(fresh, []byte(ad), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, filepath.Join(queue, "todo", name+".ad")); err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// checkFetched compares what was fed, what ran, what was reported and accounted.
func checkFetched(t *testing.T, s *soak, queue string, units int) {
	t.Helper()
	ran := map[string]int{}
	for _, line := range s.lines(t, "ran") {
		name, _, _ := strings.Cut(line, " ")
		ran[name]++
	}
	for i := range units {
		name := fmt.Sprintf("unit%06d", i)
		if ran[name] != 1 {
			t.Errorf("%s ran %d times; want once", name, ran[name])
		}
		result, err := os.ReadFile(filepath.Join(queue, "done", name+".result"))
		if err != nil || !strings.Contains(string(result), "\nExitCode = 0\n") {
			t.Errorf("%s was reported as %q, %v", name, result, err)
		}
	}
	for _, dir := range []string{"todo", "report"} {
		if n := count(t, filepath.Join(queue, dir)); n > 0 {
			t.Errorf("%d files are left in %s", n, dir)
		}
	}
	s.checkBooked(t, units)
}

// checkBooked sees that as many jobs were accounted, each once.
func (s *soak) checkBooked(t *testing.T, units int) {
	t.Helper()
	booked, err := harness.Accounting(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for task, n := range booked {
		if n != 1 {
			t.Errorf("task %s was accounted %d times", task, n)
		}
	}
	if len(booked) != units {
		t.Errorf("%d jobs were accounted; want %d", len(booked), units)
	}
}

var accepted = regexp.MustCompile(`slot (\d+): fetch: accepted: job=\d+ identity="?(\w+)"?`)

// medianGap returns how long a slot had nothing to run between two units, from
// the end of the one to the beginning of the other as the units themselves saw it:
// that has the end of a job in it and the start of one, with the programs of each.
// What a kill has cost is among them, and too rare to be the median.
func medianGap(t *testing.T, s *soak) time.Duration {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(s.dir, "spool", "messages"))
	if err != nil {
		t.Fatal(err)
	}
	slots := map[string]string{}
	for _, m := range accepted.FindAllStringSubmatch(string(log), -1) {
		slots[m[2]] = m[1]
	}
	type span struct{ begin, end int64 }
	spans := map[string][]span{}
	for _, line := range s.lines(t, "ran") {
		f := strings.Fields(line)
		begin, err1 := strconv.ParseInt(f[1], 10, 64)
		end, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("line %q", line)
		}
		if slot := slots[f[0]]; slot != "" {
			spans[slot] = append(spans[slot], span{begin, end})
		}
	}
	var idle []time.Duration
	for _, list := range spans {
		slices.SortFunc(list, func(a, b span) int { return int(a.begin - b.begin) })
		for i := range list[1:] {
			idle = append(idle, time.Duration(list[i+1].begin-list[i].end))
		}
	}
	if len(idle) == 0 {
		t.Error("no unit has followed another")
		return 0
	}
	slices.Sort(idle)
	return idle[len(idle)/2].Round(100 * time.Microsecond)
}
