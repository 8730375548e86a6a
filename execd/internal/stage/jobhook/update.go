package jobhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/policy"
	"paddock/execd/internal/stage/notice"
	"paddock/spool"
)

// What hooks.conf does not say about UPDATE_JOB_INFO.
const (
	initialUpdate = 8 * time.Second
	steadyUpdate  = 300 * time.Second
)

// updates is the pace of UPDATE_JOB_INFO for one run, by which those who follow it are told,
// the slots of the host and the event log of its owner, and its policy is looked at, too. Its
// timer exists only for runs of which somebody wants to know. Nobody waits for the hook; there
// is one at a time.
type updates struct {
	mu      sync.Mutex
	begun   time.Time          // guarded by mu; when the run was; zero: not yet
	every   time.Duration      // guarded by mu; from one to the next, if that is longer than is configured
	timer   *time.Timer        // guarded by mu; nil: it does not tick
	cancel  context.CancelFunc // guarded by mu; of the hook that runs; nil: none does
	stopped bool               // guarded by mu; the run is over
	last    *hook.Result       // guarded by mu
	count   int                // guarded by mu; how often it ran
	skipped int                // guarded by mu; how often it did not, as it still ran
	failed  bool               // guarded by mu; the last one has

	slot  atomic.Pointer[ad.Status] // what the slot of the run was told last; nil: nothing yet
	grown int64                     // guarded by mu; the size in the event log, in KiB
}

// intervals returns when the first update comes and how long it is from one to the
// next. The first never comes later than a later one would.
func intervals(c *conf.Config) (first, steady time.Duration) {
	steady = max(c.Knobs.Duration("STARTER_UPDATE_INTERVAL", steadyUpdate), time.Second)
	return min(max(c.Knobs.Duration("STARTER_INITIAL_UPDATE_INTERVAL", initialUpdate), 0), steady), steady
}

// untilNext returns how long it is to the next update of a job that has run for a
// time: it keeps its beat over a restart of execd, or the hooks of all jobs would
// start together then and ever after.
func untilNext(ran, first, steady time.Duration) time.Duration {
	if late := ran - first; late > 0 {
		return (steady - late%steady) % steady
	}
	return first - max(ran, 0)
}

// updated reports whether somebody is told while the job runs.
func (x *Hooks) updated() bool {
	return x.Update != nil || x.HasPolicy() || x.host.Followed(x.of) || x.watched()
}

// HasPolicy reports whether the job says itself what is to become of it, as it stands now.
func (x *Hooks) HasPolicy() bool {
	return x.Policy != nil && policy.Any(x.of.Job.Terms().Needs.Attributes())
}

// watched reports whether a policy of slots may look at the job, or its event log has its size.
func (x *Hooks) watched() bool { return x.judged() || x.notices.On() }

func (x *Hooks) judged() bool { return x.host.Judges != nil && x.host.Judges() }

// StartUpdates has the hook called from now on, and who follows told: the job has been
// started, or found again when it had run for a time.
func (x *Hooks) StartUpdates(ran time.Duration) {
	u := &x.updates
	u.mu.Lock()
	u.begun = time.Now().Add(-ran)
	u.mu.Unlock()
	if !x.updated() {
		return
	}
	x.report(api.ActivationStarted)
	x.judge()
	if ran > 0 { // an earlier execd may have told nobody that it was suspended
		x.steered()
	}
	x.Watch()
}

// Watch has it tick if somebody wants to know of the run now, whoever did when it was started.
func (x *Hooks) Watch() {
	u := &x.updates
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.timer == nil && !u.stopped && !u.begun.IsZero() && x.updated() {
		first, steady := intervals(x.host.Config())
		u.timer = time.AfterFunc(untilNext(time.Since(u.begun), first, steady), x.tick)
	}
}

// Altered notes that the attributes of the job are others now.
func (x *Hooks) Altered() {
	x.judge()
	x.Watch()
}

// longestUpdate bounds how seldom updates come because they take long.
const longestUpdate = 3000 * time.Second

// stretched is the time from one update to the next, of which the last took so long: a tenth
// of it may go by that.
func stretched(steady, took time.Duration) time.Duration {
	return max(steady, min(10*took, longestUpdate))
}

// tick is one beat. The next is counted from it, not from the end of the hook.
func (x *Hooks) tick() {
	u := &x.updates
	_, steady := intervals(x.host.Config())
	begun := time.Now()
	u.mu.Lock()
	over := u.stopped
	u.mu.Unlock()
	if over {
		return
	}
	x.report(api.ActivationUpdate)
	x.judge()
	x.update()
	u.mu.Lock()
	defer u.mu.Unlock()
	if took := time.Since(begun); !u.stopped {
		u.every = stretched(steady, took)
		u.timer = time.AfterFunc(u.every-took, x.tick)
	}
}

// most is within what time an update follows another.
func (x *Hooks) most() time.Duration {
	_, steady := intervals(x.host.Config())
	x.updates.mu.Lock()
	defer x.updates.mu.Unlock()
	return max(steady, x.updates.every)
}

// young reports whether the run began a moment ago.
func (u *updates) young() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Since(u.begun) < time.Second
}

// judge has the policy of the job looked at.
func (x *Hooks) judge() {
	if x.Policy != nil {
		x.Policy.Look()
	}
}

