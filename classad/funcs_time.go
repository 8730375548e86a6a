package classad

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

func timeFunctions(m map[string]*function) {
	m["time"] = &function{least: 0, most: 0, strict: func(c *context, _ []Value) Value { return c.now() }}
	m["formatTime"] = &function{least: 0, most: 2, strict: formatTime}
	m["interval"] = &function{least: 1, most: 1, strict: interval}
	m["absTime"] = &function{least: 0, most: 2, strict: makeAbsTime}
	m["relTime"] = &function{least: 1, most: 1, strict: makeRelTime}
	m["splitTime"] = &function{least: 1, most: 1, strict: splitTime}
	for name, part := range map[string]func(time.Time) int{
		"getYear":       time.Time.Year,
		"getMonth":      func(t time.Time) int { return int(t.Month()) },
		"getDayOfYear":  func(t time.Time) int { return t.YearDay() - 1 },
		"getDayOfMonth": time.Time.Day,
		"getDayOfWeek":  func(t time.Time) int { return int(t.Weekday()) },
		"getHours":      time.Time.Hour,
		"getMinutes":    time.Time.Minute,
		"getSeconds":    time.Time.Second,
	} {
		m[name] = &function{least: 1, most: 1, strict: partOfTime(part)}
	}
	for name, seconds := range map[string]float64{"inDays": 86400, "inHours": 3600, "inMinutes": 60, "inSeconds": 1} {
		m[name] = &function{least: 1, most: 1, strict: lengthIn(seconds)}
	}
}

// at returns a point of time in the local zone.
func (c *context) at(seconds int64) time.Time {
	zone := time.UTC
	if !c.env.Now.IsZero() {
		zone = c.env.Now.Location()
	}
	return time.Unix(seconds, 0).In(zone)
}

// Beyond these a year has more than four digits.
const minTime, maxTime = -62135596800, 253402300799

func formatTime(c *context, args []Value) Value {
	seconds, format := c.now(), "%c"
	if len(args) > 0 {
		seconds = args[0]
	}
	if seconds.kind == AbsTimeKind {
		seconds = Int(int64(seconds.num))
	}
	if seconds.kind != IntKind {
		return needs("time", seconds)
	}
	if len(args) > 1 {
		if args[1].kind != StringKind {
			return needs("format", args[1])
		}
		format = args[1].str
	}
	if s := int64(seconds.num); s < minTime || s > maxTime {
		return Error("time too far away")
	}
	// No part is longer than 32 bytes for its two.
	if !c.alloc(16 * len(format)) {
		return c.spent()
	}
	return c.text(strftime(c.at(int64(seconds.num)), format))
}

// layouts are the parts of a time that Go has a layout for.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006",
	'd': "02", 'D': "01/02/06", 'e': "_2", 'F': "2006-01-02", 'h': "Jan", 'H': "15", 'I': "03",
	'j': "002", 'm': "01", 'M': "04", 'p': "PM", 'r': "03:04:05 PM", 'R': "15:04", 'S': "05",
	'T': "15:04:05", 'x': "01/02/06", 'X': "15:04:05", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
}

func strftime(t time.Time, format string) string {
	var b []byte
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b = append(b, format[i])
			continue
		}
		i++
		switch ch := format[i]; ch {
		case '%':
			b = append(b, '%')
		case 'n':
			b = append(b, '\n')
		case 't':
			b = append(b, '\t')
		case 's':
			b = strconv.AppendInt(b, t.Unix(), 10)
		case 'w':
			b = strconv.AppendInt(b, int64(t.Weekday()), 10)
		case 'U':
			b = two(b, (t.YearDay()+6-int(t.Weekday()))/7)
		case 'W':
			b = two(b, (t.YearDay()+6-(int(t.Weekday())+6)%7)/7)
		default:
			if layout, ok := layouts[ch]; ok {
				b = t.AppendFormat(b, layout)
			} else {
				b = append(b, '%', ch)
			}
		}
	}
	return string(b)
}

// two appends a number of two digits.
func two(b []byte, n int) []byte { return append(b, byte('0'+n/10%10), byte('0'+n%10)) }

// interval formats a number of seconds as days+hours:minutes:seconds, without
// what is zero at its beginning.
func interval(c *context, args []Value) Value {
	r, ok := c.number(args[0])
	if !ok {
		return needs("number", args[0])
	}
	n := toInt(r)
	if args[0].kind == IntKind {
		n = int64(args[0].num)
	}
	var b []byte
	if n < 0 {
		b, n = append(b, '-'), -max(n, -math.MaxInt64)
	}
	return c.text(string(appendInterval(b, n)))
}

func appendInterval(b []byte, n int64) []byte {
	days, h, m, s := n/86400, int(n/3600%24), int(n/60%60), int(n%60)
	switch {
	case days > 0:
		b = append(strconv.AppendInt(b, days, 10), '+')
		return two(append(two(append(two(b, h), ':'), m), ':'), s)
	case h > 0:
		return two(append(two(append(strconv.AppendInt(b, int64(h), 10), ':'), m), ':'), s)
	case m > 0:
		return two(append(strconv.AppendInt(b, int64(m), 10), ':'), s)
	}
	return strconv.AppendInt(b, int64(s), 10)
}

