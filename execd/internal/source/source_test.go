package source

import "testing"

// A source is found by the holder of a claim, that of all users by any name, and the
// queue where nobody holds one.
func TestOf(t *testing.T) {
	type fetching struct{ Queue }
	type programs struct{ Queue }
	sources := Sources{"fetch": fetching{}, Users: programs{}}
	for holder, want := range map[string]Source{"": Queue{}, "fetch": fetching{}, "alice": programs{}} {
		if got := sources.Of(holder); got != want {
			t.Errorf("%q: %T; want %T", holder, got, want)
		}
	}
	if got := (Sources{}).Of("alice"); got != (Queue{}) {
		t.Errorf("with no sources: %T; want the queue", got)
	}
}
