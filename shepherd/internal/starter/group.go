package starter

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"paddock/internal/proc"
	"paddock/spool"
)

// join joins the control groups of version 1 that are the job's alone, and
// reports whether a group holds h_vmem for what the starter becomes. One that
// cannot be joined does not hold, which the trace says; without the one that
// keeps other jobs' devices from it the job is not run.
func (s *starter) join() (held bool, err error) {
	if v, _ := s.config.Lookup(spool.KeyDevices); v == "1" && s.order.Kind == Job && !s.process.place.Grouped {
		return false, errors.New("cannot keep devices from the job outside of its control group")
	}
	v, _ := s.config.Lookup(spool.KeyVmem)
	held = v == spool.VmemGroup && s.process.place.Grouped
	for _, key := range spool.JoinedCgroups {
		path, ok := s.config.Lookup(key)
		if !ok {
			continue
		}
		joined := false
		if s.process.place.Grouped && s.order.Kind == Job {
			// It has one thread. To move a whole process would make the kernel wait
			// for every other.
			err := proc.WriteFile(unix.AT_FDCWD, path+"/tasks", strconv.Itoa(s.process.PID))
			if joined = err == nil; !joined && key == spool.KeyCgroupDevices {
				return false, errors.New("cannot join control group " + path + ": " + errnoText(err))
			}
			if !joined {
				s.line("cannot join control group " + path + ", going on without: " + errnoText(err))
			}
		}
		if key == spool.KeyCgroupMemory && !joined {
			held = false
		}
	}
	return held, nil
}