// makeAbsTime makes a point of time of seconds, in the local zone or one of so
// many seconds east of Greenwich, or of a string.
func makeAbsTime(c *context, args []Value) Value {
	t := c.now()
	if len(args) > 0 {
		t = args[0]
	}
	switch {
	case t.kind == AbsTimeKind, t.kind == UndefinedKind:
		return t
	case t.kind == StringKind && len(args) == 1:
		for _, layout := range []string{"2006-01-02T15:04:05-07:00", "2006-01-02T15:04:05Z", "2006-01-02T15:04:05"} {
			if at, err := time.ParseInLocation(layout, t.str, c.at(0).Location()); err == nil {
				_, zone := at.Zone()
				return absTime(at.Unix(), zone)
			}
		}
		return Error("malformed time")
	}
	r, ok := t.Number()
	if !ok {
		return needs("time", t)
	}
	if r < minTime || r > maxTime || math.IsNaN(r) {
		return Error("time too far away")
	}
	if len(args) == 2 {
		zone, ok := args[1].Int()
		if !ok || zone < -86400 || zone > 86400 {
			return needs("zone", args[1])
		}
		return absTime(toInt(r), int(zone))
	}
	_, zone := c.at(toInt(r)).Zone()
	return absTime(toInt(r), zone)
}

func timeOf(v Value) time.Time {
	return time.Unix(int64(v.num), 0).In(time.FixedZone("", int(v.zone)))
}

func appendAbsTime(b []byte, v Value) []byte {
	return timeOf(v).AppendFormat(b, "2006-01-02T15:04:05-07:00")
}

func makeRelTime(c *context, args []Value) Value {
	v := args[0]
	switch v.kind {
	case RelTimeKind, UndefinedKind:
		return v
	case StringKind:
		if !c.scan(len(v.str)) {
			return c.spent()
		}
		if r, ok := parseRelTime(v.str); ok {
			return relTime(r)
		}
		return Error("malformed time")
	}
	if r, ok := v.Number(); ok {
		return relTime(r)
	}
	return needs("time", v)
}

// parseRelTime reads [-][days+][[hours:]minutes:]seconds.
func parseRelTime(s string) (seconds float64, ok bool) {
	rest, negative := strings.CutPrefix(strings.TrimSpace(s), "-")
	if days, clock, found := strings.Cut(rest, "+"); found {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil {
			return 0, false
		}
		seconds, rest = 86400*float64(n), clock
	}
	parts := strings.Split(rest, ":")
	weight := 1.0
	for _, part := range slices.Backward(parts) {
		end, ok := numberEnd(part)
		if !ok || end < len(part) || weight > 3600 {
			return 0, false
		}
		n, _ := parseNumber(part)
		seconds += weight * n
		weight *= 60
	}
	if negative {
		seconds = -seconds
	}
	return seconds, true
}

// appendRelTime appends a length of time as interval does, and thousandths of
// seconds if there are any.
func appendRelTime(b []byte, seconds float64) []byte {
	thousandths := toInt(math.Round(math.Abs(seconds) * 1000))
	if seconds < 0 && thousandths > 0 {
		b = append(b, '-')
	}
	b = appendInterval(b, thousandths/1000)
	if part := int(thousandths % 1000); part > 0 {
		b = two(append(b, '.', byte('0'+part/100)), part%100)
	}
	return b
}

// splitTime makes an ad of the parts of a time.
func splitTime(_ *context, args []Value) Value {
	var attrs []Attr
	part := func(name string, v Value) { attrs = append(attrs, Attr{name, v.Expr()}) }
	switch v := args[0]; v.kind {
	case AbsTimeKind:
		t := timeOf(v)
		part("Type", String("AbsoluteTime"))
		part("Year", Int(int64(t.Year())))
		part("Month", Int(int64(t.Month())))
		part("Day", Int(int64(t.Day())))
		part("Hours", Int(int64(t.Hour())))
		part("Minutes", Int(int64(t.Minute())))
		part("Seconds", Int(int64(t.Second())))
		part("Offset", Int(int64(v.zone)))
	case RelTimeKind:
		r := v.real()
		n := toInt(math.Abs(r))
		s := int64(1)
		if r < 0 {
			s = -1
		}
		part("Type", String("RelativeTime"))
		part("Days", Int(s*(n/86400)))
		part("Hours", Int(s*(n/3600%24)))
		part("Minutes", Int(s*(n/60%60)))
		part("Seconds", Real(float64(s)*(float64(n%60)+math.Abs(r)-math.Trunc(math.Abs(r)))))
	default:
		return needs("time", v)
	}
	own := &scope{ad: New(attrs...)}
	own.root = own
	return adValue(own)
}

func partOfTime(part func(time.Time) int) func(*context, []Value) Value {
	return func(_ *context, args []Value) Value {
		if args[0].kind != AbsTimeKind {
			return needs("absolute time", args[0])
		}
		return Int(int64(part(timeOf(args[0]))))
	}
}

func lengthIn(seconds float64) func(*context, []Value) Value {
	return func(_ *context, args []Value) Value {
		if args[0].kind != RelTimeKind {
			return needs("relative time", args[0])
		}
		return Real(args[0].real() / seconds)
	}
}
