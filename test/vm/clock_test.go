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

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
)

// setClock sets the clock of the machine forward or back; the time that this
// process itself measures goes on as before.
func setClock(t *testing.T, by time.Duration) {
	t.Helper()
	ts := unix.NsecToTimespec(time.Now().Round(0).Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		t.Fatal(err)
	}
}

// keepClock has the clock right again when the test is over.
func keepClock(t *testing.T) {
	begun, was := time.Now(), time.Now().Round(0)
	t.Cleanup(func() { setClock(t, was.Add(time.Since(begun)).Sub(time.Now().Round(0))) })
}

// qsub submits a command and returns the number of the job.
func (c *cluster) qsub(command string, args ...string) int {
	c.t.Helper()
	args = append(args, "-terse", "-wd", "/tmp", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "y", command)
	out := c.as("qsub", args...)
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		c.t.Fatalf("qsub: %s", out)
	}
	return n
}

// after is what -a is given for a time that is so far away by the clock.
func after(d time.Duration) string { return time.Now().Add(d).Format("200601021504.05") }

// started waits until a job has begun, or is over.
func (c *cluster) started(job int) {
	c.t.Helper()
	c.wait(fmt.Sprintf("job %d runs", job), func() bool {
		_, over := c.record(job)
		return over || read(fmt.Sprintf("%s/spool/active_jobs/%d.1/job_pid", c.dir, job)) != ""
	})
}

// record looks for a job in the accounting file.
func (c *cluster) record(job int) (r accounting.Record, ok bool) {
	for line := range strings.Lines(read(c.dir + "/accounting")) {
		if r, _ = accounting.Parse([]byte(line)); line[0] != '#' && r.JobNumber == job {
			return r, true
		}
	}
	return r, false
}

// ended waits for the record of a job in the accounting file.
func (c *cluster) ended(job int) (r accounting.Record) {
	c.t.Helper()
	c.wait(fmt.Sprintf("job %d has ended", job), func() (ok bool) {
		r, ok = c.record(job)
		return ok
	})
	return r
}

// late is how much later than it should something may happen, or be seen, on a busy
// host. The clock is set by hours.
const late = 5 * time.Minute

// expectRun looks at the record of a job that has run for so long.
func (c *cluster) expectRun(job int, ran time.Duration) {
	c.t.Helper()
	r := c.ended(job)
	// Of a shepherd that is not ours execd counts from when it was started.
	if off := time.Duration(r.RuWallclock)*time.Second - ran; r.RuWallclock < 0 || off < -late || off > late {
		c.t.Errorf("job %d has ru_wallclock %d; want about %v", job, r.RuWallclock, ran)
	}
	if r.EndTime < r.StartTime || r.StartTime == 0 {
		c.t.Errorf("job %d has started at %d and ended at %d", job, r.StartTime, r.EndTime)
	}
	fmt.Printf("vm: %s: job %d ran for %v: ru_wallclock %d, from %d to %d\n", c.t.Name(), job, ran.Round(time.Millisecond), r.RuWallclock, r.StartTime, r.EndTime)
}

// waits checks that a job is still to be started.
func (c *cluster) waits(job int) {
	c.t.Helper()
	if _, err := os.Stat(fmt.Sprintf("%s/spool/active_jobs/%d.1", c.dir, job)); err == nil {
		c.t.Errorf("job %d has started, and is to wait for its time", job)
	}
	if out := c.as("qstat", "-u", "*"); !strings.Contains(out, " qw ") {
		c.t.Errorf("job %d does not wait:\n%s", job, out)
	}
}

// limited waits for the end of a job with h_rt, and measures how long it ran since
// it was about to be submitted.
func (c *cluster) limited(job int, since time.Time, limit time.Duration) {
	c.t.Helper()
	r := c.ended(job)
	ran := time.Since(since)
	if r.Failed != 37 || ran < limit || ran > limit+late {
		c.t.Errorf("job %d with h_rt of %v: failed %d after %v", job, limit, r.Failed, ran)
	}
	c.expectRun(job, limit)
}

