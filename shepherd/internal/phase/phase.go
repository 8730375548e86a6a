// Package phase is the plot of the shepherd, as two tables without code: After
// says which part of a run follows on which, Table what is done in which state
// on which event. The shepherd's main loop and the tests read them; the package
// imports nothing.
package phase

// Part is a part of a run: a child process of the shepherd, one after the other.
type Part uint8

// The parts, in their order.
const (
	Begin  Part = iota // before everything
	Token              // set_token_cmd, which sets the owner's AFS token
	Prolog             // the queue's or host's preparation
	PEStart
	Job
	Clean // the checkpoint interface's clean_command
	PEStop
	Epilog
	End
	parts
)

var partNames = [parts]string{
	Begin: "begin", Token: "set_token_cmd", Prolog: "prolog", PEStart: "pe_start", Job: "job", Clean: "ckpt_clean_command",
	PEStop: "pe_stop", Epilog: "epilog", End: "end",
}

// String returns the part's name as it is in config, trace and manual page.
func (p Part) String() string { return partNames[p] }

// Outcome is how a part ended, as far as the next one depends on it.
type Outcome uint8

// The outcomes.
const (
	Fine       Outcome = iota // it did what it should, or there is none
	Failing                   // it ran and failed
	NotStarted                // it could not be started
	Cancelled                 // somebody wanted the job's end, or to migrate, before the job ran
	Migrating                 // the job ended in order to go on elsewhere
	outcomes
)

// After holds the part that follows on a part with an outcome. What was begun
// is undone: pe_stop runs if pe_start was executed, and the epilog unless the
// prolog was not.
var After = [parts][outcomes]Part{
	//       Fine     Failing  NotStarted  Cancelled  Migrating
	Begin:   {Token, End, End, End, End},
	Token:   {Prolog, End, End, End, End},
	Prolog:  {PEStart, Epilog, End, Epilog, Epilog},
	PEStart: {Job, PEStop, Epilog, PEStop, PEStop},
	Job:     {Clean, PEStop, PEStop, PEStop, PEStop},
	Clean:   {PEStop, PEStop, PEStop, PEStop, PEStop},
	PEStop:  {Epilog, Epilog, Epilog, Epilog, Epilog},
	Epilog:  {End, End, End, End, End},
	End:     {End, End, End, End, End},
}

// State is what the shepherd knows for certain about its present child.
type State uint8

// The states, in the order a run passes through them; Between and Calling to
// Sweeping are passed once for each part. Connecting, Hearing and Parting are
// those of interactive jobs; others pass through Hearing at once.
const (
	Preparing  State = iota // the directory is being read and checked
	Between                 // no part is under way
	Connecting              // the client is being connected to, and then comes the first procedure
	Calling                 // the starter was told to go and has not become the procedure yet
	Working                 // a procedure runs
	Starting                // the starter was told to go and has not become the job yet
	Running                 // the job runs
	Hearing                 // the job was a daemon and has ended, how ended what it was wanted for is waited for
	Sweeping                // the job has ended, what it left behind is being killed
	Parting                 // the client is told how it ended, and waited for
	Done                    // nothing is left to do but to write the verdict and exit
	states
)

var stateNames = [states]string{
	Preparing: "preparing", Between: "between", Connecting: "connecting", Calling: "calling", Working: "working",
	Starting: "starting", Running: "running", Hearing: "hearing", Sweeping: "sweeping", Parting: "parting", Done: "done",
}

// String returns the state's name as it is in the manual page.
func (s State) String() string { return stateNames[s] }

// Event is something that was seen to happen, or that somebody asked for.
type Event uint8

