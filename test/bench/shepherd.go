package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
	"paddock/test/harness"
)

// starter starts shepherds in one way.
type starter struct {
	path    string
	argv    []string
	env     []string
	blocked []syscall.Signal
	lock    bool // hand over a lock, as our execd does
	slack   uint // of timers, in ns; 0: left alone
	standby bool // started before it is timed, and assigned its job, as our execd does after the first
}

// starters are Grid Engine's shepherd as its execd starts it, ours as our
// execd starts it, and ours as Grid Engine's execd does.
func (b *bench) starters() (theirs, ours, foreign starter) {
	// What sge_execd 8.1.9 has blocked, by /proc of a recording shepherd.
	sge := []syscall.Signal{
		unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGSTKFLT, unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN,
		unix.SIGTTOU, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGWINCH, unix.SIGPWR, unix.SIGSYS,
	}
	env := append(os.Environ(), "SGE_ROOT=/var/lib/gridengine", "SGE_CELL=default")
	own := filepath.Join(b.bin, "shepherd")
	theirs = starter{path: harness.GEShepherd, argv: []string{"sge_shepherd-1", "-bg"}, env: env, blocked: sge}
	ours = starter{
		path: own, argv: []string{"shepherd"}, env: spool.StartEnvironment, lock: true, slack: spool.StartTimerSlack,
		blocked: slices.Concat(spool.CaughtSignals, spool.IgnoredSignals),
	}
	foreign = starter{path: own, argv: []string{"sge_shepherd-1"}, env: env, blocked: sge}
	return theirs, ours, foreign
}

// start starts a shepherd in dir. The signal mask is inherited from the
// thread, which the caller has locked.
func (s starter) start(dir string) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	if !s.lock {
		return s.fork(dir, null)
	}
	lock, err := spool.LockFile(filepath.Join(dir, spool.FileLock))
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	return s.fork(dir, null, lock)
}

// fork starts it with null as its standard streams, and what is handed over behind them.
func (s starter) fork(dir string, null *os.File, handed ...*os.File) (pid int, err error) {
	files := []uintptr{null.Fd(), null.Fd(), null.Fd()}
	for _, f := range handed {
		files = append(files, f.Fd())
	}
	var mask, old unix.Sigset_t
	for _, sig := range s.blocked {
		mask.Val[(sig-1)/64] |= 1 << (uint(sig-1) % 64)
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &mask, &old); err != nil {
		return 0, err
	}
	// Setting it to 0 gives back what the thread was born with.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(s.slack), 0, 0, 0); err != nil {
		return 0, err
	}
	pid, err = syscall.ForkExec(s.path, s.argv, &syscall.ProcAttr{
		Dir: dir, Env: s.env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	return pid, errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil),
		unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0))
}

// ready is a shepherd on standby.
type ready struct{ pid, socket int }

// ready starts one, and returns when it waits.
func (s starter) ready() (*ready, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	far := os.NewFile(uintptr(ends[1]), "standby")
	defer far.Close()
	s.argv = spool.StandbyArgs()
	r := &ready{socket: ends[0]}
	if r.pid, err = s.fork("/", null, far); err != nil {
		return nil, errors.Join(err, unix.Close(r.socket))
	}
	return r, harness.WaitFor(longest, "a shepherd on standby", func() (bool, error) {
		call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", r.pid))
		return strings.HasPrefix(string(call), strconv.Itoa(unix.SYS_PPOLL)+" "), err
	})
}

// assign gives it the job of dir.
func (r *ready) assign(dir string) (pid int, err error) {
	defer unix.Close(r.socket)
	lock, err := spool.LockFile(filepath.Join(dir, spool.FileLock))
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	a := spool.Assignment{Name: "shepherd-1.1", Dir: dir}
	return r.pid, unix.Sendmsg(r.socket, a.Append(nil), unix.UnixRights(int(lock.Fd())), nil, 0)
}

// wait waits for a child, which is killed when it hangs.
func wait(pid int) (syscall.WaitStatus, error) {
	defer time.AfterFunc(longest, func() { _ = syscall.Kill(pid, syscall.SIGKILL) }).Stop()
	for {
		var ws syscall.WaitStatus
		_, err := syscall.Wait4(pid, &ws, 0, nil)
		if !errors.Is(err, syscall.EINTR) {
			return ws, err
		}
	}
}

// once has directory make a fresh directory, has the shepherd run /bin/true in
// it, and returns how long that took.
func (b *bench) once(s starter, directory func(string, ...string) error, dir string) (time.Duration, error) {
	if err := os.RemoveAll(dir); err != nil {
		return 0, err
	}
	if err := directory(dir, "/bin/true"); err != nil {
		return 0, err
	}
	return s.time(dir)
}

