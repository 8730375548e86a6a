package vm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
)

// disk is a disk with a cache that forgets when the power fails: what was
// written since the last flush is then there or not, sector by sector. A
// machine reaches it as a network block device. Sectors are those of today's
// disks: ext4 cannot bear to find half of its superblock.
type disk struct {
	mu     sync.Mutex
	stable []byte         // what no power cut takes away
	now    []byte         // what is read
	dirty  map[int64]bool // sectors in which the two may differ

	left int           // writes and flushes until the power fails; 0: it does not
	off  chan struct{} // closed when it has
}

const sector = 4096

func newDisk(image []byte) *disk {
	return &disk{stable: image, now: slices.Clone(image), dirty: map[int64]bool{}}
}

// powerOn has the disk work until it has done so many writes and flushes; 0
// means for good. The channel is closed when the power fails.
func (d *disk) powerOn(operations int) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left, d.off = operations, make(chan struct{})
	return d.off
}

// lose forgets each sector that was not flushed with a probability, and
// returns how many there were and how many are lost.
func (d *disk) lose(rng *rand.Rand, probability float64) (unflushed, lost int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	unflushed = len(d.dirty)
	for _, at := range slices.Sorted(maps.Keys(d.dirty)) {
		from, to := d.now, d.stable
		if rng.Float64() < probability {
			from, to = d.stable, d.now
			lost++
		}
		copy(to[at:at+sector], from[at:at+sector])
	}
	clear(d.dirty)
	return unflushed, lost
}

// The protocol of network block devices: proto.md of the NBD project.
const (
	nbdMagic        = 0x4e42444d41474943
	nbdOption       = 0x49484156454f5054
	nbdOptionReply  = 0x3e889045565a9
	nbdRequest      = 0x25609513
	nbdSimpleReply  = 0x67446698
	nbdFixed        = 1 << 0 // both sides: the newer handshake
	nbdOptGo        = 7
	nbdRepAck       = 1
	nbdRepInfo      = 3
	nbdRepUnknown   = 1<<31 | 1
	nbdHasFlags     = 1 << 0
	nbdSendFlush    = 1 << 2
	nbdSendFUA      = 1 << 3
	nbdRead         = 0
	nbdWrite        = 1
	nbdDisconnect   = 2
	nbdFlush        = 3
	nbdForced       = 1 << 0 // of a write: not by way of the cache
	nbdInvalid      = 22
	nbdLongest      = 32 << 20
	nbdTransmission = nbdHasFlags | nbdSendFlush | nbdSendFUA
)

var errPower = errors.New("the power has failed")

// serve speaks with one machine until that leaves or the power fails.
func (d *disk) serve(conn net.Conn) error {
	defer conn.Close()
	r, w := bufio.NewReader(conn), bufio.NewWriter(conn)
	send := func(fields ...any) error {
		for _, f := range fields {
			if err := binary.Write(w, binary.BigEndian, f); err != nil {
				return err
			}
		}
		return w.Flush()
	}
	receive := func(fields ...any) error {
		for _, f := range fields {
			if err := binary.Read(r, binary.BigEndian, f); err != nil {
				return err
			}
		}
		return nil
	}
	if err := send(uint64(nbdMagic), uint64(nbdOption), uint16(nbdFixed)); err != nil {
		return err
	}
	var flags, option, length uint32
	var magic uint64
	if err := receive(&flags); err != nil {
		return err
	}
	for option != nbdOptGo {
		if err := receive(&magic, &option, &length); err != nil {
			return err
		}
		if magic != nbdOption || length > nbdLongest {
			return fmt.Errorf("no option: %#x, length %d", magic, length)
		}
		if _, err := io.CopyN(io.Discard, r, int64(length)); err != nil {
			return err
		}
		if option != nbdOptGo {
			if err := send(uint64(nbdOptionReply), option, uint32(nbdRepUnknown), uint32(0)); err != nil {
				return err
			}
		}
	}
	// Type 0 of information: size and flags of the device.
	if err := send(uint64(nbdOptionReply), option, uint32(nbdRepInfo), uint32(12), uint16(0), uint64(len(d.now)), uint16(nbdTransmission),
		uint64(nbdOptionReply), option, uint32(nbdRepAck), uint32(0)); err != nil {
		return err
	}
	for {
		var magic uint32
		var rq request
		if err := receive(&magic, &rq); err != nil {
			return err
		}
		if magic != nbdRequest || rq.Length > nbdLongest {
			return fmt.Errorf("no request: %#x, length %d", magic, rq.Length)
		}
		if rq.Type == nbdDisconnect {
			return nil
		}
		data := make([]byte, rq.Length)
		if rq.Type == nbdWrite {
			if _, err := io.ReadFull(r, data); err != nil {
				return err
			}
		}
		code, err := d.do(&rq, data)
		if errors.Is(err, errPower) {
			// To hang up would be an error of the disk, of which the machine may tell
			// before it is killed: without power there is no answer at all.
			_, _ = io.Copy(io.Discard, r)
		}
		if err != nil {
			return err
		}
		if rq.Type != nbdRead || code != 0 {
			data = nil
		}
		if err := send(uint32(nbdSimpleReply), code, rq.Handle, data); err != nil {
			return err
		}
	}
}

// request is one of a machine's, as it is sent.
type request struct {
	Flags, Type uint16
	Handle      uint64
	Offset      uint64
	Length      uint32
}

// do does what is asked for and returns the code of the answer.
func (d *disk) do(rq *request, data []byte) (code uint32, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	size := uint64(len(d.now))
	if rq.Offset > size || uint64(rq.Length) > size-rq.Offset {
		return nbdInvalid, nil
	}
	part := func(b []byte) []byte { return b[rq.Offset : rq.Offset+uint64(rq.Length)] }
	if rq.Type == nbdRead {
		copy(data, part(d.now))
		return 0, nil
	}
	if d.left > 0 {
		if d.left--; d.left == 0 {
			close(d.off)
			return 0, errPower
		}
	}
	switch rq.Type {
	case nbdWrite:
		copy(part(d.now), data)
		if rq.Flags&nbdForced != 0 {
			copy(part(d.stable), data)
			break
		}
		end := int64(rq.Offset) + int64(rq.Length)
		for at := int64(rq.Offset) / sector * sector; at < end; at += sector {
			d.dirty[at] = true
		}
	case nbdFlush:
		for at := range d.dirty {
			copy(d.stable[at:at+sector], d.now[at:at+sector])
		}
		clear(d.dirty)
	default:
		return nbdInvalid, nil
	}
	return 0, nil
}
