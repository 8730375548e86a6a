package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"paddock/qsub/internal/option"
)

// parseDate reads [[CC]YY]MMDDhhmm[.SS] as a time of this host. Without CC the
// year is one of 1970 to 2069; a day that the month has not is one of the next.
func parseDate(text string, now time.Time) (time.Time, error) {
	digits, seconds, hasSeconds := strings.Cut(text, ".")
	bad := func(what string) (time.Time, error) { return time.Time{}, errors.New(what) }
	switch {
	case text == "":
		return bad("no date specified")
	case seconds != "" && (len(seconds) != 2 || !isNumber(seconds)):
		return bad("Invalid format of seconds field.")
	case len(digits) != 8 && len(digits) != 10 && len(digits) != 12:
		return bad("Invalid format of date/hour-minute field.")
	case !isNumber(digits[len(digits)-8 : len(digits)-6]):
		return bad("Invalid month specification.")
	case !isNumber(digits):
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

// letters returns those of known that stand in text, in the order of known, and
// whether text has no other.
func letters(text, known string) (string, bool) {
	var found strings.Builder
	for i := range len(known) {
		if strings.IndexByte(text, known[i]) >= 0 {
			found.WriteByte(known[i])
		}
	}
	return found.String(), text != "" && strings.Trim(text, known) == ""
}

// checkpointLetters are those of -c, in Grid Engine's order.
const checkpointLetters = "msxnr"

// parseCheckpoint reads letters, or an interval in seconds or h:m:s.
func parseCheckpoint(o *option.Setting) (string, error) {
	text := o.Value()
	if text == "" || strings.Trim(text, "0123456789:") == "" {
		if _, ok := seconds(text); !ok {
			return "", o.Errorf(option.ExitUsage, "-c argument invalid")
		}
		return text, nil
	}
	found, ok := letters(text, checkpointLetters)
	if !ok {
		return "", o.Errorf(option.ExitUsage, "-c specifier invalid")
	}
	return found, nil
}

// seconds reads a number of seconds, m:s or h:m:s.
func seconds(text string) (int, bool) {
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
