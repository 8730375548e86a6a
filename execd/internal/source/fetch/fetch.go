// Package fetch brings work that nobody submitted: for each slot whose keyword
// has a hook FETCH_WORK it asks that hook for a job, offers what comes to the
// slots, records it as a job like any other, says by the hook REPLY_FETCH what was
// decided, and has it started. When no more comes it gives the claim back, and
// the hook EVICT_CLAIM is told.
//
// There is one goroutine for each such slot and none for the others. It sleeps
// until the slot changes or the delay is over; nothing is polled.
//
// Accepted work becomes a job exactly once. Its record is on disk before a hook is told; a
// hook that was not told before execd ended is told by the next one; and work whose
// identity is known here is not started a second time.
//
// Only daemon imports it. It imports ad, claim, hook, job, metrics and user, and asks whoever has
// the slots by its own interfaces, Slots and Claims.
package fetch

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/user"
	"paddock/internal/hint"
	"paddock/spool"
)

// Runner runs hooks; *hook.Runner does.
type Runner interface {
	Run(ctx context.Context, c hook.Call) hook.Result
	// Together reports whether a call of a hook REPORT_WORK may tell several ends.
	Together(h *hook.Hook) bool
}

// Options are what a Layer works with.
type Options struct {
	Slots  Slots
	Claims Claims
	Store  *job.Store
	Root   *spool.Root
	Hooks  Runner
	Owners Owners
	// Config and HookTable are what is in force; Configure is called when it has changed.
	Config    func() *conf.Config
	HookTable func() *hook.Table
	// Check refuses what no client may submit either; it may bring the request into
	// the form in which it is stored.
	Check func(owner *user.User, req *api.SubmitRequest) error
	// Limits bound how many jobs there may be.
	Limits func() job.Limits
	// Failing is called when a hook FETCH_WORK has failed, or works again; nil: nobody wants to
	// know.
	Failing func()
	Host    string // for the User of ads
	Counts  *metrics.Counts
	Log     *slog.Logger
}

// Layer is the fetching of all slots.
type Layer struct {
	o       Options
	known   register
	work    accepted
	reports reports

	reconfigured hint.Chan

	// mu comes after the queue's and before that of a notifier; those of known, work and a
	// worker are taken alone. No hook is called and no file is written under any of them.
	mu        sync.Mutex
	notifiers map[slot.ID]*notifier  // guarded by mu; by slot
	workers   map[slot.ID]*worker    // guarded by mu; by slot
	stopped   bool                   // guarded by mu; no hook is begun any more
	errands   sync.WaitGroup         // hooks that are not waited for
	running   context.Context        // guarded by mu; ends when execd stops
	left      map[slot.ID][]*fetched // guarded by mu; by slot: accepted by an earlier execd and not started yet
	leaving   map[slot.ID]bool       // guarded by mu; slots that fetch no more, and are given back when idle
}

// New returns a layer. It finds again in the Store what an earlier execd has
// accepted.
func New(o Options) *Layer {
	return &Layer{
		o: o, reconfigured: hint.New(), running: context.Background(),
		known:     register{byID: map[string]*entry{}, byJob: map[int]*entry{}, asking: map[*worker]time.Time{}},
		work:      accepted{orphans: map[string]bool{}},
		reports:   reports{reporters: map[string]*reporter{}, jobs: map[int]bool{}},
		notifiers: map[slot.ID]*notifier{}, workers: map[slot.ID]*worker{}, left: map[slot.ID][]*fetched{}, leaving: map[slot.ID]bool{},
	}
}

// Configure has everything looked at again: the configuration is another one.
func (l *Layer) Configure() {
	l.hurryReports()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.workers {
		w.look()
	}
	l.poke()
}

// poke has Run look at what slots are to fetch.
func (l *Layer) poke() { l.reconfigured.Give() }

// Run fetches until ctx is done. Then it ends the hooks that are running, and
// returns when they are gone. Jobs go on running. Recover comes before it.
func (l *Layer) Run(ctx context.Context) {
	l.findLeft()
	var wg sync.WaitGroup
	for ctx.Err() == nil {
		ids, listed := l.o.Claims.List()
		l.arrange(ctx, &wg, ids)
		select {
		case <-ctx.Done():
		case <-listed:
		case <-l.reconfigured:
		}
	}
	wg.Wait()
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.errands.Wait()
}

