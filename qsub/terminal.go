package main

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// terminal returns the file that w is if that is a terminal, else nil.
func terminal(w io.Writer) *os.File {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return f
}

// size returns the columns and lines of a terminal.
func size(f *os.File) (columns, lines int) {
	w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 80, 24
	}
	return int(w.Col), int(w.Row)
}

// coloured reports whether a terminal, which may be nil, is to have colours.
// See no-color.org.
func coloured(f *os.File) bool {
	if f == nil {
		return false
	}
	term := os.Getenv("TERM")
	return os.Getenv("NO_COLOR") == "" && term != "" && term != "dumb"
}

// Colours, by the numbers of ECMA-48.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	bold   = "1"
	invert = "7"
)

func colour(code, text string) string { return "\x1b[" + code + "m" + text + "\x1b[0m" }

// stateColour returns the colour of a job's state; "": as the other text.
func stateColour(state string) string {
	switch {
	case strings.Contains(state, "E"), strings.HasPrefix(state, "d"):
		return red
	case strings.ContainsAny(state, "sST"):
		return yellow
	case strings.Contains(state, "h"):
		return blue
	case strings.ContainsAny(state, "rt"):
		return green
	}
	return ""
}

// stateColumn is column for the state of a job, with a colour if it is written to
// a terminal; nil: to none. The width that is seen is the same.
func stateColumn(to *os.File, state string, width int) string {
	text := column(state, width)
	code := stateColour(state)
	if code == "" || !coloured(to) {
		return text
	}
	letters := strings.TrimRight(text, " ")
	return colour(code, letters) + text[len(letters):]
}
