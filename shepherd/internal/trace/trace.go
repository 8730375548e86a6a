// Package trace appends lines to the file trace of a job directory, in Grid
// Engine's format. What the shepherd forks writes to it as well, see package starter. Only
// packages of the shepherd import it.
package trace

import (
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// Log collects lines and appends them to trace in one write. Lines that
// cannot be written are lost: a trace never decides a job's fate.
type Log struct {
	fd     int
	buf    []byte
	detail bool
}

// New returns a log that appends to the descriptor fd; a negative one keeps
// the lines until SetFile.
func New(fd int) *Log {
	// A buffer that grew would leave a page or two of each size behind in every shepherd.
	return &Log{fd: fd, buf: make([]byte, 0, 1<<10)}
}

// SetFile sets the descriptor lines are appended to.
func (l *Log) SetFile(fd int) { l.fd = fd }

// SetDetail has lines of the detailed level added, too.
func (l *Log) SetDetail() { l.detail = true }

// Detailed reports whether they are: what they say is not to be found out for
// nothing.
func (l *Log) Detailed() bool { return l.detail }

// Detail adds a line of the detailed level.
func (l *Log) Detail(text string) {
	if l.detail {
		l.Line("detail: " + text)
	}
}

// Line adds a line made of the texts, stamped with this moment, euid and process.
func (l *Log) Line(text ...string) { l.LineOf(unix.Geteuid(), unix.Getpid(), text...) }

// LineOf adds a line in the name of another process.
func (l *Log) LineOf(euid, pid int, text ...string) {
	l.buf = spool.AppendTrace(l.buf, time.Now(), euid, pid, text...)
}

// Flush writes the lines collected so far.
func (l *Log) Flush() {
	if l.fd < 0 || len(l.buf) == 0 {
		return
	}
	for b := l.buf; len(b) > 0; {
		n, err := unix.Write(l.fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			break
		}
		b = b[n:]
	}
	l.buf = l.buf[:0]
}
