package api

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// appendJob appends a job as package json writes it, in a fraction of the time:
// writing and reading a long list is most of the work of qstat.
func appendJob(b []byte, j *JobStatus) ([]byte, error) {
	a := jobWriter{b: b}
	a.number(`{"job":`, j.Job)
	a.real(`,"priority":`, j.Priority)
	a.text(`,"name":`, j.Name)
	a.text(`,"owner":`, j.Owner)
	a.text(`,"state":`, j.State)
	a.time(`,"time":`, j.Time)
	a.has(`,"queue":`, j.Queue)
	a.number(`,"slots":`, j.Slots)
	a.has(`,"tasks":`, j.Tasks)
	a.has(`,"reason":`, j.Reason)
	a.has(`,"holds":`, j.Holds)
	if len(j.Granted) > 0 {
		a.any(`,"granted":`, j.Granted)
	}
	if j.More != nil {
		a.any(`,"more":`, j.More)
	}
	return append(a.b, '}'), a.err
}

// jobWriter appends fields, each after its key.
type jobWriter struct {
	b   []byte
	err error
}

func (a *jobWriter) number(key string, n int) {
	a.b = strconv.AppendInt(append(a.b, key...), int64(n), 10)
}

func (a *jobWriter) real(key string, n float64) {
	if abs := math.Abs(n); abs != 0 && !(abs >= 1e-6 && abs < 1e21) {
		a.any(key, n)
		return
	}
	a.b = strconv.AppendFloat(append(a.b, key...), n, 'f', -1, 64)
}

func (a *jobWriter) text(key, text string) {
	for i := range len(text) {
		if !isPlain(text[i]) || text[i] == '<' || text[i] == '>' || text[i] == '&' {
			a.any(key, text)
			return
		}
	}
	a.b = append(append(append(append(a.b, key...), '"'), text...), '"')
}

func (a *jobWriter) has(key, text string) {
	if text != "" {
		a.text(key, text)
	}
}

func (a *jobWriter) time(key string, t time.Time) {
	b := append(append(a.b, key...), '"')
	b, err := t.AppendText(b)
	if err != nil {
		a.any(key, t) // for its error
		return
	}
	a.b = append(b, '"')
}

func (a *jobWriter) any(key string, value any) {
	text, err := json.Marshal(value)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.b = append(append(a.b, key...), text...)
}

// isPlain reports whether a byte stands for itself in a JSON string.
func isPlain(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' }

// jobReader reads jobs as appendJob writes them. Any other form is left to
// package json.
type jobReader struct{ job JobStatus }

// read reads a job, which is valid until the next call.
func (d *jobReader) read(line []byte) (*JobStatus, error) {
	last := d.job
	if d.job = (JobStatus{}); d.plain(line, &last) {
		return &d.job, nil
	}
	d.job = JobStatus{}
	return &d.job, json.Unmarshal(line, &d.job)
}

// plain reads a job in the form of appendJob, and reports whether it could; if
// not, it may have set some fields. Strings that equal those of the last job
// are not allocated again.
func (d *jobReader) plain(line []byte, last *JobStatus) bool {
	j, l := &d.job, jobFields{rest: line, ok: true}
	j.Job = l.number(`{"job":`)
	j.Priority = l.real(`,"priority":`)
	j.Name = either(last.Name, l.text(`,"name":`))
	j.Owner = either(last.Owner, l.text(`,"owner":`))
	j.State = either(last.State, l.text(`,"state":`))
	if when := l.text(`,"time":`); l.ok {
		l.ok = j.Time.UnmarshalText(when) == nil
	}
	j.Queue = either(last.Queue, l.has(`,"queue":`))
	j.Slots = l.number(`,"slots":`)
	j.Tasks = either(last.Tasks, l.has(`,"tasks":`))
	j.Reason = either(last.Reason, l.has(`,"reason":`))
	j.Holds = either(last.Holds, l.has(`,"holds":`))
	if l.next(`,"more":`) {
		more, ok := bytes.CutSuffix(l.rest, []byte("}"))
		return ok && json.Unmarshal(more, &j.More) == nil
	}
	return l.ok && string(l.rest) == "}"
}

// either returns text as a string: known itself if they are equal.
func either(known string, text []byte) string {
	if string(text) == known {
		return known
	}
	return string(text)
}

// jobFields are the fields of a job that are still to be read. After the first
// mistake nothing more is read.
type jobFields struct {
	rest []byte
	ok   bool
}

// next reads a key if it comes next.
func (l *jobFields) next(key string) bool {
	if !l.ok || !bytes.HasPrefix(l.rest, []byte(key)) {
		return false
	}
	l.rest = l.rest[len(key):]
	return true
}

// has reads a text if its key comes next.
func (l *jobFields) has(key string) []byte {
	if !bytes.HasPrefix(l.rest, []byte(key)) {
		return nil
	}
	return l.text(key)
}

// text reads a text of plain bytes.
func (l *jobFields) text(key string) []byte {
	if !l.next(key) || !l.next(`"`) {
		l.ok = false
		return nil
	}
	n := 0
	for n < len(l.rest) && isPlain(l.rest[n]) {
		n++
	}
	text := l.rest[:n]
	l.rest = l.rest[n:]
	l.ok = l.next(`"`)
	return text
}

// number reads an integer.
func (l *jobFields) number(key string) int {
	if !l.next(key) {
		l.ok = false
		return 0
	}
	n, err := strconv.Atoi(string(l.digits()))
	l.ok = l.ok && err == nil
	return n
}

// real reads a number without an exponent.
func (l *jobFields) real(key string) float64 {
	if !l.next(key) {
		l.ok = false
		return 0
	}
	whole := l.rest
	size := len(l.digits())
	if l.next(".") {
		n := 0
		for n < len(l.rest) && isDigit(l.rest[n]) {
			n++
		}
		l.ok = n > 0
		l.rest = l.rest[n:]
		size += 1 + n
	}
	if !l.ok {
		return 0
	}
	n, err := strconv.ParseFloat(string(whole[:size]), 64)
	l.ok = err == nil
	return n
}

// digits reads an integer, which may have a sign and has no leading zeros.
func (l *jobFields) digits() []byte {
	from := 0
	if len(l.rest) > 0 && l.rest[0] == '-' {
		from = 1
	}
	n := from
	for n < len(l.rest) && isDigit(l.rest[n]) {
		n++
	}
	l.ok = n > from && (l.rest[from] != '0' || n == from+1)
	text := l.rest[:n]
	l.rest = l.rest[n:]
	return text
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
