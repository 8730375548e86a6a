package server

import (
	"context"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/account"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
)

// checkInteractive refuses what cannot become an interactive job. Such a job is not
// rerun, since its client has gone.
func (s *Server) checkInteractive(r *api.SubmitRequest) error {
	reject := func(format string, args ...any) error { return api.Errorf(api.CodeRejected, format, args...) }
	if err := s.Stages.Launcher.CheckInteractive(); err != nil {
		return reject("job rejected: interactive jobs cannot be run: %v", err)
	}
	if r.Interactive.Display != "" {
		r.Interactive.Client = api.Listener{}
	} else if _, err := launch.NewSession(1, &r.Interactive.Client); err != nil {
		return reject("job rejected: %v", err)
	}
	if err := s.connect(r); err != nil {
		return err
	}
	allowed := s.Config().Global.SessionLost
	switch {
	case r.Interactive.Lost != "" && !slices.Contains(allowed, r.Interactive.Lost):
		return reject("job rejected: -lost %s is not allowed, only %s", r.Interactive.Lost, strings.Join(allowed, ", "))
	case !r.Binary:
		return reject("job rejected: an interactive job has no script")
	case r.Tasks.IsArray():
		return reject("job rejected: an interactive job cannot be an array")
	case r.Rerun == api.RerunYes:
		return reject("job rejected: an interactive job cannot be run again")
	case r.Checkpoint != "":
		return reject("job rejected: an interactive job cannot be checkpointed")
	}
	r.Rerun = api.RerunNo
	return nil
}

// connect decides how an interactive job is connected.
func (s *Server) connect(r *api.SubmitRequest) error {
	i, global := r.Interactive, &s.Config().Global
	i.Daemon = ""
	if i.Display != "" {
		switch {
		case global.Xterm == "":
			return api.Errorf(api.CodeRejected, "job rejected: there is no qsh: xterm of sge_conf is none")
		case !api.PlainDisplay(i.Display):
			return api.Errorf(api.CodeRejected, "job rejected: %q is not an X display", api.Short(i.Display))
		}
		return nil
	}
	kind, c := connectionOf(global, i)
	if half := c.Half(); half != "" {
		return api.Errorf(api.CodeRejected, "job rejected: of %s_command and %s_daemon of sge_conf only the %s is not builtin", kind, kind, half)
	}
	i.Daemon = c.Daemon
	return nil
}

// connectionOf returns how a kind of interactive jobs is connected.
func connectionOf(g *conf.Global, i *api.Interactive) (kind string, c *conf.Connection) {
	switch {
	case i.Login && i.Qlogin:
		return "qlogin", &g.Qlogin
	case i.Login:
		return "rlogin", &g.Rlogin
	}
	return "rsh", &g.Rsh
}

// programOf returns the command by which the client of a job connects to it.
func programOf(g *conf.Global, r *api.SubmitRequest) string {
	if r.Interactive == nil || r.Interactive.Daemon == "" {
		return ""
	}
	_, c := connectionOf(g, r.Interactive)
	return c.Command
}

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
