package stage

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
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/outcome"
	"paddock/execd/internal/usage"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// tasks is what was started in a run beside its job: by `qrsh -inherit` and by
// `qrsh -into`. A task is no run of its own, and has no record: its directory
// below the run's is all there is of it.
type tasks struct {
	mu     sync.Mutex          // may be held while a disk is waited for; after steering.mu
	closed bool                // guarded by mu; the job has ended, nothing more is started
	list   map[string]*subtask // guarded by mu; by name
	ended  []api.TaskEnd       // guarded by mu; of the last, for who waits
	names  []string            // guarded by mu; of those in ended
	book   taskBook            // guarded by mu

	shown atomic.Pointer[shownTasks] // nil: nothing was ever started
}

// shownTasks is what qstat, which does not wait, sees of tasks.
type shownTasks struct {
	list []api.Subtask // the oldest first
	past api.Usage     // of those that have ended
}

// show lets others see the tasks as they are now. mu is held.
func (ts *tasks) show() {
	b := &ts.book
	if b.Next == 0 && b.Into == 0 && len(ts.list) == 0 {
		return
	}
	list := make([]api.Subtask, 0, len(ts.list))
	for name, s := range ts.list {
		list = append(list, api.Subtask{ID: name, Queue: s.queue, Started: s.began})
	}
	slices.SortFunc(list, func(a, b api.Subtask) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID)) })
	ts.shown.Store(&shownTasks{list, api.Usage{CPU: b.Used.CPU, Mem: b.Used.Mem, IO: b.Used.IO}})
}

// subtask is one of them.
type subtask struct {
	run   spool.RunID
	queue string
	gid   int
	began time.Time
	over  chan struct{} // closed when it is collected and accounted

	killed bool   // guarded by tasks.mu; at the end of the job
	reason string // guarded by tasks.mu; a limit that it has exceeded

	work     sync.Mutex // held by who ends it
	attempts int        // guarded by work
	sampled  *api.Usage // guarded by work; nil: it is still watched
	done     bool       // guarded by work
}

const (
	// maxEnding bounds the tasks of a job that have ended and whose clients do
	// not take notice, maxInto those that people have started.
	maxEnding = 64
	maxInto   = 16
	// maxEndedTasks is how many ends are remembered for who asks late.
	maxEndedTasks = 32
	// clientPatience is how long the clients of tasks have to hear of the end
	// when the job is over.
	clientPatience = 10 * time.Second
)

// Refused is the error of a task that is not started. Its text is for the log.
type Refused struct{ Text string }

func (r *Refused) Error() string { return r.Text }

// NotYet is the error of a task of a job that may get a shepherd and has none: it is
// asked for again when Known is closed.
type NotYet struct{ Known <-chan struct{} }

func (n *NotYet) Error() string { return "the job is not started yet" }

// TaskOrder is what is to be started in a run.
type TaskOrder struct {
	Task    *job.Task
	Request *api.TaskRequest
	By      *user.User // who asks
}

// StartTask starts a task in a run and returns its name. It waits for nothing: a job
// whose slot is its own may still be prepared, for which the error is a *NotYet.
func (r *Runner) StartTask(o *TaskOrder) (name string, err error) {
	t := o.Task
	l, known := r.launched(t)
	if known != nil {
		return "", &NotYet{known}
	}
	if l == nil {
		return "", &Refused{fmt.Sprintf("job %v does not run", t)}
	}
	order, err := r.taskOrder(l, o)
	if err != nil {
		return "", err
	}
	l.tasks.mu.Lock()
	defer l.tasks.mu.Unlock()
	if l.tasks.closed || r.Store.Want(t) != nil {
		return "", &Refused{fmt.Sprintf("job %v is at its end", t)}
	}
	queue, err := r.place(l, order, o)
	if err != nil {
		return "", err
	}
	order.Queue = queue
	gid, ok := r.GIDs.Take()
	if !ok {
		return "", &Refused{"no additional group id is free"}
	}
	order.Sub.GID = gid
	s := l.tasks.add(t, order.Sub.Name, queue.Name, gid)
	s.began = time.Now()
	pid, err := r.Launcher.StartTask(order)
	if err != nil {
		r.GIDs.Give(gid)
		delete(l.tasks.list, order.Sub.Name)
		return "", fmt.Errorf("cannot start task %s of job %v: %w", order.Sub.Name, t, err)
	}
	order.Measured.Started = s.began
	r.Usage.Add(s.run, order.Measured)
	r.logStart(o, s, pid)
	l.tasks.show()
	// What was asked of the job meanwhile it was not told.
	r.catchUp(l, s)
	return order.Sub.Name, nil
}

