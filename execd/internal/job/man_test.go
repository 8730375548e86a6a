package job

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// events are the rows of the table in spool(5), in the order of state.go.
var events = []Event{
	EventStarted, EventWithdrawn, EventWant, EventSuspended, EventResumed, EventUpdated, EventOver, EventStuck, EventUnstuck, EventEnded, EventDone, EventRequeued, EventErrored, EventCleared, EventDeleted,
}

// printNext prints the table next as spool(5) has it: a row for each event, a
// column for each state.
func printNext() string {
	var b strings.Builder
	row := func(first string, cells func(State) string) {
		line := fmt.Sprintf("%-11s", first)
		for s := Pending; s <= Gone; s++ {
			line += fmt.Sprintf("%-9s", cells(s))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	row("", State.String)
	for _, e := range events {
		row(string(e), func(s State) string {
			if to, ok := next[s][e]; ok {
				return to.String()
			}
			return "-"
		})
	}
	return b.String()
}

// TestStatesInManual holds the table of states against its print in spool(5).
func TestStatesInManual(t *testing.T) {
	const page = "../../../man/man5/spool.5"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, got, ok := strings.Cut(string(text), "\n.\\\" begin states")
	_, got, _ = strings.Cut(got, "\n.Bd ")
	_, got, _ = strings.Cut(got, "\n")
	got, _, ok2 := strings.Cut(got, ".Ed\n.\\\" end states")
	if !ok || !ok2 {
		t.Fatalf("%s has no table of states between its two comments", page)
	}
	if diff := cmp.Diff(printNext(), got); diff != "" {
		t.Errorf("%s and the table next differ (-table +page):\n%s", page, diff)
	}
	for s, row := range next {
		for e := range row {
			if !strings.Contains(printNext(), "\n"+string(e)+" ") {
				t.Errorf("event %q of state %v is not printed", e, s)
			}
		}
	}
}
