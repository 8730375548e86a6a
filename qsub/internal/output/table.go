// Package output formats what commands print: columns and tables, colours on a
// terminal, and XML as Grid Engine writes it. It knows nothing of commands, and
// every other package of qsub may import it.
package output

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"

	"paddock/execd/api"
)

// Elapsed returns a duration in a short form: 9s, 4m05s, 2h10m, 3d04h.
func Elapsed(d time.Duration) string {
	n := int(d.Seconds())
	switch {
	case n < 60:
		return fmt.Sprintf("%ds", max(n, 0))
	case n < 3600:
		return fmt.Sprintf("%dm%02ds", n/60, n%60)
	case n < 86400:
		return fmt.Sprintf("%dh%02dm", n/3600, n/60%60)
	}
	return fmt.Sprintf("%dd%02dh", n/86400, n/3600%24)
}

// Width returns how many cells of a terminal a text has.
func Width(text string) int {
	n := 0
	for _, r := range text {
		n += cells(r)
	}
	return n
}

// Cut returns as much of a text as has room in so many cells.
func Cut(text string, most int) string {
	for i, r := range text {
		if most -= cells(r); most < 0 {
			return text[:i]
		}
	}
	return text
}

// cells returns how many cells a character has: two are those of East Asia, and none what
// is written over the one before it.
func cells(r rune) int {
	if r < firstMark {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// firstMark is the first character that may have another number of cells than one.
const firstMark = 0x300

// Column pads or cuts text to a width.
func Column(text string, most int) string {
	text = Cut(api.Visible(text), most)
	return text + strings.Repeat(" ", most-Width(text))
}

// longestCell bounds the width of a column, except the last one.
const longestCell = 20

// Table prints rows as columns; the first row has their headings. The columns
// with the headings in numbers are aligned to the right.
func Table(w io.Writer, rows [][]string, numbers ...string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], min(Width(api.Visible(cell)), longestCell))
		}
	}
	total := len(widths) - 1
	for _, w := range widths {
		total += w
	}
	last := len(widths) - 1
	for n, row := range rows {
		var text strings.Builder
		for i, cell := range row[:last] {
			if slices.Contains(numbers, rows[0][i]) {
				fmt.Fprintf(&text, "%*s ", widths[i], cell)
			} else {
				text.WriteString(Column(cell, widths[i]) + " ")
			}
		}
		fmt.Fprintln(w, strings.TrimRight(text.String()+api.Visible(row[last]), " "))
		if n == 0 {
			fmt.Fprintln(w, strings.Repeat("-", total))
		}
	}
}

// Scaled returns a number with three decimals and the largest of the units, each 1024
// times the one before it, in which it is at least 1.
func Scaled(n float64, units ...string) string {
	i := 0
	for i+1 < len(units) && (n >= 1024 || n <= -1024) {
		n /= 1024
		i++
	}
	return strconv.FormatFloat(n, 'f', 3, 64) + units[i]
}

// Date returns a time as qstat -j and qacct -j print it.
func Date(t time.Time) string { return t.Local().Format("Mon Jan _2 15:04:05 2006") }