// report tells those who follow, the slot, and the owner.
func (x *Hooks) report(kind api.ActivationKind) {
	followed := x.host.Followed(x.of)
	if !followed && (kind == api.ActivationStarted || !x.watched()) {
		return
	}
	look := x.host.Usage.Usage
	// Who suspends many jobs does not wait for it, and what has just begun has used nothing.
	if !followed && kind != api.ActivationUpdate || kind == api.ActivationStarted && x.updates.young() {
		look = func(run spool.RunID) (api.Usage, bool) { return x.host.Usage.Seen(run.ID()) }
	}
	used, known := look(x.of.RunID())
	s := x.Status(used)
	if followed {
		e := api.ActivationEvent{Kind: kind, Time: time.Now(), Ad: ad.Update(s, x.most())}
		if kind == api.ActivationStarted {
			e.Time = x.host.Launcher.Since(x.of.RunID(), x.of.Started)
		}
		x.host.Followers.Tell(x.of.Job, e)
	}
	switch {
	case known:
		x.updates.slot.Store(&s)
		x.grown(s)
	case kind == api.ActivationUpdate && x.judged(): // of others it may be too early
		x.host.Counts.Drop(metrics.ToSlot)
	}
}

// Reported is what the slot of the run was told last; nil: nothing yet.
func (x *Hooks) Reported() *ad.Status { return x.updates.slot.Load() }

// grown tells the event log of the owner when the job has become larger.
func (x *Hooks) grown(s ad.Status) {
	u := &x.updates
	u.mu.Lock()
	more := s.ImageSize > u.grown
	u.grown = max(u.grown, s.ImageSize)
	u.mu.Unlock()
	if more {
		x.notices.Happened(notice.Event{Kind: notice.Grown, Ad: ad.Running(classad.New(), s)})
	}
}

// steered tells whether the job is suspended.
func (x *Hooks) steered() {
	switch {
	case !x.updated():
	case x.host.Store.WantStopped(x.of):
		x.report(api.ActivationSuspended)
	default:
		x.report(api.ActivationResumed)
	}
}

// ChangedState calls the hook at once, and tells who follows: the job was suspended, or goes
// on.
func (x *Hooks) ChangedState() {
	x.steered()
	if x.HasPolicy() { // what it wants is told the shepherd, as the caller is about to
		go x.Policy.Look()
	}
	if x.Update == nil || !x.host.Config().Knobs.Bool("HOOK_UPDATE_ON_SUSPEND", true) {
		return
	}
	x.update()
}

// update calls the hook, if there is one, unless it still runs.
func (x *Hooks) update() {
	if x.Update == nil {
		return
	}
	u := &x.updates
	u.mu.Lock()
	if u.stopped || u.cancel != nil {
		if !u.stopped {
			u.skipped++
		}
		u.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	u.cancel = cancel
	u.mu.Unlock()
	go func() {
		res := x.callUpdate(ctx)
		ended := ctx.Err() != nil || errors.Is(res.Err, hook.ErrStopped)
		cancel()
		u.mu.Lock()
		defer u.mu.Unlock()
		u.cancel = nil
		if u.stopped {
			x.event(nil) // what follows waits for it
		}
		if ended {
			return // with the job, or with execd
		}
		u.last, u.count = &res, u.count+1
		failed := res.Err != nil || res.TimedOut
		if failed && !u.failed { // once for all that follow
			x.host.Log.Warn(fmt.Sprintf("job %v: hook: keyword=%s hook=%s took=%.3fs result=%q", x.of, res.Keyword, res.Hook, res.Took.Seconds(), res.String()))
		}
		u.failed = failed
	}()
}

func (x *Hooks) callUpdate(ctx context.Context) hook.Result {
	h := x.Update
	a, err := x.JobAd()
	if err != nil {
		return *failed(h, err)
	}
	used, _ := x.host.Usage.Usage(x.of.RunID())
	c, err := x.hookCall(h, nil, ad.Stdin(ad.Running(a, x.Status(used)), nil), false)
	if err != nil {
		return *failed(h, err)
	}
	return x.host.Hooks.Run(ctx, c)
}

// StopUpdates ends the pace, and the hook if it runs, and notes what there was. It
// reports whether the hook is gone: what it tells must not come behind what is told of
// the end. Its own end enters the list of stages again.
func (x *Hooks) StopUpdates() (over bool, err error) {
	if x.Policy != nil {
		x.Policy.Stop()
	}
	u := &x.updates
	u.mu.Lock()
	u.stopped = true
	if u.timer != nil {
		u.timer.Stop()
	}
	if u.cancel != nil {
		u.cancel()
		u.mu.Unlock()
		return false, nil
	}
	u.mu.Unlock()
	if line := u.shown(); line != nil {
		if err := x.Note(*line); err != nil {
			return false, err
		}
		u.mu.Lock()
		u.last = nil // it is in the list now
		u.mu.Unlock()
	}
	return true, nil
}

// shown is a line for all updates so far; nil: there was none.
func (u *updates) shown() *HookRun {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		return nil
	}
	return &HookRun{Result: u.last, Count: u.count, Skipped: u.skipped}
}

// Status is what is known of a job that runs.
func (x *Hooks) Status(used api.Usage) ad.Status {
	run := x.of.RunID()
	s := ad.Status{Suspended: x.host.Store.WantStopped(x.of), Started: x.host.Launcher.Since(run, x.of.Started)}
	if d, _, err := x.host.Launcher.Find(run); err == nil {
		if pid, err := d.JobPID(); err == nil {
			s.PID = pid
		}
	}
	s.Processes = used.PIDs
	s.ImageSize, s.ResidentSetSize = int64(used.MaxVMem/1024), int64(used.MaxRSS/1024)
	s.SysCPU = time.Duration(used.SysCPU * float64(time.Second))
	s.UserCPU = time.Duration(used.CPU*float64(time.Second)) - s.SysCPU
	return s
}
