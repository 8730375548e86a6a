package starter

import (
	"errors"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// join joins the control groups of version 1 that are the job's alone, and
// reports whether a group holds h_vmem for what the starter becomes. One that
// cannot be joined does not hold, which the trace says; without the one that
// keeps other jobs' devices from it the job is not run.
func (s *starter) join() (held bool, err error) {
	if v, _ := s.config.Lookup(spool.KeyDevices); v == "1" && s.order.Kind == Job && !s.grouped {
		return false, errors.New("cannot keep devices from the job outside of its control group")
	}
	v, _ := s.config.Lookup(spool.KeyVmem)
	held = v == spool.VmemGroup && s.grouped
	for _, key := range spool.JoinedCgroups {
		path, ok := s.config.Lookup(key)
		if !ok {
			continue
		}
		joined := false
		if s.grouped && s.order.Kind == Job {
			err := enter(path)
			if joined = err == nil; !joined && key == spool.KeyCgroupDevices {
				return false, errors.New("cannot join control group " + path + ": " + errnoText(err))
			}
			if !joined {
				s.log.Line("cannot join control group " + path + ", going on without: " + errnoText(err))
			}
		}
		if key == spool.KeyCgroupMemory && !joined {
			held = false
		}
	}
	return held, nil
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
