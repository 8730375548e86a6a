// Package queue brings jobs and slots together: it tells the scheduler what waits, what
// runs and what the host is like, asks it what starts next, and activates the slots. It is
// in front of the claims of others (claims.go), and keeps what administrators want of the
// queues (states.go). Only daemon, server, admit, stage/base and source/program import it; it
// imports job, claim, conf, schedule and slot.
//
// Locks are taken in this order: Queue.mu, which qstat needs, so that nothing that may
// wait for a disk, the name services or a process is done under it; claim.Table.mu,
// since what a slot may run and what stands in the scheduler's books change together;
// those of GIDs, Cores, errands and job.Store, one at a time. No holder of
// States.writing, which is held over a write, holds any of them.
package queue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/serial"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source"
	"paddock/internal/hint"
	"paddock/internal/proc"
)

// Holder is the name of execd's own queue as holder of claims.
const Holder = "queue"

// Options are what a Queue works with.
type Options struct {
	Store  *job.Store
	Claims *claim.Table
	GIDs   *GIDs
	Cores  *Cores
	Boot   string // id of this boot
	Config *conf.Config
	States *States
	Log    *slog.Logger
	// NeedLoad is told when jobs that ask for resources begin or cease to wait.
	NeedLoad func(bool)
	// Hold says why no task may be started now; empty: none is held. It must not
	// block.
	Hold func() string
	// Elsewhere reports whether a pattern of -q may mean a queue of another host; nil: none
	// does. It must not block.
	Elsewhere func(pattern string) bool
	// Room says why no task with a sandbox may be started now; empty: there is room. It
	// must not block. Slots.Look reads anew what it goes by.
	Room func() string
	// Passed is told when nothing more can be started here; what waits then may start
	// elsewhere. It must not block.
	Passed func()
	// Start takes over a task whose slots are active. It must not block.
	Start func(*job.Task, []*claim.Slot)
	// Suspend tells why a task is to be stopped (S by its queue, T by a
	// threshold), or with no letters that it may go on. It may block.
	Suspend func(t *job.Task, letters string)
	Slots   Slots
	Sources source.Sources
}

// Queue learns by hints of jobs, ends and changes, and reads the truth from the
// Store. The scheduler's ledger is built anew at each start of execd.
type Queue struct {
	o Options

	wake   hint.Chan
	rounds chan chan struct{}

	mu         sync.Mutex
	sched      *schedule.Scheduler           // guarded by mu
	config     *conf.Config                  // guarded by mu
	load       map[string]conf.Value         // guarded by mu; the values last told
	changed    map[int]*job.Job              // guarded by mu; jobs to look at again
	later      map[int]*time.Timer           // guarded by mu; jobs that wait for a time
	requesting map[int]bool                  // guarded by mu; jobs that wait and request resources
	shares     hint.Chan                     // shares have changed
	boxed      map[int]bool                  // guarded by mu; jobs that wait and have a sandbox: true, if there is no room for it
	room       *time.Timer                   // guarded by mu; when to look for room again
	unfit      map[int]string                // guarded by mu; jobs that the configuration, or the disk, has no place for any more, and why
	toStop     map[schedule.TaskID]string    // guarded by mu; tasks that the scheduler wants stopped, and why
	stopped    map[schedule.TaskID]string    // guarded by mu; tasks told to Stop, and why
	pulse      *time.Timer                   // guarded by mu; when to look at suspensions again
	closed     string                        // guarded by mu; why nothing is started, or empty
	until      time.Time                     // guarded by mu; when closed ends
	running    map[schedule.TaskID]*job.Task // guarded by mu; on this host
	away       map[schedule.TaskID]*job.Task // guarded by mu; running on others
	managed    managed
	revision   int          // guarded by mu; counts changes of the configuration
	errands    serial.Queue // what may block, and was wanted with mu held
}

