package spool

import (
	"bytes"
	"errors"
	"strconv"
)

// decimal parses the one way in which this package writes a number: digits,
// no sign, no leading zero. What reads differently was not written by it.
func decimal(s string, limit uint64) (uint64, bool) {
	if s == "" || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	var n uint64
	for i := 0; i < len(s); i++ {
		c := s[i] - '0'
		if c > 9 || n > limit/10 {
			return 0, false
		}
		n = n*10 + uint64(c)
		if n > limit {
			return 0, false
		}
	}
	return n, true
}

const maxInt = 1<<63 - 1

// maxID bounds process, group, job and task numbers.
const maxID = 1<<31 - 1

// cutLine splits off the first line. ok is false when no newline ends it: a
// line without one is torn, for every writer ends its lines.
func cutLine(b []byte) (line, rest []byte, ok bool) {
	return bytes.Cut(b, []byte{'\n'})
}

// ParseNumber parses the content of pid, job_pid, addgrpid and osjobid: one
// number and a newline. A number without newline is refused, since it may be
// the first half of another one.
func ParseNumber(b []byte) (int, error) {
	line, rest, ok := cutLine(b)
	if !ok || len(rest) > 0 {
		return 0, syntax("number", 0, "want one line, got "+short(b))
	}
	n, ok := decimal(string(line), maxInt)
	if !ok {
		return 0, syntax("number", 0, "want a decimal number, got "+short(line))
	}
	return int(n), nil
}

// AppendNumber appends the content of a file for ParseNumber.
func AppendNumber(b []byte, n int) []byte {
	return append(strconv.AppendInt(b, int64(n), 10), '\n')
}

// ErrNoStatus means that the shepherd has not written exit_status yet: it is
// at work, or it died.
var ErrNoStatus = errors.New("exit_status is missing or empty")

// ParseExitStatus parses exit_status: the state of the first failure, which is
// the one that counts, and the number of lines. A torn first line is none.
func ParseExitStatus(b []byte) (first, lines int, err error) {
	line, _, ok := cutLine(b)
	if !ok {
		return 0, 0, ErrNoStatus
	}
	n, ok := decimal(string(line), maxID)
	if !ok {
		return 0, 0, syntax(FileExitStatus, 1, "want a decimal number, got "+short(line))
	}
	return int(n), bytes.Count(b, []byte{'\n'}), nil
}

// AppendExitStatus appends one line of exit_status.
func AppendExitStatus(b []byte, n int) []byte { return AppendNumber(b, n) }
