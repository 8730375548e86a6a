// Package subtask has what is started in a run beside its job: by `qrsh -inherit` and by
// `qrsh -into`. A task is no run of its own, and has no record: its directory below the
// run's is all there is of it. It is accounted before its job is.
//
// Locks: the work of a task is taken before Tasks.mu, which may be held while a disk is
// waited for. Packages stage, finish and server use it.
package subtask

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/outcome"
	"paddock/execd/internal/usage"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// Tasks are those of one run.
type Tasks struct {
	host *base.Host
	of   *job.Task
	over func(name string) // is told of each that is over

	mu     sync.Mutex
	closed bool             // guarded by mu; the job has ended, nothing more is started
	list   map[string]*task // guarded by mu; by name
	ended  []api.TaskEnd    // guarded by mu; of the last, for clients that wait
	names  []string         // guarded by mu; of those in ended
	book   book             // guarded by mu

	shown atomic.Pointer[shown] // nil: nothing was ever started
}

// Init makes them those of a run. Over is told of each that is over, by its name.
func (ts *Tasks) Init(h *base.Host, of *job.Task, over func(name string)) {
	ts.host, ts.of, ts.over = h, of, over
}

// shown is what qstat, which does not wait, sees of tasks.
type shown struct {
	list []api.Subtask // the oldest first
	past api.Usage     // of those that have ended
}

// show lets others see the tasks as they are now. mu is held.
func (ts *Tasks) show() {
	b := &ts.book
	if b.Next == 0 && b.Into == 0 && len(ts.list) == 0 {
		return
	}
	list := make([]api.Subtask, 0, len(ts.list))
	for name, s := range ts.list {
		list = append(list, api.Subtask{ID: name, Queue: s.queue, Started: s.began})
	}
	slices.SortFunc(list, func(a, b api.Subtask) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID)) })
	ts.shown.Store(&shown{list, api.Usage{CPU: b.Used.CPU, Mem: b.Used.Mem, IO: b.Used.IO}})
}

// task is one of them.
type task struct {
	run   spool.RunID
	queue string
	gid   int
	began time.Time
	over  chan struct{} // closed when it is collected and accounted

	killed bool   // guarded by Tasks.mu; at the end of the job
	reason string // guarded by Tasks.mu; a limit that it has exceeded

	work     sync.Mutex // held by the goroutine that ends it
	attempts int        // guarded by work
	sampled  *api.Usage // guarded by work; nil: it is still watched
	done     bool       // guarded by work
}

const (
	// maxEnding bounds the tasks of a job that have ended and whose clients do
	// not take notice, maxInto those that people have started.
	maxEnding = 64
	maxInto   = 16
	// maxEndedTasks is how many ends are remembered for clients that ask late.
	maxEndedTasks = 32
	// clientPatience is how long the clients of tasks have to hear of the end
	// when the job is over.
	clientPatience = 10 * time.Second
)

// Refused is the error of a task that is not started. Its text is for the log.
type Refused struct{ Text string }

func (r *Refused) Error() string { return r.Text }

// Order is what is to be started.
type Order struct {
	Request *api.TaskRequest
	By      *user.User // who asks
}

