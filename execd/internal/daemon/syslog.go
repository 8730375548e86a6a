package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// systemLog sends lines as datagrams to a logging daemon. The caller calls it one line
// at a time.
type systemLog struct {
	path   string
	format func(severity int, r slog.Record, text string) []byte
	conn   net.Conn
}

// These are the sockets of the journal (systemd.journal-fields(7)) and of syslogd(8).
const (
	journalSocket = "/run/systemd/journal/socket"
	syslogSocket  = "/dev/log"
)

const (
	facilityDaemon = 3
	// A syslogd may cut longer lines, and datagrams are limited.
	maxSystemLine = 8 << 10
	// A logging daemon that does not read must not hold up execd: the line then goes to
	// the file.
	systemLogTimeout = 100 * time.Millisecond
)

// newSystemLog returns the journal where there is one, since it knows fields, else
// syslog.
func newSystemLog() *systemLog {
	if _, err := os.Stat(journalSocket); err == nil {
		return newJournal()
	}
	return &systemLog{path: syslogSocket, format: syslogLine}
}

func newJournal() *systemLog { return &systemLog{path: journalSocket, format: journalEntry} }

// toJournal reports whether a file is the stream that the service manager has connected
// to the journal (systemd.exec(5), JOURNAL_STREAM).
func toJournal(f *os.File) bool {
	var device, inode uint64
	if _, err := fmt.Sscanf(os.Getenv("JOURNAL_STREAM"), "%d:%d", &device, &inode); err != nil {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Dev == device && st.Ino == inode
}

// Priority returns what the journal takes from the head of a line of standard error as
// the severity (sd-daemon(3)), or nothing where that is no stream of the journal.
func Priority(level slog.Level) string {
	if !toJournal(os.Stderr) {
		return ""
	}
	return priority(level)
}

func priority(level slog.Level) string { return fmt.Sprintf("<%d>", severity(level)) }

// severity returns the number that syslog(3) has for a level.
func severity(level slog.Level) int {
	switch {
	case level >= slog.LevelError:
		return 3
	case level >= slog.LevelWarn:
		return 4
	case level < slog.LevelInfo:
		return 7
	}
	return 6
}

// write sends a line. The logging daemon may have been restarted since the last one, so
// write tries again on a new socket.
func (s *systemLog) write(r slog.Record, text string) error {
	entry := s.format(severity(r.Level), r, text[:min(len(text), maxSystemLine)])
	err := s.send(entry)
	if err != nil {
		err = s.send(entry)
	}
	return err
}

func (s *systemLog) send(entry []byte) (err error) {
	if s.conn == nil {
		if s.conn, err = net.Dial("unixgram", s.path); err != nil {
			return err
		}
	}
	if err = s.conn.SetWriteDeadline(time.Now().Add(systemLogTimeout)); err == nil {
		_, err = s.conn.Write(entry)
	}
	if err != nil {
		s.conn.Close()
		s.conn = nil
	}
	return err
}

// syslogLine formats a line as local programs send it (RFC 3164, without the host).
func syslogLine(severity int, r slog.Record, text string) []byte {
	return fmt.Appendf(nil, "<%d>%s execd[%d]: %s", facilityDaemon<<3|severity, r.Time.Format(time.Stamp), os.Getpid(), text)
}

// journalEntry formats an entry of the journal. The text has no newline, so each field
// is a line.
func journalEntry(severity int, _ slog.Record, text string) []byte {
	b := fmt.Appendf(nil, "PRIORITY=%d\nSYSLOG_FACILITY=%d\nSYSLOG_IDENTIFIER=execd\n", severity, facilityDaemon)
	if job, task := jobOf(text); job != "" {
		b = fmt.Appendf(b, "PADDOCK_JOB=%s\n", job)
		if task != "" {
			b = fmt.Appendf(b, "PADDOCK_TASK=%s\n", task)
		}
	}
	return fmt.Appendf(b, "MESSAGE=%s\n", text)
}

// jobOf returns the numbers in front of a line about a job, "job 42.1: ".
func jobOf(text string) (job, task string) {
	rest, ok := strings.CutPrefix(text, "job ")
	name, _, ok2 := strings.Cut(rest, ":")
	job, task, _ = strings.Cut(name, ".")
	for _, word := range []string{job, task} {
		if _, err := strconv.ParseUint(word, 10, 63); err != nil && word != "" {
			ok = false
		}
	}
	if !ok || !ok2 || job == "" {
		return "", ""
	}
	return job, task
}
