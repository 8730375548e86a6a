package fetch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source"
	"paddock/execd/internal/user"
	"paddock/internal/hint"
	"paddock/internal/proc"
)

// worker asks for work for one slot.
type worker struct {
	layer   *Layer
	slot    slot.ID
	keyword string
	cancel  context.CancelFunc
	done    chan struct{} // closed when run has returned
	again   hint.Chan     // look at everything again
	renewal hint.Chan     // the same for renew

	// Of the goroutine that runs it.
	last    time.Time // when the last question was answered; zero: none was asked, or the next may be at once
	pace    time.Time // not before that, whatever the delay, while the slot is in the state of the last question
	asked   [2]string // that state, and activity
	problem string    // of FetchWorkDelay, as last logged
	carved  *notifier // of the slot that was last carved for what this one was given

	mu       sync.Mutex
	offering bool   // guarded by mu; what a slot may be carved for is not started yet
	hurried  bool   // guarded by mu; somebody wants it to ask now
	renews   bool   // guarded by mu; the same of the renewal of what it has
	calmed   bool   // guarded by mu; what it was given last was not run
	state    string // guarded by mu; one of the states below
	failures int    // guarded by mu; of the hook, since it last worked
	reason   string // guarded by mu; of the last of them
}

// The values of FetchHookState.
const (
	stateNever    = "Never"    // nothing was asked yet
	stateFetching = "Fetching" // the hook runs
	stateWorking  = "Working"  // the last answer made sense
	stateFailing  = "Failing"  // the hook failed, or its answer made no sense
)

func newWorker(l *Layer, id slot.ID, keyword string) *worker {
	return &worker{layer: l, slot: id, keyword: keyword, done: make(chan struct{}), again: hint.New(), renewal: hint.New(), state: stateNever}
}

// offers says whether work is being offered to the slot: until it is started nobody
// else may give back what is carved out of the slot for it.
func (w *worker) offers(is bool) {
	w.mu.Lock()
	w.offering = is
	w.mu.Unlock()
	if is {
		return
	}
	w.layer.poke()
	w.layer.mu.Lock()
	defer w.layer.mu.Unlock()
	for id, other := range w.layer.workers {
		if id.IsDynamic() && id.Parent() == w.slot {
			other.look()
		}
	}
}

// look returns what a slot is like, and whether the worker of another may be about to start
// work there: a slot is carved a moment before that, maybe under a name that another had,
// and until then nobody else has a say in it.
func (l *Layer) look(id slot.ID) (s claim.View, ok, starting bool) {
	s, ok = l.o.Slots.Snapshot(id, !id.IsDynamic()) // whose ad is made by the second
	if !ok || !id.IsDynamic() {
		return s, ok, false
	}
	if l.carving(id) {
		return s, ok, true
	}
	before := s.ID.String() // of which the start may have come between the two
	s, ok = l.o.Slots.Snapshot(id, true)
	return s, ok, ok && s.ID.String() != before
}

// carving reports whether a slot may have been carved for work that is not started yet.
func (l *Layer) carving(id slot.ID) bool {
	if !id.IsDynamic() {
		return false
	}
	l.mu.Lock()
	w := l.workers[id.Parent()]
	l.mu.Unlock()
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.offering
}

// look has the worker look at everything again.
func (w *worker) look() {
	w.again.Give()
	w.renewal.Give()
}

// hurry has the worker ask at once.
func (w *worker) hurry() {
	w.mu.Lock()
	w.hurried = true
	w.mu.Unlock()
	w.look()
}

// hurryRenewal has the renewal of what the slot has be now.
func (w *worker) hurryRenewal() {
	w.mu.Lock()
	w.renews = true
	w.mu.Unlock()
	w.look()
}

// takeRenewal reports whether somebody wanted a renewal, once.
func (w *worker) takeRenewal() (was bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, w.renews = w.renews, false
	return was
}

