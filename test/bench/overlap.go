package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/test/harness"
)

// pace is how many bytes a second output travels with here, as over a slow link.
const pace = 20_000_000

// overlapping is how many jobs run while output of the first travels.
const overlapping = 200

// overlap has jobs run while output of others travels.
type overlap struct {
	*bench
	base string // everything of the jobs
	far  string // a directory on another file system: nothing can be renamed to it
	mega int    // MB that the first job leaves
}

// overlapTime measures how long a slot is idle between two jobs while output travels, and
// what that costs execd.
func (b *bench) overlapTime() (err error) {
	far, err := os.MkdirTemp("/dev/shm", "paddock-bench-")
	if err != nil {
		return err
	}
	o := &overlap{bench: b, base: filepath.Join(b.base, "overlapping"), far: far, mega: b.size(1000, 20)}
	defer func() { err = errors.Join(err, os.RemoveAll(far)) }()
	if err := errors.Join(os.Chmod(far, 0o777), b.mine(o.base)); err != nil {
		return err
	}
	return errors.Join(o.queue(), o.fetched(), o.third(), o.memory(), o.rate())
}

// script is of a job that says when it begins and ends, and leaves what its second argument
// says if its number is among the others. The slot is not idle while its shell starts, so that is one
// which starts soon, and not bash.
const script = `#!/bin/busybox ash
echo "b $EPOCHREALTIME" >>BASE/times
n=${SGE_TASK_ID/undefined/$1} size=$2
shift 2
case " $* " in *" $n "*) head -c ${size}m /dev/zero >out.$n ;; esac
echo "e $EPOCHREALTIME" >>BASE/times
`

// prepare writes the script, and returns its path.
func (o *overlap) prepare() (string, error) {
	path := filepath.Join(o.base, "script")
	if err := os.Remove(filepath.Join(o.base, "times")); err != nil && !os.IsNotExist(err) {
		return "", err
	}
	return path, os.WriteFile(path, []byte(strings.ReplaceAll(script, "BASE", o.base)), 0o755)
}

// gaps waits until n jobs have run, and returns the times between the end of each and the
// beginning of the next.
func (o *overlap) gaps(n int) (gaps []time.Duration, err error) {
	var words []string
	err = harness.WaitFor(longest, fmt.Sprintf("%d jobs to have run", n), func() (bool, error) {
		text, err := os.ReadFile(filepath.Join(o.base, "times"))
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		words = strings.Fields(string(text))
		return len(words) >= 4*n, err
	})
	if err != nil {
		return nil, err
	}
	for i := 2; i+4 <= 4*n-2; i += 4 {
		if words[i] != "e" || words[i+2] != "b" {
			return nil, fmt.Errorf("the jobs have not run one after the other: %q", words)
		}
		end, err := instant(words[i+1])
		begin, err2 := instant(words[i+3])
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		gaps = append(gaps, begin.Sub(end))
	}
	return gaps, nil
}

// instant parses what EPOCHREALTIME of bash is.
func instant(text string) (time.Time, error) {
	micro, err := strconv.ParseInt(strings.ReplaceAll(text, ".", ""), 10, 64)
	return time.UnixMicro(micro), err
}

// configure gives an execd in root mode its hooks.conf.
func (o *overlap) configure(d *harness.Daemon, lines ...string) error {
	text := fmt.Sprintf("TRANSFER_BANDWIDTH = %d\n%s\n", pace, strings.Join(lines, "\n"))
	if err := os.WriteFile(filepath.Join(api.DevPlaces(d.Dir).Config, "hooks.conf"), []byte(text), 0o644); err != nil {
		return err
	}
	return o.asRoot(d.Dir, "qconf", "-reload")
}

