package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// fake is a directory that behaves as the kernel's hierarchy does, as far as we
// use it.
type fake struct {
	t           *testing.T
	dir         string
	controllers string
}

var files = []string{
	"cgroup.type", "cgroup.controllers", "cgroup.subtree_control", "cgroup.procs", "cgroup.kill", "memory.max", "memory.swap.max",
	"memory.oom.group", "pids.max", "cpu.max",
}

func newFake(t *testing.T, controllers string) *fake {
	f := &fake{t: t, dir: t.TempDir(), controllers: controllers}
	f.fill(f.dir)
	if err := os.Remove(f.dir + "/cgroup.type"); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fake) fill(dir string) {
	for _, name := range files {
		text := ""
		if name == "cgroup.controllers" {
			text = f.controllers
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fake) mkdir(r *os.Root, name string) error {
	if err := r.Mkdir(name, 0o755); err != nil {
		return err
	}
	f.fill(filepath.Join(f.dir, name))
	return nil
}

// rmdir refuses a group with a process until it or one above was killed.
func (f *fake) rmdir(_ *os.Root, name string) error {
	dir := filepath.Join(f.dir, name)
	killed := f.get(name, "cgroup.kill") + f.get(path.Dir(name), "cgroup.kill")
	if f.get(name, "cgroup.procs") != "" && killed == "" {
		return &fs.PathError{Op: "rmdir", Path: name, Err: syscall.EBUSY}
	}
	for _, file := range files {
		_ = os.Remove(filepath.Join(dir, file))
	}
	return os.Remove(dir)
}

func (f *fake) get(group, file string) string {
	b, _ := os.ReadFile(filepath.Join(f.dir, group, file))
	return string(b)
}

func (f *fake) put(group, file, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, group, file), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fake) open(own string) *Tree {
	f.t.Helper()
	t, err := open(f.dir, own, "paddock", 42, true, f.mkdir, f.rmdir)
	if err != nil {
		f.t.Fatal(err)
	}
	return t
}

func TestMake(t *testing.T) {
	f := newFake(t, "cpuset cpu io memory pids\n")
	tree := f.open(".")
	if got, want := tree.String(), "v2 at "+f.dir+"/paddock (memory pids cpu)"; got != want {
		t.Errorf("String() = %q; want %q", got, want)
	}
	group, err := tree.Make("7.1", Limits{Memory: 1 << 30, Procs: 50, CPUs: 2})
	if err != nil || group != f.dir+"/paddock/7.1" {
		t.Fatalf("Make = %q, %v", group, err)
	}
	for _, want := range [][3]string{
		{"paddock/7.1", "memory.max", "1073741824"},
		{"paddock/7.1", "memory.swap.max", "0"},
		{"paddock/7.1", "cpu.max", "200000 100000"},
		{"paddock/7.1", "pids.max", ""},
		{"paddock/7.1", "memory.oom.group", ""},
		{"paddock/7.1/job", "memory.oom.group", "1"},
		{"paddock/7.1/job", "pids.max", "50"},
		{"paddock/7.1/procedures", "pids.max", ""},
	} {
		if got := f.get(want[0], want[1]); got != want[2] {
			t.Errorf("%s of %s is %q; want %q", want[1], want[0], got, want[2])
		}
	}
	for _, g := range []string{".", "paddock", "paddock/7.1"} {
		if f.get(g, "cgroup.subtree_control") == "" {
			t.Errorf("%s has no controllers for its children", g)
		}
	}

	// What is left of an earlier run makes way, with all it holds.
	f.put("paddock/7.1/job", "cgroup.procs", "1\n")
	f.put("paddock/7.1", "memory.max", "old")
	if _, err := tree.Make("7.1", Limits{}); err != nil {
		t.Fatal(err)
	}
	if got := f.get("paddock/7.1", "memory.max"); got != "" {
		t.Errorf("memory.max without a limit is %q", got)
	}
	if err := tree.Remove(group); err != nil {
		t.Fatal(err)
	}
	if err := tree.Remove(group); err != nil {
		t.Errorf("Remove of what is gone: %v", err)
	}
}

func TestFewControllers(t *testing.T) {
	f := newFake(t, "pids\n")
	tree := f.open(".")
	if tree.Has("memory") || !tree.Has("pids") {
		t.Errorf("controllers: %v", tree)
	}
	if _, err := tree.Make("7.1", Limits{Memory: 1, Procs: 30, CPUs: 1}); err != nil {
		t.Fatal(err)
	}
	if got := f.get("paddock/7.1", "memory.max") + f.get("paddock/7.1", "cpu.max") + f.get("paddock/7.1/job", "memory.oom.group"); got != "" {
		t.Errorf("limits without a controller: %q", got)
	}
}

func TestSweep(t *testing.T) {
	f := newFake(t, "memory pids cpu\n")
	tree := f.open(".")
	for _, name := range []string{"1.1", "2.1", "3.1"} {
		if _, err := tree.Make(name, Limits{}); err != nil {
			t.Fatal(err)
		}
		f.put("paddock/"+name+"/job", "cgroup.procs", "5\n")
	}
	if err := tree.Sweep(func(name string) bool { return name == "2.1" }); err != nil {
		t.Fatal(err)
	}
	if got, _ := tree.children("paddock"); !slices.Equal(got, []string{"2.1"}) {
		t.Errorf("left: %q", got)
	}
	if f.get("paddock/2.1", "cgroup.kill") != "" {
		t.Error("the run was killed")
	}
	if err := tree.Kill(f.dir + "/paddock/2.1"); err != nil || f.get("paddock/2.1", "cgroup.kill") != "1" {
		t.Errorf("Kill: %v, cgroup.kill is %q", err, f.get("paddock/2.1", "cgroup.kill"))
	}
}

// Only a run's group is killed or removed, whatever a path says.
func TestBelow(t *testing.T) {
	f := newFake(t, "")
	tree := f.open(".")
	for _, group := range []string{"", "/", f.dir, f.dir + "/paddock", f.dir + "/paddock/1.1/..", "/etc/1.1", f.dir + "/../1.1", f.dir + "/paddock/1.1/job"} {
		if tree.Remove(group) == nil || tree.Kill(group) == nil {
			t.Errorf("%q is taken for a run's group", group)
		}
	}
	var none *Tree
	if err := errors.Join(none.Remove("/x"), none.Kill("/x"), none.Sweep(nil)); err != nil || none.Has("memory") {
		t.Errorf("without a tree: %v", err)
	}
}

func TestPlaces(t *testing.T) {
	for _, tt := range []struct{ name, own, want string }{
		{"top", ".", "paddock"},
		{"own", "a/b", "a/b/paddock"},
		{"leaf", "system.slice/paddock.service/execd", "system.slice/paddock.service/paddock"},
		{"unit without a leaf", "system.slice/paddock.service", "paddock"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, "memory pids cpu\n")
			if err := os.MkdirAll(filepath.Join(f.dir, tt.own), 0o755); err != nil {
				t.Fatal(err)
			}
			for dir := tt.own; dir != "."; dir = path.Dir(dir) {
				f.fill(filepath.Join(f.dir, dir))
			}
			if got := f.open(tt.own).base; got != tt.want {
				t.Errorf("base is %s; want %s", got, tt.want)
			}
		})
	}
}