// run asks for work until ctx is done or the slot is gone. When the keyword of
// the slot is not what it was, what has been accepted is finished, and an idle
// claim given back.
func (w *worker) run(ctx context.Context) {
	l := w.layer
	var renewing sync.WaitGroup
	defer renewing.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // also of a panic, which would wait for ever for the renewal
	renewing.Go(func() { w.renew(ctx) })
	for _, c := range l.takeLeft(w.slot) {
		w.resume(ctx, c)
	}
	for ctx.Err() == nil {
		changed := l.o.Claims.Changed(w.slot)
		slot, ok, starting := l.look(w.slot)
		if !ok {
			return
		}
		if starting {
			w.sleep(ctx, 0, changed, nil)
			continue
		}
		if w.notRun(&slot) {
			continue
		}
		if slot.Fetched() && slot.Closed && idle(&slot) {
			l.o.Slots.Withdraw(slot.ID.String(), because("the slot is closed"))
			continue
		}
		if slot.Ending && !slot.Full && l.o.Config().Knobs.Bool("FETCH_WORK_AHEAD", false) {
			slot = ahead(slot)
		}
		told := w.unsettled()
		if told == nil && mayAsk(&slot) {
			wait := w.wait(&slot, time.Now())
			if wait <= 0 {
				w.ask(ctx, &slot)
				continue
			}
			w.sleep(ctx, wait, changed, nil)
			continue
		}
		w.sleep(ctx, 0, changed, told)
	}
	if l.runs() { // it is this slot alone that stops
		w.giveBack("the slot fetches no work any more")
	}
}

// unsettled returns a channel that is closed when who the work comes from has been
// told what became of it; nil: he has.
func (w *worker) unsettled() <-chan struct{} {
	told := w.layer.notifier(w.slot).queue.Done()
	if told == nil && w.carved != nil {
		if told = w.carved.queue.Done(); told == nil {
			w.carved = nil
		}
	}
	return told
}

// sleep returns when something has happened, or the time is over; 0: it never is.
func (w *worker) sleep(ctx context.Context, d time.Duration, changed, told <-chan struct{}) {
	sleep(ctx, d, changed, told, w.again)
}

// sleep returns when ctx is done, the time is over (0: it never is), or one of the
// channels has something.
func sleep(ctx context.Context, d time.Duration, a, b, c <-chan struct{}) {
	var due <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
	case <-due:
	case <-a:
	case <-b:
	case <-c:
	}
}

// idle reports whether a claim has nothing to run.
func idle(s *claim.View) bool { return s.State == "Claimed" && s.Activity == "Idle" && !s.Promised }

// partitionable reports whether others are carved out of a slot.
func partitionable(s *claim.View) bool { return s.Type == claim.Partitionable }

// ahead returns a slot in which a job is about to be over as it will be then, if its
// claim is that of fetched work.
func ahead(s claim.View) claim.View {
	if !s.Fetched() || s.State != "Claimed" || s.Activity != "Busy" {
		return s
	}
	s.Activity, s.Job = "Idle", nil
	s.Ad = s.Ad.With(classad.Attr{Name: "Activity", Expr: classad.String(s.Activity).Expr()})
	return s
}

// await returns when something is so of the slot, it is gone, or ctx is done.
func (w *worker) await(ctx context.Context, isSo func(*claim.View) bool) {
	for ctx.Err() == nil {
		changed := w.layer.o.Claims.Changed(w.slot)
		if s, ok := w.layer.o.Slots.Snapshot(w.slot, false); !ok || isSo(&s) {
			return
		}
		sleep(ctx, 0, changed, nil, nil)
	}
}

// hasEnded reports whether no job is about to be over in a slot.
func hasEnded(s *claim.View) bool { return !s.Ending }

// mayAsk reports whether a slot may ask for work in the state it is in
// (REQ-HOOK-108). One that was carved asks when its work is over, and one that is
// carved while anything is left of it.
func mayAsk(s *claim.View) bool {
	switch {
	case s.Closed || s.Promised || s.Full:
		return false
	case s.Slot.IsDynamic():
		return s.Fetched() && idle(s)
	case partitionable(s):
		return s.State == "Owner" || s.State == "Unclaimed"
	}
	switch s.State {
	case "Owner", "Unclaimed":
		return true
	case "Claimed":
		return s.Activity != "Suspended" && s.Activity != "Cleaning"
	case "Backfill":
		return s.Activity != "Killing"
	}
	return false
}

// calm has the slot wait that another was carved out of for work which was not run: it
// would be given the same work at once, again and again.
func (l *Layer) calm(id slot.ID) {
	l.mu.Lock()
	w := l.workers[id.Parent()]
	l.mu.Unlock()
	if id.IsDynamic() && w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calmed = true
	}
}

// wait returns how long the next question has to wait; 0: it is time.
func (w *worker) wait(s *claim.View, now time.Time) time.Duration {
	w.mu.Lock()
	if w.calmed && w.last.IsZero() {
		w.last = now
	}
	w.calmed = false
	hurried, pause := w.hurried, pauses.After(w.failures)
	w.mu.Unlock()
	if w.last.IsZero() || hurried {
		return 0
	}
	d, changing, problem := delay(w.layer.o.Config().Knobs, s.Ad, s.Job, now)
	if problem != w.problem {
		w.problem = problem
		if problem != "" {
			w.layer.o.Log.Warn(fmt.Sprintf("slot %v: fetch: %s: %v is taken", w.slot, problem, d))
		}
	}
	due := w.last.Add(max(d, pause))
	if w.pace.After(due) && w.asked == [2]string{s.State, s.Activity} {
		due = w.pace
	}
	wait := due.Sub(now)
	if changing && wait > clockPace {
		wait = clockPace
	}
	return max(wait, 0)
}

