package fetch

import (
	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/user"
)

// Slots is what fetched work needs of whoever has the slots. Its methods may be
// called from several goroutines; none of them calls back into this package
// before it returns, but by the channels and by Layer.Evicted, which take no lock
// that is held around a call of Slots.
type Slots interface {
	// List returns the slots that there are now, the dynamic ones among them, and
	// ListChanged a channel that is closed when List would say something else.
	// To miss nothing the channel is asked for first.
	List() []slot.ID
	ListChanged() <-chan struct{}

	// Snapshot returns what a slot is like at this moment; false: there is no such
	// slot (any more).
	Snapshot(on slot.ID) (Slot, bool)
	// Changed returns a channel that is closed at the next change of the slot's
	// state, activity or claim, or when the slot goes. To miss nothing it is asked
	// for before Snapshot.
	Changed(on slot.ID) <-chan struct{}

	// Asking tells that a hook is asked for work for a slot, and then that the answer
	// was dealt with: a slot that was carved out of another is not deleted in between.
	Asking(on slot.ID, asks bool)

	// Offer decides about work for a slot as the slot is at this moment (START,
	// Requirements, RANK, resources), and when it accepts has claimed the slot, or
	// carved one out of it, when it returns: what it accepted will find its place.
	// A running job that ranks lower may have to leave first. The error says why
	// the work is refused, in words for the log.
	//
	// Until Start or Withdraw the claim is held for the holder "fetch", and nothing
	// but Evicted takes it away.
	//
	// What it returns is that claim, which is the same as before when an idle one is used
	// again, and the slot where the work is to be started: the one that was asked for, or
	// the dynamic one that was carved out of it.
	Offer(on slot.ID, w *Work) (claim.Granted, error)
	// Start has a job run, the only task of it, in a slot whose claim an Offer has
	// made or kept: at once, or when what was preempted for it is gone. From then on
	// the job is like any other. After an error it will not be started.
	Start(on slot.ID, j *job.Job) error
	// Withdraw gives the claim of fetched work with a public id back: no more work
	// came, or the work could not be started. The slot goes over Preempting to Owner,
	// and Evicted is told. It does nothing when there is no such claim any more, or it
	// is broken already, and reports whether there was one.
	Withdraw(claim, reason string) bool
	// Expire ends such a claim as if its lease were over: what runs is killed at once,
	// and Evicted is told.
	Expire(claim, reason string)
	// Claims returns the slots of the claims of fetched work, by public id. The number
	// of a slot is another one when the configuration has other slots before it.
	Claims() map[string]slot.ID
}

// Slot is what a slot is like at a moment.
type Slot struct {
	ID       slot.ID
	State    string // as in the slot's ad: Owner, Unclaimed, Matched, Claimed, Preempting, Backfill, Drained
	Activity string // Idle, Busy, Suspended, Retiring, Cleaning, ...

	Ad  *classad.Ad // of the slot, without secrets
	Job *classad.Ad // of the job that runs in it; nil: none

	// Fetched says that the current claim is held by fetched work, and Claim is its
	// public id.
	Fetched bool
	Claim   string
	// Ending says that the processes of the job that runs are gone, and its hook
	// JOB_EXIT still tells of its end.
	Ending bool
	// Promised says that accepted work is still to be started here, and what was
	// preempted for it has not left. Between Offer and Start a free slot does not
	// say so.
	Promised bool
	// Closed says that nothing at all may start here: START is false without a
	// job, or the queue is disabled. Nothing is asked for then (REQ-HOOK-108).
	Closed bool
}

// Work is what a fetch hook has brought.
type Work struct {
	Ad      *classad.Ad // with its HookKeyword, and Owner, User and OwnerGroup as execd knows them
	Request *api.SubmitRequest
	Owner   *user.User
}
