// Package term is the user's terminal: its size, its modes, which are sent to
// the terminal of the job, and raw mode, which is left before the program ends
// or stops. Package client imports it, and qrsh-session for the modes.
package term

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"paddock/qrsh/wire"
)

// Terminal is the terminal of standard input. A nil Terminal is none.
type Terminal struct {
	file     *os.File
	released atomic.Bool
	wake     [2]int // a pipe, with something in it when it is released

	mu   sync.Mutex
	mode *term.State // guarded by mu; what it was before raw mode; nil: it is not raw
}

// Is reports whether a file is a terminal.
func Is(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Open returns the terminal of a file; nil if the file is not a terminal.
func Open(f *os.File) *Terminal {
	if !Is(f) {
		return nil
	}
	t := &Terminal{file: f}
	if err := unix.Pipe2(t.wake[:], unix.O_CLOEXEC); err != nil {
		return nil // a program that cannot even have a pipe
	}
	return t
}

// Read reads keys. Keys that are typed after Release are not read: they are for
// the next program.
func (t *Terminal) Read(b []byte) (int, error) {
	fds := []unix.PollFd{{Fd: int32(t.file.Fd()), Events: unix.POLLIN}, {Fd: int32(t.wake[0]), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
		if t.released.Load() {
			return 0, os.ErrClosed
		}
		if fds[0].Revents != 0 {
			return t.file.Read(b)
		}
	}
}

// Release restores the terminal, which is not used any more.
func (t *Terminal) Release() {
	if t == nil {
		return
	}
	t.released.Store(true)
	_, _ = unix.Write(t.wake[1], []byte{0})
	t.Restore()
}

// Raw sets raw mode. It may be called again, when another program has used the
// terminal meanwhile.
func (t *Terminal) Raw() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	mode, err := term.MakeRaw(int(t.file.Fd()))
	if err == nil && t.mode == nil {
		t.mode = mode
	}
	return err
}

// Restore sets the modes from before Raw.
func (t *Terminal) Restore() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mode != nil {
		_ = term.Restore(int(t.file.Fd()), t.mode)
		t.mode = nil
	}
}

// Size returns the size of the terminal.
func (t *Terminal) Size() (wire.WindowSize, error) {
	size, err := unix.IoctlGetWinsize(int(t.file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return wire.WindowSize{}, err
	}
	return wire.WindowSize{Rows: size.Row, Columns: size.Col, Width: size.Xpixel, Height: size.Ypixel}, nil
}

// Modes returns the modes of the terminal in the form of Encode.
func (t *Terminal) Modes() (wire.Modes, error) {
	mode, err := unix.IoctlGetTermios(int(t.file.Fd()), unix.TCGETS)
	if err != nil {
		return wire.Modes{}, err
	}
	return Encode(mode), nil
}