// testClock sets the clock while jobs run, wait for a time and are limited, and
// while there is no execd. What lasts counts as it passes; what waits for a time
// of the day starts at that time.
func testClock(t *testing.T) {
	keepClock(t)
	const limit = 8 * time.Second

	c := start(t, "", "")
	long := c.qsub("sleep 1000", "-l", "h_rt=3600")
	c.started(long)
	longSince := time.Now()
	since := time.Now()
	short := c.qsub("sleep 1000", "-l", "h_rt=8")
	near := c.qsub("sleep 0.1", "-a", after(3*time.Hour))
	far := c.qsub("sleep 0.1", "-a", after(100*time.Hour))
	c.started(short)

	// What another execd's job of the next number may have, whom it does not make
	// older than the machine.
	living := fmt.Sprintf("/tmp/%d.1.all.q", far+1)
	err := os.Mkdir(living, 0o755)
	if err == nil {
		err = os.Chown(living, alice, alice)
	}
	if err != nil {
		t.Fatal(err)
	}

	setClock(t, 5*time.Hour)
	c.expectRun(near, 0)
	c.waits(far)
	c.limited(short, since, limit)

	since = time.Now()
	short = c.qsub("sleep 1000", "-l", "h_rt=8")
	quickSince := time.Now()
	quick := c.qsub("while [ ! -e /tmp/quick ]; do sleep 0.4; done")
	c.started(short)
	if _, err := os.Stat(living); err != nil || short != far+1 {
		t.Errorf("job %d has taken another's scratch directory: %v", short, err)
	}
	c.started(quick)
	setClock(t, -10*time.Hour)
	near = c.qsub("sleep 0.1", "-a", after(time.Hour))
	if err := os.WriteFile("/tmp/quick", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := c.ended(quick); r.RuWallclock < 0 || r.RuWallclock > int64(time.Since(quickSince)/time.Second)+1 {
		t.Errorf("job %d has ru_wallclock %d after at most %v", quick, r.RuWallclock, time.Since(quickSince))
	}
	c.limited(short, since, limit)
	c.waits(near)
	setClock(t, 2*time.Hour)
	c.expectRun(near, 0)
	c.waits(far)

	for _, by := range []time.Duration{6 * time.Hour, -30 * time.Hour} {
		c.stop()
		setClock(t, by)
		c.run()
		c.waits(far)
		out := c.as("qstat", "-j", strconv.Itoa(long))
		_, text, _ := strings.Cut(out, "wallclock=")
		text, _, _ = strings.Cut(text, " ")
		want := time.Since(longSince)
		shown, err := time.ParseDuration(strings.Replace(strings.Replace(text, ":", "h", 1), ":", "m", 1) + "s")
		if d := shown - want; err != nil || d < -late || d > late {
			t.Errorf("after a restart with the clock %v away a job that has run for %v is shown with wallclock=%s", by, want, text)
		}
		c.busy(2 * time.Second)
	}
	setClock(t, 130*time.Hour)
	c.expectRun(far, 0)
	c.as("qdel", strconv.Itoa(long))
	ran := time.Since(longSince)
	c.expectRun(long, ran)
	c.busy(time.Second)
}

// busy looks at what execd uses of a processor while it has little to do.
func (c *cluster) busy(during time.Duration) {
	c.t.Helper()
	used := func() time.Duration {
		stat := read(filepath.Join("/proc", strconv.Itoa(c.cmd.Process.Pid), "stat"))
		f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		return time.Duration(user+system) * time.Second / 100
	}
	// What spins does so every time.
	share := 1.0
	for i := 0; i < 10 && share > 0.5; i++ {
		before := used()
		time.Sleep(during)
		share = float64(used()-before) / float64(during)
		fmt.Printf("vm: %s: execd uses %.2f of a processor\n", c.t.Name(), share)
	}
	if share > 0.5 {
		c.t.Errorf("execd uses %.2f of a processor after the clock was set", share)
	}
}

// testForeignClock is about a shepherd that knows no limits of time: execd counts.
func testForeignClock(t *testing.T) {
	keepClock(t)
	const other = "/tmp/other-shepherd"
	program := read(programs + "/shepherd")
	if err := os.WriteFile(other, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	c := start(t, "", "shepherd_cmd "+other)
	const limit = 8 * time.Second
	since := time.Now()
	job := c.qsub("sleep 1000", "-l", "h_rt=8")
	c.started(job)
	setClock(t, 5*time.Hour)
	c.limited(job, since, limit)
	since = time.Now()
	job = c.qsub("sleep 1000", "-l", "h_rt=8")
	c.started(job)
	setClock(t, -11*time.Hour)
	c.stop() // and with an execd that has not seen the clock set
	setClock(t, 2*time.Hour)
	c.run()
	c.limited(job, since, limit)
}

// testClockSpans sets the clock while claims have leases, jobs that are to leave their
// slots have time to, a hook has its limit and a job of qrsh waits for its user: all are
// spans, which no clock makes longer or shorter, also where execd is started anew.
func testClockSpans(t *testing.T) {
	keepClock(t)
	const span = 15 * time.Second
	c := prepare(t, "rerun TRUE", "execd_params QRSH_GRACE=15")
	knobs := "MachineMaxVacateTime = 15\nSITE_HOOK_PREPARE_JOB = " + c.dir + "/prepare\nSITE_HOOK_PREPARE_JOB_TIMEOUT = 15\n"
	for path, text := range map[string]string{c.dir + "/etc/hooks.conf": knobs, c.dir + "/prepare": "#!/bin/sh\nexec sleep 1000\n"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.run()
	ctx := t.Context()
	client := api.NewClient(api.DevPlaces(c.dir).Socket)
	claim := func(lease time.Duration) *api.Claim {
		t.Helper()
		got, err := client.Claim(ctx, api.ClaimRequest{Lease: int(lease / time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for round, by := range []time.Duration{6 * time.Hour, -12 * time.Hour, 6 * time.Hour, -12 * time.Hour} {
		restart := round > 1
		leaves := c.qsub("trap '' TERM; echo >/tmp/deaf; while :; do sleep 1; done", "-r", "n")
		c.wait("the job heeds no signal", func() bool { return os.Remove("/tmp/deaf") == nil })
		long := claim(30 * time.Minute)
		shell := exec.Command(programs+"/qrsh", "sleep 1000")
		shell.Env, shell.Dir = []string{"PATH=/bin", "HOME=/home/alice", "PADDOCK_DIR=" + c.dir}, "/tmp"
		shell.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: alice, Gid: alice}}
		shell.Stdout, shell.Stderr = os.Stdout, os.Stderr
		if err := shell.Start(); err != nil {
			t.Fatal(err)
		}
		qrsh := leaves + 1
		c.started(qrsh)

		begun := map[string]time.Time{}
		ends := map[string]func() bool{}
		begin := func(what string, over func() bool) { begun[what], ends[what] = time.Now(), over }
		ended := func(job int) func() bool {
			return func() bool { _, ok := c.record(job); return ok }
		}
		begin("a job without its user", ended(qrsh))
		_ = shell.Process.Kill()
		_ = shell.Wait()
		var short *api.Claim
		begin("a claim that nobody renews", func() bool {
			_, err := short.Check(ctx)
			return err != nil && !errors.Is(err, api.ErrUnreachable)
		})
		short = claim(span)
		begin("a job that is to leave", ended(leaves))
		out, err := exec.Command(programs+"/execd", "-vacate", "-root", c.dir, "1").CombinedOutput()
		if err != nil {
			t.Fatalf("execd -vacate: %v\n%s", err, out)
		}
		if !restart { // which ends the hooks
			begin("a hook", func() bool { return strings.Contains(c.as("qstat", "-u", "*"), " Eqw ") })
			c.qsub("true", "-attr", `HookKeyword="SITE"`)
		} else {
			c.stop()
		}
		setClock(t, by)
		if restart {
			c.run()
		}
		for len(ends) > 0 {
			for what, over := range ends {
				ran := time.Since(begun[what])
				if !over() {
					if ran > span+late {
						t.Errorf("with the clock set by %v, execd started anew %v, %s is not over after %v; want %v\n%s", by, restart, what, ran, span, c.log())
						delete(ends, what)
					}
					continue
				}
				delete(ends, what)
				fmt.Printf("vm: %s: with the clock set by %v, started anew %v, %s has ended after at most %v\n", t.Name(), by, restart, what, time.Since(begun[what]).Round(time.Millisecond))
				if time.Since(begun[what]) < span {
					t.Errorf("with the clock set by %v, execd started anew %v, %s is over after %v; want %v", by, restart, what, time.Since(begun[what]), span)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if state, err := long.Renew(ctx); err != nil || state.Lease < 1800-1 || state.State != "Claimed" {
			t.Errorf("with the clock set by %v the long claim is %+v, %v", by, state, err)
		}
		if err := long.Release(ctx); err != nil {
			t.Error(err)
		}
		for _, job := range []int{leaves, qrsh} {
			if r := c.ended(job); r.RuWallclock < 0 || time.Duration(r.RuWallclock)*time.Second > time.Hour || r.EndTime < r.StartTime {
				t.Errorf("with the clock set by %v job %d has ru_wallclock %d, from %d to %d", by, job, r.RuWallclock, r.StartTime, r.EndTime)
			}
		}
		if !restart {
			c.as("qdel", "-u", "alice")
		}
		c.busy(time.Second)
	}
}
