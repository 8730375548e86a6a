package slot

import "fmt"

// Reason says who or what ended an activation or a claim, or why one was
// refused. Its number is HTCondor's vacate code; those below 1000 are codes of
// holds and none of these.
type Reason int

// The reasons. Zero is none.
const (
	ReasonJobPolicyVacate    Reason = 1000 + iota // a policy of the job
	ReasonSystemPolicyVacate                      // a policy of the queue
	ReasonAgentException                          // the holder's agent failed
	ReasonNotStarted                              // the job could not be started
	ReasonUserVacate                              // a user asked for it
	ReasonRequeue                                 // the job goes back to its queue
	ReasonCannotActivate                          // no longer used
	ReasonShepherdError                           // the shepherd failed
	ReasonReconnectFailed                         // the lease of the claim is over: the agent did not find the shepherd again
	ReasonDeactivated                             // the holder ended the activation
	ReasonVacateCommand                           // an administrator asked for it
	ReasonPreemptPolicy                           // PREEMPT was true
	ReasonDaemonException                         // execd failed
	ReasonShutdown                                // execd ends
	ReasonDraining                                // the host is drained
	ReasonCoalesce                                // slots were joined
	ReasonHibernate                               // the host goes to sleep
	ReasonReleased                                // the holder released the claim
	ReasonRankPreempted                           // somebody of higher RANK came
	ReasonPriorityPreempted                       // somebody of better priority came
	ReasonVirtualMachine                          // the virtual machine failed
	ReasonContainer                               // the container failed
	ReasonQueueVacate                             // the queue asked for it
	ReasonRemoved                                 // the job was removed
	ReasonScratchDirectory                        // no directory for the job
	ReasonCheckpointTaken                         // a checkpoint was taken

	ReasonBadMessage    // the message was not complete
	ReasonNotWilling    // the requirements of slot and job are not met
	ReasonStillRemoving // the last job is still being removed; try again
	ReasonWorkLifeOver  // the claim is too old for another job
	ReasonPreempted     // the claim is being taken away
	ReasonBrokenSlot    // the slot is broken
	ReasonNotIdle       // something runs already
	ReasonNotClaimed    // the slot is not claimed
	ReasonUnknownClaim  // there is no such claim
	ReasonOldClaim      // the claim was replaced
	ReasonUnhealthy     // the host is not well
	ReasonRehomed       // the job continues elsewhere
)

const (
	noReason Reason = 0
	reasons         = int(ReasonRehomed-ReasonJobPolicyVacate) + 1
)

// HoldByPolicy is the code of the hold of a job for which WANT_HOLD is true.
const HoldByPolicy = 21

var reasonWords = [reasons]string{
	"a policy of the job", "a policy of the queue", "the agent of the holder failed", "the job could not be started",
	"a user asked for it", "the job goes back to its queue", "the claim cannot be activated", "the shepherd failed",
	"its lease is over", "the holder ended the job", "an administrator asked for it", "PREEMPT is true",
	"execd failed", "execd shuts down", "the host is being drained", "slots are being joined", "the host goes to sleep",
	"the holder released the claim", "a job of higher RANK came", "a job of better priority came",
	"the virtual machine failed", "the container failed", "the queue asked for it", "the job was removed",
	"the directory of the job could not be made", "a checkpoint was taken", "the message is not complete",
	"the requirements of slot and job are not met", "the last job is still being removed", "the claim is too old for another job",
	"the claim is being taken away", "the slot is broken", "the slot is not idle", "the slot is not claimed",
	"there is no such claim", "the claim was replaced", "the host is not healthy", "the job continues elsewhere",
}

// String returns words for a reason.
func (r Reason) String() string {
	if i := int(r - ReasonJobPolicyVacate); i >= 0 && i < reasons {
		return reasonWords[i]
	}
	if r == noReason {
		return "no reason"
	}
	return fmt.Sprintf("reason %d", int(r))
}
