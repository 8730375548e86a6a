package hook

import (
	"golang.org/x/sys/unix"

	"paddock/internal/proc"
)

// condition is what a hook inherits from its parent and any process of the same
// user can change from outside, above all a hook. A parent whose condition has changed
// runs no other hook. All else that a hook inherits is set anew for each (directory,
// umask, mask and dispositions of signals, session, descriptors, environment), or is
// protected by isolate.
type condition struct {
	limits [rlimits]unix.Rlimit
	policy unix.SchedAttr // and the nice value
	io     uintptr        // priority
	cpus   unix.CPUSet
	cgroup string
	oom    string // oom_score_adj
}

// rlimits is how many limits of resources there are, numbered from 0.
const rlimits = 16

// observe returns the condition of this thread, which is the one that starts hooks.
// What the kernel does not show is taken for unchanged.
func observe() condition {
	var c condition
	for i := range c.limits {
		if unix.Prlimit(0, i, nil, &c.limits[i]) != nil {
			c.limits[i] = unix.Rlimit{}
		}
	}
	if a, err := unix.SchedGetAttr(0, 0); err == nil {
		c.policy = *a
	}
	const thisProcess = 1 // IOPRIO_WHO_PROCESS
	c.io, _, _ = unix.RawSyscall(unix.SYS_IOPRIO_GET, thisProcess, 0, 0)
	_ = unix.SchedGetaffinity(0, &c.cpus)
	cgroup, _ := proc.ReadFile(unix.AT_FDCWD, "/proc/thread-self/cgroup", nil)
	oom, _ := proc.ReadFile(unix.AT_FDCWD, "/proc/self/oom_score_adj", nil)
	c.cgroup, c.oom = string(cgroup), string(oom)
	return c
}
