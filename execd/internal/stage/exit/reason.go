package exit

// Why is what was asked of a job before it ended. More than one may be.
type Why struct {
	Hold   bool // somebody holds it, or a policy does
	Remove bool // it is deleted, by somebody or by a policy
	Evict  bool // any other end that was asked for: its slot is needed, its queue suspended, it is to run again
}

// Requested reports whether its end was asked for at all.
func (w Why) Requested() bool { return w.Hold || w.Remove || w.Evict }

// Word returns the argument of the hook for the end of a job.
func (w Why) Word() string {
	switch {
	case w.Hold:
		return "hold"
	case w.Remove:
		return "remove"
	case w.Evict:
		return "evict"
	}
	return "exit"
}

// Code says how an activation ended, in the numbers by which a supervisor tells
// its queue what to do with the job.
type Code int

// The codes. A controller tells the queue; see Code.Fate.
const (
	Exited        Code = 100
	Killed        Code = 102
	CoreDumped    Code = 103
	Requeue       Code = 107
	NotStarted    Code = 108
	Hold          Code = 112
	Remove        Code = 113
	MissedTime    Code = 114
	ExitedLast    Code = 115 // and the claim closes
	NoReconnect   Code = 116
	Exception     Code = 4
	LogFailure    Code = 44
	NoMemory      Code = 105
	Usage         Code = 106
	BadStatus     Code = 109
	ExecFailed    Code = 110
	RequeueShared Code = 117 // what jobs share could not be transferred
	HoldShared    Code = 118
	NotMapped     Code = 119 // no local account
)

// CodeOf returns the code of a job's end. Started says whether it ran.
func CodeOf(w Why, started bool, s Status) Code {
	switch {
	case w.Hold || w.Remove:
		return Killed
	case w.Evict:
		return Requeue
	case s.Core:
		return CoreDumped
	case !started:
		return NotStarted
	}
	return Exited
}

// Fate is what a queue does with a job.
type Fate int

// The fates.
const (
	Leaves  Fate = iota // it is over
	Runs                // it runs again
	IsHeld              // it waits for somebody to look
	Deletes             // it goes, whatever it was
)

// Fate returns what a queue does with a job that ended so. A code that it does
// not know is an exception: the job runs again.
func (c Code) Fate() Fate {
	switch c {
	case Exited, Killed, CoreDumped, ExitedLast:
		return Leaves
	case Hold, MissedTime, HoldShared, NotMapped:
		return IsHeld
	case Remove:
		return Deletes
	}
	return Runs
}

// SupervisorCode is how the end of an activation's own machinery is told to what
// has the slot.
type SupervisorCode int

// The codes.
const (
	Normal         SupervisorCode = 0
	GeneralFailure SupervisorCode = 1
	LostAgent      SupervisorCode = 2 // its lease ended
	Crashed        SupervisorCode = 3
	VolumeStuck    SupervisorCode = 15
	ProcessStuck   SupervisorCode = 16 // a process of the job cannot be killed
	BrokenOnDemand SupervisorCode = 17
	GroupLocked    SupervisorCode = 18
)

// BreaksSlot reports whether nothing may be started in the slot until somebody
// has looked.
func (c SupervisorCode) BreaksSlot() bool { return c >= VolumeStuck && c <= GroupLocked }
