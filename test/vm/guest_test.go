package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hogWord makes of this binary a job that takes memory until it is ended.
const hogWord = "hog"

func hog() {
	var all [][]byte
	for {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
		if len(all) > 1<<10 {
			os.Exit(3) // nobody has stopped it
		}
	}
}

// aliceWord makes of this binary a program that alice has started.
const aliceWord = "alice"

func become(argv []string) {
	err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(alice), syscall.Setuid(alice))
	if err == nil {
		err = syscall.Exec(argv[0], argv, []string{"PATH=/bin", "HOME=/home/alice"})
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

const (
	programs = "/paddock"
	groups   = "/sys/fs/cgroup"
	alice    = 1000
)

// TestGuest is what is run in the machine.
func TestGuest(t *testing.T) {
	if os.Getenv(inGuest) != "1" {
		t.Skip("is run in the machine of TestMachine")
	}
	for _, tt := range []struct {
		name string
		test func(*testing.T)
	}{
		{"memory", testMemory},
		{"processes", testProcesses},
		{"bomb", testBomb},
		{"processor", testProcessor},
		{"devices", testDevices},
		{"daemon", testDaemon},
		{"epilog", testEpilog},
		{"restart", testRestart},
		{"stale", testStale},
		{"places", testPlaces},
		{"names", testNames},
		{"scratch", testScratch},
		{"clock", testClock},
		{"foreignclock", testForeignClock},
		{"clockspans", testClockSpans},
	} {
		t.Run(tt.name, tt.test)
	}
}

// cluster is an execd with a directory of its own.
type cluster struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	user uint32 // who submits
	mode string // option of execd
	// prelude is what a shell does before it becomes execd.
	prelude string
	via     string // what execs execd
}

func start(t *testing.T, queue, global string) *cluster {
	t.Helper()
	c := prepare(t, queue, global)
	c.run()
	return c
}

func prepare(t *testing.T, queue, global string) *cluster {
	t.Helper()
	c := &cluster{t: t, user: alice, mode: "-root", dir: filepath.Join("/srv", t.Name()[len("TestGuest/"):])}
	for name, text := range map[string]string{
		"etc/queues/all.q": "qname all.q\nslots 8\n" + queue + "\n",
		"etc/sge_conf":     global + "\n",
	} {
		path := filepath.Join(c.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		c.stop()
		if t.Failed() {
			t.Logf("log of execd:\n%s", c.log())
			traces, _ := filepath.Glob(c.dir + "/spool/active_jobs/*/trace")
			for _, path := range traces {
				b, _ := os.ReadFile(path)
				t.Logf("%s:\n%s", path, b)
			}
		}
	})
	return c
}

func (c *cluster) run() {
	c.t.Helper()
	c.cmd = exec.Command("/bin/sh", "-c", c.prelude+"exec "+c.via+programs+"/execd "+c.mode+" "+c.dir)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.OpenFile(c.dir+"/out", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	c.cmd.Stdout, c.cmd.Stderr = log, log
	before := strings.Count(c.log(), "execd: ready")
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.wait("execd is ready", func() bool { return strings.Count(c.log(), "execd: ready") > before })
}

func (c *cluster) stop() {
	if c.cmd != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		c.cmd = nil
	}
}

func (c *cluster) log() string {
	b, _ := os.ReadFile(c.dir + "/out")
	return string(b)
}

// wait waits for what ought to happen at once.
func (c *cluster) wait(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("not within %v: %s\n%s", patience, what, c.log())
		}
	}
}

