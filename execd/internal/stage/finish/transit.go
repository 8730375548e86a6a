package finish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/timeline"
)

// Transit is a transfer of the files of a run, to where it runs or to where they belong:
// who carries it out, by what it is ended before its time, and how it stands.
type Transit struct {
	transfer *exit.Transfer // nil: not begun
	what     string         // it is
	peer     string         // the host that asks for it; empty: it is carried out here
	away     bool           // that is where the run is, and it is asked by this one

	mu     sync.Mutex
	cancel context.CancelCauseFunc // guarded by mu; nil: none is under way
	shown  api.Transfer            // guarded by mu
	phase  notice.Phase            // guarded by mu; of the present attempt
	queued time.Time               // guarded by mu; since when it waits for its turn
}

// carrier carries a transfer out, as Send of base.Output.
type carrier func(context.Context, *job.Task, func(base.Progress)) error

// errUnwanted is the cause why a transfer is cancelled whose run is not wanted any more.
var errUnwanted = errors.New("not wanted any more")

// begin makes it one of a run. Carry carries it out, unless it is unwanted.
func (x *Transit) begin(f *End, t *exit.Transfer, what string, unwanted func() bool, carry carrier) {
	t.Event = f.event
	t.Start = func(done func(error)) { x.start(f, unwanted, carry, done) }
	if t.Lost == nil {
		// Here no connection comes back that was lost: it is tried again after a while,
		// and not before that, whatever enters meanwhile.
		t.Lost = func(attempt int, err error) {
			after := exit.Retries.After(attempt)
			f.host.Log.Warn(fmt.Sprintf("job %v: %s: %v (tried again in %v)", f.of, what, err, after))
			if x == &f.Input {
				f.host.Counts.Transfer(false, metrics.Again, 0, 0, 0)
			}
			time.AfterFunc(after, func() { f.event(t.Reconnected) })
		}
	}
	x.transfer, x.what = t, what
	if f.carried() {
		x.peer = f.of.Job.Activation.Host
	}
}

// start makes an attempt, in a goroutine of its own.
func (x *Transit) start(f *End, unwanted func() bool, carry carrier, done func(error)) {
	f.host.Travel(func(ctx context.Context) { done(x.attempt(ctx, &f.Tail, x == &f.Output, unwanted, carry)) })
}

// attempt makes one.
func (x *Transit) attempt(ctx context.Context, f *Tail, output bool, unwanted func() bool, carry carrier) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x.mu.Lock()
	x.cancel = cancel
	x.shown = api.Transfer{Output: output, Since: time.Now(), Attempt: x.shown.Attempt + 1, Failure: x.shown.Failure, Peer: x.peer, Away: x.away}
	x.phase = notice.NotYet
	x.mu.Unlock()
	if unwanted() {
		cancel(errUnwanted) // who wished it was too early to find the attempt
	}
	err := carry(ctx, f.of, func(p base.Progress) { x.progress(f, p) })
	if err != nil && context.Cause(ctx) != nil {
		err = &exit.Cancelled{Err: context.Cause(ctx)}
	}
	x.ended(f, err)
	return err
}

// Away makes an attempt at a transfer of the files of a run on another host, which Cancel ends.
func (x *Transit) Away(ctx context.Context, f *Tail, output bool, unwanted func() bool, carry func(context.Context, *job.Task, func(base.Progress)) error) error {
	x.mu.Lock()
	x.what, x.peer, x.away = map[bool]string{false: "input", true: "output"}[output], f.of.Start.Remote.Host, true
	x.mu.Unlock()
	return x.attempt(ctx, f, output, unwanted, carry)
}

