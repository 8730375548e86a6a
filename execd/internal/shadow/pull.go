package shadow

import (
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
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/stage/outcome"
	"paddock/spool"
)

// pullOutput has come what a run has left, and has its host know that. It returns when nothing of it
// is to be pulled any more: it is where it belongs, or nobody wants it. The reason says why it
// never will; empty: it has arrived, or is not wanted.
func (r *run) pullOutput(ctx context.Context) (lost string, err error) {
	st, t := r.Host.Store, r.task
	if st.State(t) == job.Started {
		if err := r.recordOver(ctx); err != nil {
			return "", err
		}
	}
	ended := make(chan error, 1)
	active, wasStuck := false, st.Stuck(t) != nil
	failures := 0
	var again time.Time // of the next attempt; zero: when somebody has looked
	var expiry time.Time
	expired := func() (given bool) {
		given, after := r.tail.Expire()
		if expiry = (time.Time{}); after > 0 {
			expiry = time.Now().Add(after)
		}
		return given
	}
	if st.Stuck(t) == nil {
		again = time.Now()
	}
	for {
		r.mu.Lock()
		until, forgotten, gone, final, why := r.lostAt(), r.forgotten, r.gone, r.final != nil, r.why
		if final {
			why = api.Visible(api.Short(r.final.Reason))
		}
		r.mu.Unlock()
		now := time.Now()
		stuck := st.Stuck(t)
		want := r.unwantedBy(stuck)
		over := gone || final || forgotten || !until.IsZero() && !now.Before(until)
		switch {
		case want != nil && active:
			r.output.Cancel()
		case want != nil:
			return "", r.discardOutput(ctx, want)
		case active:
		case over && r.root == "" && failures > 0:
			lost = r.outputLost(gone || final, forgotten, why)
			if err := r.Files.DiscardAway(ctx, t); err != nil {
				r.warnf("%v: output that has come in part is left: %v", r, err)
			}
			return lost, ctx.Err()
		case over && r.root == "" && again.IsZero(): // what is here already may be all
			again = now
			continue
		case stuck != nil && expired():
			continue
		case stuck == nil && wasStuck: // somebody has looked
			failures, r.failing, wasStuck = 0, time.Time{}, false
			again = now
			continue
		case !again.IsZero() && !now.Before(again):
			active, wasStuck = true, stuck != nil
			r.mu.Lock()
			r.counts = r.claim != nil && r.claim.outs[r]
			r.mu.Unlock()
			r.work.Go(func() { ended <- r.attemptPull(ctx) })
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
			if r.hostAnswers() && !active && failures > 0 && stuck == nil && r.failing.IsZero() {
				again = time.Now()
			}
		case <-wake:
		case err := <-ended:
			active = false
			_, cancelled := errors.AsType[*exit.Cancelled](err)
			switch {
			case err == nil:
				return "", r.outputArrived(ctx)
			case cancelled:
			case wasStuck && st.Stuck(t) == nil: // somebody has looked meanwhile
				failures, r.failing, again = 0, time.Time{}, time.Now()
			default:
				failures++
				again, wasStuck = r.pullFailed(ctx, failures, err)
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

// hostAnswers reports whether the host of a run answers.
func (r *run) hostAnswers() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.host.silent.IsZero()
}

// recordOver records that a run is over, before anything of it is pulled, and has the claim be
// used for the next.
func (r *run) recordOver(ctx context.Context) error {
	r.mu.Lock()
	over, holds := r.over, r.outcome.Held
	r.mu.Unlock()
	r.conclude(report.End{ActivationEnd: over})
	e := r.tail.End
	e.Carries, e.Holds = r.wantedOutput(r.tail.Word()), holds
	if want := r.Host.Store.Want(r.task); want != nil && e.Cause == spool.CauseDeleted && e.Failed == 0 && e.Carries == job.CarriesStreams && r.wantedOutput(exit.WordExit) == job.CarriesOutput {
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
		r.host.acknowledge(api.SandboxID(r.sandbox()), r.overSeq)
		r.overSeq = 0
	}
	r.mu.Unlock()
	r.tellQueue()
	r.logf("%v: is over on %s: its output is pulled", r, r.host.name)
	if !holds {
		r.awaitNextStart(ctx)
	}
	return nil
}

// wantedOutput returns what is wanted of what a run has left: what its job says of an end by a word.
func (r *run) wantedOutput(word exit.Word) job.Carries {
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

// attemptPull pulls what a run has left, and takes it to where it belongs.
func (r *run) attemptPull(ctx context.Context) error {
	id, key := r.secret()
	unwanted := func() bool { return r.unwantedBy(nil) != nil }
	return r.output.Away(ctx, &r.tail, true, unwanted, func(ctx context.Context, t *job.Task, report func(base.Progress)) error {
		asked := false
		root, err := r.Files.PullAway(ctx, t, func(ctx context.Context, have string, read func(io.Reader) error) error {
			asked = true
			var of error
			err := r.On(r.host.name, "").StageOut(ctx, api.StageOutRequest{Sandbox: id, Key: key, Have: have}, func(stream io.Reader) error {
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
		r.root = root
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

// pullFailed decides what follows an attempt that has failed, and returns when it is tried
// again; zero: when somebody has looked. It reports whether it waits for that.
func (r *run) pullFailed(ctx context.Context, failures int, err error) (again time.Time, waits bool) {
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
	case forGood && t.End.Carries != job.CarriesOutput:
		// Nobody waits for that: the job has ended otherwise, or runs again.
		r.warnf("%v: output: %v (given up)", r, err)
		r.mu.Lock()
		r.gone, r.why = true, api.Visible(api.Short(err.Error()))
		r.mu.Unlock()
		r.root = ""
		return now.Add(time.Hour), false
	case !forGood && (errors.Is(err, errCut) || errors.Is(err, worker.ErrCut)):
		after := retries.After(failures)
		r.Host.Counts.Transfer(true, metrics.Again, 0, 0, 0)
		r.warnf("%v: output: %v (tried again in %v)", r, err, after)
		return now.Add(after), false
	}
	if r.failing.IsZero() {
		r.failing = now
	}
	after, stuck, unrecorded := r.tail.Undelivered(&r.output, r.failing, false, failures, err)
	if stuck == nil || unrecorded != nil {
		return now.Add(after), false
	}
	if after > 0 {
		again = now.Add(after)
	}
	r.mu.Lock()
	r.counts = false
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
func (r *run) unwantedBy(stuck *job.Stuck) *job.Want {
	want := r.Host.Store.NotDelivered(r.task)
	if want == nil {
		return nil
	}
	if request, err := r.Host.Store.Request(r.task.Job); err == nil && request.WhenOut == api.OutAlways && stuck == nil && r.failing.IsZero() {
		return nil
	}
	return want
}

// discardOutput has what has come of the output of a run removed on both hosts.
func (r *run) discardOutput(ctx context.Context, want *job.Want) error {
	r.unwanted, r.brought = want, true
	id, key := r.secret()
	if err := r.Files.DiscardAway(ctx, r.task); err != nil { // it is in a directory of the user's, who can remove it
		r.warnf("%v: output that is not wanted is left: %v", r, err)
	}
	by := want.By
	if by == "" {
		by = "execd"
	}
	err := r.tell(ctx, "its output is not wanted", func(ctx context.Context, to *api.Client) error {
		return to.StageDone(ctx, api.StageDoneRequest{Sandbox: id, Key: key, Discard: true, Reason: "deleted by " + by})
	})
	return r.outputSettled(err)
}

// outputArrived has the host of a run know that all that it has left is durable here.
func (r *run) outputArrived(ctx context.Context) error {
	r.brought = true
	id, key := r.secret()
	at := r.output.Standing()
	r.logf("%v: its output has arrived from %s: bytes=%d files=%d attempts=%d root=%s", r, r.host.name, at.Bytes, at.Files, at.Attempt, r.root)
	discard := false
	err := r.tell(ctx, "its output has arrived", func(ctx context.Context, to *api.Client) error {
		q := api.StageDoneRequest{Sandbox: id, Key: key, Root: r.root}
		if discard {
			q.Root, q.Discard, q.Reason = "", true, "what has arrived is another tree than was sent"
		}
		err := to.StageDone(ctx, q)
		if api.RefusalOf(err) == api.RefusedState && !discard {
			r.warnf("%v: %s: %v", r, r.host.name, err)
			discard = true
			return api.Refusef(api.RefusedTryAgain, "%v", err)
		}
		return err
	})
	return r.outputSettled(err)
}

// outputSettled frees what was held for the output of a run.
func (r *run) outputSettled(err error) error {
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs.claims.endOutput(r)
	return nil
}

// outputLost says why the output of a run will never come.
func (r *run) outputLost(said, forgotten bool, why string) string {
	r.brought = true
	r.mu.Lock()
	r.runs.claims.endOutput(r)
	r.mu.Unlock()
	if said {
		return fmt.Sprintf("%s has its output no more: %s", r.host.name, why)
	}
	text := r.silence()
	if forgotten {
		text = "it was not waited for: " + text
	}
	return text
}
