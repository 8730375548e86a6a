package wire

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// sink is where a stream ends up.
type sink struct {
	mu     sync.Mutex
	hash   hash.Hash
	n      int
	fail   int // a write that would pass so many bytes fails; 0: none
	closed chan struct{}
}

func newSink() *sink { return &sink{hash: sha256.New(), closed: make(chan struct{})} }

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail > 0 && s.n+len(b) > s.fail {
		return 0, io.ErrClosedPipe
	}
	s.n += len(b)
	return s.hash.Write(b)
}

func (s *sink) Close() error {
	close(s.closed)
	return nil
}

func (s *sink) wait(t testing.TB) {
	t.Helper()
	select {
	case <-s.closed:
	case <-time.After(time.Minute):
		t.Fatal("the stream does not end")
	}
}

// check compares what has come with what was sent.
func (s *sink) check(t testing.TB, what string, want []byte) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if sum := sha256.Sum256(want); s.n != len(want) || !bytes.Equal(s.hash.Sum(nil), sum[:]) {
		t.Errorf("%s: %d bytes have come, sum %x; want %d, %x", what, s.n, s.hash.Sum(nil)[:4], len(want), sum[:4])
	}
}

// pair is a client and a session.
type pair struct {
	t               testing.TB
	identity        tls.Certificate
	fingerprint     Fingerprint
	client, session *Link
	heard           chan Message // by the client
	told            chan Message // by the session
}

func newPair(t testing.TB) *pair {
	t.Helper()
	p := &pair{t: t, heard: make(chan Message, 100), told: make(chan Message, 100)}
	var err error
	if p.identity, p.fingerprint, err = NewIdentity(); err != nil {
		t.Fatal(err)
	}
	p.client, p.session = New(func(m Message) { p.heard <- m }), New(func(m Message) { p.told <- m })
	t.Cleanup(func() {
		p.client.Close()
		p.session.Close()
	})
	return p
}

