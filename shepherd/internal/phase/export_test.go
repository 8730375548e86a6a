package phase

// Parts returns all parts.
func Parts() []Part { return []Part{Begin, Token, Prolog, PEStart, Job, Clean, PEStop, Epilog, End} }

var outcomeNames = [outcomes]string{
	Fine: "fine", Failing: "failed", NotStarted: "not started", Cancelled: "cancelled", Migrating: "migrating",
}

// String returns the outcome's name as it is in the manual page.
func (o Outcome) String() string { return outcomeNames[o] }

// Outcomes returns all outcomes.
func Outcomes() []Outcome { return []Outcome{Fine, Failing, NotStarted, Cancelled, Migrating} }

// States returns all states.
func States() []State {
	return []State{Preparing, Between, Connecting, Calling, Working, Starting, Running, Hearing, Sweeping, Parting, Done}
}

// Events returns all events.
func Events() []Event {
	return []Event{
		Ready, Refused, ProcedureNext, ClientNext, JobNext, FarewellNext, NothingNext, Executed, Failed, Ended, Told, Empty,
		Connected, Lost, Left, WantKill, WantSignal, Late, Quiet, TimedOut,
	}
}
