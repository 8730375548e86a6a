package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/schedule"
	"paddock/spool"
)

// jobList is a JobsReply that is sent as it is written: all of it would be several
// times as large as the list.
type jobList []*api.JobStatus

func (jobList) contentType() string { return "application/json" }

func (l jobList) send(_ context.Context, in *incoming, w io.Writer) error {
	giveBack(&in.leaveTurn)
	return api.WriteJobs(w, slices.Values(l))
}

// lineSize is about the size of an element of a jobList, in bytes.
const lineSize = 400

// jobs answers qstat.
func (s *Server) jobs(ctx context.Context, c job.Caller, in *incoming) (any, error) {
	var req api.JobsRequest
	if err := in.decode(ctx, &req); err != nil {
		return nil, err
	}
	if err := bounded(req.Users, req.Queues); err != nil {
		return nil, err
	}
	giveBack(&in.dropBody) // nothing of the memory is held while waiting for room for the reply
	if err := in.holdReply(ctx, s.Store.Len()*lineSize); err != nil {
		return nil, err
	}
	if err := in.takeTurn(ctx); err != nil {
		return nil, err
	}
	l := s.Store.List(&req, c, s.Host, math.MaxInt)
	if len(req.Queues) > 0 {
		l.Keep(func(n job.Needs) bool { return s.Queue.Suits(n.Request(), req.Queues) })
	}
	rank := s.Queue.Ranks()
	for _, part := range [][]api.JobStatus{l.Running, l.Waiting} {
		for i := range part {
			if parts, ok := rank(&part[i]); ok && part[i].More != nil {
				job.SetParts(part[i].More, parts)
			}
		}
	}
	jobs := make(jobList, 0, len(l.Running)+len(l.Waiting)+len(l.Finished))
	for _, part := range [][]api.JobStatus{l.Running, l.Waiting, l.Finished} {
		for i := range part {
			jobs = append(jobs, &part[i])
		}
	}
	waiting := jobs[len(l.Running):][:len(l.Waiting)]
	slices.SortStableFunc(waiting, func(a, b *api.JobStatus) int { return cmp.Compare(b.Priority, a.Priority) })
	if req.Reasons {
		s.explain(waiting)
	}
	if req.More {
		s.describe(jobs, len(l.Running))
	}
	return jobs, nil
}

// bounded refuses lists of words, each of which may mean many jobs, that are longer
// than anybody needs.
func bounded(lists ...[]string) error {
	for _, words := range lists {
		if err := api.CheckWords(words); err != nil {
			return err
		}
	}
	return nil
}

// explain fills in why jobs that wait and are not held are not starting.
func (s *Server) explain(jobs jobList) {
	verdict := s.Queue.Verdicts()
	for _, j := range jobs {
		if j.State == "qw" && j.Holds == "" {
			j.Reason = verdict(j.Job)
		}
	}
}

// describe adds what the Store does not know of jobs; the first of them run.
func (s *Server) describe(jobs jobList, running int) {
	if running > 0 {
		used, pes := s.usages(), s.Config().PEs
		for _, j := range jobs[:running] {
			run := spool.RunID{Job: j.Job, Task: j.Task(), Run: j.More.Restarts}
			if u, ok := used[run]; ok {
				j.More.Usage = &u
			}
			j.More.Subtasks, j.More.PastUsage = s.subtasks(run, used)
			pe := pes[j.More.GrantedPE]
			j.More.MasterApart = pe != nil && !pe.JobIsFirstTask
		}
	}
	told := map[*api.Requested]bool{}
	for _, j := range jobs {
		m := j.More
		if len(m.Hard) == 0 || told[&m.Hard[0]] {
			continue
		}
		told[&m.Hard[0]] = true
		r := &api.SubmitRequest{PE: m.PE, Slots: m.Slots}
		for _, h := range m.Hard {
			r.Hard = append(r.Hard, h.Resource)
		}
		for k, n := range s.Queue.Contributions(r) {
			m.Hard[k].Urgency = n
		}
	}
}

// usages returns what the runs use, those that are elsewhere included.
func (s *Server) usages() map[spool.RunID]api.Usage {
	all := s.Shadows.Used()
	if s.Usage != nil {
		maps.Copy(all, s.Usage.All())
	}
	return all
}