// The events. Those that begin with Want come from people, by way of execd.
const (
	Ready         Event = iota // the directory is in order and everything is written that must be there first
	Refused                    // the directory is not in order: nothing of it can be started
	ProcedureNext              // the next part is a procedure
	ClientNext                 // the next part may be a procedure or the job, but the client is to be connected to first
	JobNext                    // the next part is the job
	FarewellNext               // there is no further part, but a client that is to be told
	NothingNext                // there is no further part
	Executed                   // the starter has become what it should
	Failed                     // the starter reported why it cannot
	Ended                      // the part's process (or the starter) has ended
	Told                       // all is heard that is to be heard of how the job has ended
	Empty                      // nothing that the job started is left
	Connected                  // the client is connected to, for the first time or again
	Lost                       // the client is gone and not waited for any longer
	Left                       // qrsh-session has ended, which stands for the client
	WantKill                   // the job is to end
	WantSignal                 // the job is to get a signal
	Late                       // a procedure has used up its time, or the client has
	Quiet                      // nothing has happened for a moment
	TimedOut                   // what is left of the job does not die
	events
)

var eventNames = [events]string{
	Ready: "ready", Refused: "refused", ProcedureNext: "procedure next", ClientNext: "client next", JobNext: "job next",
	FarewellNext: "farewell next", NothingNext: "nothing next", Executed: "executed", Failed: "failed", Ended: "ended", Told: "told",
	Empty: "empty", Connected: "client connected", Lost: "client lost", Left: "client left", WantKill: "kill wanted",
	WantSignal: "signal wanted", Late: "late", Quiet: "quiet", TimedOut: "timed out",
}

// String returns the event's name as it is in the manual page.
func (e Event) String() string { return eventNames[e] }

// Action is what the shepherd does about an event.
type Action uint8

// The actions.
const (
	Impossible Action = iota // our own mistake: reported as internal error
	Carry                    // carry on, nothing is to be done
	Advance                  // find the next part
	Call                     // tell the starter to become a procedure
	Connect                  // have qrsh-session connect to the client
	Forgo                    // record why there is no client, and begin nothing
	Cancel                   // note that the job is not wanted, and begin nothing
	Go                       // tell it to become the job
	Fail                     // record why something was not started
	Settle                   // tell execd that the start of the run is through with the processors
	Note                     // note that the job runs, and deliver what was held back
	Hold                     // keep a signal until the job runs
	Deliver                  // send a signal to every process of the job, once each, or do what is configured instead
	Miss                     // end the job that has lost its client, have it stopped, or let it be
	Greet                    // note that the client is there again
	Kill                     // kill every process of what is being started
	Stop                     // end a procedure: TERM, and KILL later
	Judge                    // take a procedure's exit, and find the next part
	Collect                  // take the job's exit
	Sweep                    // kill what it left behind
	Trim                     // make ready for a long wait without wake-ups
	Finish                   // write down how the job ended, and find the next part
	Abandon                  // name the processes that do not die, then finish
	Farewell                 // tell the client how it ended
	HangUp                   // kill qrsh-session
	actions
)

var actionNames = [actions]string{
	Impossible: "impossible", Carry: "carry on", Advance: "advance", Call: "call", Connect: "connect", Forgo: "forgo",
	Cancel: "cancel", Go: "go", Fail: "fail", Settle: "settle", Note: "note", Hold: "hold", Deliver: "deliver", Miss: "miss", Greet: "greet",
	Kill: "kill", Stop: "stop", Judge: "judge", Collect: "collect", Sweep: "sweep", Trim: "make ready to wait", Finish: "finish",
	Abandon: "abandon", Farewell: "say farewell", HangUp: "hang up",
}

// String returns the action's name as it is in the manual page.
func (a Action) String() string { return actionNames[a] }

// Step is a cell of the table: what to do, and the state afterwards. Actions
// that find the next part raise its event themselves.
type Step struct {
	Do   Action
	Next State
}

