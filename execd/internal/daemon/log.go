package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"paddock/spool/atomicfile"
)

// logHandler writes the log in Grid Engine's format to the file messages,
// opened anew for every line so that it can be rotated, and in the foreground
// in a shorter form to standard error.
type logHandler struct {
	level slog.Level
	path  string
	host  string

	mu     *sync.Mutex
	screen io.Writer // guarded by mu; nil: none
}

func newLog(o Options, path, host string) *slog.Logger {
	h := &logHandler{level: slog.LevelInfo, path: path, host: host, mu: new(sync.Mutex)}
	if o.Debug {
		h.level = slog.LevelDebug
	}
	if o.Foreground {
		h.screen = os.Stderr
	}
	return slog.New(h)
}

// Enabled reports whether lines of a level are written.
func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

// Handle writes one line.
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	letter := "I"
	switch {
	case r.Level >= slog.LevelError:
		letter = "E"
	case r.Level >= slog.LevelWarn:
		letter = "W"
	case r.Level < slog.LevelInfo:
		letter = "D"
	}
	text := strings.ReplaceAll(r.Message, "\n", "; ")
	line := fmt.Sprintf("%s|  main|%s|%s|%s\n", r.Time.Format("01/02/2006 15:04:05"), h.host, letter, text)
	h.mu.Lock()
	defer h.mu.Unlock()
	err := atomicfile.Append(h.path, []byte(line), 0o644)
	if h.screen != nil || err != nil {
		screen := h.screen
		if screen == nil {
			screen = os.Stderr // the disk is full or gone: say it where somebody may see it
		}
		fmt.Fprintf(screen, "%s %s %s\n", r.Time.Format("15:04:05.000"), letter, text)
	}
	return err
}

// WithAttrs returns the handler as it is: lines are whole sentences here.
func (h *logHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup returns the handler as it is.
func (h *logHandler) WithGroup(string) slog.Handler { return h }