// subtasks returns the tasks started in a run, with their usage, and the usage of those
// that have ended.
func (s *Server) subtasks(run spool.RunID, used map[spool.RunID]api.Usage) (list []api.Subtask, past *api.Usage) {
	list, past = s.Stages.Subtasks(run)
	for i := range list {
		run.PETask = list[i].ID
		if u, ok := used[run]; ok {
			list[i].Usage = &u
		}
	}
	return list, past
}

// detailSize is the most that the details of a job take while they are sent, in bytes.
const detailSize = 4 << 20

// detail answers qstat -j.
func (s *Server) detail(ctx context.Context, c job.Caller, in *incoming) (any, error) {
	var req api.DetailRequest
	if err := in.decode(ctx, &req); err != nil {
		return nil, err
	}
	if err := bounded(req.Jobs); err != nil {
		return nil, err
	}
	giveBack(&in.dropBody)
	if err := in.holdReply(ctx, detailSize); err != nil {
		return nil, err
	}
	if err := in.takeTurn(ctx); err != nil {
		return nil, err
	}
	l := &detailList{s: s, caller: c}
	var err error
	l.jobs, l.missing, err = s.Store.Meant(ctx, req.Jobs)
	giveBack(&in.leaveTurn)
	return l, err
}

// detailList is a DetailReply that is made job by job, each in its turn, while it is
// sent.
type detailList struct {
	s       *Server
	caller  job.Caller
	jobs    []*job.Job
	missing []string
}

func (*detailList) contentType() string { return "application/json" }

func (l *detailList) send(ctx context.Context, in *incoming, w io.Writer) error {
	text := []byte(`{"jobs":[`)
	first := true
	rank := l.s.Queue.Ranks()
	for _, j := range l.jobs {
		if err := in.takeTurn(ctx); err != nil {
			return err
		}
		d, ok := l.s.detailOf(j, l.caller, rank)
		if !ok {
			giveBack(&in.leaveTurn)
			continue
		}
		one, err := json.Marshal(&d)
		giveBack(&in.leaveTurn)
		if err != nil {
			return err
		}
		if !first {
			text = append(text, ',')
		}
		first = false
		if text = append(text, one...); len(text) >= smallReply {
			if _, err := w.Write(text); err != nil {
				return err
			}
			text = text[:0]
		}
	}
	text = append(text, ']')
	if len(l.missing) > 0 {
		missing, err := json.Marshal(l.missing)
		if err != nil {
			return err
		}
		text = append(append(text, `,"missing":`...), missing...)
	}
	_, err := w.Write(append(text, "}\n"...))
	return err
}

// detailOf returns the details of a job; false: it is over.
func (s *Server) detailOf(j *job.Job, c job.Caller, rank func(*api.JobStatus) (schedule.Parts, bool)) (api.Detail, bool) {
	d, ok := s.Store.Detail(j, c, s.Host, s.reasons)
	if !ok {
		return d, false
	}
	p, _ := rank(&api.JobStatus{Job: d.Job})
	if p.Share == 0 && len(d.Tasks) > 0 { // the job does not wait
		t := &d.Tasks[0]
		p, _ = rank(&api.JobStatus{Job: d.Job, Tasks: strconv.Itoa(t.Task), Queue: t.Queue, State: t.State})
	}
	d.NormalUrgency, d.NormalTickets = p.Urgency, p.Share
	var used map[spool.RunID]api.Usage
	for i := range d.Tasks {
		if used == nil {
			used = s.usages()
		}
		t := &d.Tasks[i]
		run := spool.RunID{Job: d.Job, Task: t.Task, Run: t.Run}
		if u, ok := used[run]; ok {
			s.Stages.Launcher.Limits(run, &u)
			t.Usage = &u
		}
		t.Subtasks, _ = s.subtasks(run, used)
		t.Silent = s.Shadows.Silent(run)
		t.Hooks, t.Transfer = s.Stages.HookRuns(run), s.Stages.Transfer(run)
	}
	return d, true
}

// delete answers qdel.
func (s *Server) delete(ctx context.Context, c job.Caller, req *api.DeleteRequest) (api.DeleteReply, error) {
	if err := bounded(req.Jobs, req.Users); err != nil {
		return api.DeleteReply{}, err
	}
	var away []api.Line
	var mu sync.Mutex
	reply, err := s.Store.Delete(ctx, req, c, func(t *job.Task) {
		s.Stages.Kill(t)
		if !req.Force || t.Start.Remote == nil {
			return
		}
		if text := s.Shadows.Forget(t); text != "" {
			mu.Lock()
			defer mu.Unlock()
			away = append(away, api.Line{Text: text})
		}
	})
	reply.Lines = append(reply.Lines, away...)
	return reply, err
}

