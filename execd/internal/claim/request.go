package claim

import (
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/slot"
)

// By is who uses a claim: the user whom the kernel names, or execd itself.
type By struct {
	UID     int
	Name    string
	Manager bool
}

// Request asks for a slot.
type Request struct {
	Slot     slot.ID // none: any that is willing, the lowest first
	Holder   string  // who is to have it: "fetch", or a user
	By       By
	Ad       *classad.Ad   // of what is to run; nil: not known
	Lease    time.Duration // 0: for ever
	Priority int
	NoWait   bool // refuse when something runs that would have to leave first
	// Preempt are claims of who asks on slots that were carved out of Slot: they are
	// given up to make room.
	Preempt []ID
	// LeftOvers asks for a claim on what is left of a partitionable slot, too.
	LeftOvers bool
}

// Granted is a claim that was made.
type Granted struct {
	ID      ID
	Slot    slot.ID
	Name    string
	Lease   time.Duration
	Waiting bool // for what runs to leave
	Again   bool // the claim is on disk already, with the ad of earlier work
	Ad      *classad.Ad
	// LeftOvers is the claim on the slot that this one was carved out of; nil: none.
	LeftOvers *Granted
}

// State is what has become of a claim.
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
	Graceful Speed = "graceful" // what runs keeps the time that the policy promises it
	Quick    Speed = "quick"    // what runs has the time to end by itself that it is given when it is vacated
	Fast     Speed = "fast"     // what runs is killed
)

// unknown refuses an id that is none, or another user's: both are told the same.
func unknown(id ID) error {
	return api.Refusef(api.RefusedUnknown, "no claim %v is known", id)
}
