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
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/spool"
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
	if err := knownHosts(ctx, config, &req.To); err != nil {
		return api.AlterReply{}, err
	}
	// The refusal names a resource that does not exist as it was written: Spell leaves it.
	req.To.Hard, req.To.Soft = schedule.Spell(config, req.To.Hard), schedule.Spell(config, req.To.Soft)
	return s.Store.Alter(ctx, req, c, job.AlterHooks{Check: s.mayBecome, Changed: s.attributesChanged, Host: s.Host})
}

// attributesChanged has the policies of the slot of a task know that the attributes of its
// job are others.
func (s *Server) attributesChanged(t *job.Task) {
	if t.Start.Remote == nil {
		s.Queue.Reconsider(t)
	}
	s.Stages.Altered(t)
}

// asks are the fields with requests to host and queues.
var asks = []api.Field{
	api.FieldHard, api.FieldSoft, api.FieldQueues, api.FieldSoftQueues, api.FieldMasterQueues, api.FieldPE, api.FieldCheckpoint, api.FieldProject,
}

// mayBecome refuses what a job cannot become. It checks the job's earlier requests only
// together with new ones, since the configuration may have changed.
func (s *Server) mayBecome(j *job.Job, fields []api.Field, to *api.SubmitRequest) (lines []api.Line, only bool, err error) {
	r := *to
	if !r.Binary {
		r.Script = []byte{} // the script is in the spool
	}
	if err := check(&r); err != nil {
		return nil, false, err
	}
	if err := s.mayBeArgs(r.Args); err != nil {
		return nil, false, err
	}
	if api.AboutSandbox(fields) || slices.Contains(fields, api.FieldAttributes) {
		if err := s.mayTransfer(&r); err != nil {
			return nil, false, err
		}
	}
	if j.UnderClaim() && slices.Contains(fields, api.FieldAttributes) {
		return nil, false, api.Errorf(api.CodeRejected, "denied: job %d came with an ad of its own", j.Number)
	}
	if r.Priority < api.MinPriority || r.Priority > api.MaxPriority {
		return nil, false, api.Errorf(api.CodeRejected, "invalid priority \"%d\".  Must be an integer from %d to %d", r.Priority, api.MinPriority, api.MaxPriority)
	}
	if slices.Contains(fields, api.FieldProject) {
		if err := mayBeInProject(s.Config(), &r, j.Owner, j.Groups); err != nil {
			return nil, false, err
		}
	}
	asked := slices.ContainsFunc(fields, func(f api.Field) bool { return slices.Contains(asks, f) })
	if !asked && r.Verify == "" {
		return nil, false, checkCheckpoint(&r)
	}
	refused, impossible := s.Queue.Check(&r, j.Owner, j.Groups)
	senseless := checkCheckpoint(&r)
	away, stays := s.Shadows.Away(&r)
	if away {
		impossible = nil // as far as is known here
	}
	var why schedule.Unsuitable
	switch only = r.Verify == "v" || r.Verify == "p"; {
	case refused != nil:
		e := rejected(refused)
		// Grid Engine's message for a job that exists is shorter.
		e.Text = strings.Replace(e.Text, "job rejected: the requested ", "denied: ", 1)
		return nil, false, e
	case senseless != nil:
		return nil, false, senseless
	case stays != nil:
		return nil, false, stays
	case only && errors.As(impossible, &why):
		for _, w := range unsuitable(j.Number, why) {
			lines = append(lines, api.Line{Text: w, Failed: true, Code: api.CodeRejected})
		}
	case only:
		lines = []api.Line{{Text: "verification: found suitable queue(s)"}}
	case impossible != nil && r.Verify == "e":
		return nil, false, api.Errorf(api.CodeRejected, "error: no suitable queues")
	case impossible != nil && r.Verify == "w":
		lines = []api.Line{{Text: "warning: no suitable queues", Failed: true, Code: api.CodeRejected}}
	}
	return lines, only, nil
}

// mayBeContext refuses a context that cannot be shown in a line.
func mayBeContext(context []string) error {
	total := 0
	for i, v := range context {
		total += len(v) + 1
		name, _, _ := strings.Cut(v, "=")
		same := func(other string) bool {
			n, _, _ := strings.Cut(other, "=")
			return n == name
		}
		if name == "" || v != api.Visible(v) || slices.ContainsFunc(context[:i], same) {
			return api.Errorf(api.CodeRejected, "job rejected: %q is not a context variable", api.Short(v))
		}
	}
	if len(context) > api.MaxWords || total > api.MaxContext {
		return api.Errorf(api.CodeRejected, "job rejected: the context has %d variables of %d bytes, at most %d of %d are possible", len(context), total, api.MaxWords, api.MaxContext)
	}
	return nil
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

// mayBeArgs refuses arguments that the shepherd cannot take.
func (s *Server) mayBeArgs(args []string) error {
	if !s.Stages.Launcher.Foreign() {
		return nil
	}
	// A shepherd of the site's own does not read the file args.
	for _, a := range args {
		if !spool.PlainValue(a) {
			return api.Errorf(api.CodeRejected, "job rejected: an argument has a control character, which shepherd_cmd %s cannot take", s.Stages.Launcher.Shepherd)
		}
	}
	return nil
}

// rejected makes a refusal of the queue an error of the request.
func rejected(err error) *api.Error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	return api.Errorf(api.CodeRejected, "%v", err)
}
