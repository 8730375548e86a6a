package api

import (
	"strings"
	"testing"
)

func TestCheckAddress(t *testing.T) {
	for _, s := range []string{"alice", "alice@example.org", "a.b-c+d=e_f@host-1.example", "_x", "1001"} {
		if err := CheckAddress(s); err != nil {
			t.Errorf("%q: %v; want it accepted", s, err)
		}
	}
	for _, s := range []string{
		"", "-s", "-OQueueDirectory=/tmp@x", "a@-oq", "a b", "a\nBcc: b", "a\rb", "a,b", "a;b", "|/bin/sh", "/etc/passwd", "a/b",
		"~/x", "a@b@c", "@", "a@", "@b", "a\x00b", "a\"b", "`id`", "$(id)", "<a@b>", "a!b", "a%b", ".a", "+folder", "ä@b",
		strings.Repeat("x", MaxAddress+1),
	} {
		if err := CheckAddress(s); err == nil || len(err.Error()) > 200 || strings.ContainsAny(err.Error(), "\n\r\x00") {
			t.Errorf("%q: %v; want one line that refuses it", s, err)
		}
	}
}
