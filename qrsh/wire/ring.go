package wire

// ring holds the bytes of a stream from base up to end, which are offsets in
// the stream. The free space may be written and the bytes may be read without a
// lock, as long as only one goroutine moves end and one moves base.
type ring struct {
	buf       []byte
	base, end uint64
}

func (r *ring) len() int { return int(r.end - r.base) }

// free returns contiguous free space behind end; none if the ring is full.
func (r *ring) free() []byte {
	if r.buf == nil {
		r.buf = make([]byte, Window)
	}
	size := uint64(len(r.buf))
	room := size - (r.end - r.base)
	at := r.end % size
	return r.buf[at : at+min(room, size-at)]
}

// from returns contiguous bytes at an offset; not all of them where they wrap around.
func (r *ring) from(offset uint64) []byte {
	if offset == r.end {
		return nil
	}
	size := uint64(len(r.buf))
	at := offset % size
	return r.buf[at : at+min(r.end-offset, size-at)]
}
