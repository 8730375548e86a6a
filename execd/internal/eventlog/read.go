package eventlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"paddock/classad"
)

// Record is an event that was read, of any number and in any form.
type Record struct {
	Number                 Number
	Cluster, Proc, Subproc int
	Time                   time.Time
	ID                     string // empty: it has none
	// Headline is the rest of the first line of a record of text, and Lines are those
	// below it without the tab in front.
	Headline string
	Lines    []string
	// Ad has the attributes of the other forms. A value that they cannot express is a
	// string.
	Ad *classad.Ad
}

// SyntaxError means that a part of a log is no record. The reader can go on behind it.
type SyntaxError struct {
	Line int // from 1, where the part begins
	Text string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Reader reads a log. All forms of records and of times may stand in it.
type Reader struct {
	// Now decides the year of times that have none: it is the latest with which they
	// are at most a day after Now. The zone of Now is that of times without one.
	Now time.Time

	in     *bufio.Reader
	line   int     // number of the line that was read last
	length int64   // of it, or of the part of a line at the end
	at     int64   // offset behind it
	behind int64   // offset behind the last record
	kept   *string // the line that keep gave back
}

// NewReader returns a reader of a log.
func NewReader(in io.Reader) *Reader {
	return &Reader{Now: time.Now(), in: bufio.NewReaderSize(in, 4<<10)}
}

// Next returns the next record. At the end it returns io.EOF, and
// io.ErrUnexpectedEOF where a record is not complete, which may be being written.
// The error is a *SyntaxError where there is something that is no record.
func (r *Reader) Next() (*Record, error) {
	rec, err := r.next()
	if _, bad := errors.AsType[*SyntaxError](err); bad || err == nil {
		r.behind = r.at
		if r.kept != nil {
			r.behind -= r.length
		}
	}
	return rec, err
}

func (r *Reader) next() (*Record, error) {
	line, err := r.readLine()
	for err == nil && (strings.TrimSpace(line) == "" || line == "...") {
		line, err = r.readLine()
	}
	if err != nil {
		return nil, err
	}
	first := r.line
	switch {
	case isHeader(line):
		return r.text(line)
	case strings.HasPrefix(line, "{"):
		return r.collect(line, "}", r.json)
	case strings.HasPrefix(line, "<c>"):
		return r.collect(line, "</c>", r.xml)
	}
	// The part ends where a record begins.
	for err == nil && !r.begins(line) {
		line, err = r.readLine()
	}
	if err == nil {
		r.keep(line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return nil, &SyntaxError{first, "not a record"}
}

// begins reports whether a line is the first of a record.
func (r *Reader) begins(line string) bool {
	return isHeader(line) || strings.HasPrefix(line, "{") || strings.HasPrefix(line, "<c>")
}

// keep gives a line back, which is read next.
func (r *Reader) keep(line string) { r.kept = &line }

// readLine returns a line without its end. A last line without an end is
// io.ErrUnexpectedEOF; of a line that is too long the rest is left out.
func (r *Reader) readLine() (string, error) {
	if r.kept != nil {
		line := *r.kept
		r.kept = nil
		return line, nil
	}
	var line []byte
	r.length = 0
	for {
		part, err := r.in.ReadSlice('\n')
		r.at += int64(len(part))
		r.length += int64(len(part))
		if len(line) < MaxRecord {
			line = append(line, part...)
		}
		switch {
		case err == nil:
			r.line++
			return strings.TrimSuffix(string(line), "\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return "", io.ErrUnexpectedEOF
		default:
			return "", err
		}
	}
}

// isHeader reports whether a line looks like the first one of a record of text.
func isHeader(line string) bool {
	return len(line) > 6 && digits(line[:3]) && line[3:5] == " (" && digits(line[5:6])
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// text reads a record of text, of which the first line was read.
func (r *Reader) text(head string) (*Record, error) {
	first := r.line
	rec, bad := r.header(head)
	size := len(head)
	for {
		line, err := r.readLine()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		size += len(line)
		switch {
		case line == "...":
			if bad != "" {
				return nil, &SyntaxError{first, bad}
			}
			return rec, nil
		case r.begins(line):
			// A crash has cut the other one off.
			r.keep(line)
			return nil, &SyntaxError{first, "a record without an end"}
		case size > MaxRecord:
			bad = "a record that is too long"
			continue
		}
		line = strings.TrimPrefix(line, "\t")
		if id, ok := strings.CutPrefix(line, "EventId: "); ok {
			rec.ID = id
			continue
		}
		rec.Lines = append(rec.Lines, line)
	}
}

// header parses the first line of a record. If bad is not empty it says what is wrong
// with the line, and the record is empty.
func (r *Reader) header(line string) (rec *Record, bad string) {
	rec = &Record{}
	number, rest, _ := strings.Cut(line, " ")
	n, err := strconv.Atoi(number)
	job, rest, ok := strings.Cut(strings.TrimPrefix(rest, "("), ") ")
	parts := strings.Split(job, ".")
	if err != nil || !ok || len(parts) != 3 {
		return rec, "not the first line of a record"
	}
	for i, to := range []*int{&rec.Cluster, &rec.Proc, &rec.Subproc} {
		if *to, err = strconv.Atoi(parts[i]); err != nil || !digits(parts[i]) {
			return rec, "not the number of a job: (" + oneLine(job) + ")"
		}
	}
	rec.Number = Number(n)
	date, rest, _ := strings.Cut(rest, " ")
	stamp := date
	if !strings.Contains(date, "T") {
		var clock string
		clock, rest, _ = strings.Cut(rest, " ")
		stamp += " " + clock
	}
	if rec.Time, err = r.time(stamp); err != nil {
		return rec, "not a time: " + oneLine(stamp)
	}
	rec.Headline = rest
	return rec, ""
}

// time reads a time in any of its forms.
func (r *Reader) time(text string) (time.Time, error) {
	zone := r.Now.Location()
	text, utc := strings.CutSuffix(text, "Z")
	if utc {
		zone = time.UTC
	}
	text = strings.Replace(text, "T", " ", 1)
	// A fraction of seconds is read though the layout has none.
	if t, err := time.ParseInLocation("2006-01-02 15:04:05", text, zone); err == nil {
		return t, nil
	}
	// Nine years in a row always have a 29th of February.
	limit := r.Now.Add(24 * time.Hour)
	err := errors.New("no such time")
	for year := limit.In(zone).Year(); year > limit.Year()-9; year-- {
		var t time.Time
		t, err = time.ParseInLocation("2006/01/02 15:04:05", fmt.Sprintf("%04d/%s", max(year, 0), text), zone)
		if err == nil && !t.After(limit) {
			return t, nil
		}
	}
	if err == nil {
		err = errors.New("no such time")
	}
	return time.Time{}, err
}

// collect reads the lines of a record up to one that ends it, and parses them.
func (r *Reader) collect(line, end string, parse func([]byte) (*Record, error)) (*Record, error) {
	first := r.line
	text := []byte(line)
	for complete := strings.HasSuffix(strings.TrimSpace(line), end); !complete; complete = strings.TrimSpace(line) == end {
		var err error
		if line, err = r.readLine(); errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		if r.begins(line) {
			r.keep(line)
			return nil, &SyntaxError{first, "a record without an end"}
		}
		if len(text) <= MaxRecord {
			text = append(append(text, '\n'), line...)
		}
	}
	if len(text) > MaxRecord {
		return nil, &SyntaxError{first, "a record that is too long"}
	}
	rec, err := parse(text)
	if err != nil {
		return nil, &SyntaxError{first, err.Error()}
	}
	return rec, nil
}

func (r *Reader) json(text []byte) (*Record, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	var attrs []classad.Attr
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("not an object: %w", err)
		}
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, fmt.Errorf("not an object: %w", err)
		}
		attrs = append(attrs, classad.Attr{Name: name.(string), Expr: jsonValue(v).Expr()})
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') {
		return nil, errors.New("not an object")
	}
	return r.ofAd(classad.New(attrs...))
}

// jsonValue returns a value of JSON. Objects and lists become strings.
func jsonValue(v any) classad.Value {
	switch v := v.(type) {
	case string:
		return classad.String(v)
	case bool:
		return classad.Bool(v)
	case json.Number:
		return number(v.String())
	case nil:
		return classad.Undefined()
	}
	text, err := json.Marshal(v)
	if err != nil {
		return classad.Undefined()
	}
	return classad.String(string(text))
}

// number returns an integer if the text is one, else a real number.
func number(text string) classad.Value {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return classad.Int(i)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return classad.Undefined()
	}
	return classad.Real(f)
}

func (r *Reader) xml(text []byte) (*Record, error) {
	var c struct {
		Attrs []struct {
			Name  string `xml:"n,attr"`
			Value struct {
				XMLName xml.Name
				V       string `xml:"v,attr"`
				Text    string `xml:",chardata"`
			} `xml:",any"`
		} `xml:"a"`
	}
	if err := xml.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("not an element: %w", err)
	}
	var attrs []classad.Attr
	for _, a := range c.Attrs {
		var v classad.Value
		switch a.Value.XMLName.Local {
		case "i", "r":
			v = number(strings.TrimSpace(a.Value.Text))
		case "b":
			v = classad.Bool(a.Value.V == "t")
		case "un":
			v = classad.Undefined()
		case "e":
			if e, err := classad.Parse(a.Value.Text); err == nil {
				attrs = append(attrs, classad.Attr{Name: a.Name, Expr: e})
				continue
			}
			v = classad.String(a.Value.Text)
		default:
			v = classad.String(a.Value.Text)
		}
		attrs = append(attrs, classad.Attr{Name: a.Name, Expr: v.Expr()})
	}
	return r.ofAd(classad.New(attrs...))
}

// ofAd returns the record of an ad.
func (r *Reader) ofAd(ad *classad.Ad) (*Record, error) {
	rec := &Record{Ad: ad}
	env := classad.Env{My: ad}
	n, ok := env.Attr("EventTypeNumber").Int()
	if !ok || n < 0 || n > 999 {
		return nil, errors.New("an ad without EventTypeNumber")
	}
	rec.Number = Number(n)
	for name, to := range map[string]*int{"Cluster": &rec.Cluster, "Proc": &rec.Proc, "Subproc": &rec.Subproc} {
		if i, ok := env.Attr(name).Int(); ok {
			*to = int(i)
		}
	}
	stamp, _ := env.Attr("EventTime").Str()
	var err error
	if rec.Time, err = r.time(stamp); err != nil {
		return nil, errors.New("not a time: " + oneLine(stamp))
	}
	rec.ID, _ = env.Attr("EventId").Str()
	return rec, nil
}
