package worker

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The lock of a sandbox says who was given it, for an execd that is started while the
// worker lives: its number and the time of its start, in the words of /proc. The worker
// must not be able to write there, or root would kill whom its owner likes.

// note writes down who is given the lock at a path.
func note(path string, pid int) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = fmt.Fprintf(f, "%d %s\n", pid, started(pid))
}

// endHolder ends who holds a lock, with its process group.
func endHolder(lock *os.File) {
	buf := make([]byte, 100)
	n, _ := lock.ReadAt(buf, 0)
	var pid int
	var start string
	if _, err := fmt.Sscanf(string(buf[:n]), "%d %s\n", &pid, &start); err != nil || pid < 2 {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // gone, and what it has left holds the lock
	}
	defer unix.Close(fd)
	if started(pid) == start {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

// started returns when a process was started, "" if it is gone.
func started(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name before may have anything in it.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const at = 19 // field 22 of the line
	if len(fields) <= at {
		return ""
	}
	return fields[at]
}