// arrange has a worker for each slot that is to fetch, and for no other.
func (l *Layer) arrange(ctx context.Context, wg *sync.WaitGroup, ids []slot.ID) {
	l.work.moved(l.o.Claims.Fetched())
	there := map[slot.ID]bool{}
	for _, id := range ids {
		there[id] = true
	}
	wanted := l.wanted(there)
	l.mu.Lock()
	var gone []*worker
	for id, w := range l.workers {
		if wanted[id] != w.keyword {
			gone = append(gone, w)
		}
	}
	l.mu.Unlock()
	for _, w := range gone {
		w.cancel()
		<-w.done
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rehome(there)
	for id, keyword := range wanted {
		if l.workers[id] == nil {
			l.startWorker(ctx, wg, id, keyword)
		}
	}
	for id := range l.notifiers { // that ever had fetched work
		if wanted[id] == "" && !l.leaving[id] && there[id] {
			l.leaving[id] = true
			wg.Go(func() { l.leave(ctx, id) })
		}
	}
	for id, list := range l.left {
		if wanted[id] == "" {
			delete(l.left, id)
			for _, c := range list {
				wg.Go(func() { l.drop(c, "its slot fetches no work any more") })
			}
		}
	}
}

// startWorker has a worker for a slot. l.mu is held.
func (l *Layer) startWorker(ctx context.Context, wg *sync.WaitGroup, id slot.ID, keyword string) {
	w := newWorker(l, id, keyword)
	l.workers[id] = w
	wctx, cancel := context.WithCancel(ctx)
	w.cancel = cancel
	wg.Go(func() {
		defer close(w.done)
		w.run(wctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.workers[id] == w { // the slot has gone; another of that number may be there already
			delete(l.workers, id)
			l.poke()
		}
		cancel()
	})
}

// wanted returns the keywords of the slots that are to fetch. One that was carved
// out of another asks only when its work is over: it needs nobody before it has
// some.
func (l *Layer) wanted(there map[slot.ID]bool) map[slot.ID]string {
	hooks, wanted, held := l.o.HookTable(), map[slot.ID]string{}, l.work.slots()
	for id := range there {
		if id.IsDynamic() && !held[id] {
			continue
		}
		if keyword := hooks.SlotKeyword(id.String()); keyword != "" && hooks.Hook(keyword, hook.FetchWork) != nil {
			wanted[id] = keyword
		}
	}
	return wanted
}

// rehome has what an earlier execd has accepted in slots that were carved, and are
// not there any more, carved anew. l.mu is held.
func (l *Layer) rehome(there map[slot.ID]bool) {
	for id, list := range l.left {
		if !id.IsDynamic() || there[id] {
			continue
		}
		delete(l.left, id)
		l.left[id.Parent()] = append(l.left[id.Parent()], list...)
	}
}

// leave gives back the claim of fetched work on a slot that fetches no more, when
// what runs there has ended: nobody else would.
func (l *Layer) leave(ctx context.Context, id slot.ID) {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.leaving, id)
	}()
	for ctx.Err() == nil {
		changed := l.o.Claims.Changed(id)
		s, ok, starting := l.look(id)
		l.mu.Lock()
		again := l.workers[id] != nil
		l.mu.Unlock()
		switch {
		case !ok || !s.Fetched() || again:
			return
		case idle(&s) && !starting:
			l.o.Slots.Withdraw(s.ID.String(), because("the slot fetches no work any more"))
			return
		}
		sleep(ctx, 0, changed, nil, nil)
	}
}

// Wake has slots ask at once, whatever their delay; none named: all that fetch. What is to
// be reported is told at once as well.
// One that is asking now asks once more when it has been answered. It returns
// how many were told, and the slots named that fetch nothing.
func (l *Layer) Wake(slots []slot.ID) (told int, missing []slot.ID) {
	l.hurryReports()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(slots) == 0 {
		for _, w := range l.workers {
			w.hurry()
		}
		return len(l.workers), nil
	}
	for _, id := range slots {
		if w := l.workers[id]; w != nil {
			w.hurry()
			told++
		} else {
			missing = append(missing, id)
		}
	}
	return told, missing
}

// RenewNow has slots ask at once whether the work that they have may go on; none named: all
// that have any with a lease. It returns how many were told, and the slots named that have none.
func (l *Layer) RenewNow(slots []slot.ID) (told int, missing []slot.ID) {
	l.mu.Lock()
	workers := maps.Clone(l.workers)
	l.mu.Unlock()
	asks := func(w *worker) bool {
		s, ok := l.o.Slots.Snapshot(w.slot, false)
		if !ok || !s.Fetched() || s.Lease == 0 || l.work.under(s.ID.String()) == nil {
			return false
		}
		w.hurryRenewal()
		told++
		return true
	}
	if len(slots) == 0 {
		for _, w := range workers {
			asks(w)
		}
		return told, nil
	}
	for _, id := range slots {
		if w := workers[id]; w == nil || !asks(w) {
			missing = append(missing, id)
		}
	}
	return told, missing
}