// logStart tells the log of a task. Who enters somebody else's job is an event
// that an administrator looks for.
func (r *Runner) logStart(o *TaskOrder, s *subtask, pid int) {
	switch {
	case !o.Request.Into:
		r.Log.Info(fmt.Sprintf("job %v: started: pid=%d queue=%s", s.run.ID(), pid, s.queue))
	case o.By.UID != o.Task.Job.UID:
		r.Log.Warn(fmt.Sprintf("job %v: entered by %s: task=%s owner=%s", o.Task, o.By.Name, s.run.PETask, o.Task.Job.Owner))
	default:
		r.Log.Info(fmt.Sprintf("job %v: entered by %s: task=%s", o.Task, o.By.Name, s.run.PETask))
	}
}

// add enters a task. tasks.mu is held.
func (ts *tasks) add(t *job.Task, name, queue string, gid int) *subtask {
	s := &subtask{run: t.RunID(), queue: queue, gid: gid, over: make(chan struct{})}
	s.run.PETask = name
	if ts.list == nil {
		ts.list = map[string]*subtask{}
	}
	ts.list[name] = s
	return s
}

// taskOrder gathers what the directory of a task is made from.
func (r *Runner) taskOrder(l *life, o *TaskOrder) (*launch.Order, error) {
	q := o.Request
	of, err := r.Store.Request(l.task.Job)
	if err != nil {
		return nil, err
	}
	// It may have been altered: its limits are those it was started with.
	asked := *of
	asked.Hard, asked.Checkpoint = l.task.Needs.Request().Hard, ""
	order, err := r.orderFor(l, &asked)
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

// place finds a slot for a task, and its name. tasks.mu is held.
func (r *Runner) place(l *life, order *launch.Order, o *TaskOrder) (*conf.Queue, error) {
	b := &l.tasks.book
	if o.Request.Into {
		n := 0
		for name := range l.tasks.list {
			if spool.IsInto(name) {
				n++
			}
		}
		if n >= maxInto {
			return nil, &Refused{fmt.Sprintf("job %v has %d visitors, which are enough", l.task, n)}
		}
		b.Into++
		order.Sub.Name = spool.IntoTask(b.Into)
		return order.Queue, r.writeBook(l)
	}
	// As in Grid Engine the number is used up, be there a slot or not.
	b.Next++
	short, _, _ := strings.Cut(r.Host, ".")
	order.Sub.Name = strconv.Itoa(b.Next) + "." + short
	if err := r.writeBook(l); err != nil {
		return nil, err
	}
	name, ok := r.slot(l, order)
	if !ok {
		return nil, &Refused{fmt.Sprintf("no free queue for job %d of user %s@%s (%s = %s)", l.task.Job.Number, l.task.Job.Owner, r.Host, o.Request.Host, r.Host)}
	}
	q := r.Config().Queue(name)
	if q == nil {
		return nil, &Refused{fmt.Sprintf("queue %q does not exist any more", name)}
	}
	return q, nil
}

// slot returns the first queue of the grant with a free slot for a task of a
// parallel job. One whose task is about to exit is free: who starts the next
// task knows the end of the last. The job itself has a slot of its queue, unless
// its PE says that it is not one of the tasks.
func (r *Runner) slot(l *life, order *launch.Order) (queue string, ok bool) {
	used, ending := map[string]int{}, 0
	for name, s := range l.tasks.list {
		switch {
		case spool.IsInto(name):
		case r.Launcher.HasAnnounced(s.run):
			ending++
		default:
			used[s.queue]++
		}
	}
	if ending >= maxEnding {
		return "", false
	}
	if order.PE.JobIsFirstTask {
		used[l.task.Start.Queue]++
	}
	for _, q := range order.Grant.Queues {
		if used[q.Queue] < q.Slots {
			return q.Queue, true
		}
		used[q.Queue] -= q.Slots // of a queue that is granted twice
	}
	return "", false
}

// signalTasks asks the shepherds of all tasks of a run for a signal.
func (r *Runner) signalTasks(l *life, sig syscall.Signal) {
	l.tasks.mu.Lock()
	defer l.tasks.mu.Unlock()
	for _, s := range l.tasks.list {
		r.signalTask(s, sig)
	}
}

func (r *Runner) signalTask(s *subtask, sig syscall.Signal) {
	if err := r.Launcher.Signal(s.run, sig); err != nil {
		r.Log.Debug(err.Error()) // gone, or not found again yet: see catchUp
	}
}

// catchUp tells the shepherd of a task what is wanted of the job. tasks.mu is
// held.
func (r *Runner) catchUp(l *life, s *subtask) {
	switch {
	case l.tasks.closed || r.Store.Want(l.task) != nil:
		r.signalTask(s, sigkill)
	case r.Store.WantStopped(l.task):
		r.signalTask(s, syscall.SIGSTOP)
	}
}

// taskExceeded is told of a task that has exceeded a limit.
func (r *Runner) taskExceeded(l *life, run spool.RunID, e usage.Excess) {
	l.tasks.mu.Lock()
	defer l.tasks.mu.Unlock()
	s := l.tasks.list[run.PETask]
	if s == nil {
		return
	}
	r.Log.Info(e.Line(run.ID(), s.queue))
	if !e.Hard {
		r.signalTask(s, syscall.SIGXCPU)
		return
	}
	s.reason = excess(e)
	r.signalTask(s, sigkill)
}

// tasksOver is told of an end in a run, and reports whether the job and all that was
// started beside it are over. When the job has ended it ends the others: the job is
// accounted last. Grid Engine kills such tasks, too.
func (r *Runner) tasksOver(l *life, child string) bool {
	if child != childJob && !l.exited {
		return false
	}
	l.tasks.mu.Lock()
	defer l.tasks.mu.Unlock()
	first := !l.tasks.closed
	l.tasks.closed = true
	if len(l.tasks.list) == 0 {
		return true
	}
	for _, s := range l.tasks.list {
		if !s.killed {
			s.killed = true
			r.signalTask(s, sigkill)
		}
	}
	if first {
		time.AfterFunc(clientPatience, func() { r.signalTasks(l, sigkill) })
	}
	return false
}

// taskExited is told that the shepherd of a task is gone.
func (r *Runner) taskExited(run spool.RunID) {
	l := r.life(run.Within())
	if l == nil {
		return
	}
	r.inPlace(func() { // whoever tells must not wait for a task that is started
		l.tasks.mu.Lock()
		s := l.tasks.list[run.PETask]
		l.tasks.mu.Unlock()
		if s != nil {
			r.finishTask(l, s)
		}
	})
}

// leadTask brings a task to its end in a goroutine of its own.
func (r *Runner) leadTask(l *life, s *subtask) { r.inPlace(func() { r.finishTask(l, s) }) }

// finishTask brings a task to its end, and has it tried again when that fails.
func (r *Runner) finishTask(l *life, s *subtask) {
	s.work.Lock()
	defer s.work.Unlock()
	if s.done {
		return
	}
	if err := r.endTask(l, s); err != nil {
		s.attempts++
		after := exit.Backoff(s.attempts)
		r.Log.Error(fmt.Sprintf("job %v: %v (tried again in %v)", s.run.ID(), err, after))
		time.AfterFunc(after, func() { r.leadTask(l, s) })
		return
	}
	s.done = true
	r.advance(l, func() { l.flow.Reap(s.run.PETask, exit.Status{}) }) // who may have waited for it
}

// endTask collects a task, accounts it and removes its directory. Each step can
// be repeated, also by another execd.
func (r *Runner) endTask(l *life, s *subtask) error {
	if s.sampled == nil {
		sampled, _ := r.Usage.Remove(s.run)
		s.sampled = &sampled
	}
	out, began, err := r.Launcher.CollectTask(s.run, s.gid)
	if err != nil {
		return err
	}
	total := usage.Final(*s.sampled, out.Usage)
	e := r.concludeTask(l, s, &out)
	if began {
		if err := r.accountTask(l, s, &out, &total, e); err != nil {
			return err
		}
	}
	r.Launcher.RemoveTaskGroup(s.run)
	g := &r.Config().Global
	// Together: of tasks that are counted, one at most still has a directory.
	l.tasks.mu.Lock()
	defer l.tasks.mu.Unlock()
	if began {
		if err := r.countTask(l, s, &out, &total, e); err != nil {
			return err
		}
	}
	if err := r.Launcher.CleanTask(s.run, g.KeepActive || g.KeepFailed && e.Failed != 0); err != nil {
		return err
	}
	r.GIDs.Give(s.gid)
	delete(l.tasks.list, s.run.PETask)
	l.tasks.show()
	l.tasks.remember(s.run.PETask, endForClient(l.task, e, out.Usage != nil))
	close(s.over)
	text := fmt.Sprintf("job %v: ended: failed=%d exit=%d", s.run.ID(), e.Failed, e.Exit)
	if e.Reason != "" {
		text += fmt.Sprintf(" reason=%q", e.Reason)
	}
	r.Log.Info(text)
	return nil
}

// concludeTask makes of the outcome of a task what is accounted.
func (r *Runner) concludeTask(l *life, s *subtask, out *spool.Outcome) *job.End {
	e := outcome.Of(out)
	l.tasks.mu.Lock()
	reason, killed := s.reason, s.killed
	l.tasks.mu.Unlock()
	want := r.Store.Want(l.task)
	switch {
	case e.Failed == 0:
	case reason != "":
		e.Reason = reason
	case want != nil && want.By != "":
		e.Reason = "deleted by " + want.By
	case killed, r.endedWithJob(s.run, out):
		e.Reason = "killed at the end of the job"
	}
	return e
}

// endedWithJob reports whether a task was killed, or its client was, because the
// job has ended: its shepherd kills what is left before execd hears of the end.
func (r *Runner) endedWithJob(task spool.RunID, out *spool.Outcome) bool {
	if out.Usage == nil || out.Usage.Signal != int(syscall.SIGKILL) && out.Usage.Signal != int(syscall.SIGHUP) {
		return false
	}
	return r.Launcher.JobOver(task.Within())
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

// remember keeps the end of a task for who asks late.
func (ts *tasks) remember(name string, e api.TaskEnd) {
	if len(ts.names) == maxEndedTasks {
		ts.names, ts.ended = slices.Delete(ts.names, 0, 1), slices.Delete(ts.ended, 0, 1)
	}
	ts.names, ts.ended = append(ts.names, name), append(ts.ended, e)
}

// TaskEnd returns a channel that is closed when a task is over, or how it has
// ended; neither is known of one that is long over.
func (r *Runner) TaskEnd(t *job.Task, name string) (over <-chan struct{}, end *api.TaskEnd) {
	l := r.lifeOf(t)
	if l == nil {
		return nil, nil
	}
	l.tasks.mu.Lock()
	defer l.tasks.mu.Unlock()
	if s := l.tasks.list[name]; s != nil {
		return s.over, nil
	}
	if i := slices.Index(l.tasks.names, name); i >= 0 {
		e := l.tasks.ended[i]
		return nil, &e
	}
	return nil, nil
}

// findTasks finds again the tasks that an earlier execd has started in a run.
func (r *Runner) findTasks(l *life) {
	if l.task.State == job.Ended {
		return
	}
	run := l.task.RunID()
	found, err := r.Launcher.FindTasks(run)
	if err != nil {
		r.Log.Error(fmt.Sprintf("job %v: cannot look for its tasks: %v", l.task, err))
	}
	l.tasks.mu.Lock()
	defer l.tasks.mu.Unlock()
	defer l.tasks.show()
	r.readBook(l)
	for _, f := range found {
		r.GIDs.Use(f.GID)
		s := l.tasks.add(l.task, f.Run.PETask, f.Queue, f.GID)
		s.began = r.Launcher.Since(f.Run, time.Now())
		if f.Lives {
			r.unlessStopped(0, func() { r.reattachTask(l, s, reattachAgain) })
		} else {
			r.leadTask(l, s)
		}
	}
}

// reattachTask watches the shepherd of a task that lives. One that has only just
// been started has not written its pid yet: then it is asked for again after a
// time.
func (r *Runner) reattachTask(l *life, s *subtask, after time.Duration) {
	if err := r.Launcher.Reattach(s.run); err == nil {
		r.Log.Info(fmt.Sprintf("job %v: found after the restart: runs", s.run.ID()))
		if m, err := r.Launcher.MeasuredAgain(s.run, s.began); err == nil {
			r.Usage.Add(s.run, m)
		}
		l.tasks.mu.Lock()
		defer l.tasks.mu.Unlock()
		r.catchUp(l, s)
		return
	}
	if e, err := launch.Look(r.Launcher.Root.Active(s.run.ID())); err == nil && !e.Held {
		r.leadTask(l, s)
		return
	}
	r.unlessStopped(after, func() { r.reattachTask(l, s, rarer(after)) })
}

// used returns what the tasks that have ended have consumed.
func (ts *tasks) used() schedule.Used {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.book.Used
}

// Subtasks returns what was started in a run and has not ended, the oldest first, and
// what was used by what has; nil: nothing was ever started.
func (r *Runner) Subtasks(run spool.RunID) (list []api.Subtask, past *api.Usage) {
	l := r.life(run)
	if l == nil {
		return nil, nil
	}
	shown := l.tasks.shown.Load()
	if shown == nil {
		return nil, nil
	}
	return slices.Clone(shown.list), &shown.past
}
