package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/account"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/spool"
)

// maxAd bounds the ad of a claim or an activation, in bytes as sent.
const maxAd = 1 << 20

// readAd parses an ad of either syntax; empty: nil.
func readAd(text string) (*classad.Ad, error) {
	var ad *classad.Ad
	var err error
	switch first := strings.TrimSpace(text); {
	case first == "":
		return nil, nil
	case len(text) > maxAd:
		return nil, api.Refusef(api.RefusedMessage, "the ad has %d bytes, at most %d are possible", len(text), maxAd)
	case first[0] == '[':
		ad, err = classad.ParseAd(text)
	default:
		ad, err = classad.ParseOld(text)
	}
	if err != nil {
		return nil, api.Refusef(api.RefusedMessage, "cannot read the ad: %v", err)
	}
	return ad, nil
}

// by returns the caller in the form of package claim.
func by(c job.Caller) claim.By {
	return claim.By{UID: c.UID, Name: c.Name, Host: c.Host, Manager: c.Manager}
}

// renewals is how often a claim should be renewed within a lease.
const renewals = 3

// claim gives the caller a slot.
func (s *Server) claim(_ context.Context, c job.Caller, req *api.ClaimRequest) (api.ClaimReply, error) {
	if err := s.Programs.MayClaim(c); err != nil {
		return api.ClaimReply{}, err
	}
	if c.Host != "" && s.Stages.Launcher.Foreign() {
		return api.ClaimReply{}, api.Refusef(api.RefusedRequirements, "shepherd_cmd names another shepherd, which would not end a job with its lease while execd is dead")
	}
	text, err := readAd(req.Ad)
	if err != nil {
		return api.ClaimReply{}, err
	}
	on, err := slotID(req.Slot)
	if err != nil {
		return api.ClaimReply{}, err
	}
	if len(req.Preempt) > api.MaxWords {
		return api.ClaimReply{}, api.Refusef(api.RefusedMessage, "%d claims are too many, at most %d are possible", len(req.Preempt), api.MaxWords)
	}
	var preempt []claim.ID
	for _, text := range req.Preempt {
		id, _, err := order(c, text)
		if err != nil {
			return api.ClaimReply{}, err
		}
		preempt = append(preempt, id)
	}
	g, err := s.Programs.Claim(c, claim.Request{
		Slot: on, By: by(c), Ad: text, Priority: req.Priority, NoWait: req.NoWait, LeftOvers: req.LeftOvers, Confirm: req.Confirm, Preempt: preempt,
	}, req.Lease)
	if err != nil {
		return api.ClaimReply{}, err
	}
	reply := replyOf(&g)
	if g.LeftOvers != nil {
		rest := replyOf(g.LeftOvers)
		reply.LeftOvers = &rest
	}
	return reply, nil
}

// replyOf returns a claim as it is sent to its holder.
func replyOf(g *claim.Granted) api.ClaimReply {
	seconds := int(g.Lease / time.Second)
	return api.ClaimReply{
		ID: api.ClaimID(g.ID.Reveal()), Slot: api.SlotID(g.Slot.String()), Name: g.Name, Waiting: g.Waiting, Lease: seconds, Renew: max(seconds/renewals, 1), Ad: g.Ad.OldString(),
	}
}

// slotID parses the name of a slot; empty: none.
func slotID(name api.SlotID) (slot.ID, error) {
	if name == "" {
		return slot.ID{}, nil
	}
	id, err := slot.ParseID(string(name))
	if err != nil {
		return id, api.Refusef(api.RefusedMessage, "%q is no name of a slot", api.Short(string(name)))
	}
	return id, nil
}

// slotIDs parses the names of slots.
func slotIDs(names []api.SlotID) ([]slot.ID, error) {
	ids := make([]slot.ID, len(names))
	for i, name := range names {
		id, err := slot.ParseID(string(name))
		if err != nil {
			return nil, api.Refusef(api.RefusedMessage, "%q is no name of a slot", api.Short(string(name)))
		}
		ids[i] = id
	}
	return ids, nil
}

// order parses the id of an order. An id that is malformed is no claim's.
func order(c job.Caller, text api.ClaimID) (claim.ID, claim.By, error) {
	id, err := claim.ParseID(string(text))
	if err != nil {
		return id, claim.By{}, api.Refusef(api.RefusedUnknown, "%v", err)
	}
	return id, by(c), nil
}

