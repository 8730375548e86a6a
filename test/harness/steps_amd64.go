package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// changes are the system calls that change something that others see.
var changes = []uint32{
	unix.SYS_MKDIRAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT, unix.SYS_LINKAT, unix.SYS_SYMLINKAT,
	unix.SYS_PWRITE64, unix.SYS_COPY_FILE_RANGE, unix.SYS_FTRUNCATE, unix.SYS_FCHMOD, unix.SYS_FCHMODAT,
	unix.SYS_UTIMENSAT, unix.SYS_FSYNC, unix.SYS_SYNCFS,
}

// opening are those that open a file, which matter where somebody else changes things.
var opening = []uint32{unix.SYS_OPENAT, unix.SYS_OPENAT2}

// Steps says which steps of a program a test tries that runs it once for each, to have
// something happen there: the first and, from each, how many further the next is. Without
// [Soak] that is every nth, from one on that is drawn: a few runs try them all.
func Steps(t testing.TB, n int) (first, every int) {
	t.Helper()
	switch {
	case testing.Short():
		t.Skip("takes processes for every step")
	case Soak:
		n = 1
	}
	return 1 + rand.IntN(n), n
}

// Stepped runs a command, which has a SysProcAttr, with a debugger, and calls do before
// its step at, which it may have fail by returning an error number. A step is a system
// call that changes something, or with opens one that opens a file. It reports whether the
// step was reached.
func Stepped(t testing.TB, cmd *exec.Cmd, opens bool, at int, do func(pid int) unix.Errno) (reached bool) {
	t.Helper()
	// Start would open it in the thread of the debugger, which cannot.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if cmd.Stdin == nil {
		cmd.Stdin = null
	}
	if cmd.Stdout == nil {
		cmd.Stdout = null
	}
	if cmd.Stderr == nil {
		cmd.Stderr = null
	}
	steps := slices.Clone(changes)
	if opens {
		steps = append(steps, opening...)
	}
	stopped, answer, ended := make(chan int), make(chan unix.Errno), make(chan error, 1)
	defer close(answer)
	go func() {
		ended <- debug(cmd, steps, at, func(pid int) unix.Errno {
			stopped <- pid
			return <-answer
		})
	}()
	for {
		select {
		case pid := <-stopped:
			reached = true
			answer <- do(pid)
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			return reached
		}
	}
}

// debug runs a command until it ends, and stops it at each of the given system calls and
// nowhere else: most of its calls are those of the Go runtime, and a stop takes longer than
// they do. The thread, and each that the command starts, has a filter for that, which
// cannot be taken off. It ends with the goroutine.
func debug(cmd *exec.Cmd, calls []uint32, at int, do func(pid int) unix.Errno) error {
	runtime.LockOSThread()
	if err := traced(calls); err != nil {
		return err
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Process.Release() //nolint:errcheck // it was waited for
	pid := cmd.Process.Pid
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
		return fmt.Errorf("cannot wait for the command: %w", err)
	}
	const options = unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	if err := syscall.PtraceSetOptions(pid, options); err != nil {
		return fmt.Errorf("cannot trace the command: %w", err)
	}
	_ = syscall.PtraceCont(pid, 0) // it may have been killed
	for n := 0; ; {
		thread, err := syscall.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		pass := 0
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("cannot wait for the command: %w", err)
		case ws.Exited() || ws.Signaled():
			if thread == pid {
				return nil
			}
			continue
		case ws.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
			if n++; n == at {
				if errno := do(pid); errno != 0 {
					if err := fail(thread, errno); err != nil {
						return err
					}
				}
			}
		case ws.StopSignal() != unix.SIGTRAP && ws.StopSignal() != unix.SIGSTOP:
			pass = int(ws.StopSignal())
		}
		_ = syscall.PtraceCont(thread, pass)
	}
}

// fail has the system call at which a thread has stopped fail.
func fail(thread int, errno unix.Errno) error {
	var regs syscall.PtraceRegs
	err := syscall.PtraceGetRegs(thread, &regs)
	if err == nil {
		regs.Orig_rax, regs.Rax = ^uint64(0), -uint64(errno)
		err = syscall.PtraceSetRegs(thread, &regs)
	}
	if err != nil {
		return fmt.Errorf("cannot have a call fail: %w", err)
	}
	return nil
}

// traced has the debugger of this thread's children told of some of their system calls.
func traced(calls []uint32) error {
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the number of the call
	for _, nr := range calls {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) // without which only root may
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	}
	if err != nil {
		return fmt.Errorf("cannot filter system calls: %w", err)
	}
	return nil
}
