// Package knobtest has knobs for tests. Only tests import it.
package knobtest

import (
	"testing"

	"paddock/execd/internal/conf/knob"
)

// Parse returns the knobs of a text of hooks.conf, of which nothing may be wrong.
func Parse(t testing.TB, text string) *knob.Set {
	t.Helper()
	set, problems := knob.Parse("hooks.conf", text)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set
}
