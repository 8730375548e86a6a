package slot

import "time"

// Verb is what is to be done.
type Verb uint8

// What a Machine wants done.
const (
	Moved Verb = iota // nothing: the slot went From To, by a Row of the table

	Accepted    // answer a Request, an Activate or fetched work
	Refused     // answer it, with Reason and Text
	TryAgain    // answer an Activate that may be repeated soon
	HeldBack    // the answer comes later
	Deactivated // answer a Deactivate, with Again and StillCleaning

	NewClaim // there is a claim of this number, of which nobody knows the id yet
	Dropped  // there is no claim of this number any more
	Broken   // tell the holder that its claim is taken, or the evict hook; not done when the holder is lost

	Spawn // start the work for which the claim was accepted: Activate follows, or NoWork
	Ask   // look for more work for the claim

	SuspendJob // stop the job
	ResumeJob  // let it go on
	HoldJob    // what ends the job puts it on hold, with Code, Subcode and Text
	StopJob    // ask the job to end, which it has time for until Until
	KillJob    // kill the job
	KillFamily // kill the shepherd and everything it has started

	StartBenchmarks
	StopBenchmarks
	StartFiller
	KillFiller // it and its children; repeated

	DrainComplete // do what OnCompletion says
	Note          // a line for the log
	verbs         = int(Note) + 1
)

var verbNames = [verbs]string{
	"Moved", "Accepted", "Refused", "TryAgain", "HeldBack", "Deactivated", "NewClaim", "Dropped", "Broken",
	"Spawn", "Ask", "SuspendJob", "ResumeJob", "HoldJob", "StopJob", "KillJob", "KillFamily", "StartBenchmarks",
	"StopBenchmarks", "StartFiller", "KillFiller", "DrainComplete", "Note",
}

// String returns the name of the verb.
func (v Verb) String() string { return verbNames[v] }

// Action is one thing to be done, in the order in which Handle returns them.
type Action struct {
	Do     Verb
	Claim  Number // of what it is about
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
