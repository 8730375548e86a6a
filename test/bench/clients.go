package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"paddock/execd/api/accounting"
	"paddock/test/harness"
)

// clients is where Grid Engine's commands themselves are; those in the search
// path are scripts of Debian's that start them.
const clients = "/usr/lib/gridengine"

// itself is a command of Grid Engine's without such a script.
func itself(command []string) []string {
	return append([]string{filepath.Join(clients, command[0])}, command[1:]...)
}

// sides are a command among Grid Engine's and one of ours, to be timed alike, as the
// benchmark's user.
func (b *bench) sides(env, theirs, ours []string) (timers [2]*timer, err error) {
	self, err := os.Executable()
	if err != nil {
		return timers, err
	}
	timing := []string{self, "-timer", fmt.Sprintf("%d:%d", b.user.UID, b.user.GID)}
	inside := append([]string{"run", "env", "HOME=" + b.user.Home, "USER=" + b.user.Name, "LOGNAME=" + b.user.Name}, timing...)
	inside = append(inside, "-tries", fmt.Sprint(tries))
	there := b.ge.Command(append(inside, theirs...)...)
	here := exec.Command(self, append(append(timing[1:], filepath.Join(b.bin, ours[0])), ours[1:]...)...)
	here.Env = env
	for i, cmd := range []*exec.Cmd{there, here} {
		if timers[i], err = startTimer(cmd); err != nil {
			return timers, err
		}
	}
	return timers, nil
}

// inTurn times a command among Grid Engine's and one of ours, in this environment, so
// many times, one after the other, and returns the medians. The first of each is not
// counted.
func (b *bench) inTurn(env []string, n int, theirs, ours []string) (medians [2]time.Duration, err error) {
	timers, err := b.sides(env, theirs, ours)
	if err != nil {
		return medians, err
	}
	var times [2][]time.Duration
	for i := range n + 1 {
		for side, t := range timers {
			once, err := t.once("")
			if err != nil {
				return medians, err
			}
			if i > 0 {
				times[side] = append(times[side], once)
			}
		}
	}
	for side, t := range timers {
		medians[side] = median(times[side])
		if err := t.stop(); err != nil {
			return medians, err
		}
	}
	return medians, nil
}

// qacctTime has both read one large file.
func (b *bench) qacctTime() error {
	jobs := b.size(1_000_000, 10_000)
	file := filepath.Join(b.base, "accounting")
	if err := writeAccounting(file, jobs); err != nil {
		return err
	}
	if err := writeIndex(file); err != nil {
		return err
	}
	for _, m := range []struct {
		what  string
		args  []string
		times int
		limit float64
	}{
		{"qacct -j of %d lines", []string{"-j", fmt.Sprint(jobs / 2)}, b.size(21, 3), 0.3},
		{"qacct -o of %d lines", []string{"-o"}, b.size(7, 3), 1},
	} {
		command := append([]string{"qacct", "-f", file}, m.args...)
		medians, err := b.inTurn([]string{"HOME=" + b.user.Home}, m.times, itself(command), command)
		if err != nil {
			return err
		}
		b.report(row{what: fmt.Sprintf(m.what, jobs), unit: "ms", theirs: milliseconds(medians[0]), ours: milliseconds(medians[1]), limit: m.limit})
	}
	return errors.Join(os.Remove(file), os.Remove(accounting.IndexPath(file)))
}

// writeIndex writes the index of an accounting file as execd does, which adds a part whenever the
// file has grown by one.
func writeIndex(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	index, begin := []byte(accounting.IndexHeading(info)), 0
	for len(text)-begin >= accounting.PartSize {
		lines := text[begin:][:accounting.PartSize]
		p := accounting.NewPart(int64(begin), lines[:bytes.LastIndexByte(lines, '\n')+1])
		index, begin = p.Append(index), int(p.End)
	}
	return os.WriteFile(accounting.IndexPath(name), index, 0o644)
}

// writeAccounting writes lines of jobs of many owners, as a year leaves them.
func writeAccounting(name string, jobs int) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	r := rand.New(rand.NewPCG(1, 2))
	for job := 1; job <= jobs; job++ {
		start, wall := 1795190494+job, r.IntN(3600)
		fmt.Fprintf(w, "all.q:gehost:users:user%02d:job.sh:%d:sge:0:%d:%d:%d:0:0:%d:%.6f:%.6f:%d.000000:0:0:0:0:%d:0:0:0.000000:%d:0:0:0:%d:%d:"+
			"NONE:defaultdepartment:NONE:1:0:%.6f:%.6f:%.6f:-l h_rt=3600:0.000000:NONE:%d.000000:0:0\n",
			r.IntN(crowdUsers), job, start-5, start, start+wall, wall, float64(wall)*0.9, float64(wall)*0.05, 4000+r.IntN(900_000), r.IntN(100_000), r.IntN(10_000),
			r.IntN(10_000), r.IntN(100), float64(wall)*0.95, r.Float64()*100, r.Float64(), r.Int64N(1<<33))
	}
	return w.Flush()
}

// qstatTime lists jobs that wait.
func (b *bench) qstatTime() (err error) {
	jobs := b.size(10_000, 100)
	// Held, so that nothing is scheduled meanwhile. Four at once: qmaster takes
	// most of the time.
	defer func() { err = errors.Join(err, b.deleteTheirs(b.user.Name)) }()
	submit := fmt.Sprintf("seq %d | xargs -n 1 -P 4 %s/qsub -h -b y -o /dev/null -j y true >/dev/null", jobs, clients)
	if _, err := b.submit(longest+time.Duration(jobs)*100*time.Millisecond, submit); err != nil {
		return err
	}
	d, err := b.waitingJobs(jobs)
	if err != nil {
		return err
	}
	defer func() { d.Kill() }()
	command := []string{"qstat", "-u", "*"}
	theirs, err := b.ask(clients + `/qstat -u "*"`)
	if err != nil {
		return err
	}
	ours, err := b.ours(d, command...).Output()
	if err != nil {
		return err
	}
	for side, out := range []string{theirs, string(ours)} {
		if n := strings.Count(out, " hqw "); n != jobs {
			return fmt.Errorf("qstat %d shows %d jobs that wait; want %d", side, n, jobs)
		}
	}
	medians, err := b.inTurn(b.env(d), b.size(11, 3), itself(command), command)
	if err != nil {
		return err
	}
	b.report(row{what: fmt.Sprintf("qstat with %d jobs that wait", jobs), unit: "ms", theirs: milliseconds(medians[0]), ours: milliseconds(medians[1]), limit: 0.5})
	return nil
}

// waitingJobs starts an execd of ours with jobs that are held.
func (b *bench) waitingJobs(jobs int) (*harness.Daemon, error) {
	d, err := b.startOurs("qstat", 1)
	if err != nil {
		return nil, err
	}
	defer d.Kill()
	out, err := b.ours(d, "qsub", "-terse", "-h", "-o", "/dev/null", "-j", "y", "-b", "y", "true").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("cannot submit: %w\n%s", err, out)
	}
	d.Kill()
	if err := copyRecord(d, strings.TrimSpace(string(out)), jobs-1); err != nil {
		return nil, err
	}
	return harness.Start(harness.Options{Bin: b.bin, Dir: d.Dir, Mode: "-root"})
}