// reasons says why a job that has something to start is not starting, here or on another
// host.
func (s *Server) reasons(j *job.Job) []string {
	lines := s.Queue.Reasons(j)
	if why := s.Shadows.Why(j); why != "" {
		lines = append(lines, "not on another host: "+why)
	}
	return lines
}

// measures answers /metrics.
func (s *Server) measures(in *incoming, r *http.Request) (any, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, api.Errorf(api.CodeBadRequest, "cannot %s metrics", r.Method)
	}
	if cred, _ := r.Context().Value(peerKey{}).(*unix.Ucred); cred != nil {
		in.uid = int(cred.Uid)
	}
	in.gate = &s.admission.answers
	if err := in.takeTurn(r.Context()); err != nil {
		return nil, err
	}
	text := measured(s.Metrics())
	return text, in.holdReply(r.Context(), len(text))
}

// measured is the text of the metrics.
type measured []byte

func (measured) contentType() string { return metrics.ContentType }

func (m measured) send(_ context.Context, in *incoming, w io.Writer) error {
	giveBack(&in.leaveTurn)
	_, err := w.Write(m)
	return err
}

// status answers `execd -status`.
func (s *Server) status(_ context.Context, _ job.Caller, _ *api.StatusRequest) (api.StatusReply, error) {
	tally := s.Store.Tally()
	return api.StatusReply{
		Version: s.Version, Host: s.Host, Slots: s.Config().Slots(), Groups: s.Groups, Drain: s.drained(), Started: s.Started, Problems: s.Problems(),
		Running: tally.Started(), Suspended: tally.Suspended, Pending: tally.Waiting(), Held: tally.Held,
		Transferring: tally.Sending, Stuck: tally.Stuck, Errored: tally.Errored,
	}, nil
}

// drained returns since when no task is started; nil: the host is not drained.
func (s *Server) drained() *api.Drain {
	if d := s.Drain.State(); d.On {
		return &api.Drain{Since: d.Since, By: d.By}
	}
	return nil
}

// drain answers `execd -drain`.
func (s *Server) drain(ctx context.Context, c job.Caller, req *api.DrainRequest) (reply api.DrainReply, err error) {
	if req.On && req.Off {
		return reply, api.Errorf(api.CodeBadRequest, "cannot drain: on and off exclude each other")
	}
	speed := claim.Speed(req.Speed)
	if !slices.Contains([]claim.Speed{"", claim.Graceful, claim.Quick, claim.Fast}, speed) || speed != "" && !req.On {
		return reply, api.Errorf(api.CodeBadRequest, "cannot drain: %q is no speed", api.Short(req.Speed))
	}
	if req.On || req.Off {
		if reply.Changed, err = s.Drain.Set(req.On, req.Speed, c.Name, time.Now()); err != nil {
			return reply, err
		}
		s.Queue.Settle()
		if speed != "" || req.Off {
			s.Queue.Drain(speed)
			s.Log.Info(fmt.Sprintf("execd: drain: speed=%q by=%s", speed, c.Name))
		}
	}
	if reply.Changed {
		s.Log.Info(fmt.Sprintf("execd: drain=%t by=%s", req.On, c.Name))
	}
	changed := s.Drain.Changed()
	timer := time.NewTimer(longPoll)
	defer timer.Stop()
	for enough := !req.Wait; ; {
		reply.Drain = s.drained()
		var tasks []*job.Task
		reply.Running, reply.Transferring = 0, 0
		for _, t := range s.Store.Unfinished() {
			switch state := s.Store.State(t); {
			case state == job.Started:
				reply.Running++
			case state == job.Over && s.Store.Stuck(t) == nil:
				reply.Transferring++
			default:
				continue
			}
			tasks = append(tasks, t)
		}
		if enough || len(tasks) == 0 || reply.Drain == nil {
			return reply, nil
		}
		// All of them must end, so it waits for any.
		state := s.Store.State(tasks[0])
		changes, _, _ := s.Store.Changed(tasks[0].Job, api.Tasks{})
		if s.Store.State(tasks[0]) != state {
			continue
		}
		select {
		case <-changes:
		case <-changed:
			enough = true
		case <-timer.C:
			enough = true
		case <-s.stopping:
			enough = true
		case <-ctx.Done():
			return reply, nil // the client has gone
		}
	}
}
