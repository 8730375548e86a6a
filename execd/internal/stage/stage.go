// Package stage is one job's life as a list of stages (see stages below): each
// is recorded when it is done, can be repeated, and every event enters the
// list again at the top, so that a crash between two stages repeats the one
// that was not recorded. It drives launch, account, claim and hook, and only daemon
// and server use it. Below it are base, which all of them share; exit, the
// machine of what follows the end of a job's processes, and finish, which carries it out;
// outcome, which decides what becomes of a run; jobhook, its hooks and scripts; notice,
// which tells its owner; and subtask, what is started in it.
//
// Locks are taken in this order. The work of a subtask, life.mu, steering.asking and
// subtask.Tasks.mu may be held while the disk or the name services are waited for, so that
// qstat takes none of them. Those of package queue come next. Then, held for a moment and
// under no other of these packages but those above: steering.mu, those of jobhook and
// notice, Runner.mu and base.Pool.mu.
package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/mail"
	"paddock/execd/internal/output"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/finish"
	"paddock/execd/internal/stage/jobhook"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/stage/outcome"
	"paddock/execd/internal/stage/subtask"
	"paddock/execd/internal/timeline"
	"paddock/execd/internal/usage"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// stages is the life of one run, in order. A stage that is done is passed over;
// one that must wait returns errWait and is entered again by its event; one
// that fails for a reason that may pass returns a *exit.Retry.
var stages = [...]struct {
	name string
	do   func(*Runner, *life) error
}{
	begins:   {"begin", (*Runner).begin},     // record the start, make the directory
	prepares: {"prepare", (*Runner).prepare}, // hooks, files and a script before the job; most have none
	launches: {"launch", (*Runner).launch},   // start the shepherd
	runs:     {"run", (*Runner).run},         // until nothing of the run is left: job, tasks, a script after it
	reaps:    {"reap", (*Runner).reap},       // outcome and usage; the directory moves to finished/
	// The steps of package exit: a hook for the end; release, the slot may start
	// the next job; transfer of output; account, record the end and write the
	// accounting line; notify, tell who waits; clean, remove directory, TMPDIR,
	// record. Package finish has them.
	exits: {"exit", (*Runner).exit},
}

// A life is in one of the stages, and has done those before it.
const (
	begins = iota
	prepares
	launches
	runs
	reaps
	exits
	over // it has none any more
)

// errWait says that a stage waits for an event.
var errWait = errors.New("waits for an event")

// errOver says that the life is over before its time: the task was given back
// or is in error.
var errOver = errors.New("over")

// life is one run of one task, from taking it to its last trace. All of it is on disk
// as well, or can be had again.
type life struct {
	task *job.Task

	mu       sync.Mutex         // held by the goroutine that advances it
	at       int                // its stage
	exited   bool               // the shepherd is gone
	found    bool               // an earlier execd has begun it, and perhaps a hook of it
	attempts int                // failed attempts at the present stage
	limits   *launch.TimeLimits // that are on execd to enforce; nil: not known yet
	timer    *time.Timer        // enters the list again when they may ask for something; nil: there is none
	again    func()             // enters the list again
	kill     func()             // has its shepherd end the job, as the record wants it

	flow      exit.Pipeline // its processes, and the steps of its end
	prep      exit.Marks    // of what prepares it
	hooks     jobhook.Hooks
	notices   notice.Notices      // to its owner
	unstarted *jobhook.Unprepared // why it is not started after all; nil: it is, or is to be
	end       finish.End          // what is known of it: from reap on

	tasks    subtask.Tasks // what was started in it
	steer    steering
	migrates bool // instead of being suspended
	measured usage.Job
}

// Runner leads all runs through their stages. The exported fields are set
// before first use.
type Runner struct {
	base.Host
	Streams *output.Index  // nil: where jobs write is not remembered
	Journal notice.Journal // nil: no job has one
	Away    Away           // nil: no job runs on another host

	mu    sync.Mutex
	lives map[spool.RunID]*life // guarded by mu
}

// Away leads the runs that are on other hosts, as a Runner does those that are here.
type Away interface {
	// Recover takes over a run that an earlier execd has begun.
	Recover(t *job.Task)
	// Look carries out what people want of a run now: that it ends, is stopped or goes on, or
	// has other attributes.
	Look(t *job.Task)
	// Transfer returns how the files of a run travel, or what was left out; nil: they do not,
	// and nothing was.
	Transfer(run spool.RunID) *api.Transfer
}

// Start takes over a task whose slots are active.
func (r *Runner) Start(t *job.Task, slots []*claim.Slot) {
	l := r.newLife(t)
	l.end.Slots, l.end.Taken = slots, time.Now()
	r.add(l)
	r.advance(l, nil)
}

