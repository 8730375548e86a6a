package slot

import (
	"time"

	"paddock/classad"
)

// Event is what happens to a slot. Handle says what comes of it.
type Event interface{ happen(m *Machine) }

// Number names a claim of one Machine. Numbers rise and are never used again;
// zero is no claim. Whoever drives the Machine gives each number its secret id.
type Number uint64

// Kind is where a claim comes from.
type Kind uint8

// The kinds of claims.
const (
	Queue Kind = iota // a queue, of this host or another
	Fetch             // a hook that fetches work
)

// String returns the word for the kind.
func (k Kind) String() string {
	if k == Fetch {
		return "fetch"
	}
	return "queue"
}

// Job is a job, or a request for one, as a slot sees it.
type Job interface {
	// Ad returns the ad of the job as it is now, with its usage if it runs. It is
	// called only when an expression needs it. Jobs are compared, for which a
	// pointer is best.
	Ad() *classad.Ad
}

// fixed is a job whose ad does not change.
type fixed struct{ ad *classad.Ad }

func (f fixed) Ad() *classad.Ad { return f.ad }

// JobOf returns a job whose ad stays as it is.
func JobOf(ad *classad.Ad) Job { return fixed{ad} }

// The events. A Claim that is not among the slot's is refused, or ignored where
// nobody waits for an answer.
type (
	// Evaluate has no other meaning than that what policies depend on may have
	// changed, or that the time of Next has come.
	Evaluate struct{}

	// Match promises the slot to somebody who will present the claim.
	Match struct{ Claim Number }

	// Request asks for the slot. The answer is Accepted or Refused, or HeldBack and
	// one of the two later.
	Request struct {
		Claim  Number
		Holder string
		Job    Job
		Lease  time.Duration // without renewal; 0: for ever
	}

	// Gone tells that who waits for the answer to a Request no longer does.
	Gone struct{ Claim Number }

	// Activate starts a job under a claim. The answer is Accepted, Refused or
	// TryAgain.
	Activate struct {
		Claim Number
		Job   Job
	}

	// Deactivate ends the job and not the claim. The answer is Deactivated.
	Deactivate struct {
		Claim Number
		How   Deactivation
	}

	// Release gives a claim back. What runs under it is killed.
	Release struct{ Claim Number }

	// Renew begins the lease of a claim anew.
	Renew struct{ Claim Number }

	// Lost ends a claim whose holder does not know it any more, as the end of its
	// lease does.
	Lost struct{ Claim Number }

	// Suspend stops the job by command, and only Continue lets it go on.
	Suspend struct{ Claim Number }

	// Continue lets a job go on that was stopped by command.
	Continue struct{ Claim Number }

	// OnDemand stops the job for as long as work on demand runs beside it.
	OnDemand struct{ On bool }

	// Vacate takes the slot from whoever has it.
	Vacate struct {
		Fast   bool   // without asking the job to end
		Reason Reason // 0: ReasonVacateCommand
	}

	// Drain takes the slot out of service. Sent again it changes how.
	Drain struct {
		Speed    Speed
		Peaceful bool // what runs may finish, unless MaxJobRetirementTime is negative
		Shutdown bool // because execd ends
		// Start, if not nil, is in place of START for work that may still begin while
		// other slots of the host are not drained yet: up to Until.
		Start        *classad.Expr
		Until        time.Time
		OnCompletion OnCompletion
	}

	// AllDrained tells that nothing runs on the host any more.
	AllDrained struct{}

	// Undrain puts the slot in service again.
	Undrain struct{}

	// FinalUpdate tells that the job has ended and its shepherd not yet.
	FinalUpdate struct{ Claim Number }

	// Exited tells that the shepherd of the job is gone, or could not be started.
	Exited struct{ Claim Number }

	// SignalFailed tells that a shepherd could not be resumed.
	SignalFailed struct{ Claim Number }

	// FetchBegan tells that work is being looked for.
	FetchBegan struct{}

	// FetchEnded tells what was found. The answer for a Job is Accepted with the
	// claim that it has, or HeldBack with that and later Spawn, or Refused.
	FetchEnded struct{ Job Job } // nil: nothing

	// FetchStopped tells that nobody waits any more for what would be found.
	FetchStopped struct{}

	// NoWork tells that the work for which a claim was accepted will not come.
	NoWork struct{ Claim Number }

	// BenchmarksDone ends Benchmarking.
	BenchmarksDone struct{}

	// FillerStarted tells that work fills the slot.
	FillerStarted struct{}

	// FillerEnded tells that it and its children are gone.
	FillerEnded struct{}

	// Break says that the slot must not be used, as long as Text is not empty.
	Break struct{ Text string }
)

// Deactivation says how a job is ended by Deactivate.
type Deactivation uint8

// The ways to end a job.
const (
	Graceful Deactivation = iota // ask it, and kill it later
	Forcible                     // kill it
	JobDone                      // it has ended by itself
)

// Speed says how fast a slot is drained.
type Speed uint8

// The speeds of draining.
const (
	DrainGraceful Speed = iota // retirement and vacating take their time
	DrainQuick                 // no retirement
	DrainFast                  // kill at once
)

// String returns the word for the speed.
func (s Speed) String() string { return [...]string{"graceful", "quick", "fast"}[s] }

// OnCompletion is what follows when the host is drained.
type OnCompletion uint8

// What can follow when the host is drained.
const (
	DrainStay OnCompletion = iota
	DrainResume
	DrainExit
	DrainRestart
	DrainReconfigure
)

// String returns the word for what follows.
func (o OnCompletion) String() string {
	return [...]string{"nothing", "resume", "exit", "restart", "reconfigure"}[o]
}
