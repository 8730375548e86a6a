package schedule

import (
	"strings"
	"testing"

	"paddock/execd/internal/conf"
)

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		expression, value string
		want              bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"*", "", true},
		{"a*", "abc", true},
		{"*b*", "abc", true},
		{"a*b*c", "aXbYc", true},
		{"a*b*c", "aXcYb", false},
		{"a?c", "abc", true},
		{"a?c", "ac", false},
		{"lx2[246]-x86", "lx24-x86", true},
		{"lx2[24-6]-x86", "lx25-x86", true},
		{"lx2[4|6]-amd64", "lx26-amd64", true},
		{"lx2[4|6]-amd64", "lx25-amd64", false},
		{"[^a]", "^", true},
		{"[a", "a", false},
		{`\*`, "*", true},
		{`\*`, "a", false},
		{`a\|b`, "a|b", true},
		{"!a", "b", true},
		{"!!a", "a", true},
		{"a|b", "b", true},
		{"a&b", "a", false},
		{"a|b&c", "a", true},
		{"(a|b)&c", "a", false},
		{"(lx*|sol*)&*64*", "sol-x64", true},
		{"rh_3*&!rh_3.1", "rh_3.1", false},
		{"", "", true},
		{"a|", "a", false},
		{"(a", "a", false},
		{"a)", "a", false},
		{"()", "", false},
		{strings.Repeat("(", 2000), "", false},
		{strings.Repeat("*a", 400) + "*b", strings.Repeat("a", 10_000), false},
	} {
		if got := matches(tt.expression, tt.value, false); got != tt.want {
			t.Errorf("matches(%q, %q) = %v; want %v", tt.expression, tt.value, got, tt.want)
		}
	}
	if !matches("A*", "aB", true) {
		t.Error("case matters, and should not")
	}
}

// TestMatchesQueue holds the patterns of qmod and qconf, which are those of -q.
func TestMatchesQueue(t *testing.T) {
	c := &conf.Config{Hostname: "node7.example.org", HostGroups: []string{"@big", "@all"}}
	for pattern, want := range map[string]bool{
		"all.q": true, "all*": true, "*": true, "b.q": false, "all.q@node7": true, "all.q@node7.example.org": true, "*@node8": false,
		"all.q@@big": true, "*@@b*": true, "all.q@@small": false, "@node7": true, "@@big": true, "@@small": false, "all.q|b.q": true, "!all.q": false, "": false,
	} {
		if got := MatchesQueue(c, pattern, "all.q"); got != want {
			t.Errorf("MatchesQueue(%q) = %t; want %t", pattern, got, want)
		}
	}
}

// FuzzMatches has the negation of an expression say the opposite, or neither
// of them be well-formed.
func FuzzMatches(f *testing.F) {
	for _, s := range []string{"a*", "(lx*|sol*)&*64*", `\*|[a-z]`, "!((a))", "a&|b"} {
		f.Add(s, "abc")
	}
	f.Fuzz(func(t *testing.T, expression, value string) {
		yes, no := matches(expression+"|"+expression, value, false), matches("!("+expression+")", value, false)
		if yes && no {
			t.Errorf("%q and its negation both match %q", expression, value)
		}
	})
}