// New returns a queue.
func New(o Options) *Queue {
	q := &Queue{
		o: o, wake: hint.New(), rounds: make(chan chan struct{}), sched: schedule.New(o.Config), config: o.Config,
		changed: map[int]*job.Job{}, later: map[int]*time.Timer{}, unfit: map[int]string{}, requesting: map[int]bool{}, boxed: map[int]bool{}, shares: hint.New(),
		toStop: map[schedule.TaskID]string{}, stopped: map[schedule.TaskID]string{}, running: map[schedule.TaskID]*job.Task{}, away: map[schedule.TaskID]*job.Task{},
		managed: managed{stopped: map[schedule.TaskID]bool{}, holds: map[schedule.TaskID]*claim.Effect{}},
	}
	if q.o.Room == nil {
		q.o.Room = func() string { return "" }
	}
	if q.o.Passed == nil {
		q.o.Passed = func() {}
	}
	o.Store.OnDelete(func(j *job.Job) (undo func()) { return o.Sources.Of(j.Source).Deleting(j) })
	q.lookAgain()
	q.applyStates()
	return q
}

// lookAgain has all jobs looked at that have something to start.
func (q *Queue) lookAgain() {
	jobs := q.o.Store.Pending()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range jobs {
		q.changed[j.Number] = j
	}
}

// FindQueues has jobs looked at again that ask for a queue which no host had.
func (q *Queue) FindQueues() {
	q.mu.Lock()
	lookAt(q, q.unfit)
	q.mu.Unlock()
	q.Wake()
}

// ClockSet notes that the clock was set: jobs that wait for a time have waited for a
// duration.
func (q *Queue) ClockSet() {
	q.mu.Lock()
	lookAt(q, q.later)
	q.mu.Unlock()
	q.Wake()
}

// lookAt has the jobs looked at again whose numbers are the keys of a map. q.mu is held.
func lookAt[T any](q *Queue, jobs map[int]T) {
	for number := range jobs {
		if j := q.o.Store.Get(number); j != nil {
			q.changed[number] = j
		}
	}
}

// Add notes that the tasks that a job may start have changed.
func (q *Queue) Add(j *job.Job) {
	q.mu.Lock()
	q.changed[j.Number] = j
	q.mu.Unlock()
	q.Wake()
}

// Wake notes that a job may be started.
func (q *Queue) Wake() { q.wake.Give() }

// Pause starts no jobs for a while, since a start has failed for a reason that lies with
// the host, such as a full disk, and keeps the reason for those who ask.
func (q *Queue) Pause(reason string, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.until = reason, time.Now().Add(d)
	time.AfterFunc(d, q.open)
}

// open notes that what kept all jobs from being started may be over.
func (q *Queue) open() {
	q.o.Claims.Touch()
	q.Wake()
}

// Settle returns when a task that was just being taken is taken, so that what
// Hold says holds for all that come, and looks at all of them again.
func (q *Queue) Settle() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open()
	q.o.Claims.Stir()
}

// Configure takes over a new configuration.
func (q *Queue) Configure(c *conf.Config) {
	q.mu.Lock()
	q.config = c
	q.sched.Configure(c)
	q.o.Claims.Resize(c.Queues)
	q.settle()
	q.mu.Unlock()
	q.applyStates()
	q.lookAgain() // what requests mean may be another thing now
	q.Wake()
}

// SetLoad takes over new load values.
func (q *Queue) SetLoad(values map[string]conf.Value) {
	q.mu.Lock()
	q.load = values
	q.sched.SetLoad(values)
	q.mu.Unlock()
	q.Wake()
}

// applyStates tells the scheduler which queues take nothing.
func (q *Queue) applyStates() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.config.Queues {
		name := q.config.Queues[i].Name
		q.sched.SetClosed(name, q.o.States.Closed(name))
	}
	q.o.Claims.Stir()
}

// Fault notes a job that failed for a reason that may lie with its queue, and reports
// whether the queue is in error now. Sure says that nothing of the job's owner can be the
// reason.
func (q *Queue) Fault(queue string, j *job.Job, reason string, sure bool) bool {
	faulty, err := q.o.States.fault(queue, j, reason, sure)
	if err != nil {
		q.o.Log.Error(err.Error()) // in force until execd ends
	}
	if faulty {
		q.applyStates()
	}
	return faulty
}

