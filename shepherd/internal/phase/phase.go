// Package phase is the plot of the shepherd: what it does in which state on
// which event, as one table without code. The shepherd's main loop and the
// tests read it; it imports nothing.
package phase

// State is what the shepherd knows for certain about its job.
type State uint8

// The states, in the order a job passes through them.
const (
	Preparing State = iota // the directory is being read and checked
	Starting               // the starter stage was told to go and has not become the job yet
	Running                // the job runs
	Sweeping               // the job has ended, what it left behind is being killed
	Done                   // nothing is left to do but to write the verdict and exit
	states
)

var stateNames = [states]string{
	Preparing: "preparing", Starting: "starting", Running: "running", Sweeping: "sweeping", Done: "done",
}

// String returns the state's name as it is in the manual page.
func (s State) String() string { return stateNames[s] }

// States returns all states.
func States() []State { return []State{Preparing, Starting, Running, Sweeping, Done} }

// Event is something that was seen to happen, or that somebody asked for.
type Event uint8

// The events. Those that begin with Want come from people, by way of execd.
const (
	Ready      Event = iota // the directory is in order and everything is written that must be there first
	Nothing                 // the directory asks for no job at all (script_file none)
	Refused                 // the directory is not in order: the job cannot be started
	Executed                // the starter stage has become the job
	Failed                  // the starter stage reported why it cannot become the job
	Ended                   // the job's process (or the starter stage) has ended
	Empty                   // nothing that the job started is left
	WantKill                // the job is to end
	WantSignal              // the job is to get a signal
	Quiet                   // nothing has happened for a moment
	TimedOut                // what is left of the job does not die
	events
)

var eventNames = [events]string{
	Ready: "ready", Nothing: "nothing to run", Refused: "refused", Executed: "executed", Failed: "failed",
	Ended: "ended", Empty: "empty", WantKill: "kill wanted", WantSignal: "signal wanted", Quiet: "quiet",
	TimedOut: "timed out",
}

// String returns the event's name as it is in the manual page.
func (e Event) String() string { return eventNames[e] }

// Events returns all events.
func Events() []Event {
	return []Event{
		Ready, Nothing, Refused, Executed, Failed, Ended, Empty, WantKill, WantSignal, Quiet, TimedOut,
	}
}

// Action is what the shepherd does about an event.
type Action uint8

// The actions.
const (
	Impossible Action = iota // our own mistake: reported as internal error
	Carry                    // carry on, nothing is to be done
	Go                       // tell the starter stage to become the job
	Fail                     // record why the job was not started
	Note                     // note that the job runs, and deliver what was held back
	Hold                     // keep a signal until the job runs
	Deliver                  // send a signal to every process of the job, once each
	Kill                     // kill every process of the job
	Collect                  // take the job's exit and usage, kill what it left behind
	Trim                     // make ready for a long wait without wake-ups
	Finish                   // write down how the job ended
	Abandon                  // name the processes that do not die, then finish
	actions
)

var actionNames = [actions]string{
	Impossible: "impossible", Carry: "carry on", Go: "go", Fail: "fail", Note: "note", Hold: "hold",
	Deliver: "deliver", Kill: "kill", Collect: "collect", Trim: "make ready to wait", Finish: "finish", Abandon: "abandon",
}

// String returns the action's name as it is in the manual page.
func (a Action) String() string { return actionNames[a] }

// Step is a cell of the table: what to do, and the state afterwards.
type Step struct {
	Do   Action
	Next State
}

// Table holds a step for every state and event. A cell that says Impossible
// cannot come about unless the shepherd itself is wrong: Ready, Nothing and
// Refused are raised once, by the preparation; Executed and Failed only by a
// starter stage that was told to go; Ended once for the one process; Empty and
// TimedOut only by the sweep. Requests may come at any time and are answered
// in every state.
var Table = [states][events]Step{
	Preparing: {
		Ready:      {Go, Starting},
		Nothing:    {Carry, Done},
		Refused:    {Fail, Done},
		Executed:   {Impossible, Done},
		Failed:     {Impossible, Done},
		Ended:      {Impossible, Done},
		Empty:      {Impossible, Done},
		WantKill:   {Hold, Preparing},
		WantSignal: {Hold, Preparing},
		Quiet:      {Carry, Preparing},
		TimedOut:   {Impossible, Done},
	},
	Starting: {
		Ready:      {Impossible, Done},
		Nothing:    {Impossible, Done},
		Refused:    {Impossible, Done},
		Executed:   {Note, Running},
		Failed:     {Fail, Starting}, // its process still has to end
		Ended:      {Collect, Sweeping},
		Empty:      {Impossible, Done},
		WantKill:   {Kill, Starting}, // it may hang while it opens the job's files
		WantSignal: {Hold, Starting},
		Quiet:      {Carry, Starting},
		TimedOut:   {Impossible, Done},
	},
	Running: {
		Ready:      {Impossible, Done},
		Nothing:    {Impossible, Done},
		Refused:    {Impossible, Done},
		Executed:   {Impossible, Done},
		Failed:     {Impossible, Done},
		Ended:      {Collect, Sweeping},
		Empty:      {Impossible, Done},
		WantKill:   {Kill, Running},
		WantSignal: {Deliver, Running},
		Quiet:      {Trim, Running},
		TimedOut:   {Impossible, Done},
	},
	Sweeping: {
		Ready:      {Impossible, Done},
		Nothing:    {Impossible, Done},
		Refused:    {Impossible, Done},
		Executed:   {Impossible, Done},
		Failed:     {Impossible, Done},
		Ended:      {Impossible, Done},
		Empty:      {Finish, Done},
		WantKill:   {Carry, Sweeping}, // being killed already
		WantSignal: {Carry, Sweeping}, // too late, as in Grid Engine
		Quiet:      {Carry, Sweeping},
		TimedOut:   {Abandon, Done},
	},
	Done: {
		Ready:      {Impossible, Done},
		Nothing:    {Impossible, Done},
		Refused:    {Impossible, Done},
		Executed:   {Impossible, Done},
		Failed:     {Impossible, Done},
		Ended:      {Impossible, Done},
		Empty:      {Impossible, Done},
		WantKill:   {Carry, Done},
		WantSignal: {Carry, Done},
		Quiet:      {Carry, Done},
		TimedOut:   {Impossible, Done},
	},
}

// On returns the step for an event in a state.
func On(s State, e Event) Step { return Table[s][e] }
