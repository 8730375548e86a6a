package starter

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// A plan is what a forked process does until it is another program: a list of
// steps, most of them system calls. The shepherd writes it, and the process
// works through it by execute, since between fork and exec nothing of Go may be
// used that allocates, takes a lock or grows the stack. Steps give results to
// each other in registers.
//
// Plan and registers lie in memory that both processes map, so that the
// shepherd can still write it when the process is there and waits for its
// order. It gives up its view of it with the order.
type plan struct {
	area    *area
	size    uintptr // of what is mapped
	used    uintptr // of it
	steps   int
	barrier int // a step from which on another may go on: what is before it is not made longer
	regs    int
	full    bool // more was asked for than there is room

	most uintptr   // text for the trace, which steps collect and others write
	now  time.Time // for its stamps
}

// area is the memory of a plan; other data follow it.
type area struct {
	regs   [maxRegs]uintptr
	report report
	room   uintptr // for text
	steps  [maxSteps]step
}

const (
	maxRegs  = 64
	maxSteps = 1 << 9
	// areaSize is more than the kernel lets a program have of arguments and
	// environment, which is 6 MB, twice. What is not used is not there.
	areaSize = 16 << 20
	// textOfStart is what most plans have of them.
	textOfStart = 12 << 10
)

// report is the message to the shepherd that a step has failed.
type report struct {
	kind   byte
	number uint8  // for exit_status
	euid   uint32 // of the process that failed
	errno  uint32 // its text is the end of the message, 0 for none
	text   [maxText]byte
}

const (
	maxText    = 8 << 10 // arguments may be long
	reportHead = unsafe.Offsetof(report{}.text)
)

// The registers that have a meaning of their own.
const (
	wasteReg   = iota // for what nobody wants
	textReg           // address of the text
	writtenReg        // length of the text
	traceReg          // descriptor of the trace
	firstReg
)

// step is one of a plan.
type step struct {
	do   action
	on   onError
	to   uint8 // register of the result
	errs uint8 // register of the error number
	regs uint8 // a bit for each argument that is the number of a register
	trap uint16
	args [6]uintptr

	// What it means that it fails: the number for exit_status, which is the exit
	// status as well, and the text for error, at an address.
	number  uint8
	because bool // the text of the error number follows
	euid    uint32
	size    uint32
	text    uintptr
}

// action is what a step does with its arguments a, b, c, ...
type action uint8

const (
	doCall   action = iota // a system call
	doSet                  // the result is a
	doLoad                 // the result is what is at a, of b bytes, 4 or 8, and as far as c has the bits
	doSame                 // the result is 1 if c bytes at a and at b are the same, else 0
	doJump                 // go on at step a if b is c
	doUnless               // go on at step a if b is not c
	doLoop                 // the result is less by one; go on at step a if it is not 0
	doStore                // the word at a is b
	doText                 // add b bytes at a to the text
	doNumber               // add a to the text, in base b; if that is 0, as a limit
	doDigits               // the digits of a, and a NUL byte, are at b
	doExec                 // execute the first that can be of the paths at a, with arguments b and environment c; a script without an interpreter line by the shell d with arguments e, the second of which is its path; at f is room for its interpreter
	doFail                 // fail with error number a, and with c bytes at b behind the text
	doExit                 // end with status a
)

// onError is what comes of a call that fails.
type onError uint8

const (
	goOn     onError = iota
	fail             // the plan fails
	mustFail         // the plan fails if it does not
)

