package starter

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What package syscall calls around its own fork.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// cloneArgs is the kernel's struct clone_args.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// start forks a process that works through the plan from its first step. It is
// born in the control group that a descriptor names, or where we are if that is
// -1. pidfd is -1 from a kernel that has none to give.
func (p *plan) start(group int) (pid, pidfd int, err error) {
	at := p.room(4) // no variable of Go's: the kernel writes there
	fd := (*int32)(p.area.at(at))
	*fd = -1
	args := &cloneArgs{flags: unix.CLONE_PIDFD, exitSignal: uint64(unix.SIGCHLD), pidfd: uint64(at)}
	if group >= 0 {
		args.flags, args.cgroup = args.flags|unix.CLONE_INTO_CGROUP, uint64(group)
	}
	// As package syscall does, that a descriptor which somebody else is making is
	// not in the process before it is marked to be closed.
	syscall.ForkLock.Lock()
	n, errno := fork(p.area, args, uintptr(unix.Getpagesize()))
	syscall.ForkLock.Unlock()
	if errno != 0 {
		return 0, -1, errno
	}
	return int(n), int(*fd), nil
}

// heapChunk is the size of the pieces in which Go's heap grows, and what they are
// aligned to.
const heapChunk = 4 << 20

// fork forks. The process that it makes has memory of its own: the rights that
// it takes on must not make this one a stranger to root (prctl(2),
// PR_SET_DUMPABLE), and it is not waited for. Go's heap is left out of that memory, here
// and by Warm, except for the pages of this stack, because nothing else of it is needed
// there, and what both have is copied page by page when the shepherd goes on and writes to
// it, which costs more than all the rest of a fork. Nobody else forks so: what package
// syscall starts shares its memory with this process until it is another program.
//
//go:noinline
//go:norace
//go:nocheckptr
func fork(a *area, args *cloneArgs, page uintptr) (pid uintptr, errno unix.Errno) {
	var here byte
	beforeFork() // from now on the stack does not move
	sp := uintptr(unsafe.Pointer(&here)) &^ (page - 1)
	heap := sp &^ (heapChunk - 1)
	syscall.RawSyscall(unix.SYS_MADVISE, heap, heapChunk, unix.MADV_DONTFORK)
	syscall.RawSyscall(unix.SYS_MADVISE, sp-2*page, 5*page, unix.MADV_DOFORK)
	// The kernel forgets the runtime's handlers at once.
	args.flags |= unix.CLONE_CLEAR_SIGHAND
	pid, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0)
	if errno == 0 && pid == 0 {
		a.execute()
	}
	if errno != 0 { // before Linux 5.5
		args.flags &^= unix.CLONE_CLEAR_SIGHAND
		if args.flags&unix.CLONE_INTO_CGROUP != 0 {
			pid, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0)
		} else {
			pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(args.flags|args.exitSignal), 0, uintptr(args.pidfd), 0, 0, 0)
		}
		if errno == 0 && pid == 0 {
			afterForkInChild()
			a.execute()
		}
	}
	afterFork()
	return pid, errno
}

