package api

import (
	"strings"
	"testing"
)

// An id names its claim and its counter, and no two are the same.
func TestSandboxID(t *testing.T) {
	claim := ClaimID("<node#1>#1763#7#secret")
	a, b := NewSandboxID(claim, 12), NewSandboxID(claim, 12)
	if a == b || strings.Contains(string(a), "secret") {
		t.Errorf("%s and %s", a, b)
	}
	of, counter, err := a.Parse()
	if err != nil || of != claim.String() || counter != 12 {
		t.Errorf("%s: %q, %d, %v", a, of, counter, err)
	}
}

func FuzzSandboxID(f *testing.F) {
	random := strings.Repeat("0f", 16)
	for _, text := range []string{"<h>#1#2#3#" + random, "<h>#1#2#03#" + random, "#####" + random, "<h> #1#2#3#" + random, "a#1#2#3#" + random[1:] + "g", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		claim, counter, err := SandboxID(text).Parse()
		if err != nil {
			return
		}
		again, n, err := NewSandboxID(ClaimID(strings.TrimSuffix(claim, "...")+"secret"), counter).Parse()
		if err != nil || again != claim || n != counter {
			t.Errorf("%q: %q, %d; %q, %d, %v", text, claim, counter, again, n, err)
		}
	})
}
