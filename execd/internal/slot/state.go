package slot

import (
	"fmt"
)

// State is what a slot is there for at the moment.
type State uint8

// The states of a slot.
const (
	Owner      State = iota // the host's owner uses it; nothing may be run
	Unclaimed               // offered
	Matched                 // promised to somebody who has not come yet
	Claimed                 // somebody has the right to use it
	Preempting              // what runs in it is being removed
	Backfill                // filled with work that anybody may displace
	Drained                 // taken out of service
	Deleted                 // a dynamic slot that is no more
	states     = int(Deleted) + 1
)

var stateNames = [states]string{"Owner", "Unclaimed", "Matched", "Claimed", "Preempting", "Backfill", "Drained", "Deleted"}

// String returns the word for the state, as slot ads have it.
func (s State) String() string {
	if int(s) < states {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", s)
}

// Activity is what goes on in a slot while it is in a state.
type Activity uint8

// The activities of a slot.
const (
	Idle         Activity = iota
	Benchmarking          // the host's speed is being measured
	Busy                  // a job runs
	Suspended             // its job is stopped, and may go on
	Retiring              // its job may finish, within limits
	Cleaning              // its job has ended, its shepherd not yet
	Vacating              // its job is being asked to end
	Killing               // its job is being killed
	activities   = int(Killing) + 1
)

var activityNames = [activities]string{"Idle", "Benchmarking", "Busy", "Suspended", "Retiring", "Cleaning", "Vacating", "Killing"}

// String returns the word for the activity, as slot ads have it.
func (a Activity) String() string {
	if int(a) < activities {
		return activityNames[a]
	}
	return fmt.Sprintf("Activity(%d)", a)
}

// Place is a state with an activity.
type Place struct {
	State    State
	Activity Activity
}

// String returns both words, as in Claimed/Busy.
func (p Place) String() string {
	if p.State == Deleted {
		return p.State.String()
	}
	return p.State.String() + "/" + p.Activity.String()
}

// allowed are the activities of each state.
var allowed = [states][]Activity{
	Owner:      {Idle},
	Unclaimed:  {Idle, Benchmarking},
	Matched:    {Idle},
	Claimed:    {Idle, Busy, Suspended, Retiring, Cleaning},
	Preempting: {Vacating, Killing},
	Backfill:   {Idle, Busy, Killing},
	Drained:    {Idle, Retiring},
	Deleted:    {Idle},
}
