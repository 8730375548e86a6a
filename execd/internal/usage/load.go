package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/user"
	"paddock/internal/proc"
	"paddock/spool"
)

// Load measures the load of the host: the load values of complex(5) and the reports of
// load sensors. The exported fields are set before first use.
type Load struct {
	Proc, Sys string // "/proc" and "/sys/devices/system/cpu"; empty: those
	// Bound returns the cores that jobs are bound to; nil: none are.
	Bound func() []Core
	// Parse makes a value of the text that a sensor reported, by the kind of the
	// attribute, and must not call the Load; nil: only numbers are values.
	Parse func(name, text string) conf.Value

	Host       string                                    // name of the host: sensors get it as HOST, and report values under it
	Starter    *asuser.Starter                           // of sensors
	SensorUser func(context.Context) (*user.User, error) // whom they run as, which is never root
	SensorDir  string                                    // where they are started; empty: /
	Log        *slog.Logger

	grace time.Duration // of sensors that are told to quit; 0: sensorGrace

	bell bell // wakes Run

	mu      sync.Mutex    // before that of a sensor
	report  time.Duration // guarded by mu; see Configure, as are the next two
	needed  bool          // guarded by mu
	wanted  []string      // guarded by mu: the sensors' commands
	sensors []*sensor     // guarded by mu: those that run, in the order of wanted
	asked   time.Time     // guarded by mu: when the sensors were

	read     time.Time             // guarded by mu: when the values were read
	values   map[string]conf.Value // guarded by mu
	online   string                // guarded by mu
	cpus     []int                 // guarded by mu: of online, as is the next
	topology topology              // guarded by mu
	times    [2]uint64             // guarded by mu: of the processors, busy and all
	cpu      float64               // guarded by mu
	broken   string                // guarded by mu: what the log has that cannot be read
}

// Configure sets how often the load is looked at (load_report_time), whether somebody
// needs it, and the load sensors (load_sensor). A load that nobody needs is read when
// somebody asks, and sensors report no more often than that either.
func (l *Load) Configure(report time.Duration, needed bool, sensors []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report, l.needed, l.wanted = report, needed, sensors
	l.bell.ring()
}

// Values returns all load values of the host. They are at most a second old, those of
// sensors as old as their last report. A host's own value replaces what a sensor
// reported for all hosts; a report for this host replaces both. What is meant for one
// processor is computed from the result.
func (l *Load) Values() map[string]conf.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.read.IsZero() || now.Sub(l.read) >= time.Second {
		l.read = now
		l.look()
	}
	l.ask(now)
	all := maps.Clone(l.values)
	for _, global := range []bool{true, false} {
		for name, text := range l.reported(global) {
			all[name] = l.parse(name, text)
		}
	}
	if n := all["num_proc"].Number; n > 0 {
		for _, name := range []string{"load_short", "load_medium", "load_long", "load_avg"} {
			if v, ok := all[name]; ok {
				all["np_"+name] = double(v.Number / n)
			}
		}
	}
	return all
}

func (l *Load) parse(name, text string) conf.Value {
	if l.Parse != nil {
		return l.Parse(name, text)
	}
	v := conf.Value{Text: text}
	v.Number, _ = strconv.ParseFloat(text, 64)
	return v
}

// reported returns the reports of the sensors for all hosts, or for this one. mu is
// held.
func (l *Load) reported(global bool) map[string]string {
	all := map[string]string{}
	for _, s := range l.sensors {
		maps.Copy(all, s.last(global))
	}
	return all
}

// ask asks the sensors for a report if it is time. mu is held.
func (l *Load) ask(now time.Time) {
	if now.Sub(l.asked) < l.report {
		return
	}
	l.asked = now
	for _, s := range l.sensors {
		s.ask()
	}
}

// Run runs the sensors until the context ends and, while the load is needed, calls
// changed whenever a value changes. When it returns, all sensors have ended.
func (l *Load) Run(ctx context.Context, changed func(map[string]conf.Value)) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var last map[string]conf.Value
	for {
		l.mu.Lock()
		l.reconcile(ctx, &all)
		needed, report := l.needed, l.report
		l.mu.Unlock()
		var timer <-chan time.Time
		if needed {
			values := l.Values()
			if !maps.EqualFunc(values, last, func(a, b conf.Value) bool { return a.Text == b.Text }) {
				last = values
				changed(maps.Clone(values))
			}
			timer = time.After(report)
		}
		select {
		case <-ctx.Done():
			return
		case <-l.bell.heard():
		case <-timer:
		}
	}
}

// reconcile starts the sensors that are wanted and stops the others. mu is held.
func (l *Load) reconcile(ctx context.Context, all *sync.WaitGroup) {
	had := map[string]*sensor{}
	for _, s := range l.sensors {
		had[s.command] = s
	}
	l.sensors = nil
	for _, command := range l.wanted {
		if slices.ContainsFunc(l.sensors, func(s *sensor) bool { return s.command == command }) {
			continue // it is configured twice
		}
		s := had[command]
		delete(had, command)
		if s == nil {
			var own context.Context
			s = &sensor{load: l, command: command, asked: make(chan struct{}, 1)}
			own, s.stop = context.WithCancel(ctx)
			all.Go(func() { s.run(own) })
			s.ask()
			l.asked = time.Now()
		}
		l.sensors = append(l.sensors, s)
	}
	for _, s := range had {
		s.stop()
	}
}

