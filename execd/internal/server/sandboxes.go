package server

import (
	"context"
	"fmt"

	"paddock/execd/api"
	"paddock/execd/internal/job"
)

// sandboxes answers with the sandboxes.
func (s *Server) sandboxes(_ context.Context, _ job.Caller, _ *api.SandboxesRequest) (api.SandboxesReply, error) {
	reply := api.SandboxesReply{Host: s.Host, Sandboxes: []api.SandboxStatus{}}
	for _, b := range s.Store.Boxes() {
		if b.Run != nil && b.Run.Start.Remote != nil && b.State == job.Started {
			continue // the job works in another, on another host
		}
		x := api.SandboxStatus{
			Dir: b.Dir, ID: b.ID, Job: fmt.Sprintf("%d.%d", b.Job.Number, b.Task), User: b.Job.Owner,
			From: s.Store.From(b.Job.Number), Created: b.Created, Limit: b.Limit, Size: s.Boxes.Size(b.Sandbox), State: api.SandboxKept,
		}
		if b.Run != nil {
			s.boxed(&x, &b)
		}
		reply.Sandboxes = append(reply.Sandboxes, x)
	}
	reply.Sandboxes = append(reply.Sandboxes, s.Boxes.Left()...)
	return reply, nil
}

// boxed says how the sandbox of a run stands.
func (s *Server) boxed(x *api.SandboxStatus, b *job.Boxed) {
	if t := s.Stages.Transfer(b.Run.RunID()); t != nil && (t.Output || !t.Done) {
		x.Transfer, x.Tries, x.Error = t, t.Attempt, t.Failure
		x.Size = max(x.Size, t.Total)
	}
	switch b.State {
	case job.Started:
		x.State = api.SandboxExecuting
		if x.Transfer != nil && !x.Transfer.Output {
			x.State = api.SandboxStaging
		}
		if id, _ := s.Stages.SlotOf(b.Run, false); !id.IsZero() {
			x.Slot = api.SlotID(id.String())
		}
	case job.Over:
		if x.State = api.SandboxSending; b.Stuck != nil {
			x.State, x.Error = api.SandboxStuck, b.Stuck.Text
		}
	default:
		x.State = api.SandboxSent
	}
}
