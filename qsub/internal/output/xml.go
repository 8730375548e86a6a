package output

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"paddock/execd/api"
)

// schemas is the address of Grid Engine's XML schemas. Programs know it as a
// name; nobody fetches it.
const schemas = "http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/"

// XML writes the XML of qstat and qhost, with the line breaks of Grid Engine,
// since some scripts read it line by line.
type XML struct {
	out   *bufio.Writer
	quote byte     // around values of attributes
	path  []string // the elements that are open
}

// NewXML begins a document with its root element. The schema may be empty.
func NewXML(out *bufio.Writer, quote byte, root, schema string) *XML {
	x := &XML{out: out, quote: quote}
	fmt.Fprintln(out, "<?xml version='1.0'?>")
	if schema == "" {
		x.Open(root)
	} else {
		x.Open(root, "xmlns:xsd", schemas+schema)
	}
	return x
}

// begin writes a start tag.
func (x *XML) begin(name string, attributes []string) {
	fmt.Fprintf(x.out, "%*s<%s", 2*len(x.path), "", name)
	for i := 0; i+1 < len(attributes); i += 2 {
		fmt.Fprintf(x.out, " %s=%c%s%c", attributes[i], x.quote, xmlEscape(attributes[i+1]), x.quote)
	}
	fmt.Fprint(x.out, ">")
}

// Open begins an element that has others in it. Attributes are names, each
// followed by its value.
func (x *XML) Open(name string, attributes ...string) {
	x.begin(name, attributes)
	fmt.Fprintln(x.out)
	x.path = append(x.path, name)
}

// End ends the element that was opened last.
func (x *XML) End() {
	last := len(x.path) - 1
	name := x.path[last]
	x.path = x.path[:last]
	fmt.Fprintf(x.out, "%*s</%s>\n", 2*last, "", name)
}

// Text writes an element with a value.
func (x *XML) Text(name, value string, attributes ...string) {
	x.begin(name, attributes)
	fmt.Fprintf(x.out, "%s</%s>\n", xmlEscape(value), name)
}

// Has writes an element with a value, unless the value is empty.
func (x *XML) Has(name, value string) {
	if value != "" {
		x.Text(name, value)
	}
}

// Number writes a whole number.
func (x *XML) Number(name string, n int) { x.Text(name, strconv.Itoa(n)) }

// Boolean writes true or false.
func (x *XML) Boolean(name string, b bool) { x.Text(name, strconv.FormatBool(b)) }

// Real writes a number with decimals.
func (x *XML) Real(name string, n float64, decimals int) {
	x.Text(name, strconv.FormatFloat(n, 'f', decimals, 64))
}

// Seconds writes a time as seconds since 1970; none is 0.
func (x *XML) Seconds(name string, t time.Time) {
	n := int64(0)
	if !t.IsZero() {
		n = t.Unix()
	}
	x.Text(name, strconv.FormatInt(n, 10))
}

// Stamp writes a time as qstat's listings have it.
func (x *XML) Stamp(name string, t time.Time) {
	x.Text(name, t.Local().Format("2006-01-02T15:04:05"))
}

// xmlEscape returns text as it may stand in an element or attribute. What XML
// cannot contain, most control characters and bytes that are not UTF-8, is
// escaped as api.Visible does. Characters that a terminal would obey or a
// parser would change become references, which a parser turns back.
func xmlEscape(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '"':
			b.WriteString("&quot;")
		case r == '\'':
			b.WriteString("&apos;")
		case r == '\t', r == '\n', r == '\r', r >= 0x7f && !api.IsVisible(r):
			fmt.Fprintf(&b, "&#%d;", r)
		case r == 0xfffe, r == 0xffff:
			fmt.Fprintf(&b, `\u%x`, r)
		case r < ' ':
			b.WriteString(api.Visible(text[:n]))
		case r == utf8.RuneError && n == 1:
			b.WriteString(api.Visible(text[:n]))
		default:
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}
