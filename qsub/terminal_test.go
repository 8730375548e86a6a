package main

import (
	"os"
	"testing"
	"time"

	"paddock/execd/api"
)

func TestStateColour(t *testing.T) {
	for state, want := range map[string]string{
		"r": green, "Rr": green, "t": green, "qw": "", "hqw": blue, "Eqw": red, "Ehqw": red, "dr": red, "dRr": red, "s": yellow, "S": yellow, "T": yellow, "Rs": yellow, "": "",
	} {
		if got := stateColour(state); got != want {
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
		if got := coloured(os.Stdout); got != tt.want {
			t.Errorf("TERM=%q NO_COLOR=%q: %v; want %v", tt.term, tt.no, got, tt.want)
		}
		if coloured(nil) {
			t.Error("what is no terminal is coloured")
		}
		want := "r    "
		if tt.want {
			want = "\x1b[32mr\x1b[0m    "
		}
		if got := stateColumn(os.Stdout, "r", 5); got != want {
			t.Errorf("TERM=%q NO_COLOR=%q: %q; want %q", tt.term, tt.no, got, want)
		}
		if got := stateColumn(nil, "r", 5); got != "r    " {
			t.Errorf("without a terminal: %q", got)
		}
	}
}

func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 9900 * time.Millisecond: "9s", 245 * time.Second: "4m05s", 2*time.Hour + 10*time.Minute: "2h10m", 76*time.Hour + time.Minute: "3d04h",
	} {
		if got := elapsed(d); got != want {
			t.Errorf("elapsed(%v) = %q; want %q", d, got, want)
		}
	}
}

func TestProgressText(t *testing.T) {
	for _, tt := range []struct {
		found []api.Found
		want  string
	}{
		{nil, "10 of 10 done, 0 running, 0 pending"},
		{[]api.Found{{Running: 2, Pending: 3}, {Pending: 1}}, "4 of 10 done, 2 running, 4 pending"},
		{[]api.Found{{Running: 2, InError: 3}}, "5 of 10 done, 2 running, 0 pending, 3 in error"},
		{[]api.Found{{Pending: 11}}, "0 of 10 done, 0 running, 11 pending"},
	} {
		if got := progressText(&api.FindReply{Found: tt.found}, 10); got != tt.want {
			t.Errorf("progressText(%+v) = %q; want %q", tt.found, got, tt.want)
		}
	}
}
