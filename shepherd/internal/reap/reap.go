// Package reap is the shepherd's only wait loop: it waits for the job's
// process, for signals and for the starter's report at once, and takes
// the exit of everything the job leaves behind. Only the shepherd imports it.
package reap

import (
	"errors"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Subreaper makes this process the parent of every orphan below it, so that a
// process of the job cannot escape by losing its parent.
func Subreaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// A Child is a process beside the job's.
type Child struct {
	PID    int
	FD     int // pidfd, closed once it was taken
	Ended  bool
	Status syscall.WaitStatus // when it has ended
}

// Loop waits for what its descriptors tell. New makes one.
type Loop struct {
	Signals int // a signalfd, nonblocking
	Child   int // pidfd of the job's process, until it was taken
	Report  int // our end of the socket to the starter, until the other end was closed
	Memory  int // descriptor that can be read when the job's memory has run out
	Session int // our end of the socket to qrsh-session
	Notes   int // pipe of what procedures say, while nobody but us reads it
	Lease   int // timer that can be read when the lease of the run may be over

	PID int // of the job's process

	// Note is called for each child that Orphans takes, if it is not nil.
	Note func(pid int, ws syscall.WaitStatus, ru *syscall.Rusage)

	beside  []*Child
	orphans syscall.Rusage // of those taken by Orphans
}

// New returns a loop that has no descriptor yet, which is -1: 0 would be the standard
// input, and a wait for it would be over at once.
func New() Loop {
	return Loop{Signals: -1, Child: -1, Report: -1, Memory: -1, Session: -1, Notes: -1, Lease: -1}
}

// Watch has the loop wait for a child beside the job's process as well, until it has
// ended.
func (l *Loop) Watch(pid, fd int) *Child {
	c := &Child{PID: pid, FD: fd}
	l.beside = append(l.beside, c)
	return c
}

// Woken says what Wait found. Several may be true at once.
type Woken struct {
	Signals bool // at least one signal is pending
	Report  bool // the report socket has a message or was closed
	Memory  bool // the job's memory has run out
	Session bool // qrsh-session has said something, or is gone
	Notes   bool // a procedure has said something to nobody
	Lease   bool // the lease of the run may be over
	Ended   bool // the job's process has ended
	Beside  bool // a command beside it has ended
	Orphan  bool // a signal of Go's own came, most likely SIGCHLD for an orphan
	Timeout bool // nothing of this happened in time
}

// Wait returns when something happened or, if limit is not negative, when
// limit has passed. A child that was reparented to the shepherd ends a wait by
// SIGCHLD, which Go leaves unblocked.
func (l *Loop) Wait(limit time.Duration) (Woken, error) {
	room := [9]unix.PollFd{
		{Fd: int32(l.Signals), Events: unix.POLLIN},
		{Fd: int32(l.Report), Events: unix.POLLIN},
		{Fd: int32(l.Child), Events: unix.POLLIN},
		{Fd: int32(l.Memory), Events: unix.POLLIN},
		{Fd: int32(l.Session), Events: unix.POLLIN},
		{Fd: int32(l.Notes), Events: unix.POLLIN},
		{Fd: int32(l.Lease), Events: unix.POLLIN},
	}
	fds := room[:7]
	for _, c := range l.beside {
		fds = append(fds, unix.PollFd{Fd: int32(c.FD), Events: unix.POLLIN})
	}
	var ts *unix.Timespec
	if limit >= 0 {
		t := unix.NsecToTimespec(int64(limit))
		ts = &t
	}
	n, err := unix.Ppoll(fds, ts, nil)
	switch {
	case errors.Is(err, unix.EINTR):
		return Woken{Orphan: true}, nil
	case err != nil:
		return Woken{}, err
	case n == 0:
		return Woken{Timeout: true}, nil
	}
	w := Woken{
		Signals: fds[0].Revents != 0,
		Report:  fds[1].Revents != 0,
		Ended:   fds[2].Revents != 0,
		Memory:  fds[3].Revents != 0,
		Session: fds[4].Revents != 0,
		Notes:   fds[5].Revents != 0,
		Lease:   fds[6].Revents != 0,
	}
	for _, fd := range fds[7:] {
		w.Beside = w.Beside || fd.Revents != 0
	}
	return w, nil
}

// Signal returns the next pending signal and the uid of its sender; ok is
// false when there is none.
func (l *Loop) Signal() (sig unix.Signal, uid uint32, ok bool) {
	var info unix.SignalfdSiginfo
	b := (*[unsafe.Sizeof(info)]byte)(unsafe.Pointer(&info))
	for {
		n, err := unix.Read(l.Signals, b[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != len(b) {
			return 0, 0, false
		}
		return unix.Signal(info.Signo), info.Uid, true
	}
}

// siPID is where siginfo_t has si_pid: first in the union behind three ints,
// which is aligned as a pointer is.
const siPID = (12 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)

// peek returns the pid of a child that has ended and not been taken, 0 if
// none has, and an error (ECHILD) if there is no child at all.
func peek() (int, error) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), siPID))), nil
	}
}

