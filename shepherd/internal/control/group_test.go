package control

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// newLeaf makes files such as the kernel makes for a run's group.
func newLeaf(t *testing.T, v1 bool, files map[string]string) (*Group, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	g, err := OpenGroup(dir, v1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(g.FD) })
	return g, dir
}

func TestGroupFiles(t *testing.T) {
	g, dir := newLeaf(t, false, map[string]string{
		"job/cgroup.events": "populated 1\nfrozen 0\n",
		"job/memory.events": "low 0\nhigh 0\nmax 3\noom 0\noom_kill 2\noom_group_kill 1\n",
		"job/memory.peak":   "67108864\n",
		"job/cgroup.procs":  "17\n0\n42\n",
		"job/cgroup.kill":   "",
		"memory.events":     "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n",
		"cgroup.kill":       "",
		"procedures/x":      "",
	})
	if !g.Populated() {
		t.Error("not populated")
	}
	if killed, limit := g.Killed(); killed != 2 || limit != 1 {
		t.Errorf("Killed() = %d, %d; want 2, 1", killed, limit)
	}
	if got := g.Peak(); got != 64<<20 {
		t.Errorf("Peak() = %d", got)
	}
	if m := g.members(); len(m) != 2 || !m[17] || !m[42] {
		t.Errorf("members() = %v", m)
	}
	if _, err := g.Procedures(); err != nil {
		t.Error(err)
	}
	for name, kill := range map[string]func() error{"job/cgroup.kill": g.Kill, "cgroup.kill": g.KillAll} {
		if err := kill(); err != nil {
			t.Error(err)
		}
		if b, _ := os.ReadFile(filepath.Join(dir, name)); string(b) != "1" {
			t.Errorf("%s is %q", name, b)
		}
	}
}

// What the job has put into groups of its own is a part of it, in version 1 as well,
// where no file says so.
func TestGroupBelowLeaf(t *testing.T) {
	for _, v1 := range []bool{true, false} {
		g, dir := newLeaf(t, v1, map[string]string{
			"job/cgroup.procs": "", "job/own/cgroup.procs": "", "job/own/inner/cgroup.procs": "42\n",
			"job/cgroup.events": "populated 1\n",
		})
		if m := g.members(); !g.Populated() || len(m) != 1 || !m[42] {
			t.Errorf("version 1 %t: populated %t, members %v", v1, g.Populated(), m)
		}
		if err := os.WriteFile(filepath.Join(dir, "job/own/inner/cgroup.procs"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if v1 && g.Populated() {
			t.Error("populated by nobody")
		}
	}
}

// Without the files of newer kernels nothing is claimed, and what is in the
// group is frozen, killed one by one, and thawed.
func TestGroupOfOldKernel(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	g, dir := newLeaf(t, false, map[string]string{
		"job/cgroup.events": "populated 0\nfrozen 1\n",
		"job/cgroup.freeze": "0",
		"job/cgroup.procs":  strconv.Itoa(child.Process.Pid) + "\n",
	})
	if killed, limit := g.Killed(); g.Populated() || killed != 0 || limit != 0 || g.Peak() != 0 {
		t.Errorf("killed %d, limit %d, peak %d", killed, limit, g.Peak())
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil || child.ProcessState.Sys() == nil {
		t.Error("the process has ended by itself")
	}
	if b, _ := os.ReadFile(dir + "/job/cgroup.freeze"); string(b) != "0" {
		t.Errorf("cgroup.freeze is %q in the end", b)
	}
	if _, err := g.Procedures(); err == nil {
		t.Error("opened a leaf that is not there")
	}
	var none *Group
	if none.Populated() || none.members() != nil {
		t.Error("no group is populated")
	}
}

// What cannot be frozen is killed, and said to be so: it may have forked away.
func TestGroupOfVersion1(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	g, dir := newLeaf(t, true, map[string]string{
		"job/cgroup.procs":  strconv.Itoa(child.Process.Pid) + "\n",
		"job/freezer.state": "",
	})
	if !g.Populated() {
		t.Error("not populated")
	}
	// The file says what was written, without the newline of the kernel's.
	if err := g.Kill(); err == nil {
		t.Error("what is not frozen was killed for good")
	}
	if child.Wait() == nil {
		t.Error("the process has ended by itself")
	}
	if b, _ := os.ReadFile(dir + "/job/freezer.state"); string(b) != "THAWED" {
		t.Errorf("freezer.state is %q in the end", b)
	}
	if err := os.WriteFile(dir+"/job/cgroup.procs", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if g.Populated() {
		t.Error("populated")
	}
}

func TestMemoryOfVersion1(t *testing.T) {
	g, dir := newLeaf(t, true, map[string]string{
		"job/cgroup.procs": "", "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
		"memory/memory.max_usage_in_bytes": "33554432\n",
	})
	if _, err := g.WatchMemory(dir + "/memory"); err == nil {
		t.Error("watched a group without cgroup.event_control")
	}
	if killed, limit := g.Killed(); killed != 2 || limit == 0 {
		t.Errorf("Killed() = %d, %d", killed, limit)
	}
	if got := g.Peak(); got != 32<<20 {
		t.Errorf("Peak() = %d", got)
	}
	if err := os.WriteFile(dir+"/memory/cgroup.event_control", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	events, err := g.WatchMemory(dir + "/memory")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(events)
	if _, limit := g.Killed(); limit != 0 {
		t.Errorf("the limit was reached %d times before anything was said", limit)
	}
	for range 2 {
		if _, err := unix.Write(events, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
		if _, limit := g.Killed(); limit == 0 {
			t.Error("the event is not counted")
		}
	}
	if _, limit := g.Killed(); limit != 2 {
		t.Errorf("the limit was reached %d times; want 2", limit)
	}
	if err := os.WriteFile(dir+"/memory/memory.memsw.max_usage_in_bytes", []byte("33554433\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := g.Peak(); got != 32<<20+1 {
		t.Errorf("Peak() with swap = %d", got)
	}
}
