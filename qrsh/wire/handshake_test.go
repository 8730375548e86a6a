package wire

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"paddock/test/harness"
)

// Strangers get no answer, not even the certificate's owner's name.
func TestStrangers(t *testing.T) {
	identity, fingerprint, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	token := NewToken()
	secure := func(conn net.Conn) net.Conn {
		return tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true})
	}
	hello := func(token Token, change func([]byte)) []byte {
		b := append([]byte(magic), FirstVersion, LastVersion)
		b = append(appendPositions(append(b, token[:]...), Positions{}), 0)
		change(b)
		return appendFrame(nil, TypeHello, b)
	}
	for _, c := range []struct {
		name string
		talk func(net.Conn) net.Conn
		say  []byte
	}{
		{"no TLS", func(c net.Conn) net.Conn { return c }, []byte("GET / HTTP/1.0\r\n\r\n")},
		{"another token", secure, hello(NewToken(), func([]byte) {})},
		{"another program", secure, hello(token, func(b []byte) { b[0] = 'P' })},
		{"a later version", secure, hello(token, func(b []byte) { b[len(magic)], b[len(magic)+1] = 9, 12 })},
		{"another frame", secure, appendFrame(nil, TypeBye, nil)},
		{"an unknown frame", secure, appendFrame(nil, 99, make([]byte, 100))},
		{"a giant", secure, []byte{byte(TypeHello), 0xff, 0xff, 0xff}},
		{"half a hello", secure, hello(token, func([]byte) {})[:30]},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := loopback(t)
			answer := make(chan []byte, 1)
			go func() {
				conn := c.talk(a)
				_, _ = conn.Write(c.say)
				if c.name == "half a hello" {
					_ = conn.Close()
				}
				text, _ := io.ReadAll(conn)
				answer <- text
			}()
			_ = b.SetDeadline(time.Now().Add(time.Minute))
			_, _, err := New(nil).Accept(b, identity, token)
			b.Close()
			if err == nil || errors.Is(err, ErrUnauthenticated) == (c.name == "a later version") {
				t.Errorf("Accept returned %v", err)
			}
			if got := <-answer; c.name != "no TLS" && len(got) > 0 {
				t.Errorf("it was answered %q", got)
			}
		})
	}

	// The session takes no other client.
	a, b := loopback(t)
	other, _, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _, _ = New(nil).Accept(b, other, token) }()
	if _, _, err := New(nil).Offer(a, fingerprint, token); err == nil {
		t.Error("the session has taken another client")
	}
}

// Whatever comes, it is an error or it is understood, and no more than the
// window is kept of it.
func FuzzFrames(f *testing.F) {
	for _, m := range []Message{WindowSize{24, 80, 640, 480}, Signal{15}, State{true}, Exit{3, "why"}, Bye{}, Daemon{9, "/p", "a1", "h"}, Daemon{9, "", "", "h"}, Status{3}, Modes{"\x01\x00\x00\x00\x03"}} {
		t, b := m.frame()
		f.Add(appendFrame(nil, t, b))
	}
	data := appendFrame(nil, TypeData, []byte("\x01output"))
	f.Add(append(data, appendFrame(nil, TypeData, []byte{1})...))
	f.Add(appendFrame(nil, TypeTaken, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0}))
	f.Add(appendFrame(nil, TypeRefused, []byte{0}))
	f.Add([]byte{3, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, stream []byte) {
		l := New(func(m Message) {
			kind, b := m.frame()
			if again, err := parseMessage(kind, b); err != nil || again != m {
				t.Errorf("%v is read as %v, %v", m, again, err)
			}
		})
		defer l.Close()
		l.version = LastVersion
		out := newSink()
		l.Sink(Stdout, out)
		l.Source(Stdin, bytes.NewReader(nil), nil)
		if err := l.read(bufio.NewReader(bytes.NewReader(stream))); err == nil {
			t.Error("no error at the end")
		}
		if l.in[Stdout].len() > Window {
			t.Errorf("%d bytes are kept", l.in[Stdout].len())
		}
	})
}

// unixPair returns both ends of a connection over a Unix socket: of who connects and of who listens, by whom each is.
func unixPair(t *testing.T, connects, listens func(func())) (a, b net.Conn) {
	t.Helper()
	var l net.Listener
	var err, failed error
	listens(func() { l, err = net.Listen("unix", "@paddock-test-"+rand.Text()) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connects(func() { a, failed = net.Dial("unix", l.Addr().String()) })
	if b, err = l.Accept(); errors.Join(failed, err) != nil {
		t.Fatal(failed, err)
	}
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

func asOurselves(do func()) { do() }

func asNobody(do func()) { harness.InThread(65534, do) }

// Within a host nothing is encrypted: the kernel says that both ends are one user's.
func TestUnixSocket(t *testing.T) {
	token := NewToken()
	// meet has a session offer a token, and returns what it and the client say of each other.
	meet := func(offered Token) (session, client error) {
		a, b := unixPair(t, asOurselves, asOurselves)
		accepted := make(chan error, 1)
		go func() {
			defer b.Close()
			_, _, err := New(nil).Accept(b, tls.Certificate{}, token)
			accepted <- err
		}()
		_, _, session = New(nil).Offer(a, Fingerprint{}, offered)
		return session, <-accepted
	}
	if session, client := meet(token); session != nil || client != nil {
		t.Errorf("the session says %v, and the client %v", session, client)
	}
	if session, client := meet(NewToken()); session == nil || !errors.Is(client, ErrUnauthenticated) {
		t.Errorf("with another token the session says %v, and the client %v", session, client)
	}
}

// Another user hears nothing and is not heard, whichever end he has.
func TestUnixSocketOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: an end of another user")
	}
	token := NewToken()
	a, b := unixPair(t, asOurselves, asNobody)
	if _, _, err := New(nil).Offer(a, Fingerprint{}, token); err == nil || !strings.Contains(err.Error(), "the other end is of user 65534") {
		t.Errorf("Offer to another user returned %v", err)
	}
	a.Close()
	if heard, err := io.ReadAll(b); err != nil || len(heard) > 0 {
		t.Errorf("another user has heard %q, %v", heard, err)
	}
	a, b = unixPair(t, asNobody, asOurselves)
	if _, err := a.Write(appendFrame(nil, TypeHello, make([]byte, helloSize))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := New(nil).Accept(b, tls.Certificate{}, token); !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), "the other end is of user 65534") {
		t.Errorf("Accept of another user returned %v", err)
	}
}