// ask asks once, and does what the answer says.
func (w *worker) ask(ctx context.Context, slot *claim.View) {
	l := w.layer
	h := l.o.HookTable().Hook(w.keyword, hook.FetchWork)
	if h == nil { // since a moment ago: whoever has changed it stops the worker
		w.sleep(ctx, 0, nil, nil)
		return
	}
	w.mu.Lock()
	w.hurried, w.state = false, stateFetching
	w.mu.Unlock()
	began := time.Now()
	w.asked = [2]string{slot.State, slot.Activity}
	l.known.ask(w, began)
	defer l.known.answered(w)
	l.o.Slots.Asking(w.slot, true)
	defer l.o.Slots.Asking(w.slot, false)
	r := l.o.Hooks.Run(ctx, hook.Call{Hook: h, Stdin: []byte(slot.Ad.OldString()), Label: fmt.Sprintf("slot %v", w.slot)})
	w.last, w.pace = time.Now(), time.Time{}
	c, why := w.read(&r, h)
	if ctx.Err() != nil {
		w.turnAway(c)
		return
	}
	w.note(why)
	result := metrics.FetchedRefused
	defer func() { l.o.Counts.Fetch(w.keyword, result, r.Took) }()
	giveBack := func(reason string) {
		if slot.Ending { // it still has something to run
			w.await(ctx, hasEnded)
		}
		w.giveBack(reason)
	}
	switch {
	case why != "":
		result = metrics.FetchedFailed
		giveBack("the fetch hook failed")
	case c == nil:
		result = metrics.FetchedNone
		w.pace = began.Add(emptyPace)
		l.o.Log.Debug(fmt.Sprintf("slot %v: fetch: no work: keyword=%s took=%.3fs", w.slot, w.keyword, r.Took.Seconds()))
		giveBack("no more work")
	case !w.offer(ctx, c, slot, began):
		w.pace = began.Add(emptyPace)
		giveBack("no suitable work")
	default:
		result = metrics.FetchedWork
		if w.slot.IsDynamic() || partitionable(slot) {
			w.last = time.Time{} // what has room for more, or is idle, is not kept from others
		}
	}
}

// turnAwayLimit bounds for how long a stop waits for who is told that his work is refused.
const turnAwayLimit = 2 * time.Second

// turnAway refuses work that came while the slot was stopped, nil for none: who has handed it out counts on it until
// its lease is over, and the slot may never ask again.
func (w *worker) turnAway(c *fetched) {
	if c == nil {
		return
	}
	w.layer.o.Log.Info(fmt.Sprintf("slot %v: fetch: refused: the slot fetches no work any more", w.slot))
	ctx, cancel := context.WithTimeout(context.Background(), turnAwayLimit)
	defer cancel()
	w.layer.notifier(w.slot).run(ctx, w.keyword, hook.ReplyFetch, []string{"reject"}, c, w.layer.slotAd(w.slot), claim.ID{})
}

// note notes how the hook has done.
func (w *worker) note(failure string) {
	if news := w.noted(failure); news && w.layer.o.Failing != nil {
		w.layer.o.Failing()
	}
}

// noted is note, and reports whether the hook has failed, or works again.
func (w *worker) noted(failure string) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	log, name := w.layer.o.Log, fmt.Sprintf("slot %v: fetch: hook %s of %s", w.slot, hook.FetchWork, w.keyword)
	if failure == "" {
		if w.failures > 0 {
			log.Info(fmt.Sprintf("%s: works again: failures=%d", name, w.failures))
		}
		news = w.failures > 0
		w.state, w.failures, w.reason = stateWorking, 0, ""
		return news
	}
	w.state, w.reason = stateFailing, failure
	w.failures++
	log.Warn(fmt.Sprintf("%s: %s: failures=%d", name, failure, w.failures))
	return true
}

// giveBack gives back a claim of fetched work that has nothing to run.
func (w *worker) giveBack(reason string) {
	if s, ok, starting := w.layer.look(w.slot); ok && !starting && s.Fetched() && idle(&s) && !w.notRun(&s) {
		w.layer.o.Slots.Withdraw(s.ID.String(), because(reason))
	}
}

