package claim

import (
	"time"

	"paddock/classad"
	"paddock/execd/internal/slot"
)

// View is what a slot is like at a moment.
type View struct {
	Slot  slot.ID
	Name  string // slot3@host
	Type  string // Static, Partitionable or Dynamic
	Queue string

	Has slot.Resources // what is left of a partitionable slot; what a dynamic one has; zero of others

	State    string    // as in the slot's ad
	Activity string    // as in the slot's ad
	Since    time.Time // of State and Activity; zero: not known, of a plain slot

	Ad  *classad.Ad // of the slot, without secrets; nil of Views
	Job *classad.Ad // of the job that runs in it, as far as it is known; nil: none

	Holder string // "queue", "fetch", or a user; empty: nobody has claimed it
	ID     ID     // of the claim; zero: execd's own
	Made   time.Time
	Task   string // that runs, as 12.1; empty: none
	// Ending says that the processes of the task are gone, and only its end is still to
	// be told.
	Ending bool
	// Promised says that a job is still to be started under the claim: what was
	// preempted for it has not left, or Start was not called yet.
	Promised bool
	// Closed says that nothing at all may start: the queue is disabled or, which is
	// looked at where ads are wanted, START is false without a job.
	Closed bool
}

// Fetched reports whether the claim is that of fetched work.
func (v *View) Fetched() bool { return v.Holder == slot.FetchHolder }

// Eviction tells that a claim is over.
type Eviction struct {
	Slot    slot.ID
	Holder  string
	Reason  string
	Code    int // the same as a number: of a slot.Reason, or of a hold with Subcode; 0: none
	Subcode int
	Ad      *classad.Ad // of the slot when the claim was broken
	ID      ID          // without its secret where that is not known
	Job     int         // that was running or promised; 0: none
	Work    *classad.Ad // that was accepted last, of fetched work, or was claimed for; nil: not known
}
