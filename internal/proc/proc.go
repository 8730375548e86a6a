// Package proc is the table of processes, and what it takes to signal exactly
// those that were meant: which process a number stands for, what has ended, who
// descends from whom, and how a control group is killed. The shepherd imports it
// as execd does, so that it has nothing but the standard library and x/sys.
package proc

import (
	"bytes"
	"errors"
	"iter"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// An ID names a process for good, as its number alone does not.
type ID struct {
	PID   int
	Start uint64 // in ticks since boot
}

// A Process is what the kernel says of a process.
type Process struct {
	ID
	Parent, Group, Session, Threads int

	CPU, Sys uint64 // ticks that it and the children that it has waited for took; the second in the kernel alone
	Wait     uint64 // ticks that it waited for disks
	Pages    uint64 // in memory

	// Execs: it is in the middle of exec, and has no environment yet. It is told only of a
	// process whose environment may be read.
	Execs bool

	ended  bool
	kernel bool // a thread of the kernel's
}

// Ticks is what a second has in /proc: USER_HZ, which is 100 wherever Go runs.
const Ticks = 100

// parse parses the content of stat, see proc_pid_stat(5). What stands behind its
// last closing bracket counts: the command's name before it may hold anything.
func parse(pid int, b []byte) (p Process, ok bool) {
	p.PID = pid
	b = b[bytes.LastIndexByte(b, ')')+1:]
	state, memory, i := byte(0), uint64(0), 2
	for word := range bytes.FieldsSeq(b) {
		i++
		if i == 3 {
			state = word[0]
			continue
		}
		n := Number(word)
		switch i {
		case 4:
			p.Parent = int(n)
		case 5:
			p.Group = int(n)
		case 6:
			p.Session = int(n)
		case 9:
			p.kernel = n&kernelThread != 0
		case 14, 16:
			p.CPU += n
		case 15, 17:
			p.CPU += n
			p.Sys += n
		case 20:
			p.Threads = int(n)
		case 22:
			p.Start = n
		case 23:
			memory = n
		case 24:
			p.Pages = n
		case 26: // where its code begins: 1 for who may not know
			p.Execs = n == 0 && memory > 0
		case 42:
			p.Wait = n
		}
	}
	// A first thread that has ended is shown as a zombie while others run.
	p.ended = (state == 'Z' || state == 'X') && p.Threads <= 1
	return p, i >= 24
}

const kernelThread = 0x200000 // PF_KTHREAD

// Get returns the process of a number; ok is false if it has ended, be it that
// nobody has waited for it yet.
func Get(pid int) (p Process, ok bool) {
	b, err := Process{ID: ID{PID: pid}}.Read("stat")
	if err != nil {
		return Process{}, false
	}
	p, ok = parse(pid, b)
	return p, ok && !p.ended
}

// At returns the process that a number stood for at a time by the host's clock, as
// when somebody wrote the number down; ok is false if it has ended, be it that the
// number is another's by now.
func At(pid int, when time.Time) (p Process, ok bool) {
	p, ok = Get(pid)
	return p, ok && p.Age() > time.Since(when)-stamp
}

// stamp is how coarse the times of files may be.
const stamp = 2 * time.Second

// All returns the processes that have not ended. The threads of the kernel are not
// among them: they may have any group, as those of NFS have, and are nobody's.
func All() ([]Process, error) {
	t, err := Open("/proc")
	if err != nil {
		return nil, err
	}
	defer t.Close()
	var all []Process
	err = t.List(func(pid int, _ uint64) {
		if p, ok := t.Stat(pid); ok && !p.ended && !p.kernel {
			all = append(all, p)
		}
	})
	return all, err
}

// Descendants returns the numbers of the roots and of all below them.
func Descendants(all []Process, roots ...int) map[int]bool {
	below := make(map[int]bool)
	for _, pid := range roots {
		below[pid] = true
	}
	for again := len(roots) > 0; again; { // parents may come after their children once numbers have wrapped
		again = false
		for _, p := range all {
			if !below[p.PID] && below[p.Parent] {
				below[p.PID] = true
				again = true
			}
		}
	}
	return below
}

// Uptime returns for how long the host has been up: a clock that nobody sets.
func Uptime() time.Duration {
	var up unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) // every kernel has it
	return time.Duration(up.Nano())
}

// Age returns for how long a process has been there.
func (p Process) Age() time.Duration {
	return max(0, Uptime()-time.Duration(p.Start)*(time.Second/Ticks))
}

// Read returns what a file of the process holds. By now it may be another's: what
// follows from it is to be done by Signal.
func (p Process) Read(file string) ([]byte, error) {
	return ReadFile(unix.AT_FDCWD, "/proc/"+strconv.Itoa(p.PID)+"/"+file, nil)
}

// Environ yields the environment that the process was started with.
func (p Process) Environ() iter.Seq[[]byte] {
	b, _ := p.Read("environ")
	return bytes.SplitSeq(b, []byte{0})
}

// Groups yields the supplementary groups in the content of a file status.
func Groups(status []byte) iter.Seq[int] {
	_, rest, _ := bytes.Cut(status, []byte("\nGroups:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return func(yield func(int) bool) {
		for word := range bytes.FieldsSeq(line) {
			if !yield(int(Number(word))) {
				return
			}
		}
	}
}

// Number returns the number that b begins with, 0 if there is none.
func Number(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// open returns a pidfd of exactly this process: the start time is compared once it
// is open, since the number alone may have become another's.
func (p Process) open() (fd int, ok bool) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return -1, false
	}
	if now, ok := Get(p.PID); !ok || now.ID != p.ID {
		unix.Close(fd)
		return -1, false
	}
	return fd, true
}

// Signal sends a signal to exactly this process, and reports whether it is there.
func (p Process) Signal(sig unix.Signal) (there bool, err error) {
	fd, ok := p.open()
	if !ok {
		return false, nil
	}
	defer unix.Close(fd)
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	return true, err
}

// Ends waits for the end of the process, and reports whether it came in time.
func (p Process) Ends(limit time.Duration) bool {
	fd, ok := p.open()
	if !ok {
		return true
	}
	defer unix.Close(fd)
	for end := time.Now().Add(limit); ; {
		left := max(time.Until(end).Milliseconds(), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n == 1
		}
	}
}