// Modify does what qmod asks on the queues that the patterns mean.
func (q *Queue) Modify(req *api.ModifyRequest, caller job.Caller, host string) (api.ModifyReply, error) {
	var reply api.ModifyReply
	say := func(failed bool, format string, args ...any) {
		reply.Lines = append(reply.Lines, api.Line{Text: fmt.Sprintf(format, args...), Failed: failed})
	}
	q.mu.Lock()
	config := q.config
	q.mu.Unlock()
	queues := config.Queues
	for _, pattern := range req.Queues {
		found := false
		for i := range queues {
			c := &queues[i]
			if !schedule.MatchesQueue(config, pattern, c.Name) {
				continue
			}
			found = true
			instance := c.Name + "@" + host
			if !caller.Manager && !caller.Operator && !slices.Contains(c.Owners, caller.Name) {
				say(true, "%s - you have no permission to modify queue %q", caller.Name, instance)
				continue
			}
			changed, err := q.o.States.change(req.Action, c.Name, caller.Name)
			word := changes[req.Action].word
			switch {
			case err != nil:
				return reply, err
			case changed:
				say(false, "%s@%s changed state of %q (%s)", caller.Name, host, instance, word)
			default:
				say(false, "Queue instance %q is already in the specified state: %s", instance, word)
			}
		}
		if !found {
			say(true, "invalid queue %q", pattern)
		}
	}
	q.applyStates()
	q.Wake()
	return reply, nil
}

// Tasks returns the tasks that run in the queues that a pattern means, and
// whether it means any.
func (q *Queue) Tasks(pattern string) (tasks []string, found bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.config.Queues {
		found = found || schedule.MatchesQueue(q.config, pattern, q.config.Queues[i].Name)
	}
	for _, t := range q.running {
		if schedule.MatchesQueue(q.config, pattern, t.Start.Queue) {
			tasks = append(tasks, t.String())
		}
	}
	slices.Sort(tasks)
	return tasks, found
}

// Running returns how many tasks run in the queue of a name.
func (q *Queue) Running(name string) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.running {
		if t.Start.Queue == name {
			n++
		}
	}
	return n
}

// Status returns the queues as qstat -f shows them, with the values of their
// attributes.
func (q *Queue) Status() []api.QueueStatus {
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []api.QueueStatus
	for _, s := range q.sched.Queues(time.Now()) {
		c := q.config.Queue(s.Name)
		if c == nil { // gone, and a task still runs there
			list = append(list, api.QueueStatus{Name: s.Name, Used: s.Used, Load: q.loadAvg(), States: s.Letters, Reasons: s.Reasons})
			continue
		}
		letters, reasons := q.o.States.Letters(s.Name, q.config.Hostname)
		list = append(list, api.QueueStatus{
			Name: s.Name, Type: types(c), Reserved: s.Reserved, Used: s.Used, Total: s.Total, Load: q.loadAvg(),
			States: s.Letters + letters, Reasons: append(slices.Clone(s.Reasons), reasons...), Values: q.sched.Values(s.Name),
		})
	}
	return list
}

// Brief returns the types and the states of the queues, and how often the configuration has
// changed.
func (q *Queue) Brief() (list []api.SlotQueue, revision int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.sched.Queues(time.Now()) {
		if c := q.config.Queue(s.Name); c != nil {
			letters, _ := q.o.States.Letters(s.Name, q.config.Hostname)
			list = append(list, api.SlotQueue{Name: s.Name, Type: types(c), States: s.Letters + letters})
		}
	}
	return list, q.revision
}

// loadAvg is the load that qstat -f shows; negative: not known. q.mu is held.
func (q *Queue) loadAvg() float64 {
	if v, ok := q.load["load_avg"]; ok {
		return v.Number
	}
	return -1
}

