package parent

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/starter"
	"paddock/spool"
)

// standby waits for the job that execd assigns, whose lock takes the place of the socket.
// It reports false when there is none to come: execd is gone, or wants this shepherd no
// more, or a signal came, which cannot have been meant for a job.
func (o *Options) standby() (assigned bool, err error) {
	starter.Warm()
	called, err := signaled()
	if called || err != nil {
		return false, err
	}
	text := make([]byte, spool.MaxAssignment)
	n, files, err := starter.Receive(lockFD, text)
	if err != nil || n == 0 {
		return false, err
	}
	a, err := spool.ParseAssignment(text[:n])
	if err == nil && len(files) != 1 {
		err = errors.New("an assignment without a lock")
	}
	if err == nil {
		o.assigned, err = unix.FcntlInt(lockFD, unix.F_DUPFD_CLOEXEC, lockFD+1)
	}
	if err == nil {
		err = unix.Dup3(files[0], lockFD, unix.O_CLOEXEC)
	}
	if err != nil {
		return false, err
	}
	unix.Close(files[0])
	o.Dir = a.Dir
	rename(o.Argv, a.Name)
	o.Argv = nil // its text is gone
	return true, nil
}

// settle tells execd that the start of the run needs the processors no more: its job has
// run for a moment, a procedure before it has begun, or its client is waited for. The end of
// this process says so as well.
func (p *parent) settle() {
	if p.assigned > 0 {
		unix.Close(p.assigned)
		p.assigned = 0
	}
}

// signaled waits until there is something to read from the socket, or for a signal.
func signaled() (bool, error) {
	mask := control.Mask()
	fd, err := unix.Signalfd(-1, &mask, unix.SFD_CLOEXEC)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	fds := []unix.PollFd{{Fd: lockFD, Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Ppoll(fds, nil, nil)
		if errors.Is(err, unix.EINTR) { // a signal of the runtime's own
			continue
		}
		return fds[0].Revents == 0, err
	}
}

// rename writes what this process is called, as one that is started for its job, where the
// list of processes has its arguments, which lie there one after the other.
func rename(argv []string, name string) {
	first, last := argv[0], argv[len(argv)-1]
	begin := unsafe.Pointer(unsafe.StringData(first))
	size := uintptr(unsafe.Pointer(unsafe.StringData(last))) + uintptr(len(last)) - uintptr(begin)
	room := unsafe.Slice((*byte)(begin), size)
	clear(room)
	copy(room[:size-1], name+"\x00-bg")
}
