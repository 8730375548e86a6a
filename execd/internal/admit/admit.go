// Package admit decides what may become a job, what a job may become, and what its owner is told of
// it at once: by the configuration, the user, and the slots that there are. The sentences are Grid
// Engine's where it has some.
//
// Server asks it for requests of clients, and the daemon for fetched work and jobs of claims.
package admit

import (
	"context"
	"slices"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// Rules are those of an execd. The fields are set before first use.
type Rules struct {
	Config    func() *conf.Config
	Store     *job.Store
	Queue     *queue.Queue
	Launcher  *launch.Launcher
	HookTable func() *hook.Table // nil: jobs have no hooks
	// Away reports whether a request names other hosts alone; the error refuses it.
	Away func(*api.SubmitRequest) (bool, error)
	// Transfers refuses URLs that no plugin takes; nil: all are taken.
	Transfers func(context.Context, *api.SubmitRequest) error
	Host      string
	OwnerOnly int // the only uid that may have jobs; -1: any may
}

// Job refuses what must not become a job of its owner, whatever it waits for.
func (a *Rules) Job(config *conf.Config, c job.Caller, owner *user.User, gid int, req *api.SubmitRequest) error {
	if err := a.mayHaveJobs(config, owner, gid); err != nil {
		return err
	}
	if req.Only == "" { // the error for a range that is too large has Grid Engine's number
		if err := mayHaveTasks(config, req.Tasks.Count()); err != nil {
			return err
		}
	}
	if err := req.CheckTasks(); err != nil {
		return err
	}
	if req.Only != "" {
		only, count, err := job.Only(req.Only, req.Tasks)
		if err != nil {
			return api.Errorf(api.CodeRejected, "job rejected: %v", err)
		}
		if err := mayHaveTasks(config, count); err != nil {
			return err
		}
		req.Only = only
	}
	if err := Check(req); err != nil {
		return err
	}
	if err := mayAsk(c, req); err != nil {
		return err
	}
	if req.PE == "" && len(req.MasterQueues) > 0 {
		return api.Errorf(api.CodeRejected, "job rejected: specification of master queue is not allowed for non-parallel jobs")
	}
	if err := mayBeInProject(config, req, owner.Name, owner.GroupNames); err != nil {
		return err
	}
	if err := a.mayTransfer(req); err != nil {
		return err
	}
	return a.mayBeArgs(req.Args)
}

// Accept makes a job that does not wait in the queue, or refuses what no user may
// submit.
func (a *Rules) Accept(c job.Caller, owner *user.User, gid int, req *api.SubmitRequest) (*job.Job, error) {
	config := a.Config()
	if err := a.Job(config, c, owner, gid, req); err != nil {
		return nil, err
	}
	if err := CheckCheckpoint(req); err != nil {
		return nil, err
	}
	if req.Interactive != nil {
		if err := a.Interactive(req); err != nil {
			return nil, err
		}
	}
	req.Hard, req.Soft = schedule.Spell(config, req.Hard), schedule.Spell(config, req.Soft)
	limits := job.Limits{Jobs: config.Global.MaxJobs, UserJobs: config.Global.MaxUserJobs}
	j, _, err := a.Store.Submit(owner, gid, req, limits, time.Now())
	return j, err
}

// Work refuses fetched work that could not be submitted, and brings the request
// into the form in which it is stored.
func (a *Rules) Work(owner *user.User, req *api.SubmitRequest) error {
	config := a.Config()
	req.Plain = !req.Binary && Interpreter(req.Script) == ""
	c := job.Caller{Name: owner.Name, UID: owner.UID, GID: owner.GID}
	if err := a.Job(config, c, owner, owner.GID, req); err != nil {
		return err
	}
	if _, _, err := a.Verify(req, owner); err != nil {
		return err
	}
	req.Hard, req.Soft = schedule.Spell(config, req.Hard), schedule.Spell(config, req.Soft)
	return nil
}

// mayHaveJobs refuses users who may have no jobs here, in Grid Engine's words. gid is
// the group of the process that submits.
func (a *Rules) mayHaveJobs(c *conf.Config, owner *user.User, gid int) error {
	g := &c.Global
	if !g.QsubGID {
		gid = owner.GID
	}
	switch {
	case a.OwnerOnly >= 0 && owner.UID != a.OwnerOnly:
		return api.Errorf(api.CodeDenied, "this execd runs jobs of its own user only")
	case a.OwnerOnly < 0 && owner.UID < g.MinUID:
		return api.Errorf(api.CodeRejected, "job rejected: your user id %d is lower than minimum user id %d of cluster configuration", owner.UID, g.MinUID)
	case a.OwnerOnly < 0 && gid < g.MinGID:
		return api.Errorf(api.CodeRejected, "job rejected: your group id %d is lower than minimum group id %d of cluster configuration", gid, g.MinGID)
	case gid != owner.GID && !slices.Contains(owner.Groups, gid):
		// A setgid program has a group that its caller is not in.
		return api.Errorf(api.CodeRejected, "job rejected: you are not in group %d, which the job would run with", gid)
	case !c.MayUse(g.UserLists, g.XUserLists, owner.Name, owner.Group):
		return api.Errorf(api.CodeRejected, "job rejected: %s@%s is not allowed to submit jobs", owner.Name, a.Host)
	}
	return nil
}

// mayHaveTasks refuses arrays that are larger than configured, in Grid Engine's
// words.
func mayHaveTasks(c *conf.Config, count int) error {
	if most := c.Global.MaxTasks; most > 0 && count > most {
		return api.Errorf(api.CodeRejected, "job rejected: you tried to submit a job with more than %d tasks", most)
	}
	return nil
}

// mayAsk refuses requests that the caller may not make.
func mayAsk(c job.Caller, r *api.SubmitRequest) error {
	if r.Priority > 0 && !c.Operator && !c.Manager {
		return api.Errorf(api.CodeRejected, "job rejected: positive submission priority requires operator privileges")
	}
	return job.MayHold(c, r.Hold, "set")
}

// mayBeInProject refuses a job whose project does not exist or is not for its owner,
// and a job that lacks a project where it must have one, in Grid Engine's words.
func mayBeInProject(c *conf.Config, r *api.SubmitRequest, owner string, groups []string) error {
	reject := func(format string, args ...any) error {
		return api.Errorf(api.CodeRejected, "job rejected: "+format, args...)
	}
	g, p := &c.Global, c.Projects[r.Project]
	switch {
	case r.Project == "" && g.EnforceProject:
		return reject("no project assigned to job")
	case r.Project == "" && len(g.Projects) > 0:
		return reject("no project was supplied and only certain projects are allowed to submit jobs")
	case r.Project == "":
	case p == nil:
		return reject("the requested project %q does not exist", api.Short(r.Project))
	case !c.MayUse(p.ACL, p.XACL, owner, groups...):
		return reject("no access to project %q for user %q", r.Project, owner)
	case !conf.MayProject(r.Project, g.Projects, g.XProjects):
		return reject("project %q is not allowed to submit jobs", r.Project)
	}
	return nil
}

// answering bounds the time for plugins of the site that were not yet asked what they can.
const answering = time.Minute

// mayTransfer refuses URLs that no plugin takes.
func (a *Rules) mayTransfer(req *api.SubmitRequest) error {
	if a.Transfers == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), answering)
	defer cancel()
	return a.Transfers(ctx, req)
}

// mayBeArgs refuses arguments that the shepherd cannot take.
func (a *Rules) mayBeArgs(args []string) error {
	if !a.Launcher.Foreign() {
		return nil
	}
	// A shepherd of the site's own does not read the file args.
	for _, arg := range args {
		if !spool.PlainValue(arg) {
			return api.Errorf(api.CodeRejected, "job rejected: an argument has a control character, which shepherd_cmd %s cannot take", a.Launcher.Shepherd)
		}
	}
	return nil
}
