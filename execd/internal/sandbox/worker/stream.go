package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/stage/exit"
)

// Stream is where a tree comes from, or goes to: one of both.
type Stream struct {
	From io.Reader
	To   io.Writer
	// Stop has a call of From or To that is under way return soon, and those that follow.
	Stop func()
}

// ErrCut is matched when the far end of a stream has failed, and not the worker.
var ErrCut = errors.New("the connection was cut off")

// pipeSize is how much a pipe holds, so that the worker works while the network does.
const pipeSize = 1 << 20

// buffers are those of streams under way.
var buffers = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// relay moves the bytes between a stream and the pipe of a worker.
type relay struct {
	via    *Stream // nil: there is none
	theirs *os.File
	ours   *os.File
	moved  chan ending // its error is that of the far end, or errNonsense

	bytes   atomic.Int64 // that were moved
	writing atomic.Bool  // to the far end
}

// open makes the pipe.
func (s *Stream) open() (*relay, error) {
	r := &relay{via: s}
	if s == nil {
		return r, nil
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	if r.ours, r.theirs = in, out; s.From != nil {
		r.ours, r.theirs = out, in
	}
	if raw, err := r.ours.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) }) // there may be none so large
	}
	return r, nil
}

// abort is for when there is no worker.
func (r *relay) abort() {
	if r.via != nil {
		_, _ = r.theirs.Close(), r.ours.Close()
	}
}

// start begins to move bytes, when the worker has its end.
func (r *relay) start() {
	if r.via == nil {
		return
	}
	_ = r.theirs.Close()
	r.moved = make(chan ending, 1)
	go func() { r.moved <- ending{r.move()} }()
}

// move moves all bytes. The error is that of the far end, or errNonsense.
func (r *relay) move() error {
	defer r.ours.Close()
	buf := buffers.Get().(*[128 << 10]byte)
	defer buffers.Put(buf)
	if r.via.From != nil {
		for {
			n, err := r.via.From.Read(buf[:])
			r.bytes.Add(int64(n))
			if _, gone := r.ours.Write(buf[:n]); gone != nil {
				return nil // the worker says why
			}
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return fmt.Errorf("%w: %w", ErrCut, err)
			}
		}
	}
	for {
		n, err := r.ours.Read(buf[:])
		if n > 0 {
			r.writing.Store(true)
			_, cut := r.via.To.Write(buf[:n])
			r.writing.Store(false)
			if r.bytes.Add(int64(n)); cut != nil {
				return fmt.Errorf("%w: %w", ErrCut, cut)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errNonsense
		}
	}
}

// lastBytes is how long the far end may take to end the stream that it sends, when the
// worker has all of it.
const lastBytes = time.Second

// end waits for the end of the stream when the worker has ended, by an error perhaps, and
// returns what was wrong. What the worker has written may still be on its way, also why it
// has failed; but a process that it has left may hold its end, and write nothing.
func (r *relay) end(ctx context.Context, err error, grace time.Duration) error {
	if r.via == nil {
		return err
	}
	if r.via.From != nil {
		return r.endFrom(err)
	}
	for was := int64(-1); ; {
		timer := time.NewTimer(grace)
		select {
		case far := <-r.moved:
			timer.Stop()
			return far.or(err)
		case <-ctx.Done():
			timer.Stop()
			r.via.Stop()
			_ = r.ours.SetDeadline(time.Now())
			<-r.moved
			return cmp.Or(err, context.Cause(ctx))
		case <-timer.C:
			if now := r.bytes.Load(); !r.writing.Load() && now == was {
				_ = r.ours.SetDeadline(time.Now())
			} else {
				was = now
			}
		}
	}
}

// endFrom is end of a stream that comes from the far end.
func (r *relay) endFrom(err error) error {
	patience := lastBytes
	if err != nil {
		patience = 0
	}
	var far ending
	select {
	case far = <-r.moved:
	case <-time.After(patience):
		select {
		case far = <-r.moved:
		default:
			r.via.Stop()
			_ = r.ours.SetDeadline(time.Now())
			<-r.moved
		}
	}
	if err == nil { // the worker has had all
		return nil
	}
	return far.or(err)
}

// or returns why a stream has failed of whose worker that is the error: the far end's, unless
// a second attempt would fail as well.
func (far ending) or(err error) error {
	if _, permanent := errors.AsType[*exit.Permanent](err); permanent || far.err == nil {
		return err
	}
	return far.err
}
