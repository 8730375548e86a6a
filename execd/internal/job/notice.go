package job

import (
	"cmp"

	"paddock/execd/api"
)

// Notice is what happens to tasks of a job that wait, for the event log of its owner.
// Package stage reports what happens to those that run.
type Notice struct {
	Kind   NoticeKind
	Tasks  Tasks
	Reason string
}

// NoticeKind says what has happened.
type NoticeKind string

// What happens to tasks that wait.
const (
	NoticeSubmitted NoticeKind = "submitted"
	NoticeHeld      NoticeKind = "held"
	NoticeReleased  NoticeKind = "released" // of a hold, or of their error
	NoticeDeleted   NoticeKind = "deleted"
)

// OnNotice sets the function that is told of jobs that have attributes of their own. It must
// not block, or call back into the Store. The request is the job's, and must not be changed.
func (s *Store) OnNotice(f func(*Job, *api.SubmitRequest, Notice)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onNotice = f
}

// noticed returns the request of a job of which lines of its record are to be told; nil:
// nobody is to hear of them. It is read before they are written, with which the record
// may go. j.file is held.
func (s *Store) noticed(j *Job, lines []*line) *api.SubmitRequest {
	s.mu.Lock()
	wanted, request, altered := s.onNotice != nil, j.request, j.alterations > 0
	s.mu.Unlock()
	if !wanted || len(j.Terms().Needs.Attributes()) == 0 {
		return nil
	}
	for _, l := range lines {
		switch l.Event {
		case EventHeld, EventReleased, EventDeleted, EventCleared, EventAltered:
			if request == nil {
				if h, err := s.readRequest(j.Number, altered); err == nil { // else nobody can tell where to
					request = &h.Request
				}
			}
			return request
		}
	}
	return nil
}

// heldWaiting returns the tasks that wait and are held. The Store's mutex is held.
func (j *Job) heldWaiting() Tasks {
	free := j.pending.clone()
	for _, held := range j.held {
		free.Subtract(&held)
	}
	set := j.pending.clone()
	set.Subtract(&free)
	return set
}

// notices reports what a line of the record of a job has changed. Before are the tasks
// that were held before the line was applied. The Store's mutex is held.
func (s *Store) notices(j *Job, request *api.SubmitRequest, l *line, before Tasks) {
	tell := func(kind NoticeKind, tasks Tasks, reason string) {
		if tasks.Len() > 0 {
			s.onNotice(j, request, Notice{kind, tasks, reason})
		}
	}
	named, _ := parseTasks(l.Tasks, j.Tasks) // it was applied
	hold, release := "via qhold", "via qrls"
	switch l.Event {
	case EventDeleted:
		tell(NoticeDeleted, named, cmp.Or(l.Reason, "via qdel"))
	case EventCleared:
		tell(NoticeReleased, named, cmp.Or(l.Reason, "via qmod -cj"))
	case EventAltered:
		hold, release = "via qalter", "via qalter"
	}
	after := j.heldWaiting()
	set := after.clone()
	set.Subtract(&before)
	before.Subtract(&after)
	tell(NoticeHeld, set, hold)
	tell(NoticeReleased, before, release)
}
