package server

import (
	"context"
	"reflect"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/account"
	"paddock/execd/internal/job"
)

// find answers the first request of qwait.
func (s *Server) find(ctx context.Context, c job.Caller, req *api.FindRequest) (api.FindReply, error) {
	if len(req.Jobs) > api.MaxWaited {
		return api.FindReply{}, api.Errorf(api.CodeRejected, "more than %d jobs are too many to wait for at once", api.MaxWaited)
	}
	if err := bounded(req.Jobs); err != nil {
		return api.FindReply{}, err
	}
	// The place is read before the jobs, so that what is accounted between the two comes
	// after it.
	place := s.Book.Now()
	reply := api.FindReply{User: c.Name}
	var whole bool
	var err error
	if reply.Found, reply.Missing, whole, err = s.Store.Find(ctx, req.Jobs, c, api.MaxWaited); err != nil {
		return api.FindReply{}, err
	}
	if reply.Last = s.Store.Last(); whole {
		reply.Cursor = account.FormatCursor(place)
	}
	return reply, nil
}

// ends answers qwait.
func (s *Server) ends(ctx context.Context, c job.Caller, req *api.EndsRequest) (api.EndsReply, error) {
	if len(req.Jobs) == 0 || len(req.Jobs) > api.MaxWaited {
		return api.EndsReply{}, api.Errorf(api.CodeBadRequest, "cannot wait for %d jobs at once", len(req.Jobs))
	}
	for _, w := range req.Jobs {
		if t := w.Tasks; t != (api.Tasks{}) && (t.First < 1 || t.Last < t.First || t.Step < 1 || t.Last > api.MaxTask) {
			return api.EndsReply{}, api.Errorf(api.CodeBadRequest, "%v is not a range of tasks", t)
		}
	}
	return s.await(ctx, c, req)
}

// wait answers qsub -sync and, with Start, qsh -now n.
func (s *Server) wait(ctx context.Context, c job.Caller, req *api.WaitRequest) (api.WaitReply, error) {
	if j := s.Store.Get(req.Job); req.Start && j != nil {
		if started, never := s.awaitStart(ctx, j); !never {
			return api.WaitReply{Started: started, Cursor: req.Cursor}, nil
		}
	}
	ends, err := s.await(ctx, c, &api.EndsRequest{Jobs: []api.Waited{{Job: req.Job}}, Cursor: req.Cursor})
	reply := api.WaitReply{Ended: ends.Ended, Cursor: ends.Cursor, Done: len(ends.Over) > 0}
	if len(ends.Stuck) > 0 {
		reply.Error, reply.Vain = ends.Stuck[0].Reason, ends.Stuck[0].Vain
	}
	return reply, err
}

// awaitStart waits until a task of a job has started, or no task will start. If it reports
// neither, the client has to ask again.
func (s *Server) awaitStart(ctx context.Context, j *job.Job) (started, never bool) {
	timer := time.NewTimer(longPoll)
	defer timer.Stop()
	for {
		changed, started, never := s.Store.Starts(j)
		if started || never || s.waitForChange(ctx, []<-chan struct{}{changed}, timer.C) != jobChanged {
			return started, never
		}
	}
}

// longPoll is how long a request waits for an event, and gathering how long ends are
// gathered for a reply: a large array ends hundreds of tasks a second.
const (
	longPoll  = 5 * time.Minute
	gathering = 100 * time.Millisecond
)

// await reports how tasks of jobs ended, as soon as there is something to report. It reads
// the accounting file, so it works for jobs that are over, over restarts, and without
// memory for finished tasks.
func (s *Server) await(ctx context.Context, c job.Caller, req *api.EndsRequest) (api.EndsReply, error) {
	place, err := account.ParseCursor(req.Cursor)
	if err != nil {
		return api.EndsReply{}, api.Errorf(api.CodeBadRequest, "%v", err)
	}
	jobs := make([]*job.Job, len(req.Jobs))
	numbers := make([]int, len(req.Jobs))
	for i, w := range req.Jobs {
		jobs[i], numbers[i] = s.Store.Get(w.Job), w.Job
	}
	var ended []api.TaskEnd
	timer := time.NewTimer(longPoll)
	defer timer.Stop()
	for enough := false; ; {
		// The jobs are looked at before the file, so that what ends between the two is in
		// the file, and closes a channel.
		var reply api.EndsReply
		changed := s.look(jobs, req.Jobs, &reply)
		enough = enough || len(reply.Over) > 0 || len(reply.Stuck) > 0
		if enough || len(ended) == 0 {
			var more []api.TaskEnd
			var untold bool
			if more, place, untold, err = s.accounted(ctx, c, place, numbers); err != nil {
				return api.EndsReply{}, err
			}
			if untold { // the client asks for the rest before it hears that a job is over
				enough, reply = true, api.EndsReply{}
			}
			if len(ended) == 0 && len(more) > 0 {
				timer.Reset(gathering)
			}
			ended = append(ended, more...)
		}
		if enough {
			reply.Ended, reply.Cursor = ended, account.FormatCursor(place)
			return reply, nil
		}
		switch s.waitForChange(ctx, changed, timer.C) {
		case clientGone:
			return reply, nil
		case timeUp:
			enough = true
		}
	}
}

// accounted reads the accounting file in its turn, since the file may be large.
func (s *Server) accounted(ctx context.Context, c job.Caller, place job.Place, numbers []int) ([]api.TaskEnd, job.Place, bool, error) {
	leave, err := s.admission.answers.Enter(ctx, c.UID, 1)
	if err != nil {
		return nil, place, false, err
	}
	defer leave()
	return s.Book.Ends(ctx, place, numbers...)
}

// look fills in which jobs are over and which are stuck, and returns channels that are
// closed when one of the others changes.
func (s *Server) look(jobs []*job.Job, waited []api.Waited, reply *api.EndsReply) []<-chan struct{} {
	var changed []<-chan struct{}
	for i, j := range jobs {
		if j == nil {
			reply.Over = append(reply.Over, i)
			continue
		}
		c, over, stuck := s.Store.Changed(j, waited[i].Tasks)
		if over {
			reply.Over = append(reply.Over, i)
		}
		if stuck.Reason != "" {
			stuck.Place = i
			reply.Stuck = append(reply.Stuck, stuck)
		}
		changed = append(changed, c)
	}
	return changed
}

// waitEnd says what has ended a wait for jobs.
type waitEnd int

const (
	clientGone waitEnd = iota // the client has gone
	timeUp                    // the time is up, or execd stops
	jobChanged                // one of the jobs has changed
)

// waitForChange waits until a job changes, the time is up or the client has gone.
func (s *Server) waitForChange(ctx context.Context, changed []<-chan struct{}, timeout <-chan time.Time) waitEnd {
	if len(changed) == 1 {
		select {
		case <-ctx.Done():
			return clientGone
		case <-timeout:
			return timeUp
		case <-s.stopping:
			return timeUp
		case <-changed[0]:
			return jobChanged
		}
	}
	cases := make([]reflect.SelectCase, 0, len(changed)+3)
	add := func(c any) {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)})
	}
	add(ctx.Done())
	add(timeout)
	add(s.stopping)
	for _, c := range changed {
		add(c)
	}
	switch i, _, _ := reflect.Select(cases); i {
	case 0:
		return clientGone
	case 1, 2:
		return timeUp
	}
	return jobChanged
}
