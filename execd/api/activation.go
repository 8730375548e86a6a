package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Verbs for those who must know what becomes of a job that they have started under a claim,
// also when an answer was lost or an execd was restarted: see paddock-pool(7). They see the
// activations that they have made with a SandboxID, and no others.
const (
	VerbFollow   = "follow"    // FollowRequest -> FollowReply
	VerbRunState = "run-state" // RunStateRequest -> RunStateReply
	VerbAlterRun = "alter-run" // AlterRunRequest -> {}
)

// RefusedFenced refuses an activation whose SandboxID has been used or fenced. No job was
// started by it, and none ever will be. HTCondor has no number for it.
const RefusedFenced Refusal = 2001

// SandboxID names one activation of a claim, for ever: `<host>#boot#sequence#counter#random`,
// of which the claim's public id is the beginning. Whoever activates makes it. The counter
// grows from one activation of a claim to the next, and need not have all numbers. Execd
// refuses an id that it does not know if it has known or fenced one with as high a counter.
type SandboxID string

// NewSandboxID makes the id of an activation of a claim, which nobody can guess.
func NewSandboxID(claim ClaimID, counter uint64) SandboxID {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails
	public := strings.TrimSuffix(claim.String(), "...")
	return SandboxID(public + strconv.FormatUint(counter, 10) + "#" + hex.EncodeToString(random))
}

// maxSandboxID bounds a SandboxID, in bytes.
const maxSandboxID = 1024 + 64

// Parse returns the public id of the claim, as ClaimID.String has it, and the counter.
func (id SandboxID) Parse() (claim string, counter uint64, err error) {
	parts := strings.Split(string(id), "#")
	n := len(parts)
	bad := len(id) > maxSandboxID || n < 5 || len(parts[n-1]) != 32
	if !bad {
		_, notHex := hex.DecodeString(parts[n-1])
		counter, err = strconv.ParseUint(parts[n-2], 10, 64)
		bad = notHex != nil || err != nil || strconv.FormatUint(counter, 10) != parts[n-2]
	}
	for _, c := range []byte(id) {
		bad = bad || c <= ' ' || c >= 0x7f
	}
	if bad {
		return "", 0, fmt.Errorf("%q is no id of an activation", Short(string(id)))
	}
	return strings.Join(parts[:n-2], "#") + "#...", counter, nil
}

// Home is the job of which an activation is a run, by the numbers of the host where it was
// submitted. The job sees these numbers alone, in its environment and in the names of its
// output files. Only an execd may send it, for itself: its users cannot.
type Home struct {
	Job  int `json:"job"`
	Task int `json:"task"` // 1 for a job that is not an array
	Run  int `json:"run"`  // how often the task was started before
	// Array has the range of the tasks if the job is an array.
	Array Tasks `json:"array,omitzero"`
	// Host is the submit host. The executor sets it, from the certificate.
	Host string `json:"host,omitempty"`
}

// String returns how the job is shown on the executor: login1 12.1.
func (h *Home) String() string { return fmt.Sprintf("%s %d.%d", h.Host, h.Job, h.Task) }

// FollowRequest asks what has become of the caller's activations. An execd that asks for
// itself follows those that it has made with Home; a user, those that he has made without.
// The answer is kept back until there is news, for a minute at most.
type FollowRequest struct {
	// Cursor is that of the last reply: what it has had is not sent again. Empty, or of an
	// execd that has ended: all that was not acknowledged is sent.
	Cursor string `json:"cursor,omitempty"`
	// Acks acknowledge events, and each one those before it of the same activation. They are
	// forgotten then. One that means nothing any more does no harm.
	Acks []Ack `json:"acks,omitempty"` // at most MaxWords
}

// Ack acknowledges an event.
type Ack struct {
	Sandbox SandboxID `json:"sandbox"`
	Seq     uint64    `json:"seq"`
}

// FollowReply has what has happened, oldest first. It may be empty.
type FollowReply struct {
	Events []ActivationEvent `json:"events,omitempty"`
	Cursor string            `json:"cursor"`
	More   bool              `json:"more,omitempty"` // there is more already: the next request is not kept back
}

// These bound a FollowReply, and the activations of a caller that execd remembers: with so
// many whose end is not acknowledged another is refused with RefusedTryAgain.
const (
	MaxEvents      = 256
	MaxActivations = 1024
)

// ActivationKind says what has happened.
type ActivationKind string

