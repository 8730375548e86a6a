package spool

import (
	"bytes"
	"strconv"
	"time"
)

// A TraceLine is a line of trace or error.
type TraceLine struct {
	Time      time.Time // in the local zone, whole seconds
	EUID, PID int
	Text      string
}

// AppendTrace appends a line of trace or error, made of the texts:
//
//	MM/DD/YYYY HH:MM:SS [euid:pid]: text
//
// Control characters are made visible, so that one event is one line and no
// job can play with the terminal of whoever reads it.
func AppendTrace(b []byte, t time.Time, euid, pid int, text ...string) []byte {
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	b = appendPadded(b, int(month), 2)
	b = append(b, '/')
	b = appendPadded(b, day, 2)
	b = append(b, '/')
	b = appendPadded(b, year, 4)
	b = append(b, ' ')
	b = appendPadded(b, hour, 2)
	b = append(b, ':')
	b = appendPadded(b, minute, 2)
	b = append(b, ':')
	b = appendPadded(b, second, 2)
	b = append(b, " ["...)
	b = strconv.AppendInt(b, int64(euid), 10)
	b = append(b, ':')
	b = strconv.AppendInt(b, int64(pid), 10)
	b = append(b, "]: "...)
	for _, t := range text {
		b = appendVisible(b, t)
	}
	return append(b, '\n')
}

func appendPadded(b []byte, n, width int) []byte {
	for unit, i := 10, 1; i < width; unit, i = unit*10, i+1 {
		if n < unit {
			b = append(b, '0')
		}
	}
	return strconv.AppendInt(b, int64(n), 10)
}

func appendVisible(b []byte, text string) []byte {
	const hex = "0123456789abcdef"
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c < 0x20 && c != '\t' || c == 0x7f:
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}

// ParseTraceLine parses a line of trace or error, with or without its newline.
func ParseTraceLine(line []byte) (TraceLine, error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	bad := func() (TraceLine, error) {
		return TraceLine{}, syntax(FileTrace, 0, "want MM/DD/YYYY HH:MM:SS [euid:pid]: text, got "+short(line))
	}
	const stamp = "00/00/0000 00:00:00 ["
	if len(line) < len(stamp) || bytes.IndexByte(line, '\n') >= 0 {
		return bad()
	}
	for i := range len(stamp) {
		isDigit := '0' <= line[i] && line[i] <= '9'
		if stamp[i] == '0' && !isDigit || stamp[i] != '0' && line[i] != stamp[i] {
			return bad()
		}
	}
	num := func(from, to int) int {
		n := 0
		for _, c := range line[from:to] {
			n = n*10 + int(c-'0')
		}
		return n
	}
	month, day, year := num(0, 2), num(3, 5), num(6, 10)
	hour, minute, second := num(11, 13), num(14, 16), num(17, 19)
	t := time.Date(year, time.Month(month), day, hour, minute, second, 0, time.Local)
	// Date carries what is out of range over; a real stamp reads as it was.
	if int(t.Month()) != month || t.Day() != day || hour > 23 || minute > 59 || second > 59 {
		return bad()
	}
	ids, text, ok := bytes.Cut(line[len(stamp):], []byte("]: "))
	euid, pid, ok2 := bytes.Cut(ids, []byte{':'})
	e, ok3 := decimal(string(euid), 1<<32-1)
	p, ok4 := decimal(string(pid), maxID)
	if !ok || !ok2 || !ok3 || !ok4 {
		return bad()
	}
	return TraceLine{Time: t, EUID: int(e), PID: int(p), Text: string(text)}, nil
}

// ParseError returns the reasons in error without their stamps: the first,
// which is the one that counts, and the last. A line of unknown form, as other
// versions of Grid Engine write it, is a reason as it stands.
func ParseError(b []byte) (first, last string) {
	for len(b) > 0 {
		line, rest, _ := cutLine(b)
		b = rest
		if len(line) == 0 {
			continue
		}
		last = reason(line)
		if first == "" {
			first = last
		}
	}
	return first, last
}

func reason(line []byte) string {
	if t, err := ParseTraceLine(line); err == nil {
		return t.Text
	}
	// 2026-05-19 13:47:12.111258 [1730:4185611]: text
	if len(line) > 4 && '0' <= line[0] && line[0] <= '9' && line[4] == '-' {
		stamp, text, ok := bytes.Cut(line, []byte("]: "))
		if ok && bytes.LastIndexByte(stamp, '[') > 0 && len(stamp) < 64 {
			return string(text)
		}
	}
	return string(line)
}