// loopback returns both ends of a connection.
func loopback(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

// connect makes a connection, begins the client's streams by start where it is
// new, and returns what breaks it and a channel that is closed when both sides
// have seen that.
func (p *pair) connect(start func()) (breakIt func(), over <-chan struct{}) {
	p.t.Helper()
	a, b := loopback(p.t)
	token := NewToken()
	accepted := make(chan error, 1)
	var onClient *Conn
	var has Positions
	go func() {
		var err error
		onClient, has, err = p.client.Accept(b, p.identity, token)
		accepted <- err
	}()
	onSession, hasClient, err := p.session.Offer(a, p.fingerprint, token)
	if err := errors.Join(err, <-accepted); err != nil {
		p.t.Fatal(err)
	}
	if start != nil {
		start()
	}
	var both sync.WaitGroup
	both.Go(func() { _ = p.client.Run(onClient, has) })
	both.Go(func() { _ = p.session.Run(onSession, hasClient) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		both.Wait()
	}()
	return func() { a.Close() }, done
}

func (p *pair) next(from chan Message) Message {
	p.t.Helper()
	select {
	case m := <-from:
		return m
	case <-time.After(time.Minute):
		p.t.Fatal("no message")
		return nil
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
	_, _ = r.Read(b)
	return b
}

// rationed is a source that gives no more than it was granted.
type rationed struct {
	source  io.Reader
	granted chan int
	left    int
}

func (r *rationed) Read(b []byte) (int, error) {
	for r.left == 0 {
		r.left = <-r.granted
	}
	n, err := r.source.Read(b[:min(len(b), r.left)])
	r.left -= n
	return n, err
}

// The streams arrive whole though the connection breaks all the time, and the
// exit comes after them.
func TestBroken(t *testing.T) { testConnections(t, false) }

// Nor does it matter that another connection comes while there is one.
func TestReplaced(t *testing.T) { testConnections(t, true) }

func testConnections(t *testing.T, replaced bool) {
	const size = 8 << 20
	in, out, diag := noise(size), noise(size+1), noise(size/2)
	p := newPair(t)
	stdin, stdout, stderr := newSink(), newSink(), newSink()
	p.session.Sink(Stdin, stdin)
	// It does not end before nine connections were made, however late they are broken.
	rations := make(chan int, 100)
	p.session.Source(Stdout, &rationed{source: bytes.NewReader(out), granted: rations}, nil)
	p.session.Source(Stderr, bytes.NewReader(diag), nil)
	p.session.Post(Exit{9, "as it was told"})
	start := func() {
		p.client.Source(Stdin, bytes.NewReader(in), nil)
		p.client.Sink(Stdout, stdout)
		p.client.Sink(Stderr, stderr)
	}
	received := func() uint64 {
		a, _ := p.client.positions()
		b, _ := p.session.positions()
		return a[Stdout] + a[Stderr] + b[Stdin]
	}
	for breaks := uint64(1); ; breaks++ {
		breakIt, over := p.connect(start)
		start = nil
		rations <- 1 << 20
		enough := breaks << 20
		for received() < enough && len(p.heard) == 0 {
			time.Sleep(50 * time.Microsecond) // the moment to break it
		}
		if len(p.heard) > 0 {
			break
		}
		if !replaced {
			breakIt()
			<-over
		}
	}
	stdin.wait(t)
	stdout.wait(t)
	stderr.wait(t)
	stdin.check(t, "stdin", in)
	stdout.check(t, "stdout", out)
	stderr.check(t, "stderr", diag)
	if m := p.next(p.heard); m != (Exit{9, "as it was told"}) {
		t.Errorf("heard %v", m)
	}
	p.client.Written()
	p.client.Post(Bye{})
	p.client.Close()
	for m := p.next(p.told); m != (Bye{}); m = p.next(p.told) {
		t.Errorf("told %v", m)
	}
}

// A client that is new begins where the one before had written to.
func TestNewClient(t *testing.T) {
	p := newPair(t)
	stdin := newSink()
	r, w := io.Pipe()
	p.session.Sink(Stdin, stdin)
	p.session.Source(Stdout, r, nil)
	first := newSink()
	in, typed := io.Pipe()
	breakIt, over := p.connect(func() {
		p.client.Source(Stdin, in, nil)
		p.client.Sink(Stdout, first)
	})
	if _, err := io.WriteString(w, "hello "); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(typed, "typed "); err != nil {
		t.Fatal(err)
	}
	// The session knows that the first client has written it.
	p.session.mu.Lock()
	for p.session.out[Stdout].base < 6 || p.session.in[Stdin].base < 6 {
		p.session.changed.Wait()
	}
	p.session.mu.Unlock()
	breakIt()
	<-over
	p.client.Close()

	p.client = New(func(m Message) { p.heard <- m })
	second := newSink()
	p.connect(func() {
		p.client.Source(Stdin, bytes.NewReader([]byte("more")), nil)
		p.client.Sink(Stdout, second)
	})
	if _, err := io.WriteString(w, "again"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	second.wait(t)
	second.check(t, "the second client", []byte("again"))
	stdin.wait(t)
	stdin.check(t, "stdin", []byte("typed more"))
	first.check(t, "the first client", []byte("hello "))
}

// closer is a source that is closed when nobody wants it.
type closer chan struct{}

func (c closer) Close() error {
	close(c)
	return nil
}

// Whoever cannot write says so, and the source is closed.
func TestRefused(t *testing.T) {
	p := newPair(t)
	stdout := newSink()
	stdout.fail = 100_000
	unwanted := make(closer)
	p.session.Source(Stdout, rand.NewChaCha8([32]byte{}), unwanted) // it never ends
	p.session.Post(Exit{141, ""})
	p.connect(func() { p.client.Sink(Stdout, stdout) })
	select {
	case <-unwanted:
	case <-time.After(time.Minute):
		t.Fatal("the source is not closed")
	}
	stdout.wait(t)
	p.client.Written()
	if m := p.next(p.heard); m != (Exit{141, ""}) {
		t.Errorf("heard %v", m)
	}
}

// One who does not read stops the sender at a window, and only that stream.
func TestSlowReader(t *testing.T) {
	p := newPair(t)
	blocked, w := io.Pipe()
	stderr := newSink()
	diag := noise(3 * Window)
	var sent counter
	p.session.Source(Stdout, io.TeeReader(rand.NewChaCha8([32]byte{}), &sent), nil)
	p.session.Source(Stderr, bytes.NewReader(diag), nil)
	p.connect(func() {
		p.client.Sink(Stdout, w)
		p.client.Sink(Stderr, stderr)
	})
	stderr.wait(t)
	stderr.check(t, "stderr", diag)
	if _, err := io.ReadFull(blocked, make([]byte, 4*Window)); err != nil {
		t.Fatal(err)
	}
	// 4 windows were read, one may be on each side, and one write is under way.
	if n := sent.read(); n > 7*Window {
		t.Errorf("the sender has read %d bytes", n)
	}
	blocked.Close()
}

// BenchmarkStdout is what a job writes, encrypted over loopback.
func BenchmarkStdout(b *testing.B) {
	const size = 64 << 20
	text := make([]byte, size)
	b.SetBytes(size)
	for b.Loop() {
		p := newPair(b)
		stdout := newSink()
		stdout.hash = nothing{sha256.New()}
		p.session.Source(Stdout, bytes.NewReader(text), nil)
		p.connect(func() { p.client.Sink(Stdout, stdout) })
		stdout.wait(b)
	}
}

// nothing is a hash that costs nothing.
type nothing struct{ hash.Hash }

func (nothing) Write(b []byte) (int, error) { return len(b), nil }

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += len(b)
	return len(b), nil
}

func (c *counter) read() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// Messages keep their order; of sizes of the window only the last one counts.
func TestMessages(t *testing.T) {
	p := newPair(t)
	p.client.Post(WindowSize{1, 2, 3, 4})
	p.client.Post(Signal{2})
	p.client.Post(WindowSize{24, 80, 640, 480})
	p.session.Post(State{true})
	p.connect(nil)
	var got []Message
	for range 2 {
		got = append(got, p.next(p.told))
	}
	if want := []Message{Signal{2}, WindowSize{24, 80, 640, 480}}; !slices.Equal(got, want) {
		t.Errorf("told %v; want %v", got, want)
	}
	if m := p.next(p.heard); m != (State{true}) {
		t.Errorf("heard %v", m)
	}
}
