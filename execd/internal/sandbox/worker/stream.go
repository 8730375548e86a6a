package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"paddock/execd/internal/sandbox/ring"
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

const (
	// most is how many bytes are read or written by one call: a block of a tree with its head is. The
	// more, the fewer wake-ups; but a call that is not over within a minute is a stream that has
	// stalled.
	most = 320 << 10

	// least is for how many bytes there has to be room before more are read, those of a full record of
	// TLS: what comes is not to wait until the worker has done with a block.
	least = 16 << 10
)

// relay moves the bytes between a stream and the ring of a worker: in the ring they lie where
// the worker has put them, or is to take them from.
type relay struct {
	via    *Stream      // nil: there is none
	in     *ring.Writer // to the worker, of From
	out    *ring.Reader // of To
	theirs *ring.Theirs
	moved  chan ending // its error is that of the far end, or errNonsense

	bytes   atomic.Int64 // that were moved
	writing atomic.Bool  // to the far end
}

// open makes the ring.
func (s *Stream) open() (r *relay, err error) {
	r = &relay{via: s}
	switch {
	case s == nil:
	case s.From != nil:
		r.in, r.theirs, err = ring.NewWriter()
	default:
		r.out, r.theirs, err = ring.NewReader()
	}
	return r, err
}

// given returns what the worker is to have, as the numbers of order say.
func (r *relay) given() []*os.File {
	if r.via == nil {
		return nil
	}
	return []*os.File{r.theirs.Link, r.theirs.Memory}
}

// ringEnd is either end of a ring. Stop has a call that waits there return soon.
type ringEnd interface {
	Close() error
	Stop()
}

// ours returns our end of the ring.
func (r *relay) ours() ringEnd {
	if r.in != nil {
		return r.in
	}
	return r.out
}

// abort is for when there is no worker.
func (r *relay) abort() {
	if r.via != nil {
		_ = r.theirs.Close()
		_ = r.ours().Close()
	}
}

// start begins to move bytes, when the worker has its end.
func (r *relay) start() {
	if r.via == nil {
		return
	}
	_ = r.theirs.Close()
	r.moved = make(chan ending, 1)
	move := r.give
	if r.in != nil {
		move = r.take
	}
	go func() {
		r.moved <- ending{move()} // before the worker sees the end, and fails by it
		_ = r.ours().Close()
	}()
}

// take moves all bytes of From to the worker. The error is that of the far end, or errNonsense.
func (r *relay) take() error {
	for {
		room, gone := r.in.Room(least)
		if gone != nil {
			return nonsense(gone) // otherwise the worker says why
		}
		room = room[:min(len(room), most)]
		n, err := r.via.From.Read(room)
		r.bytes.Add(int64(n))
		gone = r.in.Commit(n)
		if gone == nil && (n < len(room) || err != nil) { // otherwise there is more, and the worker hears of both
			gone = r.in.Flush()
		}
		switch {
		case gone != nil || errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
	}
}

// give moves all bytes of the worker to To. The error is that of the far end, or errNonsense.
func (r *relay) give() error {
	for {
		b, end := r.out.Peek(1)
		if b = b[:min(len(b), most)]; len(b) > 0 {
			r.writing.Store(true)
			_, cut := r.via.To.Write(b)
			r.writing.Store(false)
			if r.bytes.Add(int64(len(b))); cut != nil {
				return fmt.Errorf("%w: %w", ErrCut, cut)
			}
			if _, gone := r.out.Discard(len(b)); gone != nil {
				return errNonsense
			}
			continue
		}
		if errors.Is(end, io.EOF) {
			return nil
		}
		return errNonsense
	}
}

// nonsense returns errNonsense for what no worker says.
func nonsense(err error) error {
	if errors.Is(err, ring.ErrCount) {
		return errNonsense
	}
	return nil
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
			r.ours().Stop()
			<-r.moved
			return cmp.Or(err, context.Cause(ctx))
		case <-timer.C:
			if now := r.bytes.Load(); !r.writing.Load() && now == was {
				r.ours().Stop()
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
			r.ours().Stop()
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
