package starter

import (
	"bytes"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/internal/proc"
)

// heapOfStart is how much of Go's heap is populated. The start of a job touches pages in 80 kB of
// it, but fewer towards the end, and a shepherd keeps what it was given for as long as its job runs.
const heapOfStart = 48 << 10

// above is on the heap, above all that was there when Warm was called.
var above *[8 << 10]byte

// Warm does while no job waits for it what the kernel would otherwise do page by page when one
// starts: it has memory given to the part of Go's heap that a start takes, and has the heap, with
// what the runtime knows of it, left out of the processes that are forked. Where the kernel cannot
// do it, nothing is lost but time. No C may be linked: its threads have data in such memory which a
// process needs that is forked.
func Warm() {
	above = new([8 << 10]byte)
	top := uintptr(unsafe.Pointer(above)) + unsafe.Sizeof(*above)
	above = nil
	populate(top, min(heapOfStart, -top&(heapChunk-1)))
	maps, err := proc.ReadFile(unix.AT_FDCWD, "/proc/self/maps", received[:0])
	if err != nil {
		return
	}
	for line := range bytes.Lines(maps) {
		if begin, end, ok := anonymous(line); ok {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, begin, end-begin, unix.MADV_DONTFORK)
		}
	}
}

// populate has the kernel give memory at once that is going to be written to. Before Linux 5.14
// it cannot, and gives it page by page.
func populate(at, size uintptr) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, at, size, unix.MADV_POPULATE_WRITE)
}

// anonymous parses a line of /proc/PID/maps (proc_pid_maps(5)), and reports whether it is of
// memory that was mapped by whoever uses it, and by no file. Data of the program are not: they lie
// where the program was linked to.
func anonymous(line []byte) (begin, end uintptr, ok bool) {
	const mapped = 1 << 32
	first, rest, _ := bytes.Cut(line, []byte("-"))
	last, rest, _ := bytes.Cut(rest, []byte(" "))
	rest, ok = bytes.CutPrefix(rest, []byte("rw-p 00000000 00:00 0"))
	rest = bytes.TrimSpace(rest)
	if !ok || len(rest) > 0 && !bytes.HasPrefix(rest, []byte("[anon")) {
		return 0, 0, false
	}
	b, err := strconv.ParseUint(string(first), 16, 64)
	e, err2 := strconv.ParseUint(string(last), 16, 64)
	return uintptr(b), uintptr(e), err == nil && err2 == nil && b >= mapped
}
