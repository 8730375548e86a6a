package claim

import (
	"time"

	"paddock/classad"
	"paddock/execd/internal/slot"
)

// View is the state of a slot at a moment.
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
	Lease  time.Duration // of the claim; 0: it lasts for ever
	Left   time.Duration // of Lease
	Task   string        // that runs, as 12.1; empty: none
	// Ending says that the processes of the task are gone, and only its end is still to
	// be reported.
	Ending bool
	// Promised says that a job is still to be started under the claim: the job that it
	// preempts has not left, or Start was not called yet.
	Promised bool
	// Full says that no job starts under the claim before output of others has arrived that
	// is on its way.
	Full bool
	// Closed says that no job can start: the queue is disabled or, if ads are wanted, START
	// is false without a job.
	Closed bool
}

// Fetched reports whether the claim is that of fetched work.
func (v *View) Fetched() bool { return v.Holder == slot.FetchHolder }

// Eviction reports that a claim is over.
type Eviction struct {
	Slot    slot.ID
	Holder  string
	Reason  string
	Code    int // the same as a number: of a slot.Reason, or of a hold with Subcode; 0: none
	Subcode int
	Ad      *classad.Ad // of the slot when the claim ended
	ID      ID          // without its secret if that is not known
	Job     int         // that was running or promised; 0: none
	Work    *classad.Ad // the ad of the last fetched work, or of the job that was claimed for; nil: not known
}
