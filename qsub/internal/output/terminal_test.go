package output

import (
	"os"
	"testing"
	"time"
)

func TestStateColour(t *testing.T) {
	for state, want := range map[string]string{
		"r": green, "Rr": green, "t": green, "qw": "", "hqw": blue, "Eqw": Red, "Ehqw": Red, "dr": Red, "dRr": Red, "s": yellow, "S": yellow, "T": yellow, "Rs": yellow, "": "",
	} {
		if got := StateColour(state); got != want {
			t.Errorf("stateColour(%q) = %q; want %q", state, got, want)
		}
	}
}

// Colours are for terminals that are not told otherwise.
func TestColoured(t *testing.T) {
	for _, tt := range []struct {
		term, no string
		want     bool
	}{{"xterm", "", true}, {"xterm", "1", false}, {"dumb", "", false}, {"", "", false}} {
		t.Setenv("TERM", tt.term)
		t.Setenv("NO_COLOR", tt.no)
		if got := Coloured(os.Stdout); got != tt.want {
			t.Errorf("TERM=%q NO_COLOR=%q: %v; want %v", tt.term, tt.no, got, tt.want)
		}
		if Coloured(nil) {
			t.Error("what is no terminal is coloured")
		}
		want := "r    "
		if tt.want {
			want = "\x1b[32mr\x1b[0m    "
		}
		if got := StateColumn(os.Stdout, "r", 5); got != want {
			t.Errorf("TERM=%q NO_COLOR=%q: %q; want %q", tt.term, tt.no, got, want)
		}
		if got := StateColumn(nil, "r", 5); got != "r    " {
			t.Errorf("without a terminal: %q", got)
		}
	}
}

func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 9900 * time.Millisecond: "9s", 245 * time.Second: "4m05s", 2*time.Hour + 10*time.Minute: "2h10m", 76*time.Hour + time.Minute: "3d04h",
	} {
		if got := Elapsed(d); got != want {
			t.Errorf("elapsed(%v) = %q; want %q", d, got, want)
		}
	}
}