// look reads the host's own values, and leaves out those it cannot read. mu is held.
func (l *Load) look() {
	l.values = map[string]conf.Value{"arch": {Text: arch()}}
	err := errors.Join(l.lookProcessors(), l.lookAverages(), l.lookMemory(), l.lookTimes())
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != l.broken {
		l.Log.Warn("load of the host is not known: " + strings.ReplaceAll(text, "\n", "; "))
	}
	l.broken = text
}

// arch is Grid Engine's name for this kind of machine.
func arch() string {
	switch runtime.GOARCH {
	case "386":
		return "lx-x86"
	case "arm":
		return "lx-armhf"
	}
	return "lx-" + runtime.GOARCH
}

// sysCPU is where the kernel describes the processors, and OnlineCPUs lists those that
// are online.
const (
	sysCPU     = "/sys/devices/system/cpu"
	OnlineCPUs = sysCPU + "/online"
)

// Processors returns the processors that a file such as OnlineCPUs lists, and its text.
func Processors(path string) (text string, cpus []int, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	text = strings.TrimSpace(string(data))
	cpus, err = spool.ParseCPUs(text)
	return text, cpus, err
}

func (l *Load) lookProcessors() error {
	root := cmp.Or(l.Sys, sysCPU)
	text, cpus, err := Processors(filepath.Join(root, "online"))
	if err != nil {
		return err
	}
	if l.online != text {
		l.online, l.cpus = text, cpus
		// Some machines do not describe themselves. That is no error: their topology is
		// not known.
		l.topology, _ = readTopology(root, cpus)
	}
	l.values["num_proc"] = integer(len(l.cpus))
	if l.topology == nil {
		return nil
	}
	var used []Core
	if l.Bound != nil {
		used = l.Bound()
	}
	l.values["m_topology"] = conf.Value{Text: l.topology.text(nil)}
	l.values["m_topology_inuse"] = conf.Value{Text: l.topology.text(used)}
	l.values["m_socket"] = integer(len(l.topology))
	l.values["m_core"] = integer(l.topology.cores())
	l.values["m_thread"] = integer(len(l.cpus))
	return nil
}

func (l *Load) lookAverages() error {
	text, err := l.readProc("loadavg")
	if err != nil {
		return err
	}
	words := strings.Fields(text)
	for i, name := range []string{"load_short", "load_medium", "load_long"} {
		if i >= len(words) {
			return errors.New("cannot read loadavg: it is too short")
		}
		n, err := strconv.ParseFloat(words[i], 64)
		if err != nil {
			return fmt.Errorf("cannot read loadavg: %w", err)
		}
		l.values[name] = double(n)
	}
	l.values["load_avg"] = l.values["load_medium"]
	return nil
}

func (l *Load) lookMemory() error {
	text, err := l.readProc("meminfo")
	if err != nil {
		return err
	}
	of := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		of[name] = proc.Number([]byte(strings.TrimLeft(rest, " "))) << 10
	}
	memory, swap := of["MemTotal"], of["SwapTotal"]
	// The kernel gives up its caches when memory is needed.
	free := min(memory, of["MemFree"]+of["Buffers"]+of["Cached"])
	swapFree := min(swap, of["SwapFree"])
	for kind, n := range map[string][2]uint64{
		"mem": {memory, free}, "swap": {swap, swapFree}, "virtual": {memory + swap, free + swapFree},
	} {
		l.values[kind+"_total"], l.values[kind+"_free"] = size(n[0]), size(n[1])
		l.values[kind+"_used"] = size(n[0] - n[1])
	}
	return nil
}

// lookTimes computes how busy the processors were since the last look, the first time
// since the host was started.
func (l *Load) lookTimes() error {
	text, err := l.readProc("stat")
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(text, "\n")
	words := strings.Fields(line)
	if len(words) < 6 || words[0] != "cpu" {
		return errors.New("cannot read stat: it does not begin with the processors")
	}
	var busy, all uint64
	// The fields behind those are of guests, which the first two include.
	for i, word := range words[1:min(len(words), 9)] {
		n := proc.Number([]byte(word))
		all += n
		if i != 3 && i != 4 { // idle, and waiting for disks
			busy += n
		}
	}
	if was := l.times; all > was[1] {
		l.cpu = 100 * float64(max(busy, was[0])-was[0]) / float64(all-was[1])
	}
	l.times = [2]uint64{busy, all}
	l.values["cpu"] = double(l.cpu)
	return nil
}

func (l *Load) readProc(name string) (string, error) {
	root := l.Proc
	if root == "" {
		root = "/proc"
	}
	b, err := os.ReadFile(filepath.Join(root, name))
	return string(b), err
}

// The texts of values are Grid Engine's.

func integer(n int) conf.Value { return conf.Value{Text: strconv.Itoa(n), Number: float64(n)} }

func double(n float64) conf.Value {
	return conf.Value{Text: strconv.FormatFloat(n, 'f', 6, 64), Number: n}
}

func size(n uint64) conf.Value {
	return conf.Value{Text: strconv.FormatFloat(float64(n)/(1<<20), 'f', 6, 64) + "M", Number: float64(n)}
}
