package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
)

// taken makes the server's tasks such as can be entered, as far as that is checked
// before the job is looked at, and counts its requests.
func taken(t *testing.T, s *Server, requests *atomic.Int32) {
	t.Helper()
	session := filepath.Join(t.TempDir(), "qrsh-session")
	if err := os.WriteFile(session, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	s.Stages.Launcher.Session = session
	config := s.Config()
	s.Config = func() *conf.Config { requests.Add(1); return config }
}

// entering returns the request of a client that enters a job.
func entering(number int) *api.TaskRequest {
	hex := strings.Repeat("0123456789abcdef", 4)
	client := api.Listener{Address: "127.0.0.1:1", Fingerprint: hex, Token: hex}
	return &api.TaskRequest{Job: number, Into: true, Interactive: api.Interactive{Login: true, Client: client}}
}

// Who enters a job that has its slot and no shepherd yet is not refused: he waits, and
// without holding up what he has beside it; then he asks again.
func TestTaskOfJobThatIsNotStarted(t *testing.T) {
	var s *Server
	var requests atomic.Int32
	c := serve(t, func(served *Server) { s = served; taken(t, s, &requests) })
	number := ask[api.SubmitReply](t, c, api.VerbSubmit, good()).Job
	task := s.Store.Take(s.Store.Get(number), job.Start{Queue: "all.q"}, time.Now())
	request := entering(number)
	requests.Store(0)
	const visitors = 2 * maxUserSubmits
	answers := make(chan api.TaskReply, visitors)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range visitors {
		go func() {
			var reply api.TaskReply
			if err := c.Call(ctx, api.VerbTask, request, &reply); err != nil {
				reply.ID = err.Error()
			}
			answers <- reply
		}()
	}
	for end := time.Now().Add(time.Minute); requests.Load() < visitors; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the requests do not come in")
		}
	}
	ask[api.SubmitReply](t, c, api.VerbSubmit, good())
	select {
	case r := <-answers:
		t.Fatalf("answered %+v while nothing has happened", r)
	default:
	}
	s.Store.Untake(task)
	told := 0
	for range visitors {
		switch r := <-answers; {
		case r == (api.TaskReply{}):
			told++
		case !strings.Contains(r.ID, " is not running"): // of job 1, or task 1.1: it was held up on its way, and came too late to wait
			t.Errorf("answered %+v; want to be told to ask again", r)
		}
	}
	if told == 0 {
		t.Error("nobody was told to ask again")
	}
	refused(t, c, api.VerbTask, request, api.CodeRejected, "job 1 is not running")
}

// When execd stops it tells who waits to ask the next one.
func TestTaskOfJobWhenExecdStops(t *testing.T) {
	for range 20 {
		// Who is told before his request was read asks again by himself, and finds nobody.
		r, err := enterWhileItStops(t)
		if err == nil {
			if r != (api.TaskReply{}) {
				t.Errorf("answered %+v; want to be told to ask again", r)
			}
			return
		}
		if !errors.Is(err, api.ErrUnreachable) {
			t.Fatal(err)
		}
	}
	t.Error("no request was read before execd stopped")
}

// enterWhileItStops enters a job that has no shepherd yet, and has execd stop when it is
// asked.
func enterWhileItStops(t *testing.T) (reply api.TaskReply, err error) {
	s, dir := newServer(t)
	var requests atomic.Int32
	taken(t, s, &requests)
	socket := filepath.Join(dir, "s")
	l, err := Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	s.Open(ctx)
	serving.Go(func() {
		if err := s.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	defer serving.Wait()
	defer stop()
	c := api.NewClient(socket)
	number := ask[api.SubmitReply](t, c, api.VerbSubmit, good()).Job
	s.Store.Take(s.Store.Get(number), job.Start{Queue: "all.q"}, time.Now())
	requests.Store(0)
	go func() {
		for requests.Load() == 0 && ctx.Err() == nil { // the request is in
			time.Sleep(time.Millisecond)
		}
		stop()
	}()
	err = c.Call(t.Context(), api.VerbTask, entering(number), &reply)
	return reply, err
}
