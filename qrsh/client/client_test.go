package client

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/qrsh/internal/term"
	"paddock/test/harness"
)

// A terminal is given back before a panic ends the program, and what is typed
// behind the end is the next program's.
func TestTerminalIsGivenBack(t *testing.T) {
	user, tty, err := harness.OpenTerminal()
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	defer tty.Close()
	modes := func() unix.Termios {
		m, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return *m
	}
	before := modes()
	c := &Client{terminal: term.Open(tty)}
	if err := c.terminal.Raw(); err != nil || modes() == before {
		t.Fatalf("the terminal is not raw: %v", err)
	}
	func() {
		defer func() {
			if why := recover(); why != "fault" {
				t.Errorf("it panics with %v", why)
			}
		}()
		defer c.guard()
		panic("fault")
	}()
	if modes() != before {
		t.Error("the terminal is raw behind a panic")
	}

	type read struct {
		text string
		err  error
	}
	reads := make(chan read, 2)
	go func() {
		for range 2 {
			b := make([]byte, 100)
			n, err := c.terminal.Read(b)
			reads <- read{string(b[:n]), err}
		}
	}()
	next := func() read {
		select {
		case r := <-reads:
			return r
		case <-time.After(harness.Patience):
			t.Fatal("nothing is read")
			return read{}
		}
	}
	if _, err := user.WriteString("one\n"); err != nil {
		t.Fatal(err)
	}
	if r := next(); r.err != nil || r.text != "one\n" {
		t.Errorf("read %q, %v", r.text, r.err)
	}
	c.terminal.Release()
	if r := next(); !errors.Is(r.err, os.ErrClosed) {
		t.Errorf("read %q, %v behind the end", r.text, r.err)
	}
	if _, err := user.WriteString("two\n"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if n, err := tty.Read(b); err != nil || string(b[:n]) != "two\n" {
		t.Errorf("the next program reads %q, %v", b[:n], err)
	}
}