// execute works through a plan. It does not return. It runs in a forked process
// of which Go knows nothing: it allocates nothing, writes no pointer of Go's and
// calls only what is like it. System calls are those of package syscall: the ones of
// unix read from memory what the runtime knows of the thread, which is in Go's heap
// if the thread is not the first.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (a *area) execute() {
	var (
		args       [6]uintptr
		i, k, r    uintptr
		errno      unix.Errno
		ok, failed bool
		s          *step
	)
	for {
		s = &a.steps[i%maxSteps]
		args = s.args
		for k = range uintptr(len(args)) {
			if s.regs>>k&1 != 0 {
				args[k] = a.regs[args[k]%maxRegs]
			}
		}
		switch s.do {
		case doCall:
			for {
				r, _, errno = syscall.RawSyscall6(uintptr(s.trap), args[0], args[1], args[2], args[3], args[4], args[5])
				if errno != unix.EINTR {
					break
				}
			}
			a.regs[s.to%maxRegs] = r
			a.regs[s.errs%maxRegs] = uintptr(errno)
			failed = s.on == fail && errno != 0 || s.on == mustFail && errno == 0
			if failed {
				a.fail(s, errno, 0, 0)
			}
		case doSet:
			a.regs[s.to%maxRegs] = args[0]
		case doLoad:
			if args[1] == 4 {
				r = uintptr(*(*uint32)(a.at(args[0])))
			} else {
				r = *(*uintptr)(a.at(args[0]))
			}
			a.regs[s.to%maxRegs] = r & args[2]
		case doSame:
			ok = true
			for k = 0; k < args[2]; k++ {
				ok = ok && *(*byte)(a.at(args[0] + k)) == *(*byte)(a.at(args[1] + k))
			}
			r = 0
			if ok {
				r = 1
			}
			a.regs[s.to%maxRegs] = r
		case doJump:
			if args[1] == args[2] {
				i = args[0]
				continue
			}
		case doUnless:
			if args[1] != args[2] {
				i = args[0]
				continue
			}
		case doLoop:
			a.regs[s.to%maxRegs]--
			if a.regs[s.to%maxRegs] != 0 {
				i = args[0]
				continue
			}
		case doStore:
			*(*uintptr)(a.at(args[0])) = args[1]
		case doText:
			a.add(args[0], args[1])
		case doNumber:
			a.addNumber(args[0], args[1])
		case doDigits:
			a.digits(args[1], args[0], 10)
		case doExec:
			errno, r = a.exec(&args)
			r, k = a.interpreter(r, args[5])
			a.fail(s, errno, r, k)
		case doFail:
			a.fail(s, unix.Errno(args[0]), args[1], args[2])
		case doExit:
			exit(int(args[0]))
		}
		i++
	}
}

// fail tells the shepherd that a step has failed, and ends the process. n bytes
// follow the text of the step.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (a *area) fail(s *step, errno unix.Errno, from, n uintptr) {
	r := &a.report
	r.kind, r.number, r.euid, r.errno = kindFail, s.number, s.euid, 0
	if s.because {
		r.errno = uint32(errno)
	}
	size := uintptr(0)
	for ; size < uintptr(s.size) && size < maxText; size++ {
		r.text[size] = *(*byte)(a.at(s.text + size))
	}
	for ; n > 0 && size < maxText; n-- {
		r.text[size] = *(*byte)(a.at(from))
		size++
		from++
	}
	syscall.RawSyscall(unix.SYS_WRITE, a.regs[traceReg], a.regs[textReg], a.regs[writtenReg])
	for {
		_, _, errno = syscall.RawSyscall(unix.SYS_WRITE, fdReport, uintptr(unsafe.Pointer(r)), reportHead+size)
		if errno != unix.EINTR {
			break
		}
	}
	exit(int(s.number))
}

// add adds bytes of the area to the text.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (a *area) add(from, n uintptr) {
	to := a.regs[textReg] + a.regs[writtenReg]
	if n > a.room || a.regs[writtenReg]+n > a.room {
		return
	}
	for k := range n {
		*(*byte)(a.at(to + k)) = *(*byte)(a.at(from + k))
	}
	a.regs[writtenReg] += n
}

// maxDigits is the length of the longest number.
const maxDigits = 24

// infinity is the limit that is none.
const infinity = "INFINITY"

// addNumber adds a number to the text.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (a *area) addNumber(v, base uintptr) {
	to := a.regs[textReg] + a.regs[writtenReg]
	if a.regs[writtenReg]+maxDigits > a.room {
		return
	}
	if base != 0 || v != ^uintptr(0) {
		if base == 0 {
			base = 10
		}
		a.regs[writtenReg] += a.digits(to, v, base)
		return
	}
	for k := range len(infinity) {
		*(*byte)(a.at(to + uintptr(k))) = infinity[k]
	}
	a.regs[writtenReg] += uintptr(len(infinity))
}

