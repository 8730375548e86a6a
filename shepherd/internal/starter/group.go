package starter

import (
	"golang.org/x/sys/unix"

	"paddock/spool"
)

// join joins the control groups of version 1 that are the job's alone, and
// reports whether a group holds h_vmem for what the stage becomes. One that
// cannot be joined does not hold, which the trace says.
func (s *stage) join() bool {
	v, _ := s.config.Lookup(spool.KeyVmem)
	held := v == spool.VmemGroup && s.grouped
	for _, key := range spool.JoinedCgroups {
		path, ok := s.config.Lookup(key)
		if !ok {
			continue
		}
		joined := false
		if s.grouped && s.order.Kind == Job {
			err := enter(path)
			if joined = err == nil; !joined {
				s.log.Line("cannot join control group " + path + ", going on without: " + errnoText(err))
			}
		}
		if key == spool.KeyCgroupMemory && !joined {
			held = false
		}
	}
	return held
}

// enter moves this thread to a group. It is the one that executes the job, and
// moving the whole process would make the kernel wait for every other.
func enter(path string) error {
	fd, err := unix.Open(path+"/tasks", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("0"))
	return err
}