// The kinds, in the order in which they may come. Of started, update, suspended and resumed
// only the last of each is kept for who does not ask, so that a kind may be left out; one
// that is later includes those before it.
const (
	ActivationStarted   ActivationKind = "started"   // the shepherd runs
	ActivationUpdate    ActivationKind = "update"    // Ad, by the clock of UPDATE_JOB_INFO
	ActivationSuspended ActivationKind = "suspended" // Ad
	ActivationResumed   ActivationKind = "resumed"   // Ad
	ActivationOver      ActivationKind = "over"      // End: no process is left, and the claim may be activated again; Outcome
	ActivationFinal     ActivationKind = "final"     // End and Ad: nothing is left of the run but this event, and a Carriage's sandbox that is being removed
	ActivationGone      ActivationKind = "gone"      // Reason: it was never started, or nothing is known of it any more
)

// ActivationEvent is one thing that has happened to an activation.
type ActivationEvent struct {
	Sandbox SandboxID      `json:"sandbox"`
	Kind    ActivationKind `json:"kind"`
	// Seq grows from event to event. A restart of execd sends what was not acknowledged with
	// other numbers; ActivationOver and what comes after it counts whatever its number is.
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	Job  int       `json:"job"` // as the executor counts
	// Ad has the attributes that have changed, in old syntax: at most MaxUpdate bytes.
	Ad     string         `json:"ad,omitempty"`
	End    *ActivationEnd `json:"end,omitempty"`
	Reason string         `json:"reason,omitempty"` // of ActivationGone
	// Outcome, of ActivationOver, is what the run has left; nil: nothing travels.
	Outcome *Outcome `json:"outcome,omitempty"`
}

// MaxUpdate bounds ActivationEvent.Ad, in bytes. Attributes that do not fit are left out.
const MaxUpdate = 16 << 10

// ActivationEnd is how a run has ended.
type ActivationEnd struct {
	Failed  int       `json:"failed,omitempty"` // as in accounting(5)
	Exit    int       `json:"exit,omitempty"`   // exit_status of accounting(5)
	Cause   string    `json:"cause"`            // as JOB_EXIT has it; "gone" if nothing is known of the end
	Reason  string    `json:"reason,omitempty"` // why it failed, in words
	Fate    string    `json:"fate"`             // done, requeue or error: what would become of a job of the executor
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// Accounting is the executor's line of accounting(5), by its own numbers: usage and times
	// are in it. Only ActivationFinal has it.
	Accounting string `json:"accounting,omitempty"`
}

// RunStateRequest asks what execd knows of an activation.
type RunStateRequest struct {
	ID      ClaimID   `json:"id"` // of the claim; without it an activation is known, but not fenced
	Sandbox SandboxID `json:"sandbox"`
	// Fence has an id that is not known refused from then on: that is durable when the answer
	// comes, and lasts as long as the claim, after which every id of it is refused.
	Fence bool `json:"fence,omitempty"`
}

// RunStateReply is what execd knows of an activation.
type RunStateReply struct {
	State RunState `json:"state"`
	Job   int      `json:"job,omitempty"` // as the executor counts
	// Fenced says that the id is not known, and that no job will ever be started by it.
	Fenced bool `json:"fenced,omitempty"`
	// Over says that the claim of an id that is not known is over: what ran by it may have
	// ended, and be forgotten.
	Over bool `json:"over,omitempty"`
	// Carried is how the files of an activation with a Carriage stand; nil: it has none.
	Carried *Carried `json:"carried,omitempty"`
}

// RunState is the state of an activation.
type RunState string

// The states. Another caller's activation is unknown.
const (
	RunUnknown   RunState = "unknown"
	RunStarting  RunState = "starting"
	RunRunning   RunState = "running"
	RunSuspended RunState = "suspended"
	RunOver      RunState = "over"
	RunFinal     RunState = "final"
	RunGone      RunState = "gone"
)

// AlterRunRequest gives the ad of an activation that was made with Home the attributes that
// its job has by now: all of them, whatever it had before, so that it may be repeated.
type AlterRunRequest struct {
	Sandbox    SandboxID `json:"sandbox"`
	Attributes []string  `json:"attributes"` // as in SubmitRequest
}

// AlterRun gives the ad of an activation the attributes that its job has by now.
func (c *Client) AlterRun(ctx context.Context, r AlterRunRequest) error {
	return c.Call(ctx, VerbAlterRun, &r, &struct{}{})
}

// Follow asks what has become of the caller's activations.
func (c *Client) Follow(ctx context.Context, r FollowRequest) (reply FollowReply, err error) {
	err = c.Call(ctx, VerbFollow, &r, &reply)
	return reply, err
}

// RunState asks what execd knows of an activation.
func (c *Client) RunState(ctx context.Context, r RunStateRequest) (reply RunStateReply, err error) {
	err = c.Call(ctx, VerbRunState, &r, &reply)
	return reply, err
}
