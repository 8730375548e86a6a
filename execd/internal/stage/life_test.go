package stage

import (
	"testing"

	"paddock/execd/internal/job"
)

// A run that is not started gives its slot back before it is forgotten. The next try
// has the same number, may begin in between, and is not forgotten with it: nobody
// would hear of its end.
func TestNextTryIsNotForgotten(t *testing.T) {
	task := func() *job.Task {
		return &job.Task{Job: &job.Job{Number: 7, Submitter: &job.Submitter{}, Origin: &job.Origin{}}, Number: 1}
	}
	r := &Runner{}
	old, next := r.newLife(task()), r.newLife(task())
	r.add(old)
	r.add(next)
	r.drop(old)
	if r.life(next.task.RunID()) != next {
		t.Error("the next try is forgotten with the one before")
	}
	r.drop(next)
	if len(r.lives) != 0 {
		t.Errorf("%d runs are left", len(r.lives))
	}
}