// Orphans takes every ended child but the job's process, whose pid must stay
// its own until its group was dealt with. Of a watched one it is noted how it has
// ended. It reports whether any child is left: without one nothing that the job
// started is alive, since all orphans below us become ours.
func (l *Loop) Orphans() (left bool) {
	for {
		pid, err := peek()
		if err != nil {
			return !errors.Is(err, unix.ECHILD)
		}
		if pid == 0 || (pid == l.PID && l.Child >= 0) {
			return true
		}
		var (
			ws syscall.WaitStatus
			ru syscall.Rusage
		)
		if got, _ := syscall.Wait4(pid, &ws, unix.WNOHANG, &ru); got != pid {
			continue
		}
		Add(&l.orphans, &ru)
		if l.Note != nil {
			l.Note(pid, ws, &ru)
		}
		if i := slices.IndexFunc(l.beside, func(c *Child) bool { return c.PID == pid }); i >= 0 {
			c := l.beside[i]
			c.Ended, c.Status = true, ws
			unix.Close(c.FD)
			c.FD = -1
			l.beside = slices.Delete(l.beside, i, i+1)
		}
	}
}

// Over reports whether the child has ended, though it may not have been taken.
func (l *Loop) Over() bool {
	if l.Child < 0 {
		return true
	}
	fds := [1]unix.PollFd{{Fd: int32(l.Child), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds[:], 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

// Take takes the exit of the job's process, which must have ended, and closes
// its descriptor. The usage is that of the process and of what it waited for.
func (l *Loop) Take() (syscall.WaitStatus, syscall.Rusage, error) {
	var (
		ws  syscall.WaitStatus
		ru  syscall.Rusage
		err error
	)
	for {
		_, err = syscall.Wait4(l.PID, &ws, 0, &ru)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	unix.Close(l.Child)
	l.Child = -1
	return ws, ru, err
}

// OrphanUsage returns the usage of everything taken by Orphans.
func (l *Loop) OrphanUsage() syscall.Rusage { return l.orphans }

// Add adds the usage of one process to that of others: times and counts are
// sums, the resident size is the largest seen.
func Add(sum, ru *syscall.Rusage) {
	sum.Utime = addTime(sum.Utime, ru.Utime)
	sum.Stime = addTime(sum.Stime, ru.Stime)
	sum.Maxrss = max(sum.Maxrss, ru.Maxrss)
	sum.Ixrss += ru.Ixrss
	sum.Idrss += ru.Idrss
	sum.Isrss += ru.Isrss
	sum.Minflt += ru.Minflt
	sum.Majflt += ru.Majflt
	sum.Nswap += ru.Nswap
	sum.Inblock += ru.Inblock
	sum.Oublock += ru.Oublock
	sum.Msgsnd += ru.Msgsnd
	sum.Msgrcv += ru.Msgrcv
	sum.Nsignals += ru.Nsignals
	sum.Nvcsw += ru.Nvcsw
	sum.Nivcsw += ru.Nivcsw
}

func addTime(a, b syscall.Timeval) syscall.Timeval {
	return syscall.NsecToTimeval(a.Nano() + b.Nano())
}