// Table holds a step for every state and the events that are possible in it.
// Ready and Refused are raised once, by the preparation; those about the next part
// only between parts; Executed and Failed only by a starter that was told to go; Ended
// once for each child; Told once the job's exit is taken; Empty and TimedOut only by
// the sweep; Late only while a procedure or the client is waited for; Left only at
// the end. Requests, and what the client does, may come at any time and are
// answered in every state.
var Table = [states][events]Step{
	Preparing: {
		Ready: {Advance, Between}, Refused: {Fail, Done},
		WantKill: {Hold, Preparing}, WantSignal: {Hold, Preparing},
		Quiet: {Carry, Preparing},
	},
	Between: {
		ProcedureNext: {Call, Calling}, ClientNext: {Connect, Connecting}, JobNext: {Go, Starting},
		FarewellNext: {Farewell, Parting}, NothingNext: {Carry, Done},
		Connected: {Greet, Between}, Lost: {Miss, Between},
		WantKill: {Hold, Between}, WantSignal: {Hold, Between},
		Quiet: {Carry, Between},
	},
	Connecting: {
		Connected: {Advance, Between}, Lost: {Forgo, Between},
		WantKill: {Cancel, Between}, WantSignal: {Hold, Connecting},
		Late: {Forgo, Between}, Quiet: {Carry, Connecting},
	},
	Calling: {
		Executed:  {Settle, Working},
		Failed:    {Fail, Calling}, // its process still has to end
		Ended:     {Judge, Between},
		Connected: {Greet, Calling}, Lost: {Miss, Calling}, // seen to when the job would start
		WantKill: {Stop, Calling}, WantSignal: {Hold, Calling},
		Late: {Stop, Calling}, Quiet: {Carry, Calling},
	},
	Working: {
		Ended:     {Judge, Between},
		Connected: {Greet, Working}, Lost: {Miss, Working},
		WantKill: {Stop, Working}, WantSignal: {Hold, Working},
		Late: {Stop, Working}, Quiet: {Carry, Working},
	},
	Starting: {
		Executed:  {Note, Running},
		Failed:    {Fail, Starting},
		Ended:     {Collect, Hearing},
		Connected: {Greet, Starting}, Lost: {Miss, Starting}, // seen to when it runs
		WantKill: {Kill, Starting}, WantSignal: {Hold, Starting}, // it may hang while it opens the job's files
		Quiet: {Carry, Starting},
	},
	Running: {
		Ended:     {Collect, Hearing},
		Connected: {Greet, Running}, Lost: {Miss, Running},
		WantKill: {Deliver, Running}, WantSignal: {Deliver, Running},
		Quiet: {Trim, Running},
	},
	Hearing: {
		Told:      {Sweep, Sweeping},
		Connected: {Carry, Hearing}, Lost: {Sweep, Sweeping},
		WantKill: {Sweep, Sweeping}, WantSignal: {Carry, Hearing}, // too late for a signal, and not worth the wait
		Late: {Sweep, Sweeping}, Quiet: {Carry, Hearing},
	},
	Sweeping: {
		Empty:     {Finish, Between},
		Connected: {Carry, Sweeping}, Lost: {Carry, Sweeping},
		WantKill: {Carry, Sweeping}, WantSignal: {Carry, Sweeping}, // being killed already; too late, as in Grid Engine
		Quiet: {Carry, Sweeping}, TimedOut: {Abandon, Between},
	},
	Parting: {
		Connected: {Carry, Parting}, Lost: {Carry, Parting}, Left: {Carry, Done},
		WantKill: {HangUp, Parting}, WantSignal: {Carry, Parting}, // the job is over: it is the wait that is not wanted
		Quiet: {Carry, Parting},
	},
	Done: {
		Connected: {Carry, Done}, Lost: {Carry, Done},
		WantKill: {Carry, Done}, WantSignal: {Carry, Done},
		Quiet: {Carry, Done},
	},
}

// On returns the step for an event in a state. An event that the table does not have
// cannot come about unless the shepherd itself is wrong.
func On(s State, e Event) Step {
	if step := Table[s][e]; step.Do != Impossible {
		return step
	}
	return Step{Impossible, Done}
}
