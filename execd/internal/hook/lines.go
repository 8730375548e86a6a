package hook

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// These bound what a hook can do to the log.
const (
	maxLine   = 1 << 10 // bytes of a line
	keepTail  = 4 << 10 // bytes of the end that are kept for the result
	lineBurst = 50      // lines at once
	lineEvery = 100 * time.Millisecond
	maxLines  = 1000 // lines of one run: users write the scripts of jobs, which may run for an hour
)

// lines passes the standard error of one run of a hook on to the log, line by line: at
// most lineBurst at once, then one in lineEvery, and maxLines in all, unless the run stays.
// One goroutine at a time may use it.
type lines struct {
	log   *slog.Logger
	label string
	hook  string
	stays bool // it is of a hook server, which may write for weeks: any number of lines in all
	pid   atomic.Int64

	last    []byte // the last bytes of all
	line    []byte // the line that has begun, at most maxLine
	cut     bool   // the line was longer
	quota   time.Duration
	since   time.Time
	said    int
	dropped int
}

// add takes bytes that were read.
func (l *lines) add(b []byte) {
	l.last = append(l.last, b...)
	if n := len(l.last) - keepTail; n > 0 {
		l.last = append(l.last[:0], l.last[n:]...)
	}
	for len(b) > 0 {
		part, rest, whole := bytes.Cut(b, []byte{'\n'})
		room := maxLine - len(l.line)
		l.cut = l.cut || len(part) > room
		l.line = append(l.line, part[:min(len(part), room)]...)
		if whole {
			l.say()
		}
		b = rest
	}
}

// say logs the line that is complete.
func (l *lines) say() {
	line, cut := l.line, l.cut
	l.line, l.cut = l.line[:0], false
	if len(line) == 0 || !l.may() {
		return
	}
	if l.stays {
		l.sayDropped()
	}
	more := ""
	if cut {
		more = " (cut)"
	}
	l.log.Info(fmt.Sprintf("%s: hook %s: stderr: pid=%d text=%q%s", l.label, l.hook, l.pid.Load(), line, more))
}

// may reports whether one more line may be logged now.
func (l *lines) may() bool {
	now := time.Now()
	if l.since.IsZero() {
		l.quota = lineBurst * lineEvery
	} else {
		l.quota = min(l.quota+now.Sub(l.since), lineBurst*lineEvery)
	}
	l.since = now
	if l.quota < lineEvery || l.said >= maxLines && !l.stays {
		l.dropped++
		return false
	}
	l.said++
	l.quota -= lineEvery
	return true
}

// end logs a last line without a newline, and the number of lines that were not logged.
func (l *lines) end() {
	if len(l.line) > 0 {
		l.say()
	}
	l.sayDropped()
}

// sayDropped logs how many lines were not logged since it was said last.
func (l *lines) sayDropped() {
	if l.dropped > 0 {
		l.log.Warn(fmt.Sprintf("%s: hook %s: stderr: pid=%d lines=%d not logged: too many", l.label, l.hook, l.pid.Load(), l.dropped))
		l.dropped = 0
	}
}

func (l *lines) tail() string { return string(l.last) }
