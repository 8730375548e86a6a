package starter

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// program is a plan with a socket to report to, for a process that does nothing else.
type program struct {
	*plan
	t      *testing.T
	socket int
}

func newProgram(t *testing.T) *program {
	t.Helper()
	p, err := newPlan()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(pair[0]) })
	defer unix.Close(pair[1])
	// Not as long as the process lives: it gets one of its own.
	fd, err := unix.FcntlInt(uintptr(pair[1]), unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	p.call(unix.SYS_DUP3, uintptr(fd), fdReport, 0)
	return &program{p, t, pair[0]}
}

// run runs the plan and returns how the process ended, and its report.
func (p *program) run() (syscall.WaitStatus, *Failure) {
	p.t.Helper()
	p.finish()
	if p.full {
		p.t.Fatal("the plan is full")
	}
	pid, pidfd, err := p.start(-1)
	if err != nil {
		p.t.Fatal(err)
	}
	unix.Close(pidfd)
	var ws syscall.WaitStatus
	if err := ignoringEINTR(func() error { _, err := syscall.Wait4(pid, &ws, 0, nil); return err }); err != nil {
		p.t.Fatal(err)
	}
	if err := unix.SetNonblock(p.socket, true); err != nil {
		p.t.Fatal(err)
	}
	s := Process{Socket: p.socket, plan: p.plan}
	return ws, s.Next().Failure
}

// A plan works whatever thread forks, also where what the runtime knows of the thread lies in
// the part of the heap that the process is made without: a process of its own has no other.
func TestAnyThread(t *testing.T) {
	const small = "PADDOCK_TEST_SMALL"
	if os.Getenv(small) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestAnyThread$")
		cmd.Env = append(os.Environ(), small+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	var wg sync.WaitGroup
	for range 8 {
		started := make(chan struct{})
		wg.Go(func() {
			runtime.LockOSThread()
			close(started)
			p := newProgram(t)
			p.call(unix.SYS_GETPID)
			p.flush()
			p.add(doExit, 3)
			if ws, _ := p.run(); ws.ExitStatus() != 3 {
				t.Errorf("status %#x; want exit 3", ws)
			}
		})
		<-started
	}
	wg.Wait()
}

// TestSteps works through every kind of step.
func TestSteps(t *testing.T) {
	p := newProgram(t)
	a, b := p.put("one word"), p.put("one more")
	same := p.same(a, b, 4)
	differs := p.same(a, b, 8)
	half := p.load(a, 4, 0xff)
	p.call(unix.SYS_GETPID)
	pid := p.result()
	p.call(unix.SYS_CLOSE, ^uintptr(0))
	errno := p.errno()
	taken, passed := p.reg(), p.reg()
	p.either(errno, uintptr(unix.EBADF), func() { p.set(taken, 7) }, func() { p.set(passed, 7) })
	p.either(errno, 0, func() { p.set(passed, 8) }, nil)
	rounds, left := p.room(8), p.reg()
	p.set(left, 5)
	top := uintptr(p.steps)
	p.barrier = p.steps
	p.say(".")
	p.add(doLoop, top).to = uint8(left &^ regTag)
	p.add(doStore, rounds, pid)
	p.say(" ")
	p.number(0o644, 8)
	p.say(" ")
	p.number(^uintptr(0), 0)
	p.say(" ")
	p.number(0, 0)
	at := p.room(maxDigits)
	p.add(doDigits, taken, at)
	p.add(doText, at, 1)
	p.add(doText, a, ^uintptr(0)) // a length that is an error: nothing
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	p.area.regs[traceReg] = write.Fd()
	p.flush()
	p.add(doExit, 3)
	ws, failure := p.run()
	write.Close()
	if ws.ExitStatus() != 3 || failure != nil {
		t.Errorf("status %v, failure %+v; want 3 and none", ws, failure)
	}
	for name, c := range map[string][2]uintptr{
		"same": {p.value(same), 1}, "differs": {p.value(differs), 0}, "half": {p.value(half), 'o'}, "errno": {p.value(errno), uintptr(unix.EBADF)},
		"taken": {p.value(taken), 7}, "passed": {p.value(passed), 0}, "stored": {*(*uintptr)(p.area.at(rounds)), p.value(pid)}, "left": {p.value(left), 0},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %d; want %d", name, c[0], c[1])
		}
	}
	text := make([]byte, 100)
	n, err := read.Read(text)
	if got, want := string(text[:n]), "..... 644 INFINITY 07"; err != nil || got != want {
		t.Errorf("text %q, %v; want %q", got, err, want)
	}
}

