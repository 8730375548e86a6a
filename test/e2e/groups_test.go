package e2e

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"paddock/test/harness"
)

// tiers are what a host may have of control groups, and how an execd is started
// that sees no more of them. What it and its jobs see of the mounts is theirs.
var tiers = map[string][]string{
	"best": nil,
	"v1":   {"unshare", "-m", "/bin/sh", "-c", `umount -a -t cgroup2 && exec "$@"`, "sh"},
	"none": {"unshare", "-m", "/bin/sh", "-c", `umount -a -t cgroup,cgroup2 && exec "$@"`, "sh"},
}

// eachTier runs a test with an execd in each of the tiers. kind is what execd
// says of it.
func eachTier(t *testing.T, queue string, test func(t *testing.T, f *field, kind string)) {
	t.Helper()
	for name, via := range tiers {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			if via != nil && second == nil {
				t.Skip("needs root: it unmounts control groups")
			}
			f := makeField(t, second != nil, queue)
			f.via = via
			f.start()
			// It may exit with 1, since there are procedures that are not there yet.
			out, err := exec.Command(filepath.Join(bin, "execd"), "-status", "-dev", f.dir).Output()
			_, kind, ok := strings.Cut(string(out), " groups=")
			kind, _, _ = strings.Cut(kind, "\n")
			if !ok {
				t.Fatalf("execd -status: %v\n%s", err, out)
			}
			t.Log("groups: " + kind)
			switch {
			case name == "v1" && kind == "none":
				t.Skip("needs control groups of version 1")
			case name != "best" && !strings.HasPrefix(kind, name):
				t.Errorf("groups=%s; want %s", kind, name)
			}
			test(t, f, kind)
			if err := f.d.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// groups returns the control groups of a job that runs.
func (f *field) groups(job int) []string {
	f.t.Helper()
	text, err := os.ReadFile(f.active(job, "config"))
	if err != nil {
		f.t.Fatal(err)
	}
	var list []string
	for line := range strings.Lines(string(text)) {
		key, path, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(key, "paddock_cgroup") {
			list = append(list, path)
		}
	}
	return list
}

// has reports whether a job has written a file.
func (f *field) has(name string) bool {
	info, err := os.Stat(filepath.Join(f.pub, name))
	return err == nil && info.Size() > 0
}

// TestMemoryLimit has a job that wants more than h_vmem, beside one that does
// not.
func TestMemoryLimit(t *testing.T) {
	eachTier(t, "h_vmem 100M\nslots 2\nprolog PUB/before\n", func(t *testing.T, f *field, kind string) {
		f.plan("")
		grouped := strings.Contains(kind, "memory")
		f.script("before", "ulimit -v >PUB/before.limit\n")
		f.script("waits", "ulimit -v >PUB/waits.limit\nwhile ! test -e PUB/go; do sleep 0.4; done\n")
		f.script("eats", "echo began >PUB/eats.began\nexec perl -e '$x = \"a\" x 400_000_000; sleep 1000'\n")
		// The rest of the job has no reason of its own to end.
		f.script("shares", "perl -e '$x = \"a\" x 400_000_000; sleep 1000' | cat\nsleep 1000\n")

		// Or it goes on as if nothing was wrong.
		f.script("goes-on", "perl -e '$x = \"a\" x 400_000_000'\nexit 0\n")

		neighbour := f.submit(filepath.Join(f.pub, "waits"))
		f.until("the neighbour runs", func() bool { return f.has("waits.limit") })
		const perProcess = "102400\n"
		want := map[bool]string{true: "unlimited\n", false: perProcess}
		if got := f.read("waits.limit"); got != want[grouped] {
			t.Errorf("ulimit -v of a job is %q; want %q", got, want[grouped])
		}
		// In version 1 groups limit the job alone.
		if got, held := f.read("before.limit"), strings.HasPrefix(kind, "v2") && grouped; got != want[held] {
			t.Errorf("ulimit -v of its prolog is %q; want %q", got, want[held])
		}

		eats := filepath.Join(f.pub, "eats")
		if !grouped {
			list := f.over(f.submit("-r", "y", eats), "0 12") // ENOMEM
			if len(list) == 1 && list[0].RuMaxRSS > 100<<10 {
				t.Errorf("it used %v KiB", list[0].RuMaxRSS)
			}
		} else {
			const reason = "job was killed: out of memory, limit h_vmem 100M (peak "
			for _, script := range []string{eats, filepath.Join(f.pub, "shares"), filepath.Join(f.pub, "goes-on")} {
				out, _ := f.command("qsub", "-sync", "y", "-r", "y", "-o", "/dev/null", "-j", "y", "-wd", "/", script)
				if !strings.Contains(out, reason) {
					t.Errorf("qsub -sync y does not say %q:\n%s", reason, out)
				}
			}
			for job := neighbour + 1; job <= neighbour+3; job++ {
				f.over(job, "100 137")
			}
			log, err := os.ReadFile(harness.LogName(f.dir))
			if err != nil || strings.Count(string(log), reason) != 3 {
				t.Errorf("the log does not say three times %q: %v", reason, err)
			}
		}
		if !f.has("eats.began") {
			t.Error("the job has not begun")
		}
		if !f.alive(f.number(neighbour, "job_pid")) {
			t.Error("the neighbour was ended, too")
		}
		if err := os.WriteFile(filepath.Join(f.pub, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		f.over(neighbour, "0 0")
		f.goesOn()
	})
}

// TestGroups has a job that wants out of its groups, which stay what they are
// when execd is killed and another takes over, and go with the job.
func TestGroups(t *testing.T) {
	eachTier(t, "h_vmem 100M\n", func(t *testing.T, f *field, kind string) {
		f.plan("")
		f.script("leaves", `
cat /proc/self/cgroup >PUB/before
find /sys/fs/cgroup -maxdepth 4 '(' -name tasks -o -name cgroup.procs ')' | while read file; do
  (echo $$ >$file) 2>/dev/null && echo $file >>PUB/out
done
cat /proc/self/cgroup >PUB/after
echo tried >PUB/tried
while ! test -e PUB/go; do sleep 0.4; done
`)
		job := f.submit(filepath.Join(f.pub, "leaves"))
		f.until("the job has tried", func() bool { return f.has("tried") })
		if second != nil { // of what is not root's the user may do what he likes
			if out, err := os.ReadFile(filepath.Join(f.pub, "out")); err == nil || f.read("before") != f.read("after") {
				t.Errorf("the job went to %s\nbefore:\n%safter:\n%s", out, f.read("before"), f.read("after"))
			}
		}
		groups := f.groups(job)
		if (len(groups) == 0) != (kind == "none") {
			t.Errorf("groups: %q", groups)
		}
		pid := f.number(job, "job_pid")
		stale := ""
		if len(groups) > 0 {
			stale = filepath.Join(filepath.Dir(groups[0]), "99.1")
			if err := os.MkdirAll(stale+"/job", 0o755); err != nil {
				t.Fatal(err)
			}
		}
		f.d.Kill()
		f.start()
		if _, err := os.Stat(stale); stale != "" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the group of no run is there: %v", err)
		}
		for _, group := range groups {
			tasks, err1 := os.ReadFile(group + "/cgroup.procs")
			inner, err2 := os.ReadFile(group + "/job/cgroup.procs")
			if err1 != nil && err2 != nil || !strings.Contains("\n"+string(tasks)+string(inner), "\n"+strconv.Itoa(pid)+"\n") {
				t.Errorf("job %d is not in %s after the restart: %v, %v", pid, group, err1, err2)
			}
		}
		if err := os.WriteFile(filepath.Join(f.pub, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		f.over(job, "0 0")
		for _, group := range groups {
			f.until("the end of "+group, func() bool { _, err := os.Stat(group); return errors.Is(err, fs.ErrNotExist) })
		}
	})
}

// TestTaskGroups has tasks of a parallel job in groups within the job's: what
// limits a slot limits a task, what limits the job both, and nothing is left of
// them. Who enters the job is in them as well.
func TestTaskGroups(t *testing.T) {
	eachTier(t, "h_vmem 100M\nslots 4\n", func(t *testing.T, f *field, kind string) {
		f.plan("")
		f.parallel()
		grouped := strings.Contains(kind, "memory")
		f.script("tasks", `
PATH=$SGE_BINARY_PATH:$PATH
qrsh -inherit $HOSTNAME 'cat /proc/self/cgroup >PUB/task.groups; ulimit -v >PUB/task.limit'
qrsh -inherit $HOSTNAME 'echo began >PUB/task.began; exec perl -e '"'"'$x = "a" x 170_000_000; sleep 1000'"'"
echo $? >PUB/task.code
while ! test -e PUB/go; do sleep 0.4; done
`)
		job := f.submit("-pe", "tight", "2", filepath.Join(f.pub, "tasks"))
		f.until("the second task has ended", func() bool { return f.has("task.code") })
		// Without groups it is told that there is no more, and ends as it likes.
		if got := f.read("task.code"); got == "0\n" || grouped != (got == "137\n") {
			t.Errorf("a task that takes too much memory ends with %q", got)
		}
		groups := f.groups(job)
		for _, group := range groups {
			_, name, _ := strings.Cut(group, "/paddock")
			if !strings.Contains(f.read("task.groups"), "/paddock"+name+"/1.") {
				t.Errorf("the task is not in a group within %s:\n%s", group, f.read("task.groups"))
			}
		}
		out, err := f.command("qrsh", "-into", strconv.Itoa(job), "ulimit -v; cat /proc/self/cgroup")
		limit := map[bool]string{true: "unlimited\n", false: "204800\n"}[grouped]
		if err != nil || !strings.HasPrefix(out, limit) {
			t.Errorf("who enters the job has the limit and groups %q, %v; want %q first", out, err, limit)
		}
		for _, group := range groups {
			_, name, _ := strings.Cut(group, "/paddock")
			if !strings.Contains(out, "/paddock"+name+"/into.1") {
				t.Errorf("who enters the job is not in a group within %s:\n%s", group, out)
			}
		}
		if err := os.WriteFile(filepath.Join(f.pub, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		f.until("the end of the job", func() bool { _, err := os.Stat(f.active(job, "config")); return errors.Is(err, fs.ErrNotExist) })
		for _, group := range groups {
			f.until("the end of "+group, func() bool { _, err := os.Stat(group); return errors.Is(err, fs.ErrNotExist) })
		}
	})
}

// parallel adds a parallel environment, tight, whose jobs start tasks.
func (f *field) parallel() {
	f.t.Helper()
	etc := filepath.Join(f.dir, "etc")
	queue, err := os.ReadFile(filepath.Join(etc, "queues", "all.q"))
	if err == nil {
		err = os.MkdirAll(filepath.Join(etc, "pes"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(etc, "pes", "tight"), []byte("pe_name tight\ncontrol_slaves TRUE\n"), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(etc, "queues", "all.q"), append(queue, "pe_list tight\n"...), 0o644)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "qconf"), "-reload")
	cmd.Env = plainEnv(f.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("qconf -reload: %v\n%s", err, out)
	}
}
