package slot

import (
	"fmt"
)

// State says for whom a slot is at the moment.
type State uint8

// The states of a slot.
const (
	Owner      State = iota // the owner of the host uses it; no job may run
	Unclaimed               // offered
	Matched                 // promised to a claimant that has not come yet
	Claimed                 // a claimant has a claim on it
	Preempting              // its job is being removed
	Backfill                // running a backfill job, which gives way to any other
	Drained                 // taken out of service
	Deleted                 // a dynamic slot that was deleted
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

// Activity is what happens in a slot while it is in a state.
type Activity uint8

// The activities of a slot.
const (
	Idle         Activity = iota
	Benchmarking          // the speed of the host is being measured
	Busy                  // a job runs
	Suspended             // its job is suspended
	Retiring              // its job may finish, within limits
	Cleaning              // its job has ended, and its shepherd has not yet
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
