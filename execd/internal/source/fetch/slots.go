package fetch

import (
	"time"

	"paddock/classad"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
)

// Slots is what fetched work needs of whoever has the slots. Its methods may be
// called from several goroutines; none of them calls back into this package
// before it returns, but by the channels and by Layer.Evicted, which take no lock
// that is held around a call of Slots.
type Slots interface {
	// Snapshot returns what a slot is like at this moment, with the ads if they are wanted, and
	// closed also while nothing at all is started; false: there is no such slot (any more). Of one
	// that is closed nothing is asked (REQ-HOOK-108).
	Snapshot(on slot.ID, ads bool) (claim.View, bool)
	// Asking is called when a hook is asked for work for a slot, and again when the answer
	// was dealt with: a slot that was carved out of another is not deleted in between.
	Asking(on slot.ID, asks bool)

	// Offer decides about work for a slot as the slot is at this moment (START,
	// Requirements, RANK, resources), and when it accepts has claimed the slot, or
	// carved one out of it, when it returns: what it accepted will find its place.
	// A running job that ranks lower may have to leave first. The error says why
	// the work is refused, in words for the log.
	//
	// Until Begin or Withdraw the claim is held for the holder "fetch", and nothing
	// but Evicted takes it away.
	//
	// What it returns is that claim, which is the same as before when an idle one is used
	// again, and the slot where the work is to be started: the one that was asked for, or
	// the dynamic one that was carved out of it. It has the lease of the work, 0 for none,
	// which begins at an uptime of the host; at its end what runs is killed at once, and
	// Evicted is told.
	Offer(on slot.ID, work *classad.Ad, lease, since time.Duration) (claim.Granted, error)
	// Prolong gives the claim with a public id another lease, as Offer does. After an error,
	// as when it cannot be written to disk, it has the one that it had.
	Prolong(public string, lease, since time.Duration) error
	// Begin has a job run, the only task of it, in a slot whose claim an Offer has
	// made or kept: at once, or when what was preempted for it is gone. From then on
	// the job is like any other. After an error it will not be started.
	Begin(on slot.ID, j *job.Job) error
	// Withdraw gives the claim of fetched work with a public id back: no more work
	// came, or the work could not be started. The slot goes over Preempting to Owner,
	// and Evicted is told why, with the code of a hold if there is one. It does nothing when
	// there is no such claim any more, or it is broken already, and reports whether there was
	// one.
	Withdraw(public string, why slot.Hold) bool
}

// Claims is where slots and claims are; what Slots says of locks holds for it, too.
type Claims interface {
	// List returns the slots that there are now, the dynamic ones among them, and a
	// channel that is closed when there are others.
	List() ([]slot.ID, <-chan struct{})
	// Changed returns a channel that is closed at the next change of the slot's
	// state, activity or claim, or when the slot goes. To miss nothing it is asked
	// for before Slots.Snapshot.
	Changed(on slot.ID) <-chan struct{}
	// Fetched returns the slots of the claims of fetched work, by public id. The number
	// of a slot is another one when the configuration has other slots before it.
	Fetched() map[string]slot.ID
}
