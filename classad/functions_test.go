package classad

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// named returns the words that a pattern finds in a file, in small letters, each
// once.
func named(t *testing.T, file, pattern string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		words[strings.ToLower(m[1])] = true
	}
	return words
}

// REQ-AD-11: every function is in classad(7) and tried by a probe or a test, and
// classad(7) promises no other.
func TestFunctions(t *testing.T) {
	page := named(t, "../man/man7/classad.7", `(?m)^\.Fn (\w+)`)
	tried := named(t, "testdata/probes", `(\w+)\(`)
	maps.Copy(tried, named(t, "ad_test.go", `"(\w+)\(`))
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		if !page[name] {
			t.Errorf("classad.7 does not name %s", name)
		}
		if !tried[name] {
			t.Errorf("no probe of %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(page)) {
		if functions[name] == nil {
			t.Errorf("classad.7 names %s, which is no function", name)
		}
	}
}
