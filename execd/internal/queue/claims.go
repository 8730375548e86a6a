package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/slot"
	"paddock/spool"
)

// Slots does what managed slots want with their jobs.
type Slots struct {
	// JobAd returns the ad of a waiting job, or of a running task of it; nil: there is
	// none. Names are the attributes that are needed of a job that came by qsub; nil: all.
	// It must not block.
	JobAd func(j *job.Job, t *job.Task, names []string) *classad.Ad
	// Look reads the attributes of the host for the ads of slots, unless that was just
	// done. It may block, but not for long. Queue.mu is not held.
	Look func()
	// Evict ends a task as an effect says: Stop, Kill or KillFamily. With a hold the task
	// then waits in error. It may block, and is not called by two goroutines at once.
	Evict func(t *job.Task, e claim.Effect, hold *claim.Effect)
	// Lease has the shepherd of a task, or the one to come, go by the lease of its claim as
	// that is now. It may block.
	Lease func(t *job.Task) error
}

// managed is what the queue remembers about managed slots.
type managed struct {
	ended   bool                              // guarded by Queue.mu; execd is about to end
	gated   bool                              // guarded by Queue.mu; the scheduler asks the slots
	refused bool                              // guarded by Queue.mu; a slot has refused a job since the policies were last evaluated
	stopped map[schedule.TaskID]bool          // guarded by Queue.mu; by the policy of their slots
	holds   map[schedule.TaskID]*claim.Effect // guarded by Queue.mu; tasks that end in error, and why
	pulse   *time.Timer                       // guarded by Queue.mu; when to evaluate policies again
	asked   *ref                              // guarded by Queue.mu; about which slots were asked last
}

// ref is a job as the policies of slots see it.
type ref struct {
	q    *Queue
	job  *job.Job
	task *job.Task   // nil: it waits
	work *classad.Ad // as it came; nil: by qsub
	ad   *classad.Ad // of a job that waits
}

// claimed are the attributes that say what work wants of a slot. They are those of the
// work's own ad.
var claimed = []string{"Requirements", "Rank"}

// over returns the ad that execd makes of a job, with the attributes that only the work's
// own ad has: what execd knows takes precedence.
func (r *ref) over(ad *classad.Ad) *classad.Ad {
	if r.work == nil {
		return ad
	}
	var more []classad.Attr
	for name, expr := range r.work.All() {
		_, known := ad.Lookup(name)
		if !known || slices.ContainsFunc(claimed, func(c string) bool { return strings.EqualFold(c, name) }) {
			more = append(more, classad.Attr{Name: name, Expr: expr})
		}
	}
	return ad.With(more...)
}

// workOf returns the ad of a job that did not come by qsub, from its record; nil:
// it has none. It blocks.
func (q *Queue) workOf(j *job.Job) *classad.Ad {
	if !j.UnderClaim() {
		return nil
	}
	request, err := q.o.Store.Request(j)
	if err != nil || request.Work == nil {
		return nil
	}
	work, err := classad.ParseOld(request.Work.Ad)
	if err != nil {
		return nil // policies then see what execd knows about it
	}
	return work
}

// Ad implements slot.Job.
func (r *ref) Ad() *classad.Ad {
	if r.task != nil {
		return r.over(r.q.o.Slots.JobAd(r.job, r.task, nil))
	}
	if r.ad == nil {
		r.ad = r.over(r.q.o.Slots.JobAd(r.job, nil, nil))
	}
	return r.ad
}

// AdOf implements claim.Alike.
func (r *ref) AdOf(names []string) *classad.Ad {
	if r.ad != nil {
		return r.Ad()
	}
	return r.q.o.Slots.JobAd(r.job, nil, names)
}

// Like implements claim.Alike. A likeness has what the ad of a waiting job is made from,
// and nothing else.
func (r *ref) Like() (claim.Likeness, bool) {
	if r.task != nil || r.job.UnderClaim() {
		return claim.Likeness{}, false
	}
	terms := r.job.Terms()
	return claim.Likeness{
		Needs: terms.Needs, Owner: r.job.Owner, Group: r.job.Group, Name: terms.Name, Account: terms.Account,
		Priority: terms.Priority, Number: r.job.Number, Submitted: r.job.Submitted.UnixNano(),
	}, true
}

// ref returns a job, or a task of it, with the ad that it came with, as slots see it; nil
// if no slot is asked.
func (q *Queue) ref(j *job.Job, t *job.Task, work *classad.Ad) slot.Job {
	if !q.o.Claims.Managed() {
		return nil
	}
	return &ref{q: q, job: j, task: t, work: work}
}

