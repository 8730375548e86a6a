package parent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/starter"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// faultArg begins the name by which the test's binary is a shepherd with a
// fault: "shepherd-fault N TIMES WHAT". Its environment could not say so, as a
// shepherd's is given.
const faultArg = "shepherd-fault "

// init makes the test's binary a shepherd: here, since that wants the first thread.
func init() {
	if len(os.Args) == 0 {
		return
	}
	if fault, ok := strings.CutPrefix(os.Args[0], faultArg); ok {
		inject(fault)
		os.Exit(Run(Options{Dir: ".", Version: "test"}))
	}
}

// inject makes steps fail, or the shepherd die there, and says so on stderr.
func inject(fault string) {
	var first, times, n int
	var what string
	if _, err := fmt.Sscan(fault, &first, &times, &what); err != nil {
		panic(err)
	}
	atomicfile.Inject(func(op atomicfile.Op, path string) error {
		if n++; n < first || n >= first+times {
			return nil
		}
		fmt.Fprintln(os.Stderr, "hit", op, path)
		switch what {
		case "kill":
			_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
		case "full":
			return unix.ENOSPC
		}
		return unix.EIO
	})
}

// marked returns the processes that have the mark of the rig.
func (r *rig) marked() []int {
	r.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		r.t.Fatal(err)
	}
	mark := []byte(starter.Mark + r.dir.Path())
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile("/proc/" + e.Name() + "/environ") // empty for a zombie
		if err != nil {
			continue
		}
		for v := range bytes.SplitSeq(environ, []byte{0}) {
			if bytes.Equal(v, mark) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// killMarked does what execd does when a shepherd is gone.
func (r *rig) killMarked() {
	r.t.Helper()
	until := time.Now().Add(time.Minute)
	for quiet := 0; quiet < 2; {
		pids := r.marked()
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if quiet++; len(pids) > 0 {
			quiet = 0
		}
		if time.Now().After(until) {
			r.t.Fatalf("%v do not die", pids)
		}
	}
}

// evidence is what execd goes by, see launch.Evidence.
type evidence struct {
	status int // -1: not whole
	usage  int // the job's exit status, -1: not whole
	pid    bool
}

func (r *rig) evidence() evidence {
	r.t.Helper()
	// A process that is being started, by the shepherd or by another test, may keep
	// the lock until its exec.
	until := time.Now().Add(time.Minute)
	held, err := r.dir.Held()
	for ; held && time.Now().Before(until); held, err = r.dir.Held() {
		time.Sleep(time.Millisecond)
	}
	if held || err != nil {
		r.t.Errorf("the lock is held: %v, %v", held, err)
	}
	e := evidence{-1, -1, false}
	if n, err := r.dir.ExitStatus(); err == nil {
		e.status = n
	}
	if u, err := r.dir.Usage(); err == nil {
		e.usage = u.ExitStatus
	}
	_, err = r.dir.PID()
	e.pid = err == nil
	return e
}

// TestFaultAtEveryWrite has each of the shepherd's steps on disk fail: once, for
// a while, from there on; and dies there. Whatever it was, what is left says
// no less than what ran.
func TestFaultAtEveryWrite(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"1 error", "1000 error", "2 full", "1 kill"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				hit := false
				t.Run(strconv.Itoa(n), func(t *testing.T) { hit = faultAt(t, n, kind) })
				if !hit || t.Failed() {
					break
				}
			}
		})
	}
}

