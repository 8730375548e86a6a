package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/account"
	"paddock/execd/internal/admit"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/stage"
	"paddock/execd/internal/stage/subtask"
)

// refusalsLogged is how many refused tasks of one user are logged a second.
const refusalsLogged = 5

// startTask reads a request for task. If the job has no shepherd yet it waits until there is
// one, or will be none, and has the client ask again: a request, which may be large,
// and its turn are not kept while a job is prepared.
func (s *Server) startTask(ctx context.Context, c job.Caller, in *incoming) (any, error) {
	reply, err := handler((*Server).task)(s, ctx, c, in)
	early, ok := errors.AsType[*stage.NotYet](err)
	if !ok {
		return reply, err
	}
	in.done()
	timer := time.NewTimer(longPoll)
	defer timer.Stop()
	select {
	case <-early.Known:
	case <-timer.C:
	case <-s.stopping:
	case <-ctx.Done():
		return nil, fmt.Errorf("the client has gone: %w", ctx.Err())
	}
	return api.TaskReply{}, nil
}

// task answers qrsh -inherit and qrsh -into.
func (s *Server) task(ctx context.Context, c job.Caller, req *api.TaskRequest) (api.TaskReply, error) {
	if !req.Into && req.Host != "" && !s.Config().IsHere(req.Host) {
		return api.TaskReply{}, api.Errorf(api.CodeElsewhere, "host %q is not this host, %s", req.Host, s.Host)
	}
	t, err := s.mayStartTask(c, req)
	if err == nil {
		err = s.checkTask(req)
	}
	if err != nil {
		return api.TaskReply{}, s.refuseTask(c, req, err)
	}
	by, err := s.Users.ByID(ctx, c.UID)
	if err != nil {
		return api.TaskReply{}, err
	}
	place := s.Book.Now()
	name, err := s.Stages.StartTask(t, &subtask.Order{Request: req, By: by})
	if early, ok := errors.AsType[*stage.NotYet](err); ok {
		return api.TaskReply{}, early
	}
	if refused, ok := errors.AsType[*subtask.Refused](err); ok {
		err = api.Errorf(api.CodeRejected, "%s", refused.Text)
	}
	if err != nil {
		return api.TaskReply{}, s.refuseTask(c, req, err)
	}
	return api.TaskReply{Task: t.Number, ID: name, Host: s.Host, Cursor: account.FormatCursor(place)}, nil
}

// refuseTask logs why a task of a parallel job is not started, in Grid Engine's words:
// its user learns only that it is not.
func (s *Server) refuseTask(c job.Caller, req *api.TaskRequest, err error) error {
	if !req.Into && s.refusals.Take(c.UID, refusalsLogged, time.Now()) == 0 {
		s.Log.Warn(api.Visible(err.Error()))
	}
	return err
}

// mayStartTask returns the task of a job in which the caller may start another task.
func (s *Server) mayStartTask(c job.Caller, req *api.TaskRequest) (*job.Task, error) {
	if req.Into {
		return s.mayEnter(c, req)
	}
	no := func(code api.Code, format string, args ...any) (*job.Task, error) {
		return nil, api.Errorf(code, "received task belongs to job "+format, args...)
	}
	if s.Store.IsFrom(req.Home, req.Job, c.UID) {
		return nil, api.Errorf(api.CodeNoTasks, "job %d of %s has one slot here, and no tasks beside it", req.Job, req.Home)
	}
	j := s.Store.Get(req.Job)
	if j == nil {
		return no(api.CodeNotFound, "%d but that job is not here", req.Job)
	}
	t, _ := s.Store.RunningTask(j, max(req.Task, 1))
	if t == nil {
		return no(api.CodeNotFound, "%d; that job is here but the JobArray task %d is not here", req.Job, max(req.Task, 1))
	}
	// The kernel says who asks; Grid Engine believes the request.
	if c.UID != j.UID {
		return nil, api.Errorf(api.CodeDenied, "denied request of user %q to start a PE task in job of user %q", c.Name, j.Owner)
	}
	if g := t.Start.Grant; g == nil || s.Config().PEs[g.PE] == nil || !s.Config().PEs[g.PE].ControlSlaves {
		return no(api.CodeRejected, "%d but that job is not suited for starting tasks", req.Job)
	}
	return t, nil
}

