package output

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Terminal returns w as a file if it is a terminal, else nil.
func Terminal(w io.Writer) *os.File {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return f
}

// Size returns the columns and lines of a terminal.
func Size(f *os.File) (columns, lines int) {
	w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 80, 24
	}
	return int(w.Col), int(w.Row)
}

// Coloured reports whether what is written to a terminal, which may be nil, is
// to have colours. The variable NO_COLOR forbids them.
func Coloured(f *os.File) bool {
	if f == nil {
		return false
	}
	term := os.Getenv("TERM")
	return os.Getenv("NO_COLOR") == "" && term != "" && term != "dumb"
}

// Colours, by the numbers of ECMA-48.
const (
	Red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	Bold   = "1"
	Invert = "7"
)

// Colour returns text in a colour.
func Colour(code, text string) string { return "\x1b[" + code + "m" + text + "\x1b[0m" }

// StateColour returns the colour for the state of a job; "" for none.
func StateColour(state string) string {
	switch {
	case strings.Contains(state, "E"), strings.HasPrefix(state, "d"):
		return Red
	case strings.ContainsAny(state, "sST"):
		return yellow
	case strings.Contains(state, "h"):
		return blue
	case strings.ContainsAny(state, "rt"):
		return green
	}
	return ""
}

// StateColumn is Column for the state of a job, with a colour if it is written
// to a terminal; to may be nil. The visible width is the same.
func StateColumn(to *os.File, state string, width int) string {
	text := Column(state, width)
	code := StateColour(state)
	if code == "" || !Coloured(to) {
		return text
	}
	letters := strings.TrimRight(text, " ")
	return Colour(code, letters) + text[len(letters):]
}
