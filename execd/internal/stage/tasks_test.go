package stage

import (
	"context"
	"errors"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/stage/subtask"
	"paddock/execd/internal/user"
)

// visit asks for a task in a run, and returns the channel to wait for if it is too
// early; nil: it was refused, or the run has a shepherd.
func (s *scene) visit(task *job.Task) (wait <-chan struct{}, refused bool) {
	s.t.Helper()
	_, err := s.r.StartTask(task, &subtask.Order{Request: &api.TaskRequest{Into: true}, By: &user.User{Name: "alice"}})
	if err == nil {
		s.t.Fatal("a task is started where nothing can be")
	}
	if early, ok := errors.AsType[*NotYet](err); ok {
		return early.Known, false
	}
	_, refused = errors.AsType[*subtask.Refused](err)
	return nil, refused
}

// nothingStarts takes away the queue that tasks would be started in.
func (s *scene) nothingStarts() { s.r.Config = func() *conf.Config { return &conf.Config{} } }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A job runs, as far as others see, from when it has its slot, and is prepared before it
// has a shepherd. Who wants to enter it waits until it has one.
func TestTaskOfJobThatIsPrepared(t *testing.T) {
	for _, test := range []struct {
		name string
		goOn func(s *scene, end chan<- hook.Result) // what becomes of the job
		up   bool
	}{
		{name: "started", up: true, goOn: func(s *scene, _ chan<- hook.Result) { s.r.steerable(s.l) }},
		{name: "given back", goOn: func(_ *scene, end chan<- hook.Result) {
			end <- hook.Result{Keyword: "K", Hook: hook.PrepareJob, Status: -9}
		}},
		{name: "in error", goOn: func(_ *scene, end chan<- hook.Result) {
			end <- hook.Result{Keyword: "K", Hook: hook.PrepareJob, Status: 1}
		}},
		{name: "killed", goOn: func(s *scene, _ chan<- hook.Result) {
			if _, err := s.r.Store.Evict(s.l.task, job.Want{Signal: int(sigkill), By: "alice"}); err != nil {
				s.t.Fatal(err)
			}
			s.r.Kill(s.l.task)
		}},
		{name: "dead", goOn: func(s *scene, _ chan<- hook.Result) { s.r.Exited(s.l.task.RunID()) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			runs, end := make(chan struct{}), make(chan hook.Result, 1)
			t.Cleanup(func() { close(end) }) // when the runner has stopped, and starts nothing
			s := preparing(t)
			s.mend()
			s.nothingStarts()
			s.r.Journal = nothingWanted{}
			s.l.notices.Find(s.r.Journal)
			s.r.setUp(s.l)
			s.l.hooks.Prepare = &hook.Hook{Keyword: "K", Name: hook.PrepareJob, Path: "/bin/true", Limit: time.Minute}
			s.hooks.run = func(ctx context.Context, _ int, _ hook.Call) hook.Result {
				close(runs)
				select {
				case <-ctx.Done():
					return hook.Result{Keyword: "K", Hook: hook.PrepareJob, Err: ctx.Err()}
				case res := <-end:
					return res
				}
			}
			s.r.advance(s.l, nil)
			<-runs
			if s.r.AtRest(s.l.task) { // which waits until nobody leads it on
				t.Error("it has a shepherd")
			}
			known, _ := s.visit(s.l.task)
			if known == nil || isClosed(known) {
				t.Fatalf("what is prepared is entered, or refused; want to wait")
			}
			if again, _ := s.visit(s.l.task); again != known {
				t.Error("two who wait do not wait for the same")
			}
			test.goOn(s, end)
			<-known
			wait, refused := s.visit(s.l.task)
			if wait != nil || refused == test.up {
				t.Errorf("waits on: %v, refused: %v; want refused: %v", wait != nil, refused, !test.up)
			}
			if up := s.r.AtRest(s.l.task); up != test.up {
				t.Errorf("has a shepherd: %v; want %v", up, test.up)
			}
		})
	}
}

// A task has its slot before its start is recorded, and before it has a life.
func TestTaskOfJobThatIsTaken(t *testing.T) {
	s := newScene(t, nil)
	s.nothingStarts()
	first := s.taken(nil).task
	known, _ := s.visit(first)
	if known == nil || isClosed(known) {
		t.Fatal("what is taken is refused; want to wait")
	}
	s.r.Store.Untake(first)
	if !isClosed(known) {
		t.Error("what was given back is waited for")
	}
	// The next try has the same number, and is another.
	next := s.r.newLife(s.r.Store.Take(first.Job, job.Start{Queue: "all.q"}, time.Now()))
	s.r.add(next)
	if err := s.r.Store.Begin(next.task); err != nil {
		t.Fatal(err)
	}
	next.steer.up = true
	if wait, refused := s.visit(first); wait != nil || !refused {
		t.Error("the next try is entered for the last")
	}
	if wait, refused := s.visit(next.task); wait != nil || refused {
		t.Error("the next try is not entered")
	}
	if s.r.AtRest(first) || !s.r.AtRest(next.task) {
		t.Error("the last try has a shepherd, or the next has none")
	}
}

// A job that migrates when it is suspended still does when a task was started in it.
func TestTaskLeavesMigration(t *testing.T) {
	s := newScene(t, nil)
	s.l.at, s.l.exited, s.l.migrates, s.l.steer.up = runs, false, true, true
	s.l.task.Start.Grant = &schedule.Grant{Queues: []schedule.QueueSlots{{Queue: "all.q", Slots: 1}}}
	s.visit(s.l.task)
	if !s.l.migrates {
		t.Error("it would be stopped")
	}
}