// TestFailing has calls fail that must not, and succeed that must not.
func TestFailing(t *testing.T) {
	for _, c := range []struct {
		name string
		add  func(p *program)
		want Failure
	}{
		{"a call", func(p *program) {
			p.call(unix.SYS_CHDIR, p.path("/no/such"))
			p.fails(fail, 28, 4, true, "cannot ", "enter: ")
		}, Failure{28, "cannot enter: No such file or directory", 4}},
		{"one that is to fail", func(p *program) {
			p.call(unix.SYS_GETPID)
			p.fails(mustFail, 7, 0, false, "rights were left")
		}, Failure{7, "rights were left", 0}},
		{"what was said", func(p *program) {
			p.add(doFail, 0, p.put("no more"), 2)
			p.fails(fail, 9, 0, false, "it says ")
		}, Failure{9, "it says no", 0}},
		{"too long a text", func(p *program) {
			p.add(doFail)
			p.fails(fail, 9, 0, false, strings.Repeat("x", maxText+1))
		}, Failure{9, strings.Repeat("x", maxText), 0}},
		{"exec", func(p *program) {
			list, err := p.list([]string{"/no/such/1", "/etc/passwd", "/no/such/2"})
			if err != nil {
				t.Fatal(err)
			}
			p.add(doExec, list, list, p.room(wordSize), p.path("/bin/sh"), p.room(2*wordSize), p.room(interpreterSize))
			p.fails(fail, 27, 0, true, "exec: ")
		}, Failure{27, "exec: Permission denied", 0}},
	} {
		p := newProgram(t)
		p.call(unix.SYS_CHDIR, p.path("/no/such")) // one that may fail
		c.add(p)
		p.add(doExit, 0)
		ws, got := p.run()
		if got == nil || *got != c.want || ws.ExitStatus() != c.want.Number {
			t.Errorf("%s: %.100v, status %v; want %.100v", c.name, got, ws, c.want)
		}
	}
}

// TestFiles gives a job streams that come with its order, and no other descriptor.
func TestFiles(t *testing.T) {
	r := newRig(t)
	var names []string
	for _, name := range []string{"in", "came", "went"} {
		r.empty(name)
		f, err := os.OpenFile(r.base+"/"+name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r.files, names = append(r.files, int(f.Fd())), append(names, r.base+"/"+name)
	}
	r.set("script_file=" + r.script("for fd in 0 1 2 3 4 5 6 7 8 9; do readlink /proc/$$/fd/$fd; done; echo diag >&2\n"))
	r.ran(Order{Name: "job"})
	if got, want := r.read("came"), strings.Join(names, "\n")+"\n"; got != want {
		t.Errorf("the job says %q; want %q", got, want)
	}
	if got := r.read("went"); got != "diag\n" {
		t.Errorf("standard error %q", got)
	}
	r.files = r.files[:2]
	r.refused(Order{Name: "job"}, 7, "internal error: bad order for the starter")
}

// TestFullPlan refuses what is too much for a plan.
func TestFullPlan(t *testing.T) {
	newRig(t).refused(Order{Name: "job", Env: []string{"LONG=" + strings.Repeat("y", areaSize)}}, 7,
		"cannot start job: the command with its variables is too long")
}

// TestProof becomes another user by a kernel that does not do one of the things that
// it is asked for, and says that it did.
func TestProof(t *testing.T) {
	needRoot(t, "becomes another user")
	runtime.LockOSThread() // and never unlocked: its rights are not what others expect
	if err := setGroups([]uint32{0, 7}); err != nil {
		t.Fatal(err)
	}
	become := func(without uint16, times int) *Failure {
		p := newProgram(t)
		s := &starter{plan: p.plan, target: &IDs{Name: "ann", UID: 54321, GID: 54322, Groups: []int{54322, 54323}}, process: &Process{}}
		s.asTarget()
		for i := range p.steps {
			if step := &p.area.steps[i]; step.do == doCall && step.on == fail && step.trap == without && times > 0 {
				times--
				step.trap = unix.SYS_GETPID
			}
		}
		if times > 0 {
			t.Fatalf("there are %d calls %d less than were to be left out", times, without)
		}
		p.add(doExit, 0)
		_, failure := p.run()
		return failure
	}
	if f := become(0, 0); f != nil {
		t.Errorf("all done: %+v", f)
	}
	for name, trap := range map[string]uint16{"setgroups": unix.SYS_SETGROUPS, "setresgid": unix.SYS_SETRESGID, "setresuid": unix.SYS_SETRESUID} {
		if f := become(trap, 1); f == nil || f.Text != "cannot become user ann, or rights were left" {
			t.Errorf("without %s: %+v", name, f)
		}
	}
}
