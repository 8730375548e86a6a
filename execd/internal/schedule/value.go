package schedule

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"paddock/execd/internal/conf"
)

// parseValue reads the value of a request.
func parseValue(kind conf.Kind, text string) (conf.Value, bool) {
	v := conf.Value{Text: text}
	if !kind.Number() {
		return v, len(text) <= maxExpression
	}
	ok := false
	switch {
	case kind == conf.KindBool:
		switch strings.ToLower(text) {
		case "true", "t", "1":
			v.Number, ok = 1, true
		case "false", "f", "0":
			ok = true
		}
	case strings.EqualFold(text, "infinity"):
		v.Number, ok = math.Inf(1), true
	case kind == conf.KindTime:
		v.Number, ok = parseTime(text)
	case kind == conf.KindMemory:
		v.Number, ok = parseMemory(text)
	case kind == conf.KindDouble:
		v.Number, ok = parseDouble(text)
	default:
		n, err := strconv.ParseInt(text, 10, 53)
		v.Number, ok = float64(n), err == nil
	}
	return v, ok
}

func parseDouble(s string) (float64, bool) {
	if strings.Trim(s, "+-.0123456789eE") != "" { // ParseFloat knows nan and 0x too
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}

// parseTime reads seconds, or hours, minutes and seconds with colons, each of
// which may be left out.
func parseTime(s string) (float64, bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 1 && len(parts) != 3 || strings.Trim(s, ":") == "" {
		return 0, false
	}
	seconds := 0.0
	for _, p := range parts {
		if p == "" {
			p = "0"
		}
		n, err := strconv.ParseUint(p, 10, 32)
		if err != nil {
			return 0, false
		}
		seconds = seconds*60 + float64(n)
	}
	return seconds, true
}

// units are the multipliers of a memory_specifier.
var units = map[byte]float64{
	'k': 1e3, 'm': 1e6, 'g': 1e9, 't': 1e12,
	'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30, 'T': 1 << 40,
}

func parseMemory(s string) (float64, bool) {
	unit := 1.0
	if s != "" && units[s[len(s)-1]] != 0 {
		unit, s = units[s[len(s)-1]], s[:len(s)-1]
	}
	f, ok := parseDouble(s)
	return math.Trunc(f * unit), ok && f >= 0
}

// show writes a number as qstat -F does.
func show(kind conf.Kind, n float64) string {
	switch {
	case math.IsInf(n, 1):
		return "infinity"
	case kind == conf.KindBool:
		return strings.ToUpper(strconv.FormatBool(n != 0))
	case kind == conf.KindTime:
		s := int64(n)
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	case kind == conf.KindMemory:
		for _, u := range []byte("TGMK") {
			if math.Abs(n) >= units[u] {
				return fmt.Sprintf("%.3f%c", n/units[u], u)
			}
		}
		return fmt.Sprintf("%.3f", n)
	case kind == conf.KindDouble:
		return fmt.Sprintf("%.6f", n)
	default:
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
}

// satisfies reports whether what is offered is good enough for a request.
func satisfies(c *conf.Config, a *conf.Attribute, request, offer conf.Value) bool {
	if !a.Kind.Number() {
		yes := matches(request.Text, offer.Text, a.Kind != conf.KindString && a.Kind != conf.KindREString)
		if a.Kind == conf.KindHost {
			yes = yes || a.Name == "hostname" && matchesHost(c, request.Text)
		}
		return yes == (a.Relop != "!=")
	}
	return compare(request.Number, a.Relop, offer.Number)
}

func compare(a float64, relop string, b float64) bool {
	switch relop {
	case "<=":
		return a <= b
	case "<":
		return a < b
	case ">=":
		return a >= b
	case ">":
		return a > b
	case "!=":
		return a != b
	default:
		return a == b
	}
}
