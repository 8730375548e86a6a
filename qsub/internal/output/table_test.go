package output

import (
	"strings"
	"testing"
)

// Columns are as wide on a terminal whatever is written in them: what East Asia writes has
// two cells, a combining mark none.
func TestColumn(t *testing.T) {
	for _, c := range []struct {
		text string
		want string
	}{
		{"", "     "},
		{"ascii", "ascii"},
		{"longer than that", "longe"},
		{"grün", "grün "},
		{"日本", "日本 "},
		{"日本語", "日本 "}, // the third would have a cell in the next column
		{"日本x語", "日本x"},
		{"ｗｉｄｅ", "ｗｉ "},
		{"🐎", "🐎   "},
		{"cafe\u0301s", "cafe\u0301s"},
		{"e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301", strings.Repeat("e\u0301", 5)},
		{"a\tb", `a\tb `},
	} {
		if got := Column(c.text, 5); got != c.want || Width(got) != 5 {
			t.Errorf("Column(%q) = %q of %d cells; want %q", c.text, got, Width(got), c.want)
		}
	}
	if got := Cut("日本", -1); got != "" {
		t.Errorf("no room has %q", got)
	}
	var text strings.Builder
	Table(&text, [][]string{{"HOST", "N", "WHAT"}, {"日本", "1", "a"}, {"e\u0301", "20", "b"}}, "N")
	want := "HOST  N WHAT\n------------\n日本  1 a\ne\u0301    20 b\n"
	if text.String() != want {
		t.Errorf("%q; want %q", text.String(), want)
	}
}