// HostValues returns the values of this host's attributes.
func (q *Queue) HostValues() []api.HostValue {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sched.Values("")
}

// GlobalValues returns the values of the host "global", which stands for all.
func (q *Queue) GlobalValues() []api.HostValue {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sched.GlobalValues()
}

// types are the letters of what a queue is for.
func types(q *conf.Queue) string {
	s := ""
	if q.Batch {
		s += "B"
	}
	if q.Interactive {
		s += "I"
	}
	if len(q.PEs) > 0 {
		s += "P"
	}
	if len(q.Checkpoints) > 0 {
		s += "C"
	}
	return s
}

// Run starts tasks until ctx is done.
func (q *Queue) Run(ctx context.Context) {
	for {
		var round chan struct{}
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		case round = <-q.rounds:
		}
		q.policies()
		q.refresh()
		q.measure()
		for more := true; more && ctx.Err() == nil; {
			more = q.startOne()
		}
		q.o.Passed()
		q.suspend()
		q.repoll()
		if round != nil {
			close(round)
		}
	}
}

// Round returns when Run has gone through all that it does once more, or false when ctx
// is done.
func (q *Queue) Round(ctx context.Context) bool {
	round := make(chan struct{})
	select {
	case <-ctx.Done():
		return false
	case q.rounds <- round:
	}
	select {
	case <-ctx.Done():
		return false
	case <-round:
		return true
	}
}

// NeedsLoad reports whether a job waits that asks for resources.
func (q *Queue) NeedsLoad() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.requesting) > 0
}

// SharesChanged returns a channel that has something when the shares of users
// have changed since it was last emptied.
func (q *Queue) SharesChanged() <-chan struct{} { return q.shares }

// refresh tells the scheduler what may start of the jobs that have changed, and
// NeedLoad whether it needs to know the load.
func (q *Queue) refresh() {
	q.mu.Lock()
	before := len(q.requesting) > 0
	changed, now := q.changed, time.Now()
	// Another one: to go through a map costs what its largest size did.
	q.changed = map[int]*job.Job{}
	// In the order of their turn each comes behind the others that wait: a hundred thousand that
	// are equal would be moved for each that came between them.
	for i, number := range slices.Sorted(maps.Keys(changed)) {
		if i > 0 && i%maxLooks == 0 {
			q.mu.Unlock()
			q.mu.Lock()
		}
		q.look(changed[number], now)
	}
	after := len(q.requesting) > 0
	q.mu.Unlock()
	if before != after {
		q.o.NeedLoad(after)
	}
}

// maxLooks is how many jobs are looked at before others may have the lock: at
// the start of execd there may be a hundred thousand.
const maxLooks = 1000

// look tells the scheduler what may start of a job. q.mu is held.
func (q *Queue) look(j *job.Job, now time.Time) {
	number := j.Number
	if !q.o.Sources.Of(j.Source).Queued() {
		q.stray(j)
		return
	}
	if t := q.later[number]; t != nil {
		t.Stop()
		delete(q.later, number)
	}
	n, first, at := q.o.Store.Ready(j, now)
	if most := q.config.Global.MaxTasksAtOnce; most > 0 && j.Tasks.IsArray() {
		n = min(n, max(most-q.o.Store.Running(j), 0))
	}
	switch {
	case !at.IsZero():
		q.later[number] = time.AfterFunc(at.Sub(now), func() { q.Add(j) })
		fallthrough
	case n == 0:
		q.sched.Remove(number)
		delete(q.unfit, number)
		delete(q.requesting, number)
		delete(q.boxed, number)
	default:
		q.add(j, n, first)
	}
}

