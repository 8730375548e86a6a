package phase_test

import (
	"testing"

	"paddock/shepherd/internal/phase"
)

// TestTable walks every pair of state and event.
func TestTable(t *testing.T) {
	used := map[phase.Action]bool{}
	for _, s := range phase.States() {
		for _, e := range phase.Events() {
			step := phase.On(s, e)
			used[step.Do] = true
			// A cell that was forgotten is the zero step, back to Preparing.
			if step == (phase.Step{}) {
				t.Errorf("%v, %v: no step", s, e)
			}
			if step.Do == phase.Impossible && step.Next != phase.Done {
				t.Errorf("%v, %v: an impossible event leads to %v; want done", s, e, step.Next)
			}
			if step.Next < s {
				t.Errorf("%v, %v: goes back to %v", s, e, step.Next)
			}
			if s == phase.Done && step.Next != phase.Done {
				t.Errorf("done, %v: leads to %v", e, step.Next)
			}
			// Who wants something may want it at any time.
			if (e == phase.WantKill || e == phase.WantSignal || e == phase.Quiet) && step.Do == phase.Impossible {
				t.Errorf("%v, %v: impossible", s, e)
			}
		}
	}
	for a := phase.Impossible; a <= phase.Abandon; a++ {
		if !used[a] {
			t.Errorf("action %v is never taken", a)
		}
	}
}

// TestNames sees that everything has a name of its own.
func TestNames(t *testing.T) {
	check := func(kind string, names []string) {
		seen := map[string]bool{}
		for i, n := range names {
			if n == "" || seen[n] {
				t.Errorf("%s %d has the name %q", kind, i, n)
			}
			seen[n] = true
		}
	}
	var states, events, actions []string
	for _, s := range phase.States() {
		states = append(states, s.String())
	}
	for _, e := range phase.Events() {
		events = append(events, e.String())
	}
	for a := phase.Impossible; a <= phase.Abandon; a++ {
		actions = append(actions, a.String())
	}
	check("state", states)
	check("event", events)
	check("action", actions)
	if len(states) != len(phase.Table) || len(events) != len(phase.Table[0]) {
		t.Errorf("%d states and %d events are listed; the table has %d and %d",
			len(states), len(events), len(phase.Table), len(phase.Table[0]))
	}
}

// TestReachable sees that every state is reached and every one leads to the end.
func TestReachable(t *testing.T) {
	leads := func(from phase.State) map[phase.State]bool {
		seen := map[phase.State]bool{from: true}
		for again := true; again; {
			again = false
			for s := range seen {
				for _, e := range phase.Events() {
					step := phase.On(s, e)
					if step.Do != phase.Impossible && !seen[step.Next] {
						seen[step.Next], again = true, true
					}
				}
			}
		}
		return seen
	}
	from := leads(phase.Preparing)
	for _, s := range phase.States() {
		if !from[s] {
			t.Errorf("%v is never reached", s)
		}
		if !leads(s)[phase.Done] {
			t.Errorf("%v does not lead to the end", s)
		}
	}
}