// Start starts a task in a run that has a shepherd, and returns its name.
func (ts *Tasks) Start(o *Order) (name string, err error) {
	h, t := ts.host, ts.of
	order, err := ts.order(o)
	if err != nil {
		return "", err
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.closed || h.Store.Want(t) != nil {
		return "", &Refused{fmt.Sprintf("job %v is at its end", t)}
	}
	queue, err := ts.place(order, o)
	if err != nil {
		return "", err
	}
	order.Queue = queue
	gid, ok := h.GIDs.Take()
	if !ok {
		return "", &Refused{"no additional group id is free"}
	}
	order.Sub.GID = gid
	s := ts.add(order.Sub.Name, queue.Name, gid)
	s.began = time.Now()
	pid, err := h.Launcher.StartTask(order)
	if err != nil {
		h.GIDs.Give(gid)
		delete(ts.list, order.Sub.Name)
		return "", fmt.Errorf("cannot start task %s of job %v: %w", order.Sub.Name, t, err)
	}
	order.Measured.Started = s.began
	h.Usage.Add(s.run, order.Measured)
	ts.logStart(o, s, pid)
	ts.show()
	// It was not told what was asked of the job meanwhile.
	ts.catchUp(s)
	return order.Sub.Name, nil
}

// logStart tells the log of a task. Who enters somebody else's job is an event
// that an administrator looks for.
func (ts *Tasks) logStart(o *Order, s *task, pid int) {
	switch {
	case !o.Request.Into:
		ts.host.Log.Info(fmt.Sprintf("job %v: started: pid=%d queue=%s", s.run.ID(), pid, s.queue))
	case o.By.UID != ts.of.Job.UID:
		ts.host.Log.Warn(fmt.Sprintf("job %v: entered by %s: task=%s owner=%s", ts.of, o.By.Name, s.run.PETask, ts.of.Job.Owner))
	default:
		ts.host.Log.Info(fmt.Sprintf("job %v: entered by %s: task=%s", ts.of, o.By.Name, s.run.PETask))
	}
}

// add enters a task. mu is held.
func (ts *Tasks) add(name, queue string, gid int) *task {
	s := &task{run: ts.of.RunID(), queue: queue, gid: gid, over: make(chan struct{})}
	s.run.PETask = name
	if ts.list == nil {
		ts.list = map[string]*task{}
	}
	ts.list[name] = s
	return s
}

// order gathers what the directory of a task is made from.
func (ts *Tasks) order(o *Order) (*launch.Order, error) {
	q := o.Request
	of, err := ts.host.Store.Request(ts.of.Job)
	if err != nil {
		return nil, err
	}
	// It may have been altered: its limits are those it was started with.
	asked := *of
	asked.Hard, asked.Checkpoint = ts.of.Needs.Request().Hard, ""
	order, err := ts.host.Order(ts.of, &asked)
	if err != nil {
		return nil, err
	}
	interactive := q.Interactive
	order.Request = &api.SubmitRequest{
		Name: "petask", Account: of.Account, Binary: true, Command: q.Command, Args: q.Args, NoShell: q.NoShell,
		Cwd: cmp.Or(q.Cwd, of.Cwd), Tasks: of.Tasks, Notify: of.Notify && !q.Into, Binding: of.Binding,
		Env: q.Env, Origin: q.Origin, Interactive: &interactive, Work: of.Work,
	}
	if q.Into {
		order.Request.Name = of.Name
	}
	order.Script = ""
	order.SRT, order.HRT = 0, 0 // the job's end is its own
	order.Sub = &launch.Subtask{Slots: 1}
	if q.Into {
		order.Sub.Slots = order.Grant.Slots()
	}
	return order, nil
}

// place finds a slot for a task, and its name. mu is held.
func (ts *Tasks) place(order *launch.Order, o *Order) (*conf.Queue, error) {
	b := &ts.book
	if o.Request.Into {
		n := 0
		for name := range ts.list {
			if spool.IsInto(name) {
				n++
			}
		}
		if n >= maxInto {
			return nil, &Refused{fmt.Sprintf("job %v has %d visitors, which are enough", ts.of, n)}
		}
		b.Into++
		order.Sub.Name = spool.IntoTask(b.Into)
		return order.Queue, ts.writeBook()
	}
	// The number is used up, whether there is a slot or not, as in Grid Engine.
	b.Next++
	short, _, _ := strings.Cut(ts.host.Name, ".")
	order.Sub.Name = strconv.Itoa(b.Next) + "." + short
	if err := ts.writeBook(); err != nil {
		return nil, err
	}
	name, ok := ts.slot(order)
	if !ok {
		return nil, &Refused{fmt.Sprintf("no free queue for job %d of user %s@%s (%s = %s)", ts.of.Job.Number, ts.of.Job.Owner, ts.host.Name, o.Request.Host, ts.host.Name)}
	}
	q := ts.host.Config().Queue(name)
	if q == nil {
		return nil, &Refused{fmt.Sprintf("queue %q does not exist any more", name)}
	}
	return q, nil
}

// slot returns the first queue of the grant with a free slot for a task of a
// parallel job. One whose task is about to exit is free: who starts the next
// task knows the end of the last. The job itself has a slot of its queue, unless
// its PE says that it is not one of the tasks.
func (ts *Tasks) slot(order *launch.Order) (queue string, ok bool) {
	used, ending := map[string]int{}, 0
	for name, s := range ts.list {
		switch {
		case spool.IsInto(name):
		case ts.host.Launcher.HasAnnounced(s.run):
			ending++
		default:
			used[s.queue]++
		}
	}
	if ending >= maxEnding {
		return "", false
	}
	if order.PE.JobIsFirstTask {
		used[ts.of.Start.Queue]++
	}
	for _, q := range order.Grant.Queues {
		if used[q.Queue] < q.Slots {
			return q.Queue, true
		}
		used[q.Queue] -= q.Slots // of a queue that is granted twice
	}
	return "", false
}

// Signal asks the shepherds of all tasks for a signal.
func (ts *Tasks) Signal(sig syscall.Signal) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, s := range ts.list {
		ts.host.Signal(s.run, sig)
	}
}

