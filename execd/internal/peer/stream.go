package peer

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
)

// Stall is how long no byte may move on a connection that is to carry some.
const Stall = api.StageStall * time.Second

// errStalled is why a stream is given up.
var errStalled = errors.New("no byte has moved for a minute")

// endSilent has a connection end when what was sent on it is not acknowledged for as long as a
// stream may stall: the other host may be gone without a word.
func endSilent(_, _ string, c syscall.RawConn) error {
	var err error
	if ctl := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(Stall.Milliseconds()))
	}); ctl != nil {
		return ctl
	}
	return err
}

// stream sends a request that may be long, and calls read with the answer, which may be long,
// too.
func (c *Clients) stream(ctx context.Context, host, user, path string, body io.Reader, read func(status string, r io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(Stall, func() { cancel(errStalled) })
	defer timer.Stop()
	answer, err := c.post(ctx, host, user, path, &sending{body, timer})
	if err != nil {
		return why(ctx, err)
	}
	defer answer.Body.Close()
	timer.Stop()
	return why(ctx, read(answer.Status, &receiving{answer.Body, timer}))
}

// why returns the cause of an error that follows from the end of a context.
func why(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

// sending is a body that is being sent. What was read of it before has been sent when it is
// read again, so that the time runs but for that in which there is nothing to send.
type sending struct {
	io.Reader
	timer *time.Timer
}

func (s *sending) Read(b []byte) (int, error) {
	s.timer.Stop()
	defer s.timer.Reset(Stall)
	return s.Reader.Read(b)
}

// receiving is a body that is being received. The time runs while something is awaited.
type receiving struct {
	io.Reader
	timer *time.Timer
}

func (r *receiving) Read(b []byte) (int, error) {
	r.timer.Reset(Stall)
	defer r.timer.Stop()
	return r.Reader.Read(b)
}
