package cgroup

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// hogWord makes of this binary a job that takes memory until it is ended.
const hogWord = "hog"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == hogWord {
		var all [][]byte
		for len(all) < 512 {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			all = append(all, b)
		}
		os.Exit(3) // nobody has stopped it
	}
	os.Exit(m.Run())
}

// eachTier runs a test in the best tier that this host has and in that of
// version 1, as if the tree of version 2 were not mounted.
func eachTier(t *testing.T, test func(t *testing.T, tree *Tree)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes control groups")
	}
	mounts, err1 := os.ReadFile("/proc/self/mountinfo")
	own, err2 := os.ReadFile("/proc/self/cgroup")
	if err := errors.Join(err1, err2); err != nil {
		t.Skip("needs /proc: ", err)
	}
	places, err := locate(string(mounts), string(own))
	if err != nil {
		t.Skip("needs control groups: ", err)
	}
	for _, tier := range []string{"best", "v1"} {
		t.Run(tier, func(t *testing.T) {
			places := places
			if tier == "v1" {
				places = slices.DeleteFunc(slices.Clone(places), func(p place) bool { return p.controllers == nil })
				if len(places) == 0 {
					t.Skip("needs control groups of version 1")
				}
			}
			o := opener{
				name: "paddock-test-" + strconv.Itoa(os.Getpid()), privileged: true, kernel: realKernel,
				probe: func(tree *Tree) error { return tree.probe("/bin/true") },
			}
			tree, err := o.open(places)
			if err != nil {
				t.Skip("needs the right to make control groups: ", err)
			}
			t.Cleanup(func() {
				if err := tree.Sweep(func(string) bool { return false }); err != nil {
					t.Error(err)
				}
				tree.Leave()
				for _, h := range tree.all {
					if _, err := os.Stat(h.mount + "/" + h.base); err == nil {
						t.Errorf("%s/%s is left", h.mount, h.base)
					}
				}
			})
			if tier == "v1" && tree.tier != "v1" {
				t.Errorf("the tier is %v", tree)
			}
			t.Log(tree)
			test(t, tree)
		})
	}
}

func need(t *testing.T, tree *Tree, controller string) {
	t.Helper()
	if !tree.Has(controller) {
		t.Skip("needs the controller ", controller)
	}
}

func mustMake(t *testing.T, tree *Tree, l Limits) Group {
	t.Helper()
	g, err := tree.Make("1.1", l)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// holds returns the path of the group that holds the run.
func (g Group) holds() string { return g[spool.KeyCgroup] + g[spool.KeyCgroupFreezer] }

// procs counts the processes of the run's job.
func (g Group) procs(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(g.holds() + "/" + spool.CgroupJob + "/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// start starts a program in the groups of a run, as its job.
func start(t *testing.T, g Group, argv ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	files := []string{g.holds() + "/" + spool.CgroupJob + "/cgroup.procs"}
	for _, key := range spool.JoinedCgroups {
		if path, ok := g[key]; ok {
			files = append(files, path+"/tasks")
		}
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", "for f in " + strings.Join(files, " ") + "; do echo $$ >$f || exit 99; done; exec \"$@\"", "sh"}, argv...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}

// until waits for something that ought to happen.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within a minute: ", what)
		}
	}
}

func word(t *testing.T, file, key string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	t.Fatalf("no %s in %s:\n%s", key, file, b)
	return 0
}

func TestKernelMemory(t *testing.T) { eachTier(t, testKernelMemory) }

func testKernelMemory(t *testing.T, tree *Tree) {
	need(t, tree, "memory")
	const limit = 64 << 20
	g := mustMake(t, tree, Limits{Memory: limit})
	cmd, _ := start(t, g, os.Args[0], hogWord)
	if err := cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the hog has ended: %v", err)
	}
	u, err := tree.Usage(g)
	// The kernel lets some of its own through a full limit, and counts one that
	// dies with its group twice.
	if err != nil || u.OOMKills < 1 || u.Peak < limit/2 || u.Peak > limit+limit/16 || u.Memory > u.Peak {
		t.Errorf("Usage = %+v, %v", u, err)
	}
}

// onDisk returns a directory whose files are not memory themselves.
func onDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		t.Skipf("files in %s are memory themselves, there is no cache of them", dir)
	}
	return dir
}

// What is cached of a file that the job has written is no memory of the job's.
func TestKernelCache(t *testing.T) { eachTier(t, testKernelCache) }

