package server

import (
	"context"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/follow"
	"paddock/execd/internal/job"
)

// activations answers what is asked of activations that are followed.
type activations struct{ *Server }

// ofActivations makes a method of activations a handleFunc.
func ofActivations[Req, Rep any](f func(activations, context.Context, job.Caller, *Req) (Rep, error)) handleFunc {
	return handler(func(s *Server, ctx context.Context, c job.Caller, req *Req) (Rep, error) {
		return f(activations{s}, ctx, c, req)
	})
}

// followerOf returns as whom a caller follows activations: a host that asks for itself those
// that it has made with the numbers of its own jobs, and a user the others.
func followerOf(c job.Caller) follow.Who { return follow.Who{Host: c.Host, User: c.Name} }

// enter begins an activation that is followed; nil: it is not. If it was begun before, it is
// known.
func (s activations) enter(ctx context.Context, c job.Caller, id claim.ID, by claim.By, req *api.ActivateRequest) (*api.Activation, *follow.Known, error) {
	refuse := func(format string, args ...any) (*api.Activation, *follow.Known, error) {
		return nil, nil, api.Refusef(api.RefusedMessage, format, args...)
	}
	who, h := followerOf(c), req.Home
	switch {
	case req.Sandbox == "" && h == nil && req.Carriage == nil:
		return nil, nil, nil
	case req.Sandbox == "":
		return refuse("a job of another host needs an id of its activation")
	case h == nil:
	case c.Host == "":
		return nil, nil, api.Errorf(api.CodeDenied, "denied: only another host may say whose job it is")
	case h.Job < 1 || h.Task < 1 || h.Run < 0 || h.Array != (api.Tasks{}) && (h.Array.Last > api.MaxTask || h.Array.Step < 1 || !h.Array.Has(h.Task)):
		return refuse("%d.%d is no job", h.Job, h.Task)
	default:
		home := *h
		home.Host, h, who.User = c.Host, &home, ""
	}
	if err := checkCarriage(req); err != nil {
		return refuse("%v", err)
	}
	of, _, err := req.Sandbox.Parse()
	if err != nil {
		return refuse("%v", err)
	}
	if of != id.String() {
		return refuse("activation %q is not one of this claim", api.Short(string(req.Sandbox)))
	}
	a := &api.Activation{Sandbox: req.Sandbox, Host: who.Host, User: who.User, Home: h, Carriage: req.Carriage}
	state, _, err := s.Followed.State(ctx, who, req.Sandbox)
	if err != nil {
		return nil, nil, err
	}
	if state == api.RunUnknown {
		// The claim of another keeps nothing, and tells nothing.
		if _, _, err := s.Queue.CheckClaim(id, by); err != nil {
			return nil, nil, err
		}
	}
	known, err := s.Followed.Enter(ctx, a)
	return a, known, err
}

// followPoll is how long a request for events is kept back. Who hears nothing for three times
// as long knows that the host is gone.
const followPoll = time.Minute

// follow answers what has become of the caller's activations.
func (s activations) follow(ctx context.Context, c job.Caller, req *api.FollowRequest) (reply api.FollowReply, err error) {
	if len(req.Acks) > api.MaxWords {
		return reply, api.Refusef(api.RefusedMessage, "%d acknowledgements are too many, at most %d are possible", len(req.Acks), api.MaxWords)
	}
	defer s.Followed.Attend(followerOf(c))()
	enough := time.NewTimer(followPoll)
	defer enough.Stop()
	for {
		var changed <-chan struct{}
		if reply, changed = s.Followed.Look(followerOf(c), req); len(reply.Events) > 0 {
			return reply, nil
		}
		req.Cursor, req.Acks = reply.Cursor, nil
		if !s.awaitChange(ctx, changed, enough.C) {
			return reply, nil
		}
	}
}

// state answers what is known of an activation, and fences it.
func (s activations) state(ctx context.Context, c job.Caller, req *api.RunStateRequest) (reply api.RunStateReply, err error) {
	var id claim.ID
	var by claim.By
	if req.Fence {
		if id, by, err = order(c, req.ID); err != nil {
			return reply, err
		}
		if of, _, err := req.Sandbox.Parse(); err != nil || of != id.String() {
			return reply, api.Refusef(api.RefusedMessage, "%q is not an activation of this claim", api.Short(string(req.Sandbox)))
		}
	}
	for range 2 { // it may have been begun between the two questions
		reply.State, reply.Job, err = s.Followed.State(ctx, followerOf(c), req.Sandbox)
		reply.Carried = s.carried(reply.Job, req.Sandbox)
		if err != nil || reply.State != api.RunUnknown || !req.Fence {
			return reply, err
		}
		if _, _, err := s.Queue.CheckClaim(id, by); api.RefusalOf(err) == api.RefusedUnknown {
			// It is over, or another's: nothing is ever started by an id of it for the caller.
			reply.Fenced, reply.Over = true, true
			return reply, nil
		} else if err != nil {
			return reply, err
		}
		if reply.Fenced, err = s.Followed.Fence(req.Sandbox); err != nil || reply.Fenced {
			return reply, err
		}
	}
	return reply, nil // it is somebody else's
}

// alter gives the job of an activation the attributes that it has where it was submitted. Who
// may ask is whoever follows it.
func (s activations) alter(ctx context.Context, c job.Caller, req *api.AlterRunRequest) (reply struct{}, err error) {
	state, number, err := s.Followed.State(ctx, followerOf(c), req.Sandbox)
	if err != nil {
		return reply, err
	}
	j := s.Store.Get(number)
	if state == api.RunUnknown || j == nil {
		return reply, api.Refusef(api.RefusedUnknown, "activation %q is not known", api.Short(string(req.Sandbox)))
	}
	if j.Activation == nil || j.Activation.Home == nil {
		return reply, api.Refusef(api.RefusedMessage, "job %d came with an ad of its own", number)
	}
	if _, err := ad.Attributes(req.Attributes); err != nil {
		return reply, api.Refusef(api.RefusedMessage, "%v", err)
	}
	return reply, s.Store.SetAttributes(j, req.Attributes, s.attributesChanged)
}
