package slot

import (
	"time"

	"paddock/classad"
)

// Event is what happens to a slot, for Handle.
type Event interface{ happen(m *Machine) }

// Number names a claim of one Machine. Numbers rise and are never used again; zero is no
// claim. The caller of the Machine gives each number its secret id.
type Number uint64

// Kind is the origin of a claim.
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
	// called only when an expression needs it. Jobs are compared, so they are best
	// pointers.
	Ad() *classad.Ad
}

// fixed is a job whose ad does not change.
type fixed struct{ ad *classad.Ad }

func (f fixed) Ad() *classad.Ad { return f.ad }

// JobOf returns a job whose ad does not change.
func JobOf(ad *classad.Ad) Job { return fixed{ad} }

// The events. A Claim that is not one of the slot's is refused, or ignored if nobody
// waits for an answer.
type (
	// Evaluate says that something on which policies depend may have changed, or that
	// the time of Next has come.
	Evaluate struct{}

	// Match promises the slot to a claimant, who will present the claim.
	Match struct{ Claim Number }

	// Request asks for the slot. The answer is Accepted or Refused, or HeldBack and
	// one of the two later.
	Request struct {
		Claim  Number
		Holder string
		Job    Job
		Lease  time.Duration // without renewal; 0: for ever
	}

	// Gone says that nobody waits for the answer to a Request any more.
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

	// Release gives a claim back. The job that runs under it is killed.
	Release struct{ Claim Number }

	// Renew gives a claim a lease, of which something is left, in the place of the one that
	// it had. One that waits for the slot has all of it left when it gets that.
	Renew struct {
		Claim Number
		Lease time.Duration // 0: for ever
		Left  time.Duration
	}

	// Settle ends that nothing happens by time or policy, see Saved.
	Settle struct{}

	// Lost ends a claim whose holder no longer knows it, as the end of its lease does.
	Lost struct{ Claim Number }

	// Suspend suspends the job by command. Only Continue resumes it.
	Suspend struct{ Claim Number }

	// Continue resumes a job that was suspended by command.
	Continue struct{ Claim Number }

	// OnDemand suspends the job while work on demand runs beside it.
	OnDemand struct{ On bool }

	// Vacate takes the slot from its holder.
	Vacate struct {
		Fast   bool   // without asking the job to end
		Reason Reason // 0: ReasonVacateCommand
	}

	// Drain takes the slot out of service. Sent again it changes how.
	Drain struct {
		Speed    Speed
		Peaceful bool // the job may finish, unless MaxJobRetirementTime is negative
		Shutdown bool // because execd ends
		// Start, if not nil, replaces START for jobs that may still start, until Until,
		// while other slots of the host are not drained yet.
		Start        *classad.Expr
		Until        time.Time
		OnCompletion OnCompletion
	}

	// AllDrained says that all slots of the host are drained.
	AllDrained struct{}

	// Undrain puts the slot back in service.
	Undrain struct{}

	// FinalUpdate says that the job has ended, and its shepherd has not yet.
	FinalUpdate struct{ Claim Number }

	// Exited says that the shepherd of the job is gone, or could not be started.
	Exited struct{ Claim Number }

	// SignalFailed says that a shepherd could not be resumed.
	SignalFailed struct{ Claim Number }

	// FetchBegan says that a hook has been called for work.
	FetchBegan struct{}

	// FetchEnded has the work that was found. The answer for a Job is Accepted with its
	// claim, or HeldBack with its claim and later Spawn, or Refused.
	FetchEnded struct{ Job Job } // nil: nothing

	// FetchStopped says that nobody waits for the work any more.
	FetchStopped struct{}

	// NoWork says that the work for which a claim was accepted will not come.
	NoWork struct{ Claim Number }

	// BenchmarksDone ends Benchmarking.
	BenchmarksDone struct{}

	// BackfillStarted says that the backfill job runs.
	BackfillStarted struct{}

	// BackfillEnded says that the backfill job and its children are gone.
	BackfillEnded struct{}

	// Break says that the slot must not be used while Text is not empty.
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
	DrainGraceful Speed = iota // the job keeps its retirement and its vacate time
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