// Attributes returns what the ad of a slot says of its fetching: how the hook
// does, how often it has failed since it last worked, and why it did. A slot that
// does not fetch has none. It takes no lock that is held around a call of Slots.
func (l *Layer) Attributes(id slot.ID) []classad.Attr {
	l.mu.Lock()
	w := l.workers[id]
	l.mu.Unlock()
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	attrs := []classad.Attr{
		{Name: "FetchHookState", Expr: classad.String(w.state).Expr()},
		{Name: "FetchFailures", Expr: classad.Int(int64(w.failures)).Expr()},
	}
	if w.reason != "" {
		attrs = append(attrs, classad.Attr{Name: "FetchFailureReason", Expr: classad.String(w.reason).Expr()})
	}
	return attrs
}

// Failing tells of the slots whose hook fails, a line each in their order, and of reports that
// are not heard.
func (l *Layer) Failing() (lines []string) {
	l.mu.Lock()
	workers := maps.Clone(l.workers)
	l.mu.Unlock()
	for _, id := range slices.SortedFunc(maps.Keys(workers), func(a, b slot.ID) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Dynamic, b.Dynamic))
	}) {
		w := workers[id]
		w.mu.Lock()
		if w.failures > 0 {
			lines = append(lines, fmt.Sprintf("slot %s: FETCH_WORK has failed %d times: %s", id, w.failures, w.reason))
		}
		w.mu.Unlock()
	}
	return append(lines, l.failingReports()...)
}

// Evicted implements source.Source: the claim of fetched work is broken. It may block,
// but not for a hook.
func (l *Layer) Evicted(e claim.Eviction) {
	if c := l.work.under(e.ID.String()); c != nil && e.Slot.IsZero() { // the configuration has it not any more
		e.Slot = c.slot
	}
	l.notifier(e.Slot).evicted(e)
}

// Work returns what the record of a fetched job has of where it came from; nil: it
// was not fetched, or is over. It takes no lock that is held around a call of Slots.
func (l *Layer) Work(number int) *api.Work {
	if c := l.work.of(number); c != nil {
		return c.request.Work
	}
	return nil
}

// Queued implements source.Source: who the work came from brings it again.
func (l *Layer) Queued() bool { return false }

// Over implements source.Source: who the work came from was told by its exit hook that
// a run has ended, before the slot is given to other work. What is fetched from
// then on is not taken for the same, whatever its identity; nor is anything if he was
// told that it is to be done again. Where he has a hook for reports it is the same until he
// has heard that.
func (l *Layer) Over(j *job.Job, again bool) {
	c := l.work.of(j.Number)
	if c != nil {
		l.work.end(c)
	}
	switch {
	case again:
		l.known.gone(j.Number)
	case c == nil || l.o.HookTable().Hook(c.keyword, hook.ReportWork) == nil:
		l.known.over(j.Number, time.Now())
	}
}

// Abandoned implements source.Source: an accepted job will not run. The claim is broken
// then, which tells who it came from.
func (l *Layer) Abandoned(j *job.Job, why slot.Hold) {
	l.known.gone(j.Number)
	if c := l.work.of(j.Number); c != nil {
		l.work.abandon(c, why)
	}
}

// Unstarted implements source.Source: an accepted job is not run, and waits for
// nothing.
func (l *Layer) Unstarted(j *job.Job, reason string) {
	if c := l.work.of(j.Number); c != nil {
		l.fail(c, reason)
	}
}

// Stray implements source.Source: the slot of a job that was fetched looks at it, when
// it is idle again or execd was started.
func (l *Layer) Stray(*job.Job) {}

// notifier returns the notifier of a slot.
func (l *Layer) notifier(id slot.ID) *notifier {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.notifiers[id]
	if d == nil {
		d = &notifier{layer: l, slot: id}
		l.notifiers[id] = d
	}
	return d
}