// offer offers work that was fetched, and reports whether it was accepted as
// something new.
func (w *worker) offer(ctx context.Context, c *fetched, slot *claim.View, asked time.Time) bool {
	l := w.layer
	id, _ := text(c.ad, attrIdentity)
	if id != "" {
		if e := l.known.reserve(id, w.slot, asked); e != nil {
			// It was not told before it answered.
			l.o.Log.Info(fmt.Sprintf("slot %v: fetch: already here: job=%d identity=%q", w.slot, e.job, id))
			c.slot = e.slot
			l.notifier(w.slot).reply(w.keyword, true, c, l.slotAd(e.slot), claim.ID{})
			return false
		}
	}
	if partitionable(slot) {
		w.offers(true)
		defer w.offers(false)
	}
	held, err := w.accept(ctx, c, slot, id)
	number, stops := 0, errors.Is(err, errStops)
	if err == nil || stops {
		number = c.job.Number
	}
	if id != "" {
		l.known.decide(id, number, held.Slot)
	}
	if stops {
		return true // the next execd finds it
	}
	if err != nil {
		l.o.Log.Info(fmt.Sprintf("slot %v: fetch: refused: identity=%q: %v", w.slot, id, err))
		l.notifier(w.slot).reply(w.keyword, false, c, l.slotAd(w.slot), claim.ID{})
		return false
	}
	l.o.Log.Info(fmt.Sprintf("slot %v: fetch: accepted: job=%d identity=%q keyword=%s", held.Slot, number, id, w.keyword))
	w.start(c, &held, func(d *notifier) { d.reply(w.keyword, true, c, held.Ad, held.ID) })
	return true
}

// start has work started that was accepted, after somebody has been told of it. In
// a slot that was carved for it the work is that slot's own from then on.
func (w *worker) start(c *fetched, held *claim.Granted, tell func(*notifier)) {
	l := w.layer
	d := l.notifier(held.Slot)
	l.work.add(c)
	tell(d)
	if err := l.o.Slots.Begin(held.Slot, c.job); err != nil {
		l.fail(c, fmt.Sprintf("it cannot be started: %v", err))
	}
	if held.Slot != w.slot {
		w.carved = d
	}
}

// accept has the slots decide, and when they accept makes a job of the work. In
// that order, so that nobody is told of what then has no place (REQ-HOOK-119).
// While a job is about to be over they cannot yet: then it is a job before, so that the
// slot need not be idle for that, and none any more if they refuse. An execd that is
// started meanwhile offers it again.
func (w *worker) accept(ctx context.Context, c *fetched, slot *claim.View, id string) (claim.Granted, error) {
	l := w.layer
	owner, err := l.o.Owners.of(ctx, c.ad, l.o.Config())
	if err != nil {
		return claim.Granted{}, err
	}
	if err := w.prepare(c); err != nil {
		return claim.Granted{}, err
	}
	if err := l.o.Check(owner, c.request); err != nil {
		return claim.Granted{}, err
	}
	if slot.Ending {
		c.slot, c.id = w.slot, slot.ID.String()
		if err := w.record(c, owner, id); err != nil {
			return claim.Granted{}, err
		}
		w.await(ctx, func(s *claim.View) bool { return hasEnded(s) && !s.Full })
		switch {
		case ctx.Err() == nil:
		case l.runs():
			l.forget(c, "")
			return claim.Granted{}, errors.New("the slot fetches no work any more")
		default:
			return claim.Granted{Slot: w.slot}, errStops
		}
	}
	w.await(ctx, func(s *claim.View) bool { return !s.Full }) // a job may have ended since it was asked
	if ctx.Err() != nil && c.job == nil {
		return claim.Granted{}, errors.New("the slot fetches no work any more")
	}
	held, err := l.o.Slots.Offer(w.slot, l.offered(c, owner), w.lease(c.ad), proc.Uptime())
	same := c.job != nil && held.Slot == c.slot && held.ID.String() == c.id
	if c.job != nil && (err != nil || !same) {
		l.forget(c, "")
	}
	if err != nil || same {
		return held, err
	}
	c.slot, c.id = held.Slot, held.ID.String()
	if err := w.record(c, owner, id); err != nil {
		l.work.unorphan(held.ID.String())
		l.o.Slots.Withdraw(held.ID.String(), because("the work could not be recorded"))
		return claim.Granted{}, err
	}
	return held, nil
}

// offered is work as slots see it.
func (l *Layer) offered(c *fetched, owner *user.User) *classad.Ad {
	group := classad.Attr{Name: "OwnerGroup", Expr: classad.String(owner.Group).Expr()}
	return source.Owned(c.ad, owner.Name, l.o.Host).With(group)
}

