package server

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/api"
)

// While nothing else is to be said, empty lines are; each byte has its time, and none has any
// when it was stopped.
func TestLively(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		var until time.Time
		var may atomic.Bool
		flushed := 0
		l := &lively{
			w: &said, flush: func() error { flushed++; return nil },
			deadline: func(at time.Time) error { until = at; return nil },
		}
		stop := l.beat(may.Load)
		time.Sleep(2 * api.StageBeat * time.Second)
		synctest.Wait()
		if said.Len() > 0 {
			t.Errorf("it has said %q", said.String())
		}
		may.Store(true)
		time.Sleep(2*api.StageBeat*time.Second + time.Second)
		synctest.Wait()
		if said.String() != "\n\n" || flushed != 2 || !l.beaten || l.begun || time.Until(until) > time.Minute {
			t.Errorf("it has said %q, %d times, until %v", said.String(), flushed, until)
		}
		if _, err := l.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(until); left != time.Minute {
			t.Errorf("a byte has %v", left)
		}
		time.Sleep(3 * api.StageBeat * time.Second)
		stop()
		if said.String() != "\n\nx" {
			t.Errorf("it has said %q", said.String())
		}
		l.stop()
		if _, err := l.Write([]byte("y")); !errors.Is(err, os.ErrDeadlineExceeded) || until.After(time.Now()) {
			t.Errorf("when it was stopped: %v, until %v", err, until)
		}
		in := &lively{r: strings.NewReader("all"), deadline: l.deadline}
		if text, err := io.ReadAll(in); string(text) != "all" || err != nil || !in.ended || time.Until(until) != time.Minute {
			t.Errorf("read %q, %v", text, err)
		}
		in.stop()
		if _, err := in.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read when it was stopped: %v", err)
		}
	})
}

// What an activation says of files that travel is complete, and E is told of no place of S.
func TestCheckCarriage(t *testing.T) {
	good := func() *api.ActivateRequest {
		return &api.ActivateRequest{
			Home: &api.Home{Job: 1, Task: 1}, Carriage: &api.Carriage{Key: api.NewSandboxKey()},
			Request: &api.SubmitRequest{Sandbox: api.SandboxYes, StageOut: []api.Staged{{Name: "a/x", Place: "s3://b/x"}, {Name: "b/x", Place: "y"}, {Name: "c"}}, StageOutTo: "https://h/"},
		}
	}
	r := good()
	if err := checkCarriage(r); err != nil || r.Request.StageOutTo != "" || r.Request.StageOut[0].Place != "a/x" || r.Request.StageOut[1].Place != "b/x" || r.Request.StageOut[2].Place != "" {
		t.Errorf("%+v, %v", r.Request, err)
	}
	for what, change := range map[string]func(*api.ActivateRequest){
		"no job": func(r *api.ActivateRequest) { r.Home = nil }, "an ad": func(r *api.ActivateRequest) { r.Request = nil },
		"no sandbox": func(r *api.ActivateRequest) { r.Request.Sandbox = "n" }, "no key": func(r *api.ActivateRequest) { r.Carriage.Key = "" },
	} {
		r := good()
		if change(r); checkCarriage(r) == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	if err := checkCarriage(&api.ActivateRequest{}); err != nil {
		t.Error(err)
	}
}