// mayEnter is mayStartTask for qrsh -into: the owner may, and managers.
func (s *Server) mayEnter(c job.Caller, req *api.TaskRequest) (*job.Task, error) {
	j := s.Store.Get(req.Job)
	if j == nil {
		return nil, api.Errorf(api.CodeNotFound, "job %d does not exist", req.Job)
	}
	// A task acts as the owner of the job, which operators may not.
	if c.UID != j.UID && !c.Manager {
		return nil, api.Errorf(api.CodeDenied, "denied: %s may not enter job %d of user %s", c.Name, req.Job, j.Owner)
	}
	t, more := s.Store.RunningTask(j, req.Task)
	switch {
	case t != nil && t.Start.Remote != nil:
		return nil, api.Errorf(api.CodeRejected, "job %d runs on %s, and can be entered there alone", req.Job, t.Start.Remote.Host)
	case t != nil:
		return t, nil
	case more:
		return nil, api.Errorf(api.CodeRejected, "several tasks of job %d run: name one, as %d.1", req.Job, req.Job)
	case req.Task > 0 && j.Tasks.IsArray():
		return nil, api.Errorf(api.CodeRejected, "task %d of job %d is not running", req.Task, req.Job)
	}
	return nil, api.Errorf(api.CodeRejected, "job %d is not running", req.Job)
}

// checkTask refuses tasks that cannot be started.
func (s *Server) checkTask(req *api.TaskRequest) error {
	if err := s.Stages.Launcher.CheckInteractive(); err != nil {
		return api.Errorf(api.CodeRejected, "tasks cannot be started: %v", err)
	}
	if _, err := launch.NewSession(1, &req.Interactive.Client); err != nil {
		return api.Errorf(api.CodeBadRequest, "%v", err)
	}
	if req.Interactive.Login == (req.Command != "") || req.Interactive.Login && !req.Into {
		return api.Errorf(api.CodeBadRequest, "a task needs a command")
	}
	command := req.Command
	if command == "" {
		command = "login"
	}
	err := admit.Check(&api.SubmitRequest{
		Name: "petask", Binary: true, Command: command, Args: req.Args, Cwd: req.Cwd, Env: req.Env, Origin: req.Origin,
	})
	if e, ok := errors.AsType[*api.Error](err); ok {
		return api.Errorf(e.Code, "%s", strings.TrimPrefix(e.Text, "job rejected: "))
	}
	return err
}

// taskEnd answers when a task has ended.
func (s *Server) taskEnd(ctx context.Context, c job.Caller, req *api.TaskEndRequest) (api.TaskEndReply, error) {
	j := s.Store.Get(req.Job)
	if j == nil {
		return s.accountedTask(ctx, c, req)
	}
	if c.UID != j.UID && !c.Manager {
		return api.TaskEndReply{}, api.Errorf(api.CodeDenied, "denied: job %d is not yours", req.Job)
	}
	t, _ := s.Store.RunningTask(j, req.Task)
	if t == nil {
		return s.accountedTask(ctx, c, req)
	}
	over, end := s.Stages.TaskEnd(t, req.ID)
	switch {
	case end != nil:
		return api.TaskEndReply{Ended: end}, nil
	case over == nil:
		return s.accountedTask(ctx, c, req)
	}
	timer := time.NewTimer(longPoll)
	defer timer.Stop()
	select {
	case <-over:
		if _, end := s.Stages.TaskEnd(t, req.ID); end != nil {
			return api.TaskEndReply{Ended: end}, nil
		}
		return s.accountedTask(ctx, c, req)
	case <-timer.C:
	case <-s.stopping:
	case <-ctx.Done():
		return api.TaskEndReply{}, fmt.Errorf("the client has gone: %w", ctx.Err())
	}
	return api.TaskEndReply{}, nil
}

// accountedTask answers for a task that is not known any more, most often because its job
// has ended and took it along: by its line in the accounting file, if it has one.
func (s *Server) accountedTask(ctx context.Context, c job.Caller, req *api.TaskEndRequest) (api.TaskEndReply, error) {
	gone := api.TaskEndReply{Gone: true}
	if req.Cursor == "" || req.ID == accounting.None {
		return gone, nil
	}
	place, err := account.ParseCursor(req.Cursor)
	if err != nil {
		return gone, api.Errorf(api.CodeBadRequest, "%v", err)
	}
	leave, err := s.admission.answers.Enter(ctx, c.UID, 1)
	if err != nil {
		return gone, err
	}
	defer leave()
	end, err := s.Book.SubtaskEnd(ctx, place, req.Job, req.Task, req.ID)
	if err != nil || end == nil {
		return gone, err
	}
	return api.TaskEndReply{Ended: end}, nil
}
