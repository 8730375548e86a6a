package slot

import (
	"flag"
	"fmt"
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

// words returns places in the shortest form: a state alone when all its
// activities are meant.
func words(places []Place) string {
	var b strings.Builder
	for i := 0; i < len(places); {
		s, n := places[i].State, 0
		for i+n < len(places) && places[i+n].State == s {
			n++
		}
		if b.Len() > 0 {
			b.WriteString(" or ")
		}
		b.WriteString(s.String())
		if n < len(allowed[s]) || n == 1 && s != Deleted {
			for j, p := range places[i : i+n] {
				b.WriteString([]string{"/", ", "}[min(j, 1)] + p.Activity.String())
			}
		}
		i += n
	}
	return b.String()
}

// diagram is the states and activities, with the rows that lead from one to
// another.
const diagram = `          1             7
   Owner ---> Unclaimed ---> Backfill
     ^   <---  |     |        |    |
     |    2    | 6   | 5      | 32 | 31
     |         v     |        |    |
     |  8   Matched <|--------+    |
     |<-------  |    |             |
     |        9 |    |             |
     |          v    v             |
     |          Claimed <----------+
     |           |   ^
     |  10 17 18 |   | 23 24
     |           v   |
     +-------- Preempting
       22 25

   30: Backfill to Owner        33: within Drained
   34, 35: Drained to Owner     36: Owner to Drained
   3, 4: within Unclaimed       37: Unclaimed to Drained

   Within Claimed:

         11         12               12
   Idle ----> Busy ----> Cleaning ------> Idle
              ^  ^
        13 19 |  | 14 15
              v  v
       Retiring  Suspended
              ^  ^
              +--+ 16 20

   Within Preempting:        Within Backfill:

              21                    26 27      28
   Vacating ----> Killing    Idle <------> Busy ----> Killing
                               ^                        |
                               +------------------------+ 29
`

// WriteTable prints the diagram and the table of transitions as mdoc, for slot(7).
func WriteTable(w io.Writer) error {
	var b strings.Builder
	b.WriteString(".Bd -literal\n" + diagram + ".Ed\n.Bl -tag -width 4n\n")
	for i := range Table {
		r := &Table[i]
		number := fmt.Sprint(r.Number)
		if r.Number == DeleteRow {
			number = "\\(en"
		}
		fmt.Fprintf(&b, ".It %s\n.Em %s\nto\n.Em %s :\n%s.\n", number, words(r.From), words(r.To), r.Trigger)
	}
	b.WriteString(".El\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// WritePolicy prints the expressions of a policy with their defaults as mdoc, for
// slot(7).
func WritePolicy(w io.Writer) error {
	var b strings.Builder
	b.WriteString(".Bl -column \"MaxJobRetirementTime\" \"LastBenchmark == 0\" \"forms\" -offset 4n\n.It Em Name Ta Em Default Ta Em Forms\n")
	for x, k := range knobs {
		forms := ""
		if x < byUniverse {
			forms = "_VANILLA _VM"
		}
		fmt.Fprintf(&b, ".It Li %s Ta %s Ta %s\n", k.name, k.def, forms)
	}
	b.WriteString(".El\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteReasons prints the codes of reasons as mdoc, for slot(7).
func WriteReasons(w io.Writer) error {
	var b strings.Builder
	b.WriteString(".Bl -tag -width 4n -compact\n")
	for r := ReasonJobPolicyVacate; r <= ReasonRehomed; r++ {
		fmt.Fprintf(&b, ".It %d\n%s\n", int(r), r)
	}
	b.WriteString(".El\n")
	_, err := io.WriteString(w, b.String())
	return err
}