// newPlan maps the memory of a plan.
func newPlan() (*plan, error) {
	at, err := unix.MmapPtr(-1, 0, nil, areaSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	populate(uintptr(at), unsafe.Sizeof(area{})+textOfStart)
	p := &plan{area: (*area)(at), size: areaSize, used: unsafe.Sizeof(area{}), regs: firstReg}
	p.area.regs[traceReg] = ^uintptr(0)
	return p, nil
}

// close gives up this process's view of the plan.
func (p *plan) close() {
	if p.area != nil {
		_ = unix.MunmapPtr(unsafe.Pointer(p.area), p.size)
		p.area = nil
	}
}

// regTag marks an argument of a step that is the number of a register. No
// argument of a system call looks like it.
const regTag = ^uintptr(0) >> 1 &^ 0xff

// reg returns a register that nobody uses.
func (p *plan) reg() uintptr {
	if p.regs == maxRegs-1 {
		p.full = true
		return regTag | uintptr(p.regs)
	}
	p.regs++
	return regTag | uintptr(p.regs-1)
}

// value returns what is in a register, once the other process has said something.
func (p *plan) value(reg uintptr) uintptr { return p.area.regs[reg&^regTag] }

// room returns the address of so many bytes, all 0.
func (p *plan) room(n uintptr) uintptr {
	const align = 8
	p.used = (p.used + align - 1) &^ (align - 1)
	return p.bytesAt(n)
}

func (p *plan) bytesAt(n uintptr) uintptr {
	at := p.used
	if n > p.size-at {
		p.full = true
	}
	if p.full { // nobody will do what it says
		return uintptr(unsafe.Pointer(p.area))
	}
	p.used += n
	return uintptr(unsafe.Pointer(p.area)) + at
}

// view returns bytes of the plan.
func (p *plan) view(at, n uintptr) []byte {
	return unsafe.Slice((*byte)(p.area.at(at)), n)
}

// at returns the pointer for an address in the area.
func (a *area) at(addr uintptr) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(a), addr-uintptr(unsafe.Pointer(a)))
}

// put copies bytes into the plan and returns their address.
func (p *plan) put(s string) uintptr {
	at := p.bytesAt(uintptr(len(s)))
	if !p.full {
		copy(p.view(at, uintptr(len(s))), s)
	}
	return at
}

// path returns the address of a string with a NUL byte at its end. One that holds
// a NUL is cut there, as by every system call; what must not be is looked at before.
func (p *plan) path(s string) uintptr {
	at := p.put(s)
	p.bytesAt(1)
	return at
}

// store puts a value without pointers of Go's into the plan and returns its address.
func store[T any](p *plan, v T) uintptr {
	at := p.room(unsafe.Sizeof(v))
	if !p.full {
		*(*T)(p.area.at(at)) = v
	}
	return at
}

// word puts a pointer or number at an address in the plan.
func (p *plan) word(at, v uintptr) {
	if !p.full {
		*(*uintptr)(p.area.at(at)) = v
	}
}

const wordSize = unsafe.Sizeof(uintptr(0))

// list puts strings, and a list of their addresses as execve wants it, into the plan.
func (p *plan) list(strings []string) (at uintptr, err error) {
	at = p.room(uintptr(len(strings)+1) * wordSize)
	for i, s := range strings {
		for j := range len(s) {
			if s[j] == 0 {
				return 0, unix.EINVAL
			}
		}
		p.word(at+uintptr(i)*wordSize, p.path(s))
	}
	return at, nil
}

// ids puts group numbers into the plan.
func (p *plan) ids(list []uint32) uintptr {
	at := p.room(uintptr(len(list)) * 4)
	if !p.full {
		for i, id := range list {
			*(*uint32)(p.area.at(at + uintptr(i)*4)) = id
		}
	}
	return at
}

// add adds a step.
func (p *plan) add(do action, args ...uintptr) *step {
	if p.steps == maxSteps-1 {
		p.full = true
		p.steps--
	}
	s := &p.area.steps[p.steps]
	p.steps++
	*s = step{do: do}
	for i, a := range args {
		if a&^0xff == regTag {
			s.regs |= 1 << i
			a &= 0xff
		}
		s.args[i] = a
	}
	return s
}

// call adds a system call.
func (p *plan) call(trap uintptr, args ...uintptr) { p.add(doCall, args...).trap = uint16(trap) }

// result has the last step leave its result in a register.
func (p *plan) result() uintptr {
	r := p.reg()
	p.last().to = uint8(r &^ regTag)
	return r
}

// errno has the last step, a call, leave its error number in a register; 0 is none.
func (p *plan) errno() uintptr {
	r := p.reg()
	p.last().errs = uint8(r &^ regTag)
	return r
}

func (p *plan) last() *step { return &p.area.steps[p.steps-1] }

// load adds a step that loads a number, as far as mask has the bits.
func (p *plan) load(at, size, mask uintptr) uintptr {
	p.add(doLoad, at, size, mask)
	return p.result()
}

// same adds a step that compares.
func (p *plan) same(a, b, n uintptr) uintptr {
	p.add(doSame, a, b, n)
	return p.result()
}

