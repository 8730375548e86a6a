package server

import (
	"context"
	"fmt"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/job"
)

// How long a request for the timeline waits for a change, and for more changes that come with
// it, so that one who looks asks four times a second at most.
const (
	timelinePoll   = time.Minute
	timelineGather = 250 * time.Millisecond
)

// timeline answers what the runs of the host's jobs did lately, as qstat shows jobs of everybody.
func (s *Server) timeline(ctx context.Context, _ job.Caller, in *incoming) (any, error) {
	var req api.TimelineRequest
	if err := in.decode(ctx, &req); err != nil {
		return nil, err
	}
	giveBack(&in.dropBody)
	enough := time.NewTimer(timelinePoll)
	defer enough.Stop()
	for {
		if err := in.takeTurn(ctx); err != nil {
			return nil, err
		}
		s.remember.Do(s.recall)
		changed := s.Timeline.Changed() // before it is looked at
		reply := api.TimelineReply{Now: time.Now().UnixMilli(), Queues: []api.TimelineQueue{}}
		reply.Runs, reply.Cursor, reply.Whole = s.Timeline.Since(req.Since)
		for _, q := range s.Config().Queues {
			reply.Queues = append(reply.Queues, api.TimelineQueue{Name: q.Name, Slots: q.Slots})
		}
		if !req.Wait || len(reply.Runs) > 0 || reply.Whole {
			return &reply, nil
		}
		giveBack(&in.leaveTurn) // who waits keeps nobody from his turn
		if !s.awaitChange(ctx, changed, enough.C) {
			return &reply, nil
		}
		select {
		case <-time.After(timelineGather):
		case <-s.stopping:
		case <-ctx.Done():
		}
	}
}

// recalled is how much of the accounting file is read for the timeline, in bytes.
const recalled = 512 << 10

// recall enters in the timeline what the accounting file has of runs that were over before this
// execd was started. That is done when somebody looks for the first time.
func (s *Server) recall() {
	records, err := s.Book.Last(recalled)
	if err != nil {
		s.Log.Warn(fmt.Sprintf("timeline: runs of the past are not known: %v", err))
		return
	}
	others := map[string]string{s.Host: ""} // hosts, as the timeline calls them
	for _, p := range s.Watch.Status() {
		others[p.Name] = p.Name
	}
	var runs []api.TimelineRun
	for i := range records {
		r := &records[i]
		host, known := others[r.Hostname]
		if !known || r.StartTime == 0 || r.EndTime >= s.Started.Unix() || r.PETaskID != accounting.None && r.PETaskID != "" {
			continue
		}
		runs = append(runs, api.TimelineRun{
			Job: r.JobNumber, Task: r.TaskNumber, Owner: r.Owner, Name: r.JobName, Host: host, Queue: r.QName, Submitted: r.SubmissionTime * 1000,
			Failed: r.Failed, Exit: r.ExitStatus, Spans: []api.Span{{Kind: api.SpanRun, Begin: r.StartTime * 1000, End: r.EndTime * 1000}},
		})
	}
	s.Timeline.Past(runs)
}
