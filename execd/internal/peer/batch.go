package peer

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
)

// batch lies between TLS and a connection. TLS has records of 16 KiB at most, and sends and
// receives each by a system call, and over most networks as packets of its own. Here several
// go by one.
type batch struct {
	net.Conn

	// Of the one call that reads.
	ahead *batchBuffer // nil: nothing was read ahead
	in    []byte       // what of it is still to be read
	full  bool         // the last call has had all that it had room for: there is more

	mu     sync.Mutex
	behind *batchBuffer // guarded by mu; where what is written waits; nil: it is sent at once
	out    []byte       // guarded by mu; what waits
	failed error        // guarded by mu; from then on nothing can be written
}

// batchBuffer has room for some records. A connection has one only while much passes.
type batchBuffer [128 << 10]byte

var batchBuffers = sync.Pool{New: func() any { return new(batchBuffer) }}

func (b *batch) Read(p []byte) (int, error) {
	if len(b.in) == 0 && b.full {
		b.ahead = batchBuffers.Get().(*batchBuffer)
		n, err := b.Conn.Read(b.ahead[:])
		if b.in, b.full = b.ahead[:n], n > len(p); n == 0 {
			b.drained()
			return 0, err
		}
	}
	if b.ahead != nil { // an error is met again
		n := copy(p, b.in)
		if b.in = b.in[n:]; len(b.in) == 0 {
			b.drained()
		}
		return n, nil
	}
	n, err := b.Conn.Read(p)
	b.full = err == nil && n == len(p)
	return n, err
}

// drained gives back the buffer when all of it was read.
func (b *batch) drained() {
	batchBuffers.Put(b.ahead)
	b.ahead, b.in = nil, nil
}

func (b *batch) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed == nil && len(b.out)+len(p) > len(batchBuffer{}) {
		b.send()
	}
	switch {
	case b.failed != nil:
		return 0, b.failed
	case b.behind == nil || len(p) > len(batchBuffer{}):
		return b.Conn.Write(p)
	}
	b.out = append(b.out, p...)
	return len(p), nil
}

// send sends what waits. b.mu is held.
func (b *batch) send() {
	if len(b.out) > 0 {
		_, b.failed = b.Conn.Write(b.out)
		b.out = b.out[:0]
	}
}

// gather has what is written wait until scatter is called.
func (b *batch) gather() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behind = batchBuffers.Get().(*batchBuffer)
	b.out = b.behind[:0]
}

// scatter sends what waits.
func (b *batch) scatter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.send()
	batchBuffers.Put(b.behind)
	b.behind, b.out = nil, nil
	return b.failed
}

// secured is TLS over a batch.
type secured struct {
	*tls.Conn
	batch   *batch
	turn    sync.Mutex // one Write gathers at a time
	writing atomic.Int32
}

// secure returns TLS over a connection, which over makes.
func secure(conn net.Conn, over func(net.Conn) *tls.Conn) *secured {
	b := &batch{Conn: conn}
	return &secured{Conn: over(b), batch: b}
}

// worthwhile is from how many bytes on a batch is made of the records.
const worthwhile = 16 << 10

func (s *secured) Write(p []byte) (int, error) {
	if len(p) <= worthwhile {
		return s.Conn.Write(p)
	}
	s.writing.Add(1)
	defer s.writing.Add(-1)
	s.turn.Lock()
	defer s.turn.Unlock()
	s.batch.gather()
	n, err := s.Conn.Write(p)
	if sent := s.batch.scatter(); err == nil && sent != nil {
		return 0, sent
	}
	return n, err
}

// Close ends the connection, and what is being written to it, without waiting for that.
func (s *secured) Close() error {
	if s.writing.Load() > 0 {
		return s.batch.Conn.Close()
	}
	return s.Conn.Close()
}
