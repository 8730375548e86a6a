package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/test/harness"
)

// leanTime measures what a task of an array costs, beside what people run on one host
// without a batch system: task-spooler and GNU parallel.
func (b *bench) leanTime() error {
	d, err := b.startOurs("lean", 2)
	if err != nil {
		return err
	}
	defer d.Kill()
	return errors.Join(b.leanRates(d), b.leanSubmit(d), b.leanProcessor(d), b.leanCalls(d), d.Stop())
}

// plain returns a shell command line of the user's, with task-spooler on two slots.
func (b *bench) plain(line string) *exec.Cmd {
	cmd := limited(longest, "sh", "-e", "-c", line)
	cmd.Env = []string{
		"PATH=/usr/bin:/bin", "HOME=" + b.user.Home, "TMPDIR=" + b.user.Home, "LC_ALL=C",
		"TS_SOCKET=" + filepath.Join(b.user.Home, "tsp"), "TS_SLOTS=2",
	}
	cmd.Dir = b.user.Home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.user.Credential()}
	return cmd
}

// spooled calls a function while there is a server of task-spooler's.
func (b *bench) spooled(do func() error) error {
	if out, err := b.plain("tsp -n true; tsp -w").CombinedOutput(); err != nil {
		return fmt.Errorf("cannot start task-spooler: %w\n%s", err, out)
	}
	err := do()
	if out, kerr := b.plain("tsp -K").CombinedOutput(); kerr != nil {
		err = errors.Join(err, fmt.Errorf("cannot stop task-spooler: %w\n%s", kerr, out))
	}
	return err
}

// leanRates has all three run trivial tasks, two at a time.
func (b *bench) leanRates(d *harness.Daemon) error {
	tasks, submissions := b.size(3000, 20), b.size(1000, 10)
	var rates [3][]time.Duration // of one task
	take := func(side, n int, do func() error) error {
		begin := time.Now()
		err := do()
		rates[side] = append(rates[side], time.Since(begin)/time.Duration(n))
		return err
	}
	shell := func(line string) error {
		out, err := b.plain(line).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", line, err, out)
		}
		return nil
	}
	for range b.size(3, 1) {
		if err := errors.Join(
			take(0, submissions, func() error {
				return b.spooled(func() error {
					return shell(fmt.Sprintf("for i in $(seq %d); do tsp true; done >/dev/null; tsp -w", submissions))
				})
			}),
			take(1, tasks, func() error { return shell(fmt.Sprintf("seq %d | parallel --will-cite -j 2 /bin/true", tasks)) }),
			take(2, tasks, func() error { return b.runArray(d, tasks) }),
		); err != nil {
			return err
		}
	}
	rate := func(side int) float64 { return 1 / median(rates[side]).Seconds() }
	b.report(row{what: "array tasks a second on 2 slots, beside task-spooler", unit: "/s", atLeast: true, limit: 1, theirs: rate(0), ours: rate(2)})
	b.report(row{what: "the same, beside GNU parallel", unit: "/s", atLeast: true, limit: 2, theirs: rate(1), ours: rate(2)})
	return nil
}

// leanSubmit times submissions, of which only ours are on disk when the command returns.
func (b *bench) leanSubmit(d *harness.Daemon) error {
	var times [2][]time.Duration
	err := b.spooled(func() error {
		for range b.size(100, 3) {
			for side, cmd := range []*exec.Cmd{
				b.plain("exec tsp true"),
				b.ours(d, "qsub", "-h", "-o", "/dev/null", "-j", "y", "-b", "y", "true"),
			} {
				begin := time.Now()
				if out, err := cmd.CombinedOutput(); err != nil {
					return fmt.Errorf("cannot submit: %w\n%s", err, out)
				}
				times[side] = append(times[side], time.Since(begin))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if out, err := b.ours(d, "qdel", "-u", b.user.Name).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot delete the jobs: %w\n%s", err, out)
	}
	b.report(row{what: "qsub, beside tsp", unit: "ms", limit: 4, theirs: milliseconds(median(times[0])), ours: milliseconds(median(times[1]))})
	return nil
}

// leanProcessor measures the processor time of a task, in execd, its shepherd and its
// program, beside that of the program alone.
func (b *bench) leanProcessor(d *harness.Daemon) error {
	tasks := b.size(1000, 20)
	before, err := familyTime(d.PID())
	if err != nil {
		return err
	}
	if err := b.runArray(d, tasks); err != nil {
		return err
	}
	after, err := familyTime(d.PID())
	if err != nil {
		return err
	}
	alone := func() (time.Duration, error) {
		var u unix.Rusage
		err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
	}
	begin, err := alone()
	for range tasks {
		err = errors.Join(err, limited(longest, "/bin/true").Run())
	}
	end, err2 := alone()
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	b.report(row{
		what: "processor time of a task, beside that of its program", unit: "ms", limit: 5.7,
		theirs: milliseconds(end-begin) / float64(tasks), ours: milliseconds(after-before) / float64(tasks),
	})
	return nil
}

// waits are the system calls whose number tells how long something took, and not what it did.
var waits = map[string]bool{
	"nanosleep": true, "clock_nanosleep": true, "futex": true, "epoll_pwait": true, "epoll_wait": true, "sched_yield": true,
	"restart_syscall": true, "rt_sigreturn": true, "tgkill": true,
}

// leanCalls counts system calls and bytes for a task, in execd, its shepherd and its program.
func (b *bench) leanCalls(d *harness.Daemon) error {
	tasks := b.size(100, 10)
	before, err := written(d.PID())
	if err != nil {
		return err
	}
	if err := b.runArray(d, tasks); err != nil {
		return err
	}
	after, err := written(d.PID())
	if err != nil {
		return err
	}
	file := filepath.Join(b.base, "calls")
	trace := limited(longest, "strace", "-f", "-c", "-o", file, "-p", strconv.Itoa(d.PID()))
	says, err := trace.StderrPipe()
	if err != nil {
		return err
	}
	if err := trace.Start(); err != nil {
		return fmt.Errorf("cannot trace: %w", err)
	}
	attached := bufio.NewReader(says)
	if line, err := attached.ReadString('\n'); err != nil {
		return errors.Join(fmt.Errorf("cannot trace: %s%w", line, err), trace.Wait())
	}
	go func() { _, _ = attached.WriteTo(io.Discard) }()
	err = b.runArray(d, tasks)
	_ = trace.Process.Signal(syscall.SIGINT)
	_ = trace.Wait() // it ends by the signal
	if err != nil {
		return err
	}
	calls, err := countCalls(file)
	if err != nil {
		return err
	}
	b.report(row{what: "system calls of a task, without waits", unit: "", alone: true, limit: 900, ours: float64(calls) / float64(tasks)})
	b.report(row{what: "bytes written for a task", unit: "kB", alone: true, limit: 16, ours: float64(after-before) / 1e3 / float64(tasks)})
	return nil
}

// written is how many bytes a process has written, and the children that it has waited for.
func written(pid int) (int64, error) {
	name := fmt.Sprintf("/proc/%d/io", pid)
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "wchar: "); ok {
			return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no wchar", name)
}

// countCalls reads the table that strace -c prints.
func countCalls(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	total := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // % time, seconds, usecs/call, calls, errors if there are, syscall
		if len(fields) < 5 || waits[fields[len(fields)-1]] || fields[len(fields)-1] == "total" {
			continue
		}
		if n, err := strconv.Atoi(fields[3]); err == nil {
			total += n
		}
	}
	if total == 0 {
		return 0, fmt.Errorf("strace has counted nothing: %s", text)
	}
	return total, nil
}