// faultAt has one fault and reports whether there was such a step.
func faultAt(t *testing.T, n int, kind string) bool {
	r := newRig(t, "")
	r.set("script_file="+r.script("job", "exit 3"), "prolog="+r.script("prolog", ""), "epilog="+r.script("epilog", ""))
	r.fault = strconv.Itoa(n) + " " + kind
	p := r.start()
	code := p.wait()
	if strings.HasSuffix(kind, "kill") {
		r.killMarked()
	} else if left := r.marked(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	hit, said, _ := strings.Cut(p.stderr.String(), "\n")
	log := strings.ReplaceAll(r.log(), " ", "")
	e := r.evidence()
	t.Logf("%s: exit code %d, %+v, ran %q, error %q", hit, code, e, log, r.errors())
	if strings.Contains(said, "panic") {
		t.Errorf("it says %q", said)
	}
	ran, began := strings.Count(log, "job"), strings.Contains(log, "prolog")
	switch {
	case ran > 1 || strings.Count(log, "prolog") > 1 || strings.Count(log, "epilog") > 1:
		t.Error("something ran twice")
	case (began || ran > 0) && !e.pid:
		t.Error("it would be taken for one that never started")
	case ran > 0 && e.status == 0 && e.usage != 3:
		t.Error("a fine job without its usage")
	case ran == 0 && (e.usage >= 0 || e.status == 0):
		t.Error("a job that did not run is fine")
	case e.status >= 0 && code != e.status:
		t.Error("exit code and exit_status differ")
	case kind == "2 full" && ran > 0 && (e.status != 0 || e.usage != 3):
		t.Error("the disk was full for a moment, and the outcome is lost")
	case kind == "2 full" && began && e.status < 0:
		t.Error("the disk was full for a moment, and the verdict is lost")
	}
	return hit != ""
}

// TestDeathInEveryPart kills the shepherd while a part is under way: what is
// left says whether the job has ended, and every process can be found.
func TestDeathInEveryPart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part  string
		usage int
		log   string
	}{
		{"prolog", -1, "prolog 1"},
		{"pe_start", -1, "prolog 1; pe_start mpi 3"},
		{"job", -1, "prolog 1; pe_start mpi 3; job"},
		{"pe_stop", 3, "prolog 1; pe_start mpi 3; job; pe_stop mpi 3"},
		{"epilog", 3, "prolog 1; pe_start mpi 3; job; pe_stop mpi 3; epilog 1"},
	} {
		t.Run(c.part, func(t *testing.T) {
			t.Parallel()
			const hang = "echo hangs; setsid sleep 1000 & wait\nexit 3"
			r := newRig(t, "")
			next := r.pipe()
			job := "exit 3"
			if c.part == "job" {
				job = hang
			}
			r.set("script_file="+r.script("job", job), "job_id=1").all(map[string]string{c.part: hang})
			r.set("pe_stdout_path=" + r.base + "/out/pipe")
			p := r.start()
			if got := next(); got != "hangs" {
				t.Fatal(got)
			}
			p.poke(syscall.SIGKILL)
			p.wait()
			if got, want := r.evidence(), (evidence{-1, c.usage, true}); got != want {
				t.Errorf("what is left says %+v; want %+v", got, want)
			}
			// The shell and its child may still be on their way to that, and in the
			// middle of exec a process has no environment.
			left := r.marked()
			for until := time.Now().Add(time.Minute); len(left) < 2 && time.Now().Before(until); left = r.marked() {
				time.Sleep(time.Millisecond)
			}
			if len(left) != 2 {
				t.Errorf("%v can be found; want 2 processes", left)
			}
			r.killMarked()
			if got := r.log(); got != c.log {
				t.Errorf("what ran: %q; want %q", got, c.log)
			}
		})
	}
}