// add gives a job to the scheduler. What it asked for was checked when it was
// submitted; when the configuration has changed since, it waits for what may
// come back. q.mu is held.
func (q *Queue) add(j *job.Job, n, first int) {
	delete(q.unfit, j.Number)
	s, err := q.resolve(j)
	if err != nil {
		q.unfit[j.Number] = err.Error()
		q.sched.Remove(j.Number)
		return
	}
	delete(q.requesting, j.Number)
	delete(q.boxed, j.Number)
	if j.Terms().Needs.Request().Sandbox == api.SandboxYes {
		q.boxed[j.Number] = false
		if q.lacksRoom(j) {
			return
		}
	}
	if len(s.Hard)+len(s.Soft) > 0 {
		q.requesting[j.Number] = true
	}
	s.Tasks, s.First = n, first
	q.sched.Add(s)
}

// resolve returns what the scheduler must know of a job, but for its tasks. The error
// says what it asks for that there is not. q.mu is held.
func (q *Queue) resolve(j *job.Job) (schedule.Job, error) {
	terms := j.Terms()
	s, err := schedule.Resolve(q.config, terms.Needs.Request(), j.Owner, j.Groups, q.o.Elsewhere)
	s.Number, s.Submitted, s.Priority = j.Number, q.o.Store.Turn(j), terms.Priority
	return s, err
}

// StartNow reports whether a job of -now y has started at once, its turn among
// others included. One that has not is not started any more: it is to be deleted.
func (q *Queue) StartNow(j *job.Job) bool {
	q.refresh()
	for q.startOne() {
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.o.Store.Running(j) > 0 || q.o.Store.Get(j.Number) != j {
		return true
	}
	q.sched.Remove(j.Number)
	return false
}

// startOne starts the task whose turn it is, and reports whether it is worth
// to try again at once.
func (q *Queue) startOne() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.blocked(now) != "" {
		return false
	}
	gid, ok := q.o.GIDs.Take()
	if !ok {
		q.closed, q.until = "no additional group id of gid_range is free", now.Add(time.Second)
		time.AfterFunc(time.Second, q.open)
		return false
	}
	number, grant, ok := q.sched.Next(now)
	if !ok {
		q.o.GIDs.Give(gid)
		return false
	}
	j := q.o.Store.Get(number)
	if _, boxed := q.boxed[number]; boxed && j != nil && q.o.Room() != "" {
		q.sched.GiveBack(number, grant)
		q.o.GIDs.Give(gid)
		q.lacksRoom(j)
		return true
	}
	var t *job.Task
	if j != nil {
		start := job.Start{Queue: grant.Queues[0].Queue, AddGID: gid, Grant: grant}
		start.Parts = q.sched.Granted(grant, now)
		start.Priority = q.sched.Priority(start.Parts)
		t = q.take(j, start, now)
	}
	if t == nil { // deleted, held or altered meanwhile
		q.sched.GiveBack(number, grant)
		q.o.GIDs.Give(gid)
		q.sched.Remove(number) // or it would be the next again
		if j != nil {
			q.changed[number] = j
			q.Wake()
		}
		return true
	}
	// The slots see it as they did when the scheduler asked them: as a job that
	// waits. Else START could say yes then and no now, again and again.
	seen := q.ref(j, nil, nil)
	slots := q.o.Claims.Activate(t.String(), grant.Queues, seen)
	if slots == nil { // too few are willing by now
		q.sched.GiveBack(number, grant)
		q.o.GIDs.Give(gid)
		q.o.Cores.Give(t.Start.Binding)
		// The Store tells us of it, which takes the lock; and not at once, since it
		// might be the same again then.
		time.AfterFunc(time.Second, func() { q.o.Store.Untake(t) })
		return false
	}
	if r, ok := seen.(*ref); ok {
		r.task = t
	}
	if _, boxed := q.boxed[number]; boxed {
		if n, _, _ := q.o.Store.Ready(j, now); n == 0 {
			delete(q.boxed, number)
		}
	}
	q.start(t, slots)
	q.settle()
	return true
}

