package server

import (
	"context"

	"paddock/execd/api"
	"paddock/execd/internal/account"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
)

// attach answers qrsh -reconnect.
func (s *Server) attach(_ context.Context, c job.Caller, req *api.AttachRequest) (api.AttachReply, error) {
	j := s.Store.Get(req.Job)
	if j == nil {
		return api.AttachReply{}, api.Errorf(api.CodeNotFound, "job %d does not exist", req.Job)
	}
	// Only the owner may see what is typed and printed.
	if j.UID != c.UID {
		return api.AttachReply{}, api.Errorf(api.CodeDenied, "denied: job %d is not yours", req.Job)
	}
	t, _ := s.Store.RunningTask(j, 1)
	switch {
	case !j.Interactive:
		return api.AttachReply{}, api.Errorf(api.CodeRejected, "job %d is not interactive", req.Job)
	case t == nil:
		return api.AttachReply{}, api.Errorf(api.CodeRejected, "job %d is not running", req.Job)
	case t.Start.Remote != nil:
		return api.AttachReply{}, api.Errorf(api.CodeRejected, "job %d runs on %s, where no second client is connected", req.Job, t.Start.Remote.Host)
	}
	if _, err := launch.NewSession(1, &req.Client); err != nil {
		return api.AttachReply{}, api.Errorf(api.CodeBadRequest, "cannot connect to a client: %v", err)
	}
	request, err := s.Store.Request(j)
	if err != nil {
		return api.AttachReply{}, err
	}
	switch i := request.Interactive; {
	case i.Display != "":
		return api.AttachReply{}, api.Errorf(api.CodeRejected, "job %d is of qsh, and has no client", req.Job)
	case i.Daemon != "":
		return api.AttachReply{}, api.Errorf(api.CodeRejected, "job %d is connected by %s, and not again", req.Job, i.Daemon)
	}
	place := s.Book.Now()
	if err := s.Stages.Launcher.Attach(t.RunID(), &req.Client); err != nil {
		return api.AttachReply{}, api.Errorf(api.CodeRejected, "cannot connect job %d to a client: %v", req.Job, err)
	}
	return api.AttachReply{Terminal: request.Interactive.Terminal, Cursor: account.FormatCursor(place)}, nil
}
