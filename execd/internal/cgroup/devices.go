package cgroup

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// devices is the name of what version 1 has as a controller, and version 2 as
// programs that the kernel runs when a node is opened.
const devices = "devices"

// Device is a device node whose use is limited.
type Device struct {
	Block        bool // else it is a character device
	Major, Minor uint32
	Read, Write  bool // what is allowed; neither: it cannot be opened at all
}

// limitDevicesV1 takes away from a group of version 1 what is not allowed.
func (h *hierarchy) limitDevicesV1(dir string, list []Device) error {
	var errs []error
	for _, d := range list {
		kind := "c"
		if d.Block {
			kind = "b"
		}
		denied := "m" // to make another node of it
		if !d.Read {
			denied += "r"
		}
		if !d.Write {
			denied += "w"
		}
		node := kind + " " + strconv.FormatUint(uint64(d.Major), 10) + ":" + strconv.FormatUint(uint64(d.Minor), 10)
		errs = append(errs, h.write(path.Join(dir, "devices.deny"), node+" "+denied))
	}
	return errors.Join(errs...)
}

// limitDevicesV2 does the same for a group of version 2. The kernel keeps the
// program as long as there is the group.
func (h *hierarchy) limitDevicesV2(dir string, list []Device) error {
	group, err := h.root.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot limit devices: %w", err)
	}
	defer group.Close()
	program, err := load(deviceProgram(list))
	if err != nil {
		return err
	}
	defer unix.Close(program)
	attr := struct{ target, program, kind, flags uint32 }{
		uint32(group.Fd()), uint32(program), unix.BPF_CGROUP_DEVICE, unix.BPF_F_ALLOW_MULTI,
	}
	if _, err := bpf(unix.BPF_PROG_ATTACH, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); err != nil {
		return fmt.Errorf("cannot limit devices: %w", err)
	}
	return nil
}

// deviceLimits reports whether the kernel has such programs, and lets us load
// them.
func deviceLimits() bool {
	fd, err := load(deviceProgram(nil))
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// instruction is one of the kernel's virtual machine.
type instruction struct {
	code      uint8
	registers uint8 // destination, and source in the upper half
	offset    int16
	immediate int32
}

// Registers of deviceProgram: r0 is the answer and r1 struct bpf_cgroup_dev_ctx.
const (
	answer = iota
	context
	access // what is wanted of it
	kind
	major
	minor
)

// deviceProgram answers 1 when a device may be used, else 0. For each of those
// on the list it goes on when it is another one.
func deviceProgram(list []Device) []instruction {
	const (
		word     = unix.BPF_LDX | unix.BPF_MEM // 32 bits
		move     = unix.BPF_ALU64 | unix.BPF_MOV
		and      = unix.BPF_ALU64 | unix.BPF_AND
		shift    = unix.BPF_ALU64 | unix.BPF_RSH
		jumpNot  = unix.BPF_JMP | unix.BPF_JNE
		exit     = unix.BPF_JMP | unix.BPF_EXIT
		register = unix.BPF_X
		other    = 0xffff // the lower half of the first word is the kind of device
	)
	p := []instruction{
		{word, access | context<<4, 0, 0},
		{word, major | context<<4, 4, 0},
		{word, minor | context<<4, 8, 0},
		{move | register, kind | access<<4, 0, 0},
		{and, kind, 0, other},
		{shift, access, 0, 16},
	}
	for _, d := range list {
		want, denied := int32(unix.BPF_DEVCG_DEV_CHAR), int32(unix.BPF_DEVCG_ACC_MKNOD)
		if d.Block {
			want = unix.BPF_DEVCG_DEV_BLOCK
		}
		if !d.Read {
			denied |= unix.BPF_DEVCG_ACC_READ
		}
		if !d.Write {
			denied |= unix.BPF_DEVCG_ACC_WRITE
		}
		p = append(p,
			instruction{jumpNot, kind, 7, want}, // another device: go to what follows
			instruction{jumpNot, major, 6, int32(d.Major)},
			instruction{jumpNot, minor, 5, int32(d.Minor)},
			instruction{and, access, 0, denied},
			instruction{move, answer, 0, 0},
			instruction{jumpNot, access, 1, 0}, // some of it is denied
			instruction{move, answer, 0, 1},
			instruction{exit, 0, 0, 0},
		)
	}
	return append(p, instruction{move, answer, 0, 1}, instruction{exit, 0, 0, 0})
}

// load gives the kernel a program and returns its descriptor.
func load(program []instruction) (fd int, err error) {
	license := []byte("MIT\x00") // it calls nothing that asks for another
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&program[0])
	pin.Pin(&license[0])
	attr := struct {
		kind, count      uint32
		program, license uint64
		_                [6]uint64 // no log, no flags
	}{
		kind: unix.BPF_PROG_TYPE_CGROUP_DEVICE, count: uint32(len(program)),
		program: uint64(uintptr(unsafe.Pointer(&program[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, err = bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return -1, fmt.Errorf("cannot limit devices: %w", err)
	}
	return fd, nil
}

func bpf(command uintptr, attr unsafe.Pointer, size uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}
