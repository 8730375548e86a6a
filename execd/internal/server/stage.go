package server

import (
	"bufio"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/peer"
)

// carrier has the files of activations travel that other hosts have made with a Carriage.
type carrier interface {
	AskPart(ctx context.Context, id api.SandboxID, bytes int64) (part api.StagePart, have string, err error)
	// Push and Pull return when nothing of the stream is used any more. Stop has a call of it
	// that is under way return soon.
	Push(ctx context.Context, id api.SandboxID, part api.StagePart, from io.Reader, stop func()) (api.StageInReply, error)
	Pull(ctx context.Context, r *api.StageOutRequest, to io.Writer, stop func()) error
	Delivered(ctx context.Context, id api.SandboxID, root string) error
	Undeliverable(ctx context.Context, id api.SandboxID, errno int, text string) error
	Drop(id api.SandboxID, why string)
	// Keep has the output of a claim be kept that is about to be released.
	Keep(claim string)
	RenewOutput(id api.SandboxID) (time.Duration, bool)
	Carried(id api.SandboxID) (*api.Carried, *job.Task)
}

// checkCarriage refuses an activation whose files cannot travel, and has it name no places
// but those that this host is to know.
func checkCarriage(req *api.ActivateRequest) error {
	c, r := req.Carriage, req.Request
	switch {
	case c == nil:
		return nil
	case req.Home == nil:
		return errors.New("files travel for a job of another host alone")
	case r == nil || r.Sandbox != api.SandboxYes:
		return errors.New("files travel into a sandbox, and the job has none")
	}
	for i := range r.StageOut {
		if s := &r.StageOut[i]; s.Place != "" {
			s.Place = api.Text(path.Clean(string(s.Name)))
		}
	}
	r.StageOutTo = ""
	return c.Key.Check()
}

// box returns the job and the state of an activation whose files travel, for who has the key.
// No error tells one that is another's from one that there is not.
func (s activations) box(ctx context.Context, c job.Caller, id api.SandboxID, key api.SandboxKey) (*job.Job, api.RunState, error) {
	state, number, err := s.Followed.State(ctx, followerOf(c), id)
	if err != nil {
		return nil, state, err
	}
	j := s.Store.Get(number)
	if state == api.RunUnknown || j == nil || j.Activation == nil || j.Activation.Carriage == nil ||
		subtle.ConstantTimeCompare([]byte(j.Activation.Carriage.Key), []byte(key)) != 1 {
		return nil, state, api.Refusef(api.RefusedUnknown, "no sandbox %q is known, or its key is another", api.Short(string(id)))
	}
	return j, state, nil
}

// carried returns how the files of an activation stand; nil: none travel.
func (s activations) carried(number int, id api.SandboxID) *api.Carried {
	j := s.Store.Get(number)
	if j == nil || j.Activation == nil || j.Activation.Carriage == nil || j.Activation.Sandbox != id {
		return nil
	}
	c, t := s.Boxes.Carried(id)
	if c == nil {
		return nil
	}
	if x := s.Stages.Transfer(t.RunID()); x != nil {
		c.Transfer = *x
	}
	if stuck := s.Store.Stuck(t); stuck != nil {
		c.Phase, c.Failure = api.CarriedStuck, stuck.Text
	}
	return c
}

// stageHave answers which part of its input an activation waits for.
func (s activations) stageHave(ctx context.Context, c job.Caller, req *api.StageHaveRequest) (reply api.StageHaveReply, err error) {
	_, state, err := s.box(ctx, c, req.Sandbox, req.Key)
	if err != nil || state != api.RunStarting {
		return reply, err
	}
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	reply.Part, reply.Have, err = s.Boxes.AskPart(ctx, req.Sandbox, req.Bytes)
	return reply, s.stopped(err)
}

// untilStop returns a context that ends when execd is to stop.
func (s activations) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.serving, cancel)
	return ctx, func() { stop(); cancel() }
}