// take takes a task of a job, and for it the cores that the job asks for; nil: there is
// none any more.
func (q *Queue) take(j *job.Job, start job.Start, now time.Time) *job.Task {
	start.Boot = q.o.Boot
	if b := j.Terms().Needs.Request().Binding; b != "" {
		start.Binding = q.o.Cores.Take(b, start.Grant.Slots())
	}
	t := q.o.Store.Take(j, start, now)
	if t == nil {
		q.o.Cores.Give(start.Binding)
	}
	return t
}

// start starts a task that was taken, when its slots are active. Slots that were carved
// for it are carved again after a restart of execd.
func (q *Queue) start(t *job.Task, slots []*claim.Slot) {
	if list := claim.Carved(slots); list != nil {
		q.o.Store.Carve(t, list)
	}
	q.enter(t, t.Start.Grant, t.Started)
	q.o.Start(t, slots)
}

// enter tells the ledger of a task that runs.
func (q *Queue) enter(t *job.Task, grant *schedule.Grant, started time.Time) {
	if last := q.running[key(t)]; last != nil && last != t {
		q.leave(last) // it came to nothing, and has not given back its slots yet
	}
	q.running[key(t)] = t
	r := q.runningOf(t, grant, started)
	r.Duration = q.duration(t, grant)
	q.sched.Started(r)
}

// runningOf returns what the scheduler must know of a task that runs.
func (q *Queue) runningOf(t *job.Task, grant *schedule.Grant, started time.Time) schedule.Running {
	r := schedule.Running{Job: t.Job.Number, Task: t.Number, User: t.Job.Owner, Started: started, Grant: grant}
	if parts := t.Start.Parts; parts != (schedule.Parts{}) {
		r.Standing = &schedule.Standing{Priority: t.Job.Terms().Priority, Submitted: q.o.Store.Turn(t.Job), Resources: parts.Resources}
	}
	return r
}

// leave forgets a task that runs no more, but for what the scheduler has in its books.
func (q *Queue) leave(t *job.Task) {
	delete(q.running, key(t))
	q.o.Cores.Give(t.Start.Binding)
	delete(q.toStop, key(t))
	delete(q.stopped, key(t))
	delete(q.managed.stopped, key(t))
	delete(q.managed.holds, key(t))
}

// duration is how long a task runs at most; 0: nobody knows.
func (q *Queue) duration(t *job.Task, grant *schedule.Grant) time.Duration {
	conf := q.config.Queue(grant.Queues[0].Queue)
	if conf == nil {
		return 0
	}
	_, kill := WallClock(q.config, conf, t.Needs.Request().Hard)
	return kill
}

func key(t *job.Task) schedule.TaskID { return schedule.TaskID{Job: t.Job.Number, Task: t.Number} }

// Adopt enters a task that an earlier execd has started at a time, and returns its slots.
func (q *Queue) Adopt(t *job.Task, started time.Time) []*claim.Slot {
	grant := t.Start.Grant
	if grant == nil {
		grant = &schedule.Grant{Queues: []schedule.QueueSlots{{Queue: t.Start.Queue, Slots: 1}}}
	}
	q.o.Cores.Use(t.Start.Binding)
	work := q.workOf(t.Job)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enter(t, grant, started)
	slots := q.o.Claims.Adopt(t.String(), grant.Queues, t.Start.Claim, started, q.ref(t.Job, t, work), t.Start.Carved, ending(q.o.Store.Want(t)))
	q.settle()
	return slots
}

// ending is how the end of a task was being forced whose slot it had to leave; nil: it
// had not.
func ending(w *job.Want) *slot.Ending {
	if w == nil || !w.Slot {
		return nil
	}
	e := &slot.Ending{Reason: cmp.Or(slot.Reason(w.Vacate), slot.ReasonVacateCommand), Until: w.Until}
	if w.UntilUp > 0 {
		e.Until = time.Now().Add(w.UntilUp - proc.Uptime())
	}
	if w.Error != "" {
		e.Hold = &slot.Hold{Code: w.Code, Subcode: w.Subcode, Text: w.Error}
	}
	return e
}

