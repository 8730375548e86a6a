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

// bring has come what a run has left, and has its host know that. It returns when nothing of it
// is to be pulled any more: it is where it belongs, or nobody wants it. The reason says why it
// never will; empty: it has arrived, or is not wanted.
func (s *Shadows) bring(ctx context.Context, r *run) (lost string, err error) {
	st, t := s.Host.Store, r.task
	if st.State(t) == job.Started {
		if err := s.recordOver(ctx, r); err != nil {
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
		s.mu.Lock()
		until, forgotten, gone, final, why := s.lostAt(r), r.forgotten, r.gone, r.final != nil, r.why
		if final {
			why = api.Visible(api.Short(r.final.Reason))
		}
		s.mu.Unlock()
		now := time.Now()
		stuck := st.Stuck(t)
		want := s.unwanted(r, stuck)
		over := gone || final || forgotten || !until.IsZero() && !now.Before(until)
		switch {
		case want != nil && active:
			r.output.Cancel()
		case want != nil:
			return "", s.discard(ctx, r, want)
		case active:
		case over && r.root == "" && failures > 0:
			lost = s.gone(r, gone || final, forgotten, why)
			if err := s.Files.DiscardAway(ctx, t); err != nil {
				s.warnf("%v: output that has come in part is left: %v", r, err)
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
			s.mu.Lock()
			r.counts = r.claim != nil && r.claim.outs[r]
			s.mu.Unlock()
			s.work.Go(func() { ended <- s.attempt(ctx, r) })
		}
		var wake <-chan time.Time
		if !active {
			wake = wakeAt(now, again, until, expiry)
		}
		select {
		case <-ctx.Done():
			if active {
				if err := <-ended; err != nil {
					s.debugf("%v: output: %v", r, err)
				}
			}
			return "", ctx.Err()
		case <-r.poked:
			if s.hasAnswered(r) && !active && failures > 0 && stuck == nil && r.failing.IsZero() {
				again = time.Now()
			}
		case <-wake:
		case err := <-ended:
			active = false
			_, cancelled := errors.AsType[*exit.Cancelled](err)
			switch {
			case err == nil:
				return "", s.delivered(ctx, r)
			case cancelled:
			case wasStuck && st.Stuck(t) == nil: // somebody has looked meanwhile
				failures, r.failing, again = 0, time.Time{}, time.Now()
			default:
				failures++
				again, wasStuck = s.undelivered(ctx, r, failures, err)
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

// hasAnswered reports whether the host of a run answers.
func (s *Shadows) hasAnswered(r *run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(r.host).silent.IsZero()
}

// recordOver records that a run is over, before anything of it is pulled, and has the claim be
// used for the next.
func (s *Shadows) recordOver(ctx context.Context, r *run) error {
	s.mu.Lock()
	over, holds := r.over, r.outcome.Held
	s.mu.Unlock()
	s.conclude(r, report.End{ActivationEnd: over})
	e := r.tail.End
	e.Carries, e.Holds = s.wanted(r, r.tail.Word()), holds
	if want := s.Host.Store.Want(r.task); want != nil && e.Cause == spool.CauseDeleted && e.Failed == 0 && e.Carries == job.CarriesStreams && s.wanted(r, exit.WordExit) == job.CarriesOutput {
		// It was deleted as it came to its own end, which is told of like one that is deleted a moment later.
		outcome.Undelivered(e, want, "")
	}
	end := *e
	if err := s.retry(ctx, r, func() error { return s.Host.Store.Over(r.task, &end) }); err != nil {
		return err
	}
	s.mu.Lock()
	s.departs(r)
	s.acked(r)
	s.mu.Unlock()
	s.back(r)
	s.logf("%v: is over on %s: its output is pulled", r, r.host)
	if !holds {
		s.next(ctx, r)
	}
	return nil
}

// wanted returns what is wanted of what a run has left: what its job says of an end by a word.
func (s *Shadows) wanted(r *run, word exit.Word) job.Carries {
	request, err := s.Host.Store.Request(r.task.Job)
	if err != nil { // it is met again
		return job.CarriesOutput
	}
	s.mu.Lock()
	spools := r.outcome.Spool
	s.mu.Unlock()
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

// acked has the host know that it is recorded that a run is over. s.mu is held.
func (s *Shadows) acked(r *run) {
	if r.overSeq > 0 {
		h := s.of(r.host)
		id := api.SandboxID(r.sandbox())
		h.acks[id] = max(h.acks[id], r.overSeq)
		r.overSeq = 0
	}
}

// attempt pulls what a run has left, and takes it to where it belongs.
func (s *Shadows) attempt(ctx context.Context, r *run) error {
	id, key := r.secret()
	unwanted := func() bool { return s.unwanted(r, nil) != nil }
	return r.output.Away(ctx, &r.tail, true, unwanted, func(ctx context.Context, t *job.Task, report func(base.Progress)) error {
		asked := false
		root, err := s.Files.PullAway(ctx, t, func(ctx context.Context, have string, read func(io.Reader) error) error {
			asked = true
			var of error
			err := s.On(r.host, "").StageOut(ctx, api.StageOutRequest{Sandbox: id, Key: key, Have: have}, func(stream io.Reader) error {
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
			s.logf("%v: its output was here already", r)
		}
		last := base.Progress{}
		if err := s.Files.LandAway(ctx, t, func(p base.Progress) { last = p }); err != nil {
			return err
		}
		if last.Left != "" {
			report(last)
		}
		return nil
	})
}

// undelivered decides what follows an attempt that has failed, and returns when it is tried
// again; zero: when somebody has looked. It reports whether it waits for that.
func (s *Shadows) undelivered(ctx context.Context, r *run, failures int, err error) (again time.Time, waits bool) {
	t := r.task
	now := time.Now()
	_, forGood := errors.AsType[*exit.Permanent](err)
	switch {
	case errors.Is(err, errNothing):
		s.mu.Lock()
		if !r.gone {
			r.gone, r.why = true, api.Visible(api.Short(err.Error()))
		}
		s.mu.Unlock()
		return now.Add(time.Hour), false
	case forGood && t.End.Carries != job.CarriesOutput:
		// Nobody waits for that: the job has ended otherwise, or runs again.
		s.warnf("%v: output: %v (given up)", r, err)
		s.mu.Lock()
		r.gone, r.why = true, api.Visible(api.Short(err.Error()))
		s.mu.Unlock()
		r.root = ""
		return now.Add(time.Hour), false
	case !forGood && (errors.Is(err, errCut) || errors.Is(err, worker.ErrCut)):
		after := retries.After(failures)
		s.Host.Counts.Transfer(true, metrics.Again, 0, 0, 0)
		s.warnf("%v: output: %v (tried again in %v)", r, err, after)
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
	s.mu.Lock()
	r.counts = false
	s.Wake()
	s.mu.Unlock()
	r.notices.Happened(notice.Event{Kind: notice.Warned, Text: stuck.Text})
	s.Host.Counts.Transfer(true, metrics.GivenUp, 0, 0, 0)
	id, key := r.secret()
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if err := s.On(r.host, "").StageStuck(limited, api.StageStuckRequest{Sandbox: id, Key: key, Errno: stuck.Errno, Reason: err.Error()}); err != nil {
		s.debugf("%v: %v", r, err) // it counts there until it is delivered
	}
	return again, true
}

// unwanted returns why nobody wants the output of a run any more; nil: somebody does.
func (s *Shadows) unwanted(r *run, stuck *job.Stuck) *job.Want {
	want := s.Host.Store.NotDelivered(r.task)
	if want == nil {
		return nil
	}
	if request, err := s.Host.Store.Request(r.task.Job); err == nil && request.WhenOut == api.OutAlways && stuck == nil && r.failing.IsZero() {
		return nil
	}
	return want
}

// discard has what has come of the output of a run removed on both hosts.
func (s *Shadows) discard(ctx context.Context, r *run, want *job.Want) error {
	r.unwanted, r.brought = want, true
	id, key := r.secret()
	if err := s.Files.DiscardAway(ctx, r.task); err != nil { // it is in a directory of the user's, who can remove it
		s.warnf("%v: output that is not wanted is left: %v", r, err)
	}
	by := want.By
	if by == "" {
		by = "execd"
	}
	err := s.tell(ctx, r, "its output is not wanted", func(ctx context.Context, to *api.Client) error {
		return to.StageDone(ctx, api.StageDoneRequest{Sandbox: id, Key: key, Discard: true, Reason: "deleted by " + by})
	})
	return s.settled(r, err)
}

// delivered has the host of a run know that all that it has left is durable here.
func (s *Shadows) delivered(ctx context.Context, r *run) error {
	r.brought = true
	id, key := r.secret()
	at := r.output.Standing()
	s.logf("%v: its output has arrived from %s: bytes=%d files=%d attempts=%d root=%s", r, r.host, at.Bytes, at.Files, at.Attempt, r.root)
	discard := false
	err := s.tell(ctx, r, "its output has arrived", func(ctx context.Context, to *api.Client) error {
		q := api.StageDoneRequest{Sandbox: id, Key: key, Root: r.root}
		if discard {
			q.Root, q.Discard, q.Reason = "", true, "what has arrived is another tree than was sent"
		}
		err := to.StageDone(ctx, q)
		if api.RefusalOf(err) == api.RefusedState && !discard {
			s.warnf("%v: %s: %v", r, r.host, err)
			discard = true
			return api.Refusef(api.RefusedTryAgain, "%v", err)
		}
		return err
	})
	return s.settled(r, err)
}

// settled frees what was held for the output of a run.
func (s *Shadows) settled(r *run, err error) error {
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived(r)
	return nil
}

// gone says why the output of a run will never come.
func (s *Shadows) gone(r *run, said, forgotten bool, why string) string {
	r.brought = true
	s.mu.Lock()
	s.arrived(r)
	s.mu.Unlock()
	if said {
		return fmt.Sprintf("%s has its output no more: %s", r.host, why)
	}
	text := s.silence(r)
	if forgotten {
		text = "it was not waited for: " + text
	}
	return text
}
