package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Verbs of claims. A claim is the right to use one slot: its owner may start
// one job after the other there, without a queue. Managers, operators and the
// users of the knob CLAIM_USERS may claim slots. ClaimReply has the id of the
// claim, without which nobody can use the slot; only the user who has claimed
// it, and managers, may use the id.
const (
	VerbClaim         = "claim"          // ClaimRequest -> ClaimReply
	VerbActivate      = "activate"       // ActivateRequest -> ActivateReply
	VerbDeactivate    = "deactivate"     // DeactivateRequest -> Permit
	VerbRelease       = "release"        // ClaimOrder -> ClaimState
	VerbRenew         = "renew"          // ClaimOrder -> ClaimState
	VerbClaimSuspend  = "claim-suspend"  // ClaimOrder -> ClaimState
	VerbClaimContinue = "claim-continue" // ClaimOrder -> ClaimState
	VerbClaimCheck    = "claim-check"    // ClaimOrder -> Permit
	VerbVacate        = "vacate"         // VacateRequest -> VacateReply; managers
	VerbSlots         = "slots"          // SlotsRequest -> SlotsReply
)

// ClaimID is the id of a claim with its secret, `<host>#boot#sequence#secret`. It
// prints as its public part alone. It travels over the socket as it is.
type ClaimID string

// String returns the public part, followed by three dots.
func (id ClaimID) String() string {
	i := strings.LastIndexByte(string(id), '#')
	if i < 0 {
		return "..."
	}
	return string(id[:i+1]) + "..."
}

// GoString is String, in quotes.
func (id ClaimID) GoString() string { return fmt.Sprintf("%q", id.String()) }

// Refusal says why a claim or an activation is refused, and who has ended an
// activation, in the numbers of HTCondor.
type Refusal int

// The refusals of claims and activations.
const (
	RefusedMessage      Refusal = 1026 // the message is not complete
	RefusedRequirements Refusal = 1027 // job and slot do not match: START, Requirements, resources
	RefusedTryAgain     Refusal = 1028 // what ran before is still being removed: try again soon
	RefusedWorkLife     Refusal = 1029 // the claim has had its time
	RefusedPreempted    Refusal = 1030 // somebody else is to have the slot
	RefusedBroken       Refusal = 1031 // the slot is out of order
	RefusedBusy         Refusal = 1032 // a job runs
	RefusedState        Refusal = 1033 // the slot is not in a state for it
	RefusedUnknown      Refusal = 1034 // no claim has this id, or it is not the caller's
	RefusedShutdown     Refusal = 1013 // execd is about to end, or the host is drained
	RefusedRank         Refusal = 1018 // what runs there ranks higher
)

// RefusalOf returns the number of a refusal; 0 for any other error.
func RefusalOf(err error) Refusal {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Refusal
	}
	return 0
}

// Refusef returns an error that refuses.
func Refusef(why Refusal, format string, args ...any) *Error {
	e := Errorf(CodeRejected, format, args...)
	e.Refusal = why
	switch why {
	case RefusedTryAgain:
		e.Code = CodeBusy
	case RefusedUnknown:
		e.Code = CodeNotFound
	}
	return e
}

