package accounting

import (
	"bytes"
	"fmt"
	"strconv"
)

// MinFields is the least number of fields of a record: those for advance
// reservations came later.
const MinFields = 42

// Fields is a line that was split in place. It accepts lines of other versions of Grid
// Engine, too, as their qacct does: at least MinFields fields, perhaps more than there
// are names, and numbers of any form. A missing field is empty or 0.
type Fields struct {
	line []byte
	ends [NumFields + 1]int // the last one is the reason
	n    int                // how many there are
}

// Split splits a line, with or without its newline. The fields are valid as
// long as the line is.
func (f *Fields) Split(line []byte) error {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	f.line, f.n = line, 0
	for i, c := range line {
		if c == ':' {
			if f.n < len(f.ends) {
				f.ends[f.n] = i
			}
			f.n++
		}
	}
	if f.n < len(f.ends) {
		f.ends[f.n] = len(line)
	}
	f.n++
	switch {
	case len(line) > MaxLine:
		return fmt.Errorf("accounting line is longer than %d bytes", MaxLine)
	case f.n < MinFields:
		return fmt.Errorf("accounting line has %d fields; want %d", f.n, NumFields)
	}
	return nil
}

// Text returns a field, counted from 0.
func (f *Fields) Text(n int) []byte {
	if n >= f.n || n > NumFields {
		return nil
	}
	begin := 0
	if n > 0 {
		begin = f.ends[n-1] + 1
	}
	return f.line[begin:f.ends[n]]
}

// Number returns a field that is a number.
func (f *Fields) Number(n int) (float64, error) {
	if n >= f.n {
		return 0, nil
	}
	v, ok := number(f.Text(n))
	if !ok {
		return 0, fmt.Errorf("accounting line has a bad %s %q", Names[n], clip(f.Text(n)))
	}
	return v, nil
}

// Record returns the whole line.
func (f *Fields) Record() (Record, error) {
	var r Record
	for i, to := range r.fields() {
		if to, ok := to.(*string); ok {
			*to = string(f.Text(i))
			continue
		}
		v, err := f.Number(i)
		if err != nil {
			return Record{}, err
		}
		whole := int64(v)
		if n, err := strconv.ParseInt(string(f.Text(i)), 10, 64); err == nil {
			whole = n // a float64 does not hold all of them
		}
		switch to := to.(type) {
		case *int:
			*to = int(whole)
		case *int64:
			*to = whole
		case *float64:
			*to = v
		}
	}
	// In a longer line the fields of another version follow.
	if f.n == NumFields+1 {
		r.Reason = unescape(f.Text(NumFields))
	}
	return r, nil
}

// number reads a decimal number. It has to be fast: it is called for some
// fields of every line of a file that may have millions.
func number(word []byte) (float64, bool) {
	const exact = 1 << 53 // up to here whole numbers are exact
	digits, negative := bytes.CutPrefix(word, []byte{'-'})
	var n uint64
	decimals := -1
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9' && n < exact/10-1:
			n = n*10 + uint64(c-'0')
			if decimals >= 0 {
				decimals++
			}
		case c == '.' && decimals < 0:
			decimals = 0
		default:
			return parseFloat(word)
		}
	}
	v := float64(n)
	switch {
	case decimals >= len(powers):
		return parseFloat(word)
	case decimals > 0:
		v /= powers[decimals] // both are exact, and so the quotient is rounded once
	}
	if negative {
		v = -v
	}
	return v, len(digits) > 0 && digits[len(digits)-1] != '.'
}

// parseFloat reads any finite number.
func parseFloat(word []byte) (float64, bool) {
	v, err := strconv.ParseFloat(string(word), 64)
	return v, err == nil && v-v == 0
}

// powers are those of ten that are exact.
var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16}
