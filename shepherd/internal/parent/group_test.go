package parent

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// runGroup is what execd makes: a control group with two leaves. Limits need
// controllers, which this host may not have; birth, death and what is left need
// none.
type runGroup struct {
	dir string
	v1  bool
}

// eachVersion runs a test in a group of version 2 and in one of version 1.
func eachVersion(t *testing.T, test func(t *testing.T, g runGroup)) {
	t.Helper()
	needRoot(t, "makes control groups")
	t.Run("v2", func(t *testing.T) { test(t, newGroup(t, "cgroup2", "")) })
	t.Run("v1", func(t *testing.T) { test(t, newGroup(t, "cgroup", "freezer")) })
}

func newGroup(t *testing.T, kind, controller string) runGroup {
	t.Helper()
	group := makeGroup(t, kind, controller)
	leaves := []string{group + "/job", group + "/procedures"}
	for _, leaf := range leaves {
		if err := os.Mkdir(leaf, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	g := runGroup{group, kind == "cgroup"}
	t.Cleanup(func() {
		_ = os.WriteFile(group+"/cgroup.kill", []byte("1"), 0o644)
		for _, dir := range leaves {
			removeGroup(t, dir)
		}
	})
	if g.v1 {
		return g
	}
	dir, err := os.Open(leaves[1])
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	probe := exec.Command("true")
	probe.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := probe.Run(); err != nil {
		t.Skip("needs to start processes in groups: ", err)
	}
	return g
}

// makeGroup makes a control group below our own in a hierarchy of the host.
func makeGroup(t *testing.T, kind, controller string) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		f := strings.Fields(after)
		if f[0] != kind || controller != "" && !slices.Contains(strings.Split(f[2], ","), controller) {
			continue
		}
		group := strings.Fields(before)[4]
		if _, path, ok := strings.Cut(string(own), ":"+controller+":"); ok && controller != "" {
			path, _, _ = strings.Cut(path, "\n")
			group += strings.TrimSuffix(path, "/")
		}
		group += "/paddock-test-" + strconv.Itoa(os.Getpid()) + strings.ReplaceAll(t.Name(), "/", "-")
		if err := os.Mkdir(group, 0o755); err != nil {
			t.Skip("needs a hierarchy to write to: ", err)
		}
		t.Cleanup(func() { removeGroup(t, group) })
		return group
	}
	t.Skip("needs control groups of the kind ", kind, " ", controller)
	return ""
}

// removeGroup removes a group whose processes may take a moment to go.
func removeGroup(t *testing.T, dir string) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err = syscall.Rmdir(dir); err == nil {
			return
		}
	}
	t.Errorf("left: %s: %v", dir, err)
}

// key is the line of config that names it.
func (g runGroup) key() string {
	if g.v1 {
		return "paddock_cgroup_freezer=" + g.dir
	}
	return "paddock_cgroup=" + g.dir
}

// where is a script that prints the leaf it is in.
func (g runGroup) where() string {
	if g.v1 {
		return "grep :freezer: /proc/self/cgroup | sed 's:.*/::'\n"
	}
	return "grep ^0:: /proc/self/cgroup | sed 's:.*/::'\n"
}

func (g runGroup) populated(t *testing.T) bool {
	t.Helper()
	if g.v1 {
		return len(g.procs(t, "/job"))+len(g.procs(t, "/procedures")) > 0
	}
	b, err := os.ReadFile(g.dir + "/cgroup.events")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(b), "populated 1")
}

