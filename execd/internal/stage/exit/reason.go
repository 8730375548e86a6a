package exit

// Word is how an activation ended, as the hook for the end of a job is told. Of more
// than one the first counts.
type Word string

// The words.
const (
	WordHold   Word = "hold"   // somebody holds the job, or a policy does
	WordRemove Word = "remove" // it is deleted, by somebody or for a limit
	WordEvict  Word = "evict"  // any other end that was asked for: its slot is needed, or it is to run again
	WordExit   Word = "exit"   // by itself
)

// Code says how an activation ended, in the numbers by which a shepherd tells
// its queue what to do with the job.
type Code int

// The codes.
const (
	Exited     Code = 100
	Killed     Code = 102
	CoreDumped Code = 103
	Requeue    Code = 107
	NotStarted Code = 108
	Hold       Code = 112
)

// The codes of a hold, HTCondor's. That of a policy is slot.HoldByPolicy.
const (
	HoldByUser     = 1
	HoldByJob      = 3 // it has exited with what its policy calls a failure
	HoldCommand    = 6 // it could not be executed
	HoldStream     = 7 // standard output could not be opened
	HoldOutput     = 12
	HoldInput      = 13
	HoldDirectory  = 14 // the working directory could not be entered
	HoldHook       = 19 // a hook that prepares the job said so
	HoldPreScript  = 43
	HoldPostScript = 44
)
