package stage

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
	"paddock/execd/internal/mail"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/timeline"
	"paddock/execd/internal/usage"
	"paddock/spool"
)

const sigkill = syscall.SIGKILL

// steering passes what people and queues want of a job on to its shepherd, as soon as
// there is one.
type steering struct {
	asking  sync.Mutex // held while the shepherd is told, which waits for the disk; before mu
	kill    bool       // guarded by asking; the job was to be killed before
	stopped bool       // guarded by asking; the shepherd was told to stop the job last
	begun   bool       // guarded by asking; the shepherd was started, with the lease of the time

	mu    sync.Mutex
	up    bool          // guarded by mu, changed with asking; there is a shepherd
	never bool          // guarded by mu; there will be none
	known chan struct{} // guarded by mu; closed when one of the two is known; nil: nobody waits
}

// tell wakes who waits to know whether there is a shepherd. mu is held.
func (s *steering) tell() {
	if s.known != nil {
		close(s.known)
		s.known = nil
	}
}

// Kill carries out the wish to kill a task that runs: its shepherd is asked
// once for each call. Before there is one to ask, the launch stage does it. A hook that
// prepares the task is ended, and so is the script after it.
func (r *Runner) Kill(t *job.Task) {
	if t.Start.Remote != nil {
		r.Away.Look(t)
		return
	}
	l := r.lifeOf(t)
	if l == nil {
		return
	}
	l.steer.asking.Lock()
	defer l.steer.asking.Unlock()
	if l.steer.up {
		r.Signal(t.RunID(), sigkill)
		l.tasks.Signal(sigkill)
	} else {
		l.steer.kill = true
	}
	l.hooks.Cancel()
	l.end.Input.Cancel()
	if r.Store.State(t) == job.Over {
		r.advance(l, l.end.Yield) // its transfer is ended, if it is the job that is not wanted
	}
}

// Transfer returns how files travel into the sandbox of a run or out of it, or what of them
// was left out; nil: none do, and nothing was.
func (r *Runner) Transfer(run spool.RunID) *api.Transfer {
	l := r.life(run)
	switch {
	case l == nil && r.Away != nil:
		return r.Away.Transfer(run)
	case l == nil:
		return nil
	}
	shown := l.end.Output.Standing()
	if shown.Output = shown.Attempt > 0; !shown.Output {
		if shown = l.end.Input.Standing(); shown.Attempt == 0 || shown.Done && shown.Left == "" {
			return nil
		}
	}
	return &shown
}

// Suspend stops a task for the reasons that the letters stand for, or with none
// lets it go on, unless somebody has suspended it.
func (r *Runner) Suspend(t *job.Task, letters string) {
	if r.Store.State(t) == job.Over { // nothing runs that could be stopped
		return
	}
	r.Store.SetStopped(t, letters)
	r.Changed(t)
}

// AtRest returns when nobody is about to lead the life of a task on that has begun,
// and reports whether it has a shepherd. One that has none is over, or hooks and
// transfers prepare it, which may take hours and which the next execd goes on with:
// from its beginning to there, or to its shepherd, a life is led in one go.
func (r *Runner) AtRest(t *job.Task) (up bool) {
	if t.Start.Remote != nil {
		return true
	}
	l := r.lifeOf(t)
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steer.mu.Lock()
	defer l.steer.mu.Unlock()
	return l.steer.up
}

// launched returns the life of a task that has a shepherd; without one a channel
// that is closed when more is known, or if it will get none neither.
func (r *Runner) launched(t *job.Task) (*life, <-chan struct{}) {
	select {
	case <-t.Begun():
	default:
		return nil, t.Begun() // it may have no life yet
	}
	l := r.lifeOf(t)
	if l == nil {
		return nil, nil
	}
	s := &l.steer
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.up:
		return l, nil
	case s.never:
		return nil, nil
	case s.known == nil:
		s.known = make(chan struct{})
	}
	return nil, s.known
}

// Altered notes that the attributes of the job of a task are others while it runs.
func (r *Runner) Altered(t *job.Task) {
	if t.Start.Remote != nil {
		r.Away.Look(t)
	} else if l := r.lifeOf(t); l != nil {
		l.hooks.Altered()
	}
}

// Changed notes that a task was suspended or resumed, or that output of it which was stuck is to
// be tried again.
func (r *Runner) Changed(t *job.Task) {
	if t.Start.Remote != nil {
		r.Away.Look(t)
		return
	}
	if l := r.lifeOf(t); l != nil {
		if r.Store.State(t) == job.Over {
			r.advance(l, l.end.Again)
			return
		}
		l.steer.asking.Lock()
		defer l.steer.asking.Unlock()
		r.stopOrGo(l)
	}
}