// time has the shepherd run the job of dir and returns how long that took.
func (s starter) time(dir string) (time.Duration, error) {
	start := s.start
	if s.standby {
		r, err := s.ready()
		if err != nil {
			return 0, err
		}
		start = r.assign
	}
	begin := time.Now()
	pid, err := start(dir)
	if err != nil {
		return 0, err
	}
	ws, err := wait(pid)
	elapsed := time.Since(begin)
	if err != nil {
		return 0, err
	}
	if ws != 0 {
		trace, _ := os.ReadFile(filepath.Join(dir, "trace"))
		return 0, fmt.Errorf("%s ended with status %#x; its trace:\n%s", s.path, uint32(ws), trace)
	}
	return elapsed, nil
}

func (b *bench) jobDirectory(dir string, command ...string) error {
	set := []string{
		"handle_as_binary=1", "no_shell=1", "script_file=" + command[0], "njob_args=" + strconv.Itoa(len(command)-1),
		"cwd=/", "shell_start_mode=posix_compliant",
	}
	for i, a := range command[1:] {
		set = append(set, fmt.Sprintf("job_arg%d=%s", i+1, a))
	}
	return harness.JobDirectory(dir, command[0], b.user.Name, set...)
}

// ourDirectory makes a directory as our execd does: with its keys, which
// sge_shepherd ignores, and, since it uses directories again, with all files
// there and empty. Both shepherds take it.
func (b *bench) ourDirectory(dir string, command ...string) error {
	if err := b.jobDirectory(dir, command...); err != nil {
		return err
	}
	path := filepath.Join(dir, spool.FileConfig)
	config, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	own := fmt.Sprintf("%s=1\n%s=0\n%s=%d\n%s=%d\n%s=%d\n%s=/\n", spool.KeyFormat, spool.KeyRun,
		spool.KeyUID, b.user.UID, spool.KeyGID, b.user.UID, spool.KeyGroups, b.user.UID, spool.KeyHome)
	if err := os.WriteFile(path, append([]byte(own), config...), 0o600); err != nil {
		return err
	}
	for _, name := range []string{
		spool.FileTrace, spool.FileError, spool.FileExitStatus, spool.FilePID, spool.FileJobPID, spool.FileAddGrpID, spool.FileUsage,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			return err
		}
		if err := os.Chown(path, 0, 0); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) shepherdTime() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	theirs, ours, foreign := b.starters()
	standby := ours
	standby.standby = true
	runs := []struct {
		starter
		directory func(string, ...string) error
	}{
		{theirs, b.ourDirectory},
		{ours, b.ourDirectory},
		{theirs, b.jobDirectory},
		{foreign, b.jobDirectory},
		{standby, b.ourDirectory},
	}
	times := make([][]time.Duration, len(runs))
	dir := filepath.Join(b.base, "job")
	for i := range b.size(200, 5) + 1 {
		for j, s := range runs {
			d, err := b.once(s.starter, s.directory, dir)
			if err != nil {
				return err
			}
			if i > 0 { // the first of each fills the page cache
				times[j] = append(times[j], d)
			}
		}
	}
	took := func(i int) float64 { return milliseconds(median(times[i])) }
	b.report(row{what: "shepherd of /bin/true, as our execd starts it", unit: "ms", theirs: took(0), ours: took(1), limit: 0.35})
	b.report(row{what: "the same, as it starts all but the first", unit: "ms", theirs: took(0), ours: took(4), limit: 0.3})
	b.report(row{what: "shepherd of /bin/true, as sge_execd starts it", unit: "ms", theirs: took(2), ours: took(3), limit: 0.5})
	return nil
}

// host is what a shepherd's cost may depend on, and should not.
type host struct {
	descriptors uint64 // that may be open at most; 0: as many as are
	oneCPU      bool
}

// hosts are measured in turn.
var hosts = []host{{descriptors: 1024}, {descriptors: 1 << 20}, {oneCPU: true}, {}}

