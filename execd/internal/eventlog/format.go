package eventlog

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"paddock/execd/api"
)

// Form is how records are written.
type Form int

// The forms.
const (
	Text Form = iota // for people, and for most programs
	XML              // an element c each
	JSON             // an object each, on a line of its own
)

// Times is how a record says when. The zero value is MM/DD hh:mm:ss of the
// host's time zone, which has no year.
type Times struct {
	ISO    bool // YYYY-MM-DD in the place of MM/DD; records that are ads always have it
	Millis bool // .mmm behind the seconds
	UTC    bool // in UTC, with a Z behind it
}

// format returns a time in the form.
func (o Times) format(t time.Time, date string) string {
	layout := date + "15:04:05"
	if o.Millis {
		layout += ".000"
	}
	if o.UTC {
		return t.UTC().Format(layout + "Z")
	}
	return t.Format(layout)
}

// MaxRecord is the most that a record takes, in bytes.
const MaxRecord = 1 << 20

// maxText bounds each text that is written, in bytes, and maxLines the number of lines
// of a kind.
const (
	maxText  = 4 << 10
	maxLines = 32
)

// Append appends a record.
func Append(b []byte, e Event, form Form, times Times) []byte {
	switch form {
	case XML:
		return appendXML(b, e, times)
	case JSON:
		return appendJSON(b, e, times)
	}
	date := "01/02 "
	if times.ISO {
		date = "2006-01-02 "
	}
	l := lines{b: b, time: e.Time}
	l.b = fmt.Appendf(l.b, "%03d (%03d.%03d.%03d) %s ", e.Body.number(), max(e.Cluster, 0), max(e.Proc, 0), 0, times.format(e.Time, date))
	e.Body.text(&l)
	if e.ID != "" {
		l.line("EventId: %s", e.ID)
	}
	return append(l.b, "...\n"...)
}

// lines is a record of text as it grows. Each line but the first begins with a
// tab, and no text from outside can begin a line. So no text can end the record, or
// begin another.
type lines struct {
	b    []byte
	time time.Time // of the event
}

func (l *lines) head(format string, args ...any) {
	l.b = append(fmt.Appendf(l.b, format, printable(args)...), '\n')
}

func (l *lines) line(format string, args ...any) {
	l.b = append(l.b, '\t')
	l.head(format, args...)
}

func (l *lines) blank() { l.b = append(l.b, '\n') }

// usage appends the lines of processor time. There is no submit host beside this one,
// so that local usage is 0.
func (l *lines) usage(of string, c CPU) {
	l.line("\t%s  -  %s Remote Usage", c.String(), of)
	l.line("\t%s  -  %s Local Usage", CPU{}.String(), of)
}

func (l *lines) bytes(of string, sent, received int64) {
	l.line("%d  -  %s Bytes Sent By Job", sent, of)
	l.line("%d  -  %s Bytes Received By Job", received, of)
}

func (l *lines) resources(resources []Resource) {
	if len(resources) == 0 {
		return
	}
	l.line("Partitionable Resources :    Usage  Request Allocated ")
	for _, r := range resources[:min(len(resources), maxLines)] {
		name := r.Name
		if r.Unit != "" {
			name += " (" + r.Unit + ")"
		}
		l.line("   %-20s :%9s%9s%10s ", name, quantity(r.Usage), quantity(r.Request), quantity(r.Allocated))
	}
}

// quantity formats a number of the table; one that is not known is empty.
func quantity(v float64) string {
	switch {
	case !(v >= 0):
		return ""
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// printable makes every text among the arguments fit on a line.
func printable(args []any) []any {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = oneLine(s)
		}
	}
	return args
}

// oneLine returns a text without control characters, which would end the line or act
// on a terminal.
func oneLine(s string) string {
	s = strings.TrimRight(s, "\r\n")
	if len(s) > maxText {
		for s = s[:maxText]; len(s) > 0 && !utf8.RuneStart(s[len(s)-1]); {
			s = s[:len(s)-1]
		}
		if len(s) > 0 {
			s = s[:len(s)-1] + "..."
		}
	}
	return strings.Map(func(c rune) rune {
		if !api.IsVisible(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "?"))
}

// all returns the attributes of a record that is an ad.
func all(e Event, times Times) []attr {
	list := []attr{
		{"MyType", e.Body.typeName()},
		{"EventTypeNumber", int(e.Body.number())},
		{"EventTime", times.format(e.Time, "2006-01-02T")},
		{"Cluster", e.Cluster},
		{"Proc", e.Proc},
		{"Subproc", 0},
	}
	list = append(list, e.Body.attrs()...)
	return optional(list, "EventId", e.ID)
}

func appendXML(b []byte, e Event, times Times) []byte {
	var text strings.Builder
	text.WriteString("<c>\n")
	for _, a := range all(e, times) {
		text.WriteString(`    <a n="` + escaped(oneLine(a.name)) + `">`)
		switch v := a.value.(type) {
		case string:
			text.WriteString("<s>" + escaped(long(v)) + "</s>")
		case int:
			fmt.Fprintf(&text, "<i>%d</i>", v)
		case float64:
			text.WriteString("<r>" + strconv.FormatFloat(v, 'E', 15, 64) + "</r>")
		case bool:
			fmt.Fprintf(&text, `<b v="%s"/>`, strconv.FormatBool(v)[:1])
		}
		text.WriteString("</a>\n")
	}
	text.WriteString("</c>\n")
	return append(b, text.String()...)
}

// long returns a text of several lines, each of them as oneLine returns it.
func long(s string) string {
	var kept []string
	for line := range strings.Lines(s) {
		if len(kept) == maxLines {
			break
		}
		kept = append(kept, oneLine(line))
	}
	return strings.Join(kept, "\n")
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

func appendJSON(b []byte, e Event, times Times) []byte {
	b = append(b, '{')
	for i, a := range all(e, times) {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, quoted(oneLine(a.name))...), ": "...)
		switch v := a.value.(type) {
		case string:
			b = append(b, quoted(long(v))...)
		case int:
			b = strconv.AppendInt(b, int64(v), 10)
		case float64:
			b = append(b, decimal(v)...)
		case bool:
			b = strconv.AppendBool(b, v)
		}
	}
	return append(b, "}\n"...)
}

// decimal formats a number so that readers take it for a real one.
func decimal(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "null"
	}
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // strings have no error
	}
	return string(b)
}

// ParseOptions reads how logs are written as DEFAULT_USERLOG_FORMAT_OPTIONS has
// it: words, separated by spaces or commas, in either case. LEGACY stands for
// the zero values. Of several forms the last one counts.
func ParseOptions(text string) (Form, Times, error) {
	var form Form
	var times Times
	for word := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ',' || unicode.IsSpace(c) }) {
		switch strings.ToUpper(word) {
		case "LEGACY":
			form, times = Text, Times{}
		case "XML":
			form = XML
		case "JSON":
			form = JSON
		case "ISO_DATE":
			times.ISO = true
		case "SUB_SECOND":
			times.Millis = true
		case "UTC":
			times.UTC = true
		default:
			return Text, Times{}, fmt.Errorf("cannot write event logs as %q: want XML, JSON, ISO_DATE, SUB_SECOND, UTC or LEGACY", word)
		}
	}
	return form, times, nil
}
