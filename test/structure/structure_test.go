package structure

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grammar")
	const text = "# of a test\n/a @k @xmlns:xsd: b+ (c | d)*\n/a/b= \\d+\n*/c @n= .*\n*/d:\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	g, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	const root = `<a k="" xmlns:xsd="x">`
	for _, test := range []struct {
		document string
		want     []string
	}{
		{root + "<b>1</b><b>2</b></a>", nil},
		{root + "\n<b>1</b> <c n=''>&lt;</c><d></d><d/></a>\n", nil},
		{root + "</a>", []string{`/a: elements  ""; want (?s)^(?:(?:<b>)+((?:<c>)|(?:<d>))*)$`}},
		{root + "<b>x</b></a>", []string{`/a/b: value "x"; want (?s)^(?:\d+)$`}},
		{root + "<b>1</b>x</a>", []string{`/a: elements <b> "x"; want (?s)^(?:(?:<b>)+((?:<c>)|(?:<d>))*)$`}},
		{root + "<b k='1'>1</b></a>", []string{`/a/b: attributes "@k"; want ""`}},
		{root + "<b>1<c n=''/></b></a>", []string{`/a/b: value "1"<c>; want (?s)^(?:\d+)$`}},
		{root + "<b>1</b><e/></a>", []string{`/a: elements <b><e> ""; want (?s)^(?:(?:<b>)+((?:<c>)|(?:<d>))*)$`, "/a/e: not described"}},
		{"<a>", []string{"no XML: XML syntax error on line 1: unexpected EOF"}},
		{"", []string{"no element"}},
		{"<a/><a/>", []string{"a second root: a"}},
		{"<a/>x", []string{`text outside of the root: "x"`}},
	} {
		if got := g.Check([]byte(test.document)); !slices.Equal(got, test.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", test.document, got, test.want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for _, text := range []string{"/a", "/a b", "/a: (", "/a=\n/a="} {
		file := filepath.Join(t.TempDir(), "grammar")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if g, err := Read(file); err == nil {
			t.Errorf("%q gives %v", text, g)
		}
	}
}