// set adds a step that sets a register.
func (p *plan) set(reg, v uintptr) { p.add(doSet, v).to = uint8(reg &^ regTag) }

// land has a step that jumps go on at the next.
func (p *plan) land(s *step) {
	s.args[0] = uintptr(p.steps)
	p.barrier = p.steps
}

// either adds the steps of yes, which are done if a register has a value, and
// those of no, which may be nil, done if it has another.
func (p *plan) either(reg, v uintptr, yes, no func()) {
	skip := p.add(doUnless, 0, reg, v)
	yes()
	if no == nil {
		p.land(skip)
		return
	}
	over := p.add(doJump)
	p.land(skip)
	no()
	p.land(over)
}

// say adds text.
func (p *plan) say(text string) {
	at := p.put(text)
	p.said(at, uintptr(len(text)))
}

// line adds a line of the trace, or the beginning of one, made of parts.
func (p *plan) line(euid, pid int, whole bool, parts ...string) {
	at, n := p.bytesAt(0), uintptr(0)
	for _, part := range parts {
		p.put(part)
		n += uintptr(len(part))
	}
	if p.full {
		return
	}
	p.append(func(b []byte) []byte {
		b = spool.AppendTrace(b, p.now, euid, pid, unsafe.String((*byte)(p.area.at(at)), n))
		if !whole {
			b = b[:len(b)-1]
		}
		return b
	})
}

// append adds what a function appends to the text.
func (p *plan) append(f func([]byte) []byte) {
	at := p.bytesAt(0)
	free := p.view(at, p.size-p.used)
	n := uintptr(len(f(free[:0:len(free)])))
	p.bytesAt(n) // if there was too little room, there is for this
	p.said(at, n)
}

// said adds the bytes at an address to the text.
func (p *plan) said(at, n uintptr) {
	p.most += n
	if p.full {
		return
	}
	if p.steps > p.barrier {
		if s := p.last(); s.do == doText && s.args[0]+s.args[1] == at {
			s.args[1] += n
			return
		}
	}
	p.add(doText, at, n)
}

// number adds a number to the text.
func (p *plan) number(v, base uintptr) {
	p.most += maxDigits
	p.add(doNumber, v, base)
}

// flush has the text written that was collected so far.
func (p *plan) flush() {
	p.call(unix.SYS_WRITE, regTag|traceReg, regTag|textReg, regTag|writtenReg)
	p.set(regTag|writtenReg, 0)
}

// finish makes the room for the text.
func (p *plan) finish() {
	at := p.room(p.most)
	p.area.room = p.most
	p.area.regs[textReg] = at
}

// fails gives the last step a meaning for when it fails.
func (p *plan) fails(on onError, number, euid int, because bool, text ...string) {
	s := p.last()
	s.on, s.number, s.euid, s.because = on, uint8(number), uint32(euid), because
	s.text = p.bytesAt(0)
	for _, t := range text {
		s.size += uint32(len(t))
		p.put(t)
	}
}

// message is what a message is received in.
type message struct {
	header unix.Msghdr
	vector unix.Iovec
	rights [64]byte // four descriptors with their head, and more
}

// receive adds the call that receives a message of at most n bytes, with descriptors.
func (p *plan) receive(socket, to uintptr, n int) *message {
	at := p.room(unsafe.Sizeof(message{}))
	if p.full {
		return &message{}
	}
	m := (*message)(p.area.at(at))
	m.vector.Base = (*byte)(p.area.at(to))
	m.vector.SetLen(n)
	m.header.Iov = &m.vector
	m.header.SetIovlen(1)
	m.header.Control = &m.rights[0]
	m.header.SetControllen(len(m.rights))
	p.call(unix.SYS_RECVMSG, socket, uintptr(unsafe.Pointer(&m.header)), unix.MSG_CMSG_CLOEXEC)
	return m
}

// length returns the address of the length of the control message, of lengthSize
// bytes and 0 if there is none, and descriptor that of a descriptor in it.
func (m *message) length() uintptr { return uintptr(unsafe.Pointer(&m.rights[0])) }

func (m *message) descriptor(i int) uintptr { return m.length() + uintptr(unix.CmsgLen(0)+4*i) }

const lengthSize = unsafe.Sizeof(unix.Cmsghdr{}.Len)

// atCwd is unix.AT_FDCWD.
const atCwd = ^uintptr(99)
