package job

// State is where a task is, from evidence on disk. The wishes of people (that it be
// deleted) are kept apart, in Task.Want.
type State int

// The states of a task.
const (
	Pending State = iota // waits for a slot
	Started              // its start is recorded; a shepherd has it, or soon will
	Over                 // its outcome is recorded; its output is on its way, and its slot is free
	Ended                // its outcome is recorded; accounting and clean-up are outstanding
	Errored              // waits for somebody to look at it (Eqw)
	Gone                 // over: nothing is left to do
)

func (s State) String() string {
	return [...]string{"pending", "started", "over", "ended", "errored", "gone"}[s]
}

// Event is what is recorded of a task; the words stand in the record.
type Event string

// The events, in the order of an ordinary life.
const (
	EventStarted   Event = "started"   // before the shepherd is started
	EventWithdrawn Event = "withdrawn" // no shepherd was started after all: back to the queue
	EventWant      Event = "want"      // somebody asked for a signal, as qdel does
	EventOver      Event = "over"      // outcome, before the output is transferred
	EventStuck     Event = "stuck"     // the output cannot be delivered until somebody has looked
	EventUnstuck   Event = "unstuck"   // somebody has looked, and it is tried again
	EventEnded     Event = "ended"     // outcome, usage and the place of its accounting line
	EventDone      Event = "done"      // accounted and cleaned
	EventRequeued  Event = "requeued"  // accounted and cleaned, and to run again
	EventErrored   Event = "errored"   // not to be started until somebody has looked
	EventDeleted   Event = "deleted"   // deleted before it started
	EventCleared   Event = "cleared"   // somebody has looked, and it may start again
	EventSuspended Event = "suspended" // somebody stopped it, as qmod -sj does
	EventResumed   Event = "resumed"   // and let it go on
	EventUpdated   Event = "updated"   // what is known of its run on another host

	// These are of the job as a whole, whatever the states of its tasks.
	EventHeld     Event = "held"     // tasks are not to be started
	EventReleased Event = "released" // tasks may be started again
	EventAltered  Event = "altered"  // the request is another one from here on
	EventUnmet    Event = "unmet"    // a job that had to succeed for it did not
	EventReplied  Event = "replied"  // who it came from was told that it was accepted
	// EventSnapshot replaces all that came before: a record that had grown
	// long was made anew.
	EventSnapshot Event = "snapshot"
)

// changesWithin reports whether the event changes a task that stays in its state.
func (e Event) changesWithin(s State) bool {
	switch e {
	case EventWant, EventSuspended, EventResumed:
		return s == Started || s == Over || s == Ended
	case EventUpdated:
		return s == Started
	case EventStuck, EventUnstuck:
		return s == Over
	}
	return false
}

// next is the whole life of a task. What is not in it cannot happen, and a
// record that says so is damaged. An event that leads to the state the task is
// in is a repetition, written again because a sync had failed or since memory
// was ahead of the record, or a want that came too late.
var next = map[State]map[Event]State{
	Pending: {
		EventStarted:   Started,
		EventErrored:   Errored,
		EventDeleted:   Gone,
		EventWithdrawn: Pending,
		EventWant:      Pending,
		EventSuspended: Pending,
		EventResumed:   Pending,
		EventUpdated:   Pending,
		EventRequeued:  Pending,
		EventCleared:   Pending,
	},
	Started: {
		EventStarted:   Started,
		EventWithdrawn: Pending,
		EventWant:      Started,
		EventSuspended: Started,
		EventResumed:   Started,
		EventUpdated:   Started,
		EventOver:      Over,
		EventEnded:     Ended,
		EventDeleted:   Gone, // the write of its start had failed, and it was given back
	},
	Over: {
		EventWant:      Over, // asked for just before the end was known, or to end the transfer
		EventSuspended: Over,
		EventResumed:   Over,
		EventUpdated:   Over,
		EventOver:      Over,
		EventStuck:     Over,
		EventUnstuck:   Over,
		EventEnded:     Ended,
	},
	Ended: {
		EventWant:      Ended, // asked for just before the end was known
		EventSuspended: Ended,
		EventResumed:   Ended,
		EventUpdated:   Ended,
		EventUnstuck:   Ended, // asked for just before the transfer was deleted
		EventEnded:     Ended,
		EventDone:      Gone,
		EventRequeued:  Pending,
		EventErrored:   Errored,
	},
	Errored: {
		EventWant:      Errored,
		EventSuspended: Errored,
		EventResumed:   Errored,
		EventUpdated:   Errored,
		EventErrored:   Errored,
		EventCleared:   Pending,
		EventDeleted:   Gone,
	},
	Gone: {
		EventWant:      Gone,
		EventSuspended: Gone,
		EventResumed:   Gone,
		EventUpdated:   Gone,
		EventDone:      Gone,
		EventDeleted:   Gone,
	},
}
