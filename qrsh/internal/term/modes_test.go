package term

import (
	"testing"

	"golang.org/x/sys/unix"

	"paddock/qrsh/wire"
)

// Every mode arrives, on and off, and what is not known changes nothing.
func TestModes(t *testing.T) {
	on := unix.Termios{}
	for _, flags := range flagsOf(&on) {
		for _, bit := range flags.bits {
			*flags.of |= bit
		}
	}
	for _, at := range keys {
		on.Cc[at] = byte(at + 1)
	}
	for _, want := range []unix.Termios{on, {}} {
		got := on
		Decode(Encode(&want), &got)
		if got != want {
			t.Errorf("got %+v; want %+v", got, want)
		}
		Decode(wire.Modes{Pairs: "\x7f\x00\x00\x00\x01\x03\x00\x01\x00\x00\x11"}, &got)
		if got != want {
			t.Errorf("unknown modes made it %+v; want %+v", got, want)
		}
	}
}

// Whatever comes can be done.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(Encode(&unix.Termios{}).Pairs))
	f.Fuzz(func(t *testing.T, pairs []byte) {
		var mode, again unix.Termios
		Decode(wire.Modes{Pairs: string(pairs)}, &mode)
		Decode(Encode(&mode), &again)
		if mode != again {
			t.Errorf("%q is %+v, and then %+v", pairs, mode, again)
		}
	})
}