// Exited is told that the shepherd of a run is gone.
func (r *Runner) Exited(run spool.RunID) {
	l := r.life(run.Within())
	switch {
	case l == nil:
	case run.PETask != "":
		l.tasks.Exited(run.PETask)
	default:
		r.advance(l, func() {
			l.exited, l.end.Ended = true, time.Now()
			r.Timeline.Note(l.task.RunID(), timeline.Span{Kind: timeline.Job, End: l.end.Ended})
			l.flow.Reap(childJob, exit.Status{}) // its status is in the directory
		})
	}
}

// newLife makes the life of a run, which nobody knows of yet.
func (r *Runner) newLife(t *job.Task) *life {
	l := &life{task: t}
	l.kill = func() { r.Kill(t) }
	l.init(&r.Host, func(f func()) { r.advance(l, f) })
	return l
}

// init makes the parts of a life. Event has something happen to it, and enters the list
// again.
func (l *life) init(h *base.Host, event func(func())) {
	l.again = func() { event(nil) }
	l.notices.Init(h, l.task, event)
	l.hooks.Init(h, l.task, &l.notices, event)
	l.tasks.Init(h, l.task, func(name string) { event(func() { l.flow.Reap(name, exit.Status{}) }) })
	l.end.Init(h, l.task, &l.hooks, &l.notices, &l.tasks, event, &l.attempts)
}

func (r *Runner) add(l *life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lives == nil {
		r.lives = map[spool.RunID]*life{}
	}
	r.lives[l.task.RunID()] = l
	if r.Timeline == nil {
		return
	}
	taken := l.end.Taken
	if len(l.end.Slots) == 0 { // an earlier execd has given them back
		taken = time.Time{}
	}
	r.Timeline.Enter(lineOf(l), taken)
}

// lineOf is what the timeline says of a run as a whole.
func lineOf(l *life) timeline.Of {
	t := l.task
	var slots []string
	for _, s := range l.end.Slots {
		name := strconv.Itoa(s.Index)
		if s.Dynamic > 0 {
			name += "_" + strconv.Itoa(s.Dynamic)
		}
		slots = append(slots, name)
	}
	return timeline.Of{
		Run: t.RunID(), Array: t.Job.Tasks.IsArray(), Owner: t.Job.Owner, Name: t.Job.Terms().Name, Queue: t.Start.Queue,
		Slots: strings.Join(slots, ","), Submitted: t.Job.Submitted,
	}
}

func (r *Runner) drop(l *life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A run that was not started has given its slot back, and the next try, which has the
	// same number, may be here already.
	id := l.task.RunID()
	if r.lives[id] != l {
		return
	}
	delete(r.lives, id)
	failed, code := -1, -1 // it never ran
	if e := l.end.End; e != nil {
		failed, code = e.Failed, e.Exit
	}
	r.Timeline.Leave(id, time.Now(), failed, code)
}

// advance leads a life on in a goroutine of its own, after the event.
func (r *Runner) advance(l *life, event func()) {
	r.Go(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.at == over {
			return // a timer that came too late
		}
		if event != nil {
			event()
		}
		r.pass(l)
	})
}

// pass goes through the list from the top. l.mu is held.
func (r *Runner) pass(l *life) {
	defer l.gone()
	for l.at < over {
		at := l.at
		err := r.enter(l)
		switch {
		case err == nil:
			l.at, l.attempts = at+1, 0
		case errors.Is(err, errWait):
			return
		case errors.Is(err, errOver):
			l.at = over
		default:
			// Nothing is lost: the run stays where it is on disk.
			l.attempts++
			level, after := slog.LevelError, exit.Retries.After(l.attempts)
			if _, retry := errors.AsType[*exit.Retry](err); retry {
				level = slog.LevelWarn
			}
			if _, of := errors.AsType[*exit.StepError](err); !of {
				err = fmt.Errorf("%s: %w", stages[at].name, err)
			}
			r.Log.Log(context.Background(), level, fmt.Sprintf("job %v: %v (tried again in %v)", l.task, err, after))
			time.AfterFunc(after, l.again)
			return
		}
	}
	r.drop(l)
}

// enter enters the stage that a life is in, or takes back its start where that was not
// done yet.
func (r *Runner) enter(l *life) error {
	if l.unstarted != nil {
		return r.putBack(l)
	}
	return stages[l.at].do(r, l)
}

// gone tells who waits for a shepherd when there will be none any more. l.mu is held.
func (l *life) gone() {
	if l.at != over && !l.exited {
		return
	}
	l.steer.mu.Lock()
	defer l.steer.mu.Unlock()
	l.steer.never = !l.steer.up
	l.steer.tell()
}

