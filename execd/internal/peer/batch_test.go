package peer

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	random "math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// counted counts the calls of a connection, and can fail from one on.
type counted struct {
	net.Conn
	in       bytes.Buffer
	out      bytes.Buffer
	reads    int
	writes   int
	most     int // bytes that a read returns
	failFrom int // the write from which on all fail; 0: none does
}

var errDown = errors.New("the line is down")

func (c *counted) Read(p []byte) (int, error) {
	c.reads++
	return c.in.Read(p[:min(len(p), c.most)])
}

func (c *counted) Write(p []byte) (int, error) {
	if c.writes++; c.failFrom > 0 && c.writes >= c.failFrom {
		return 0, errDown
	}
	return c.out.Write(p)
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = random.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// TestBatchRead reads what comes in pieces of any size by pieces as TLS asks for.
func TestBatchRead(t *testing.T) {
	want := noise(3 << 20)
	for _, most := range []int{1000, 16 << 10, 1 << 20} {
		c := &counted{most: most}
		c.in.Write(want)
		b := &batch{Conn: c}
		var got []byte
		for i := 0; ; i++ {
			p := make([]byte, []int{5, 16<<10 + 17}[i%2])
			n, err := b.Read(p)
			got = append(got, p[:n]...)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("of pieces of %d bytes something else was read than came", most)
		}
		if b.ahead != nil {
			t.Errorf("after pieces of %d bytes a buffer is kept", most)
		}
		if limit := len(want)/(64<<10) + 10; most == 1<<20 && c.reads > limit {
			t.Errorf("it was read by %d calls; want at most %d", c.reads, limit)
		}
	}
}

// TestBatchWrite has what is gathered be sent by few calls, in its order, and nothing more
// after a failure.
func TestBatchWrite(t *testing.T) {
	want := noise(1 << 20)
	c := &counted{}
	b := &batch{Conn: c}
	write := func(p []byte) {
		t.Helper()
		if n, err := b.Write(p); n != len(p) || err != nil {
			t.Fatalf("%d bytes were written, %v; want %d", n, err, len(p))
		}
	}
	write(want[:100]) // at once
	if c.writes != 1 {
		t.Errorf("what is not gathered was sent by %d calls", c.writes)
	}
	b.gather()
	for at := 100; at < len(want); at += 16 << 10 {
		write(want[at:min(at+16<<10, len(want))])
	}
	if err := b.scatter(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(c.out.Bytes(), want) {
		t.Error("something else was sent than was written")
	}
	if c.writes > 12 {
		t.Errorf("it was sent by %d calls; want at most 12", c.writes)
	}

	c.failFrom = c.writes + 1
	b.gather()
	write(want[:1000])
	if err := b.scatter(); !errors.Is(err, errDown) {
		t.Errorf("the failure was told as %v", err)
	}
	c.failFrom = 0
	if _, err := b.Write(want[:10]); !errors.Is(err, errDown) {
		t.Errorf("behind what was lost something was sent: %v", err)
	}
}

// stuck is a connection on which, from some time on, nothing more can be sent.
type stuck struct {
	net.Conn
	is     atomic.Bool
	begun  chan struct{} // closed when somebody tries
	closed chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	if !s.is.Load() {
		return s.Conn.Write(p)
	}
	close(s.begun)
	<-s.closed
	return 0, errDown
}

func (s *stuck) SetWriteDeadline(time.Time) error { return nil }

func (s *stuck) Close() error {
	close(s.closed)
	return s.Conn.Close()
}

// TestSecuredClose ends a connection whose other end reads nothing of what is written: nobody
// waits for it.
func TestSecuredClose(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} //nolint:gosec // who is at its end is not tested
	near, far := net.Pipe()
	defer far.Close()
	line := &stuck{Conn: near, begun: make(chan struct{}), closed: make(chan struct{})}
	s := secure(line, func(c net.Conn) *tls.Conn { return tls.Server(c, config) })
	other := tls.Client(far, config)
	go func() { _, _ = io.Copy(io.Discard, other) }()
	if err := s.Handshake(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Write(noise(100 << 10)); n != 100<<10 || err != nil {
		t.Fatalf("%d bytes were written, %v", n, err)
	}
	line.is.Store(true)
	written := make(chan error, 1)
	go func() {
		_, err := s.Write(noise(100 << 10))
		written <- err
	}()
	<-line.begun
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-written; !errors.Is(err, errDown) {
		t.Errorf("the write has ended with %v", err)
	}
}