// shepherdHost measures how much more a shepherd costs where more descriptors
// may be open, and where there is more than one processor.
func (b *bench) shepherdHost() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	timers := make([]*timer, len(hosts))
	for i := range hosts {
		if timers[i], err = startTimer(exec.Command(self, "-bin", b.bin, "-host", strconv.Itoa(i))); err != nil {
			return err
		}
	}
	times := make([][2][]time.Duration, len(hosts))
	dir := filepath.Join(b.base, "host")
	for n := range b.size(100, 5) + 1 {
		for i, t := range timers {
			for who, name := range []string{"theirs", "ours"} {
				if err := errors.Join(os.RemoveAll(dir), b.ourDirectory(dir, "/bin/true")); err != nil {
					return err
				}
				d, err := t.once(name + " " + dir)
				if err != nil {
					return err
				}
				if n > 0 {
					times[i][who] = append(times[i][who], d)
				}
			}
		}
	}
	for _, t := range timers {
		if err := t.stop(); err != nil {
			return err
		}
	}
	ratio := func(more, less, who int) float64 {
		return milliseconds(median(times[more][who])) / milliseconds(median(times[less][who]))
	}
	most, err := atMost(hosts[1].descriptors)
	if err != nil {
		return err
	}
	b.report(row{what: fmt.Sprintf("shepherd with %d descriptors by one with 1024", most), theirs: ratio(1, 0, 0), ours: ratio(1, 0, 1), absolute: true, limit: 1.1})
	b.report(row{what: fmt.Sprintf("shepherd on %d processors by one on 1", runtime.NumCPU()), theirs: ratio(3, 2, 0), ours: ratio(3, 2, 1), absolute: true, limit: 1.1})
	return nil
}

// atMost returns n, or the hard limit of descriptors where it is lower and may
// not be raised.
func atMost(n uint64) (uint64, error) {
	var is syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &is)
	if n > is.Max && syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: is.Cur, Max: n}) != nil {
		n = is.Max
	}
	return n, err
}

// serveHost starts shepherds on one of hosts, which this process makes of
// itself: a hard limit cannot be raised again everywhere. For each line of
// input, "ours" or "theirs" and a directory, it prints the nanoseconds it took.
func (b *bench) serveHost(h host) error {
	runtime.LockOSThread()
	if h.descriptors != 0 {
		n, err := atMost(h.descriptors)
		if err != nil {
			return err
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			return err
		}
	}
	if h.oneCPU {
		var all, first unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			return err
		}
		for cpu := 0; first.Count() == 0; cpu++ {
			if all.IsSet(cpu) {
				first.Set(cpu)
			}
		}
		if err := unix.SchedSetaffinity(0, &first); err != nil {
			return err
		}
	}
	theirs, ours, _ := b.starters()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		who, dir, _ := strings.Cut(in.Text(), " ")
		s := theirs
		if who == "ours" {
			s = ours
		}
		d, err := s.time(dir)
		if err != nil {
			return err
		}
		fmt.Println(d.Nanoseconds())
	}
	return nil
}

func (b *bench) shepherdMemory() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	theirs, ours, _ := b.starters()
	n := b.size(100, 5)
	var pss [2]float64
	for i, s := range []starter{theirs, ours} {
		var err error
		if pss[i], err = b.sleepers(s, filepath.Join(b.base, fmt.Sprintf("sleep%d", i)), n); err != nil {
			return err
		}
	}
	b.report(row{what: fmt.Sprintf("PSS of a shepherd, %d sleeping jobs", n), unit: "MB", theirs: pss[0], ours: pss[1], limit: 0.45})
	return nil
}

// sleepers starts n shepherds with jobs that sleep, and returns the mean
// proportional set size of a shepherd.
func (b *bench) sleepers(s starter, dir string, n int) (mean float64, err error) {
	var pids []int
	defer func() {
		// The jobs are ended, and their shepherds with them.
		for i, pid := range pids {
			if job, e := jobPID(filepath.Join(dir, strconv.Itoa(i))); e == nil {
				_ = syscall.Kill(job, syscall.SIGTERM)
			} else {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		for _, pid := range pids {
			if _, e := wait(pid); e != nil {
				err = errors.Join(err, e)
			}
		}
	}()
	for i := range n {
		d := filepath.Join(dir, strconv.Itoa(i))
		if err := b.jobDirectory(d, "/bin/sleep", "600"); err != nil {
			return 0, err
		}
		pid, err := s.start(d)
		if err != nil {
			return 0, err
		}
		pids = append(pids, pid)
	}
	for i := range n {
		d := filepath.Join(dir, strconv.Itoa(i))
		if err := harness.WaitFor(harness.Patience, "job "+d, func() (bool, error) {
			job, err := jobPID(d)
			if err != nil {
				return false, err
			}
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", job))
			return string(comm) == "sleep\n", err
		}); err != nil {
			return 0, err
		}
	}
	if err := harness.Settle(filepath.Dir(s.path), dir); err != nil {
		return 0, err
	}
	total := 0
	for _, pid := range pids {
		kb, err := pssOf(pid)
		if err != nil {
			return 0, err
		}
		total += kb
	}
	return float64(total) / float64(n) / 1024, nil
}

func jobPID(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "job_pid"))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil && pid <= 1 {
		err = fmt.Errorf("job_pid of %s is %d", dir, pid)
	}
	return pid, err
}

// pssOf returns the proportional set size in kB.
func pssOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == "Pss:" {
			return strconv.Atoi(string(f[1]))
		}
	}
	return 0, fmt.Errorf("no Pss of process %d", pid)
}
