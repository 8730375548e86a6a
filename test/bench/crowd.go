package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/test/harness"
)

// crowdUsers are the owners of the jobs that wait.
const crowdUsers = 50

// crowd measures execd with a thousand jobs that run and a hundred thousand
// that wait.
func (b *bench) crowd() error {
	running, waiting, ends := b.size(1000, 20), b.size(100_000, 500), b.size(100, 10)
	d, err := b.startOurs("crowd", running)
	if err != nil {
		return err
	}
	defer func() { d.Kill() }()
	sleepers, err := b.sleep(d, running+ends)
	if err != nil {
		return err
	}
	if err := b.started(d, sleepers, running); err != nil {
		return err
	}
	out, err := b.ours(d, "qsub", "-terse", "-p", "-1000", "-l", "h_rt=3600", "-o", "/dev/null", "-j", "y", "-b", "y", "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot submit: %w\n%s", err, out)
	}
	d.Kill()
	if err := copyRecord(d, strings.TrimSpace(string(out)), waiting); err != nil {
		return err
	}
	begin := time.Now()
	if d, err = harness.Start(harness.Options{Bin: b.bin, Dir: d.Dir, Mode: "-root"}); err != nil {
		return err
	}
	ready := time.Since(begin)
	taken, err := processorTime(d.PID())
	if err != nil {
		return err
	}
	if err := harness.Settle(b.bin, d.Dir); err != nil {
		return err
	}
	each, err := b.refill(d, sleepers, running, ends)
	if err != nil {
		return err
	}
	few, many, err := b.submitTimes(d)
	if err != nil {
		return err
	}
	kb, err := harness.StatusField(d.PID(), "VmRSS")
	if err != nil {
		return err
	}
	what := fmt.Sprintf(", %d jobs wait, %d run", waiting, running)
	b.report(row{what: "start after SIGKILL" + what, unit: "s", ours: ready.Seconds(), alone: true, limit: 5})
	b.report(row{what: "processor time of that start", unit: "s", ours: taken.Seconds(), alone: true, limit: 1})
	b.report(row{what: "memory of execd" + what, unit: "MB", ours: float64(kb) / 1024, alone: true, limit: 120})
	b.report(row{what: "processor time for a task's end and the next start", unit: "ms", ours: milliseconds(each), alone: true, limit: 50})
	b.report(row{what: "qsub by one where nothing waits", ours: milliseconds(many) / milliseconds(few), alone: true, limit: 1.1})
	// To end the sleepers would start the crowd.
	d.Kill()
	harness.KillLeft(d.Dir)
	return nil
}

// sleep submits an array that sleeps.
func (b *bench) sleep(d *harness.Daemon, tasks int) (job string, err error) {
	out, err := b.ours(d, "qsub", "-terse", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n", "-t", fmt.Sprintf("1-%d", tasks), "sleep", "100000").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot submit: %w\n%s", err, out)
	}
	job, _, _ = strings.Cut(strings.TrimSpace(string(out)), ".")
	return job, nil
}

// started returns when a task runs. The spool is asked, not execd, whose time is
// being measured.
func (b *bench) started(d *harness.Daemon, job string, task int) error {
	pid := filepath.Join(api.DevPlaces(d.Dir).Spool, "active_jobs", fmt.Sprintf("%s.%d", job, task), "job_pid")
	return harness.WaitFor(harness.Patience, "task "+strconv.Itoa(task)+" of job "+job+" to run", func() (bool, error) {
		text, err := os.ReadFile(pid)
		return err == nil && len(text) > 1, nil
	})
}

// refill ends the first tasks of a job, each when the one that took the slot of
// the one before runs, and returns the processor time of execd that each cost.
func (b *bench) refill(d *harness.Daemon, job string, running, n int) (time.Duration, error) {
	begin, err := processorTime(d.PID())
	if err != nil {
		return 0, err
	}
	for i := 1; i <= n; i++ {
		task := strconv.Itoa(i)
		if out, err := b.ours(d, "qdel", job, "-t", task).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("cannot delete task %s: %w\n%s", task, err, out)
		}
		if err := b.started(d, job, running+i); err != nil {
			return 0, err
		}
	}
	end, err := processorTime(d.PID())
	return (end - begin) / time.Duration(n), err
}

// familyTime is what a process has taken, and the children that it has waited for.
func familyTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const first, last = 11, 14 // utime, stime, cutime, cstime, behind the name
	if len(fields) <= last {
		return 0, fmt.Errorf("cannot read the times of process %d: %q", pid, text)
	}
	var ticks int
	for _, f := range fields[first : last+1] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, fmt.Errorf("cannot read the times of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil // USER_HZ
}

// treeTime is the familyTime of a process and of all that have come of it and live. What ends meanwhile is of its parent's
// when that has waited for it.
func treeTime(pid int) (time.Duration, error) {
	total, err := familyTime(pid)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		for word := range strings.FieldsSeq(string(text)) {
			child, _ := strconv.Atoi(word)
			took, err2 := treeTime(child)
			if errors.Is(err2, fs.ErrNotExist) || errors.Is(err2, unix.ESRCH) {
				err2 = nil
			}
			total, err = total+took, errors.Join(err, err2)
		}
	}
	return total, err
}