// JobOf returns a task as slots see it. q.mu is held.
func (q *Queue) JobOf(task string) slot.Job {
	if t := q.named(task); t != nil {
		return &ref{q: q, job: t.Job, task: t}
	}
	return nil
}

// Reconsider has the slots of a running task evaluate their policies: the ad of its job has
// become another.
func (q *Queue) Reconsider(t *job.Task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.o.Claims.Reconsider(t.String())
	q.settle()
}

// named returns the running task with a name. q.mu is held.
func (q *Queue) named(name string) *job.Task {
	number, task, _ := strings.Cut(name, ".")
	n, err1 := strconv.Atoi(number)
	m, err2 := strconv.Atoi(task)
	if err1 != nil || err2 != nil {
		return nil
	}
	return q.running[schedule.TaskID{Job: n, Task: m}]
}

// gate asks the slots of a queue whether they are willing to run a job. q.mu is
// held.
func (q *Queue) gate(number int, queue string, most int) (int, string, bool) {
	if a := q.managed.asked; a == nil || a.job.Number != number {
		j := q.o.Store.Get(number)
		if j == nil {
			return 0, "it is gone", false
		}
		q.managed.asked = &ref{q: q, job: j}
	}
	n, why, same := q.o.Claims.Willing(queue, q.managed.asked, most)
	q.managed.refused = q.managed.refused || n == 0
	return n, why, same
}

// settle carries out the effects of slots, and updates the scheduler's books. q.mu is held.
// If no slot is managed it costs nothing.
func (q *Queue) settle() {
	is := q.o.Claims.Managed()
	if !is && !q.managed.gated || q.managed.ended {
		return
	}
	q.managed.asked = nil
	var next time.Time
	for again := true; again; {
		next = q.o.Claims.Tick()
		q.books()
		again = false
		for _, e := range q.o.Claims.Effects() {
			q.effect(e)
			again = true
		}
	}
	if is != q.managed.gated {
		q.managed.gated = is
		if is {
			q.sched.SetGate(q.gate)
		} else {
			q.sched.SetGate(nil)
		}
	}
	q.sched.GateChanged()
	q.timer(next)
	q.Wake()
}

// repoll lets the slots be asked again after a while if one has refused a job for a reason
// that may pass without an event.
func (q *Queue) repoll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.managed.gated && q.managed.refused {
		q.timer(q.o.Claims.Tick())
	}
}

// books enters slots that others than the queue use in the scheduler's books. q.mu is held.
func (q *Queue) books() {
	for _, k := range q.o.Claims.Books() {
		if k.Slots == 0 {
			q.sched.Ended(-k.Serial, 0, schedule.Used{}, time.Now())
			continue
		}
		q.sched.Started(schedule.Running{
			Job: -k.Serial, Started: time.Now(), Kept: true, Why: k.Why,
			Grant: &schedule.Grant{Queues: []schedule.QueueSlots{{Queue: k.Queue, Slots: k.Slots}}},
		})
	}
}

// repolling is how often slots are asked whether they have become willing to run a waiting
// job, if no event says so.
const repolling = 5 * time.Second