// catchUp tells the shepherd of a task what is wanted of the job. mu is held.
func (ts *Tasks) catchUp(s *task) {
	switch {
	case ts.closed || ts.host.Store.Want(ts.of) != nil:
		ts.host.Signal(s.run, syscall.SIGKILL)
	case ts.host.Store.WantStopped(ts.of):
		ts.host.Signal(s.run, syscall.SIGSTOP)
	}
}

// Exceeded is told of a task that has exceeded a limit.
func (ts *Tasks) Exceeded(name string, e usage.Excess) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	s := ts.list[name]
	if s == nil {
		return
	}
	ts.host.Log.Info(e.Line(s.run.ID(), s.queue))
	if !e.Hard {
		ts.host.Signal(s.run, syscall.SIGXCPU)
		return
	}
	s.reason = e.Reason()
	ts.host.Signal(s.run, syscall.SIGKILL)
}

// Close ends them at the end of their job, which is accounted last, and reports whether
// there is none. Grid Engine kills such tasks, too.
func (ts *Tasks) Close() bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	first := !ts.closed
	ts.closed = true
	if len(ts.list) == 0 {
		return true
	}
	for _, s := range ts.list {
		if !s.killed {
			s.killed = true
			ts.host.Signal(s.run, syscall.SIGKILL)
		}
	}
	if first {
		time.AfterFunc(clientPatience, func() { ts.Signal(syscall.SIGKILL) })
	}
	return false
}

// Exited is told that the shepherd of a task is gone. It brings the task to its end in a
// goroutine of its own, since that waits for a task that is being started, and tries again
// when that fails.
func (ts *Tasks) Exited(name string) {
	ts.host.Go(func() {
		ts.mu.Lock()
		s := ts.list[name]
		ts.mu.Unlock()
		if s == nil {
			return
		}
		s.work.Lock()
		defer s.work.Unlock()
		if s.done {
			return
		}
		if err := ts.end(s); err != nil {
			s.attempts++
			after := exit.Retries.After(s.attempts)
			ts.host.Log.Error(fmt.Sprintf("job %v: %v (tried again in %v)", s.run.ID(), err, after))
			time.AfterFunc(after, func() { ts.Exited(name) })
			return
		}
		s.done = true
		ts.over(name) // its run may have waited for it
	})
}

// end collects a task, accounts it and removes its directory. Each step can
// be repeated, also by another execd.
func (ts *Tasks) end(s *task) error {
	h := ts.host
	if s.sampled == nil {
		sampled, _ := h.Usage.Remove(s.run)
		s.sampled = &sampled
	}
	out, began, err := h.Launcher.CollectTask(s.run, s.gid)
	if err != nil {
		return err
	}
	total := usage.Final(*s.sampled, out.Usage)
	e := ts.conclude(s, &out)
	if began {
		if err := ts.account(s, &out, &total, e); err != nil {
			return err
		}
	}
	h.Launcher.RemoveTaskGroup(s.run)
	g := &h.Config().Global
	// Together: of tasks that are counted, one at most still has a directory.
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if began {
		if err := ts.count(s, &out, &total, e); err != nil {
			return err
		}
	}
	if err := h.Launcher.CleanTask(s.run, g.KeepActive || g.KeepFailed && e.Failed != 0); err != nil {
		return err
	}
	h.GIDs.Give(s.gid)
	delete(ts.list, s.run.PETask)
	ts.show()
	ts.remember(s.run.PETask, endForClient(ts.of, e, out.Usage != nil))
	close(s.over)
	text := fmt.Sprintf("job %v: ended: failed=%d exit=%d", s.run.ID(), e.Failed, e.Exit)
	if e.Reason != "" {
		text += fmt.Sprintf(" reason=%q", e.Reason)
	}
	h.Log.Info(text)
	return nil
}

