package harness

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// What goes over a line arrives as it was sent, and no sooner than the line can carry it.
func TestLine(t *testing.T) {
	n, err := NewNetwork("", t.TempDir(), []string{"one", "two"})
	if errors.Is(err, ErrNoNetwork) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	line := Line{Rate: 80_000_000, Delay: 20 * time.Millisecond}
	if err := n.Hosts[1].Lengthen(line); err != nil {
		t.Fatal(err)
	}
	var listener *net.TCPListener
	if err := n.Hosts[1].Within(func() (err error) {
		listener, err = net.ListenTCP("tcp", &net.TCPAddr{Port: 7777})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	got := make(chan []byte, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		data, err := io.ReadAll(conn)
		if err != nil {
			t.Error(err)
		}
		conn.Close()
		got <- data
	}()
	begin := time.Now()
	var conn *net.TCPConn
	if err := n.Hosts[0].Within(func() (err error) {
		conn, err = net.DialTCP("tcp", nil, &net.TCPAddr{IP: n.Hosts[1].IP, Port: 7777})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(sent); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if data := <-got; !bytes.Equal(data, sent) {
		t.Errorf("%d bytes of %d have arrived, or others", len(data), len(sent))
	}
	// A round trip for the connection, the half of one for the bytes.
	if took, least := time.Since(begin), 3*line.Delay+time.Duration(len(sent))*8*time.Second/time.Duration(line.Rate); took < least {
		t.Errorf("%d bytes took %v; at least %v are needed", len(sent), took, least)
	}
}
