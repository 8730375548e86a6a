package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/user"
)

// modify answers qhold, qrls and qmod.
func (s *Server) modify(ctx context.Context, c job.Caller, req *api.ModifyRequest) (api.ModifyReply, error) {
	if err := bounded(req.Jobs, req.Users, req.Queues); err != nil {
		return api.ModifyReply{}, err
	}
	hooks := job.Hooks{Kill: s.Stages.Kill, AtRest: s.Stages.AtRest, Changed: s.Stages.Changed, Rerunnable: s.Stages.Rerunnable, Host: s.Host}
	var reply api.ModifyReply
	if req.Action == api.ActionReschedule {
		seen := map[string]bool{}
		for _, pattern := range req.Queues {
			tasks, found := s.Queue.Tasks(pattern)
			if !found {
				reply.Lines = append(reply.Lines, api.Line{Text: "invalid queue \"" + api.Short(pattern) + "\"", Failed: true, Code: api.CodeNotFound})
			}
			for _, t := range tasks {
				if !seen[t] {
					seen[t], req.Jobs = true, append(req.Jobs, t)
				}
			}
		}
	} else if len(req.Queues) > 0 {
		var err error
		if reply, err = s.Queue.Modify(req, c, s.Host); err != nil {
			return reply, err
		}
	}
	if len(req.Jobs) == 0 && len(req.Users) == 0 {
		return reply, nil
	}
	more, err := s.Store.Modify(ctx, req, c, hooks)
	reply.Lines = append(reply.Lines, more.Lines...)
	return reply, err
}

// host answers qhost and qstat -f. It has the load read, which nothing may have needed
// until now.
func (s *Server) host(ctx context.Context, _ job.Caller, req *api.HostRequest) (api.HostReply, error) {
	if s.Load != nil {
		s.Queue.SetLoad(s.Load())
	}
	reply := api.HostReply{
		Host: s.Host, Arch: launch.Arch(), Groups: s.Groups, HostGroups: s.Config().HostGroups,
		Values: s.Queue.HostValues(), Global: s.Queue.GlobalValues(), Queues: s.Queue.Status(),
		BrokenHooks: s.brokenHooks(), Drain: s.drained(),
	}
	if len(req.Resources)+len(req.PEs)+len(req.Users)+len(req.Now) == 0 {
		reply.Others = s.Shadows.Peers()
		return reply, nil
	}
	accounts, err := s.accounts(ctx, req.Users)
	if err != nil {
		return api.HostReply{}, err
	}
	chosen, here, err := s.Queue.Select(req, accounts)
	if err != nil {
		return api.HostReply{}, err
	}
	reply.Excluded = !here
	reply.Queues = slices.DeleteFunc(reply.Queues, func(q api.QueueStatus) bool { return !slices.Contains(chosen, q.Name) })
	return reply, nil
}

// brokenHooks describes the hooks that cannot be called, a line each.
func (s *Server) brokenHooks() (lines []string) {
	if s.Hooks == nil {
		return nil
	}
	for _, p := range s.Hooks().Problems() {
		if !p.Warning {
			lines = append(lines, p.String())
		}
	}
	return lines
}

// maxAsked bounds the users that are looked up for one request.
const maxAsked = 100

// accounts returns users with their groups. A user that the host does not know has
// none, and may still be on a list.
func (s *Server) accounts(ctx context.Context, names []string) ([]schedule.Account, error) {
	if len(names) > maxAsked {
		return nil, api.Errorf(api.CodeBadRequest, "%d users are named, at most %d are possible", len(names), maxAsked)
	}
	var list []schedule.Account
	for _, name := range names {
		u, err := s.Users.ByName(ctx, name)
		switch {
		case errors.Is(err, user.ErrUnknown):
			u = &user.User{Name: name}
		case err != nil:
			return nil, api.Errorf(api.CodeInternal, "%v", err)
		}
		list = append(list, schedule.Account{User: u.Name, Groups: u.GroupNames})
	}
	return list, nil
}

