package cgroup

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/spool"
)

// fake is a directory that behaves as the kernel's hierarchy does, as far as we
// use it.
type fake struct {
	user        bool // not root
	t           *testing.T
	dir         string
	controllers string
}

var kernelFiles = []string{
	"cgroup.type", "cgroup.controllers", "cgroup.subtree_control", "cgroup.procs", "cgroup.kill", "memory.max", "memory.swap.max",
	"memory.oom.group", "pids.max", "cpu.max", "cpu.weight", "cpu.stat", "memory.current", "memory.swap.current", "memory.peak", "memory.events", "io.stat",
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
	for _, name := range kernelFiles {
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

// rmdir refuses a group with another below it, and one with a process until it or
// one above was killed.
func (f *fake) rmdir(_ *os.Root, name string) error {
	dir := filepath.Join(f.dir, name)
	killed := f.get(name, "cgroup.kill") + f.get(path.Dir(name), "cgroup.kill")
	_, err := os.Stat(filepath.Join(dir, spool.CgroupJob))
	if err == nil || f.get(name, "cgroup.procs") != "" && killed == "" {
		return &fs.PathError{Op: "rmdir", Path: name, Err: syscall.EBUSY}
	}
	for _, file := range kernelFiles {
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
	o := opener{name: "paddock", pid: 42, privileged: !f.user, probe: func(*Tree) error { return nil }, kernel: kernel{f.mkdir, f.rmdir}}
	t, err := o.open([]place{{mount: f.dir, group: own}})
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
	group, err := tree.Make("7.1", Limits{Memory: 1 << 30, Procs: 50, CPUs: 2, Weight: 3})
	if want := (Group{spool.KeyCgroup: f.dir + "/paddock/7.1"}); err != nil || !maps.Equal(group, want) {
		t.Fatalf("Make = %q, %v; want %q", group, err, want)
	}
	for _, want := range [][3]string{
		{"paddock/7.1", "memory.max", "1073741824"},
		{"paddock/7.1", "memory.swap.max", "0"},
		{"paddock/7.1", "cpu.max", "200000 100000"},
		{"paddock/7.1", "cpu.weight", "300"},
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

func TestUsage(t *testing.T) {
	f := newFake(t, "memory pids cpu io\n")
	tree := f.open(".")
	g, err := tree.Make("1.1", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	// What is not there yet, or not on this kernel, is 0.
	if u, err := tree.Usage(g); err != nil || u != (Usage{}) {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	for file, text := range map[string]string{
		"cpu.stat":       "usage_usec 3500000\nuser_usec 2000000\nsystem_usec 1500000\nnice_usec 0\n",
		"memory.current": "16384\n", "memory.swap.current": "8192\n", "memory.peak": "65536\n",
		"memory.stat":   "anon 4000\nfile 14000\nactive_anon 4000\ninactive_file 12000\nactive_file 288\nshmem 1712\n",
		"memory.events": "low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 1\n",
	} {
		f.put("paddock/1.1/job", file, text)
	}
	f.put("paddock/1.1", "io.stat", "8:0 rbytes=100 wbytes=20 rios=3 wios=4 dbytes=5 dios=6\n8:16 rbytes=1000 wbytes=200 rios=3 wios=4 dbytes=5 dios=6\n")
	want := Usage{
		User: 2 * time.Second, System: 1500 * time.Millisecond, Memory: 12288, Peak: 65536,
		Read: 1100, Written: 220, OOMKills: 2,
	}
	if u, err := tree.Usage(g); err != nil || u != want {
		t.Errorf("Usage = %+v, %v; want %+v", u, err, want)
	}
	var none *Tree
	for _, tree := range []*Tree{none, tree} {
		if _, err := tree.Usage(Group{}); err == nil {
			t.Error("Usage without a group: no error")
		}
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
	if got, _ := tree.all[0].children("paddock"); !slices.Equal(got, []string{"2.1"}) {
		t.Errorf("left: %q", got)
	}
	if f.get("paddock/2.1", "cgroup.kill") != "" {
		t.Error("the run was killed")
	}
	if err := tree.Kill(Group{spool.KeyCgroup: f.dir + "/paddock/2.1"}); err != nil || f.get("paddock/2.1", "cgroup.kill") != "1" {
		t.Errorf("Kill: %v, cgroup.kill is %q", err, f.get("paddock/2.1", "cgroup.kill"))
	}
}

// What execd starts beside the runs has groups of its own, which are swept with nothing and
// left with the tree. That of transfers goes after the jobs.
func TestBeside(t *testing.T) {
	f := newFake(t, "memory pids cpu\n")
	tree := f.open(".")
	for name, open := range map[string]func() (*os.File, error){"helpers": tree.OpenHelpers, "transfers": tree.OpenTransfers} {
		for range 2 {
			dir, err := open()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := dir.Name(), f.dir+"/paddock/"+name; got != want {
				t.Errorf("%s is %s; want %s", name, got, want)
			}
			dir.Close()
		}
	}
	for file, want := range map[string]string{"cpu.weight": "20", "memory.max": "536870912", "io.weight": ""} {
		if got := f.get("paddock/transfers", file); got != want {
			t.Errorf("%s of transfers is %q; want %q", file, got, want)
		}
	}
	if err := tree.Sweep(func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	if got, _ := tree.all[0].children("paddock"); len(got) != 2 {
		t.Errorf("left by Sweep: %q", got)
	}
	tree.Leave()
	if _, err := os.Stat(f.dir + "/paddock"); err == nil {
		t.Error("Leave has left the tree")
	}
	var none *Tree
	if dir, err := none.OpenTransfers(); dir != nil || err != nil {
		t.Errorf("without groups: %v, %v", dir, err)
	}
}

// Only a run's group is killed or removed, whatever a path says.
func TestBelow(t *testing.T) {
	f := newFake(t, "")
	tree := f.open(".")
	for _, group := range []string{"", "/", f.dir, f.dir + "/paddock", f.dir + "/paddock/1.1/..", "/etc/1.1", f.dir + "/../1.1", f.dir + "/paddock/1.1/job"} {
		if g := (Group{spool.KeyCgroup: group}); tree.Remove(g) == nil || tree.Kill(g) == nil {
			t.Errorf("%q is taken for a run's group", group)
		}
	}
	// What was made in another tier, before a reboot, is gone.
	if err := tree.Remove(Group{spool.KeyCgroupFreezer: "/x/1.1"}); err != nil {
		t.Error(err)
	}
	var none *Tree
	g := Group{spool.KeyCgroup: "/x"}
	if err := errors.Join(none.Remove(g), none.Kill(g), none.Sweep(nil)); err != nil || none.Has("memory") || none.Tier() != "none" {
		t.Errorf("without a tree: %v", err)
	}
	none.Leave()
}

func TestPlaces(t *testing.T) {
	const user = "user.slice/user-7.slice/user@7.service/"
	for _, tt := range []struct {
		name, own, want string
		user            bool
	}{
		{"top", ".", "paddock", false},
		{"own", "a/b", "a/b/paddock", false},
		{"leaf", "system.slice/paddock.service/execd", "system.slice/paddock.service/paddock", false},
		{"unit without a leaf", "system.slice/paddock.service", "paddock", false},
		{"unit of a user", user + "app.slice/paddock.service/execd", user + "app.slice/paddock.service/paddock", true},
		{"unit of a user without a leaf", user + "app.slice/paddock.service", user + "paddock", true},
		{"unit without a leaf that is a user's", "system.slice/paddock.service", "system.slice/paddock.service/paddock", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, "memory pids cpu\n")
			f.user = tt.user
			if err := os.MkdirAll(filepath.Join(f.dir, tt.own), 0o755); err != nil {
				t.Fatal(err)
			}
			for dir := tt.own; dir != "."; dir = path.Dir(dir) {
				f.fill(filepath.Join(f.dir, dir))
			}
			if got := f.open(tt.own).all[0].base; got != tt.want {
				t.Errorf("base is %s; want %s", got, tt.want)
			}
		})
	}
}

func TestLocate(t *testing.T) {
	const (
		v2     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
		pids   = "31 23 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
		cpu    = "32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,xattr,cpuacct,cpu\n"
		named  = "33 23 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
		other  = "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
		within = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"
	)
	top := place{mount: "/sys/fs/cgroup", group: "."}
	for _, tt := range []struct {
		name, mountinfo, own string
		want                 []place
		err                  string
	}{
		{"pure", other + v2, "0::/system.slice/x.service\n", []place{{mount: "/sys/fs/cgroup", group: "system.slice/x.service"}}, ""},
		{"root", v2, "0::/\n", []place{top}, ""},
		{"twice", v2 + v2, "0::/\n", []place{top}, ""},
		{"a hierarchy without controllers", v2 + named, "1:name=systemd:/x\n0::/\n", []place{top}, ""},
		{
			"hybrid", cpu + pids + named + v2, "9:pids:/a/b\n3:cpu,cpuacct:/\n1:name=systemd:/x\n0::/\n",
			[]place{top, {"/sys/fs/cgroup/cpu,cpuacct", ".", []string{"cpu", "cpuacct"}}, {"/sys/fs/cgroup/pids", "a/b", []string{"pids"}}},
			"",
		},
		{"version 1", pids, "9:pids:/\n", []place{{"/sys/fs/cgroup/pids", ".", []string{"pids"}}}, ""},
		{"none", other, "", nil, "no control groups are mounted"},
		{"container", within, "0::/docker/abc\n", []place{top}, ""},
		{"below a container", within, "0::/docker/abc/x\n", []place{{mount: "/sys/fs/cgroup", group: "x"}}, ""},
		{"outside", v2, "0::/../x\n", nil, "not below"},
		{"elsewhere", within, "0::/user.slice\n", nil, "not below"},
		{"beside", within, "0::/docker/abcd\n", nil, "not below"},
		{"elsewhere in version 1", v2 + within + pids, "9:pids:/../x\n0::/\n", []place{top}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := locate(tt.mountinfo, tt.own)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("locate: %v; want %q", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(place{})); err != nil || diff != "" {
				t.Errorf("locate: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// fakeV1 is a directory that behaves as a hierarchy of version 1 does.
func fakeV1(t *testing.T, own string, controllers ...string) place {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, own), 0o755); err != nil {
		t.Fatal(err)
	}
	return place{dir, own, controllers}
}

var fakeKernelV1 = kernel{
	mkdir: func(r *os.Root, name string) error {
		err := r.Mkdir(name, 0o755)
		for _, file := range []string{
			"freezer.state", "cgroup.procs", "memory.limit_in_bytes", "pids.max", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares",
		} {
			if err == nil {
				err = r.WriteFile(path.Join(name, file), nil, 0o644)
			}
		}
		return err
	},
	rmdir: func(r *os.Root, name string) error {
		if _, err := r.Lstat(path.Join(name, spool.CgroupJob)); err == nil {
			return syscall.EBUSY
		}
		return r.RemoveAll(name)
	},
}

// Controllers that are mounted together have one group, which the job joins
// once; the freezer's group is nobody else's.
func TestMountedTogether(t *testing.T) {
	freezer, cpu, memory := fakeV1(t, "u", "freezer", "pids"), fakeV1(t, ".", "cpu", "cpuacct"), fakeV1(t, "a/b", "memory", "hugetlb")
	o := opener{name: "paddock", kernel: fakeKernelV1}
	tree, err := o.open([]place{cpu, freezer, memory})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tree.Tier(), "v1 (memory cpu)"; got != want {
		t.Errorf("Tier() = %q; want %q", got, want)
	}
	g, err := tree.Make("1.1", Limits{Memory: 4096, Procs: 3, CPUs: 2, Weight: 2})
	want := Group{
		spool.KeyCgroupFreezer: freezer.mount + "/u/paddock/1.1",
		spool.KeyCgroupCPU:     cpu.mount + "/paddock/1.1",
		spool.KeyCgroupMemory:  memory.mount + "/a/b/paddock/1.1",
	}
	if diff := cmp.Diff(want, g); err != nil || diff != "" {
		t.Errorf("Make: %v (-want +got):\n%s", err, diff)
	}
	for file, want := range map[string]string{
		g[spool.KeyCgroupMemory] + "/memory.limit_in_bytes": "4096",
		g[spool.KeyCgroupCPU] + "/cpu.cfs_period_us":        "100000",
		g[spool.KeyCgroupCPU] + "/cpu.cfs_quota_us":         "200000",
		g[spool.KeyCgroupCPU] + "/cpu.shares":               "2048",
		g[spool.KeyCgroupFreezer] + "/pids.max":             "",
	} {
		if b, err := os.ReadFile(file); err != nil || string(b) != want {
			t.Errorf("%s is %q, %v; want %q", file, b, err, want)
		}
	}
	if err := tree.Remove(g); err != nil {
		t.Error(err)
	}
	// Without limits there is but what counts.
	g, err = tree.Make("1.1", Limits{})
	delete(want, spool.KeyCgroupMemory)
	if diff := cmp.Diff(want, g); err != nil || diff != "" {
		t.Errorf("Make: %v (-want +got):\n%s", err, diff)
	}
	// One that cannot be made leaves nothing.
	if err := os.RemoveAll(memory.mount + "/a/b/paddock"); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Make("2.1", Limits{Memory: 4096}); err == nil {
		t.Error("Make: no error")
	}
	if _, err := os.Stat(freezer.mount + "/u/paddock/2.1"); err == nil {
		t.Error("the group of the freezer is left")
	}
}

// Resident and swap are one limit where the kernel counts swap, and elsewhere
// nothing is looked for that is not there.
func TestSwap(t *testing.T) {
	for _, counts := range []bool{true, false} {
		f := newFake(t, "memory\n")
		memory := fakeV1(t, ".", "memory")
		mkdir := func(r *os.Root, name string) error {
			if r.Name() == f.dir {
				err := f.mkdir(r, name)
				if !counts {
					err = errors.Join(err, r.Remove(name+"/memory.swap.max"))
				}
				return err
			}
			err := fakeKernelV1.mkdir(r, name)
			if counts {
				err = errors.Join(err, r.WriteFile(name+"/memory.memsw.limit_in_bytes", nil, 0o644))
			}
			return err
		}
		o := opener{name: "paddock", privileged: true, probe: func(*Tree) error { return nil }, kernel: kernel{mkdir, fakeKernelV1.rmdir}}
		for _, tt := range []struct {
			places            []place
			group, file, want string
		}{
			{[]place{{mount: f.dir, group: "."}}, spool.KeyCgroup, "/memory.swap.max", "0"},
			{[]place{fakeV1(t, ".", "freezer"), memory}, spool.KeyCgroupMemory, "/memory.memsw.limit_in_bytes", "4096"},
		} {
			tree, err := o.open(tt.places)
			if err != nil {
				t.Fatal(err)
			}
			g, err := tree.Make("1.1", Limits{Memory: 4096})
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(g[tt.group] + tt.file)
			if counts && string(b) != tt.want || !counts && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%v, swap is counted: %v: the limit is %q, %v; want %q", tree, counts, b, err, tt.want)
			}
		}
	}
}

// Where shepherds cannot be started in groups of version 2, those of version 1
// hold; and the first reason is told where nothing does.
func TestFallBack(t *testing.T) {
	f := newFake(t, "memory pids cpu\n")
	o := opener{name: "paddock", privileged: true, kernel: kernel{f.mkdir, f.rmdir}, probe: func(*Tree) error { return errors.New("not here") }}
	v2 := place{mount: f.dir, group: "."}
	if _, err := o.open([]place{v2}); err == nil || err.Error() != "not here" {
		t.Errorf("open: %v", err)
	}
	if _, err := os.Stat(f.dir + "/paddock"); err == nil {
		t.Error("a place is left")
	}
	if _, err := o.open([]place{fakeV1(t, ".", "memory")}); err == nil || !strings.Contains(err.Error(), "neither version 2 nor the freezer") {
		t.Errorf("open: %v", err)
	}
	o.rmdir = fakeKernelV1.rmdir
	o.mkdir = func(r *os.Root, name string) error {
		if r.Name() == f.dir {
			return f.mkdir(r, name)
		}
		return fakeKernelV1.mkdir(r, name)
	}
	tree, err := o.open([]place{v2, fakeV1(t, ".", "freezer")})
	if err != nil || tree.Tier() != "v1 (no controllers)" {
		t.Errorf("open: %v, %v", tree, err)
	}
}
