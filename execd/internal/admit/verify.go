package admit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/user"
)

// StartsNow reports whether a job of -now y would start, if no other came between.
func (a *Rules) StartsNow(req *api.SubmitRequest, owner *user.User) bool {
	now := *req
	now.Verify = "p"
	_, impossible := a.Queue.Check(&now, owner.Name, owner.GroupNames)
	return impossible == nil
}

// Verify checks for -w whether a job could run here. It returns lines to print, and
// whether the job is not to be submitted.
func (a *Rules) Verify(req *api.SubmitRequest, owner *user.User) (lines []string, only bool, err error) {
	refused, impossible := a.Queue.Check(req, owner.Name, owner.GroupNames)
	if refused != nil {
		return nil, false, rejected(refused)
	}
	if away, err := a.Away(req); err != nil {
		return nil, false, err
	} else if away {
		impossible = nil // as far as is known here
	}
	only = req.Verify == "v" || req.Verify == "p"
	switch {
	case only && impossible != nil:
		var why schedule.Unsuitable
		errors.As(impossible, &why)
		return nil, true, api.Errorf(api.CodeRejected, "%s", strings.Join(unsuitable(a.Store.Last()+1, why), "\n"))
	case only:
		lines = []string{"verification: found suitable queue(s)"}
	case impossible != nil && req.Verify == "e":
		return nil, false, api.Errorf(api.CodeRejected, "error: no suitable queues")
	case impossible != nil && req.Verify == "w":
		lines = []string{"warning: no suitable queues"}
	}
	return lines, only, nil
}

// asks are the fields with requests to host and queues.
var asks = []api.Field{
	api.FieldHard, api.FieldSoft, api.FieldQueues, api.FieldSoftQueues, api.FieldMasterQueues, api.FieldPE, api.FieldCheckpoint, api.FieldProject,
}

// Become refuses what a job cannot become. It checks the job's earlier requests only
// together with new ones, since the configuration may have changed.
func (a *Rules) Become(j *job.Job, fields []api.Field, to *api.SubmitRequest) (lines []api.Line, only bool, err error) {
	r := *to
	if !r.Binary {
		r.Script = []byte{} // the script is in the spool
	}
	if err := Check(&r); err != nil {
		return nil, false, err
	}
	if err := a.mayBeArgs(r.Args); err != nil {
		return nil, false, err
	}
	if api.AboutSandbox(fields) || slices.Contains(fields, api.FieldAttributes) {
		if err := a.mayTransfer(&r); err != nil {
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
		if err := mayBeInProject(a.Config(), &r, j.Owner, j.Groups); err != nil {
			return nil, false, err
		}
	}
	asked := slices.ContainsFunc(fields, func(f api.Field) bool { return slices.Contains(asks, f) })
	if !asked && r.Verify == "" {
		return nil, false, CheckCheckpoint(&r)
	}
	refused, impossible := a.Queue.Check(&r, j.Owner, j.Groups)
	senseless := CheckCheckpoint(&r)
	away, stays := a.Away(&r)
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

// unsuitable says why a job can never run, or not now, in lines as -w v and -w p print
// them. A job that is not submitted yet has the number that it would get.
func unsuitable(job int, why schedule.Unsuitable) []string {
	lines := make([]string, 0, len(why)+1)
	for _, w := range why {
		if !strings.HasPrefix(w, "queue instance ") {
			w = fmt.Sprintf("Job %d %s", job, w)
		}
		lines = append(lines, w)
	}
	return append(lines, "verification: no suitable queues")
}

// rejected makes a refusal of the queue an error of the request.
func rejected(err error) *api.Error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	return api.Errorf(api.CodeRejected, "%v", err)
}
