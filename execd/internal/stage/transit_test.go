package stage

import (
	"context"
	"errors"
	"testing"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
)

// fetcher is an Input that tells how far it has come, and waits until it is cancelled.
type fetcher struct {
	begun chan struct{}
	cause chan error
}

func (*fetcher) Has(*job.Task) bool { return true }
func (f *fetcher) Fetch(ctx context.Context, _ *job.Task, report func(base.Progress)) error {
	report(base.Progress{Bytes: 5, Total: 10, Files: 1})
	close(f.begun)
	<-ctx.Done()
	f.cause <- context.Cause(ctx)
	return errors.New("killed")
}

// A transfer that prepares a job shows how far it has come. Who deletes the job ends it,
// and it is no attempt that has failed; execd that stops does so as well, and the run
// stays where it is on disk.
func TestInputIsCancelled(t *testing.T) {
	for _, stop := range []bool{false, true} {
		s := preparing(t)
		f := &fetcher{begun: make(chan struct{}), cause: make(chan error, 1)}
		s.r.Input, s.l.hooks.StageIn = f, true
		s.r.setUp(s.l)
		s.r.advance(s.l, nil)
		<-f.begun
		if got := s.l.end.Input.Standing(); got.Bytes != 5 || got.Total != 10 || got.Attempt != 1 || got.Since.IsZero() || got.Failure != "" {
			t.Errorf("it stands at %+v", got)
		}
		if stop {
			s.r.Stop()
			if cause := <-f.cause; !errors.Is(cause, base.ErrStopped) {
				t.Errorf("it was cancelled since %v", cause)
			}
			if s.r.Store.State(s.l.task) != job.Started || s.l.prep.Over(stepInput) {
				t.Errorf("execd stops, and the task is %v", s.r.Store.State(s.l.task))
			}
			continue
		}
		_, err := s.r.Store.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{"1"}}, job.Caller{UID: 1001, Name: "alice"}, s.r.Kill)
		if err != nil {
			t.Fatal(err)
		}
		if cause := <-f.cause; errors.Is(cause, base.ErrStopped) {
			t.Errorf("it was cancelled since %v", cause)
		}
		eventually(t, "gone", func() bool { return s.r.Store.Get(1) == nil })
	}
}

// What was cancelled counts as no attempt.
func TestCancelledIsNoAttempt(t *testing.T) {
	var done func(error)
	lost := 0
	transfer := exit.Transfer{Start: func(d func(error)) { done = d }, Event: func(f func()) { f() }, Lost: func(attempt int, _ error) { lost = attempt }}
	for _, err := range []error{&exit.Cancelled{Err: base.ErrStopped}, errors.New("reset")} {
		if r, err := transfer.Step(); r != exit.InProgress || err != nil {
			t.Fatalf("%v, %v; want it to begin", r, err)
		}
		done(err)
	}
	if lost != 1 {
		t.Errorf("the failure is attempt %d; want 1", lost)
	}
}