// timer lets the policies be evaluated again at a time; zero: they do not depend on time.
// q.mu is held.
func (q *Queue) timer(next time.Time) {
	if q.managed.ended {
		next = time.Time{}
	} else if q.managed.refused && q.o.Claims.Restless() {
		if at := time.Now().Add(repolling); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if q.managed.pulse != nil {
		q.managed.pulse.Stop()
		q.managed.pulse = nil
	}
	if !next.IsZero() {
		q.managed.pulse = time.AfterFunc(time.Until(next), q.speak)
	}
}

// speak evaluates the policies that are due.
func (q *Queue) speak() {
	q.o.Slots.Look()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.managed.refused = false
	q.settle()
}

// policies forgets that slots have refused jobs, so that they are asked again now.
func (q *Queue) policies() {
	if q.o.Claims.Managed() {
		q.o.Slots.Look()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.managed.refused = false
}

// effect carries out one effect. q.mu is held.
func (q *Queue) effect(e claim.Effect) {
	switch e.Do {
	case claim.Evict:
		q.errands.Add(func() { q.o.Sources.Of(e.Eviction.Holder).Evicted(e.Eviction) })
		return
	case claim.Say:
		q.errands.Add(func() { q.o.Log.Log(context.Background(), e.Level, e.Text) })
		return
	case claim.Forget:
		q.errands.Add(func() {
			if err := q.o.Claims.File(e); err != nil {
				q.o.Log.Error(err.Error()) // no other claim is written before it is gone
			}
		})
		return
	case claim.Rewrite:
		q.errands.Add(func() {
			if err := q.o.Claims.File(e); err != nil {
				q.o.Log.Warn(err.Error())
			}
			q.mu.Lock()
			defer q.mu.Unlock()
			q.settle() // it may be over meanwhile
		})
		return
	case claim.Begin:
		if err := q.startUnder(e.Slot, "", e.Job, nil); err != nil {
			q.errands.Add(func() { q.o.Sources.Of(e.Job.Source).Unstarted(e.Job, err.Error()) })
		}
		return
	}
	t := q.named(e.Task)
	if t == nil {
		return // it has ended
	}
	k := key(t)
	switch e.Do {
	case claim.Suspend:
		q.managed.stopped[k] = true
		q.Wake()
	case claim.Resume:
		delete(q.managed.stopped, k)
		q.Wake()
	case claim.Hold:
		q.managed.holds[k] = &e
	default:
		hold := q.managed.holds[k]
		if q.managed.stopped[k] { // a suspended job cannot end
			delete(q.managed.stopped, k)
			q.Wake()
		}
		q.errands.Add(func() {
			q.o.Log.Info(fmt.Sprintf("job %v: has to leave: slot=%v reason=%q", t, e.Slot, e.Text))
			q.o.Slots.Evict(t, e, hold)
		})
	}
}

// Stop ends the effects of slots, and returns when those that there were are carried out.
// The next execd finds the slots as they are.
func (q *Queue) Stop() {
	q.mu.Lock()
	q.managed.ended = true
	q.timer(time.Time{})
	q.mu.Unlock()
	q.Quiet()
}

// Quiet returns when the effects of slots so far are carried out.
func (q *Queue) Quiet() { q.errands.Wait() }

// stray deals with a job that is started by its source and not by the queue: the source is
// told if the run has not begun, or if the job was deleted. q.mu is held.
func (q *Queue) stray(j *job.Job) {
	from := q.o.Sources.Of(j.Source)
	if q.o.Store.Get(j.Number) != j {
		q.errands.Add(func() { from.Unstarted(j, "it was deleted") })
		return
	}
	if !q.o.Store.Turn(j).After(j.Submitted) {
		return
	}
	if n, _, at := q.o.Store.Ready(j, time.Now()); n > 0 || !at.IsZero() {
		q.errands.Add(func() { from.Stray(j) })
	}
}

// slotsDo does something with the slots, and then carries out the effects.
func slotsDo[T any](q *Queue, do func(*claim.Table) (T, error)) (T, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	v, err := do(q.o.Claims)
	q.settle()
	return v, err
}

// Policy sets the policy of the slots, and which of them are managed since they have
// hooks.
func (q *Queue) Policy(p *slot.Policy, hooked func(slot.ID) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.o.Claims.Configure(p, hooked)
	q.settle()
	q.revision++
	q.o.Claims.Stir()
}

// Claim makes a claim on a slot. When it returns the claim is on disk.
func (q *Queue) Claim(r claim.Request) (claim.Granted, error) {
	q.o.Slots.Look()
	g, err := slotsDo(q, func(t *claim.Table) (claim.Granted, error) {
		if why := q.o.Hold(); why != "" {
			return claim.Granted{}, api.Refusef(api.RefusedShutdown, "%s", why)
		}
		return t.Request(r)
	})
	if err != nil {
		return g, err
	}
	if err = q.keep(g.ID); err == nil && g.LeftOvers != nil {
		if err := q.keep(g.LeftOvers.ID); err != nil {
			q.o.Log.Error(err.Error())
			g.LeftOvers = nil // what was asked for is there
		}
	}
	return g, err
}

// keep writes a claim to disk.
func (q *Queue) keep(id claim.ID) error {
	err := q.o.Claims.Keep(id)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle()
	return err
}

// Order gives the slot of a claim an event.
func (q *Queue) Order(id claim.ID, by claim.By, event func(slot.Number) slot.Event) (claim.State, error) {
	return slotsDo(q, func(t *claim.Table) (claim.State, error) { return t.Order(id, by, event) })
}

// Lease returns the lease of the claim with a public id; zero: it lasts for ever; false: it
// is over.
func (q *Queue) Lease(public string) (lease spool.Lease, ok bool) { return q.o.Claims.Lease(public) }

// Adopted is called when all tasks that an earlier execd has left are in their slots: from
// then on the leases of its claims end, and the policies of their slots count.
func (q *Queue) Adopted() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.o.Claims.Adopted()
	q.settle()
}

// Renew begins the lease of a claim anew. When it returns without an error that is on disk.
func (q *Queue) Renew(id claim.ID, by claim.By) (claim.State, error) {
	s, err := q.o.Claims.Renew(id, by, q.lease)
	q.renewed()
	return s, err
}

// Prolong is Renew for the claim of fetched work with a public id, whose lease is that of
// its work, 0 for none, and begins at an uptime of the host.
func (q *Queue) Prolong(public string, lease, since time.Duration) error {
	err := q.o.Claims.Prolong(public, lease, since, q.lease)
	q.renewed()
	return err
}

// lease has the shepherd of a task go by the lease of its claim.
func (q *Queue) lease(task string) error {
	q.mu.Lock()
	t := q.named(task)
	q.mu.Unlock()
	if t == nil {
		return nil // it has ended
	}
	return q.o.Slots.Lease(t)
}

// renewed carries out what has become of a claim that was to be renewed.
func (q *Queue) renewed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle()
}