// as runs a client command as the user.
func (c *cluster) as(name string, args ...string) string {
	c.t.Helper()
	uid := c.user
	cmd := exec.Command(programs+"/"+name, args...)
	cmd.Dir = "/tmp"
	cmd.Env = []string{"PATH=/bin", "HOME=/home/alice", "PADDOCK_DIR=" + c.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(strings.Join(args, " "), "-sync") {
		c.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// submit submits a script and waits until it runs.
func (c *cluster) submit(script string) (group string) {
	c.t.Helper()
	path := filepath.Join("/tmp", "job-"+filepath.Base(c.dir))
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		c.t.Fatal(err)
	}
	out := c.as("qsub", "-o", "/dev/null", "-j", "y", "-terse", path)
	id := strings.TrimSpace(out) + ".1"
	group = c.group(id)
	c.wait("job "+id+" runs", func() bool { return strings.Contains(read(group+"/job/cgroup.events"), "populated 1") })
	return group
}

// group returns the control group of a run.
func (c *cluster) group(id string) string {
	_, rest, _ := strings.Cut(c.log(), "control groups: v2 at ")
	base, _, _ := strings.Cut(rest, " ")
	return base + "/" + id
}

func (c *cluster) gone(group string) bool {
	_, err := os.Stat(group)
	return err != nil
}

func read(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

func number(path, word string) int {
	for line := range strings.Lines(read(path)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == word {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return -1
}

// expectAccounting looks at what qacct says of a job.
func (c *cluster) expectAccounting(job string, want ...string) {
	c.t.Helper()
	out := c.as("qacct", "-j", job)
	for _, w := range want {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), w) {
			c.t.Errorf("qacct -j %s: no %q in\n%s", job, w, out)
		}
	}
}

const outOfMemory = "job was killed: out of memory, limit h_vmem 64M (peak "

func testMemory(t *testing.T) {
	c := start(t, "h_vmem 64M", "")
	out := c.as("qsub", "-sync", "y", "-b", "y", "-o", "/dev/null", "-j", "y", programs+"/vm.test", hogWord)
	if !strings.Contains(out, outOfMemory) {
		t.Errorf("qsub -sync y does not say %q:\n%s", outOfMemory, out)
	}
	c.expectAccounting("1", "failed 100", "exit_status 137")
	if !strings.Contains(c.log(), outOfMemory) {
		t.Errorf("the log does not say %q", outOfMemory)
	}
	// In a pipe of a script, too: the script is not left to wonder.
	out = c.as("qsub", "-sync", "y", "-b", "y", "-o", "/dev/null", "-j", "y", "-shell", "y", programs+"/vm.test hog | cat; sleep 100")
	if !strings.Contains(out, outOfMemory) {
		t.Errorf("qsub -sync y of a pipe does not say %q:\n%s", outOfMemory, out)
	}
	// Address space is not limited, and a job within its limit ends as it likes.
	out = c.as("qsub", "-sync", "y", "-b", "y", "-o", "/dev/null", "-j", "y", "-shell", "y", `[ "$(ulimit -v)" = unlimited ] && exit 7`)
	if !strings.Contains(out, "exited with exit code 7") {
		t.Errorf("with ulimit -v: %s", out)
	}
	c.wait("all groups are gone", func() bool { return c.gone(c.group("1.1")) && c.gone(c.group("3.1")) })
}

// bomb forks for ever, and each of its processes loses its parent.
const bomb = "bomb() { bomb | bomb & }\nbomb\nsleep 1000\n"

func testProcesses(t *testing.T) {
	// As root, whom the limit of processes does not concern: only the group's holds.
	c := prepare(t, "", "execd_params H_MAXPROC=60")
	c.user, c.mode = 0, "-dev"
	c.run()
	group := c.submit("(while :; do sleep 1000 & done)\nsleep 1000\n") // the inner shell gives up
	c.wait("the job uses up its processes", func() bool { return number(group+"/job/pids.events", "max") > 0 })
	if n, _ := strconv.Atoi(strings.TrimSpace(read(group + "/job/pids.current"))); n > 60 {
		t.Errorf("%d processes; want at most 60", n)
	}
	c.delete(group, "1")
}

func testBomb(t *testing.T) {
	c := start(t, "", "")
	group := c.submit(bomb)
	c.wait("the bomb has gone off", func() bool {
		n, _ := strconv.Atoi(strings.TrimSpace(read(group + "/job/pids.current")))
		return n > 500
	})
	c.delete(group, "1")
}

// delete deletes a job and measures until nothing of it is left.
func (c *cluster) delete(group, job string) {
	c.t.Helper()
	begun := time.Now()
	c.as("qdel", job)
	called := time.Since(begun)
	empty := func() bool { return !strings.Contains(read(group+"/cgroup.events"), "populated 1") }
	var written time.Duration // since which the kernel is at work
	n := ""
	c.wait("the group is empty", func() bool {
		if written == 0 {
			n = strings.TrimSpace(read(group + "/job/pids.peak"))
			if strings.Contains(read(c.dir+"/spool/active_jobs/"+job+".1/trace"), "killed the control group") {
				written = time.Since(begun)
			}
		}
		return empty()
	})
	took := time.Since(begun)
	if n == "" {
		n = "all"
	}
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	fmt.Printf("vm: %s: %s processes were gone %v after qdel was called: it returned after %v, cgroup.kill was written after %v\n",
		c.t.Name(), n, ms(took), ms(called), ms(written))
	c.wait("the group is removed", func() bool { return c.gone(group) })
	c.wait("the job has ended", func() bool {
		return strings.Contains(c.log(), "job "+job+".1: ended") || strings.Contains(c.log(), "job "+job+": ended")
	})
	c.expectAccounting(job, "failed 100", "exit_status 137")
}

func testProcessor(t *testing.T) {
	c := start(t, "", "execd_params CPU_QUOTA=slots")
	group := c.submit("while :; do :; done &\nwhile :; do :; done\n")
	// How much that is is the kernel's to see to, and on a busy host nothing to
	// measure in a short time.
	file := group + "/cpu.max"
	if read(file) == "max 100000\n" {
		file = group + "/job/cpu.max"
	}
	if got := read(file); got != "100000 100000\n" {
		t.Errorf("%s is %q; want all of one processor", file, got)
	}
	stat := filepath.Dir(file) + "/cpu.stat"
	c.wait("the loops are throttled", func() bool { return number(stat, "nr_throttled") > 10 })
	c.delete(group, "1")
}

// A device of a unit is whose the unit is, and nobody else's.
func testDevices(t *testing.T) {
	c := prepare(t, "complex_values gpu=1(gpu0[device=/dev/full])", "")
	if err := os.WriteFile(c.dir+"/etc/complexes", []byte("gpu gpu RSMAP <= YES JOB 0 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.run()
	if !strings.Contains(c.log(), "devices are kept from jobs that were not granted them: /dev/full") {
		t.Error("the log does not say which devices are kept from jobs")
	}
	const script = "n=1; (: </dev/full) 2>/dev/null && n=$((n+1)); (: >/dev/full) 2>/dev/null && n=$((n+2)); exit $n"
	for _, tt := range []struct {
		options []string
		want    string
	}{
		{nil, "Job 1 exited with exit code 1."},
		{[]string{"-l", "gpu=1"}, "Job 2 exited with exit code 4."},
	} {
		args := append([]string{"qsub", "-sync", "y", "-b", "y", "-o", "/dev/null", "-j", "y", "-shell", "y"}, tt.options...)
		if out := c.as(args[0], append(args[1:], script)...); !strings.Contains(out, tt.want) {
			t.Errorf("qsub %q: %s; want %s", tt.options, out, tt.want)
		}
	}
}

// A daemon that has cut every tie but the group's is gone after the job.
func testDaemon(t *testing.T) {
	c := start(t, "", "")
	out := c.as("qsub", "-sync", "y", "-b", "y", "-o", "/dev/null", "-j", "y", "-shell", "y",
		`(setsid env -i /bin/sh -c 'echo started >/tmp/daemon; /bin/sleep 7654 </dev/null >/dev/null 2>&1 &' &) ; until [ -s /tmp/daemon ]; do sleep 0.4; done; exit 4`)
	if !strings.Contains(out, "exited with exit code 4") {
		t.Errorf("the job: %s", out)
	}
	if text := read("/tmp/daemon"); text != "started\n" {
		t.Errorf("the daemon has left %q", text)
	}
	c.wait("the daemon is gone", func() bool { return !alive("7654") })
	c.wait("the group is removed", func() bool { return c.gone(c.group("1.1")) })
}

// What a prolog leaves lives until the epilog has ended, and no longer; none of
// it is in the job's leaf.
func testEpilog(t *testing.T) {
	for name, text := range map[string]string{
		"prolog": "#!/bin/sh\nsetsid sleep 4321 </dev/null >/dev/null 2>&1 &\necho $! >/tmp/daemon.pid\necho prolog $(cat /proc/self/cgroup) >>/tmp/where\n",
		"epilog": "#!/bin/sh\nkill -0 $(cat /tmp/daemon.pid) && echo alive >>/tmp/where\necho epilog $(cat /proc/self/cgroup) >>/tmp/where\n",
	} {
		if err := os.WriteFile("/tmp/"+name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := start(t, "prolog root@/tmp/prolog\nepilog root@/tmp/epilog", "")
	out := c.as("qsub", "-sync", "y", "-b", "y", "-o", "/tmp/o", "-j", "y", "-shell", "y", `cat /proc/self/cgroup`)
	if !strings.Contains(out, "exited with exit code 0") {
		t.Errorf("the job: %s", out)
	}
	where := read("/tmp/where")
	for _, want := range []string{"prolog 0::", "1.1/procedures\nalive\nepilog 0::"} {
		if !strings.Contains(where, want) {
			t.Errorf("no %q in %q", want, where)
		}
	}
	if got := read("/tmp/o"); !strings.HasSuffix(got, "1.1/job\n") {
		t.Errorf("the job is in %q", got)
	}
	c.wait("the prolog's daemon is gone", func() bool {
		return !alive("4321") && c.gone(c.group("1.1"))
	})
}

// Group and limits hold while execd is replaced under the job.
func testRestart(t *testing.T) {
	c := start(t, "h_vmem 64M", "")
	group := c.submit("while [ ! -e /tmp/go ]; do sleep 0.4; done\nexec " + programs + "/vm.test hog\n")
	c.stop()
	c.run()
	if got := strings.TrimSpace(read(group + "/memory.max")); got != strconv.Itoa(64<<20) {
		t.Errorf("memory.max is %q after the restart", got)
	}
	if err := os.WriteFile("/tmp/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.wait("the job is killed", func() bool { return strings.Contains(c.log(), outOfMemory) })
	c.wait("the group is removed", func() bool { return c.gone(group) })

	// The shepherd killed: execd kills the group.
	group = c.submit("setsid env -i /bin/sleep 8765 &\nsleep 1000\n")
	n := 0
	c.wait("the shepherd writes its pid", func() bool {
		n, _ = strconv.Atoi(strings.TrimSpace(read(c.dir + "/spool/active_jobs/2.1/pid")))
		return n > 0
	})
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.wait("the group is removed", func() bool { return c.gone(group) })
}

// alive reports whether a process has that argument.
func alive(argument string) bool {
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range list {
		if strings.Contains(read(path)+"\x00", "\x00"+argument+"\x00") {
			return true
		}
	}
	return false
}

// Groups that no run has are removed at the start, those of another execd not.
func testStale(t *testing.T) {
	c := start(t, "", "")
	own := c.group("99.1")
	other := groups + "/paddock-other/99.1"
	c.stop()
	for _, dir := range []string{own, own + "/job", other} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	stray := exec.Command("/bin/sleep", "1000")
	if err := stray.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own+"/job/cgroup.procs", []byte(strconv.Itoa(stray.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	c.run()
	c.wait("the stale group is gone", func() bool { return c.gone(own) })
	if stray.Wait() == nil {
		t.Error("what was in the stale group ended by itself")
	}
	if c.gone(other) {
		t.Error("the group of another execd is gone")
	}
}

// execd finds its place wherever it is started.
func testPlaces(t *testing.T) {
	for _, tt := range []struct{ name, own, want string }{
		{"delegated", "site", "site"},
		{"subgroup", "paddock.service/execd", "paddock.service"},
		{"service", "other.service", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			own := filepath.Join(groups, tt.own)
			if err := os.MkdirAll(own, 0o755); err != nil {
				t.Fatal(err)
			}
			c := prepare(t, "h_vmem 64M", "")
			c.prelude = "echo $$ >" + own + "/cgroup.procs; "
			c.run()
			if base := filepath.Dir(filepath.Dir(c.group("1.1"))); base != filepath.Join(groups, tt.want) {
				t.Errorf("groups are made in %s; want %s", base, filepath.Join(groups, tt.want))
			}
			out := c.as("qsub", "-sync", "y", "-b", "y", "-o", "/dev/null", "-j", "y", programs+"/vm.test", hogWord)
			if !strings.Contains(out, outOfMemory) {
				t.Errorf("qsub -sync y does not say %q:\n%s", outOfMemory, out)
			}
			// And again, from its leaf.
			c.stop()
			c.run()
		})
	}
	t.Run("user", func(t *testing.T) {
		// A group that was delegated to alice, and nothing of root.
		own := groups + "/alice"
		if err := os.MkdirAll(own, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{own, own + "/cgroup.procs", own + "/cgroup.subtree_control", own + "/cgroup.threads"} {
			if err := os.Chown(path, alice, alice); err != nil {
				t.Fatal(err)
			}
		}
		c := prepare(t, "h_vmem 64M", "")
		if err := os.Chown(c.dir, alice, alice); err != nil {
			t.Fatal(err)
		}
		c.mode, c.prelude, c.via = "-dev", "echo $$ >"+own+"/cgroup.procs; ", programs+"/vm.test "+aliceWord+" "
		c.run()
		if base := filepath.Dir(filepath.Dir(c.group("1.1"))); base != own {
			t.Errorf("groups are made in %s; want %s", base, own)
		}
		out := c.as("qsub", "-sync", "y", "-b", "y", "-o", "/dev/null", "-j", "y", programs+"/vm.test", hogWord)
		if !strings.Contains(out, outOfMemory) {
			t.Errorf("qsub -sync y does not say %q:\n%s", outOfMemory, out)
		}
	})
	t.Run("killed", func(t *testing.T) {
		// From a group that was once killed newer kernels kill all that is started
		// in another one: no job may meet that.
		own := groups + "/killed.service"
		if err := os.MkdirAll(own, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(own+"/cgroup.kill", []byte("1"), 0o644); err != nil {
			t.Fatal(err)
		}
		c := prepare(t, "h_vmem 64M", "")
		c.prelude = "echo $$ >" + own + "/cgroup.procs; "
		c.run()
		_, rest, _ := strings.Cut(c.log(), "control groups: ")
		tier, _, _ := strings.Cut(rest, "\n")
		fmt.Printf("vm: %s: %s\n", t.Name(), tier)
		out := c.as("qsub", "-sync", "y", "-b", "y", "-o", "/dev/null", "-j", "y", "-shell", "y", "exit 7")
		if !strings.Contains(out, "exited with exit code 7") {
			t.Errorf("the job: %s", out)
		}
	})
	t.Run("crowded", func(t *testing.T) {
		// Others are in the group: the top is left.
		own := groups + "/crowd"
		if err := os.MkdirAll(own, 0o755); err != nil {
			t.Fatal(err)
		}
		c := prepare(t, "", "")
		c.prelude = "echo $$ >" + own + "/cgroup.procs; sleep 1000 & "
		c.run()
		if base := filepath.Dir(filepath.Dir(c.group("1.1"))); base != groups {
			t.Errorf("groups are made in %s; want %s", base, groups)
		}
		if err := os.WriteFile(own+"/cgroup.kill", []byte("1"), 0o644); err != nil {
			t.Fatal(err)
		}
	})
}

// Name services that fail for a moment put no job in error.
func testNames(t *testing.T) {
	const other = "/usr/sbin/getent" // which is found first
	c := start(t, "", "")
	job := c.qsub("exit 7", "-h")
	c.stop() // what it knows of users is forgotten
	if err := os.MkdirAll(filepath.Dir(other), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(other) })
	if err := os.WriteFile(other, []byte("#!/bin/sh\nif [ \"$2\" = 1000 ]; then echo asked >>/tmp/asked; exit 3; fi\nexec /bin/getent \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.run()
	c.user = 0
	c.as("qrls", strconv.Itoa(job))
	c.wait("the owner is asked for again", func() bool { return strings.Count(read("/tmp/asked"), "asked") > 1 })
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if r := c.ended(job); r.Failed != 0 || r.ExitStatus != 7 {
		t.Errorf("the job has failed %d, exit_status %d", r.Failed, r.ExitStatus)
	}
	if log := c.log(); !strings.Contains(log, `begin: cannot look up user "1000": exit status 3 (tried again in 1s)`) {
		t.Errorf("the log does not say that name services failed:\n%s", log)
	}
}