// Recover finds what an earlier execd has accepted, and tells those who were not
// told, until ctx is done. It comes before any of these jobs is led to its end: of one
// that is over by then nobody would know that it is still to be told.
func (l *Layer) Recover(ctx context.Context) {
	l.mu.Lock()
	l.running = ctx
	l.mu.Unlock()
	l.recoverReports()
	retold, told := l.tellLeft()
	where := l.o.Claims.Fetched()
	for _, f := range l.o.Store.Claimed() {
		if f.Source != slot.FetchHolder {
			continue
		}
		c, err := l.reread(f)
		if err != nil {
			l.o.Log.Error(fmt.Sprintf("job %d: fetched work: %v", f.Number, err))
			continue
		}
		c.id = cmp.Or(f.Claim, c.id) // it may have been offered anew before it was started
		if c.told = told[f.Number]; !c.told {
			l.known.add(f.Identity, f.Number, c.slot)
		}
		if f.State == job.Ended {
			c.over = true
			if !l.reports.has(f.Number) {
				l.known.over(f.Number, time.Now())
			}
		}
		if on, ok := where[c.id]; ok { // which may have another number now
			c.slot = on
		}
		d := l.notifier(c.slot)
		l.work.add(c)
		if !f.Replied {
			l.o.Log.Info(fmt.Sprintf("slot %v: fetch: accepted before the restart: job=%d: told again", c.slot, f.Number))
			d.reply(c.keyword, true, c, l.slotAd(c.slot), claim.ID{})
		}
		l.mu.Lock()
		l.left[c.slot] = append(l.left[c.slot], c)
		l.mu.Unlock()
	}
	// A claim may be there and its work not, if execd was killed before its job was there,
	// or when it was not there any more. With its notifier it is given back, also where no
	// work is fetched any more; and who it comes from is told, if he was not yet.
	ids, _ := l.o.Claims.List()
	for _, id := range ids {
		if s, ok := l.o.Slots.Snapshot(id, false); ok && s.Fetched() {
			l.notifier(id)
			if l.work.under(s.ID.String()) == nil && !retold[s.ID.String()] {
				l.work.orphan(s.ID.String())
			}
		}
	}
}

// findLeft finds which of that was not started and waits for the worker of its slot.
// What is told that it will not run does not.
func (l *Layer) findLeft() {
	l.mu.Lock()
	found := l.left
	l.mu.Unlock()
	left := map[slot.ID][]*fetched{}
	for id, list := range found {
		list = slices.DeleteFunc(list, func(c *fetched) bool {
			waits := l.waits(c.job)
			if waits && c.told {
				l.unrun(c, "its claim was over before the restart")
				l.forget(c, "")
				l.release(c.job.Number)
			}
			return !waits || c.told
		})
		if len(list) > 0 {
			left[id] = list
		}
	}
	l.mu.Lock()
	l.left = left
	l.mu.Unlock()
}

// reread makes a claim of a job's record.
func (l *Layer) reread(f job.Claimed) (*fetched, error) {
	req, err := l.o.Store.Request(f.Job)
	if err != nil {
		return nil, err
	}
	defer l.o.Store.Forget(f.Job)
	ad, err := classad.ParseOld(req.Work.Ad)
	if err != nil {
		return nil, fmt.Errorf("its ad: %w", err)
	}
	keyword, _ := text(ad, attrKeyword)
	on, _ := slot.ParseID(string(req.Work.Slot)) // execd has written it
	return &fetched{slot: on, keyword: keyword, ad: ad, job: f.Job, request: req, id: req.Work.Claim}, nil
}

// takeLeft returns what an earlier execd has accepted for a slot and not started.
func (l *Layer) takeLeft(id slot.ID) []*fetched {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.left[id]
	delete(l.left, id)
	return list
}

// drop forgets an accepted job that has not run and will not. The hook from which it came is
// told.
func (l *Layer) drop(c *fetched, reason string) {
	l.o.Log.Warn(fmt.Sprintf("slot %v: fetch: not run: job=%d: %s", c.slot, c.job.Number, reason))
	l.notifier(c.slot).evicted(claim.Eviction{Slot: c.slot, Reason: reason, Ad: l.slotAd(c.slot), Job: c.job.Number})
	if l.waits(c.job) { // he was told before
		l.forget(c, reason)
	}
}

// forget takes a job that has not run out of the Store, for a reason; "": nobody is to hear
// of it.
func (l *Layer) forget(c *fetched, reason string) {
	if reason != "" {
		l.unrun(c, reason)
		defer l.release(c.job.Number)
	}
	l.work.drop(c, reason)
	if err := l.o.Store.Drop(c.job); err != nil {
		l.o.Log.Error(fmt.Sprintf("job %d: fetched work that was not run: %v", c.job.Number, err))
	}
	l.known.gone(c.job.Number)
}

func (l *Layer) slotAd(id slot.ID) *classad.Ad {
	snap, ok := l.o.Slots.Snapshot(id, true)
	if !ok || snap.Ad == nil {
		return classad.New()
	}
	return snap.Ad
}

// Attributes of the ads that are read and set here.
const (
	attrKeyword  = "HookKeyword"
	attrIdentity = "GlobalJobId"
	attrOwner    = "Owner"
	attrClaim    = "ClaimId"
	attrReason   = "VacateReason"

	attrReasonCode    = "VacateReasonCode"
	attrReasonSubcode = "VacateReasonSubCode"
)

// text returns the string that an attribute is.
func text(ad *classad.Ad, name string) (string, bool) {
	if _, ok := ad.Lookup(name); !ok {
		return "", false
	}
	env := &classad.Env{My: ad, Now: time.Now()}
	return env.Attr(name).Str()
}