// Occupy notes a slot of a queue in which something runs that is not a job of ours.
func (q *Queue) Occupy(name, queue string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.o.Claims.Adopt(name, []schedule.QueueSlots{{Queue: queue, Slots: 1}}, "", time.Now(), slot.JobOf(nil), nil, nil)
	q.settle()
}

// Ending notes that the processes of a task are gone, and only its end is still to be
// reported.
func (q *Queue) Ending(slots []*claim.Slot) { q.o.Claims.Ending(slots) }

// Ended notes that a task no longer has its grant, and what it has used.
func (q *Queue) Ended(t *job.Task, slots []*claim.Slot, used schedule.Used) {
	q.mu.Lock()
	q.o.Claims.Deactivate(slots)
	if q.running[key(t)] == t {
		q.leave(t)
		q.sched.Ended(t.Job.Number, t.Number, used, time.Now())
	}
	q.settle()
	q.mu.Unlock()
	q.sharesChange()
}

// sharesChange notes that shares have changed, and that somebody may start what waits.
func (q *Queue) sharesChange() {
	q.shares.Give()
	q.Wake()
}

// suspend stops and lets go on what the states of queues, thresholds and other
// queues ask for. Run alone calls it, so that tasks are told in the order in which
// that was found.
func (q *Queue) suspend() {
	for t, letters := range q.suspensions() {
		q.o.Suspend(t, letters)
	}
}

// suspensions returns the tasks that are to be told another thing than the last time.
func (q *Queue) suspensions() map[*job.Task]string {
	tell := map[*job.Task]string{}
	q.mu.Lock()
	defer q.mu.Unlock()
	stop, resume, next := q.sched.Suspensions(time.Now())
	for _, s := range stop {
		q.toStop[s.TaskID] = s.Letter
	}
	for _, id := range resume {
		delete(q.toStop, id)
	}
	if len(q.toStop) > 0 || len(q.stopped) > 0 || len(q.managed.stopped) > 0 || q.o.States.anySuspended() {
		for k, t := range q.running {
			want := q.toStop[k]
			if q.managed.stopped[k] || q.o.States.suspended(t.Start.Queue) {
				want = "S"
			}
			if want != q.stopped[k] {
				tell[t] = want
				q.stopped[k] = want
			}
			if want == "" {
				delete(q.stopped, k)
			}
		}
	}
	if q.pulse != nil {
		q.pulse.Stop()
		q.pulse = nil
	}
	if !next.IsZero() {
		q.pulse = time.AfterFunc(time.Until(next), q.Wake)
	}
	return tell
}

// Foremost returns the first jobs of those that wait for a slot, at most so many, in the
// order in which it would be their turn.
func (q *Queue) Foremost(most int) []schedule.Waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sched.Foremost(time.Now(), most)
}

// Paused says why nothing at all is started for a while, for a reason that lies with the
// host; empty: it is.
func (q *Queue) Paused() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Now().Before(q.until) {
		return q.closed
	}
	return ""
}

// blocked says why nothing at all is started. q.mu is held.
func (q *Queue) blocked(now time.Time) string {
	if q.closed != "" && !now.Before(q.until) {
		q.closed = ""
	}
	return cmp.Or(q.o.Hold(), q.closed)
}

// Reasons says why a job that has something to start is not starting.
func (q *Queue) Reasons(j *job.Job) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if why := q.blocked(now); why != "" {
		return []string{why}
	}
	if after := j.Terms().After; after.After(now) {
		return []string{fmt.Sprintf("it is not to start before %s", after.Format(time.DateTime))}
	}
	if most := q.config.Global.MaxTasksAtOnce; most > 0 && j.Tasks.IsArray() {
		if n := q.o.Store.Running(j); n >= most {
			return []string{fmt.Sprintf("%d tasks of the job run, and max_aj_instances %d allows no more", n, most)}
		}
	}
	q.look(j, now) // it may have come just now
	if why := q.unfit[j.Number]; why != "" {
		return []string{why}
	}
	return q.sched.Reasons(j.Number, now)
}