// ClaimRequest asks for a slot.
type ClaimRequest struct {
	// Slot is empty for any slot that accepts the Ad, the lowest first. An Ad that is
	// expensive to evaluate is refused then, unless one of the first slots accepts it.
	Slot SlotID `json:"slot,omitempty"`
	// Ad describes what is to run, in old or new ClassAd syntax: START and RANK of
	// the slot are evaluated with it. Empty: nothing is known of it.
	Ad string `json:"ad,omitempty"`
	// Lease is after how many seconds without a renewal the claim is lost, and
	// what runs under it killed: at least 10. 0: what execd has configured.
	Lease int `json:"lease,omitempty"`
	// Priority is that of the claimant among those of the same rank: a greater one
	// preempts a smaller one. Only managers and operators may have one above 0.
	Priority int `json:"priority,omitempty"`
	// NoWait has the request refused if it would have to wait for what runs in
	// the slot.
	NoWait bool `json:"no_wait,omitempty"`
	// LeftOvers asks, where Slot is partitionable, for a claim on what is left of it as
	// well: while that lasts, for an hour at most, nobody else has slots carved there.
	LeftOvers bool `json:"left_overs,omitempty"`
	// Confirm has the claim end after ConfirmWithin unless it is activated or renewed by then:
	// its holder may not have heard that it was granted.
	Confirm bool `json:"confirm,omitempty"`
	// Preempt are claims of the caller's on slots that were carved out of Slot.
	// They are given up at once to make room, unless something runs there that
	// may still finish. If something has to be killed first, the request is
	// refused with RefusedTryAgain.
	Preempt []ClaimID `json:"preempt,omitempty"`
}

// MinLease is the shortest lease, in seconds.
const MinLease = 10

// ConfirmWithin is how long a claim lasts that ClaimRequest.Confirm waits for, in seconds.
const ConfirmWithin = 60

// ClaimReply is a claim.
type ClaimReply struct {
	ID ClaimID `json:"id"`
	// Waiting says that the slot is not the claimant's yet: what runs there is
	// being ended. The client sends VerbRenew with Await until it is false.
	Waiting bool   `json:"waiting,omitempty"`
	Slot    SlotID `json:"slot"`
	Name    string `json:"name"`         // slot3@host
	Lease   int    `json:"lease"`        // seconds
	Renew   int    `json:"renew"`        // renew each so many seconds
	Ad      string `json:"ad,omitempty"` // of the slot, in old syntax
	// LeftOvers is the claim on what is left of the slot that this one was carved out
	// of; nil: there is none. No job runs under it.
	LeftOvers *ClaimReply `json:"left_overs,omitempty"`
}

// ClaimOrder names a claim.
type ClaimOrder struct {
	ID ClaimID `json:"id"`
	// Await, of VerbRenew, keeps the reply back while the claim waits for its slot,
	// for some minutes at most; of VerbClaimCheck, while so much output of its jobs is on its
	// way that no other is started.
	Await bool `json:"await,omitempty"`
	// Keep, of VerbRelease, keeps the output of activations with a Carriage that waits to be
	// pulled, or is: its sandboxes are detached, each with a lease as long as the claim's that
	// RenewAllRequest renews. Otherwise it is discarded. A claim that ends otherwise than by a
	// release or with its lease keeps it, too.
	Keep bool `json:"keep,omitempty"`
}

// ClaimState is the state of a claim.
type ClaimState struct {
	State    string `json:"state"`    // of the slot
	Activity string `json:"activity"` // of the slot
	Waiting  bool   `json:"waiting,omitempty"`
	Job      int    `json:"job,omitempty"`   // the job that runs, or ran last
	Lease    int    `json:"lease,omitempty"` // seconds from now on
}

// ActivateRequest has a job run under a claim: either Ad or Request says what.
type ActivateRequest struct {
	ID ClaimID `json:"id"`
	// Ad is the job, in old or new ClassAd syntax: job(5).
	Ad string `json:"ad,omitempty"`
	// Request is the job as qsub would have put it together.
	Request *SubmitRequest `json:"request,omitempty"`
	// Sandbox makes the activation one that can be repeated and followed: repeated with the
	// same id it returns the same job, and never starts a second one. Empty: a repeated
	// activation is refused, as one of a claim that is in use.
	Sandbox SandboxID `json:"sandbox,omitempty"`
	// Home is the job by the numbers of the submit host. It needs Sandbox.
	Home *Home `json:"home,omitempty"`
	// Carriage has the files of the job travel. It needs Home.
	Carriage *Carriage `json:"carriage,omitempty"`
}

// ActivateReply names the job that runs.
type ActivateReply struct {
	Job    int    `json:"job"`
	Cursor string `json:"cursor"` // where to begin a WaitRequest for the job
}

