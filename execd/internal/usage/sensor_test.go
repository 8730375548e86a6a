package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/user"
	"paddock/internal/backoff"
	"paddock/test/harness"
	"paddock/test/props"
)

// sensorHost is this run's alone: sensors have it in their environment.
var sensorHost = fmt.Sprintf("node7x%d", os.Getpid())

// sensing is a Load that runs, with sensors in a directory that their user can
// read.
var shepherd string // path of the one that starts sensors

func TestMain(m *testing.M) { os.Exit(harness.RunWithShepherd(m, &shepherd)) }

type sensing struct {
	*Load
	t      *testing.T
	dir    string
	log    *props.Log
	cancel context.CancelFunc
	done   chan struct{}
}

func newSensing(t *testing.T) *sensing {
	dir := publicDir(t)
	if err := os.Chmod(dir, 0o777); err != nil { // the sensors leave traces there
		t.Fatal(err)
	}
	s := &sensing{t: t, dir: dir, log: new(props.Log), done: make(chan struct{})}
	h := newHost(t)
	h.write("loadavg", "1 2 3\n")
	s.Load = &Load{
		Proc: h.dir, Sys: processors(t, "0-3", nil), Host: sensorHost, Log: slog.New(slog.NewTextHandler(s.log, nil)),
	}
	s.Starter = &asuser.Starter{Shepherd: shepherd}
	s.SensorUser = func(context.Context) (*user.User, error) {
		if os.Geteuid() == 0 {
			return &user.User{Name: "nobody", UID: nobody, GID: nobody}, nil
		}
		return &user.User{UID: os.Getuid(), GID: os.Getgid()}, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.done)
		s.Run(ctx, func(map[string]conf.Value) {})
	}()
	t.Cleanup(s.end)
	return s
}

func (s *sensing) end() {
	s.cancel()
	select {
	case <-s.done:
	case <-time.After(time.Minute):
		s.t.Error("sensors do not end")
	}
}