// Noticed is told that an interactive job may have lost its client, or found one.
func (r *Runner) Noticed(run spool.RunID) {
	l := r.life(run)
	if l == nil {
		return
	}
	r.advance(l, func() {
		if l.exited {
			return
		}
		changed, err := r.Store.Miss(l.task, r.Launcher.Lost(run))
		if err != nil {
			r.Log.Error(fmt.Sprintf("job %v: %v", l.task, err))
		}
		if changed {
			r.Changed(l.task)
		}
	})
}

// steerable notes that the shepherd of a run can be told.
func (r *Runner) steerable(l *life) {
	l.steer.asking.Lock()
	defer l.steer.asking.Unlock()
	l.steer.mu.Lock()
	l.steer.up = true
	l.steer.tell()
	l.steer.mu.Unlock()
	if l.found {
		if err := r.setLease(l); err != nil { // the claim was renewed, and the run not, when execd was killed
			r.Log.Error(err.Error())
		}
	}
	want := r.Store.Want(l.task)
	switch {
	case !l.found || want == nil:
	case want.Until.IsZero():
		l.steer.kill = true
	default: // it has time, which its slot watches
		if sig := r.EndSignal(l.task); !r.Launcher.Told(l.task.RunID(), sig) {
			r.Signal(l.task.RunID(), sig)
		}
	}
	if l.steer.kill {
		r.Signal(l.task.RunID(), sigkill)
		l.tasks.Signal(sigkill)
	}
	r.stopOrGo(l)
	if l.task.Job.Interactive {
		if err := r.Launcher.Attend(l.task.RunID()); err != nil {
			r.Log.Warn(err.Error())
		}
	}
}

// stopOrGo asks the shepherd to stop the job or to let it go on, when that is
// not what it was asked last. A job with a checkpointing interface that has x
// in its when migrates instead of being stopped. l.steer.asking is held.
func (r *Runner) stopOrGo(l *life) {
	if !l.steer.up {
		return
	}
	want := r.Store.WantStopped(l.task)
	if want == l.steer.stopped {
		return
	}
	l.steer.stopped = want
	if want {
		r.Timeline.Note(l.task.RunID(), timeline.Span{Kind: timeline.Suspended, Begin: time.Now()})
		l.notices.MailLater(mail.Suspended)
		l.notices.Happened(notice.Event{Kind: notice.Suspended})
	} else {
		r.Timeline.Note(l.task.RunID(), timeline.Span{Kind: timeline.Suspended, End: time.Now()})
		l.notices.MailLater(mail.Continued)
		l.notices.Happened(notice.Event{Kind: notice.Resumed})
	}
	l.hooks.ChangedState()
	switch {
	case !want:
		r.Signal(l.task.RunID(), syscall.SIGCONT)
		l.tasks.Signal(syscall.SIGCONT)
	case l.migrates:
		r.Signal(l.task.RunID(), syscall.SIGTTOU) // its tasks end with it
	default:
		r.Signal(l.task.RunID(), syscall.SIGSTOP)
		l.tasks.Signal(syscall.SIGSTOP)
	}
}

// Reported returns what the slot of a run was told last of what it uses; nil: nothing.
func (r *Runner) Reported(run spool.RunID) *ad.Status {
	if l := r.life(run); l != nil {
		return l.hooks.Reported()
	}
	return nil
}

// Watch has slots told what the runs use, if they want to know that now.
func (r *Runner) Watch() {
	r.mu.Lock()
	lives := slices.Collect(maps.Values(r.lives))
	r.mu.Unlock()
	for _, l := range lives {
		l.hooks.Watch()
	}
}

// life returns the life of a run; nil when it is over.
func (r *Runner) life(run spool.RunID) *life {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lives[run]
}

// lifeOf returns the life of a task, and not that of the next try, which has the same
// number.
func (r *Runner) lifeOf(t *job.Task) *life {
	if l := r.life(t.RunID()); l != nil && l.task == t {
		return l
	}
	return nil
}

// Exceeded is told of a job that as a whole has exceeded a limit.
func (r *Runner) Exceeded(run spool.RunID, e usage.Excess) {
	l := r.life(run.Within())
	if l == nil {
		return // it has just ended
	}
	if run.PETask != "" {
		l.tasks.Exceeded(run.PETask, e)
		return
	}
	r.Log.Info(e.Line(run.ID(), l.task.Start.Queue))
	if !e.Hard {
		l.end.Warned.Store(true)
		r.Signal(l.task.RunID(), syscall.SIGXCPU)
		return
	}
	if err := r.Store.Exceed(l.task, e.Reason()); err != nil {
		r.Log.Error(err.Error()) // its end may lack the reason, but not be late
	}
	r.Kill(l.task)
}

// HookRuns returns the hooks of a run, those that have ended and the one that runs.
func (r *Runner) HookRuns(run spool.RunID) []api.HookRun {
	if l := r.life(run); l != nil {
		return l.hooks.Runs()
	}
	return nil
}
