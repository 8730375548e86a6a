package shadow

import (
	"context"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/shadow/match"
	"paddock/execd/internal/timeline"
	"paddock/internal/hint"
	"paddock/spool"
)

// runs are those on other hosts, and what they need of the rest. They are used with core.mu held.
type runs struct {
	*core
	hosts  *hosts
	claims *claims
	now    immediate
	list   map[api.SandboxID]*run
	last   uint64 // number of the last one
}

// find returns the run of a name; nil: it is over, or on this host.
func (l *runs) find(id spool.RunID) *run {
	for _, r := range l.list {
		if r.task.RunID() == id {
			return r
		}
	}
	return nil
}

// of returns the run of a task; nil: it is over.
func (l *runs) of(t *job.Task) *run { return l.list[api.SandboxID(t.Start.Remote.Sandbox)] }

// on returns the runs on a host.
func (l *runs) on(host string) (list []*run) {
	for _, r := range l.list {
		if r.host.name == host {
			list = append(list, r)
		}
	}
	return list
}

// number returns the number of the next run, which is greater than those of all before.
func (l *runs) number() uint64 {
	l.last = max(l.last+1, uint64(time.Now().UnixNano()))
	return l.last
}

// enter makes the run of a task.
func (l *runs) enter(t *job.Task, c *claim) *run {
	r := &run{core: l.core, runs: l, task: t, host: l.hosts.get(t.Start.Remote.Host), claim: c, poked: hint.New()}
	r.input.run, r.orders.run, r.notices.run, r.output.run, r.tail.run = r, r, r, r, r
	r.updates.init(r)
	r.notices.written = make(chan func(), 1)
	r.notices.Init(l.Host, t, func(f func()) { r.notices.written <- f })
	r.tail.Init(l.Host, t, &r.notices.Notices)
	r.tail.Taken = t.Started
	l.list[r.id()] = r
	if c != nil {
		if r.lease = &c.lease; l.Host.Store.State(t) != job.Over || t.End.Holds {
			c.run = r
		}
	}
	l.Host.Timeline.Enter(r.line())
	return r
}

// line is what the timeline says of a run as a whole, and since when it has its slot; zero: it has
// none any more. core.mu is held.
func (r *run) line() (of timeline.Of, taken time.Time) {
	t := r.task
	of = timeline.Of{
		Run: t.RunID(), Array: t.Job.Tasks.IsArray(), Owner: t.Job.Owner, Name: t.Job.Terms().Name, Host: r.host.name, Queue: t.Start.Queue,
		Submitted: t.Job.Submitted,
	}
	if c := r.claim; c != nil {
		of.Slots = c.Slot
		if c.run == r {
			taken = t.Started
		}
	}
	return of, taken
}

// start starts a task of a job under a claim, and reports whether there was one, or whether its
// owner may have no more running.
func (l *runs) start(c *claim, j *job.Job, w *schedule.Waiting) (started, enough bool) {
	remote := &job.Remote{Host: c.Host, Sandbox: string(api.NewSandboxID(c.ID, l.number()))}
	if match.Travels(j.Terms().Needs.Request()) {
		remote.Key = api.NewSandboxKey()
	}
	t := l.Host.Store.Take(j, job.Start{
		Queue: c.Queue, Boot: l.Host.Boot, Claim: c.Public(), Priority: w.Priority, Parts: w.Parts, Remote: remote,
	}, time.Now())
	if t == nil {
		return false, false
	}
	if !l.Depart(t, false) {
		l.Host.Store.Untake(t)
		return false, true
	}
	l.lead(l.enter(t, c))
	l.Changed(j)
	return true, false
}

// lead leads a run on from where it is.
func (l *runs) lead(r *run) {
	l.do(func(ctx context.Context) {
		err := r.live(ctx)
		if err != nil && ctx.Err() == nil {
			l.warnf("%v: %v", r, err)
		}
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.drop(r)
	})
}

// drop forgets a run that is over.
func (l *runs) drop(r *run) {
	delete(l.list, r.id())
	if e := r.tail.End; e != nil {
		l.Host.Timeline.Leave(r.task.RunID(), time.Now(), e.Failed, e.Exit)
	}
	l.now.answer(r.task.Job, false) // if it was not begun
	l.claims.leave(r)
	l.claims.endOutput(r)
}
