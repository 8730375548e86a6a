package classad

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func timeFunctions(m map[string]*function) {
	m["time"] = &function{clock: true, strict: func(c *context, _ []Value) Value { return c.now() }}
	m["currentTime"] = &function{clock: true, strict: makeAbsTime}
	m["dayTime"] = &function{clock: true, strict: dayTime}
	m["timeZoneOffset"] = &function{clock: true, strict: timeZoneOffset}
	m["formatTime"] = &function{clock: true, most: 2, strict: formatTime}
	m["interval"] = &function{least: 1, most: 1, strict: interval}
	m["absTime"] = &function{clock: true, most: 2, strict: makeAbsTime}
	m["relTime"] = &function{least: 1, most: 1, strict: makeRelTime}
	m["splitTime"] = &function{least: 1, most: 1, strict: splitTime}
	for name, part := range map[string]struct {
		point  func(time.Time) int
		length func(seconds int64) int64
	}{
		"getYear":       {time.Time.Year, nil},
		"getMonth":      {func(t time.Time) int { return int(t.Month()) }, nil},
		"getDayOfYear":  {func(t time.Time) int { return t.YearDay() - 1 }, nil},
		"getDayOfMonth": {time.Time.Day, nil},
		"getDayOfWeek":  {func(t time.Time) int { return int(t.Weekday()) }, nil},
		"getDays":       {nil, func(s int64) int64 { return s / 86400 }},
		"getHours":      {time.Time.Hour, func(s int64) int64 { return s / 3600 % 24 }},
		"getMinutes":    {time.Time.Minute, func(s int64) int64 { return s / 60 % 60 }},
		"getSeconds":    {time.Time.Second, func(s int64) int64 { return s % 60 }},
	} {
		m[name] = &function{least: 1, most: 1, strict: partOfTime(part.point, part.length)}
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

// minTime and maxTime are the bounds within which a year has four digits.
const minTime, maxTime = -62135596800, 253402300799

func formatTime(c *context, args []Value) Value {
	what, format := c.now(), "%c"
	if len(args) > 0 {
		what = args[0]
	}
	t, wrong := c.point(what)
	if wrong.kind == ErrorKind {
		return wrong
	}
	if len(args) > 1 {
		if args[1].kind != StringKind {
			return needs("format", args[1])
		}
		format = args[1].str
	}
	// No part is longer than 32 bytes for its two.
	if !c.alloc(16 * len(format)) {
		return c.spent()
	}
	return c.text(strftime(t, format))
}

// point returns the time that formatTime writes: a time in its own zone, a number of
// seconds in the local one, or the parts of a time in an ad as splitTime makes it.
func (c *context) point(v Value) (t time.Time, wrong Value) {
	switch v.kind {
	case AbsTimeKind:
		t = timeOf(v)
		if at := c.at(t.Unix()); sameZone(at, t) {
			t = at // the local zone has a name
		}
	case IntKind, RealKind:
		r, _ := v.Number()
		if !(minTime <= r && r <= maxTime) {
			return t, Error("time too far away")
		}
		t = c.at(toInt(r))
	case AdKind:
		if t, wrong = c.assemble(v); wrong.kind == ErrorKind {
			return t, wrong
		}
	default:
		return t, needs("time", v)
	}
	if s := t.Unix(); s < minTime || s > maxTime {
		return t, Error("time too far away")
	}
	return t, Value{}
}

func sameZone(a, b time.Time) bool {
	_, x := a.Zone()
	_, y := b.Zone()
	return x == y
}

// assemble returns the time of the parts in an ad. A part that is not there is the
// first, such as January.
func (c *context) assemble(ad Value) (t time.Time, wrong Value) {
	part := func(name string, missing int64) int {
		v := c.lookup(ad.obj.scope, name, hashName(name), false)
		n, ok := v.Int()
		switch {
		case v.kind == UndefinedKind && missing >= 0:
			n = missing
		case !ok || n != int64(int32(n)):
			wrong = Error(name + " of the ad is no part of a time")
		}
		return int(n)
	}
	const needed = -1
	year, month, day := part("Year", needed), part("Month", 1), part("Day", 1)
	hour, minute, second := part("Hours", 0), part("Minutes", 0), part("Seconds", 0)
	zone := part("Offset", 0)
	if zone < -86400 || zone > 86400 {
		wrong = Error("Offset of the ad is no zone")
	}
	return time.Date(year, time.Month(month), day, hour, minute, second, 0, time.FixedZone("", zone)), wrong
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

// makeAbsTime makes a point of time of a string, or of seconds, in the local zone or
// in the one whose offset, in seconds east of Greenwich, is the second argument.
func makeAbsTime(c *context, args []Value) Value {
	t := c.now()
	if len(args) > 0 {
		t = args[0]
	}
	switch {
	case t.kind == AbsTimeKind, t.kind == UndefinedKind:
		return t
	case t.kind == StringKind && len(args) == 1:
		if !c.scan(len(t.str)) {
			return c.spent()
		}
		at, ok := parseAbsTime(t.str, c.at(0).Location())
		switch {
		case !ok:
			return Error("malformed time")
		case at.Unix() < minTime || at.Unix() > maxTime:
			return Error("time too far away")
		}
		_, zone := at.Zone()
		return absTime(at.Unix(), zone)
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

// zoneEnd matches the zone behind a time, which is local without one.
var zoneEnd = regexp.MustCompile(`(?:[zZ]|([+-])([0-9]{2}):?([0-9]{2}))$`)

// parseAbsTime reads a year of four digits and, as far as they are there, month, day,
// hour, minute and second of two, with anything but digits before and between them.
func parseAbsTime(s string, local *time.Location) (t time.Time, ok bool) {
	const longest = 64
	s = strings.TrimSpace(s)
	if len(s) > longest {
		return t, false
	}
	zone := local
	if m := zoneEnd.FindStringSubmatch(s); m != nil {
		s = s[:len(s)-len(m[0])]
		hours, _ := strconv.Atoi(m[2])
		minutes, _ := strconv.Atoi(m[3])
		east := hours*3600 + minutes*60
		if m[1] == "-" {
			east = -east
		}
		if east < -86400 || east > 86400 {
			return t, false
		}
		zone = time.FixedZone("", east)
	}
	parts := [6]int{1: 1, 2: 1}
	for i := range parts {
		s = strings.TrimLeftFunc(s, func(r rune) bool { return r < '0' || r > '9' })
		width := 2
		if i == 0 {
			width = 4
		}
		if digits(s) < width {
			if i == 0 {
				return t, false
			}
			break
		}
		parts[i], _ = strconv.Atoi(s[:width])
		s = s[width:]
	}
	if strings.ContainsAny(s, "0123456789") {
		return t, false
	}
	return time.Date(parts[0], time.Month(parts[1]), parts[2], parts[3], parts[4], parts[5], 0, zone), true
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

// parseRelTime reads [-][days+][[hours:]minutes:]seconds, in which the letters d, h, m
// and s may stand behind the numbers, as in 1d2h3m4.5s; a number may be missing from
// the end as well then.
func parseRelTime(s string) (seconds float64, ok bool) {
	some := false
	// take cuts the number before a unit from the end, if it is there.
	take := func(units string, weight float64, least bool) {
		s = strings.TrimRight(s, spaces)
		rest := s
		if last := len(s) - 1; last >= 0 && strings.IndexByte(units, s[last]) >= 0 {
			rest = strings.TrimRight(s[:last], spaces)
		} else if !least {
			return
		}
		number := strings.TrimRight(rest, "0123456789")
		if least && strings.HasSuffix(number, ".") {
			number = strings.TrimRight(number[:len(number)-1], "0123456789")
		}
		text := rest[len(number):]
		if text == "" || text[len(text)-1] == '.' {
			return
		}
		n, _ := strconv.ParseFloat(text, 64)
		s, seconds, some = number, seconds+weight*n, true
	}
	take("sS", 1, true)
	take("mM:", 60, false)
	take("hH:", 3600, false)
	take("dD+", 86400, false)
	s = strings.Trim(s, spaces)
	if s == "-" {
		return -seconds, some
	}
	return seconds, some && s == ""
}

// spaces are the characters for which isspace(3) is true.
const spaces = " \t\n\v\f\r"

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
func splitTime(c *context, args []Value) Value {
	var attrs []Attr
	part := func(name string, v Value) { attrs = append(attrs, Attr{name, v.Expr()}) }
	v := args[0]
	switch v.kind {
	case UndefinedKind:
		return v
	case IntKind, RealKind:
		if v = makeAbsTime(c, args); v.kind != AbsTimeKind {
			return v
		}
	}
	switch v.kind {
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

// partOfTime returns a function of a point of time, of a length of time, or of either.
func partOfTime(point func(time.Time) int, length func(seconds int64) int64) func(*context, []Value) Value {
	return func(_ *context, args []Value) Value {
		switch v := args[0]; {
		case v.kind == AbsTimeKind && point != nil:
			return Int(int64(point(timeOf(v))))
		case v.kind == RelTimeKind && length != nil:
			return Int(length(toInt(v.real())))
		case length == nil:
			return needs("absolute time", v)
		case point == nil:
			return needs("relative time", v)
		default:
			return needs("time", v)
		}
	}
}

// dayTime returns the time since midnight, in the local zone.
func dayTime(c *context, _ []Value) Value {
	now := c.now()
	if now.kind != IntKind {
		return now
	}
	t := c.at(int64(now.num))
	return relTime(float64(t.Hour()*3600 + t.Minute()*60 + t.Second()))
}

// timeZoneOffset returns the offset of the local zone east of Greenwich.
func timeZoneOffset(c *context, _ []Value) Value {
	now := c.now()
	if now.kind != IntKind {
		return now
	}
	_, zone := c.at(int64(now.num)).Zone()
	return relTime(float64(zone))
}

func lengthIn(seconds float64) func(*context, []Value) Value {
	return func(_ *context, args []Value) Value {
		if args[0].kind != RelTimeKind {
			return needs("relative time", args[0])
		}
		return Real(args[0].real() / seconds)
	}
}
