package phase_test

import (
	"slices"
	"testing"

	"paddock/shepherd/internal/phase"
)

// possible reports whether an event may come in a state, so that no cell of the table is
// forgotten.
func possible(s phase.State, e phase.Event) bool {
	in := func(states ...phase.State) bool { return slices.Contains(states, s) }
	switch e {
	case phase.Ready, phase.Refused:
		return in(phase.Preparing)
	case phase.ProcedureNext, phase.ClientNext, phase.JobNext, phase.FarewellNext, phase.NothingNext:
		return in(phase.Between)
	case phase.Executed, phase.Failed:
		return in(phase.Calling, phase.Starting)
	case phase.Ended:
		return in(phase.Calling, phase.Working, phase.Starting, phase.Running)
	case phase.Told:
		return in(phase.Hearing)
	case phase.Empty, phase.TimedOut:
		return in(phase.Sweeping)
	case phase.Connected, phase.Lost:
		return !in(phase.Preparing) // a client that there is may come and go
	case phase.Left:
		return in(phase.Parting)
	case phase.Late:
		return in(phase.Connecting, phase.Calling, phase.Working, phase.Hearing)
	case phase.WantKill, phase.WantSignal, phase.Quiet:
		return true // who wants something may want it at any time
	}
	return false
}

// TestTable walks every pair of state and event.
func TestTable(t *testing.T) {
	used := map[phase.Action]bool{}
	for _, s := range phase.States() {
		for _, e := range phase.Events() {
			step := phase.On(s, e)
			used[step.Do] = true
			if got := step.Do != phase.Impossible; got != possible(s, e) {
				t.Errorf("%v, %v: possible: %v; want %v", s, e, got, !got)
			}
			if step.Do == phase.Impossible && step.Next != phase.Done {
				t.Errorf("%v, %v: an impossible event leads to %v; want done", s, e, step.Next)
			}
			if step.Next < s && step.Next != phase.Between {
				t.Errorf("%v, %v: goes back to %v", s, e, step.Next)
			}
			if s == phase.Done && step.Next != phase.Done {
				t.Errorf("done, %v: leads to %v", e, step.Next)
			}
		}
	}
	for a := phase.Impossible; a <= phase.HangUp; a++ {
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
	var states, events, actions, parts, outcomes []string
	for _, p := range phase.Parts() {
		parts = append(parts, p.String())
	}
	for _, o := range phase.Outcomes() {
		outcomes = append(outcomes, o.String())
	}
	for _, s := range phase.States() {
		states = append(states, s.String())
	}
	for _, e := range phase.Events() {
		events = append(events, e.String())
	}
	for a := phase.Impossible; a <= phase.HangUp; a++ {
		actions = append(actions, a.String())
	}
	check("part", parts)
	check("outcome", outcomes)
	if len(parts) != len(phase.After) || len(outcomes) != len(phase.After[0]) {
		t.Errorf("%d parts and %d outcomes are listed; the table has %d and %d",
			len(parts), len(outcomes), len(phase.After), len(phase.After[0]))
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

// TestAfter walks every way through the parts.
func TestAfter(t *testing.T) {
	for _, p := range phase.Parts() {
		for _, o := range phase.Outcomes() {
			if next := phase.After[p][o]; next <= p && p != phase.End {
				t.Errorf("%v, %v: goes back to %v", p, o, next)
			}
		}
	}
	// What was begun is undone, and nothing else.
	var walk func(p phase.Part, done map[phase.Part]phase.Outcome)
	walk = func(p phase.Part, done map[phase.Part]phase.Outcome) {
		if p == phase.End {
			executed := func(p phase.Part) bool {
				o, came := done[p]
				return came && o != phase.NotStarted
			}
			_, stop := done[phase.PEStop]
			if executed(phase.PEStart) && !stop {
				t.Errorf("pe_start was executed and pe_stop is not: %v", done)
			}
			_, epilog := done[phase.Epilog]
			if executed(phase.Prolog) != epilog {
				t.Errorf("prolog executed: %v, epilog: %v: %v", executed(phase.Prolog), epilog, done)
			}
			if _, job := done[phase.Job]; job && (done[phase.Prolog] != phase.Fine || done[phase.PEStart] != phase.Fine) {
				t.Errorf("the job is run: %v", done)
			}
			return
		}
		for _, o := range phase.Outcomes() {
			done[p] = o
			walk(phase.After[p][o], done)
			delete(done, p)
		}
	}
	walk(phase.Begin, map[phase.Part]phase.Outcome{})
}
