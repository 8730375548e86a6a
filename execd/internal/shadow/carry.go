package shadow

import (
	"context"
	"errors"
	"io"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/sandbox/order"
)

// Files has the files of a run travel whose host shares none with this one. A Manager of
// package sandbox does.
type Files interface {
	// Plan gives a run that asks for it a sandbox here, in which what comes back may lie.
	Plan(t *job.Task, r *api.SubmitRequest, slot int, limit uint64) error
	// Pushes reports whether the run needs files before it starts. PushAway writes a part of
	// them behind what the other host has. Stop has a write return soon.
	Pushes(t *job.Task, r *api.SubmitRequest) bool
	PushAway(ctx context.Context, t *job.Task, part api.StagePart, have string, to io.Writer, stop func(), report func(order.Progress)) error
	// PullAway has come what the run has left, and returns its root, when all of it is on
	// disk. Open has the other host send it, behind what there is; it is not called if all is
	// there. What of it is wanted is in the End of the run.
	PullAway(ctx context.Context, t *job.Task, open func(ctx context.Context, have string, read func(io.Reader) error) error, report func(order.Progress)) (root string, err error)
	// LandAway takes to where it belongs what has come. It may be repeated.
	LandAway(ctx context.Context, t *job.Task, report func(order.Progress)) error
	// DiscardAway removes what has come, since nobody wants it any more.
	DiscardAway(ctx context.Context, t *job.Task) error
	// Remove removes the sandbox of a run, and Unbox one that was kept for it.
	Remove(t *job.Task)
	Unbox(s *job.Sandbox)
}

// carries reports whether the files of a run travel.
func (r *run) carries() bool { return r.task.Start.Remote.Key != "" }

// pulls reports whether it has left something that is to be pulled. core.mu is held.
func (r *run) pulls() bool { return r.carries() && r.outcome != nil && r.outcome.Pull }

// leaseOf returns the lease under which a host has a run. core.mu is held.
func (r *run) leaseOf() *lease {
	if r.lease != nil {
		return r.lease
	}
	return &r.claim.lease
}

// errCut is matched when a stream has failed for the way between the hosts, or the other one.
var errCut = errors.New("the stream was cut off")

// errNothing is matched when a host has nothing of what is to be pulled, or not any more.
var errNothing = errors.New("there is nothing of it any more")

// secret returns what opens the sandbox of a run on its host.
func (r *run) secret() (api.SandboxID, api.SandboxKey) {
	return api.SandboxID(r.sandbox()), r.task.Start.Remote.Key
}

// tell has a host know something of a sandbox, again and again until it does, or never will.
func (r *run) tell(ctx context.Context, what string, do func(ctx context.Context, to *api.Client) error) error {
	return again(ctx, retries.After, func(int) bool {
		limited, cancel := context.WithTimeout(ctx, 3*callLimit)
		err := do(limited, r.On(r.host.name, ""))
		cancel()
		switch e, refused := errors.AsType[*api.Error](err); {
		case err == nil:
			return true
		case refused && e.Code != api.CodeInternal && e.Code != api.CodeTryAgain && e.Code != api.CodeAway && e.Code != api.CodeDenied && e.Refusal != api.RefusedTryAgain:
			r.warnf("%v: %s does not take that %s: %v", r, r.host.name, what, err)
			return true
		}
		r.debugf("%v: %s: %v", r, what, err)
		r.mu.Lock()
		defer r.mu.Unlock()
		until := r.lostAt()
		return r.forgotten || r.gone || r.final != nil || !until.IsZero() && time.Now().After(until)
	})
}
