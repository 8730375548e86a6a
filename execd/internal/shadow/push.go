package shadow

import (
	"context"
	"errors"
	"io"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/finish"
)

// errCut is matched when a stream has failed for the way between the hosts, or the other one.
var errCut = errors.New("the stream was cut off")

// push is the way of the input of a run to its host.
type push struct {
	finish.Transit
	run    *run
	failed string // guarded by core.mu; why it cannot be pushed; empty: it can
}

// send pushes what the host of the run waits for before it starts, until it waits for nothing
// more or ctx is done.
func (p *push) send(ctx context.Context) {
	r := p.run
	own := 0      // attempts that failed for this host
	failures := 0 // those that failed since one that did not
	pause := func(int) time.Duration { return retries.After(failures) }
	_ = again(ctx, pause, func(int) (done bool) { // without ctx the next execd does it
		part, err := p.awaited(ctx)
		if err == nil && part.Part != api.PartNone {
			err = p.pushPart(ctx, &part)
		}
		mine := &unpacked{}
		switch {
		case ctx.Err() != nil, api.RefusalOf(err) == api.RefusedUnknown: // its events say what has become of it
			return true
		case err == nil:
			failures = 0
			return part.Part == api.PartNone
		case errors.As(err, &mine):
			own++
			if _, permanent := errors.AsType[*exit.Permanent](err); permanent || own >= exit.MaxTransfers {
				r.mu.Lock()
				p.failed = "input transfer: " + mine.Error()
				r.mu.Unlock()
				r.poke()
				return true
			}
		}
		failures++
		if api.RefusalOf(err) == api.RefusedTryAgain {
			failures = 1 // it has waited itself, and keeps the turn for a while
		}
		r.debugf("%v: input: %v (tried again in %v)", r, err, pause(0))
		return false
	})
}

// awaited asks the host of the run which part it waits for.
func (p *push) awaited(ctx context.Context) (api.StageHaveReply, error) {
	r := p.run
	id, key := r.secret()
	limited, cancel := context.WithTimeout(ctx, 3*callLimit)
	defer cancel()
	return r.On(r.host.name, "").StageHave(limited, api.StageHaveRequest{Sandbox: id, Key: key, Bytes: p.Standing().Total})
}

// unpacked is the error of this end of a push.
type unpacked struct{ error }

func (u *unpacked) Unwrap() error { return u.error }

// pushPart pushes a part behind what the host has of it.
func (p *push) pushPart(ctx context.Context, have *api.StageHaveReply) error {
	r := p.run
	id, key := r.secret()
	unwanted := func() bool { return r.Host.Store.Want(r.task) != nil }
	return p.Away(ctx, &r.tail.Tail, false, unwanted, func(ctx context.Context, t *job.Task, report func(base.Progress)) error {
		from, to := io.Pipe()
		packed := make(chan error, 1)
		go func() {
			err := r.Files.PushAway(ctx, t, have.Part, have.Have, r.compresses(), to, func() { _ = to.CloseWithError(errCut) }, report)
			_ = to.CloseWithError(err)
			packed <- err
		}()
		began := time.Now()
		reply, err := r.On(r.host.name, "").StageIn(ctx, api.StageInRequest{Sandbox: id, Key: key, Part: have.Part}, from)
		_ = from.CloseWithError(errCut)
		if own := <-packed; own != nil && !errors.Is(own, errCut) && err != nil {
			return &unpacked{own}
		}
		if err == nil {
			r.debugf("%v: part %q of its input was pushed: bytes=%d files=%d took=%v", r, have.Part, reply.Bytes, reply.Files, time.Since(began))
			if reply.Left != "" {
				report(base.Progress{Bytes: reply.Bytes, Total: reply.Bytes, Files: reply.Files, Left: reply.Left})
			}
		}
		return err
	})
}