// stopped returns an error of an untilStop in the words for clients.
func (s activations) stopped(err error) error {
	if err != nil && s.serving.Err() != nil {
		return api.Errorf(api.CodeTryAgain, "execd is stopping")
	}
	return err
}

// maxStageLine bounds a StageInRequest, in bytes.
const maxStageLine = 4 << 10

// stageIn reads the request for a part that is pushed, behind which the stream follows.
func (s *Server) stageIn(ctx context.Context, c job.Caller, in *incoming) (any, error) {
	body := &lively{deadline: in.deadline}
	body.r = in.body
	lines := bufio.NewReaderSize(body, maxStageLine)
	line, err := lines.ReadSlice('\n')
	var req api.StageInRequest
	if err == nil {
		err = json.Unmarshal(line, &req)
	}
	if err != nil {
		return nil, api.Errorf(api.CodeBadRequest, "cannot read request: %v", err)
	}
	if _, state, err := (activations{s}).box(ctx, c, req.Sandbox, req.Key); err != nil {
		return nil, err
	} else if state != api.RunStarting {
		return nil, api.Refusef(api.RefusedTryAgain, "the job waits for no input")
	}
	return &pushed{s, req, body, lines}, nil
}

// lively is one direction of a connection on which a byte has to move now and then. Only one
// of the fields r and w is used.
type lively struct {
	r        io.Reader
	w        io.Writer
	flush    func() error
	deadline func(time.Time) error

	mu      sync.Mutex
	stopped bool // guarded by mu

	moving sync.Mutex
	begun  bool // guarded by moving; something was written that was no empty line
	beaten bool // guarded by moving; an empty line was
	ended  bool // guarded by moving; all was read
}

// extend gives the next byte its time.
func (l *lively) extend() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return os.ErrDeadlineExceeded
	}
	return l.deadline(time.Now().Add(peer.Stall))
}

// stop has what is under way return soon, and all that follows.
func (l *lively) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	_ = l.deadline(time.Unix(1, 0))
}

func (l *lively) Read(b []byte) (int, error) {
	if err := l.extend(); err != nil {
		return 0, err
	}
	n, err := l.r.Read(b)
	if errors.Is(err, io.EOF) {
		l.moving.Lock()
		l.ended = true
		l.moving.Unlock()
	}
	return n, err
}

func (l *lively) Write(b []byte) (int, error) {
	l.moving.Lock()
	defer l.moving.Unlock()
	l.begun = true
	return l.write(b)
}

func (l *lively) write(b []byte) (int, error) {
	if err := l.extend(); err != nil {
		return 0, err
	}
	return l.w.Write(b)
}

// beat sends empty lines as long as may and nothing else is sent, until stop is called.
func (l *lively) beat(may func() bool) (stop func()) {
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		ticker := time.NewTicker(api.StageBeat * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-done:
				return
			}
			if !may() {
				continue
			}
			l.moving.Lock()
			if !l.begun {
				l.beaten = true
				if _, err := l.write([]byte("\n")); err == nil {
					_ = l.flush()
				}
			}
			l.moving.Unlock()
		}
	})
	return func() {
		close(done)
		all.Wait()
	}
}

// pushed is a part of the input that is on its way, and the answer to that.
type pushed struct {
	*Server
	req    api.StageInRequest
	body   *lively
	stream io.Reader
}

func (*pushed) contentType() string { return "application/json" }

func (p *pushed) send(ctx context.Context, in *incoming, w io.Writer) error {
	out := &lively{w: w.(*patientWriter).w, flush: in.flush, deadline: w.(*patientWriter).deadline}
	// As long as something is read, bytes move.
	stop := out.beat(func() bool {
		p.body.moving.Lock()
		defer p.body.moving.Unlock()
		return p.body.ended
	})
	reply, err := p.Boxes.Push(ctx, p.req.Sandbox, p.req.Part, p.stream, p.body.stop)
	stop()
	if err != nil {
		reply = api.StageInReply{Error: p.explained(err)}
	}
	text, err := json.Marshal(reply)
	if err == nil {
		_, err = out.Write(append(text, '\n'))
	}
	return err
}

