package slot

import "time"

// Verb is the kind of an Action.
type Verb uint8

// The kinds of actions.
const (
	Moved Verb = iota // nothing: the slot went From To, by a Row of the table

	Accepted    // answer a Request, an Activate or fetched work
	Refused     // the other answer, with Reason and Text
	TryAgain    // answer an Activate that may be repeated soon
	HeldBack    // the answer comes later
	Deactivated // answer a Deactivate, with Again and StillCleaning

	NewClaim // there is a claim with this number, which has no id yet
	Dropped  // the claim with this number is over
	Broken   // tell the holder, or the evict hook, that the claim is taken; not if the holder is lost

	Spawn // start the work for which the claim was accepted: Activate follows, or NoWork
	Ask   // look for more work for the claim

	SuspendJob // suspend the job
	ResumeJob  // resume the job
	HoldJob    // put the job on hold when it ends, with Code, Subcode and Text
	StopJob    // ask the job to end by Until
	KillJob    // kill the job
	KillFamily // kill the shepherd and everything it has started

	StartBenchmarks
	StopBenchmarks
	StartBackfillJob
	KillBackfillJob // it and its children; repeated

	DrainComplete // do what OnCompletion says
	Note          // a line for the log
	verbs         = int(Note) + 1
)

var verbNames = [verbs]string{
	"Moved", "Accepted", "Refused", "TryAgain", "HeldBack", "Deactivated", "NewClaim", "Dropped", "Broken",
	"Spawn", "Ask", "SuspendJob", "ResumeJob", "HoldJob", "StopJob", "KillJob", "KillFamily", "StartBenchmarks",
	"StopBenchmarks", "StartBackfillJob", "KillBackfillJob", "DrainComplete", "Note",
}

// String returns the name of the verb.
func (v Verb) String() string { return verbNames[v] }

// Action is one thing to be done. Actions are done in the order in which Handle returns
// them.
type Action struct {
	Do     Verb
	Claim  Number // that it is about
	Kind   Kind   // of that claim
	Reason Reason // of Moved, Refused, TryAgain, Broken, StopJob and KillJob
	Text   string // of Refused, HoldJob and Note

	From, To Place // of Moved
	Row      int   // of Moved

	Until time.Time // of StopJob: when the job is killed

	Code, Subcode int // of HoldJob

	Again         bool         // of Deactivated: the claim may be activated again
	StillCleaning bool         // of Deactivated: its shepherd is not gone yet
	OnCompletion  OnCompletion // of DrainComplete
}
