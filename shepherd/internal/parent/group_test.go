package parent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newGroup makes what execd makes: a control group with two leaves. Limits need
// controllers, which this host may not have; birth, death and what is left need
// none.
func newGroup(t *testing.T) string {
	t.Helper()
	needRoot(t, "makes control groups")
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	for line := range strings.Lines(string(b)) {
		if !strings.Contains(line, " - cgroup2 ") {
			continue
		}
		group := strings.Fields(line)[4] + "/paddock-test-" + strconv.Itoa(os.Getpid()) + t.Name()
		if err := os.Mkdir(group, 0o755); err != nil {
			t.Skip("needs a hierarchy to write to: ", err)
		}
		leaves := []string{group + "/job", group + "/procedures"}
		for _, leaf := range leaves {
			if err := os.Mkdir(leaf, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			_ = os.WriteFile(group+"/cgroup.kill", []byte("1"), 0o644)
			for _, dir := range append(leaves, group) {
				var err error
				for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
					if err = syscall.Rmdir(dir); err == nil || time.Now().After(end) {
						break
					}
				}
				if err != nil {
					t.Errorf("left: %s: %v", dir, err)
				}
			}
		})
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
		return group
	}
	t.Skip("needs control groups of version 2")
	return ""
}

// where is a script that prints the leaf it is in.
const where = "grep ^0:: /proc/self/cgroup | sed 's:.*/::'\n"

func populated(t *testing.T, group string) bool {
	t.Helper()
	b, err := os.ReadFile(group + "/cgroup.events")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(b), "populated 1")
}

func TestGroup(t *testing.T) {
	group := newGroup(t)
	r := newRig(t, where+"ulimit -v\nexit 3\n").set("paddock_cgroup="+group, "paddock_vmem=group", "h_vmem=1G")
	r.ended(r.run(), 0, 3)
	if got, want := r.output("o"), "job\nunlimited\n"; got != want {
		t.Errorf("leaf and limit %q; want %q", got, want)
	}
	if text := r.read("trace"); !strings.Contains(text, "job is in the control group "+group) {
		t.Errorf("the trace does not say so:\n%s", text)
	}
}

// Procedures and methods are beside the job, and what they leave goes after the
// epilog.
func TestGroupOfProcedures(t *testing.T) {
	group := newGroup(t)
	r := newRig(t, where+"sleep 1000 &\nkill -TSTP $PPID\nsleep 1000\n").set("paddock_cgroup=" + group)
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
		"prolog="+script("prolog", where+"setsid sleep 1000 </dev/null &\necho $! >"+pidfile+"\n"),
		"epilog="+script("epilog", where+"kill -0 $(cat "+pidfile+") && echo alive\n"),
		"terminate_method="+script("method", where+"kill -KILL $1\n")+" $job_pid",
	)
	r.ended(r.run(), 0, 137)
	if got, want := r.output("p"), "procedures\nprocedures\nprocedures\nalive\n"; got != want {
		t.Errorf("procedures are in %q; want %q\n%s", got, want, r.read("trace"))
	}
	if got := r.output("o"); got != "job\n" {
		t.Errorf("the job is in %q", got)
	}
	for end := time.Now().Add(5 * time.Second); populated(t, group); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the prolog's daemon has survived the epilog")
		}
	}
}

// Neither session nor parent nor environment tells whose a process is.
func TestGroupOfDaemon(t *testing.T) {
	group := newGroup(t)
	r := newRig(t, "(setsid env -i /bin/sh -c 'setsid sleep 1000 </dev/null >/dev/null 2>&1 &' &)\nwhile ! grep -q . "+group+"/job/cgroup.procs; do :; done\nsleep 0.2\n").
		set("paddock_cgroup=" + group)
	r.ended(r.run(), 0, 0)
	if populated(t, group) {
		t.Error("something has survived the job")
	}
	if text := r.read("trace"); !strings.Contains(text, "killed the control group") {
		t.Errorf("the trace does not say so:\n%s", text)
	}
}

// What forks as fast as it can is killed all the same, with all it has started.
func TestGroupOfBomb(t *testing.T) {
	group := newGroup(t)
	r := newRig(t, "bomb() { setsid sleep 1000 & sleep 0.01; }\nwhile :; do bomb & sleep 0.001; done\n").set("paddock_cgroup=" + group)
	p := r.start()
	n := 0
	for n < 300 {
		b, err := os.ReadFile(group + "/job/cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		n = strings.Count(string(b), "\n")
		time.Sleep(time.Millisecond)
	}
	begun := time.Now()
	if err := p.cmd.Process.Signal(unix.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	for populated(t, group) && time.Since(begun) < time.Minute {
		time.Sleep(time.Millisecond)
	}
	t.Logf("%d processes and more were gone %v after the signal", n, time.Since(begun).Round(time.Millisecond))
	r.ended(p.wait(), 0, 137)
	if populated(t, group) {
		t.Error("something has survived the kill")
	}
}

// Every process gets a signal once, wherever it has gone.
func TestGroupSignals(t *testing.T) {
	group := newGroup(t)
	r := newRig(t, "trap 'echo outer' USR1\nsetsid sh -c 'trap \"echo inner\" USR1; echo ready; while :; do sleep 0.05; done' &\nwhile :; do sleep 0.05; done\n").
		set("paddock_cgroup=" + group)
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

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 1023: "1023", 1024: "1.0K", 1536: "1.5K", 64 << 20: "64.0M", 1 << 30: "1.0G", 3 << 39: "1.5T", 1<<20 - 1: "1.0M",
	} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q; want %q", n, got, want)
		}
	}
}
