package wire

import (
	"bufio"
	"net"
	"sync"
)

// recordBufferSize is how many bytes are read or written at once. A record of TLS has
// at most 16 KB, which is too little for a system call and a wake-up of the other end.
const recordBufferSize = 1 << 17

// Conn is a connection behind its handshake.
type Conn struct {
	net.Conn // TLS, or below itself
	below    *recordBuffer
	turn     uint64 // of the link's handshakes
}

// Close closes the connection, even while a write is blocked because the other
// end does not read.
func (c *Conn) Close() error {
	if !c.below.mu.TryLock() {
		return c.below.Conn.Close()
	}
	c.below.mu.Unlock()
	return c.Conn.Close()
}

// recordBuffer is a connection below TLS that buffers records: it reads as many at
// once as there are, and writes those that were collected when it is flushed.
type recordBuffer struct {
	net.Conn
	r *bufio.Reader

	mu   sync.Mutex
	w    *bufio.Writer // guarded by mu
	hold bool          // guarded by mu; writes are collected
}

func newRecordBuffer(conn net.Conn) *recordBuffer {
	return &recordBuffer{Conn: conn, r: bufio.NewReaderSize(conn, recordBufferSize), w: bufio.NewWriterSize(conn, recordBufferSize)}
}

func (p *recordBuffer) Read(b []byte) (int, error) { return p.r.Read(b) }

func (p *recordBuffer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.w.Write(b)
	if err == nil && !p.hold {
		err = p.w.Flush()
	}
	return n, err
}

// flush sends the collected records. From the first call on, writes are
// collected; before it they are sent at once.
func (p *recordBuffer) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = true
	return p.w.Flush()
}