// progress takes note of how far the attempt has come.
func (x *Transit) progress(f *Tail, p base.Progress) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case p.Lost != nil:
		x.lost(f, p.Lost)
		return
	case p.Idle:
		x.shown.Since, x.shown.Queued, x.shown.Total = time.Time{}, false, max(x.shown.Total, p.Total)
		return
	case x.shown.Since.IsZero():
		x.shown.Since = time.Now()
	}
	x.shown.Bytes, x.shown.Before, x.shown.Total, x.shown.Files, x.shown.Queued = p.Bytes, p.Before, p.Total, p.Files, p.Queued
	switch {
	case p.Queued && x.phase == notice.NotYet:
		x.queued = time.Now()
		x.enter(f, notice.Queued, 0)
	case !p.Queued && x.phase == notice.NotYet:
		x.enter(f, notice.Began, 0)
	case !p.Queued && x.phase == notice.Queued:
		x.shown.Since = time.Now()
		x.enter(f, notice.Began, time.Since(x.queued))
	}
	if x.shown.Left = p.Left; p.Left != "" {
		text := x.what + ": " + p.Left
		f.host.Log.Warn(fmt.Sprintf("job %v: %s", f.of, text))
		f.notices.Happened(notice.Event{Kind: notice.Warned, Text: text})
	}
}

// lost takes note of an attempt of the other host that has failed. X.mu is held.
func (x *Transit) lost(f *Tail, err error) {
	x.shown.Failure, x.shown.Since, x.phase = err.Error(), time.Time{}, notice.NotYet
	x.shown.Attempt++
	x.note(f, timeline.Span{End: time.Now(), Failed: true})
	f.host.Counts.Transfer(x.shown.Output, metrics.Again, 0, 0, 0)
	f.host.Log.Warn(fmt.Sprintf("job %v: %s: %v (%s asks again)", f.of, x.what, err, x.peer))
}

// enter tells of a phase of the attempt. X.mu is held.
func (x *Transit) enter(f *Tail, phase notice.Phase, waited time.Duration) {
	x.phase = phase
	if phase == notice.Began {
		x.note(f, timeline.Span{Begin: time.Now()})
	}
	f.notices.Happened(notice.Event{Kind: notice.Travels, Travel: notice.Travel{Output: x.shown.Output, Phase: phase, Waited: waited}})
}

// note notes a span of it in the timeline.
func (x *Transit) note(f *Tail, s timeline.Span) {
	if s.Kind = timeline.In; x.shown.Output {
		s.Kind = timeline.Out
	}
	f.host.Timeline.Note(f.of.RunID(), s)
}

// ended takes note of the end of the attempt.
func (x *Transit) ended(f *Tail, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	took := time.Since(x.shown.Since)
	x.note(f, timeline.Span{End: time.Now(), Bytes: x.shown.Bytes - x.shown.Before, Failed: err != nil})
	x.cancel, x.shown.Since, x.shown.Queued = nil, time.Time{}, false
	x.shown.Done = err == nil
	_, cancelled := errors.AsType[*exit.Cancelled](err)
	switch {
	case err == nil && x.phase == notice.NotYet: // there was nothing to be transferred
	case err == nil:
		x.enter(f, notice.Arrived, 0)
		f.host.Counts.Transfer(x.shown.Output, metrics.Arrived, x.shown.Bytes, x.shown.Files, took)
	case cancelled:
		f.host.Counts.Transfer(x.shown.Output, metrics.Interrupted, 0, 0, 0)
	}
	if err != nil {
		x.shown.Failure = err.Error()
	}
}

// Cancel ends the attempt that is under way, since the run is not wanted any more, and
// reports whether there is one.
func (x *Transit) Cancel() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cancel == nil {
		return false
	}
	x.cancel(errUnwanted)
	return true
}

// Standing returns how it stands, for those who look.
func (x *Transit) Standing() api.Transfer {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown
}

// step enters it. One that waits to be tried again is in progress: its event is on the
// way.
func (x *Transit) step() exit.Result {
	result, err := x.transfer.Step()
	if err != nil {
		return exit.InProgress
	}
	return result
}

// Fetch transfers the files of the job to where it runs, and returns why that was given
// up; nil: it was not.
func (f *End) Fetch() (exit.Result, *exit.GivenUp) {
	x := &f.Input
	if x.transfer == nil {
		unwanted := func() bool { return f.host.Store.Want(f.of) != nil }
		x.begin(f, &exit.Transfer{Code: exit.HoldInput, Most: exit.MaxTransfers}, "input", unwanted, f.host.Input.Fetch)
	}
	result, g := x.step(), x.transfer.GivenUp()
	if g != nil {
		f.host.Counts.Transfer(false, metrics.GivenUp, 0, 0, 0)
	}
	return result, g
}
