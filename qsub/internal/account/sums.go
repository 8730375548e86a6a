package account

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/qsub/internal/command"
)

// sumColumn is an option by which qacct sums up the lines with the same value
// of a field.
type sumColumn struct {
	option, heading string
	field           int
	numeric         bool
}

// columnHost is the index of the host's column. A pattern of -q shows that
// column, too.
const columnHost = 0

// sumColumns are the columns in Grid Engine's order. Its sums are sorted in the
// same order, except for the account.
var sumColumns = [...]sumColumn{
	columnHost: {option: "-h", heading: "HOST", field: accounting.FieldHostname},
	{option: "-q", heading: "CLUSTER QUEUE", field: accounting.FieldQName},
	{option: "-g", heading: "GROUP", field: accounting.FieldGroup},
	{option: "-o", heading: "OWNER", field: accounting.FieldOwner},
	{option: "-P", heading: "PROJECT", field: accounting.FieldProject},
	{option: "-D", heading: "DEPARTMENT", field: accounting.FieldDepartment},
	{option: "-pe", heading: "PE", field: accounting.FieldGrantedPE},
	{option: "-slots", heading: "SLOTS", field: accounting.FieldSlots, numeric: true},
	{option: "-ar", heading: "AR", field: accounting.FieldARID, numeric: true},
	{option: "-A", heading: "ACCOUNT", field: accounting.FieldAccount},
}

// columnChoice says whether a column is shown and which lines it wants.
type columnChoice struct {
	shown   bool
	given   bool   // only lines with this value
	value   string // the value as the command line spells it
	number  int    // of a numeric column
	pattern *queuePattern
}

// sumFields are the fields that are summed up, in the order of Grid Engine's columns.
var sumFields = [...]int{
	accounting.FieldRuWallclock, accounting.FieldRuUTime, accounting.FieldRuSTime, accounting.FieldCPU,
	accounting.FieldMem, accounting.FieldIO, accounting.FieldIOW,
}

// usage is the values that are summed up, in the order of sumFields.
type usage [len(sumFields)]float64

// partSums are lines of a part of the file that are to be summed up. They are
// kept one by one: a sum of partial sums would differ from that of Grid Engine
// in its last digits.
type partSums struct {
	numbers map[string]int // index of a key in keys
	keys    []string       // the values of the columns without a given value, each followed by a colon
	lines   []keyedUsage
	scratch []byte
}

type keyedUsage struct {
	key int
	usage
}

// add adds a line.
func (p *partSums) add(columns *[len(sumColumns)]columnChoice, f *accounting.Fields) error {
	var u keyedUsage
	for i, field := range sumFields {
		var err error
		if u.usage[i], err = f.Number(field); err != nil {
			return err
		}
	}
	u.usage[0] = math.Trunc(u.usage[0]) // Grid Engine has it as a whole number
	p.scratch = p.scratch[:0]
	for i := range columns {
		if !columns[i].shown || columns[i].given {
			continue
		}
		text := f.Text(sumColumns[i].field)
		if sumColumns[i].numeric {
			n, err := f.Number(sumColumns[i].field)
			if err != nil {
				return err
			}
			text = strconv.AppendInt(nil, int64(n), 10)
		}
		p.scratch = append(append(p.scratch, text...), ':')
	}
	var ok bool
	if u.key, ok = p.numbers[string(p.scratch)]; !ok {
		if p.numbers == nil {
			p.numbers = map[string]int{}
		}
		u.key = len(p.keys)
		p.keys = append(p.keys, string(p.scratch))
		p.numbers[p.keys[u.key]] = u.key
	}
	p.lines = append(p.lines, u)
	return nil
}

// sums are the sums of a file.
type sums struct {
	columns *[len(sumColumns)]columnChoice
	rows    map[string]*sumRow
	order   []*sumRow // in the order of the file
}

// sumRow is a line of the table.
type sumRow struct {
	values [len(sumColumns)]string // of the columns that are shown
	usage
}

func newSums(columns *[len(sumColumns)]columnChoice) *sums {
	s := &sums{columns: columns, rows: map[string]*sumRow{}}
	return s
}

// row returns the row of a key.
func (s *sums) row(key string) *sumRow {
	if r := s.rows[key]; r != nil {
		return r
	}
	r := &sumRow{}
	s.rows[key] = r
	s.order = append(s.order, r)
	for i, c := range s.columns {
		switch {
		case c.given:
			r.values[i] = c.value
		case c.shown:
			r.values[i], key, _ = strings.Cut(key, ":")
		}
	}
	return r
}