// Deactivation says how a job is to be ended.
type Deactivation string

// The ways.
const (
	Graceful Deactivation = "graceful" // with the time that policy and job allow
	Forcible Deactivation = "forcible" // at once
	JobDone  Deactivation = "job-done" // not at all: the reply comes when it has ended
)

// DeactivateRequest ends the job of a claim, not the claim.
type DeactivateRequest struct {
	ID  ClaimID      `json:"id"`
	How Deactivation `json:"how"`
}

// Permit says whether a claim may be activated again. If not, the client should
// release it.
type Permit struct {
	Start         bool `json:"start"`
	StillCleaning bool `json:"still_cleaning,omitempty"` // of JobDone: the job had not ended after 10 s
	// Crowded, of VerbClaimCheck, says that so much output of the claim's jobs is on its way
	// that no other is started before some of it has arrived.
	Crowded bool `json:"crowded,omitempty"`
}

// VacateRequest takes slots from whoever has them.
type VacateRequest struct {
	Slots []SlotID `json:"slots,omitempty"` // none: all
	Fast  bool     `json:"fast,omitempty"`  // kill what runs at once
}

// VacateReply says from how many slots somebody is leaving.
type VacateReply struct {
	Vacated int `json:"vacated"`
}

// SlotsRequest asks for the slots of the host.
type SlotsRequest struct {
	Slot SlotID `json:"slot,omitempty"` // only that; empty: all
	Ads  bool   `json:"ads,omitempty"`  // with SlotStatus.Ad
	// Since is the Version of a reply: the next one is kept back until the slots are others,
	// for a minute at most. With ads, which change with the time, it is of little use.
	Since string `json:"since,omitempty"`
}

// SlotsReply has the slots by number.
type SlotsReply struct {
	Host    string       `json:"host"`
	Slots   []SlotStatus `json:"slots"`
	Version string       `json:"version"`
	Drain   bool         `json:"drain,omitempty"` // the host starts nothing
	// Queues says of which types the queues of the slots are, and in which states, as qstat -f
	// shows them. Revision is another one when the configuration has become another, so that
	// what was refused before may be accepted. Only another host is told.
	Queues   []SlotQueue `json:"queues,omitempty"`
	Revision int         `json:"revision,omitempty"`
}

// SlotQueue is a queue of slots.
type SlotQueue struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	States string `json:"states,omitempty"`
}

// SlotStatus is the state of a slot.
type SlotStatus struct {
	Slot     SlotID    `json:"slot"`
	Name     string    `json:"name"`
	Queue    string    `json:"queue"`
	State    string    `json:"state"`
	Activity string    `json:"activity"`
	Since    time.Time `json:"since,omitzero"`   // of the activity; zero: not known
	Holder   string    `json:"holder,omitempty"` // "queue", "fetch", or who has claimed it: a user, or user@host of another host
	Claim    string    `json:"claim,omitempty"`  // public id
	Job      string    `json:"job,omitempty"`    // 12.1
	From     string    `json:"from,omitempty"`   // the submit host of Job, with its numbers; empty: this host
	Ad       string    `json:"ad,omitempty"`     // in old syntax

	// Type is Partitionable for a slot that others are carved out of, Dynamic
	// for one that was carved, and empty for a static one. The numbers are what
	// is left of a partitionable slot, and what a dynamic one has.
	Type   string `json:"type,omitempty"`
	Cpus   int64  `json:"cpus,omitempty"`
	Memory int64  `json:"memory,omitempty"` // MB
	Disk   int64  `json:"disk,omitempty"`   // KiB
	GPUs   int64  `json:"gpus,omitempty"`
}

