package usage

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/internal/conf"
	"paddock/spool"
)

// processors makes a directory that describes processors as
// /sys/devices/system/cpu does: socket, die (negative: not known), core.
func processors(t *testing.T, online string, cpus [][3]int) string {
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("online", online)
	for cpu, p := range cpus {
		dir := fmt.Sprintf("cpu%d/topology/", cpu)
		write(dir+"physical_package_id", strconv.Itoa(p[0]))
		write(dir+"core_id", strconv.Itoa(p[2]))
		if p[1] >= 0 {
			write(dir+"die_id", strconv.Itoa(p[1]))
		}
	}
	return root
}

func TestTopology(t *testing.T) {
	for _, c := range []struct {
		name   string
		online string
		cpus   [][3]int
		used   []Core
		want   topology
		text   string
	}{
		{"one", "0", [][3]int{{0, -1, 0}}, nil, topology{{1}}, "SC"},
		{"two cores, one bound", "0-1", [][3]int{{0, 0, 0}, {0, 0, 1}}, []Core{{0, 1}}, topology{{1, 1}}, "SCc"},
		{
			"two sockets with threads, numbers with gaps", "0-7",
			[][3]int{{1, 0, 9}, {7, 0, 0}, {1, 0, 4}, {7, 0, 5}, {1, 0, 9}, {7, 0, 0}, {1, 0, 4}, {7, 0, 5}},
			[]Core{{0, 0}, {1, 1}, {5, 5}},
			topology{{2, 2}, {2, 2}},
			"ScttCTTSCTTctt",
		},
		{"two dies that number their cores alike", "0-3", [][3]int{{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}}, nil, topology{{1, 1, 1, 1}}, "SCCCC"},
		{"one is off", "0,2", [][3]int{{0, 0, 0}, {0, 0, 1}, {0, 0, 2}}, nil, topology{{1, 1}}, "SCC"},
		{"no socket known", "0-1", [][3]int{{-1, -1, 0}, {-1, -1, 1}}, nil, topology{{1, 1}}, "SCC"},
	} {
		cpus, err := spool.ParseCPUs(c.online)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readTopology(processors(t, c.online, c.cpus), cpus)
		if err != nil || !reflect.DeepEqual(got, c.want) || got.text(c.used) != c.text {
			t.Errorf("%s: %v, %s, %v; want %v, %s", c.name, got, got.text(c.used), err, c.want, c.text)
		}
	}
}

// Values and texts are those that Grid Engine 8.1.9 had for such a host.
func TestLoad(t *testing.T) {
	h := newHost(t)
	h.write("loadavg", "0.022461 0.956055 1.858887 3/200 4711\n")
	h.write("meminfo", `MemTotal:       24684092 kB
MemFree:        20000000 kB
MemAvailable:   24000000 kB
Buffers:          347964 kB
Cached:          4000000 kB
SwapCached:            7 kB
SwapTotal:       1048576 kB
SwapFree:         524288 kB
`)
	h.write("stat", "cpu  100 0 50 900 50 0 0 0 0 0\ncpu0 1 2 3 4\n")
	synctest.Test(t, func(t *testing.T) {
		l := &Load{
			Proc: h.dir, Sys: processors(t, "0-1", [][3]int{{0, 0, 0}, {0, 0, 1}}), Log: slog.New(slog.DiscardHandler),
			Bound: func() []Core { return []Core{{0, 0}} },
		}
		l.Configure(time.Minute, false, nil)
		first := l.Values()
		if got, want := first["cpu"].Text, "13.636364"; got != want {
			t.Errorf("cpu since the start is %s; want %s", got, want)
		}
		h.write("stat", "cpu  101 0 50 1089 60 0 0 0 0 0\n")
		if diff := cmp.Diff(first, l.Values()); diff != "" {
			t.Errorf("looked twice in a second:\n%s", diff)
		}
		time.Sleep(time.Second)
		got := l.Values()
		want := map[string]string{
			"arch": arch(), "num_proc": "2",
			"m_topology": "SCC", "m_topology_inuse": "ScC", "m_socket": "1", "m_core": "2", "m_thread": "2",
			"load_avg": "0.956055", "load_short": "0.022461", "load_medium": "0.956055", "load_long": "1.858887",
			"np_load_avg": "0.478027", "np_load_short": "0.011230", "np_load_medium": "0.478027", "np_load_long": "0.929443",
			"mem_total": "24105.558594M", "mem_free": "23777.308594M", "mem_used": "328.250000M",
			"swap_total": "1024.000000M", "swap_free": "512.000000M", "swap_used": "512.000000M",
			"virtual_total": "25129.558594M", "virtual_free": "24289.308594M", "virtual_used": "840.250000M",
			"cpu": "0.500000",
		}
		texts := map[string]string{}
		for name, v := range got {
			texts[name] = v.Text
		}
		if diff := cmp.Diff(want, texts); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got["mem_used"].Number != 328.25*(1<<20) || got["num_proc"].Number != 2 || got["np_load_avg"].Number != 0.956055/2 {
			t.Errorf("numbers: %+v", got)
		}
	})
}

