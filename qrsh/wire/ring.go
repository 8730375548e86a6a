package wire

// ring holds the bytes of a stream from base up to end, which are offsets in
// the stream. Whoever has the free space may write into it without a lock, and
// whoever has bytes may read them, as long as only one moves end and one base.
type ring struct {
	buf       []byte
	base, end uint64
}

func (r *ring) len() int { return int(r.end - r.base) }

// free returns room behind end, in one piece; none if the ring is full.
func (r *ring) free() []byte {
	if r.buf == nil {
		r.buf = make([]byte, Window)
	}
	size := uint64(len(r.buf))
	room := size - (r.end - r.base)
	at := r.end % size
	return r.buf[at : at+min(room, size-at)]
}

// from returns the bytes at an offset, in one piece; not all there are where
// they wrap around.
func (r *ring) from(offset uint64) []byte {
	if offset == r.end {
		return nil
	}
	size := uint64(len(r.buf))
	at := offset % size
	return r.buf[at : at+min(r.end-offset, size-at)]
}
