package job

import (
	"testing"
	"time"
)

// A task that could not be prepared is not started again at once, later each
// time, until one has run; what took too long is remembered over a restart, and
// over a compaction, until somebody clears it.
func TestPostpone(t *testing.T) {
	root := newRoot(t)
	s, _ := openStore(t, root)
	j := submitArray(t, s, 2)
	var before time.Duration
	for n := range 3 {
		j.own().notBefore = time.Time{}
		task := s.Take(j, Start{Queue: "all.q"}, time.Now())
		if err := s.Begin(task); err != nil {
			t.Fatal(err)
		}
		until, err := s.Postpone(task, "hook timed out", n > 0)
		if err != nil {
			t.Fatal(err)
		}
		delay := time.Until(until)
		if delay < before+5*time.Second {
			t.Errorf("delay %d is %v after one of %v", n, delay, before)
		}
		before = delay
		if n, _, at := s.Ready(j, time.Now()); n != 0 || !at.Equal(until) {
			t.Errorf("%d tasks are ready, the next at %v; want none before %v", n, at, until)
		}
		if s.Take(j, Start{Queue: "all.q"}, time.Now()) != nil {
			t.Error("taken before its time")
		}
		if n, _, _ := s.Ready(j, until); n != 2 {
			t.Errorf("%d tasks are ready at the time; want 2", n)
		}
	}
	again, _ := openStore(t, root)
	j = again.jobs[j.Number]
	if j.late[1] != 2 {
		t.Fatalf("%d times late after a restart; want 2", j.late[1])
	}
	again.compact(j)
	third, _ := openStore(t, root)
	j = third.jobs[j.Number]
	task := third.Take(j, Start{Queue: "all.q"}, time.Now())
	if task == nil || third.Late(task) != 2 {
		t.Fatalf("task %v: %d times late after a compaction; want 2", task, j.late[1])
	}
	if err := third.Begin(task); err != nil {
		t.Fatal(err)
	}
	if err := third.Fail(task, "too late"); err != nil {
		t.Fatal(err)
	}
	if err := j.apply(1, &line{Event: EventCleared}); err != nil || j.late[1] != 0 {
		t.Errorf("cleared (%v): %d times late; want 0", err, j.late[1])
	}
}

// What nobody will start again is over, and its record goes.
func TestAbandon(t *testing.T) {
	s, _ := openStore(t, newRoot(t))
	j := submitArray(t, s, 1)
	task := s.Take(j, Start{Queue: "all.q"}, time.Now())
	if err := s.Begin(task); err != nil {
		t.Fatal(err)
	}
	if err := s.Abandon(task); err != nil {
		t.Fatal(err)
	}
	if s.jobs[j.Number] != nil {
		t.Error("the job is still there")
	}
}