func testKernelCache(t *testing.T, tree *Tree) {
	need(t, tree, "memory")
	g := mustMake(t, tree, Limits{Memory: 256 << 20})
	const size = 24 << 20
	file := filepath.Join(onDisk(t), "file")
	_, out := start(t, g, "/bin/sh", "-c", "head -c "+strconv.Itoa(size)+" /dev/zero >"+file+"; echo written; sleep 1000")
	if line, err := out.ReadString('\n'); line != "written\n" {
		t.Fatalf("the job says %q, %v", line, err)
	}
	u, err := tree.Usage(g)
	if err != nil || u.Memory == 0 || u.Memory > size/4 {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	if u.Peak < size {
		t.Skipf("nothing was cached: peak %d", u.Peak)
	}
}

// What is written to a disk is counted, and what is read unless it is cached.
func TestKernelDisk(t *testing.T) { eachTier(t, testKernelDisk) }

func testKernelDisk(t *testing.T, tree *Tree) {
	need(t, tree, "io")
	file := filepath.Join(onDisk(t), "file")
	g := mustMake(t, tree, Limits{})
	const size = 4 << 20
	job := func(argv ...string) Usage {
		t.Helper()
		if cmd, _ := start(t, g, argv...); cmd.Wait() != nil {
			t.Fatalf("%q: %v", argv, cmd.ProcessState)
		}
		u, err := tree.Usage(g)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	if u := job("dd", "if=/dev/zero", "of="+file, "bs=1M", "count=4", "conv=fsync"); u.Written < size || u.Read >= size {
		t.Errorf("Usage after %d bytes were written = %+v", size, u)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if u := job("dd", "if="+file, "of=/dev/null", "bs=1M"); u.Read < size {
		t.Errorf("Usage after %d bytes were read = %+v", size, u)
	}
}

func TestKernelProcs(t *testing.T) { eachTier(t, testKernelProcs) }

func testKernelProcs(t *testing.T, tree *Tree) {
	need(t, tree, "pids")
	const limit = 20
	g := mustMake(t, tree, Limits{Procs: limit})
	// A shell gives up when it cannot fork; the outer one tells.
	_, out := start(t, g, "/bin/sh", "-c", "(while :; do sleep 1000 & done) >/dev/null 2>&1; echo over; sleep 1000")
	if line, err := out.ReadString('\n'); line != "over\n" {
		t.Fatalf("the job says %q, %v", line, err)
	}
	if n := g.procs(t); n > limit || n < limit-2 { // the inner shell is gone
		t.Errorf("%d processes", n)
	}
	dir := g[spool.KeyCgroupPids]
	if dir == "" {
		dir = g.holds() + "/" + spool.CgroupJob
	}
	if n := word(t, dir+"/pids.events", "max"); n == 0 {
		t.Error("the limit was never reached")
	}
}

// However many there are and however fast they fork, all are gone at once.
func TestKernelBomb(t *testing.T) { eachTier(t, testKernelBomb) }

func testKernelBomb(t *testing.T, tree *Tree) {
	g := mustMake(t, tree, Limits{Procs: 3000}) // this test may be held up
	// A shell that can fork no more gives up; the outer one stays.
	cmd, _ := start(t, g, "/bin/sh", "-c", "bomb() { while :; do setsid sleep 1000 & done; }\nbomb & bomb & wait\nexec sleep 1000")
	until(t, "500 processes", func() bool { return g.procs(t) > 500 })
	begun, n := time.Now(), g.procs(t)
	if err := tree.Remove(g); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	t.Logf("%d processes were gone after %v", n, took.Round(time.Millisecond))
	if cmd.Wait() == nil {
		t.Error("the bomb has ended by itself")
	}
	for key, dir := range g {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %s is there: %v", key, dir, err)
		}
	}
}

func TestKernelProcessor(t *testing.T) { eachTier(t, testKernelProcessor) }

func testKernelProcessor(t *testing.T, tree *Tree) {
	need(t, tree, "cpu")
	if runtime.NumCPU() < 2 {
		t.Skip("needs two processors: the only one is no limit to who may have one")
	}
	g := mustMake(t, tree, Limits{CPUs: 1, Weight: 3})
	dir, file, want, most := g.holds(), "/cpu.weight", "300\n", "10000"
	if v1, ok := g[spool.KeyCgroupCPU]; ok {
		dir, file, want, most = v1, "/cpu.shares", "3072\n", "262144"
	}
	if b, err := os.ReadFile(dir + file); err != nil || string(b) != want {
		t.Errorf("%s is %q, %v; want %q", file, b, err, want)
	}
	// Others may keep the processors busy: nobody is throttled who gets none.
	all := strings.TrimSuffix(dir, "1.1") + file
	if err := os.WriteFile(all, []byte(most), 0o644); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	start(t, g, "/bin/sh", "-c", "for i in 1 2 3 4; do while :; do :; done & done; wait")
	until(t, "the processors are throttled", func() bool {
		if word(t, dir+"/cpu.stat", "nr_throttled") > 0 {
			return true
		}
		took := time.Since(begun)
		u, err := tree.Usage(g)
		if err == nil && took > time.Minute/2 && u.User+u.System < took*9/10 {
			t.Skipf("needs more than one processor, and others left it %v in %v", u.User+u.System, took)
		}
		return false
	})
	until(t, "time is counted", func() bool {
		u, err := tree.Usage(g)
		return err == nil && u.User > 100*time.Millisecond && g.procs(t) == 5
	})
}

// What sits in a group that the job has made, or that a shepherd has frozen
// before it was killed, goes as well.
func TestKernelRemove(t *testing.T) { eachTier(t, testKernelRemove) }

func testKernelRemove(t *testing.T, tree *Tree) {
	g := mustMake(t, tree, Limits{})
	job := g.holds() + "/" + spool.CgroupJob
	frozen, _ := start(t, g, "sleep", "1000")
	until(t, "the job is there", func() bool { return g.procs(t) == 1 })
	file, text := job+"/cgroup.freeze", "1"
	if !tree.all[0].v2() {
		file, text = job+"/freezer.state", "FROZEN"
	}
	inner := job + "/inner"
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), os.Mkdir(inner, 0o755)); err != nil {
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
	if err := tree.Remove(g); err != nil {
		t.Fatal(err)
	}
	if sleeper.Wait() == nil || frozen.Wait() == nil {
		t.Error("a process in the group ended by itself")
	}
	if err := tree.Remove(g); err != nil {
		t.Errorf("Remove of what is gone: %v", err)
	}
	if _, err := tree.Usage(g); err == nil {
		t.Error("Usage of what is gone: no error")
	}
}

// Groups of no run go at the start of an execd, with all that is in them; those
// of a run stay as they are, and are found again by what config says.
func TestKernelSweep(t *testing.T) { eachTier(t, testKernelSweep) }

func testKernelSweep(t *testing.T, tree *Tree) {
	all := Limits{Memory: 64 << 20, Procs: 50, CPUs: 1, Devices: []Device{{Major: 1, Minor: 5}}}
	runs := map[string]Group{}
	commands := map[string]*exec.Cmd{}
	outs := map[string]*bufio.Reader{}
	for _, name := range []string{"1.1", "2.1"} {
		g, err := tree.Make(name, all)
		if err != nil {
			t.Fatal(err)
		}
		runs[name] = g
		commands[name], outs[name] = start(t, g, "/bin/sh", "-c", "echo here; exec sleep 1000")
		if line, err := outs[name].ReadString('\n'); line != "here\n" {
			t.Fatalf("the job says %q, %v", line, err)
		}
	}
	if err := tree.Sweep(func(name string) bool { return name == "2.1" }); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(outs["1.1"]); err != nil || commands["1.1"].Wait() == nil {
		t.Errorf("what no run has is left: %v", err)
	}
	c := &spool.Config{}
	if err := runs["2.1"].Record(c); err != nil {
		t.Fatal(err)
	}
	if got := Of(c); !maps.Equal(got, runs["2.1"]) {
		t.Errorf("Of = %v; want %v", got, runs["2.1"])
	}
	if _, err := tree.Usage(Of(c)); err != nil {
		t.Errorf("Usage of the run: %v", err)
	}
	for _, h := range tree.all {
		if names, err := h.children(h.base); err != nil || !slices.Equal(names, []string{"2.1"}) {
			t.Errorf("%s: left: %q, %v", h.mount, names, err)
		}
	}
	if err := tree.Kill(Of(c)); err != nil {
		t.Fatal(err)
	}
	if commands["2.1"].Wait() == nil {
		t.Error("the job ended by itself")
	}
}

// What cannot be started in a group is found out at once.
func TestKernelProbe(t *testing.T) {
	eachTier(t, func(t *testing.T, tree *Tree) {
		if !tree.all[0].v2() {
			t.Skip("nothing is born in a group of version 1")
		}
		if tree.probe("/bin/false") == nil {
			t.Error("no error")
		}
	})
}
