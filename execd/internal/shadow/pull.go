package shadow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/sandbox/worker"
	"paddock/execd/internal/shadow/report"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/finish"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/stage/outcome"
	"paddock/spool"
)

// errNothing is matched when a host has nothing of what is to be pulled, or not any more.
var errNothing = errors.New("there is nothing of it any more")

// startPatience is how long output waits for the start of the next run.
const startPatience = 5 * time.Second

// pull is the way of what a run has left on its host. The goroutine of the run alone uses it.
type pull struct {
	finish.Transit
	run      *run
	root     string    // of what is here
	brought  bool      // nothing more is to be pulled
	failing  time.Time // since when what has come cannot be taken; zero: it can
	unwanted *job.Want // who did not want it any more; nil: nobody
	counts   bool      // guarded by core.mu; it counts among the output of its claim
}

// bring has come what the run has left, and has its host know that. It returns when nothing of it
// is to be pulled any more: it is where it belongs, or nobody wants it. Lost says why it never will
// be; empty: it has arrived, or is not wanted.
func (p *pull) bring(ctx context.Context) (lost string, err error) {
	r, st, t := p.run, p.run.Host.Store, p.run.task
	if st.State(t) == job.Started {
		if err := p.recordOver(ctx); err != nil {
			return "", err
		}
	}
	ended := make(chan error, 1)
	active, wasStuck := false, st.Stuck(t) != nil
	failures := 0
	var again time.Time // of the next attempt; zero: when somebody has looked
	var until, expiry time.Time
	expired := func() (given bool) {
		given, after := r.tail.Expire()
		if expiry = (time.Time{}); after > 0 {
			expiry = time.Now().Add(after)
		}
		return given
	}
	if !wasStuck {
		again = time.Now()
	}
	for {
		now := time.Now()
		lost, until = p.lost(now)
		stuck := st.Stuck(t)
		want := p.unwantedBy(stuck)
		switch {
		case want != nil && active:
			p.Cancel()
		case want != nil:
			return "", p.discard(ctx, want)
		case active:
		case lost != "" && p.root == "" && failures > 0:
			p.brought = true
			p.release()
			if err := r.Files.DiscardAway(ctx, t); err != nil {
				r.warnf("%v: output that has come in part is left: %v", r, err)
			}
			return lost, ctx.Err()
		case lost != "" && p.root == "" && again.IsZero(): // what is here already may be all
			again = now
			continue
		case stuck != nil && expired():
			continue
		case stuck == nil && wasStuck: // somebody has looked
			failures, p.failing, wasStuck = 0, time.Time{}, false
			again = now
			continue
		case !again.IsZero() && !now.Before(again):
			active, wasStuck = true, stuck != nil
			r.mu.Lock()
			p.counts = r.claim != nil && r.claim.outs[r]
			r.mu.Unlock()
			r.work.Go(func() { ended <- p.attempt(ctx) })
		}
		var wake <-chan time.Time
		if !active {
			wake = wakeAt(now, again, until, expiry)
		}
		select {
		case <-ctx.Done():
			if active {
				if err := <-ended; err != nil {
					r.debugf("%v: output: %v", r, err)
				}
			}
			return "", ctx.Err()
		case <-r.poked:
			r.mu.Lock()
			answers := r.host.silent.IsZero()
			r.mu.Unlock()
			if answers && !active && failures > 0 && stuck == nil && p.failing.IsZero() {
				again = time.Now()
			}
		case <-wake:
		case err := <-ended:
			active = false
			_, cancelled := errors.AsType[*exit.Cancelled](err)
			switch {
			case err == nil:
				return "", p.arrived(ctx)
			case cancelled:
			case wasStuck && st.Stuck(t) == nil: // somebody has looked meanwhile
				failures, p.failing, again = 0, time.Time{}, time.Now()
			default:
				failures++
				again, wasStuck = p.afterFailure(ctx, failures, err)
			}
		}
	}
}

// wakeAt returns a channel that says when the first of times after now has come; nil: none is.
func wakeAt(now time.Time, times ...time.Time) <-chan time.Time {
	times = slices.DeleteFunc(times, func(t time.Time) bool { return !t.After(now) })
	if len(times) == 0 {
		return nil
	}
	return time.After(slices.MinFunc(times, time.Time.Compare).Sub(now))
}

