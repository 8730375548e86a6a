package claim

import (
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/slot"
)

// By is the user of a claim, as named by the kernel or by another host, or execd itself.
type By struct {
	UID     int // here; negative: a host that asks for all its users
	Name    string
	Host    string // that has named him; empty: the kernel of this one
	Manager bool
}

// may reports whether somebody may use the claim of another: a host those of its users,
// and each user his own that he has from the same host.
func (b By) may(of *By) bool {
	return b.Manager || b.Host == of.Host && (b.UID == of.UID || b.UID < 0 && b.Host != "")
}

// Request asks for a claim on a slot.
type Request struct {
	Slot     slot.ID // zero: any slot that is willing, the lowest first
	Holder   string  // who is to have it: "fetch", a user, or user@host
	By       By
	Ad       *classad.Ad   // of the job that is to run; nil: not known
	Lease    time.Duration // 0: for ever
	Priority int
	NoWait   bool // refuse if a job would have to leave first
	// Preempt are claims of the same user on dynamic slots carved out of Slot, which are
	// given up to make room.
	Preempt []ID
	// LeftOvers asks for a claim on what is left of a partitionable slot, too.
	LeftOvers bool
	// Confirm has the claim end after api.ConfirmWithin unless it is used by then.
	Confirm bool
}

// Granted is a claim that was made.
type Granted struct {
	ID      ID
	Slot    slot.ID
	Name    string
	Lease   time.Duration
	Waiting bool // for the current job to leave
	Again   bool // the claim is on disk already, with the ad of earlier work
	Ad      *classad.Ad
	// LeftOvers is the claim on the slot that this one was carved out of; nil: none.
	LeftOvers *Granted
}

// State is the state of a claim.
type State struct {
	State, Activity string
	Waiting         bool
	Lease           time.Duration // that is left; 0: for ever
	Task            string
}

// Speed is how fast a host is drained.
type Speed string

// The speeds.
const (
	Graceful Speed = "graceful" // a job keeps the retirement time that the policy promises
	Quick    Speed = "quick"    // a job only has the vacate time
	Fast     Speed = "fast"     // jobs are killed
)

// unknown refuses an id that does not exist or is another user's, in the same words.
func unknown(id ID) error {
	return api.Refusef(api.RefusedUnknown, "no claim %v is known", id)
}