// conclude makes of the outcome of a task what is accounted.
func (ts *Tasks) conclude(s *task, out *spool.Outcome) *job.End {
	e := outcome.Of(out)
	ts.mu.Lock()
	reason, killed := s.reason, s.killed
	ts.mu.Unlock()
	want := ts.host.Store.Want(ts.of)
	switch {
	case e.Failed == 0:
	case reason != "":
		e.Reason = reason
	case want != nil && want.By != "":
		e.Reason = outcome.By(spool.CauseDeleted, want.By)
	case killed, ts.endedWithJob(s.run, out):
		e.Reason = "killed at the end of the job"
	}
	return e
}

// endedWithJob reports whether a task was killed, or its client was, because the
// job has ended: its shepherd kills what is left before execd hears of the end.
func (ts *Tasks) endedWithJob(task spool.RunID, out *spool.Outcome) bool {
	if out.Usage == nil || out.Usage.Signal != int(syscall.SIGKILL) && out.Usage.Signal != int(syscall.SIGHUP) {
		return false
	}
	return ts.host.Launcher.JobOver(task.Within())
}

// endForClient tells a waiting client of an end.
func endForClient(t *job.Task, e *job.End, ran bool) api.TaskEnd {
	end := api.TaskEnd{Job: t.Job.Number, Failed: e.Failed, Exit: e.Exit, Ran: ran}
	if t.Job.Tasks.IsArray() {
		end.Task = t.Number
	}
	if e.Failed != 0 {
		end.Reason = e.Reason
	}
	return end
}

// remember keeps the end of a task for a client that asks late.
func (ts *Tasks) remember(name string, e api.TaskEnd) {
	if len(ts.names) == maxEndedTasks {
		ts.names, ts.ended = slices.Delete(ts.names, 0, 1), slices.Delete(ts.ended, 0, 1)
	}
	ts.names, ts.ended = append(ts.names, name), append(ts.ended, e)
}

// End returns a channel that is closed when a task is over, or how it has ended;
// neither is known of one that is long over.
func (ts *Tasks) End(name string) (over <-chan struct{}, end *api.TaskEnd) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if s := ts.list[name]; s != nil {
		return s.over, nil
	}
	if i := slices.Index(ts.names, name); i >= 0 {
		e := ts.ended[i]
		return nil, &e
	}
	return nil, nil
}

// Find finds again the tasks that an earlier execd has started.
func (ts *Tasks) Find() {
	h := ts.host
	found, err := h.Launcher.FindTasks(ts.of.RunID())
	if err != nil {
		h.Log.Error(fmt.Sprintf("job %v: cannot look for its tasks: %v", ts.of, err))
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	defer ts.show()
	ts.readBook()
	for _, f := range found {
		h.GIDs.Use(f.GID)
		s := ts.add(f.Run.PETask, f.Queue, f.GID)
		s.began = h.Launcher.Since(f.Run, time.Now())
		if !f.Lives {
			ts.Exited(s.run.PETask)
			continue
		}
		h.Later(0, func() {
			h.Launcher.Await(s.run, h.Later, func() { ts.found(s) }, func() { ts.Exited(s.run.PETask) })
		})
	}
}

// found goes on with a task whose shepherd is watched again.
func (ts *Tasks) found(s *task) {
	ts.host.Found(s.run, s.began)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.catchUp(s)
}

// Used returns what the tasks that have ended have consumed.
func (ts *Tasks) Used() schedule.Used {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.book.Used
}

// List returns what was started and has not ended, the oldest first, and what was used by
// what has; nil: nothing was ever started. It waits for nobody.
func (ts *Tasks) List() (list []api.Subtask, past *api.Usage) {
	now := ts.shown.Load()
	if now == nil {
		return nil, nil
	}
	return slices.Clone(now.list), &now.past
}
