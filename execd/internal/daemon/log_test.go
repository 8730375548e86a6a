package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/execd/internal/conf"
)

// listen is a daemon that keeps logs.
func listen(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// heard returns the next line that it got.
func heard(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64<<10)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// newTestLog is a log without a screen.
func newTestLog(t *testing.T) (*logHandler, func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "messages")
	return newLog(Options{}, &conf.Config{}, path, "node7"), func() string {
		text, _ := os.ReadFile(path)
		return string(text)
	}
}

// What a user could have put into a reason is no command to the terminal of a reader of
// the log, and no line of its own.
func TestLogShowsControlCharacters(t *testing.T) {
	h, text := newTestLog(t)
	slog.New(h).Error("job 1.1: cannot start: HookStatusCode is \"\x1b]0;x\a\r\u009b2J\x9b\x7f\u00e9\"\n01/02/2026 15:04:05|  main|node7|I|forged")
	want := `|E|job 1.1: cannot start: HookStatusCode is "\x1b]0;x\x07\r\u009b2J\x9b\x7f` + "\u00e9" + `"; 01/02/2026 15:04:05|  main|node7|I|forged` + "\n"
	if got := text(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("logged %q; want its end %q", got, want)
	}
}

func TestLogLevel(t *testing.T) {
	for _, tt := range []struct {
		level string
		debug bool
		want  string
	}{
		{"", false, "IWE"}, {"log_info", false, "IWE"}, {"log_warning", false, "WE"}, {"log_err", false, "E"}, {"log_err", true, "DIWE"},
	} {
		h, text := newTestLog(t)
		h.debug = tt.debug
		log := slog.New(h)
		log.Info("start") // in any case
		h.configure(&conf.Config{Global: conf.Global{LogLevel: tt.level}})
		log.Debug("d")
		log.Info("i")
		log.Warn("w")
		log.Error("e\nf")
		var got string
		for _, m := range regexp.MustCompile(`(?m)^../../.... ..:..:..\|  main\|node7\|(.)\|.+$`).FindAllStringSubmatch(text(), -1) {
			got += m[1]
		}
		if got != "I"+tt.want || !strings.HasSuffix(text(), "|E|e; f\n") {
			t.Errorf("%q, debug %v: levels %s; want I%s:\n%s", tt.level, tt.debug, got, tt.want, text())
		}
	}
}

// A file that was renamed or removed is begun anew with the next line.
func TestLogRotated(t *testing.T) {
	h, text := newTestLog(t)
	log := slog.New(h)
	log.Info("one")
	if err := os.Rename(h.path, h.path+".1"); err != nil {
		t.Fatal(err)
	}
	log.Info("two")
	old, err := os.ReadFile(h.path + ".1")
	if err != nil || !strings.HasSuffix(string(old), "|one\n") || strings.Contains(text(), "one") || !strings.HasSuffix(text(), "|two\n") {
		t.Errorf("%q, %v, then %q", old, err, text())
	}
	if err := os.Remove(h.path); err != nil {
		t.Fatal(err)
	}
	log.Info("three")
	if !strings.HasSuffix(text(), "|three\n") || strings.Contains(text(), "two") {
		t.Errorf("after the removal: %q", text())
	}
}

func TestSyslog(t *testing.T) {
	h, text := newTestLog(t)
	path := filepath.Join(t.TempDir(), "log")
	first := listen(t, path)
	h.syslog = &systemLog{path: path, format: syslogLine}
	log := slog.New(h)
	log.Warn("job 42.1: one\ntwo")
	want := regexp.MustCompile(fmt.Sprintf(`^<28>[A-Z][a-z]{2} [ 0-9][0-9] ..:..:.. execd\[%d\]: job 42\.1: one; two$`, os.Getpid()))
	if got := heard(t, first); !want.MatchString(got) {
		t.Errorf("syslogd heard %q; want %v", got, want)
	}
	if text() != "" {
		t.Errorf("the file has it too: %q", text())
	}
	log.Info(strings.Repeat("x", 1<<20))
	if got := heard(t, first); len(got) > maxSystemLine+100 {
		t.Errorf("syslogd heard %d bytes", len(got))
	}
	// It is restarted, and nothing is lost.
	first.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	log.Info("while it is away")
	if !strings.HasSuffix(text(), "|I|while it is away\n") {
		t.Errorf("the file has %q; want what no one heard", text())
	}
	second := listen(t, path)
	log.Error("job 7: back")
	if got := heard(t, second); !strings.HasPrefix(got, "<27>") || !strings.HasSuffix(got, ": job 7: back") {
		t.Errorf("syslogd heard %q", got)
	}
	// Switched off by a new configuration.
	h.configure(&conf.Config{})
	log.Info("to the file")
	if !strings.HasSuffix(text(), "|to the file\n") {
		t.Errorf("the file has %q", text())
	}
	h.configure(&conf.Config{Global: conf.Global{Syslog: true}})
	if h.syslog == nil {
		t.Error("not switched on")
	}
}

// A daemon that hears nothing holds up nobody: what it has no room for is in
// the file.
func TestSyslogDeaf(t *testing.T) {
	h, text := newTestLog(t)
	path := filepath.Join(t.TempDir(), "log")
	deaf := listen(t, path)
	h.syslog = &systemLog{path: path, format: syslogLine}
	log := slog.New(h)
	for n := 0; text() == ""; n++ {
		if n == 10_000 {
			t.Fatal("the socket has room for everything")
		}
		log.Info(strings.Repeat("x", maxSystemLine))
	}
	heard(t, deaf)
}

func TestJournal(t *testing.T) {
	h, text := newTestLog(t)
	path := filepath.Join(t.TempDir(), "socket")
	journald := listen(t, path)
	var screen bytes.Buffer
	h.screen, h.journal = &screen, &systemLog{path: path, format: journalEntry}
	log := slog.New(h)
	for line, want := range map[string]string{
		"job 42.3: ended: failed=0\nPRIORITY=0": "PRIORITY=6\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=execd\nPADDOCK_JOB=42\nPADDOCK_TASK=3\nMESSAGE=job 42.3: ended: failed=0; PRIORITY=0\n",
		"job 42: gone":                          "PRIORITY=6\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=execd\nPADDOCK_JOB=42\nMESSAGE=job 42: gone\n",
		"job x: y":                              "PRIORITY=6\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=execd\nMESSAGE=job x: y\n",
		"execd: ready: job 1: x":                "PRIORITY=6\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=execd\nMESSAGE=execd: ready: job 1: x\n",
	} {
		log.Info(line)
		if got := heard(t, journald); got != want {
			t.Errorf("%q: the journal heard %q; want %q", line, got, want)
		}
	}
	if screen.Len() > 0 || strings.Count(text(), "\n") != 4 {
		t.Errorf("screen %q, file %q; want none, and all four", screen.String(), text())
	}
	journald.Close()
	log.Info("nobody hears")
	if !strings.HasSuffix(screen.String(), " I nobody hears\n") {
		t.Errorf("screen %q; want what the journal did not hear", screen.String())
	}
}

func TestToJournal(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	for value, want := range map[string]bool{
		fmt.Sprintf("%d:%d", st.Dev, st.Ino): true, fmt.Sprintf("%d:%d", st.Dev, st.Ino+1): false, "": false, "x": false,
	} {
		t.Setenv("JOURNAL_STREAM", value)
		if got := toJournal(f); got != want {
			t.Errorf("JOURNAL_STREAM=%s: %v; want %v", value, got, want)
		}
	}
}