func TestLocate(t *testing.T) {
	const (
		v2     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
		v1     = "31 23 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
		other  = "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
		within = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"
	)
	for _, tt := range []struct{ name, mountinfo, own, mount, group, err string }{
		{"pure", other + v2, "0::/system.slice/x.service\n", "/sys/fs/cgroup", "system.slice/x.service", ""},
		{"root", v2, "0::/\n", "/sys/fs/cgroup", ".", ""},
		{"hybrid", v2 + v1, "9:pids:/\n0::/\n", "", "", "version 1"},
		{"none", other, "", "", "", "no control groups"},
		{"container", within, "0::/docker/abc\n", "/sys/fs/cgroup", ".", ""},
		{"below a container", within, "0::/docker/abc/x\n", "/sys/fs/cgroup", "x", ""},
		{"outside", v2, "0::/../x\n", "", "", "not below"},
		{"elsewhere", within, "0::/user.slice\n", "", "", "not below"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mount, group, err := locate(tt.mountinfo, tt.own)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("locate: %v; want %q", err, tt.err)
				}
				return
			}
			if err != nil || mount != tt.mount || group != tt.group {
				t.Errorf("locate = %q, %q, %v; want %q, %q", mount, group, err, tt.mount, tt.group)
			}
		})
	}
}

// The kernel's own hierarchy, with whatever controllers it has.
func TestKernel(t *testing.T) {
	mount := hierarchy(t)
	name := "paddock-test-" + strconv.Itoa(os.Getpid())
	tree, err := open(mount, ".", name, 0, true, mkdir, rmdir)
	if err != nil {
		t.Skip("needs a hierarchy to write to: ", err)
	}
	defer tree.rmdir(tree.root, tree.base)
	if err := tree.Probe("/bin/true"); err != nil {
		t.Skip("needs to start processes in groups: ", err)
	}
	if tree.Probe("/bin/false") == nil {
		t.Error("Probe of what fails: no error")
	}
	group, err := tree.Make("1.1", Limits{Memory: 64 << 20, Procs: 50, CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	// The job has made a group of its own, and sits there.
	inner := group + "/job/inner"
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Process.Kill() }()
	if err := os.WriteFile(inner+"/cgroup.procs", []byte(strconv.Itoa(sleeper.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := tree.Remove(group); err != nil {
		t.Fatal(err)
	}
	if sleeper.Wait() == nil {
		t.Error("the process in the group ended by itself")
	}
	if _, err := os.Stat(group); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the group is there: %v", err)
	}
}

// hierarchy returns where a hierarchy of version 2 is mounted.
func hierarchy(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes control groups")
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, " - cgroup2 ") {
			return strings.Fields(line)[4]
		}
	}
	t.Skip("needs control groups of version 2")
	return ""
}
