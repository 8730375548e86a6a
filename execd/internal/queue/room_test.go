package queue

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
)

// A job with a sandbox is not started while there is no room for it, whether that was so
// when it came or is since it waits; it says why, all others are started, and it is as soon
// as there is room.
func TestRoom(t *testing.T) {
	s := newStore(t)
	b := newBench(t, s, 1, NewGIDs(nil))
	const full = "output of 2 jobs still leaves /scratch"
	var short atomic.Bool
	b.q.o.Room = func() string {
		if short.Load() {
			return full
		}
		return ""
	}
	boxed := func() *job.Job {
		j, _, err := s.Submit(&user.User{Name: "alice", UID: 1}, 100, &api.SubmitRequest{Name: "j", Binary: true, Command: "true", Sandbox: api.SandboxYes}, job.Limits{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	starts := func(want string) {
		t.Helper()
		if got := b.next(t); got != want {
			t.Fatalf("%s is started; want %s", got, want)
		}
	}
	says := func(j *job.Job) {
		t.Helper()
		if got := b.q.Reasons(j); !slices.Equal(got, []string{full}) {
			t.Errorf("Reasons of job %d = %q", j.Number, got)
		}
	}
	submit(t, s, api.Tasks{}, 0)
	starts("1.1")
	before := boxed()
	b.q.Reasons(before) // the scheduler has it
	short.Store(true)
	after := boxed()
	submit(t, s, api.Tasks{}, 0)
	b.end("1.1")
	starts("4.1")
	says(before)
	says(after)
	short.Store(false)
	b.q.Traffic()
	b.end("4.1")
	starts("2.1")
	b.end("2.1")
	starts("3.1")
	b.q.mu.Lock()
	defer b.q.mu.Unlock()
	if len(b.q.boxed) > 0 {
		t.Errorf("%v wait", b.q.boxed)
	}
}