func (g runGroup) procs(t *testing.T, leaf string) []string {
	t.Helper()
	b, err := os.ReadFile(g.dir + leaf + "/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

func TestGroup(t *testing.T) { eachVersion(t, testGroup) }

func testGroup(t *testing.T, g runGroup) {
	r := newRig(t, g.where()+"ulimit -v\nexit 3\n").set(g.key(), "paddock_vmem=group", "h_vmem=1G")
	r.ended(r.run(), 0, 3)
	if got, want := r.output("o"), "job\nunlimited\n"; got != want {
		t.Errorf("leaf and limit %q; want %q", got, want)
	}
	if text := r.read("trace"); !strings.Contains(text, "job is in the control group "+g.dir) {
		t.Errorf("the trace does not say so:\n%s", text)
	}
}

// Procedures and methods are beside the job, and what they leave goes after the
// epilog.
func TestGroupOfProcedures(t *testing.T) { eachVersion(t, testGroupOfProcedures) }

func testGroupOfProcedures(t *testing.T, g runGroup) {
	r := newRig(t, g.where()+"sleep 1000 &\nkill -TSTP $PPID\nsleep 1000\n").set(g.key())
	script := func(name, text string) string {
		path := r.base + "/" + name
		if err := os.WriteFile(path, []byte("#!/bin/sh\nexec >>"+r.base+"/out/p 2>&1\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.WriteFile(r.base+"/out/p", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.base+"/out/p", 0o666); err != nil {
		t.Fatal(err)
	}
	pidfile := r.base + "/out/daemon"
	r.set(
		"prolog="+script("prolog", g.where()+"setsid sleep 1000 </dev/null &\necho $! >"+pidfile+"\n"),
		"epilog="+script("epilog", g.where()+"kill -0 $(cat "+pidfile+") && echo alive\n"),
		"terminate_method="+script("method", g.where()+"kill -KILL $1\n")+" $job_pid",
	)
	r.ended(r.run(), 0, 137)
	if got, want := r.output("p"), "procedures\nprocedures\nprocedures\nalive\n"; got != want {
		t.Errorf("procedures are in %q; want %q\n%s", got, want, r.read("trace"))
	}
	if got := r.output("o"); got != "job\n" {
		t.Errorf("the job is in %q", got)
	}
	for end := time.Now().Add(time.Minute); g.populated(t); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the prolog's daemon has survived the epilog")
		}
	}
}

// Neither session nor parent nor environment tells whose a process is.
func TestGroupOfDaemon(t *testing.T) { eachVersion(t, testGroupOfDaemon) }

func testGroupOfDaemon(t *testing.T, g runGroup) {
	r := newRig(t, "(setsid env -i /bin/sh -c 'setsid sleep 1000 </dev/null >/dev/null 2>&1 &' &)\n"+
		"until for p in $(cat "+g.dir+"/job/cgroup.procs); do cat /proc/$p/comm; done | grep -qx sleep; do :; done 2>/dev/null\n").
		set(g.key())
	r.ended(r.run(), 0, 0)
	if g.populated(t) {
		t.Error("something has survived the job")
	}
	if text := r.read("trace"); !strings.Contains(text, "killed the control group") {
		t.Errorf("the trace does not say so:\n%s", text)
	}
}

// What forks as fast as it can is killed all the same, with all it has started.
func TestGroupOfBomb(t *testing.T) { eachVersion(t, testGroupOfBomb) }

func testGroupOfBomb(t *testing.T, g runGroup) {
	r := newRig(t, "bomb() { setsid sleep 1000 & sleep 0.01; }\nwhile :; do bomb & sleep 0.001; done\n").set(g.key())
	p := r.start()
	n := 0
	for until := time.Now().Add(time.Minute); n < 100; time.Sleep(time.Millisecond) {
		if n = len(g.procs(t, "/job")); time.Now().After(until) {
			t.Fatalf("the bomb has only %d processes", n)
		}
	}
	begun := time.Now()
	if err := p.cmd.Process.Signal(unix.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	for g.populated(t) && time.Since(begun) < time.Minute {
		time.Sleep(time.Millisecond)
	}
	t.Logf("%d processes and more were gone %v after the signal", n, time.Since(begun).Round(time.Millisecond))
	r.ended(p.wait(), 0, 137)
	if g.populated(t) {
		t.Error("something has survived the kill")
	}
}

// Every process gets a signal once, wherever it has gone.
func TestGroupSignals(t *testing.T) { eachVersion(t, testGroupSignals) }

func testGroupSignals(t *testing.T, g runGroup) {
	r := newRig(t, "trap 'echo outer' USR1\nsetsid sh -c 'trap \"echo inner\" USR1; echo ready; while :; do sleep 0.4; done' &\nwhile :; do sleep 0.4; done\n").
		set(g.key())
	line := r.pipe()
	p := r.start()
	if got := line(); got != "ready" {
		t.Fatalf("the job says %q", got)
	}
	if err := p.cmd.Process.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	got := []string{line(), line()}
	if s := strings.Join(got, " "); s != "outer inner" && s != "inner outer" {
		t.Errorf("signals: %q", s)
	}
	if err := p.cmd.Process.Signal(unix.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	r.ended(p.wait(), 0, 137)
}

// A group that cannot be used leaves everything as it is without.
func TestNoGroup(t *testing.T) {
	for name, group := range map[string]string{
		"missing": "/nonexistent/1.1",
		"no such": t.TempDir(), // a directory, and no control group
	} {
		t.Run(name, func(t *testing.T) {
			if name == "no such" {
				if err := os.MkdirAll(filepath.Join(group, "job"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			r := newRig(t, "sleep 1000 &\nulimit -v\nexit 5\n").set("paddock_cgroup="+group, "paddock_vmem=group", "h_vmem=1G")
			r.ended(r.run(), 0, 5)
			if got, want := r.output("o"), strconv.Itoa(1<<20)+"\n"; got != want {
				t.Errorf("ulimit -v is %q; want %q, as without a group", got, want)
			}
			if text := r.read("trace"); !strings.Contains(text, "control group") {
				t.Errorf("the trace does not say so:\n%s", text)
			}
		})
	}
}

// hog takes memory in a pipe, of whose end the script knows nothing.
const hog = "tail /dev/zero | cat\nsleep 1000\n"

// In version 1 a limit of memory ends one process. The rest of the job is ended
// for it, and the reason is said.
func TestMemoryV1(t *testing.T) {
	eachVersion(t, func(t *testing.T, g runGroup) { testMemoryV1(t, g, hog) })
}

// It may be over before that, as if nothing was wrong.
func TestMemoryV1GoesOn(t *testing.T) {
	eachVersion(t, func(t *testing.T, g runGroup) { testMemoryV1(t, g, "tail /dev/zero\nexit 0\n") })
}

func testMemoryV1(t *testing.T, g runGroup, then string) {
	memory := makeGroup(t, "cgroup", "memory")
	for _, file := range []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"} {
		if err := os.WriteFile(memory+"/"+file, []byte("33554432"), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	r := newRig(t, "grep :memory: /proc/self/cgroup | sed 's:.*/::'\nulimit -v\n"+then).
		set(g.key(), "paddock_cgroup_memory="+memory, "paddock_vmem=group", "h_vmem=32M")
	r.ended(r.run(), 0, 137)
	if got, want := r.output("o"), filepath.Base(memory)+"\nunlimited\n"; got != want {
		t.Errorf("group and limit %q; want %q", got, want)
	}
	if text := r.read("error"); !strings.Contains(text, "job was killed: out of memory, limit h_vmem 32M (peak 3") {
		t.Errorf("error does not say why:\n%s\n%s", text, r.read("trace"))
	}
	if g.populated(t) {
		t.Error("something has survived")
	}
}

// A group of version 1 that cannot be joined does not hold: its limit is that of
// each process, and the job runs.
func TestNoMemoryV1(t *testing.T) {
	eachVersion(t, func(t *testing.T, g runGroup) {
		r := newRig(t, "ulimit -v\nexit 5\n").
			set(g.key(), "paddock_cgroup_memory=/nonexistent/1.1", "paddock_cgroup_pids=/nonexistent/1.1", "paddock_vmem=group", "h_vmem=1G")
		r.ended(r.run(), 0, 5)
		if got, want := r.output("o"), strconv.Itoa(1<<20)+"\n"; got != want {
			t.Errorf("ulimit -v is %q; want %q, as without a group", got, want)
		}
		if text := r.read("trace"); strings.Count(text, "cannot join control group /nonexistent/1.1, going on without") != 2 {
			t.Errorf("the trace does not say so:\n%s", text)
		}
	})
}

// Without the one that keeps devices from it a job is not run.
func TestNoDevices(t *testing.T) {
	eachVersion(t, func(t *testing.T, g runGroup) {
		r := newRig(t, "exit 5\n").set(g.key(), "paddock_cgroup_devices=/nonexistent/1.1", "paddock_devices=1")
		r.run()
		if text := r.read("error"); !strings.Contains(text, "cannot join control group /nonexistent/1.1: No such file or directory") {
			t.Errorf("error does not say why:\n%s\n%s", text, r.read("trace"))
		}
	})
	r := newRig(t, "exit 5\n").set("paddock_cgroup=/nonexistent/1.1", "paddock_devices=1")
	r.run()
	if text := r.read("error"); !strings.Contains(text, "cannot keep devices from the job outside of its control group") {
		t.Errorf("error does not say why:\n%s\n%s", text, r.read("trace"))
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 1023: "1023", 1024: "1.0K", 1536: "1.5K", 64 << 20: "64.0M", 1 << 30: "1.0G", 3 << 39: "1.5T", 1<<20 - 1: "1.0M",
	} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q; want %q", n, got, want)
		}
	}
}
