package wire

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestDaemon(t *testing.T) {
	handle := "0123456789abcdef"
	for _, m := range []Message{
		Daemon{Port: 40000, Program: "/usr/lib/paddock/qrsh-session", Handle: handle, Host: "node-7.example.org"},
		Daemon{Port: 1, Host: "::1"},
		Daemon{Port: 65535, Program: "/with a blank/\"x\"", Handle: "A", Host: strings.Repeat("h", maxHost)},
		Status{255},
	} {
		kind, b := m.frame()
		if got, err := parseMessage(kind, b); err != nil || got != m {
			t.Errorf("%v is read as %v, %v", m, got, err)
		}
	}
	for _, m := range []Daemon{
		{Host: "h"},
		{Port: 1},
		{Port: 1, Host: "-oProxyCommand=x"},
		{Port: 1, Host: "a b"},
		{Port: 1, Host: "$(x)"},
		{Port: 1, Host: strings.Repeat("h", maxHost+1)},
		{Port: 1, Host: "h", Program: "/p"},
		{Port: 1, Host: "h", Handle: handle},
		{Port: 1, Host: "h", Program: "p", Handle: handle},
		{Port: 1, Host: "h", Program: "/p'; x '", Handle: handle},
		{Port: 1, Host: "h", Program: "/p\n", Handle: handle},
		{Port: 1, Host: "h", Program: "/" + strings.Repeat("p", maxProgram), Handle: handle},
		{Port: 1, Host: "h", Program: "/p", Handle: handle + "'"},
		{Port: 1, Host: "h", Program: "/p", Handle: strings.Repeat("a", maxHandle+1)},
		{Port: 1, Host: "h", Program: "/p", Handle: handle + "\x00x"},
	} {
		kind, b := m.frame()
		if got, err := parseMessage(kind, b); err == nil {
			t.Errorf("%+v is read as %v", m, got)
		}
	}
}

// A session for a daemon speaks with nobody who has not heard of such, and the
// others say nothing of it.
func TestDaemonVersion(t *testing.T) {
	identity, fingerprint, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	meet := func(forDaemon bool) (session, client *Link) {
		t.Helper()
		a, b := loopback(t)
		_ = a.SetDeadline(time.Now().Add(time.Minute))
		_ = b.SetDeadline(time.Now().Add(time.Minute))
		token := NewToken()
		session, client = New(nil), New(nil)
		session.ForDaemon = forDaemon
		failed := make(chan error, 1)
		go func() {
			_, _, err := client.Accept(b, identity, token)
			failed <- err
		}()
		if _, _, err := session.Offer(a, fingerprint, token); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		return session, client
	}
	for _, forDaemon := range []bool{false, true} {
		if s, c := meet(forDaemon); s.version != LastVersion || c.version != LastVersion {
			t.Errorf("versions %d and %d are spoken", s.version, c.version)
		}
	}
	if s := (&Link{ForDaemon: true}); s.least() != DaemonVersion {
		t.Errorf("a session for a daemon offers version %d", s.least())
	}
	old := New(func(m Message) { t.Errorf("an old session says %v", m) })
	old.version = FirstVersion
	kind, b := Status{1}.frame()
	if err := old.read(bufio.NewReader(bytes.NewReader(appendFrame(nil, kind, b)))); err == nil || !strings.Contains(err.Error(), "in version 1") {
		t.Errorf("a frame of the second version in the first: %v", err)
	}
}