// stageOut answers with the output of an activation.
func (s activations) stageOut(ctx context.Context, c job.Caller, req *api.StageOutRequest) (any, error) {
	_, state, err := s.box(ctx, c, req.Sandbox, req.Key)
	switch {
	case err != nil:
		return nil, err
	case state == api.RunFinal || state == api.RunGone:
		return nil, api.Refusef(api.RefusedState, "its output has gone")
	case state != api.RunOver:
		return nil, api.Refusef(api.RefusedTryAgain, "its job is not over")
	}
	return &pulled{s, req}, nil
}

// pulled is output that is on its way.
type pulled struct {
	activations
	req *api.StageOutRequest
}

func (*pulled) contentType() string { return "application/octet-stream" }

func (p *pulled) send(ctx context.Context, in *incoming, w io.Writer) error {
	out := &lively{w: w.(*patientWriter).w, flush: in.flush, deadline: w.(*patientWriter).deadline}
	stop := out.beat(func() bool { return true })
	err := p.Boxes.Pull(ctx, p.req, out, out.stop)
	stop()
	switch {
	case err == nil:
	case !out.begun && !out.beaten:
		return &unsent{err}
	case out.begun: // the stream says itself why it cannot go on, or that it has ended too early
		p.Log.Debug(fmt.Sprintf("execd: output for %s: %v", p.req.Sandbox, err))
		return nil
	}
	return err
}

// stageDone takes note that the output of an activation is where it belongs, or that nobody
// wants it. Who says so again was not heard to be heard.
func (s activations) stageDone(ctx context.Context, c job.Caller, req *api.StageDoneRequest) (reply struct{}, err error) {
	j, state, err := s.box(ctx, c, req.Sandbox, req.Key)
	switch {
	case state == api.RunUnknown && api.RefusalOf(err) == api.RefusedUnknown, err == nil && (state == api.RunFinal || state == api.RunGone):
		return reply, nil
	case err != nil:
		return reply, err
	case req.Discard:
		s.Boxes.Drop(req.Sandbox, api.Visible(api.Short(j.Activation.Host+": "+req.Reason)))
		return reply, nil
	case state != api.RunOver:
		return reply, api.Refusef(api.RefusedTryAgain, "its job is not over")
	}
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	if err = s.Boxes.Delivered(ctx, req.Sandbox, req.Root); api.RefusalOf(err) == api.RefusedState {
		if is, _ := s.Boxes.Carried(req.Sandbox); is == nil { // it has just gone
			err = nil
		}
	}
	return reply, s.stopped(err)
}

// stageStuck takes note that a host cannot take output before somebody has looked.
func (s activations) stageStuck(ctx context.Context, c job.Caller, req *api.StageStuckRequest) (reply struct{}, err error) {
	_, state, err := s.box(ctx, c, req.Sandbox, req.Key)
	switch {
	case err != nil:
		return reply, err
	case state != api.RunOver:
		return reply, api.Refusef(api.RefusedTryAgain, "its job is not over")
	}
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	return reply, s.stopped(s.Boxes.Undeliverable(ctx, req.Sandbox, req.Errno, api.Visible(api.Short(req.Reason))))
}

// renew renews the lease of output that is detached, and returns its length.
func (s activations) renew(ctx context.Context, c job.Caller, o *api.SandboxOrder) (time.Duration, error) {
	if _, _, err := s.box(ctx, c, o.Sandbox, o.Key); err != nil {
		return 0, err
	}
	lease, ok := s.Boxes.RenewOutput(o.Sandbox)
	if !ok {
		return 0, api.Refusef(api.RefusedUnknown, "nothing is kept in sandbox %q", api.Short(string(o.Sandbox)))
	}
	s.Followed.Extend(o.Sandbox)
	return lease, nil
}