// What cannot be read is missing, and the rest is there.
func TestLoadMissing(t *testing.T) {
	h := newHost(t)
	h.write("loadavg", "1 2 bad")
	h.write("stat", "intr 5\n")
	l := &Load{Proc: h.dir, Sys: h.dir, Log: slog.New(slog.DiscardHandler)}
	l.Configure(time.Minute, false, nil)
	for name := range l.Values() {
		if name != "arch" && name != "load_short" && name != "load_medium" {
			t.Errorf("there is %s", name)
		}
	}
}

// The host that the test runs on.
func TestLoadReal(t *testing.T) {
	l := &Load{Log: slog.New(slog.DiscardHandler)}
	l.Configure(time.Minute, false, nil)
	v := l.Values()
	if v["num_proc"].Number < 1 || v["mem_total"].Number < 1<<20 || v["mem_free"].Number > v["mem_total"].Number ||
		v["cpu"].Number < 0 || v["cpu"].Number > 100 || v["m_thread"].Text != "" && v["m_thread"].Text != v["num_proc"].Text {
		t.Errorf("%+v", v)
	}
	if len(v) < 20 {
		t.Errorf("there are %d values", len(v))
	}
}

// Who needs the load is told of changes, at load_report_time; else nothing is
// read.
func TestLoadRun(t *testing.T) {
	h := newHost(t)
	h.write("loadavg", "1 2 3\n")
	synctest.Test(t, func(t *testing.T) {
		l := &Load{Proc: h.dir, Sys: h.dir, Log: slog.New(slog.DiscardHandler)}
		l.Configure(40*time.Second, false, nil)
		ctx, cancel := context.WithCancel(context.Background())
		begin := time.Now()
		var told []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Run(ctx, func(v map[string]conf.Value) {
				told = append(told, fmt.Sprintf("%v %s", time.Since(begin), v["load_short"].Text))
			})
		}()
		after := func(d time.Duration, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if diff := cmp.Diff(want, told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			told = nil
		}
		after(time.Hour)
		l.mu.Lock()
		if !l.read.IsZero() {
			t.Error("read, and nobody needs it")
		}
		l.mu.Unlock()
		l.Configure(40*time.Second, true, nil)
		after(30*time.Second, "1h0m0s 1.000000")
		h.write("loadavg", "1.5 2 3\n")
		after(20*time.Second, "1h0m40s 1.500000")
		after(time.Hour)
		h.write("loadavg", "4 2 3\n")
		l.Configure(time.Hour, true, nil)
		after(time.Second, "2h0m50s 4.000000")
		l.Configure(time.Hour, false, nil)
		h.write("loadavg", "5 2 3\n")
		after(2 * time.Hour)
		cancel()
		<-done
	})
}