// merge adds the lines of a part of the file.
func (s *sums) merge(p *partSums) {
	rows := make([]*sumRow, len(p.keys))
	for i, key := range p.keys {
		rows[i] = s.row(key)
	}
	for i := range p.lines {
		r := rows[p.lines[i].key]
		for n, v := range p.lines[i].usage {
			r.usage[n] += v
		}
	}
}

// sorted returns the rows in Grid Engine's order. Accounts are in reverse order
// of the file.
func (s *sums) sorted() []*sumRow {
	list := slices.Clone(s.order)
	slices.Reverse(list)
	slices.SortStableFunc(list, func(a, b *sumRow) int {
		for i, c := range sumColumns {
			if c.field == accounting.FieldAccount {
				continue
			}
			order := strings.Compare(a.values[i], b.values[i])
			if c.numeric {
				x, _ := strconv.Atoi(a.values[i])
				y, _ := strconv.Atoi(b.values[i])
				order = cmp.Compare(x, y)
			}
			if order != 0 {
				return order
			}
		}
		return 0
	})
	return list
}

// write prints the table.
func (s *sums) write(w *bufio.Writer) {
	rows := s.sorted()
	heading := fmt.Sprintf("%13s %13s %13s %13s %18s %18s %18s", "WALLCLOCK", "UTIME", "STIME", "CPU", "MEMORY", "IO", "IOW")
	var names strings.Builder
	var widths [len(sumColumns)]int
	for i, c := range s.columns {
		if !c.shown {
			continue
		}
		widths[i] = s.width(i, rows)
		fmt.Fprintf(&names, "%-*s", widths[i], sumColumns[i].heading)
	}
	if names.Len() == 0 {
		fmt.Fprintln(w, "Total System Usage")
	}
	fmt.Fprintf(w, "%s%s\n%s\n", names.String(), heading, strings.Repeat("=", names.Len()+len(heading)))
	wallclock := 0.0
	for _, r := range rows {
		wallclock += r.usage[0]
	}
	if int64(wallclock) == 0 {
		return // Grid Engine shows no rows when the sum of the wallclock times is 0
	}
	for _, r := range rows {
		for i, c := range s.columns {
			switch {
			case !c.shown:
			case sumColumns[i].numeric:
				fmt.Fprintf(w, "%-*s", widths[i], fmt.Sprintf("%5s", r.values[i]))
			default:
				// The padding counts bytes, as in Grid Engine.
				text := api.Visible(r.values[i])
				fmt.Fprint(w, text, strings.Repeat(" ", max(0, widths[i]-len(text))))
			}
		}
		u := &r.usage
		fmt.Fprintf(w, "%13.0f %13.3f %13.3f %13.3f %18.3f %18.3f %18.3f\n", u[0], u[1], u[2], u[3], u[4], u[5], u[6])
	}
}

// width returns the width of a column with the space behind it. A number has
// five places, and no space behind them when the table has at most one row.
func (s *sums) width(i int, rows []*sumRow) int {
	const places = 5
	width := len(sumColumns[i].heading)
	if sumColumns[i].numeric {
		one := !slices.ContainsFunc(s.columns[:], func(c columnChoice) bool { return c.shown && !c.given })
		if one || len(rows) == 0 {
			return places
		}
		width = places
	}
	if s.columns[i].given {
		width = max(width, len(api.Visible(s.columns[i].value)))
	}
	for _, r := range rows {
		width = max(width, len(api.Visible(r.values[i])))
	}
	return width + 1
}

// writeSums prints a list with an object for each row.
func writeSums(inv *command.Invocation, total *sums) error {
	rows := total.sorted()
	for i, r := range rows {
		var b bytes.Buffer
		member := func(field int, value any) error {
			text, err := json.Marshal(value)
			fmt.Fprintf(&b, `,"%s":%s`, accounting.Names[field], api.VisibleJSON(text))
			return err
		}
		for i, c := range total.columns {
			if !c.shown {
				continue
			}
			var value any = r.values[i]
			if sumColumns[i].numeric {
				value, _ = strconv.Atoi(r.values[i])
			}
			if err := member(sumColumns[i].field, value); err != nil {
				return err
			}
		}
		for i, field := range sumFields {
			if err := member(field, r.usage[i]); err != nil {
				return err
			}
		}
		before := nextInList
		if i == 0 {
			before = "[\n"
		}
		fmt.Fprintf(inv.Out, "%s{%s}", before, b.Bytes()[1:])
	}
	endList(inv, len(rows) > 0)
	return nil
}
