package argument

import (
	"testing"
	"time"

	"paddock/qsub/internal/option"
)

func TestParseDate(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	now := time.Date(2026, 11, 21, 17, 0, 0, 0, zone)
	const layout = "2006-01-02 15:04:05"
	for text, want := range map[string]string{
		"12010101": "2026-12-01 01:01:00", "11010101": "2026-11-01 01:01:00", "2612010101": "2026-12-01 01:01:00", "202612010101": "2026-12-01 01:01:00",
		"7012010101": "1970-12-01 01:01:00", "6912010101": "2069-12-01 01:01:00", "12010101.59": "2026-12-01 01:01:59", "12010101.": "2026-12-01 01:01:00",
		"02300101": "2026-03-02 01:01:00", "1201010112": "2012-01-01 01:12:00", "210012010101": "2100-12-01 01:01:00",
		"12010101.60": "Invalid seconds specification.", "12010101.5": "Invalid format of seconds field.", "12010101.555": "Invalid format of seconds field.",
		"13010101": "Invalid month specification.", "00010101": "Invalid month specification.", "12320101": "Invalid day specification.",
		"12000101": "Invalid day specification.", "12012401": "Invalid hour specification.", "12010160": "Invalid minute specification.",
		"120101011": "Invalid format of date/hour-minute field.", "now": "Invalid format of date/hour-minute field.", "1201010x": "Invalid format of date/hour-minute field.",
		"196912010101": "Couldn't generate date from input. Perhaps a date before 1970 was specified.",
	} {
		got, err := Date(text, now)

		switch {
		case err != nil && err.Error() != want:
			t.Errorf("parseDate(%q): %v; want %s", text, err, want)
		case err == nil && (got.Format(layout) != want || got.Location() != zone):
			t.Errorf("parseDate(%q) = %v; want %s", text, got, want)
		}
	}
}

func TestParseSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{"1": time.Second, "0.25": 250 * time.Millisecond, "1e3": 1000 * time.Second, "0": 0, "-1": 0, "x": 0, "NaN": 0, "Inf": 0, "1e-12": 0, "1e300": 0} {
		got, err := Duration(&option.Setting{Values: []string{text}})
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("parseSeconds(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}