// script writes a program and returns its path.
func (s *sensing) script(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := harness.WriteExecutable(path, "#!/bin/sh\n"+text); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// wait asks for values until they are as wanted.
func (s *sensing) wait(what string, ok func(map[string]conf.Value) bool) {
	s.t.Helper()
	var v map[string]conf.Value
	if err := harness.WaitFor(harness.Patience, what, func() (bool, error) {
		v = s.Values()
		return ok(v), nil
	}); err != nil {
		s.t.Fatalf("%v\nvalues: %+v\nlog:\n%s", err, v, s.log)
	}
}

func (s *sensing) waitText(name, want string) {
	s.t.Helper()
	s.wait(name+"="+want, func(v map[string]conf.Value) bool { return v[name].Text == want })
}

func (s *sensing) waitLog(text string) {
	s.t.Helper()
	if err := harness.WaitFor(harness.Patience, "the log to say "+text, func() (bool, error) {
		s.Values()
		return strings.Contains(s.log.String(), text), nil
	}); err != nil {
		s.t.Fatalf("%v\n%s", err, s.log)
	}
}

// often is a report time that makes every question one to the sensors.
const often = time.Millisecond

// A sensor as Grid Engine's manual has them.
const counter = `n=0
while read line; do
	test "$line" = quit && break
	n=$((n+1))
	echo begin
	echo "$HOST:count:$n"
	echo "$HOST:load_avg:8"
	echo "$HOST.example.com:tool:a:b c"
	echo global:license:5
	echo global:count:0
	echo end
done
echo quit >>"${0%/*}/traces"
`

func TestSensor(t *testing.T) {
	s := newSensing(t)
	s.grace = harness.Patience // it is to quit, however long that takes
	path := s.script("counter", counter)
	s.Configure(often, false, []string{path})
	s.wait("a third report", func(v map[string]conf.Value) bool { return v["count"].Number >= 3 })
	v := s.Values()
	if v["load_avg"].Text != "8" || v["np_load_avg"].Text != "2.000000" || v["np_load_short"].Text != "0.250000" {
		t.Errorf("the sensor's load_avg does not count: %+v", v)
	}
	if v["tool"].Text != "a:b c" || v["license"].Text != "5" {
		t.Errorf("values: %+v", v)
	}
	s.Parse = func(name, text string) conf.Value { return conf.Value{Text: text, Number: float64(len(name))} }
	if v := s.Values(); v["tool"].Number != 4 {
		t.Errorf("parsed: %+v", v["tool"])
	}
	// It is no longer wanted.
	s.Configure(often, false, nil)
	s.wait("the values to go", func(v map[string]conf.Value) bool {
		_, ok := v["count"]
		return !ok && v["load_avg"].Text == "2.000000"
	})
	s.waitLog("stopped")
	if b, err := os.ReadFile(filepath.Join(s.dir, "traces")); string(b) != "quit\n" {
		t.Errorf("the sensor was not told to quit: %q, %v", b, err)
	}
}

// Sensors have the right of a user, a clean environment and a session of their
// own.
func TestSensorRights(t *testing.T) {
	t.Setenv("PADDOCK_SECRET", "x")
	s := newSensing(t)
	path := s.script("rights", `read line
echo begin
echo "$HOST:uid:$(id -u)"
echo "$HOST:groups:$(id -G)"
echo "$HOST:env:$(env | cut -d= -f1 | grep -v -e '^_$' -e PWD -e SHLVL -e OLDPWD | sort | tr '\n' ' ')"
echo "$HOST:dir:$(pwd)"
read pid name state ppid pgrp session rest </proc/$$/stat
echo "$HOST:session:$((pgrp == session))"
echo end
read line
`)
	s.SensorDir = s.dir
	s.Configure(time.Hour, false, []string{path})
	s.wait("the report", func(v map[string]conf.Value) bool { return v["uid"].Text != "" })
	want := map[string]string{"env": "HOST PATH", "dir": s.dir, "session": "1"}
	if os.Geteuid() == 0 {
		want["uid"], want["groups"] = strconv.Itoa(nobody), strconv.Itoa(nobody)
	}
	for name, text := range want {
		if got := s.Values()[name].Text; got != text {
			t.Errorf("%s is %q; want %q", name, got, text)
		}
	}
}

// Where there is nobody to run as none is run.
func TestSensorOfNobody(t *testing.T) {
	s := newSensing(t)
	s.SensorUser = func(context.Context) (*user.User, error) { return nil, errors.New("no such account") }
	s.Configure(often, false, []string{"touch " + s.dir + "/ran"})
	s.waitLog("no such account")
	if _, err := os.Stat(s.dir + "/ran"); err == nil {
		t.Error("the sensor ran")
	}
}

// One that changes is started again, at once; one that dies is started again
// after a while, and what it said does not count meanwhile.
func TestSensorRestart(t *testing.T) {
	s := newSensing(t)
	path := s.script("changes", strings.Replace(counter, "global:license:5", "global:license:1", 1))
	s.Configure(often, false, []string{path})
	s.waitText("license", "1")
	s.script("changes", strings.Replace(counter, "global:license:5", "global:license:2", 1))
	now := time.Now().Add(time.Minute)
	if err := os.Chtimes(path, now, now); err != nil {
		t.Fatal(err)
	}
	s.waitText("license", "2")

	// It reports when it is let, and dies of its own when it is told, with a child that
	// holds its output open. Not by one pipe: it would find the first writer there still.
	for _, name := range []string{"let", "die"} {
		if err := syscall.Mkfifo(filepath.Join(s.dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tell := func(name string) {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte("now\n"), 0); err != nil {
			t.Error(err)
		}
	}
	path = s.script("dies", `echo x >>"${0%/*}/starts"
read line; read line <"${0%/*}/let"; echo begin; echo global:license:3; echo end; read line <"${0%/*}/die"; sleep 1000 & exit 7`)
	begin := time.Now()
	s.Configure(often, false, []string{path})
	tell("let")
	s.waitText("license", "3")
	tell("die")
	s.waitLog("exit status 7: started again after 1s at the earliest")
	s.wait("the value to go", func(v map[string]conf.Value) bool { _, ok := v["license"]; return !ok })
	again := make(chan struct{})
	go func() { // it is only started when somebody asks
		defer close(again)
		tell("let")
	}()
	s.waitText("license", "3") // after that second
	<-again
	tell("die")
	s.Configure(often, false, nil)
	s.wait("the value to go", func(v map[string]conf.Value) bool { _, ok := v["license"]; return !ok })
	starts, err := os.ReadFile(s.dir + "/starts")
	if n := len(starts) / len("x\n"); err != nil || n < 2 || n > 1+int(time.Since(begin)/backoff.Programs.First) {
		t.Errorf("it was started %d times in %v, %v", n, time.Since(begin), err)
	}
	s.none()
}

// none checks that no process of the sensors is left.
func (s *sensing) none() {
	s.t.Helper()
	if err := harness.WaitFor(harness.Patience, "the processes of sensors to go", func() (bool, error) {
		procs, err := filepath.Glob("/proc/[0-9]*/environ")
		return !slices.ContainsFunc(procs, func(name string) bool {
			b, _ := os.ReadFile(name)
			return slices.Contains(strings.Split(string(b), "\x00"), "HOST="+sensorHost)
		}), err
	}); err != nil {
		s.t.Errorf("%v\n%s", err, s.log)
	}
}

// Whatever a sensor writes, execd neither grows nor stops.
func TestSensorHostile(t *testing.T) {
	for _, c := range []struct {
		name, script, log string
		want              map[string]string
	}{
		{
			"a long line", `while read x; do echo begin; head -c 20000 /dev/zero | tr '\0' x; echo
				echo "$HOST:after:1"; echo end; done`,
			"a line has more than 10000 bytes",
			map[string]string{"after": "1"},
		},
		{"a line without an end", `read x; echo begin; tr '\0' x </dev/zero | head -c 1000000000; sleep 1000`, "its report has more than 1048576 bytes", nil},
		{"lines without an end", `read x; echo begin; yes "$HOST:a:b"`, "its report has more than 1048576 bytes", nil},
		{"never begins", `read x; yes`, "its report has more than 1048576 bytes", nil},
		{
			"too many values", `while read x; do echo begin; seq 1 2000 | sed "s/.*/$HOST:v&:&/"; echo end; done`,
			"it reports more than 1000 values",
			map[string]string{"v1000": "1000", "v1001": ""},
		},
		{
			"wrong lines", `while read x; do echo begin; echo other:a:1; echo "$HOST:a b:1"; echo "$HOST::1"; echo "$HOST:bell:` + "\a" + `"; echo nothing
				echo "${HOST}0:a:1"; echo "$HOST:good: 1 "; echo end; done`,
			`is neither this host nor global`,
			map[string]string{"good": "1", "a": "", "a b": "", "": "", "bell": ""},
		},
		{"no program", `exec /no/such/program`, "exit status 127", nil},
		{"closes its output", `read x; exec sleep 1000 >&-`, "signal: killed", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSensing(t)
			s.Configure(often, false, []string{"exec " + s.script("hostile", c.script)})
			s.waitLog(c.log)
			for name, want := range c.want {
				s.waitText(name, want)
			}
			s.Configure(often, false, nil)
			s.end()
			s.none()
		})
	}
}

// One that does not answer holds up nobody, and one that does not quit is
// killed with its children.
func TestSensorStuck(t *testing.T) {
	s := newSensing(t)
	stuck := s.script("stuck", `trap "" TERM INT; read x; sleep 1000 & echo begin; echo $HOST:never:1; echo x >"${0%/*}/waits"; sleep 1000`)
	good := s.script("good", counter)
	s.grace = time.Second
	s.Configure(often, false, []string{stuck, good, good})
	s.waitText("license", "5")
	if err := harness.WaitFor(harness.Patience, "the sensor to be stuck", func() (bool, error) {
		_, err := os.Stat(s.dir + "/waits")
		return err == nil || !errors.Is(err, os.ErrNotExist), nil
	}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	s.end()
	if took := time.Since(begin); took < s.grace {
		t.Errorf("it was given %v", took)
	}
	if log := s.log.String(); !strings.Contains(log, "does not quit, killed") || strings.Count(log, "started") != 2 {
		t.Errorf("log:\n%s", log)
	}
	if _, ok := s.Values()["never"]; ok {
		t.Error("a report that did not end counts")
	}
	s.none()
}

// A report is a reason to look at the load again.
func TestSensorTells(t *testing.T) {
	s := newSensing(t)
	s.end()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx, func(v map[string]conf.Value) { told <- fmt.Sprint(v["license"].Text) })
	}()
	if err := syscall.Mkfifo(s.dir+"/let", 0o644); err != nil {
		t.Fatal(err)
	}
	s.Configure(time.Hour, true, []string{s.script("waits", `read line; read line <"${0%/*}/let"; echo begin; echo global:license:5; echo end; read line`)})
	for _, want := range []string{"", "5"} {
		if want != "" { // not before the load was told of without it
			if err := os.WriteFile(s.dir+"/let", []byte("report\n"), 0); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case got := <-told:
			if got != want {
				t.Errorf("told of %q; want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("not told of %q\n%s", want, s.log)
		}
	}
	cancel()
	<-done
	s.none()
}