// errStops is the error of work that was recorded when execd stopped.
var errStops = errors.New("execd stops")

// record makes a job of work for its slot and claim.
func (w *worker) record(c *fetched, owner *user.User, id string) (err error) {
	l := w.layer
	c.request.Work = work(c, id)
	c.job, _, err = l.o.Store.Submit(owner, owner.GID, c.request, l.o.Limits(), time.Now())
	c.script, c.request.Script = nil, nil
	return err
}

// resume starts what an earlier execd has accepted and not started.
func (w *worker) resume(ctx context.Context, c *fetched) {
	l := w.layer
	// What it was recorded for ahead may still run under its claim.
	w.await(ctx, func(s *claim.View) bool {
		return !s.Fetched() || s.ID.String() != c.id || s.State != "Claimed" || s.Activity == "Idle" && !s.Full
	})
	if ctx.Err() != nil {
		if l.runs() {
			l.drop(c, "the slot fetches no work any more")
		}
		return // the next execd finds it
	}
	switch waits, there := l.standing(c.job); {
	case !there:
		l.drop(c, deleted)
		return
	case !waits:
		return // started
	}
	owner, err := l.o.Owners.of(context.Background(), c.ad, l.o.Config())
	if err != nil {
		l.drop(c, err.Error())
		return
	}
	w.offers(true)
	defer w.offers(false)
	term, since := w.lease(c.ad), proc.Uptime()
	if s, ok := l.o.Slots.Snapshot(w.slot, false); ok && s.ID.String() == c.id && s.Lease > 0 {
		since -= s.Lease - s.Left
	} else if _, there := l.o.Claims.Fetched()[c.id]; term > 0 && !there {
		l.drop(c, "its lease is over")
		return
	}
	held, err := l.o.Slots.Offer(w.slot, l.offered(c, owner), term, since)
	if err != nil {
		l.drop(c, err.Error())
		return
	}
	l.o.Log.Info(fmt.Sprintf("slot %v: fetch: started after the restart: job=%d", held.Slot, c.job.Number))
	anew := &fetched{slot: held.Slot, keyword: c.keyword, ad: c.ad, request: c.request, job: c.job, id: held.ID.String()}
	w.start(anew, &held, func(*notifier) { l.work.remove(c) })
}

// notRun deals with work that was to be started and was not, for a reason that the
// log has: the claim is broken, which tells who it came from. It reports whether
// there was such work.
func (w *worker) notRun(slot *claim.View) bool {
	if !slot.Fetched() || !idle(slot) {
		return false
	}
	l := w.layer
	c := l.work.under(slot.ID.String())
	if c == nil {
		return false
	}
	if why := l.work.reason(c); why.Text != "" {
		l.o.Log.Warn(fmt.Sprintf("slot %v: fetch: not run: job=%d: %s", c.slot, c.job.Number, why.Text))
		l.calm(w.slot)
		l.o.Slots.Withdraw(slot.ID.String(), why)
		return true
	}
	return l.fail(c, "it could not be started")
}

// waits reports whether a job waits, to be started or in error.
func (l *Layer) waits(j *job.Job) bool {
	waits, _ := l.standing(j)
	return waits
}

// standing is waits, and reports whether the job is there at all.
func (l *Layer) standing(j *job.Job) (waits, there bool) {
	state, there := l.o.Store.ClaimedState(j)
	return there && (state == job.Pending || state == job.Errored), there
}

// deleted is why work is not run that somebody has taken out of the queue.
const deleted = "its job was deleted before it ran"

// fail forgets accepted work that was not run, and breaks its claim. It reports
// whether that was the case: it may run after all, or have run.
func (l *Layer) fail(c *fetched, reason string) bool {
	waits, there := l.standing(c.job)
	if there && !waits || l.work.end(c) {
		return false // or somebody else has found it
	}
	if !there {
		reason = deleted
	}
	l.o.Log.Warn(fmt.Sprintf("slot %v: fetch: not run: job=%d: %s", c.slot, c.job.Number, reason))
	l.forget(c, reason)
	l.calm(c.slot)
	if l.o.Slots.Withdraw(c.id, because(reason)) {
		return true
	}
	// The claim may have been broken before the work was noted to be under it: then
	// that was told of nobody.
	l.notifier(c.slot).evicted(claim.Eviction{Slot: c.slot, Reason: reason, Ad: l.slotAd(c.slot), ID: claim.PublicID(c.id), Job: c.job.Number})
	return true
}

// runs reports whether execd is not stopping.
func (l *Layer) runs() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running.Err() == nil
}

// because is a reason for which nothing is put on hold.
func because(text string) slot.Hold { return slot.Hold{Text: text} }
