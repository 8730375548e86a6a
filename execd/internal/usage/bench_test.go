package usage

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"paddock/spool"
)

const manyJobs = 1000

// bench measures a look at all of a thousand jobs. Of those that sleep there is
// one each 64 s.
func bench(b *testing.B, s *Sampler) {
	b.Helper()
	defer s.table.close()
	b.ReportAllocs()
	measured(b, func() { s.measure(func(*job, time.Time) bool { return true }) })
	if all := s.All(); len(all) != manyJobs {
		b.Fatalf("usage of %d jobs is known", len(all))
	}
}

// measured calls do again and again, and reports the processor time that it
// takes, which others on the host do not change as much as the time.
func measured(b *testing.B, do func()) {
	b.Helper()
	spent := func() int64 {
		var ru syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
			b.Fatal(err)
		}
		return ru.Utime.Nano() + ru.Stime.Nano()
	}
	begin := spent()
	for b.Loop() {
		do()
	}
	b.ReportMetric(float64(spent()-begin)/float64(b.N)/manyJobs, "cpu-ns/job")
}

// A thousand jobs with groups, without what it costs to read those.
func BenchmarkGroups(b *testing.B) {
	s := newSampler(nil, time.Second)
	for i := range manyJobs {
		s.Add(spool.RunID{Job: i + 1, Task: 1}, Job{Started: time.Now(), Group: spin(0, 1<<20)})
	}
	bench(b, s)
}

// sleepers starts a thousand processes that sleep, and tells the Sampler of
// them.
func sleepers(b *testing.B, s *Sampler, attr func(i int) *syscall.SysProcAttr, describe func(i, pid int) Job) {
	b.Helper()
	for i := range manyJobs {
		cmd := exec.Command("/bin/sleep", "1000")
		cmd.Env = []string{}
		cmd.SysProcAttr = attr(i)
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		j := describe(i, cmd.Process.Pid)
		j.Started = time.Now()
		s.Add(spool.RunID{Job: i + 1, Task: 1}, j)
	}
}

// A thousand jobs with additional groups.
func BenchmarkProcessesByGroup(b *testing.B) {
	needRoot(b)
	s := newSampler(nil, time.Second)
	s.Proc = ""
	sleepers(b, s, func(i int) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: nobody, Gid: nobody, Groups: []uint32{uint32(21000 + i)}}}
	}, func(i, _ int) Job { return Job{AddGID: 21000 + i} })
	bench(b, s)
}

// A thousand jobs of user mode.
func BenchmarkProcessesByTree(b *testing.B) {
	s := newSampler(nil, time.Second)
	s.Proc = ""
	sleepers(b, s, func(int) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} },
		func(_, pid int) Job { return Job{PID: func() int { return pid }} })
	bench(b, s)
}

// One job that works among a thousand that sleep.
func BenchmarkOneOfMany(b *testing.B) {
	s := newSampler(nil, time.Second)
	s.Proc = ""
	defer s.table.close()
	sleepers(b, s, func(int) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} },
		func(_, pid int) Job { return Job{PID: func() int { return pid }} })
	s.All()
	// What is young may still become a job's.
	for _, p := range s.table.procs {
		p.since = p.since.Add(-settle)
	}
	s.Add(run, Job{Started: time.Now().Add(2 * settle), PID: os.Getpid})
	b.ReportAllocs()
	measured(b, func() { s.measure(func(j *job, _ time.Time) bool { return j.run == run }) })
}

// What a daemon spends that reads three files of each process each second, to
// compare with: a look each 64 s must cost less than a tenth of it.
func BenchmarkEverySecond(b *testing.B) {
	s := newSampler(nil, time.Second)
	s.Proc = ""
	sleepers(b, s, func(int) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }, func(_, pid int) Job { return Job{PID: func() int { return pid }} })
	text := make([]byte, 4<<10)
	measured(b, func() {
		for _, j := range s.jobs {
			for _, name := range []string{"stat", "status", "io"} {
				f, err := os.Open("/proc/" + strconv.Itoa(j.PID()) + "/" + name)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = f.Read(text)
				f.Close()
			}
		}
	})
}
