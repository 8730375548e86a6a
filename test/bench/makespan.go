package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/test/harness"
)

// narrow is a line over which 10 MB take 4 s.
var narrow = harness.Line{Rate: 20_000_000, Delay: time.Millisecond}

// burnProcessor keeps a processor busy until this process has had so much of one.
func burnProcessor(want time.Duration) error {
	block := make([]byte, 1<<16)
	for {
		var used unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
			return err
		}
		if time.Duration(used.Utime.Nano()+used.Stime.Nano()) >= want {
			return nil
		}
		for range 100 {
			_ = sha256.Sum256(block)
		}
	}
}

// course is what became of a task, as the log of execd says, since the first was started.
type course struct{ began, ended, arrived time.Duration }

// makespan measures how long a slot of another host has to do with jobs each of which takes as
// much time of the processor as its output takes of the line, and draws it.
func (b *bench) makespan() error {
	each := 4 * time.Second
	if b.smoke {
		each = 300 * time.Millisecond
	}
	jobs := b.size(40, 3)
	// What a line carries of the files has the headers of Ethernet, IP and TCP around it.
	size := int(each.Seconds() * float64(narrow.Rate) / 8 * 1448 / 1514)
	self, err := b.self()
	if err != nil {
		return err
	}
	var runs [2][]course
	for i, knobs := range []string{"ASYNC_STAGEOUT = False\n", ""} {
		base := filepath.Join(b.base, fmt.Sprint("makespan", i))
		if err := b.mine(base); err != nil {
			return err
		}
		if err := b.onPool(filepath.Join(b.base, fmt.Sprint("makespan-pool", i)), duo{slots: 1, lease: lasting, knobs: knobs, line: &narrow}, func(n *harness.Network) (err error) {
			if err := b.here(n, false); err != nil {
				return err
			}
			runs[i], err = b.onOneSlot(n.Hosts[0].Daemon, base, jobs, fmt.Sprintf("%s -burn %v; head -c %d /dev/urandom >out.$SGE_TASK_ID", self, each, size))
			return err
		}); err != nil {
			return err
		}
	}
	kept, free := span(runs[0]), span(runs[1])
	b.report(row{
		what: fmt.Sprintf("%d jobs of %.2g s, and as long for output, by ASYNC_STAGEOUT=false", jobs, each.Seconds()), unit: "s",
		theirs: kept.Seconds(), ours: free.Seconds(), limit: 0.6,
	})
	picture := gantt([]lanes{
		{fmt.Sprintf("Output travels while the next job runs: %.0f s", free.Seconds()), runs[1]},
		{fmt.Sprintf("ASYNC_STAGEOUT = False, the slot waits for it: %.0f s", kept.Seconds()), runs[0]},
	})
	if b.svg == "" || b.smoke {
		return nil
	}
	return os.WriteFile(b.svg, picture, 0o644)
}

// span is how long all took.
func span(all []course) (last time.Duration) {
	for _, c := range all {
		last = max(last, c.arrived)
	}
	return last
}

// happened is what execd says of the tasks of an array on another host.
var happened = regexp.MustCompile(`(?m)^(\S+) I job \d+\.(\d+): (is started|is over|its output has arrived) `)

// onOneSlot runs tasks of a shell command on another host, and returns what became of them when
// all have brought what they leave.
func (b *bench) onOneSlot(login *harness.Daemon, base string, tasks int, command string) ([]course, error) {
	out, err := b.ours(login, "qsub", "-sandbox", "y", "-stageout_to", base, "-o", "/dev/null", "-j", "y", "-S", "/bin/bash", "-b", "y",
		"-t", fmt.Sprintf("1-%d", tasks), command).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("cannot submit: %w\n%s", err, out)
	}
	all := make([]course, tasks)
	err = harness.WaitFor(time.Duration(tasks)*longest/4, "the tasks to be over", func() (bool, error) {
		jobs, err := login.Jobs()
		return len(jobs) == 0, err
	})
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(harness.LogName(login.Dir))
	if err != nil {
		return nil, err
	}
	var first time.Time
	for _, m := range happened.FindAllSubmatch(text, -1) {
		at, err := time.Parse("15:04:05.000", string(m[1]))
		n, err2 := strconv.Atoi(string(m[2]))
		if err := errors.Join(err, err2); err != nil || n < 1 || n > tasks {
			return nil, fmt.Errorf("the log has %q: %v", m[0], err)
		}
		if first.IsZero() {
			first = at
		}
		since := at.Sub(first)
		if since < 0 {
			since += 24 * time.Hour
		}
		switch c := &all[n-1]; string(m[3]) {
		case "is started":
			c.began = since
		case "is over":
			c.ended = since
		default:
			c.arrived = since
		}
	}
	if i := slices.IndexFunc(all, func(c course) bool { return c.ended <= c.began || c.arrived <= c.ended }); i >= 0 {
		return nil, fmt.Errorf("the log has not all of task %d:\n%s", i+1, text)
	}
	list, err := filepath.Glob(filepath.Join(base, "out.*"))
	if len(list) != tasks {
		err = errors.Join(err, fmt.Errorf("output of %d tasks has arrived", len(list)))
	}
	return all, err
}
