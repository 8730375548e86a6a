package wire

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"
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

// elsewhere is a connection from another host.
type elsewhere struct{ net.Conn }

func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)} }

// Keys that a recording does not give away later are for what leaves the host.
func TestCurves(t *testing.T) {
	identity, fingerprint, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	token := NewToken()
	for _, c := range []struct {
		name string
		conn func(net.Conn) net.Conn
		want tls.CurveID
	}{
		{"within a host", func(c net.Conn) net.Conn { return c }, tls.X25519},
		{"between hosts", func(c net.Conn) net.Conn { return elsewhere{c} }, tls.X25519MLKEM768},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := loopback(t)
			go func() { _, _, _ = New(nil).Accept(b, identity, token) }()
			conn, _, err := New(nil).Offer(c.conn(a), fingerprint, token)
			if err != nil {
				t.Fatal(err)
			}
			if got := conn.Conn.ConnectionState().CurveID; got != c.want {
				t.Errorf("they have agreed by %v; want %v", got, c.want)
			}
		})
	}
}
