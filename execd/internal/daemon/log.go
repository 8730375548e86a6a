package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/spool/atomicfile"
)

// logHandler writes the log in Grid Engine's format to the file messages, opened anew
// for every line so that it can be rotated, or to the system's log; in the foreground
// also to standard error, in a shorter form. If that is a stream of the journal, the
// lines go to the journal with fields that tell jobs apart.
type logHandler struct {
	level slog.LevelVar
	debug bool
	path  string
	host  string

	mu      sync.Mutex
	screen  io.Writer  // guarded by mu; nil: none
	journal *systemLog // guarded by mu; instead of screen; nil: it is not the journal
	syslog  *systemLog // guarded by mu; instead of the file; nil: not wanted
}

func newLog(o Options, c *conf.Config, path, host string) *logHandler {
	h := &logHandler{path: path, host: host, debug: o.Debug}
	if o.Foreground {
		h.screen = os.Stderr
		if toJournal(os.Stderr) {
			h.journal = newJournal()
		}
	}
	h.configure(c)
	// Lines of the start are written whatever the level is.
	h.setLevel("log_info")
	return h
}

// configure takes the settings of a configuration, at the start and after each reload.
func (h *logHandler) configure(c *conf.Config) {
	h.setLevel(c.Global.LogLevel)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !c.Global.Syslog:
		h.syslog = nil
	case h.syslog == nil:
		h.syslog = newSystemLog()
	}
}

// setLevel takes a word of loglevel; any other, and none, is log_info.
func (h *logHandler) setLevel(level string) {
	switch {
	case h.debug:
		h.level.Set(slog.LevelDebug)
	case level == "log_err" || level == "log_crit":
		h.level.Set(slog.LevelError)
	case level == "log_warning":
		h.level.Set(slog.LevelWarn)
	default:
		h.level.Set(slog.LevelInfo)
	}
}

// Enabled reports whether lines of a level are written.
func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

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
	// Reasons may quote users, who must not send commands to a terminal.
	text := api.Visible(strings.ReplaceAll(r.Message, "\n", "; "))
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	if h.syslog == nil || h.syslog.write(r, text) != nil {
		line := fmt.Sprintf("%s|  main|%s|%s|%s\n", r.Time.Format("01/02/2006 15:04:05"), h.host, letter, text)
		err = atomicfile.Append(h.path, []byte(line), 0o644)
	}
	if h.journal != nil && h.journal.write(r, text) == nil {
		return err
	}
	if h.screen != nil || err != nil {
		screen := h.screen
		if screen == nil {
			screen = os.Stderr // the disk may be full: standard error may be seen
		}
		head := ""
		if h.journal != nil {
			head = priority(r.Level)
		}
		fmt.Fprintf(screen, "%s%s %s %s\n", head, r.Time.Format("15:04:05.000"), letter, text)
	}
	return err
}

// WithAttrs returns the handler itself: lines are whole sentences here.
func (h *logHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup returns the handler itself.
func (h *logHandler) WithGroup(string) slog.Handler { return h }