// digits writes a number with a NUL byte behind it, and returns how many digits it has.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (a *area) digits(to, v, base uintptr) uintptr {
	n := uintptr(1)
	for rest := v / base; rest != 0; rest /= base {
		n++
	}
	*(*byte)(a.at(to + n)) = 0
	for k := n; k > 0; k-- {
		*(*byte)(a.at(to + k - 1)) = '0' + byte(v%base)
		v /= base
	}
	return n
}

// exec executes a program, see doExec. It returns why it cannot, and the path of what
// could be executed itself, 0 for none.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (a *area) exec(args *[6]uintptr) (errno unix.Errno, script uintptr) {
	var path uintptr
	errno = unix.ENOENT
	for at := args[0]; ; at += wordSize {
		path = *(*uintptr)(a.at(at))
		if path == 0 {
			return errno, script
		}
		e := execve(path, args[1], args[2])
		if e == unix.ENOEXEC {
			*(*uintptr)(a.at(args[4] + wordSize)) = path
			e = execve(args[3], args[4], args[2])
		}
		// A directory that has it not, or may not be searched, is passed by; what
		// is found and may not be run is remembered, as execvp does.
		if e != unix.ENOENT && e != unix.ENOTDIR && e != unix.EACCES {
			return e, 0
		}
		_, _, no := syscall.RawSyscall(unix.SYS_FACCESSAT, atCwd, path, unix.X_OK)
		if no == 0 {
			script = path
		}
		if no == 0 || e == unix.EACCES {
			errno = e
		}
	}
}

// What the text of a failure has of a script, and room for that and for as much of the
// script as the kernel reads.
const (
	badInterpreter  = "bad interpreter "
	interpreterSize = uintptr(len(badInterpreter)) + 256 + 2
)

// interpreter makes a text of the interpreter that the first line of a script names: by
// the kernel's error number alone nobody knows that the script is not what is missing.
// It has room at an address. The length is 0 if the file is no such script, or cannot be
// read by its user.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (a *area) interpreter(script, room uintptr) (text, n uintptr) {
	const prefix = uintptr(len(badInterpreter))
	if script == 0 {
		return 0, 0
	}
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, atCwd, script, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return 0, 0
	}
	at := room + prefix
	size, _, errno := syscall.RawSyscall(unix.SYS_READ, fd, at, interpreterSize-prefix-2)
	if errno != 0 || size < 2 || *(*byte)(a.at(at)) != '#' || *(*byte)(a.at(at + 1)) != '!' {
		return 0, 0
	}
	end := at + size
	at += 2
	for at < end && (*(*byte)(a.at(at)) == ' ' || *(*byte)(a.at(at)) == '\t') {
		at++
	}
	text = at - prefix
	for k := range prefix {
		*(*byte)(a.at(text + k)) = badInterpreter[k]
	}
	for ; at < end; at++ {
		c := (*byte)(a.at(at))
		if *c == ' ' || *c == '\t' || *c == '\n' || *c == 0 {
			break
		}
		if *c < ' ' || *c == 0x7f { // a carriage return, as a rule
			*c = '?'
		}
	}
	*(*byte)(a.at(at)) = ':'
	*(*byte)(a.at(at + 1)) = ' '
	return text, at + 2 - text
}

// execve tries a program. One that somebody is still writing is tried again: a
// process forked in the middle of writing a script holds it open for an
// instant, which is nobody's mistake (golang.org/issue/22315). On a host that is
// busy an instant may be long.
//
//go:nosplit
//go:norace
//go:nocheckptr
func execve(path, argv, envp uintptr) unix.Errno {
	for try := 0; ; try++ {
		_, _, errno := syscall.RawSyscall(unix.SYS_EXECVE, path, argv, envp)
		if errno != unix.ETXTBSY || try == 500 {
			return errno
		}
		ts := unix.Timespec{Nsec: 10e6}
		syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
	}
}

// exit ends the process at once; the runtime has nothing to tidy up.
//
//go:nosplit
//go:norace
func exit(code int) {
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(code), 0, 0)
	}
}
