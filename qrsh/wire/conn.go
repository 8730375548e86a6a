package wire

import (
	"bufio"
	"crypto/tls"
	"net"
	"sync"
)

// pileSize is how much goes through the kernel at once: a record of TLS, which is
// at most 16 KB, is not worth a system call and a wake-up of the other end.
const pileSize = 1 << 17

// Conn is a connection behind its handshake.
type Conn struct {
	*tls.Conn
	below *pile
	turn  uint64 // of the link's handshakes
}

// Close ends the connection, even while something is written to one who does not
// read.
func (c *Conn) Close() error {
	if !c.below.mu.TryLock() {
		return c.below.Conn.Close()
	}
	c.below.mu.Unlock()
	return c.Conn.Close()
}

// pile is a connection below TLS. It reads as many records at once as there are,
// and writes as many as are put on it until they are flushed.
type pile struct {
	net.Conn
	r *bufio.Reader

	mu   sync.Mutex
	w    *bufio.Writer // guarded by mu
	hold bool          // guarded by mu; what is written waits
}

func newPile(conn net.Conn) *pile {
	return &pile{Conn: conn, r: bufio.NewReaderSize(conn, pileSize), w: bufio.NewWriterSize(conn, pileSize)}
}

func (p *pile) Read(b []byte) (int, error) { return p.r.Read(b) }

func (p *pile) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.w.Write(b)
	if err == nil && !p.hold {
		err = p.w.Flush()
	}
	return n, err
}

// flush sends what waits; from now on something may.
func (p *pile) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = true
	return p.w.Flush()
}