// processorTime is what the threads of a process have taken.
func processorTime(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, t := range threads {
		text, err := os.ReadFile(t)
		if err != nil {
			continue // it has ended
		}
		word, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("cannot read %s: %q", t, text)
		}
		total += time.Duration(ns)
	}
	if total == 0 {
		return 0, fmt.Errorf("process %d has no schedstat", pid)
	}
	return total, nil
}

// copyRecord makes jobs of many users out of one, as if they had been submitted:
// to submit so many takes minutes.
func copyRecord(d *harness.Daemon, job string, n int) error {
	dir := filepath.Join(api.DevPlaces(d.Dir).Spool, "jobs")
	text, err := os.ReadFile(filepath.Join(dir, job))
	if err != nil {
		return err
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	var header map[string]any
	if err := json.Unmarshal(line, &header); err != nil {
		return err
	}
	first, err := strconv.Atoi(job)
	if err != nil {
		return err
	}
	for i := range n {
		user := i % crowdUsers
		name := fmt.Sprintf("crowd%d", user)
		header["job"], header["owner"], header["uid"] = first+1+i, name, 100_000+user
		header["group"], header["gid"], header["groups"] = name, 100_000+user, []string{name}
		header["request"].(map[string]any)["hard"] = []api.Resource{{Name: "h_rt", Value: strconv.Itoa(3600 + i%97)}}
		text, err := json.Marshal(header)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(first+1+i)), append(text, '\n'), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// submitTimes returns how long qsub takes with an execd in which nothing waits,
// and with the given one.
func (b *bench) submitTimes(d *harness.Daemon) (few, many time.Duration, err error) {
	idle, err := b.startOurs("crowd-idle", 1)
	if err != nil {
		return 0, 0, err
	}
	defer idle.Kill()
	if err := b.occupy(idle); err != nil {
		return 0, 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	var timers [2]*timer
	for i, d := range []*harness.Daemon{idle, d} {
		cmd := exec.Command(self, "-timer", fmt.Sprintf("%d:%d", b.user.UID, b.user.GID), filepath.Join(b.bin, "qsub"), "-o", "/dev/null", "-j", "y", "-b", "y", "true")
		cmd.Env = b.env(d)
		if timers[i], err = startTimer(cmd); err != nil {
			return 0, 0, err
		}
	}
	var times [2][]time.Duration
	for n := range b.size(100, 3) + 1 {
		for i, t := range timers {
			once, err := t.once("")
			if err != nil {
				return 0, 0, err
			}
			if n > 0 {
				times[i] = append(times[i], once)
			}
		}
	}
	for _, t := range timers {
		if err := t.stop(); err != nil {
			return 0, 0, err
		}
	}
	return median(times[0]), median(times[1]), b.release(idle)
}

// endAll deletes a job and returns when nothing of it runs.
func (b *bench) endAll(d *harness.Daemon, job string) error {
	if out, err := b.ours(d, "qdel", job).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot delete job %s: %w\n%s", job, err, out)
	}
	return harness.WaitFor(harness.Patience, "job "+job+" to end", func() (bool, error) {
		active, err := os.ReadDir(filepath.Join(api.DevPlaces(d.Dir).Spool, "active_jobs"))
		return len(active) == 0, err
	})
}

// idleTime measures what execd takes while jobs sleep, for each of them.
func (b *bench) idleTime() error {
	window := time.Duration(b.size(60, 3)) * time.Second
	few, many := b.size(100, 5), b.size(1000, 20)
	during := func(pid int) (time.Duration, error) {
		begin, err := processorTime(pid)
		if err != nil {
			return 0, err
		}
		<-time.After(window)
		end, err := processorTime(pid)
		return end - begin, err
	}

	// One after the other: sge_execd looks at all processes of the host.
	defer func() { _ = b.deleteTheirs(b.user.Name) }()
	if _, err := b.submit(longest, fmt.Sprintf("qsub -o /dev/null -j y -b y -shell n -t 1-%d sleep 100000", few)); err != nil {
		return err
	}
	if err := harness.WaitFor(harness.Patience, "the sleepers of Grid Engine to run", func() (bool, error) {
		out, err := b.ask("qstat -s r -u " + b.user.Name)
		return strings.Count(out, " r ") == few, err
	}); err != nil {
		return err
	}
	pid, err := b.ge.PID("sge_execd")
	if err != nil {
		return err
	}
	theirs, err := during(pid)
	if err != nil {
		return err
	}
	if err := b.deleteTheirs(b.user.Name); err != nil {
		return err
	}

	d, err := b.startOurs("idle", many)
	if err != nil {
		return err
	}
	defer d.Kill()
	job, err := b.sleep(d, many)
	if err != nil {
		return err
	}
	if err := b.started(d, job, many); err != nil {
		return err
	}
	if err := harness.Settle(b.bin, d.Dir); err != nil {
		return err
	}
	ours, err := during(d.PID())
	if err != nil {
		return err
	}
	perJob := func(total time.Duration, jobs int) float64 {
		return float64(total) / float64(time.Microsecond) / float64(jobs) / window.Seconds()
	}
	b.report(row{
		what: fmt.Sprintf("execd's processor time a second and sleeping job, %d and %d", few, many), unit: "µs",
		theirs: perJob(theirs, few), ours: perJob(ours, many), limit: 0.1,
	})
	return b.endAll(d, job)
}
