package server

import (
	"context"
	"strconv"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/spool"
)

// output answers qlog. The user opens the files, and execd never does.
func (s *Server) output(ctx context.Context, c job.Caller, req *api.OutputRequest) (api.OutputReply, error) {
	j, tasks := s.Store.Youngest(req.Job, c)
	if j == nil {
		return s.outputOfFinished(req.Job, tasks, c)
	}
	reply := api.OutputReply{Job: j.Number, Name: j.Terms().Name, Owner: j.Owner, Array: j.Tasks.IsArray()}
	streams, err := s.streams(ctx, j)
	if err != nil {
		return reply, err
	}
	var list []job.Written
	list, reply.More = s.Store.Written(j, tasks, api.MaxOutputs)
	for _, w := range list {
		out := streams.Output(s.Host, w.Task)
		if w.Run != (spool.RunID{}) {
			if written, ok := s.Stages.Launcher.Output(w.Run); ok {
				out = written
			}
		}
		out.State = w.State
		reply.Outputs = append(reply.Outputs, out)
	}
	if len(reply.Outputs) == 0 && tasks.IsArray() { // all of them are over
		return s.finishedTasks(reply, streams, tasks)
	}
	return reply, nil
}

// streams returns what the paths of an unfinished job are made from.
func (s *Server) streams(ctx context.Context, j *job.Job) (*launch.Streams, error) {
	request, err := s.Store.Request(j)
	if err != nil {
		return nil, err
	}
	owner, err := s.Users.ByID(ctx, j.UID)
	if err != nil {
		return nil, api.Errorf(api.CodeInternal, "%v", err)
	}
	streams := launch.StreamsOf(j.Number, request, owner)
	return &streams, nil
}

// outputOfFinished answers for jobs that are over, as far as it is remembered where
// they wrote.
func (s *Server) outputOfFinished(word string, tasks api.Tasks, c job.Caller) (api.OutputReply, error) {
	name := word
	if tasks.IsArray() {
		name = word[:strings.LastIndexByte(word, '.')]
	}
	number, err := strconv.Atoi(name)
	var streams launch.Streams
	ok := false
	switch {
	case s.Streams == nil:
	case err == nil:
		streams, ok = s.Streams.Job(number)
	default:
		streams, ok = s.Streams.Youngest(c.UID, name)
	}
	reply := api.OutputReply{Job: streams.Job, Name: string(streams.Name), Owner: streams.Owner, Array: streams.Array, Finished: true}
	switch {
	case ok && (tasks.IsArray() || !streams.Array):
		return s.finishedTasks(reply, &streams, tasks)
	case ok:
		return reply, nil
	case err != nil:
		return reply, api.Errorf(api.CodeNotFound, "The job %s of user(s) %s does not exist", api.Short(name), c.Name)
	case number < 1 || number > s.Store.Last():
		return reply, api.Errorf(api.CodeNotFound, "denied: job %q does not exist", api.Short(name))
	}
	return reply, api.Errorf(api.CodeNotFound, "job %d is over, and where it wrote is not known any more: it never started, or many others have since", number)
}

// finishedTasks fills in the named tasks, which are over.
func (s *Server) finishedTasks(reply api.OutputReply, streams *launch.Streams, tasks api.Tasks) (api.OutputReply, error) {
	if !streams.Array {
		if tasks.IsArray() && (tasks.First != 1 || tasks.Last != 1) {
			return reply, api.Errorf(api.CodeNotFound, "denied: job \"%d\" task \"%d\" does not exist", reply.Job, tasks.First)
		}
		tasks = api.Tasks{First: 1, Last: 1, Step: 1}
	}
	count := tasks.Count()
	reply.More = count > api.MaxOutputs
	for i := range min(count, api.MaxOutputs) {
		reply.Outputs = append(reply.Outputs, streams.Output(s.Host, tasks.First+i*tasks.Step))
	}
	return reply, nil
}

// top answers qtop: what runs, which jobs are next, and the load of the host.
func (s *Server) top(_ context.Context, c job.Caller, req *api.TopRequest) (api.TopReply, error) {
	if err := bounded(req.Users); err != nil {
		return api.TopReply{}, err
	}
	tally := s.Store.Tally()
	reply := api.TopReply{
		Host: s.Host, Slots: s.Config().Slots(), Drain: s.drained(), Pilot: s.Config().Pilot(),
		Running: tally.Running, Suspended: tally.Suspended, Pending: tally.Pending, Held: tally.Held, InError: tally.Errored,
		Sending: tally.Sending, Stuck: tally.Stuck, Failed: tally.Failed,
		Jobs: []api.TopJob{}, // an empty list in JSON, and not null
	}
	for _, q := range s.Queue.Status() {
		reply.Used += q.Used
	}
	s.topLoad(&reply)
	users := req.Users
	if len(users) == 0 {
		users = []string{"*"}
	}
	list := s.Store.List(&api.JobsRequest{Users: users}, c, s.Host, api.MaxTop)
	rank := s.Queue.Ranks()
	runs := map[[2]int]int{}
	for _, t := range s.Store.Unfinished() {
		runs[[2]int{t.Job.Number, t.Number}] = t.Run
	}
	used := s.usages()
	running, waiting := 0, 0
	for _, j := range append(list.Running, list.Waiting...) {
		count := &waiting
		if j.Queue != "" {
			count = &running
		}
		if *count++; *count > api.MaxTop {
			reply.More = true
			continue
		}
		line := api.TopJob{JobStatus: j}
		rank(&line.JobStatus)
		if j.Queue != "" {
			run := spool.RunID{Job: j.Job, Task: j.Task()}
			run.Run = runs[[2]int{run.Job, run.Task}]
			u, begun := used[run]
			if begun {
				line.Usage = &u
			}
			if !begun || strings.HasSuffix(j.State, api.StateSending) { // it has not begun, or is over
				line.Transfer = s.Stages.Transfer(run)
			}
		}
		reply.Jobs = append(reply.Jobs, line)
	}
	return reply, nil
}

// topLoad fills in the load of the host.
func (s *Server) topLoad(reply *api.TopReply) {
	if s.Load == nil {
		return
	}
	load := s.Load()
	if v, ok := load["load_short"]; ok {
		reply.Load = v.Text + " " + load["load_medium"].Text + " " + load["load_long"].Text
	}
	reply.Processors = int(load["num_proc"].Number)
	reply.Memory, reply.MemoryUsed = load["mem_total"].Number, load["mem_used"].Number
}
