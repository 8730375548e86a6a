package spell

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"slots", "shell", "seq_no"}
	for _, c := range []struct {
		name  string
		limit int
		want  string
	}{
		{"slot", 2, "slots"},
		{"SLOTS", 1, "slots"},
		{"slto", 2, ""},
		{"slto", 3, "slots"},
		{"shells", 3, "shell"},
		{"", 3, ""},
		{"seqno", 2, "seq_no"},
		{"something", 4, ""},
		{"slot", 0, ""},
	} {
		if got := Nearest(names, c.name, c.limit); got != c.want {
			t.Errorf("%q within %d: %q, want %q", c.name, c.limit, got, c.want)
		}
	}
}
