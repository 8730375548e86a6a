package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/admit"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
)

// alter answers qalter.
func (s *Server) alter(ctx context.Context, c job.Caller, req *api.AlterRequest) (api.AlterReply, error) {
	if err := bounded(req.Jobs, req.Users, req.To.HoldJobs, req.To.HoldArray, req.To.HoldOK, req.To.HoldArrayOK); err != nil {
		return api.AlterReply{}, err
	}
	if !slices.Contains([]string{"", "n", "e", "w", "v", "p"}, req.To.Verify) {
		return api.AlterReply{}, api.Errorf(api.CodeBadRequest, "%q is no value of -w", api.Short(req.To.Verify))
	}
	for _, change := range req.Context {
		if !slices.Contains([]string{"-ac", "-dc", "-sc"}, change.Option) {
			return api.AlterReply{}, api.Errorf(api.CodeBadRequest, "%q is no change of a context", api.Short(change.Option))
		}
	}
	config := s.Config()
	if err := admit.KnownHosts(ctx, config, &req.To); err != nil {
		return api.AlterReply{}, err
	}
	// The refusal names a resource that does not exist as it was written: Spell leaves it.
	req.To.Hard, req.To.Soft = schedule.Spell(config, req.To.Hard), schedule.Spell(config, req.To.Soft)
	return s.Store.Alter(ctx, req, c, job.AlterHooks{Check: s.Rules().Become, Changed: s.attributesChanged, Host: s.Host})
}

// attributesChanged has the policies of the slot of a task know that the attributes of its
// job are others.
func (s *Server) attributesChanged(t *job.Task) {
	if t.Start.Remote == nil {
		s.Queue.Reconsider(t)
	}
	s.Stages.Altered(t)
}

// resubmit answers qresub. It copies no job unless all exist and the caller may copy
// them.
func (s *Server) resubmit(ctx context.Context, c job.Caller, req *api.ResubmitRequest) (api.ResubmitReply, error) {
	var reply api.ResubmitReply
	if strings.Trim(req.Hold, api.HoldLetters) != "" || strings.Contains(req.Hold, "n") && req.Hold != "n" {
		return reply, api.Errorf(api.CodeBadRequest, "Unknown hold list %q specified to -h option", api.Short(req.Hold))
	}
	if req.Failed && req.Tasks != "" {
		return reply, api.Errorf(api.CodeBadRequest, "-failed and -t exclude each other")
	}
	hold, _ := api.SplitHold(req.Hold)
	if err := job.MayHold(c, hold, "set"); err != nil {
		return reply, err
	}
	jobs, err := s.Store.Copyable(req.Jobs, c, s.Host)
	if err != nil {
		return reply, err
	}
	for _, j := range jobs {
		if req.Failed && s.Store.Failed(j) == "" {
			reply.Skipped = append(reply.Skipped, fmt.Sprintf("job %d has not failed", j.Number))
			continue
		}
		submitted, err := s.copyJob(ctx, c, j, hold, req)
		if e, ok := errors.AsType[*api.Error](err); ok {
			reply.Failed = e
			return reply, nil
		}
		if err != nil {
			return reply, err
		}
		reply.Submitted = append(reply.Submitted, api.Resubmitted{From: j.Number, SubmitReply: submitted})
	}
	if n := len(reply.Skipped); n > 0 && n == len(jobs) {
		reply.Failed = api.Errorf(api.CodeRejected, "denied: %s", reply.Skipped[0])
		if reply.Skipped = nil; n > 1 {
			reply.Failed.Text = "denied: none of the jobs has failed"
		}
	}
	return reply, nil
}

// copyJob submits a copy of a job for the caller.
func (s *Server) copyJob(ctx context.Context, c job.Caller, j *job.Job, hold string, req *api.ResubmitRequest) (api.SubmitReply, error) {
	if err := s.mayHurry(c); err != nil {
		return api.SubmitReply{}, err
	}
	if j.Interactive {
		return api.SubmitReply{}, api.Errorf(api.CodeRejected, "job rejected: job %d is interactive, and its client has no other", j.Number)
	}
	gone := api.Errorf(api.CodeNotFound, "job \"%d\" does not exist", j.Number)
	was, err := s.Store.Request(j)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = gone
		}
		return api.SubmitReply{}, err
	}
	defer s.Store.Forget(j)
	r := *was
	r.Hold, r.Now, r.Verify = hold, false, ""
	if err := s.choose(j, &r, req); err != nil {
		return api.SubmitReply{}, err
	}
	if j.HasScript {
		f, err := s.Store.OpenScript(j)
		if errors.Is(err, os.ErrNotExist) {
			return api.SubmitReply{}, gone
		}
		if err != nil {
			return api.SubmitReply{}, err
		}
		defer f.Close()
		// The owner may have made the script longer.
		if r.Script, err = io.ReadAll(io.LimitReader(f, api.MaxScript+1)); err != nil {
			return api.SubmitReply{}, err
		}
	}
	return s.submit(ctx, c, &r)
}

// choose restricts the copy of an array to the tasks that were asked for. The range
// stays, so that the tasks have the numbers they know.
func (s *Server) choose(j *job.Job, r *api.SubmitRequest, req *api.ResubmitRequest) error {
	if req.Tasks != "" {
		if !j.Tasks.IsArray() {
			return api.Errorf(api.CodeRejected, "job rejected: job %d is no array", j.Number)
		}
		r.Only = req.Tasks // submit checks it
	}
	if req.Failed && j.Tasks.IsArray() {
		r.Only = s.Store.Failed(j)
	}
	return nil
}
