// Package term is the user's terminal: its size, its modes, which the job's is to
// have too, and raw mode, which is given back before the program ends or stops.
// Package client imports it, and qrsh-session for the modes.
package term

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"paddock/qrsh/wire"
)

// Terminal is the terminal that standard input is. A nil Terminal is none.
type Terminal struct {
	file *os.File

	mu   sync.Mutex
	mode *term.State // guarded by mu; what it was before raw mode; nil: it is not raw
}

// Open returns the terminal of a file, nil if it is none.
func Open(f *os.File) *Terminal {
	if !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &Terminal{file: f}
}

// Raw has every key passed on as it is. It may be said again, for a terminal that
// somebody else has had meanwhile.
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

// Restore gives back the mode from before Raw.
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

// Modes returns how the terminal is set, as it is sent.
func (t *Terminal) Modes() (wire.Modes, error) {
	mode, err := unix.IoctlGetTermios(int(t.file.Fd()), unix.TCGETS)
	if err != nil {
		return wire.Modes{}, err
	}
	return Encode(mode), nil
}