// array submits tasks with sandboxes; those of the numbers leave output.
func (o *overlap) array(d *harness.Daemon, tasks, size int, leave ...string) (job string, err error) {
	path, err := o.prepare()
	if err != nil {
		return "", err
	}
	args := []string{
		"qsub", "-terse", "-sandbox", "y", "-stageout_to", o.far, "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n",
		"-t", fmt.Sprintf("1-%d", tasks), path, "0", strconv.Itoa(size),
	}
	out, err := o.ours(d, append(args, leave...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot submit: %w\n%s", err, out)
	}
	job, _, _ = strings.Cut(strings.TrimSpace(string(out)), ".")
	return job, nil
}

// travels fails unless output of the first task is on its way. That of a smoke test is soon
// through.
func (o *overlap) travels(d *harness.Daemon) error {
	if o.smoke {
		return nil
	}
	out, err := o.ours(d, "qstat").CombinedOutput()
	if err == nil && !strings.Contains(string(out), " to ") {
		err = errors.New("no output travels any more")
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// clear ends what is under way, if anything is, and removes what has arrived.
func (o *overlap) clear(d *harness.Daemon, job string) error {
	if out, err := o.ours(d, "qdel", job).CombinedOutput(); err != nil && !strings.Contains(string(out), "does not exist") {
		return fmt.Errorf("cannot delete job %s: %w\n%s", job, err, out)
	}
	// It has failed, as what is deleted has.
	if out, err := o.ours(d, "qwait", job).CombinedOutput(); err != nil && len(out) == 0 {
		return fmt.Errorf("qwait: %w", err)
	}
	return o.empty(o.far, "")
}

// queue measures the slot of a queue, in both orders.
func (o *overlap) queue() error {
	d, err := o.startOurs("overlap", 1)
	if err != nil {
		return err
	}
	defer d.Kill()
	if err := o.configure(d); err != nil {
		return err
	}
	n := o.size(overlapping, 5)
	job, err := o.array(d, n, o.mega, "1")
	if err != nil {
		return err
	}
	gaps, err := o.gaps(n)
	if err != nil {
		return err
	}
	if err := errors.Join(o.travels(d), o.clear(d, job)); err != nil {
		return err
	}
	// HTCondor's order.
	if err := o.configure(d, "ASYNC_STAGEOUT = False"); err != nil {
		return err
	}
	if job, err = o.array(d, 2, o.mega, "1"); err != nil {
		return err
	}
	kept, err := o.gaps(2)
	if err != nil {
		return err
	}
	if err := o.clear(d, job); err != nil {
		return err
	}
	o.reportGaps("tasks of a queue", gaps)
	o.report(row{
		what: "slot idle after that output, beside ASYNC_STAGEOUT=false", unit: "ms", theirs: milliseconds(kept[0]), ours: milliseconds(gaps[0]), limit: 0.02,
	})
	return d.Stop()
}

func (o *overlap) reportGaps(between string, gaps []time.Duration) {
	o.report(row{what: fmt.Sprintf("slot idle between two %s, %d MB travel", between, o.mega), unit: "ms", ours: milliseconds(median(gaps)), alone: true, limit: 20})
	o.report(row{what: "99th percentile of that", unit: "ms", ours: milliseconds(percentile(gaps, 99)), alone: true, limit: 60})
}

// fetched measures the slot of fetched work.
func (o *overlap) fetched() error {
	n := o.size(overlapping, 5)
	path, err := o.prepare()
	if err != nil {
		return err
	}
	count := filepath.Join(o.base, "count")
	if err := os.WriteFile(count, []byte("0\n"), 0o644); err != nil {
		return err
	}
	hook := filepath.Join(o.base, "fetch")
	text := fmt.Sprintf(`#!/bin/bash
read n <%[1]s
[ $n -lt %[2]d ] || exit 0
n=$((n + 1))
echo $n >%[1]s
printf 'Cmd = "%[3]s"\nArgs = "%%d %[4]d 1"\nIwd = "/tmp"\nShouldTransferFiles = "YES"\nOutputDestination = "%[5]s"\n' $n
`, count, n, path, o.mega, o.far)
	if err := os.WriteFile(hook, []byte(text), 0o755); err != nil {
		return err
	}
	dir := filepath.Join(o.bench.base, "overlap-fetched")
	config := api.DevPlaces(dir).Config
	for name, text := range map[string]string{
		"queues/all.q": "qname all.q\nslots 1\n",
		"hooks.conf": fmt.Sprintf("TRANSFER_BANDWIDTH = %d\nSTARTD_JOB_HOOK_KEYWORD = BENCH\nBENCH_HOOK_FETCH_WORK = %s\n"+
			"FETCH_WORK_AHEAD = True\nFetchWorkDelay = State == \"Claimed\" && Activity == \"Idle\" ? 0 : 3600\n", pace, hook),
	} {
		if err := os.MkdirAll(filepath.Join(config, filepath.Dir(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(config, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	d, err := harness.Start(harness.Options{Bin: o.bin, Dir: dir})
	if err != nil {
		return err
	}
	defer d.Kill()
	gaps, err := o.gaps(n)
	if err != nil {
		return err
	}
	o.reportGaps("fetched jobs", gaps)
	_ = o.asRoot(dir, "qdel", "-u", "*") // there may be none any more
	if err := d.Stop(); err != nil {
		return err
	}
	return o.empty(o.far, "")
}

// third measures when a job starts that waits until one of two outputs has arrived.
func (o *overlap) third() error {
	d, err := o.startOurs("overlap-third", 1)
	if err != nil {
		return err
	}
	defer d.Kill()
	if err := o.configure(d); err != nil {
		return err
	}
	var waits []time.Duration
	for range o.size(10, 1) {
		job, err := o.array(d, 3, o.size(20, 5), "1", "2")
		if err != nil {
			return err
		}
		if _, err := o.gaps(3); err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(o.base, "times"))
		if err != nil {
			return err
		}
		began, err := instant(strings.Fields(string(text))[9])
		if err != nil {
			return err
		}
		if out, err := o.ours(d, "qwait", job).CombinedOutput(); err != nil {
			return fmt.Errorf("qwait: %w\n%s", err, out)
		}
		arrived := time.Time{}
		for _, n := range []string{"1", "2"} {
			var st syscall.Stat_t
			if err := syscall.Stat(filepath.Join(o.far, "out."+n), &st); err != nil {
				return err
			}
			if at := time.Unix(st.Ctim.Unix()); arrived.IsZero() || at.Before(arrived) {
				arrived = at
			}
		}
		waits = append(waits, began.Sub(arrived))
		if err := o.empty(o.far, ""); err != nil {
			return err
		}
	}
	o.report(row{what: "start of a third job after one of two outputs has arrived", unit: "ms", ours: milliseconds(median(waits)), alone: true, limit: 20})
	return d.Stop()
}

// memory measures what execd has for each transfer, when it has the memory that jobs need
// at all: of how many tasks the jobs are makes no difference then.
func (o *overlap) memory() error {
	const tasks = 50
	n := o.size(tasks, 5)
	d, err := o.startOurs("overlap-memory", n)
	if err != nil {
		return err
	}
	defer d.Kill()
	if err := o.configure(d, "MAX_CONCURRENT_UPLOADS = 0"); err != nil {
		return err
	}
	var kb [2]int
	var under int // how many are under way then: the first may be through before the last begins
	for i, leave := range []int{0, n} {
		var numbers []string
		for k := range leave {
			numbers = append(numbers, strconv.Itoa(tasks-k))
		}
		job, err := o.array(d, tasks, 40, numbers...)
		if err != nil {
			return err
		}
		if err := harness.WaitFor(longest, "the jobs to be over", func() (bool, error) {
			out, err := o.ours(d, "qstat").CombinedOutput()
			under = strings.Count(string(out), " to ")
			return !strings.Contains(string(out), " r ") && !strings.Contains(string(out), " qw "), err
		}); err != nil {
			return err
		}
		if under < leave/2 {
			return fmt.Errorf("%d of %d transfers are under way", under, leave)
		}
		if kb[i], err = harness.StatusField(d.PID(), "VmRSS"); err != nil {
			return err
		}
		if err := o.clear(d, job); err != nil {
			return err
		}
	}
	o.report(row{what: fmt.Sprintf("memory of execd for each of %d transfers", under), unit: "MB", ours: float64(kb[1]-kb[0]) / 1024 / float64(under), alone: true, limit: 0.4})
	return d.Stop()
}

// rate measures an array of tasks whose sandboxes stay empty, beside one without.
func (o *overlap) rate() error {
	d, err := o.startOurs("overlap-rate", 100)
	if err != nil {
		return err
	}
	defer d.Kill()
	n := o.size(2000, 50)
	var each [2][]time.Duration
	for range o.size(5, 1) {
		for i, asks := range [][]string{nil, {"-sandbox", "y"}} {
			args := append([]string{"qsub", "-sync", "y", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n", "-t", fmt.Sprintf("1-%d", n)}, asks...)
			begin := time.Now()
			if out, err := o.ours(d, append(args, "/bin/true")...).CombinedOutput(); err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			each[i] = append(each[i], time.Since(begin)/time.Duration(n))
		}
	}
	o.report(row{
		what: "array tasks a second with empty sandboxes, beside without", unit: "/s", atLeast: true, limit: 0.8,
		theirs: 1 / median(each[0]).Seconds(), ours: 1 / median(each[1]).Seconds(),
	})
	return d.Stop()
}
