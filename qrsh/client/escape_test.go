package client

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

func TestEscapes(t *testing.T) {
	for _, c := range []struct{ typed, want, done string }{
		{"plain\n", "plain\n", ""},
		{"~.", "", "."},
		{"~.rest", "", "."},
		{"a~.", "a~.", ""},
		{"a\r~.", "a\r", "."},
		{"a\n~?b", "a\nb", "?"},
		{"~?~.", "", "?."},
		{"~\x1ab~.", "b~.", "\x1a"},
		{"~~.\n", "~.\n", ""},
		{"~~~.", "~~.", ""},
		{"~x~.\n~.", "~x~.\n", "."},
		{"~\r~.", "~\r", "."},
		{"~", "~", ""},
		{"x\n~", "x\n~", ""},
		{strings.Repeat("~~x\n", 3000), strings.Repeat("~x\n", 3000), ""},
	} {
		for name, from := range map[string]io.Reader{
			"whole": strings.NewReader(c.typed), "one by one": iotest.OneByteReader(strings.NewReader(c.typed)),
			"with the end": iotest.DataErrReader(strings.NewReader(c.typed)),
		} {
			var done []byte
			e := &escapes{from: from, char: '~', do: func(key byte) bool {
				done = append(done, key)
				return key == escapeLeave
			}}
			got, err := io.ReadAll(iotest.OneByteReader(e))
			if errors.Is(err, os.ErrClosed) && strings.Contains(c.done, ".") {
				err = nil
			}
			if err != nil || string(got) != c.want || string(done) != c.done {
				t.Errorf("%.20q %s: passed on %.20q, did %q, %v; want %.20q, %q", c.typed, name, got, done, err, c.want, c.done)
			}
		}
	}
	broken := errors.New("broken")
	if b, err := io.ReadAll(&escapes{from: io.MultiReader(strings.NewReader("a\n~"), iotest.ErrReader(broken)), char: '~'}); string(b) != "a\n~" || !errors.Is(err, broken) {
		t.Errorf("it ends with %q, %v", b, err)
	}
}

func TestParseEscape(t *testing.T) {
	for text, want := range map[string]byte{"~": '~', "none": NoEscape, "^]": 0x1d, "^a": 1, "%": '%', "^": '^'} {
		if got, err := ParseEscape(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", " ", "ab", "^M", "^J", "^1", "\n", "\xc3", "\xc3\xa4", "^@"} {
		if got, err := ParseEscape(text); err == nil {
			t.Errorf("%q is %d; want an error", text, got)
		}
	}
}
