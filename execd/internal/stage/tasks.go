package stage

import (
	"fmt"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/subtask"
	"paddock/spool"
)

// NotYet is the error of a task of a job that may get a shepherd and has none: it is
// asked for again when Known is closed.
type NotYet struct{ Known <-chan struct{} }

func (n *NotYet) Error() string { return "the job is not started yet" }

// StartTask starts a task in a run and returns its name. It waits for nothing: a job
// whose slot is its own may still be prepared, for which the error is a *NotYet.
func (r *Runner) StartTask(t *job.Task, o *subtask.Order) (name string, err error) {
	l, known := r.launched(t)
	switch {
	case known != nil:
		return "", &NotYet{known}
	case l == nil:
		return "", &subtask.Refused{Text: fmt.Sprintf("job %v is not running", t)}
	}
	return l.tasks.Start(o)
}

// TaskEnd returns a channel that is closed when a task is over, or how it has
// ended; neither is known of one that is long over.
func (r *Runner) TaskEnd(t *job.Task, name string) (over <-chan struct{}, end *api.TaskEnd) {
	if l := r.lifeOf(t); l != nil {
		return l.tasks.End(name)
	}
	return nil, nil
}

// Subtasks returns what was started in a run and has not ended, the oldest first, and
// what was used by what has; nil: nothing was ever started.
func (r *Runner) Subtasks(run spool.RunID) (list []api.Subtask, past *api.Usage) {
	if l := r.life(run); l != nil {
		return l.tasks.List()
	}
	return nil, nil
}
