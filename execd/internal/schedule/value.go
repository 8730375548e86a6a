package schedule

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"paddock/execd/internal/conf"
)

// units are the multipliers that show uses for memory.
var units = map[byte]float64{'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30, 'T': 1 << 40}

// show writes a number as qstat -F does.
func show(kind conf.Kind, n float64) string {
	switch {
	case math.IsInf(n, 1):
		return "infinity"
	case kind == conf.KindBool:
		return strings.ToUpper(strconv.FormatBool(n != 0))
	case kind == conf.KindTime:
		s := int64(n)
		return fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60)
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

// satisfies reports whether an offer is good enough for a request.
func satisfies(c *conf.Config, a *conf.Attribute, request, offer conf.Value) bool {
	if !a.Kind.Number() {
		yes := matches(request.Text, offer.Text, a.Kind != conf.KindString && a.Kind != conf.KindREString)
		if a.Kind == conf.KindHost {
			yes = yes || a.Name == "hostname" && MatchesHost(c, offer.Text, request.Text)
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
