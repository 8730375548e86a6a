package ring

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Theirs is what a process is given that is to have the other end. It is closed when the
// process has it.
type Theirs struct {
	Memory, Link *os.File
}

// Close closes it.
func (t *Theirs) Close() error { return errors.Join(t.Memory.Close(), t.Link.Close()) }

// NewWriter makes a ring that is written here. The other end cannot write to it.
func NewWriter() (*Writer, *Theirs, error) {
	e, theirs, err := create(unix.PROT_READ|unix.PROT_WRITE, unix.F_SEAL_FUTURE_WRITE)
	if err != nil {
		return nil, nil, err
	}
	e.have = Size
	return &Writer{*e}, theirs, nil
}

// NewReader makes a ring that is read here.
func NewReader() (*Reader, *Theirs, error) {
	e, theirs, err := create(unix.PROT_READ, 0)
	if err != nil {
		return nil, nil, err
	}
	return &Reader{*e}, theirs, nil
}

// create makes a ring. Seal is done without where the kernel does not know it.
func create(protection, seal int) (e *end, theirs *Theirs, err error) {
	fd, err := unix.MemfdCreate("ring", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL|unix.MFD_ALLOW_SEALING)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3
		fd, err = unix.MemfdCreate("ring", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a ring: %w", err)
	}
	theirs = &Theirs{Memory: os.NewFile(uintptr(fd), "ring")}
	if err = unix.Ftruncate(fd, Size); err == nil {
		e, err = mapped(fd, protection)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cannot make a ring: %w", err), theirs.Memory.Close())
	}
	if seal != 0 {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seal)
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	var pair [2]int
	if err == nil {
		pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	}
	if err == nil {
		theirs.Link = os.NewFile(uintptr(pair[1]), "link")
		if err = unix.SetNonblock(pair[0], true); err != nil {
			err = errors.Join(err, unix.Close(pair[0]), theirs.Link.Close())
		}
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cannot make a ring: %w", err), e.unmap(), theirs.Memory.Close())
	}
	e.link = os.NewFile(uintptr(pair[0]), "link")
	return e, theirs, nil
}

// mapped maps memory twice, the second time behind the first.
func mapped(fd, protection int) (*end, error) {
	at, err := unix.MmapPtr(-1, 0, nil, 2*Size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	e := &end{b: unsafe.Slice((*byte)(at), 2*Size)}
	for _, half := range []unsafe.Pointer{at, unsafe.Add(at, Size)} {
		if _, err := unix.MmapPtr(fd, 0, half, Size, protection, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
			return nil, errors.Join(err, e.unmap())
		}
	}
	return e, nil
}

func (e *end) unmap() error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(e.b)), 2*Size)
}

// OpenWriter opens the other end of a ring that NewReader has made somewhere else, of which
// these are the descriptors. It closes that of the memory.
func OpenWriter(memory, link int) (*Writer, error) {
	e, err := open(memory, link, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	e.have = Size
	return &Writer{*e}, nil
}

// OpenReader opens that of a ring that NewWriter has made.
func OpenReader(memory, link int) (*Reader, error) {
	e, err := open(memory, link, unix.PROT_READ)
	if err != nil {
		return nil, err
	}
	return &Reader{*e}, nil
}

func open(memory, link, protection int) (*end, error) {
	var st unix.Stat_t
	err := unix.Fstat(memory, &st)
	if err == nil && st.Size != Size {
		err = fmt.Errorf("it has %d bytes", st.Size)
	}
	var e *end
	if err == nil {
		e, err = mapped(memory, protection)
	}
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is no ring: %w", memory, err)
	}
	unix.CloseOnExec(link)
	e.link = os.NewFile(uintptr(link), "link")
	return e, unix.Close(memory)
}