// Claim asks for a slot, and waits until it is the caller's unless the request says
// otherwise.
func (c *Client) Claim(ctx context.Context, r ClaimRequest) (*Claim, error) {
	reply := ClaimReply{}
	if err := c.Call(ctx, VerbClaim, &r, &reply); err != nil {
		return nil, err
	}
	claim := &Claim{client: c, Reply: reply}
	for claim.Reply.Waiting {
		state := ClaimState{}
		if err := c.Call(ctx, VerbRenew, &ClaimOrder{ID: reply.ID, Await: true}, &state); err != nil {
			if ctx.Err() != nil {
				// A claim that nobody waits for any more would keep others waiting.
				release, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				defer cancel()
				err = errors.Join(err, claim.Release(release))
			}
			return nil, err
		}
		claim.Reply.Waiting = state.Waiting
	}
	return claim, nil
}

// Claim is a slot that the program has claimed. It is to be renewed each
// Reply.Renew seconds, and released at the end.
type Claim struct {
	client *Client
	Reply  ClaimReply
}

// ClaimOf returns a claim whose id is known, as after a restart of the program.
func (c *Client) ClaimOf(id ClaimID) *Claim { return &Claim{client: c, Reply: ClaimReply{ID: id}} }

// LeftOvers returns the claim on what is left of the slot that this one was carved out
// of; nil: there is none. It is to be released, or ends with its lease.
func (c *Claim) LeftOvers() *Claim {
	if c.Reply.LeftOvers == nil {
		return nil
	}
	return &Claim{client: c.client, Reply: *c.Reply.LeftOvers}
}

func (c *Claim) order(ctx context.Context, verb string) (state ClaimState, err error) {
	err = c.client.Call(ctx, verb, &ClaimOrder{ID: c.Reply.ID}, &state)
	return state, err
}

// Activate starts a job. It is a job like any other: qstat shows it, qdel ends
// it, and qacct has its record.
func (c *Claim) Activate(ctx context.Context, r ActivateRequest) (ActivateReply, error) {
	r.ID = c.Reply.ID
	reply := ActivateReply{}
	err := c.client.Call(ctx, VerbActivate, &r, &reply)
	return reply, err
}

// Deactivate ends the job that runs.
func (c *Claim) Deactivate(ctx context.Context, how Deactivation) (Permit, error) {
	permit := Permit{}
	err := c.client.Call(ctx, VerbDeactivate, &DeactivateRequest{ID: c.Reply.ID, How: how}, &permit)
	return permit, err
}

// Check asks whether the claim may be activated again.
func (c *Claim) Check(ctx context.Context) (Permit, error) {
	permit := Permit{}
	err := c.client.Call(ctx, VerbClaimCheck, &ClaimOrder{ID: c.Reply.ID}, &permit)
	return permit, err
}

// Await returns when the claim may be activated as far as output of its jobs goes that is on
// its way: an activation before that is refused with RefusedTryAgain.
func (c *Claim) Await(ctx context.Context) error {
	for {
		permit := Permit{}
		err := c.client.Call(ctx, VerbClaimCheck, &ClaimOrder{ID: c.Reply.ID, Await: true}, &permit)
		if err != nil || !permit.Crowded {
			return err
		}
	}
}

// Renew begins the lease anew.
func (c *Claim) Renew(ctx context.Context) (ClaimState, error) { return c.order(ctx, VerbRenew) }

// Suspend stops the job until Continue.
func (c *Claim) Suspend(ctx context.Context) (ClaimState, error) {
	return c.order(ctx, VerbClaimSuspend)
}

// Continue lets a job go on that Suspend has stopped.
func (c *Claim) Continue(ctx context.Context) (ClaimState, error) {
	return c.order(ctx, VerbClaimContinue)
}

// Release gives the slot back. What runs there is killed, and output that was not pulled yet
// is discarded.
func (c *Claim) Release(ctx context.Context) error {
	_, err := c.order(ctx, VerbRelease)
	return err
}

// ReleaseKeeping is Release, and keeps output that was not pulled yet: see ClaimOrder.Keep.
func (c *Claim) ReleaseKeeping(ctx context.Context) error {
	return c.client.Call(ctx, VerbRelease, &ClaimOrder{ID: c.Reply.ID, Keep: true}, &ClaimState{})
}
