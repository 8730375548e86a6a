package slot

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of slot(7) anew")

// TestPage holds the tables against those of slot(7).
func TestPage(t *testing.T) {
	page := filepath.Join("..", "..", "..", "man", "man7", "slot.7")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	fresh := string(text)
	for what, write := range map[string]func(io.Writer) error{"transitions": WriteTable, "policy": WritePolicy, "reasons": WriteReasons} {
		begin, end := `.\" begin `+what+"\n", `.\" end `+what+"\n"
		before, rest, ok := strings.Cut(fresh, begin)
		old, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("no comments around %s", what)
		}
		var b strings.Builder
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if old != b.String() && !*update {
			t.Errorf("the %s of slot.7 are not those of the code: go generate ./execd/internal/slot", what)
		}
		fresh = before + begin + b.String() + end + after
	}
	if *update && fresh != string(text) {
		if err := os.WriteFile(page, []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPlaces holds the states and activities against the list of slot(7).
func TestPlaces(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "man", "man7", "slot.7"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stateNames[:Deleted] {
		if !strings.Contains(string(text), "\n.It Em "+name+"\n") {
			t.Errorf("slot.7 does not say what %s is", name)
		}
	}
	for _, name := range activityNames {
		if !strings.Contains(string(text), "\n.It Em "+name+"\n") {
			t.Errorf("slot.7 does not say what %s is", name)
		}
	}
}
