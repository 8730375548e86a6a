package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
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

// stateColumn is column for the state of a job, with a colour on a terminal.
// What the eye sees has the same width, and what is not shown on a terminal the
// same bytes.
func (s *session) stateColumn(state string, width int) string {
	text := column(state, width)
	code := stateColour(state)
	if code == "" || !coloured(s.screen) {
		return text
	}
	letters := strings.TrimRight(text, " ")
	return colour(code, letters) + text[len(letters):]
}

// statusLine is the last line of a terminal, which is written again and again;
// nil where there is none.
type statusLine struct {
	to   *os.File
	done chan struct{}
	stop context.CancelFunc

	mu   sync.Mutex
	text string // guarded by mu
}

// statusInterval is how often it is brought up to date.
const statusInterval = 2 * time.Second

// progress shows on a terminal how far jobs are, until end is called. total is
// the number of their tasks.
func (s *session) progress(ctx context.Context, words []string, total int) *statusLine {
	if s.notes == nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	l := &statusLine{to: s.notes, stop: stop, done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(l.done)
		tick := time.NewTicker(statusInterval)
		defer tick.Stop()
		for {
			var reply api.FindReply
			if err := s.client.Call(ctx, api.VerbFind, &api.FindRequest{Jobs: words}, &reply); err == nil {
				l.set(progressText(&reply, total) + ", " + elapsed(time.Since(began)))
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return l
}

// progressText says how many tasks of total are over.
func progressText(reply *api.FindReply, total int) string {
	var running, pending, inError int
	for _, f := range reply.Found {
		running, pending, inError = running+f.Running, pending+f.Pending, inError+f.InError
	}
	text := fmt.Sprintf("%d of %d done, %d running, %d pending", max(total-running-pending-inError, 0), total, running, pending)
	if inError > 0 {
		text += fmt.Sprintf(", %d in error", inError)
	}
	return text
}

func (l *statusLine) set(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
	l.draw()
}

// draw writes the text over what stands in the line; l.mu is held.
func (l *statusLine) draw() {
	columns, _ := size(l.to)
	fmt.Fprintf(l.to, "\r%s\x1b[K", l.text[:min(len(l.text), columns-1)])
}

// hold takes the line away, so that others can be printed, until release.
func (l *statusLine) hold() {
	if l == nil {
		return
	}
	l.mu.Lock()
	if l.text != "" {
		fmt.Fprint(l.to, "\r\x1b[K")
	}
}

func (l *statusLine) release() {
	if l == nil {
		return
	}
	if l.text != "" {
		l.draw()
	}
	l.mu.Unlock()
}

// end takes the line away for good.
func (l *statusLine) end() {
	if l == nil {
		return
	}
	l.stop()
	<-l.done
	l.hold()
	l.text = ""
	l.release()
}

// elapsed is a time that has passed, short: 9s, 4m05s, 2h10m, 3d04h.
func elapsed(d time.Duration) string {
	n := int(d.Seconds())
	switch {
	case n < 60:
		return fmt.Sprintf("%ds", max(n, 0))
	case n < 3600:
		return fmt.Sprintf("%dm%02ds", n/60, n%60)
	case n < 86400:
		return fmt.Sprintf("%dh%02dm", n/3600, n/60%60)
	}
	return fmt.Sprintf("%dd%02dh", n/86400, n/3600%24)
}