// Deactivate ends the job of a claim. The answer comes over the channel.
func (q *Queue) Deactivate(id claim.ID, by claim.By, how slot.Deactivation) (<-chan api.Permit, error) {
	return slotsDo(q, func(t *claim.Table) (<-chan api.Permit, error) { return t.DeactivateClaim(id, by, how) })
}

// CheckClaim reports whether a claim may be activated again, with a channel that is closed
// when to ask again.
func (q *Queue) CheckClaim(id claim.ID, by claim.By) (api.Permit, <-chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.o.Claims.Check(id, by)
}

// Waiting returns a function that reports whether a claim waits for its slot, and a channel
// that is closed when to ask again.
func (q *Queue) Waiting(id claim.ID, by claim.By) (func() (bool, <-chan struct{}, error), error) {
	return q.o.Claims.Waiting(id, by)
}

// Traffic notes that more or less output of runs that are over is on its way than was, or
// that there is more room for sandboxes.
func (q *Queue) Traffic() {
	q.mu.Lock()
	q.o.Claims.Traffic()
	q.lookForRoom()
	q.settle()
	q.mu.Unlock()
	q.Wake()
}

// Starting begins an activation, which StartUnder or Unstarted ends.
func (q *Queue) Starting(id claim.ID, by claim.By) (on slot.ID, holder string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.o.Claims.Starting(id, by)
}

// Unstarted ends an activation whose job was not started.
func (q *Queue) Unstarted(id claim.ID) { q.o.Claims.Unstarted(id) }

// Vacate makes jobs and claims leave slots, and returns the number of slots that were in
// use. When it returns, what has to leave does so also if execd is killed.
func (q *Queue) Vacate(ids []slot.ID, fast bool) (int, error) {
	n, err := slotsDo(q, func(t *claim.Table) (int, error) { return t.Vacate(ids, fast, slot.ReasonVacateCommand) })
	q.Quiet()
	return n, err
}