// lost says why the output never comes; empty: it may, and until when that is so if it is known.
func (p *pull) lost(now time.Time) (why string, until time.Time) {
	r := p.run
	r.mu.Lock()
	until, forgotten, final, gone, why := r.lostAt(), r.forgotten, r.final, r.gone, r.why
	r.mu.Unlock()
	switch {
	case final != nil:
		return r.host.name + " has its output no more: " + api.Visible(api.Short(final.Reason)), until
	case gone:
		return r.host.name + " has its output no more: " + why, until
	case forgotten:
		return "it was not waited for: " + r.silence(), until
	case !until.IsZero() && !now.Before(until):
		return r.silence(), until
	}
	return "", until
}

// recordOver records that a run is over, before anything of it is pulled, and has the claim be
// used for the next.
func (p *pull) recordOver(ctx context.Context) error {
	r := p.run
	r.mu.Lock()
	over, holds := r.over, r.outcome.Held
	r.mu.Unlock()
	r.tail.conclude(report.End{ActivationEnd: over})
	e := r.tail.End
	e.Carries, e.Holds = p.wanted(r.tail.Word()), holds
	if want := r.Host.Store.Want(r.task); want != nil && e.Cause == spool.CauseDeleted && e.Failed == 0 && e.Carries == job.CarriesStreams && p.wanted(exit.WordExit) == job.CarriesOutput {
		// It was deleted as it came to its own end, which is told of like one that is deleted a moment later.
		outcome.Undelivered(e, want, "")
	}
	end := *e
	if err := r.retry(ctx, func() error { return r.Host.Store.Over(r.task, &end) }); err != nil {
		return err
	}
	r.mu.Lock()
	r.runs.claims.beginOutput(r)
	if r.overSeq > 0 {
		r.host.acknowledge(r.id(), r.overSeq)
		r.overSeq = 0
	}
	started := r.runs.claims.nextStart(r)
	r.mu.Unlock()
	r.tellQueue()
	r.logf("%v: is over on %s: its output is pulled", r, r.host.name)
	if started != nil {
		select {
		case <-started:
		case <-time.After(startPatience):
		case <-ctx.Done():
		}
	}
	return nil
}

// wanted returns what is wanted of what a run has left: what its job says of an end by a word.
func (p *pull) wanted(word exit.Word) job.Carries {
	r := p.run
	request, err := r.Host.Store.Request(r.task.Job)
	if err != nil { // it is met again
		return job.CarriesOutput
	}
	r.mu.Lock()
	spools := r.outcome.Spool
	r.mu.Unlock()
	e, when := r.tail.End, request.WhenOut
	if e.Cause == spool.CauseLimit {
		word = exit.WordExit
	}
	always := when == api.OutAlways
	switch {
	case e.Fate == job.FateRequeue && spools && (always || when == api.OutEvict):
		return job.CarriesAll
	case e.Fate != job.FateDone, when == api.OutSuccess && (e.Failed != 0 || e.Exit != 0), len(request.StageOut) == 1 && request.StageOut[0].Name == api.StageNone:
		return job.CarriesStreams
	case exit.WantsOutput(exit.Ending{SetUp: r.tail.Ran(), Word: word, OnEviction: always || when == api.OutEvict, Final: always}):
		return job.CarriesOutput
	}
	return job.CarriesStreams
}

// attempt pulls what a run has left, and takes it to where it belongs.
func (p *pull) attempt(ctx context.Context) error {
	r := p.run
	id, key := r.secret()
	unwanted := func() bool { return p.unwantedBy(nil) != nil }
	return p.Away(ctx, &r.tail.Tail, true, unwanted, func(ctx context.Context, t *job.Task, report func(base.Progress)) error {
		asked := false
		root, err := r.Files.PullAway(ctx, t, func(ctx context.Context, have string, read func(io.Reader) error) error {
			asked = true
			var of error
			err := r.On(r.host.name, "").StageOut(ctx, api.StageOutRequest{Sandbox: id, Key: key, Have: have, Zstd: r.compresses()}, func(stream io.Reader) error {
				of = read(stream)
				return of
			})
			switch refusal := api.RefusalOf(err); {
			case refusal == api.RefusedUnknown, refusal == api.RefusedState:
				return fmt.Errorf("%w: %w", errNothing, err)
			case err != nil && of == nil:
				return fmt.Errorf("%w: %w", errCut, err)
			}
			return err
		}, report)
		if err != nil {
			return err
		}
		p.root = root
		if !asked {
			r.logf("%v: its output was here already", r)
		}
		last := base.Progress{}
		if err := r.Files.LandAway(ctx, t, func(p base.Progress) { last = p }); err != nil {
			return err
		}
		if last.Left != "" {
			report(last)
		}
		return nil
	})
}