// TestDeathWhileStarting kills the shepherd while what is to become the job hangs in a
// file system: it dies, too, since nothing tells whose it is.
func TestDeathWhileStarting(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	fifo := r.base + "/out/nobody"
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	r.set("stdout_path=" + fifo)
	p := r.start()
	r.waitTrace("further messages are in")
	pid, err := r.dir.JobPID()
	if err != nil {
		t.Fatal(err)
	}
	job, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(job)
	p.poke(syscall.SIGKILL)
	p.wait()
	fds := []unix.PollFd{{Fd: int32(job), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 60000); n != 1 {
		_ = unix.PidfdSendSignal(job, unix.SIGKILL, nil, 0)
		t.Errorf("it lives: %v", err)
	}
	if got := r.evidence(); got.status >= 0 || !got.pid {
		t.Errorf("what is left says %+v", got)
	}
}

// pidsGroup makes a group that limits the number of processes.
func pidsGroup(t *testing.T) (dir string) {
	t.Helper()
	needRoot(t, "makes a cgroup")
	dir = filepath.Join("/sys/fs/cgroup/pids", "paddock-test-"+strconv.Itoa(os.Getpid()))
	if _, err := os.Stat("/sys/fs/cgroup/pids/cgroup.procs"); err != nil {
		t.Skip("there is no pids controller of version 1")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		until := time.Now().Add(time.Minute)
		for {
			err := os.Remove(dir)
			if err == nil {
				return
			}
			if time.Now().After(until) {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	return dir
}

func limitPids(t *testing.T, group, n string) {
	t.Helper()
	if err := os.WriteFile(group+"/pids.max", []byte(n), 0o644); err != nil {
		t.Fatal(err)
	}
}

// startIn starts the shepherd in a group.
func (r *rig) startIn(group string) *running {
	r.t.Helper()
	sh := r.base + "/bin/enter"
	text := "#!/bin/sh\necho $$ >" + group + "/cgroup.procs\nexec " + binary + "\n"
	if err := os.WriteFile(sh, []byte(text), 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.program = sh
	return r.start()
}

// TestNoProcesses lets the shepherd have so few processes that it cannot start, or
// none is left for its starter.
func TestNoProcesses(t *testing.T) {
	group := pidsGroup(t)
	ran := false
	for n := 1; n < 40 && !ran; n++ {
		limitPids(t, group, "max")
		r := newRig(t, "")
		r.set("script_file=" + r.script("job", "exit 3"))
		limitPids(t, group, strconv.Itoa(n))
		p := r.startIn(group)
		code := p.wait()
		e := r.evidence()
		said, _, _ := strings.Cut(p.stderr.String(), "\n")
		t.Logf("%d processes: exit code %d, %+v, ran %q, error %q, stderr %q", n, code, e, r.log(), r.errors(), said)
		if left := r.marked(); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
		ran = strings.Contains(r.log(), "job")
		switch {
		case ran && (e.status != 0 || e.usage != 3):
			t.Error("a job that ran has another outcome")
		case ran:
		case e.status == spool.FailedBeforeProlog: // the host's matter
			if !strings.Contains(r.errors(), "start") {
				t.Errorf("error %q", r.errors())
			}
		case e.status >= 0 || e.usage >= 0:
			t.Errorf("exit_status %d for a job that could not be started", e.status)
		}
	}
	if !ran {
		t.Error("it never ran")
	}
}

// TestNoProcessForJob has none left for the job when the prolog has ended.
func TestNoProcessForJob(t *testing.T) {
	group := pidsGroup(t)
	r := newRig(t, "")
	if err := unix.Mkfifo(r.base+"/out/fifo", 0o666); err != nil {
		t.Fatal(err)
	}
	r.set("script_file="+r.script("job", "exit 3"), "prolog="+r.script("prolog", "echo ready; read x <fifo"))
	next := r.pipe()
	p := r.startIn(group)
	expect(t, next, "ready")
	limitPids(t, group, "1")
	open, err := os.OpenFile(r.base+"/out/fifo", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := open.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	code := p.wait()
	e := r.evidence()
	if e.status != spool.FailedBeforeProlog || e.usage >= 0 || code != e.status { // the host's matter
		t.Errorf("exit code %d, %+v", code, e)
	}
	if got, want := r.errors(), "cannot start the starter: Resource temporarily unavailable"; got != want {
		t.Errorf("error %q; want %q", got, want)
	}
	if got := r.log(); got != "prolog" {
		t.Errorf("what ran: %q", got)
	}
}

// TestNoProcessForMethod has a job that has used up all processes: its methods
// cannot be run, and it can be killed.
func TestNoProcessForMethod(t *testing.T) {
	group := pidsGroup(t)
	r := newRig(t, "")
	method := r.script("method", "")
	// A shell would end when it cannot fork. A signal just ahead of a sleep is seen
	// after it.
	job := r.script("job", `exec perl -e '$| = 1; $SIG{USR1} = sub { print "USR1\n" }; print "ready\n"; sleep 1 while 1'`)
	r.set("script_file="+job, "suspend_method="+method, "terminate_method="+method, "epilog="+r.script("epilog", ""))
	next := r.pipe()
	p := r.startIn(group)
	expect(t, next, "ready")
	limitPids(t, group, "1")
	p.write(unix.SIGSTOP, 1)
	r.waitTrace("cannot run suspend_method: cannot start the starter: Resource temporarily unavailable")
	p.poke(syscall.SIGUSR1)
	expect(t, next, "USR1")
	p.poke(syscall.SIGTSTP)
	r.waitTrace("cannot run terminate_method: cannot start the starter: Resource temporarily unavailable")
	r.waitTrace("reaped \"job\"")
	code := p.wait()
	e := r.evidence()
	if e.usage != 128+9 || e.status != spool.FailedBeforeEpilog || code != e.status {
		t.Errorf("exit code %d, %+v", code, e)
	}
	if got, want := r.errors(), "cannot start the starter: Resource temporarily unavailable"; got != want {
		t.Errorf("error %q; want %q", got, want)
	}
	if got := r.log(); got != "job" {
		t.Errorf("what ran: %q", got)
	}
}

// TestRemovedDirectory removes the directory under a shepherd whose job runs: it
// comes to its end, and makes no file anywhere.
func TestRemovedDirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t, "echo ready; read x <fifo; exit 3")
	r.set("epilog=" + r.script("epilog", ""))
	if err := unix.Mkfifo(r.base+"/out/fifo", 0o666); err != nil {
		t.Fatal(err)
	}
	next := r.pipe()
	p := r.start()
	expect(t, next, "ready")
	if err := os.RemoveAll(r.dir.Path()); err != nil {
		t.Fatal(err)
	}
	// Somebody else's, of the same name.
	if err := os.Mkdir(r.dir.Path(), 0o755); err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenFile(r.base+"/out/fifo", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := open.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != spool.FailedNoExitStatus {
		t.Errorf("exit code %d; want %d", code, spool.FailedNoExitStatus)
	}
	entries, err := os.ReadDir(r.dir.Path())
	if err != nil || len(entries) > 0 {
		t.Errorf("it made %v: %v", entries, err)
	}
	if got := r.log(); got != "" {
		t.Errorf("what ran: %q", got)
	}
	if left := r.marked(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
