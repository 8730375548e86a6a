package reap

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// start starts a child behind the loop's back and returns its pid and pidfd.
func start(t *testing.T, script string) (int, int) {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	pid, err := syscall.ForkExec(sh, []string{"sh", "-c", script}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{PidFD: &fd}})
	if err != nil {
		t.Fatal(err)
	}
	return pid, fd
}

// ended waits until a process has ended, and leaves it to be taken.
func ended(t *testing.T, pid int) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

// TestLoop has a child of its own and orphans end in either order.
func TestLoop(t *testing.T) {
	mask := unix.Sigset_t{}
	sfd, err := unix.Signalfd(-1, &mask, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(sfd)
	l := New()
	l.Signals = sfd
	if l.Orphans() {
		t.Fatal("a child is left over from another test")
	}
	orphan, ofd := start(t, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
	defer unix.Close(ofd)
	l.PID, l.Child = start(t, "exit 3")
	ended(t, l.PID)
	ended(t, orphan)
	if w, err := l.Wait(time.Minute); err != nil || w.Timeout {
		t.Errorf("Wait = %+v, %v; want the child's end", w, err)
	}
	if !l.Orphans() {
		t.Error("Orphans took the child itself")
	}
	ws, _, err := l.Take()
	if err != nil || ws.ExitStatus() != 3 {
		t.Errorf("Take = %v, %v; want exit status 3", ws, err)
	}
	if l.Orphans() {
		t.Error("Orphans says that a child is left")
	}
	ru := l.OrphanUsage()
	if ru.Utime.Nano()+ru.Stime.Nano() == 0 || ru.Maxrss == 0 {
		t.Errorf("the orphan's usage is not counted: %+v", ru)
	}
	for {
		w, err := l.Wait(time.Millisecond)
		if err != nil || w != (Woken{Timeout: true}) && w != (Woken{Orphan: true}) {
			t.Errorf("Wait = %+v, %v; want a timeout", w, err)
		}
		if !w.Orphan { // a signal of Go's own may come at any time
			break
		}
	}
}

func TestAdd(t *testing.T) {
	a := syscall.Rusage{Maxrss: 10, Minflt: 1, Utime: syscall.Timeval{Sec: 1, Usec: 600000}}
	b := syscall.Rusage{Maxrss: 5, Minflt: 2, Utime: syscall.Timeval{Sec: 2, Usec: 700000}}
	Add(&a, &b)
	if a.Maxrss != 10 || a.Minflt != 3 || a.Utime != (syscall.Timeval{Sec: 4, Usec: 300000}) {
		t.Errorf("Add = %+v", a)
	}
}
