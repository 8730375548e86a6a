package output

import (
	"encoding/xml"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzXMLEscape(f *testing.F) {
	for _, text := range []string{"", "plain", "a<b>&\"c'd]]>\x01\ufffe\u009b\x1b[2J e\u00fc\n\t\r\x7f", "]]>", "<!--", "&amp;", "%lt;", "\u2028", "\ufeff", "\ud7ff\ue000", "\xed\xa0\x80", "\U0010ffff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		escaped := xmlEscape(text)
		for _, r := range escaped {
			if r < ' ' || r >= 0x7f && r < 0xa0 || strings.ContainsRune(`<>"'`, r) {
				t.Fatalf("xmlEscape(%q) has %q", text, r)
			}
		}
		var read struct {
			Attribute string `xml:"a,attr"`
			Text      string `xml:",chardata"`
		}
		if err := xml.Unmarshal([]byte("<e a='"+escaped+"'>"+escaped+"</e>"), &read); err != nil {
			t.Fatalf("xmlEscape(%q) = %q: %v", text, escaped, err)
		}
		if read.Attribute != read.Text {
			t.Errorf("xmlEscape(%q) reads as %q and %q", text, read.Attribute, read.Text)
		}
		allowed := utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
			return r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == 0xfffe || r == 0xffff
		})
		if allowed && read.Text != text {
			t.Errorf("xmlEscape(%q) reads as %q", text, read.Text)
		}
	})
}