// begin records that the task is started, durably, and makes its directory at
// the same time. Nothing runs yet.
func (r *Runner) begin(l *life) error {
	t := l.task
	order, err := r.order(l)
	if errors.Is(err, job.ErrAltered) || errors.Is(err, base.ErrGone) && r.From(t).Queued() {
		// The job may ask for something else now, or what was granted may be gone.
		r.untake(l)
		return errOver
	}
	if exit.Again(err, l.attempts) {
		return err
	}
	if err != nil {
		// A second try would fail the same way until somebody mends it.
		return r.refuse(l, err, !spool.Scarce(err))
	}
	if r.Sandboxes != nil {
		if err := r.Sandboxes.Plan(t, order.Request, l.end.Slot(), order.SandboxLimit()); err != nil {
			return r.refuse(l, err, false)
		}
	}
	if err := r.findHooks(l, order.Request, order.Owner); err != nil {
		return r.refuse(l, err, !spool.Scarce(err))
	}
	r.setUp(l)
	recorded := make(chan error, 1)
	go func() { recorded <- r.Store.Begin(t) }()
	err = r.Launcher.Build(order)
	if begun := <-recorded; begun != nil {
		r.untake(l)
		r.Queue.Pause(fmt.Sprintf("cannot start jobs: %v", begun), pause)
		r.Log.Error(fmt.Sprintf("job %v: cannot start: %v", t, begun))
		if err == nil {
			err = r.Launcher.DiscardStaged(t.RunID())
		}
		if err != nil { // the next to be made there replaces it
			r.Log.Warn(fmt.Sprintf("job %v: %v", t, err))
		}
		return errOver
	}
	l.at, l.measured = prepares, order.Measured // also if it is refused
	if err != nil {
		var unfit *launch.Unfit
		return r.refuse(l, err, errors.As(err, &unfit))
	}
	if r.Streams != nil {
		if err := r.Streams.Add(order.Streams()); err != nil {
			r.Log.Debug(err.Error())
		}
	}
	return nil
}

// findHooks finds what a run has beside its job.
func (r *Runner) findHooks(l *life, request *api.SubmitRequest, owner *user.User) error {
	l.notices.Find(r.Journal)
	return l.hooks.Find(request, owner, r.Input != nil && r.Input.Has(l.task))
}

// order gathers what the directory of a run is made from.
func (r *Runner) order(l *life) (*launch.Order, error) {
	request, err := r.Store.RequestFor(l.task)
	if err == nil {
		request, err = r.Match(l.task, request, l.hooks.AdOfSlot)
	}
	if err != nil {
		return nil, err
	}
	o, err := r.Order(l.task, request)
	if err == nil {
		l.migrates = o.Migrates()
	}
	return o, err
}

// launch starts the shepherd.
func (r *Runner) launch(l *life) error {
	pid, err := r.fork(l)
	if err != nil {
		return r.refuse(l, err, false)
	}
	l.end.Started = time.Now()
	t := l.task
	r.Timeline.Note(t.RunID(), timeline.Span{Kind: timeline.Job, Begin: l.end.Started})
	r.Counts.Start(l.end.Taken.Sub(t.Job.Submitted))
	l.notices.Mail(mail.Started, nil)
	l.measured.Started = l.end.Started
	r.Usage.Add(t.RunID(), l.measured)
	r.Log.Info(fmt.Sprintf("job %v: started: pid=%d user=%s queue=%s%s", t, pid, t.Job.Owner, t.Start.Queue, base.FromHome(t)))
	if !r.Launcher.Foreign() {
		l.limits = &launch.TimeLimits{} // our shepherd enforces them
	}
	l.notices.Happened(notice.Event{Kind: notice.Executing})
	r.steerable(l)
	l.hooks.StartUpdates(0)
	return nil
}

// run waits for the end of all processes of the run, and meanwhile enforces the
// time limits that the shepherd does not. When the job has ended its tasks are
// ended, and then the script after it is run.
func (r *Runner) run(l *life) error {
	switch {
	case !l.exited:
		return cmp.Or(r.enforce(l), errWait)
	case !l.flow.Idle():
		return l.runPost()
	}
	return nil
}

// reap collects the outcome.
func (r *Runner) reap(l *life) error {
	l.stopTimer()
	sampled, _ := r.Usage.Remove(l.task.RunID())
	return l.end.Reap(sampled)
}

// Rerunnable reports whether a run that was cut short may be repeated.
func (r *Runner) Rerunnable(t *job.Task) bool {
	return outcome.Rerunnable(t, r.Config().Queue(t.Start.Queue))
}