// Drain takes the slots out of service, and makes jobs leave them at a speed; empty: it puts
// the slots back in service.
func (q *Queue) Drain(speed claim.Speed) {
	var d *slot.Drain
	switch speed {
	case "":
	case claim.Graceful:
		d = &slot.Drain{Speed: slot.DrainGraceful}
	case claim.Quick:
		d = &slot.Drain{Speed: slot.DrainQuick}
	default:
		d = &slot.Drain{Speed: slot.DrainFast}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.o.Claims.Drain(d)
	q.settle()
}

// Views returns the view of a slot, or those of all slots if none is named.
func (q *Queue) Views(id slot.ID, ads bool) []claim.View {
	if ads {
		q.o.Slots.Look()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !id.IsZero() {
		if v, ok := q.o.Claims.Snapshot(id, ads); ok {
			return []claim.View{v}
		}
		return nil
	}
	return q.o.Claims.Views(ads)
}

// Stirred returns a channel that is closed at the next change of any slot.
func (q *Queue) Stirred() <-chan struct{} { return q.o.Claims.Stirred() }

// Snapshot returns the view of a slot, with its ads if they are wanted; false: it does not
// exist. It is closed while nothing is started at all.
func (q *Queue) Snapshot(id slot.ID, ads bool) (claim.View, bool) {
	q.o.Slots.Look()
	q.mu.Lock()
	defer q.mu.Unlock()
	v, ok := q.o.Claims.Snapshot(id, ads)
	v.Closed = v.Closed || q.blocked(time.Now()) != ""
	return v, ok
}

// Offer decides whether a slot accepts fetched work. If it does, the claim is on disk, with
// the lease of the work, 0 for none, which begins at an uptime of the host.
func (q *Queue) Offer(id slot.ID, ad *classad.Ad, lease, since time.Duration) (claim.Granted, error) {
	q.o.Slots.Look()
	g, err := slotsDo(q, func(t *claim.Table) (claim.Granted, error) {
		if why := q.blocked(time.Now()); why != "" { // it would be accepted, and not started
			return claim.Granted{}, api.Refusef(api.RefusedShutdown, "%s", why)
		}
		g, err := t.Offer(id, ad)
		if err == nil {
			t.Lend(g.ID, lease, since)
		}
		return g, err
	})
	if err != nil {
		return g, err
	}
	if !g.Again {
		return g, q.keep(g.ID)
	}
	q.errands.Add(func() { // the slot is idle until its work begins
		if err := q.keep(g.ID); err != nil {
			q.o.Log.Warn(err.Error())
		}
	})
	return g, nil
}

// Asking notes that a hook looks for work for a slot, or no longer does.
func (q *Queue) Asking(id slot.ID, asks bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.o.Claims.Asking(id, asks)
	q.settle()
}

// Begin runs a fetched job in a slot: now, or when the job that it preempts is gone.
func (q *Queue) Begin(id slot.ID, j *job.Job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, public, err := q.o.Claims.Promise(id, j)
	if err == nil && now {
		err = q.startUnder(id, public, j, nil)
	}
	q.settle()
	return err
}

// Withdraw gives back the claim of fetched work with a public id, for a reason that may be
// a hold. It reports whether the claim existed and had not been taken.
func (q *Queue) Withdraw(public string, why slot.Hold) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	there := q.o.Claims.Withdraw(public, why)
	q.settle()
	return there
}

// StartUnder runs a job in a slot, under the claim with a public id that has the slot. Work
// is its ad, nil if it has none. After an error the job has not been started, and never
// will be.
func (q *Queue) StartUnder(on slot.ID, public string, j *job.Job, work *classad.Ad) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.startUnder(on, public, j, work)
	q.settle()
	return err
}

// startUnder is StartUnder. q.mu is held, from before the machine of the slot accepts the
// job until the books have it, so that nothing else is started in between.
func (q *Queue) startUnder(on slot.ID, public string, j *job.Job, work *classad.Ad) error {
	now := time.Now()
	if why := q.blocked(now); why != "" {
		return api.Refusef(api.RefusedShutdown, "%s", why)
	}
	request := j.Terms().Needs.Request()
	if request.PE != "" {
		return api.Refusef(api.RefusedRequirements, "a claim has one slot, and the job asks for a parallel environment")
	}
	if why := q.o.Room(); request.Sandbox == api.SandboxYes && why != "" {
		return api.Refusef(api.RefusedTryAgain, "%s", why)
	}
	want, err := schedule.Resolve(q.config, request, j.Owner, j.Groups, nil)
	if err != nil {
		return api.Refusef(api.RefusedRequirements, "%v", err)
	}
	queue, id, fetched, err := q.o.Claims.Under(on, public)
	if err != nil {
		return err
	}
	gid, ok := q.o.GIDs.Take()
	if !ok {
		return api.Refusef(api.RefusedTryAgain, "no additional group id of gid_range is free")
	}
	if work == nil {
		work = fetched
	}
	r := &ref{q: q, job: j, work: work}
	claims, err := q.o.Claims.Run(on, id, fmt.Sprintf("%d.1", j.Number), r)
	if err != nil {
		q.o.GIDs.Give(gid)
		return err
	}
	q.books() // what was kept for it is free for it
	var t *job.Task
	grant, err := q.sched.Place(&want, queue, now)
	if err == nil {
		q.o.Store.Ready(j, now)
		if t = q.take(j, job.Start{Queue: queue, AddGID: gid, Grant: grant, Claim: id}, now); t == nil {
			err = errors.New("the job is gone, or held")
		}
	}
	if err != nil {
		q.o.GIDs.Give(gid)
		q.o.Claims.Deactivate(claims)
		return api.Refusef(api.RefusedRequirements, "%v", err)
	}
	r.task = t
	q.start(t, claims)
	return nil
}
