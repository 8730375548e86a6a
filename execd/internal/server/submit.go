package server

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/account"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/user"
)

// submit answers qsub.
func (s *Server) submit(ctx context.Context, c job.Caller, req *api.SubmitRequest) (api.SubmitReply, error) {
	owner, err := s.Users.ByID(ctx, c.UID)
	if errors.Is(err, user.ErrUnknown) {
		return api.SubmitReply{}, api.Errorf(api.CodeRejected, "job rejected: user %d is not known on this host", c.UID)
	}
	if err != nil {
		return api.SubmitReply{}, err
	}
	req.Work, req.Plain = nil, !req.Binary && interpreter(req.Script) == ""
	config := s.Config()
	if err := s.mayBeJob(config, c, owner, c.GID, req); err != nil {
		return api.SubmitReply{}, err
	}
	if err := knownHosts(ctx, config, req); err != nil {
		return api.SubmitReply{}, err
	}
	if req.Interactive != nil {
		if err := s.checkInteractive(req); err != nil {
			return api.SubmitReply{}, err
		}
	}
	lines, only, err := s.verify(req, owner)
	if err != nil || only {
		return api.SubmitReply{Name: req.Name, Lines: lines}, err
	}
	if err := checkCheckpoint(req); err != nil {
		return api.SubmitReply{}, err
	}
	busy := api.Errorf(api.CodeBusy, "the job cannot start now")
	if req.Now && (s.drained() != nil || req.Hold != "" || !s.canStartNow(req, owner) && !s.Shadows.MayStartNow(req)) {
		return api.SubmitReply{}, busy
	}
	req.Hard, req.Soft = schedule.Spell(config, req.Hard), schedule.Spell(config, req.Soft)
	warnings := s.warnings(config, req)
	place := s.Book.Now()
	limits := job.Limits{Jobs: config.Global.MaxJobs, UserJobs: config.Global.MaxUserJobs}
	j, waits, err := s.Store.Submit(owner, c.GID, req, limits, time.Now())
	if err != nil {
		return api.SubmitReply{}, err
	}
	if req.Now && !s.Queue.StartNow(j) && !s.Shadows.StartNow(ctx, j) {
		if _, err := s.Store.Delete(context.WithoutCancel(ctx), &api.DeleteRequest{Jobs: []string{strconv.Itoa(j.Number)}}, c, s.Stages.Kill); err != nil {
			return api.SubmitReply{}, err
		}
		return api.SubmitReply{}, busy
	}
	return api.SubmitReply{
		Job: j.Number, Name: req.Name, Tasks: j.Tasks, Only: req.Only, Lines: lines, Warnings: append(warnings, waits...),
		Cursor: account.FormatCursor(place), Program: programOf(&config.Global, req),
	}, nil
}

// mayBeJob refuses what must not become a job of its owner, whatever it waits for.
func (s *Server) mayBeJob(config *conf.Config, c job.Caller, owner *user.User, gid int, req *api.SubmitRequest) error {
	if err := s.mayHaveJobs(config, owner, gid); err != nil {
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
	if err := check(req); err != nil {
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
	if err := s.mayTransfer(req); err != nil {
		return err
	}
	return s.mayBeArgs(req.Args)
}

// answering bounds the time for plugins of the site that were not yet asked what they can.
const answering = time.Minute

// mayTransfer refuses URLs that no plugin takes.
func (s *Server) mayTransfer(req *api.SubmitRequest) error {
	if s.Transfers == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), answering)
	defer cancel()
	return s.Transfers(ctx, req)
}

// resolving bounds the time for looking up the hosts of a job's paths; hosts without an
// answer by then are taken to exist.
const resolving = 2 * time.Second

// knownHosts refuses paths of -o, -e and -i on hosts that do not exist: the job would
// write to another file than its owner thinks, or to none.
func knownHosts(ctx context.Context, c *conf.Config, r *api.SubmitRequest) error {
	ctx, cancel := context.WithTimeout(ctx, resolving)
	defer cancel()
	for _, paths := range []string{r.Stdout, r.Stderr, r.Stdin} {
		for entry := range strings.SplitSeq(paths, ",") {
			host, path, has := strings.Cut(entry, ":")
			if has && path == "" {
				return api.Errorf(api.CodeRejected, "paths may not be empty strings")
			}
			if !has || host == "" || strings.Contains(host, "/") || c.IsHere(host) {
				continue
			}
			if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil && ctx.Err() == nil {
				return api.Errorf(api.CodeRejected, "can't resolve hostname %q", api.Short(host))
			}
		}
	}
	return nil
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

// Accept makes a job that does not wait in the queue, or refuses what no user may
// submit.
func (s *Server) Accept(c job.Caller, owner *user.User, gid int, req *api.SubmitRequest) (*job.Job, error) {
	config := s.Config()
	if err := s.mayBeJob(config, c, owner, gid, req); err != nil {
		return nil, err
	}
	if err := checkCheckpoint(req); err != nil {
		return nil, err
	}
	if req.Interactive != nil {
		if err := s.checkInteractive(req); err != nil {
			return nil, err
		}
	}
	req.Hard, req.Soft = schedule.Spell(config, req.Hard), schedule.Spell(config, req.Soft)
	limits := job.Limits{Jobs: config.Global.MaxJobs, UserJobs: config.Global.MaxUserJobs}
	j, _, err := s.Store.Submit(owner, gid, req, limits, time.Now())
	return j, err
}

// check refuses what can never become a job, whoever submits it.
func check(r *api.SubmitRequest) error {
	reject := func(format string, args ...any) error {
		return api.Errorf(api.CodeRejected, "job rejected: "+format, args...)
	}
	if err := r.Check(); err != nil {
		return err
	}
	if len(r.HoldArray)+len(r.HoldArrayOK) > 0 && !r.Tasks.IsArray() {
		return job.ErrNoArray
	}
	if r.Binding != "" {
		if err := queue.CheckBinding(r.Binding); err != nil {
			return err
		}
	}
	when := r.CheckpointWhen
	if _, err := conf.ParseTime(when); when != "" && err != nil && strings.Trim(when, "nsmx") != "" {
		return reject("%q is no value of -c", api.Short(when))
	}
	if err := mayBeContext(r.Context); err != nil {
		return err
	}
	if err := mayHaveAttributes(r); err != nil {
		return reject("%v", err)
	}
	return mayBeTold(r.MailTo)
}

// mayHaveAttributes refuses attributes that a job may not have, and malformed ones that
// execd reads.
func mayHaveAttributes(r *api.SubmitRequest) error {
	if len(r.Attributes) == 0 {
		return nil
	}
	if _, err := ad.Attributes(r.Attributes); err != nil {
		return err
	}
	_, err := ownExtras(r)
	return err
}

// ownExtras reads the attributes for execd. It does not matter where the job is to run.
func ownExtras(r *api.SubmitRequest) (ad.Extras, error) {
	return ad.OwnExtras(ad.Job(ad.JobInfo{Number: 1, Task: 1, Submitted: time.Now(), Request: r, Iwd: "/"}), time.Now())
}

// checkCheckpoint refuses what makes no sense with or without -ckpt, once the interface
// is known to exist.
func checkCheckpoint(r *api.SubmitRequest) error {
	when := r.CheckpointWhen
	switch none := when == "" || strings.Contains(when, "n"); {
	case r.Checkpoint == "" && !none:
		return api.Errorf(api.CodeRejected, "checkpointing denied")
	case r.Checkpoint != "" && none && when != "":
		return api.Errorf(api.CodeRejected, "job rejected: checkpointing with \"-c n\" requested")
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
