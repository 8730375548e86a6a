package spool_test

import (
	"os"
	"regexp"
	"testing"

	"paddock/spool"
)

// TestKnown finds every key that has a name in the source.
func TestKnown(t *testing.T) {
	source, err := os.ReadFile("config.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range regexp.MustCompile(`(?m)^\tKey\w+ += (ownPrefix \+ )?"(\w+)"`).FindAllSubmatch(source, -1) {
		key := string(m[2])
		if len(m[1]) > 0 {
			key = "paddock_" + key
		}
		switch key {
		case spool.KeyJobArg:
			key += "12"
		case spool.KeyConsumableJob:
			key = "h_vmem" + key
		}
		n++
		if !spool.Known(key) {
			t.Errorf("Known(%q) = false", key)
		}
	}
	if n < 150 {
		t.Errorf("found %d keys in the source; want at least 150", n)
	}
	for _, key := range []string{"", "some_new_key", "job_arg", "job_arg0x", "paddock_new", "x_is_consumable_job"} {
		if spool.Known(key) {
			t.Errorf("Known(%q) = true", key)
		}
	}
}
