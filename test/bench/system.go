package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/test/harness"
)

// startOurs starts our execd in root mode, with Grid Engine's own queue, but
// so many slots.
func (b *bench) startOurs(name string, slots int) (*harness.Daemon, error) {
	return b.startFrom(b.bin, name, slots)
}

// startFrom is startOurs with the binaries of another directory, and variables.
func (b *bench) startFrom(bin, name string, slots int, variables ...string) (*harness.Daemon, error) {
	dir := filepath.Join(b.base, name)
	var queue string
	if err := repeat(tries, func() (err error) {
		queue, err = b.ge.Run("qconf", "-sq", "all.q")
		return err
	}); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	queue = strings.ReplaceAll(queue, "gehost", host)
	queue = regexp.MustCompile(`(?m)^slots .*`).ReplaceAllString(queue, "slots "+strconv.Itoa(slots))
	// What a killed execd leaves there goes with the rest.
	scratch := filepath.Join(b.base, "scratch")
	if err := os.MkdirAll(scratch, 0o777); err != nil {
		return nil, err
	}
	if err := os.Chmod(scratch, 0o777|os.ModeSticky); err != nil {
		return nil, err
	}
	queue = regexp.MustCompile(`(?m)^tmpdir .*`).ReplaceAllString(queue, "tmpdir "+scratch)
	for name, text := range map[string]string{"queues/all.q": queue, "sge_conf": "min_uid 1000\nmin_gid 1000\ngid_range 65600-67999\n"} {
		path := filepath.Join(api.DevPlaces(dir).Config, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return harness.Start(harness.Options{Bin: bin, Dir: dir, Mode: "-root", Env: append(os.Environ(), variables...)})
}

// ours returns a command of ours, run as the benchmark's user.
func (b *bench) ours(d *harness.Daemon, args ...string) *exec.Cmd {
	cmd := limited(longest, append([]string{filepath.Join(b.bin, args[0])}, args[1:]...)...)
	cmd.Env = b.env(d)
	cmd.Dir = b.user.Home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.user.Credential()}
	return cmd
}

// asRoot runs a command of ours for the execd of a directory, with the rights of root.
func (b *bench) asRoot(dir string, args ...string) error {
	cmd := limited(longest, append([]string{filepath.Join(b.bin, args[0])}, args[1:]...)...)
	cmd.Env = append(os.Environ(), "PADDOCK_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (b *bench) env(d *harness.Daemon) []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + b.user.Home, "USER=" + b.user.Name, "LOGNAME=" + b.user.Name,
		"PADDOCK_DIR=" + d.Dir,
	}
}

// occupy fills the only slot, so that what is submitted next stays pending.
func (b *bench) occupy(d *harness.Daemon) error {
	if out, err := b.ours(d, "qsub", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n", "sleep", "600").CombinedOutput(); err != nil {
		return fmt.Errorf("cannot submit: %w\n%s", err, out)
	}
	return harness.WaitFor(harness.Patience, "the sleeper to run", func() (bool, error) {
		jobs, err := d.Jobs()
		return len(jobs) == 1 && jobs[0].State == "r", err
	})
}

// release deletes all jobs and stops execd.
func (b *bench) release(d *harness.Daemon) error {
	if out, err := b.ours(d, "qdel", "-u", b.user.Name).CombinedOutput(); err != nil {
		d.Kill()
		return fmt.Errorf("cannot delete the jobs: %w\n%s", err, out)
	}
	if err := harness.WaitFor(harness.Patience, "the jobs to end", func() (bool, error) {
		jobs, err := d.Jobs()
		return len(jobs) == 0, err
	}); err != nil {
		d.Kill()
		return err
	}
	return d.Stop()
}

// serveTimer runs a command as a user once for each line of its input and
// prints the nanoseconds it took. It is how both sides' commands are timed
// alike, Grid Engine's inside its namespaces. A time is that of the last try.
func serveTimer(as string, times int, args []string) error {
	uid, gid, ok := strings.Cut(as, ":")
	if !ok || len(args) == 0 {
		return fmt.Errorf("-timer needs UID:GID and a command")
	}
	u, err := strconv.ParseUint(uid, 10, 32)
	if err != nil {
		return err
	}
	g, err := strconv.ParseUint(gid, 10, 32)
	if err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var elapsed time.Duration
		if err := repeat(times, func() error {
			cmd := limited(longest, args...)
			cmd.Dir = os.Getenv("HOME")
			cmd.Env = os.Environ()
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u), Gid: uint32(g)}}
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			begin := time.Now()
			err := cmd.Run()
			elapsed = time.Since(begin)
			if err != nil {
				return fmt.Errorf("cannot run %s: %w\n%s", strings.Join(args, " "), err, out.String())
			}
			return nil
		}); err != nil {
			return err
		}
		fmt.Println(elapsed.Nanoseconds())
	}
	return nil
}