// afterFailure decides what follows an attempt that has failed, and returns when it is tried
// again; zero: when somebody has looked. It reports whether it waits for that.
func (p *pull) afterFailure(ctx context.Context, failures int, err error) (again time.Time, waits bool) {
	r := p.run
	t := r.task
	now := time.Now()
	_, forGood := errors.AsType[*exit.Permanent](err)
	switch {
	case errors.Is(err, errNothing):
		r.mu.Lock()
		if !r.gone {
			r.gone, r.why = true, api.Visible(api.Short(err.Error()))
		}
		r.mu.Unlock()
		return now.Add(time.Hour), false
	case forGood && !t.End.Awaited():
		r.warnf("%v: output: %v (given up)", r, err)
		if err := p.refuse(ctx, "its output is given up", api.Visible(api.Short(err.Error()))); err != nil {
			return now, false
		}
		r.mu.Lock()
		r.gone, r.why = true, api.Visible(api.Short(err.Error()))
		r.mu.Unlock()
		p.root = ""
		return now.Add(time.Hour), false
	case !forGood && (errors.Is(err, errCut) || errors.Is(err, worker.ErrCut)):
		after := retries.After(failures)
		r.Host.Counts.Transfer(true, metrics.Again, 0, 0, 0)
		r.warnf("%v: output: %v (tried again in %v)", r, err, after)
		return now.Add(after), false
	}
	if p.failing.IsZero() {
		p.failing = now
	}
	after, stuck, unrecorded := r.tail.Undelivered(&p.Transit, p.failing, false, failures, err)
	if stuck == nil || unrecorded != nil {
		return now.Add(after), false
	}
	if after > 0 {
		again = now.Add(after)
	}
	r.mu.Lock()
	p.counts = false
	r.Wake()
	r.mu.Unlock()
	r.notices.Happened(notice.Event{Kind: notice.Warned, Text: stuck.Text})
	r.Host.Counts.Transfer(true, metrics.GivenUp, 0, 0, 0)
	id, key := r.secret()
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if err := r.On(r.host.name, "").StageStuck(limited, api.StageStuckRequest{Sandbox: id, Key: key, Errno: stuck.Errno, Reason: err.Error()}); err != nil {
		r.debugf("%v: %v", r, err) // it counts there until it is delivered
	}
	return again, true
}

// unwantedBy returns why nobody wants the output of a run any more; nil: somebody does.
func (p *pull) unwantedBy(stuck *job.Stuck) *job.Want {
	r := p.run
	want := r.Host.Store.NotDelivered(r.task)
	if want == nil {
		return nil
	}
	if request, err := r.Host.Store.Request(r.task.Job); err == nil && request.WhenOut == api.OutAlways && stuck == nil && p.failing.IsZero() {
		return nil
	}
	return want
}

// discard has what has come of it removed on both hosts.
func (p *pull) discard(ctx context.Context, want *job.Want) error {
	r := p.run
	p.unwanted = want
	if err := r.Files.DiscardAway(ctx, r.task); err != nil { // it is in a directory of the user's, who can remove it
		r.warnf("%v: output that is not wanted is left: %v", r, err)
	}
	return p.settle(p.refuse(ctx, "its output is not wanted", "deleted by "+cmp.Or(want.By, "execd")))
}

// refuse has the host know that nobody takes it.
func (p *pull) refuse(ctx context.Context, what, reason string) error {
	q := api.StageDoneRequest{Discard: true, Reason: reason}
	q.Sandbox, q.Key = p.run.secret()
	return p.run.tell(ctx, what, func(ctx context.Context, to *api.Client) error {
		return to.StageDone(ctx, q)
	})
}

// arrived has the host know that all of it is durable here.
func (p *pull) arrived(ctx context.Context) error {
	r, at := p.run, p.Standing()
	r.logf("%v: its output has arrived from %s: bytes=%d files=%d attempts=%d root=%s", r, r.host.name, at.Bytes, at.Files, at.Attempt, p.root)
	q := api.StageDoneRequest{Root: p.root}
	q.Sandbox, q.Key = r.secret()
	return p.settle(r.tell(ctx, "its output has arrived", func(ctx context.Context, to *api.Client) error {
		err := to.StageDone(ctx, q)
		if api.RefusalOf(err) == api.RefusedState && !q.Discard {
			r.warnf("%v: %s: %v", r, r.host.name, err)
			q.Root, q.Discard, q.Reason = "", true, "what has arrived is another tree than was sent"
			return api.Refusef(api.RefusedTryAgain, "%v", err)
		}
		return err
	}))
}

// settle frees what was held for it, once its host knows what has become of it.
func (p *pull) settle(told error) error {
	p.brought = true
	if told == nil {
		p.release()
	}
	return told
}

// release frees what was held for it.
func (p *pull) release() {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	p.run.runs.claims.endOutput(p.run)
}