// show answers qconf -s.
func (s *Server) show(ctx context.Context, caller job.Caller, req *api.ShowRequest) (api.ShowReply, error) {
	c := s.Config()
	if req.List {
		names := c.List(req.Kind)
		if req.Kind == "manager" && s.OwnerOnly > 0 {
			if u, err := s.Users.ByID(ctx, s.OwnerOnly); err == nil {
				names = slices.Compact(slices.Sorted(slices.Values(append(names, u.Name))))
			}
		}
		return lines(names), nil
	}
	var text string
	var err error
	if req.Saved && caller.Manager {
		if c, err = s.Saved(); err != nil {
			return api.ShowReply{}, api.Errorf(api.CodeRejected, "cannot change the configuration: its files have mistakes\n%v", err)
		}
	}
	switch {
	case req.Having != nil:
		names, err := c.Having(req.Kind, req.Having.Parameter, req.Having.Value, schedule.Matches)
		return lines(names), err
	case req.Template:
		text, err = s.Template(req.Kind, req.Name)
	case req.Kind == "hostgroup" && req.Tree:
		text, err = c.Tree(req.Name)
	case req.Kind == "hostgroup" && req.Resolved:
		text, err = c.Resolved(req.Name)
	case req.Kind == "queue":
		text, err = showQueues(c, req.Name)
	case req.Kind == "host" && !req.Saved && s.Load != nil:
		text, err = c.ShowHost(req.Name, s.Load())
	default:
		text, err = c.Show(req.Kind, req.Name)
	}
	if err != nil {
		return api.ShowReply{}, api.Errorf(api.CodeNotFound, "%v", err)
	}
	return api.ShowReply{Text: text}, nil
}

// showQueues prints the queues whose names match an expression; with an @ in it, as
// they are on this host.
func showQueues(c *conf.Config, name string) (string, error) {
	if strings.HasPrefix(name, "@") {
		return "", fmt.Errorf("The queue name %q is not correct.  Queue names may not begin with @.  Perhaps you mean %q?", name, "*"+name) //nolint:staticcheck // Grid Engine's words
	}
	pattern, _, instance := strings.Cut(name, "@")
	var all strings.Builder
	for _, queue := range c.List("queue") {
		switch {
		case !instance && !schedule.Matches(pattern, queue), instance && !schedule.MatchesQueue(c, name, queue):
			continue
		case instance && slices.Contains(c.Elsewhere, queue):
			continue
		case instance:
			queue += "@" + c.Hostname
		}
		text, err := c.Show("queue", queue)
		if err != nil {
			return "", err
		}
		all.WriteString(text)
	}
	if all.Len() == 0 {
		return c.Show("queue", name) // an error: there is none
	}
	return all.String(), nil
}

// lines prints names, one a line.
func lines(names []string) (reply api.ShowReply) {
	if len(names) > 0 {
		reply.Text = strings.Join(names, "\n") + "\n"
	}
	return reply
}

// operators reports whether operators may make a change: of user lists, as in Grid
// Engine.
func operators(req *api.ConfigureRequest) bool {
	return req.Kind == "userlist" && slices.Contains([]api.Configure{api.ConfigureAdd, api.ConfigureRemove, api.ConfigureAdmit, api.ConfigureExpel}, req.Action)
}

// configure answers qconf where it changes the configuration.
func (s *Server) configure(_ context.Context, c job.Caller, req *api.ConfigureRequest) (reply api.ConfigureReply, err error) {
	switch {
	case c.Manager:
	case !operators(req):
		return reply, api.Errorf(api.CodeDenied, "denied: %q must be manager for this operation", c.Name)
	case !c.Operator:
		return reply, api.Errorf(api.CodeDenied, "denied: %q must be operator for this operation", c.Name)
	}
	if req.Action == api.ConfigureRemove && req.Kind == "queue" {
		if tasks := s.Queue.Running(req.Name); tasks > 0 {
			return reply, api.Errorf(api.CodeRejected, "There are still running jobs in the queue. Deletion denied.")
		}
	}
	by := c.Name + "@" + s.Host
	if req.Action == api.ConfigureClear {
		reply = s.clearUsage(req, by)
	} else {
		reply, err = s.Configure(req, by)
	}
	return reply, err
}

// clearUsage answers qconf -clearusage.
func (s *Server) clearUsage(req *api.ConfigureRequest, by string) (reply api.ConfigureReply) {
	did := "modified"
	if req.Dry {
		did = "would modify"
	}
	for _, name := range s.Queue.ClearShares(strings.Fields(req.Text), req.Dry) {
		reply.Lines = append(reply.Lines, api.Line{Text: fmt.Sprintf("%s %s %q in user list", by, did, name)})
	}
	if !req.Dry && len(reply.Lines) > 0 {
		s.Log.Info(fmt.Sprintf("execd: qconf: %s cleared the usage of %d users", by, len(reply.Lines)))
	}
	return reply
}

// reload answers qconf -reload.
func (s *Server) reload(_ context.Context, c job.Caller, _ *api.ReloadRequest) (api.ReloadReply, error) {
	if !c.Manager {
		return api.ReloadReply{}, api.Errorf(api.CodeDenied, "denied: %q must be manager for this operation", c.Name)
	}
	changed, err := s.Reload()
	return api.ReloadReply{Changed: changed, Problems: problems(err), BrokenHooks: s.brokenHooks()}, nil
}

// problems returns a line for each error that was joined.
func problems(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(err.Error()), "\n")
}