// timer is a running `bench -timer`.
type timer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startTimer(cmd *exec.Cmd) (*timer, error) {
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &timer{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

// once has the program take a time, of what the line says.
func (t *timer) once(line string) (time.Duration, error) {
	if _, err := io.WriteString(t.in, line+"\n"); err != nil {
		return 0, err
	}
	text, err := t.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("cannot read the time: %w", err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return time.Duration(ns), err
}

func (t *timer) stop() error {
	t.in.Close()
	return t.cmd.Wait()
}

func (b *bench) qsubTime() error {
	d, err := b.startOurs("qsub", 1)
	if err != nil {
		return err
	}
	if err := b.occupy(d); err != nil {
		d.Kill()
		return err
	}
	args := []string{"-o", "/dev/null", "-j", "y", "-b", "y", "true"}
	// Held, so that Grid Engine's qmaster does not start them meanwhile.
	medians, err := b.inTurn(b.env(d), b.size(100, 3), append([]string{"qsub", "-h"}, args...), append([]string{"qsub"}, args...))
	if err != nil {
		return err
	}
	if err := b.deleteTheirs(b.user.Name); err != nil {
		return err
	}
	b.report(row{what: "qsub", unit: "ms", theirs: milliseconds(medians[0]), ours: milliseconds(medians[1]), limit: 0.12})
	return b.release(d)
}

// qrshTime runs true interactively, which needs no terminal.
func (b *bench) qrshTime() error {
	d, err := b.startOurs("qrsh", 1)
	if err != nil {
		return err
	}
	defer d.Kill()
	medians, err := b.inTurn(b.env(d), b.size(20, 2), []string{"qrsh", "true"}, []string{"qrsh", "true"})
	if err != nil {
		return err
	}
	b.report(row{what: "qrsh true", unit: "ms", theirs: milliseconds(medians[0]), ours: milliseconds(medians[1]), limit: 0.15})
	return d.Stop()
}

// jobRate submits an array of trivial tasks to both and waits for its end.
func (b *bench) jobRate() error {
	d, err := b.startOurs("jobs", 100)
	if err != nil {
		return err
	}
	defer d.Kill()
	few, many := b.size(400, 20), b.size(4000, 100)
	var rates [2][]time.Duration // of one task
	for range b.size(3, 1) {
		took, err := b.submit(longest, fmt.Sprintf("qsub -sync y -o /dev/null -j y -b y -shell n -t 1-%d /bin/true", few))
		if err != nil {
			return err
		}
		rates[0] = append(rates[0], took/time.Duration(few))

		begin := time.Now()
		if err := b.runArray(d, many); err != nil {
			return err
		}
		rates[1] = append(rates[1], time.Since(begin)/time.Duration(many))
	}
	b.report(row{
		what: "array tasks a second, submission to end", unit: "/s", atLeast: true, limit: 15,
		theirs: 1 / median(rates[0]).Seconds(), ours: 1 / median(rates[1]).Seconds(),
	})
	return d.Stop()
}

// runArray runs an array of trivial tasks to its end.
func (b *bench) runArray(d *harness.Daemon, tasks int) error {
	out, err := b.ours(d, "qsub", "-sync", "y", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n", "-t", fmt.Sprintf("1-%d", tasks), "/bin/true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot run an array: %w\n%s", err, out)
	}
	return nil
}

// largeArray submits a million tasks.
func (b *bench) largeArray() error {
	d, err := b.startOurs("array", 1)
	if err != nil {
		return err
	}
	if err := b.occupy(d); err != nil {
		d.Kill()
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	begin := time.Now()
	out, err := b.ours(d, "qsub", "-o", "/dev/null", "-j", "y", "-b", "y", "-t", "1-1000000", "true").CombinedOutput()
	elapsed := time.Since(begin)
	if err != nil {
		d.Kill()
		return fmt.Errorf("%w\n%s", err, out)
	}
	// It is there, and one line of qstat.
	var jobs api.JobsReply
	if err := d.Client.Call(ctx, api.VerbJobs, api.JobsRequest{Users: []string{"*"}}, &jobs); err != nil {
		return err
	}
	kb, err := harness.StatusField(d.PID(), "VmRSS")
	if err != nil {
		return err
	}
	b.report(row{what: "submit of an array of 1,000,000 tasks", unit: "ms", ours: milliseconds(elapsed), alone: true, limit: 1000})
	b.report(row{what: "memory of execd with it", unit: "MB", ours: float64(kb) / 1024, alone: true, limit: 60})
	return b.release(d)
}
