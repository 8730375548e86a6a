package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"paddock/test/harness"
)

// memoryGroup makes a control group of version 1 with a limit of memory, and returns
// its path, or skips the test.
func memoryGroup(t *testing.T, bytes int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a control group")
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		f, kind := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(kind) < 3 || kind[0] != "cgroup" || !strings.Contains(","+kind[2]+",", ",memory,") {
			continue
		}
		dir, err := os.MkdirTemp(f[4], "paddock-e2e-oom-") //nolint:usetesting // it is no ordinary directory
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() {
			if err := harness.WaitFor(harness.Patience, "the group to be empty", func() (bool, error) {
				// With those in it that an execd which was killed has made for its jobs.
				return true, exec.Command("find", dir, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").Run()
			}); err != nil {
				t.Error(err)
			}
		})
		if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte(strconv.Itoa(bytes)), 0); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	t.Skip("no control groups of version 1 with memory")
	return ""
}

// TestExecdOutOfMemory has the kernel kill execd, since memory runs out where it is,
// while it takes jobs and starts them. The next one has them all.
func TestExecdOutOfMemory(t *testing.T) {
	parallel(t)
	const limit = 96 << 20
	group := memoryGroup(t, limit)
	f := makeField(t, true, "slots 4\nshell_start_mode unix_behavior\n")
	f.plan("")
	f.via = []string{"/bin/sh", "-c", "echo $$ >" + group + "/cgroup.procs && exec \"$@\"", "sh"}
	f.start()
	// Of all in the group it is what is to be killed: it has more than its shepherds.
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", f.d.PID()), []byte("1000"), 0); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan int, 1<<16)
	go func() {
		defer close(accepted)
		for {
			out, err := f.command("qsub", "-terse", "-b", "y", "-shell", "n", "-wd", "/", "-j", "y", "-o", "/dev/null", "/bin/true")
			if err != nil {
				return // execd is gone
			}
			if job, err := strconv.Atoi(strings.TrimSpace(out)); err == nil {
				accepted <- job
			}
		}
	}()
	jobs := []int{<-accepted, <-accepted, <-accepted}
	// It takes what there is, bit by bit, until execd has no program any more. It may be
	// killed itself before that, or a shepherd: then it is tried again.
	hog := fmt.Sprintf(`while (readlink "/proc/%d/exe") { push @all, "x" x 500000; select undef, undef, undef, 0.001 }`, f.d.PID())
	for range 20 {
		_ = exec.Command(f.via[0], append(f.via[1:], "perl", "-e", hog)...).Run()
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", f.d.PID())); err != nil {
			break
		}
	}
	if err := harness.WaitFor(harness.Patience, "execd to be killed", func() (bool, error) { return f.d.Exited(), nil }); err != nil {
		f.d.Kill()
		t.Fatal(err)
	}
	for job := range accepted {
		jobs = append(jobs, job)
	}
	f.start()
	ended := 0
	for _, job := range jobs {
		err := f.d.WaitJob(job)
		if err != nil && strings.Contains(err.Error(), "before the job was started, by signal KILL") {
			continue // it waits in error
		}
		if err != nil {
			t.Fatal(err)
		}
		if list := f.records(job); len(list) != 1 {
			t.Errorf("job %d has %d lines of accounting", job, len(list))
		} else if list[0].Failed == 0 && list[0].ExitStatus == 0 {
			ended++
		}
	}
	// The kernel may have taken a shepherd or two first, or what was to become a job.
	if ended < len(jobs)/2 {
		t.Errorf("%d of %d jobs have come to their end", ended, len(jobs))
	}
	if err := f.d.Stop(); err != nil {
		t.Error(err)
	}
}
