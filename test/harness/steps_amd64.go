package harness

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// changes are the system calls that change something that others see. Those that open a
// file are among them where somebody else changes things.
var changes = map[uint64]bool{
	unix.SYS_MKDIRAT: true, unix.SYS_RENAMEAT: true, unix.SYS_RENAMEAT2: true,
	unix.SYS_UNLINKAT: true, unix.SYS_LINKAT: true, unix.SYS_SYMLINKAT: true, unix.SYS_PWRITE64: true,
	unix.SYS_COPY_FILE_RANGE: true, unix.SYS_FTRUNCATE: true, unix.SYS_FCHMOD: true, unix.SYS_FCHMODAT: true,
	unix.SYS_UTIMENSAT: true, unix.SYS_FSYNC: true, unix.SYS_SYNCFS: true,
}

// Stepped runs a command, which has a SysProcAttr, with a debugger, and calls do before
// its step at, which it may have fail by returning an error number. A step is a system
// call that changes something, or with opens one that opens a file. It reports whether the
// step was reached.
func Stepped(t testing.TB, cmd *exec.Cmd, opens bool, at int, do func(pid int) unix.Errno) (reached bool) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr.Ptrace = true
	must(cmd.Start())
	pid := cmd.Process.Pid
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(pid, &ws, 0, nil)
	must(err)
	must(syscall.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL))
	must(syscall.PtraceSyscall(pid, 0))
	inside := make(map[int]bool)
	fails := make(map[int]unix.Errno)
	for n := 0; ; {
		thread, err := syscall.Wait4(-1, &ws, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		must(err)
		if ws.Exited() || ws.Signaled() {
			if thread == pid {
				break
			}
			continue
		}
		pass := 0
		switch sig := ws.StopSignal(); sig {
		case unix.SIGTRAP | 0x80:
			var regs syscall.PtraceRegs
			if syscall.PtraceGetRegs(thread, &regs) != nil {
				break
			}
			if inside[thread] = !inside[thread]; inside[thread] {
				if n < at && (changes[regs.Orig_rax] || opens && (regs.Orig_rax == unix.SYS_OPENAT || regs.Orig_rax == unix.SYS_OPENAT2)) {
					if n++; n == at {
						reached = true
						if errno := do(pid); errno != 0 {
							fails[thread] = errno
							regs.Orig_rax = ^uint64(0)
							must(syscall.PtraceSetRegs(thread, &regs))
						}
					}
				}
			} else if errno := fails[thread]; errno != 0 {
				delete(fails, thread)
				regs.Rax = -uint64(errno)
				must(syscall.PtraceSetRegs(thread, &regs))
			}
		case unix.SIGTRAP, unix.SIGSTOP:
		default:
			pass = int(sig)
		}
		_ = syscall.PtraceSyscall(thread, pass) // it may have been killed
	}
	_ = cmd.Process.Release()
	return reached
}