// Verdicts returns a function that says in a few words why jobs with something
// to start are not starting, as of now.
func (q *Queue) Verdicts() func(number int) string {
	q.refresh() // some may have come just now
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	verdict := q.sched.Verdicts(now)
	return func(number int) string {
		q.mu.Lock()
		defer q.mu.Unlock()
		return cmp.Or(q.blocked(now), q.unfit[number], verdict(number), "Jobs dropped because as many of their tasks run as may")
	}
}

// Ranks returns a function that gives a line of qstat its priority as of now, and
// returns what that is made of: of what waits; of what runs, as it stands beside
// the others now; and of what is in error, which keeps its place. For work of
// others, which has none, ok is false.
func (q *Queue) Ranks() func(line *api.JobStatus) (p schedule.Parts, ok bool) {
	now := time.Now()
	return func(line *api.JobStatus) (p schedule.Parts, ok bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		switch {
		case line.Queue != "":
			if p, ok = q.sched.RunningParts(schedule.TaskID{Job: line.Job, Task: line.Task()}, now); !ok {
				return p, false
			}
		case strings.HasPrefix(line.State, "E"):
			p = q.partsOfErrored(line.Job, now)
		default:
			p = q.sched.Parts(line.Job, now)
		}
		line.Priority = q.sched.Priority(p)
		return p, true
	}
}

// partsOfErrored returns what the priority of a job in error would be made of if
// it waited. q.mu is held.
func (q *Queue) partsOfErrored(number int, now time.Time) schedule.Parts {
	j := q.o.Store.Get(number)
	if j == nil || !q.o.Sources.Of(j.Source).Queued() {
		return schedule.Parts{}
	}
	s, err := q.resolve(j)
	if err != nil {
		return schedule.Parts{} // it waits for what is not there any more
	}
	return q.sched.PartsIf(&s, now)
}

// Contributions returns what each hard request contributes to the urgency of a
// job.
func (q *Queue) Contributions(r *api.SubmitRequest) []float64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sched.Contributions(r)
}

// Select returns the queues that offer what is asked for, as qselect chooses
// them; and whether the host has what it is asked to have now.
func (q *Queue) Select(req *api.HostRequest, users []schedule.Account) (names []string, here bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if names, err = q.sched.Select(req.Resources, req.PEs, users); err != nil {
		return nil, false, err
	}
	here, err = q.sched.HostHas(req.Now)
	return names, here, err
}

// Suits reports whether a job that asks for this might run in one of the
// queues.
func (q *Queue) Suits(r *api.SubmitRequest, queues []string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sched.Suits(r, queues)
}

// Check looks at a request that is not submitted yet: it is refused when it asks
// for what there is not or what the user may not have, and impossible when it
// could not run here even if nothing else did; with -w p, when it could not now.
func (q *Queue) Check(r *api.SubmitRequest, user string, groups []string) (refused, impossible error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j, err := schedule.Resolve(q.config, r, user, groups, q.o.Elsewhere)
	if err != nil {
		return err, nil
	}
	var now time.Time
	if r.Verify == "p" {
		now = time.Now()
	}
	return nil, q.sched.Possible(&j, now)
}

// Shares returns what users have used of late, to be kept over a restart.
func (q *Queue) Shares() map[string]schedule.Share {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sched.Shares()
}

// SetShares takes over what Shares returned.
func (q *Queue) SetShares(s map[string]schedule.Share) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sched.SetShares(s)
}

// ClearShares forgets what users have used of late, or all when none is named,
// and returns their names. With dry it only returns them.
func (q *Queue) ClearShares(users []string, dry bool) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(q.sched.Shares())), func(name string) bool {
		return len(users) > 0 && !slices.Contains(users, name)
	})
	if dry || len(names) == 0 {
		return names
	}
	none := map[string]schedule.Share{}
	for _, name := range names {
		none[name] = schedule.Share{}
	}
	q.sched.SetShares(none)
	q.shares.Give()
	return names
}