// stateOf returns a state as it is sent.
func stateOf(s claim.State) api.ClaimState {
	r := api.ClaimState{State: s.State, Activity: s.Activity, Waiting: s.Waiting, Lease: int(s.Lease / time.Second)}
	_, _ = fmt.Sscanf(s.Task, "%d", &r.Job)
	return r
}

// event returns a handler that sends an event to the slot of a claim.
func event(of func(slot.Number) slot.Event) func(*Server, context.Context, job.Caller, *api.ClaimOrder) (api.ClaimState, error) {
	return func(s *Server, _ context.Context, c job.Caller, req *api.ClaimOrder) (api.ClaimState, error) {
		id, by, err := order(c, req.ID)
		if err != nil {
			return api.ClaimState{}, err
		}
		state, err := s.Queue.Order(id, by, of)
		return stateOf(state), err
	}
}

var (
	releaseOnce   = event(func(n slot.Number) slot.Event { return slot.Release{Claim: n} })
	suspendClaim  = event(func(n slot.Number) slot.Event { return slot.Suspend{Claim: n} })
	continueClaim = event(func(n slot.Number) slot.Event { return slot.Continue{Claim: n} })
)

// release gives a slot back. When it returns, the claim does not survive a restart.
func (s *Server) release(ctx context.Context, c job.Caller, req *api.ClaimOrder) (api.ClaimState, error) {
	if id, by, err := order(c, req.ID); err == nil && req.Keep {
		if _, _, err := s.Queue.CheckClaim(id, by); err == nil { // it is the caller's
			s.Boxes.Keep(id.String())
		}
	}
	state, err := releaseOnce(s, ctx, c, req)
	if err == nil {
		s.Queue.Quiet()
	}
	return state, err
}

// renewOnce renews a lease.
func (s *Server) renewOnce(c job.Caller, req *api.ClaimOrder) (api.ClaimState, error) {
	id, by, err := order(c, req.ID)
	if err != nil {
		return api.ClaimState{}, err
	}
	state, err := s.Queue.Renew(id, by)
	return stateOf(state), err
}

// renew renews a lease. With Await it delays the reply while the claim waits for its
// slot.
func (s *Server) renew(ctx context.Context, c job.Caller, req *api.ClaimOrder) (api.ClaimState, error) {
	if !req.Await {
		return s.renewOnce(c, req)
	}
	id, by, err := order(c, req.ID)
	if err != nil {
		return api.ClaimState{}, err
	}
	ask, err := s.Queue.Waiting(id, by)
	if err != nil {
		return api.ClaimState{}, err
	}
	timer := time.NewTimer(longPoll)
	defer timer.Stop()
	for enough := false; ; {
		waits, changed, err := ask()
		if err != nil {
			return api.ClaimState{}, err
		}
		if !waits || enough {
			return s.renewOnce(c, req)
		}
		select {
		case <-changed:
		case <-timer.C:
			enough = true
		case <-s.stopping:
			enough = true
		case <-ctx.Done():
			// A claim whose client has gone must not keep others waiting.
			return s.giveUp(id, by)
		}
	}
}

// giveUp ends a claim whose client has gone while it waited for its slot.
func (s *Server) giveUp(id claim.ID, by claim.By) (api.ClaimState, error) {
	state, err := s.Queue.Order(id, by, func(n slot.Number) slot.Event { return slot.Gone{Claim: n} })
	return stateOf(state), err
}

// check answers whether a claim may be activated again. With Await it delays the reply while
// too much output is on its way.
func (s *Server) check(ctx context.Context, c job.Caller, req *api.ClaimOrder) (api.Permit, error) {
	id, by, err := order(c, req.ID)
	if err != nil {
		return api.Permit{}, err
	}
	timer := time.NewTimer(longPoll)
	defer timer.Stop()
	for enough := !req.Await; ; {
		permit, changed, err := s.Queue.CheckClaim(id, by)
		if err != nil || !permit.Crowded || enough {
			return permit, err
		}
		select {
		case <-changed:
		case <-timer.C:
			enough = true
		case <-s.stopping:
			enough = true
		case <-ctx.Done():
			enough = true
		}
	}
}

