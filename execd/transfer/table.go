package main

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math/bits"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/order"
)

// table is what was brought into a sandbox: a file with a slot of 16 bytes for each name
// and a hash of the name and its signature in it, so that a million of them need no
// memory. The file is the user's, and may be anything: what it says is what is left out
// of his own output.
type table struct {
	fd    int
	slots uint64
}

const (
	slotSize  = 16
	maxSlots  = 1 << 25
	maxProbes = 1000
)

// spot stands for a path in the sandbox, the zero one for the sandbox itself. It is made of
// that of the directory and the name there, so that who goes through a tree need not write
// out whole paths, which would take the longer the deeper it is.
type spot [slotSize]byte

// of returns the spot of a name in a directory.
func (s spot) of(name string) (inner spot) {
	h := fnv.New128a()
	_, _ = h.Write(s[:])
	_, _ = h.Write([]byte(name))
	h.Sum(inner[:0])
	return inner
}

// spotOf returns the spot of a path.
func spotOf(path string) (s spot) {
	for name := range strings.SplitSeq(path, "/") {
		s = s.of(name)
	}
	return s
}

type entry [slotSize]byte

// entry returns the entry of a spot; st is nil for a directory, whose time changes with
// what is in it.
func (s spot) entry(st *unix.Stat_t) entry {
	h := fnv.New128a()
	_, _ = h.Write(s[:])
	if st != nil {
		var b []byte
		for _, v := range []int64{0, int64(st.Dev), int64(st.Ino), st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec} {
			b = binary.BigEndian.AppendUint64(b, uint64(v))
		}
		_, _ = h.Write(b)
	}
	var e entry
	h.Sum(e[:0])
	e[0] |= 1 // no entry is empty
	return e
}

// newTable makes the table anew, for so many names.
func newTable(say, names int) (*table, error) {
	if err := unix.Unlinkat(say, order.FileInputs, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	fd, err := openBeneath(say, order.FileInputs, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600, true)
	if err != nil {
		return nil, err
	}
	return tableIn(fd, names)
}

// tableIn makes an empty file a table, which owns its descriptor.
func tableIn(fd, names int) (*table, error) {
	t := &table{fd: fd, slots: 1 << bits.Len(uint(2*names+8))}
	err := error(unix.EFBIG)
	if t.slots <= maxSlots {
		err = unix.Ftruncate(fd, int64(t.slots*slotSize))
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return t, nil
}

// openTable opens the table; nil: nothing was brought in.
func openTable(say int) (*table, error) {
	fd, err := openBeneath(say, order.FileInputs, unix.O_RDONLY|unix.O_NONBLOCK, 0, true)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, err
	}
	slots := uint64(st.Size) / slotSize
	if kind(&st) != unix.S_IFREG || slots == 0 || slots > maxSlots || slots&(slots-1) != 0 {
		unix.Close(fd)
		return nil, never(unix.EINVAL, "the list of what was brought into the sandbox is damaged")
	}
	return &table{fd, slots}, nil
}

func (t *table) close() {
	if t != nil {
		unix.Close(t.fd)
	}
}

// find returns where an entry is or, with found false, could be.
func (t *table) find(e entry) (at int64, found bool) {
	slot := binary.BigEndian.Uint64(e[8:]) & (t.slots - 1)
	for range maxProbes {
		var got entry
		n, err := unix.Pread(t.fd, got[:], int64(slot*slotSize))
		if n != slotSize || err != nil || got == (entry{}) {
			return int64(slot * slotSize), false
		}
		if got == e {
			return 0, true
		}
		slot = (slot + 1) & (t.slots - 1)
	}
	return -1, false
}

func (t *table) add(e entry) error {
	at, found := t.find(e)
	if found {
		return nil
	}
	if at < 0 {
		return unix.EFBIG // somebody adds to the sandbox while we do
	}
	_, err := unix.Pwrite(t.fd, e[:], at)
	return err
}

// has reports whether a file was brought in and has not changed since, or with nil whether
// a directory was.
func (t *table) has(s spot, st *unix.Stat_t) bool {
	if t == nil {
		return false
	}
	_, found := t.find(s.entry(st))
	return found
}
