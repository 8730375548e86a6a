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
	// The place comes before the jobs, so that what is accounted between the two stands
	// behind it.
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

// awaitStart waits until a task of a job has started, or none will. If it reports
// neither, the client is to ask again.
func (s *Server) awaitStart(ctx context.Context, j *job.Job) (started, never bool) {
	timer := time.NewTimer(longPoll)
	defer timer.Stop()
	for {
		changed, started, never := s.Store.Starts(j)
		if started || never || s.anyOf(ctx, []<-chan struct{}{changed}, timer.C) != another {
			return started, never
		}
	}
}

// longPoll is how long a request waits for news, and gathering how long ends are
// gathered for a reply: a large array ends hundreds of tasks a second.
const (
	longPoll  = 5 * time.Minute
	gathering = 100 * time.Millisecond
)

// await tells how tasks of jobs ended, as soon as there is something to tell. It reads
// the accounting file, and so works for jobs that are over, across restarts, and
// without memory for finished tasks.
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
		switch s.anyOf(ctx, changed, timer.C) {
		case gone:
			return reply, nil
		case late:
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

// look fills in which jobs are over, and which need help, and returns channels that
// tell of a change of the others.
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

// These are the results of anyOf.
const (
	gone    = iota // the client has gone
	late           // the time is up, or execd stops
	another        // something has changed
)

// anyOf waits for a change, the end of the time or the end of the client.
func (s *Server) anyOf(ctx context.Context, changed []<-chan struct{}, timeUp <-chan time.Time) int {
	if len(changed) == 1 {
		select {
		case <-ctx.Done():
			return gone
		case <-timeUp:
			return late
		case <-s.stopping:
			return late
		case <-changed[0]:
			return another
		}
	}
	cases := make([]reflect.SelectCase, 0, len(changed)+3)
	add := func(c any) {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)})
	}
	add(ctx.Done())
	add(timeUp)
	add(s.stopping)
	for _, c := range changed {
		add(c)
	}
	switch i, _, _ := reflect.Select(cases); i {
	case 0:
		return gone
	case 1, 2:
		return late
	}
	return another
}