// deactivate ends the job of a claim.
func (s *Server) deactivate(ctx context.Context, c job.Caller, req *api.DeactivateRequest) (api.Permit, error) {
	how, ok := map[api.Deactivation]slot.Deactivation{
		api.Graceful: slot.Graceful, api.Forcible: slot.Forcible, api.JobDone: slot.JobDone,
	}[req.How]
	if !ok {
		return api.Permit{}, api.Refusef(api.RefusedMessage, "%q is no way to end a job", api.Short(string(req.How)))
	}
	id, by, err := order(c, req.ID)
	if err != nil {
		return api.Permit{}, err
	}
	answer, err := s.Queue.Deactivate(id, by, how)
	if err != nil {
		return api.Permit{}, err
	}
	select {
	case permit := <-answer:
		return permit, nil
	case <-ctx.Done():
		return api.Permit{}, nil
	}
}

// activate runs a job under a claim. It refuses as much as possible before there is a
// job, in HTCondor's order: the message first.
func (s *Server) activate(ctx context.Context, c job.Caller, req *api.ActivateRequest) (api.ActivateReply, error) {
	var none api.ActivateReply
	text, err := readAd(req.Ad)
	if err != nil {
		return none, err
	}
	if (text == nil) == (req.Request == nil) {
		return none, api.Refusef(api.RefusedMessage, "an activation has either an ad or a request")
	}
	id, who, err := order(c, req.ID)
	if err != nil {
		return none, err
	}
	of, known, err := activations{s}.enter(ctx, c, id, who, req)
	if err != nil {
		return none, err
	}
	if known != nil {
		return api.ActivateReply{Job: known.Job, Cursor: known.Cursor}, nil
	}
	var reply api.ActivateReply
	if of != nil {
		defer func() { s.Followed.Entered(of.Sandbox, reply.Job, reply.Cursor) }()
	}
	if err := s.Programs.MayClaim(c); err != nil { // the caller may have lost the right since the claim
		return none, err
	}
	if why := s.drained(); why != nil {
		return none, api.Refusef(api.RefusedShutdown, "the host is being drained")
	}
	place := s.Book.Now()
	j, err := s.Programs.Activate(ctx, c, id, who, text, req.Request, of)
	if err != nil {
		return none, err
	}
	reply = api.ActivateReply{Job: j.Number, Cursor: account.FormatCursor(place)}
	return reply, nil
}

// vacate takes slots from their holders.
func (s *Server) vacate(_ context.Context, c job.Caller, req *api.VacateRequest) (api.VacateReply, error) {
	ids, err := slotIDs(req.Slots)
	if err != nil {
		return api.VacateReply{}, err
	}
	n, err := s.Queue.Vacate(ids, req.Fast)
	if err == nil {
		s.Log.Info(fmt.Sprintf("execd: vacate: slots=%v fast=%t by=%s vacated=%d", ids, req.Fast, c.Name, n))
	}
	return api.VacateReply{Vacated: n}, err
}

// slots answers with the slots.
func (s *Server) slots(_ context.Context, c job.Caller, req *api.SlotsRequest) (api.SlotsReply, error) {
	reply := api.SlotsReply{Host: s.Host, Slots: []api.SlotStatus{}, Drain: s.drained() != nil}
	if c.Host != "" {
		reply.Queues, reply.Revision = s.Queue.Brief()
	}
	id, err := slotID(req.Slot)
	if err != nil {
		return reply, err
	}
	for _, v := range s.Queue.Views(id, req.Ads) {
		t := api.SlotStatus{
			Slot: api.SlotID(v.Slot.String()), Name: v.Name, Queue: v.Queue, State: v.State, Activity: v.Activity, Since: v.Since, Holder: v.Holder, Claim: v.ID.String(), Job: v.Task,
		}
		if id, err := spool.ParseID(v.Task); err == nil {
			t.From = s.Store.From(id.Job)
		}
		if v.Type != claim.Static {
			t.Type, t.Cpus, t.Memory, t.Disk, t.GPUs = v.Type, v.Has.Cpus, v.Has.Memory, v.Has.Disk, v.Has.GPUs
		}
		if v.Ad != nil {
			t.Ad = v.Ad.OldString() // without private attributes
		}
		reply.Slots = append(reply.Slots, t)
	}
	if !id.IsZero() && len(reply.Slots) == 0 {
		return reply, api.Errorf(api.CodeNotFound, "there is no slot %v", id)
	}
	return reply, nil
}
