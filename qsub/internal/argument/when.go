package argument

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
)

// Date reads [[CC]YY]MMDDhhmm[.SS] in local time. Without CC the year is one of
// 1970 to 2069. A day past the end of the month is one of the next month.
func Date(text string, now time.Time) (time.Time, error) {
	digits, seconds, hasSeconds := strings.Cut(text, ".")
	bad := func(what string) (time.Time, error) { return time.Time{}, errors.New(what) }
	switch {
	case text == "":
		return bad("no date specified")
	case seconds != "" && (len(seconds) != 2 || !IsNumber(seconds)):
		return bad("Invalid format of seconds field.")
	case len(digits) != 8 && len(digits) != 10 && len(digits) != 12:
		return bad("Invalid format of date/hour-minute field.")
	case !IsNumber(digits[len(digits)-8 : len(digits)-6]):
		return bad("Invalid month specification.")
	case !IsNumber(digits):
		return bad("Invalid format of date/hour-minute field.")
	}
	year := now.Year()
	if n := len(digits) - 8; n > 0 {
		year, _ = strconv.Atoi(digits[:n])
		digits = digits[n:]
		switch {
		case n == 4:
		case year < 70:
			year += 2000
		default:
			year += 1900
		}
	}
	var second int
	if hasSeconds {
		second, _ = strconv.Atoi(seconds)
	}
	var field [4]int
	for i := range field {
		field[i], _ = strconv.Atoi(digits[2*i : 2*i+2])
	}
	month, day, hour, minute := field[0], field[1], field[2], field[3]
	switch {
	case month < 1 || month > 12:
		return bad("Invalid month specification.")
	case day < 1 || day > 31:
		return bad("Invalid day specification.")
	case hour > 23:
		return bad("Invalid hour specification.")
	case minute > 59:
		return bad("Invalid minute specification.")
	case second > 59:
		return bad("Invalid seconds specification.")
	case year < 1970:
		return bad("Couldn't generate date from input. Perhaps a date before 1970 was specified.")
	}
	return time.Date(year, time.Month(month), day, hour, minute, second, 0, now.Location()), nil
}

// Seconds reads a number of seconds, m:s or h:m:s.
func Seconds(text string) (int, bool) {
	fields := strings.Split(text, ":")
	total := 0
	for _, f := range fields {
		n, err := strconv.ParseInt(f, 10, 32)
		if err != nil || n < 0 {
			return 0, false
		}
		total = total*60 + int(n)
	}
	return total, len(fields) <= 3
}

// Duration reads a number of seconds above 0, which may have a fraction.
func Duration(o *option.Setting) (time.Duration, error) {
	n, err := strconv.ParseFloat(o.Value(), 64)
	if err != nil || !(n >= 1e-9 && n <= 1e9) { // false for NaN
		return 0, o.Errorf(option.ExitFailed, "invalid number of seconds \"%s\"", api.Visible(o.Value()))
	}
	return time.Duration(n * float64(time.Second)), nil
}
