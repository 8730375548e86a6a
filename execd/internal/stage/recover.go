package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"paddock/execd/internal/aside"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/mail"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/finish"
	"paddock/execd/internal/stage/jobhook"
	"paddock/execd/internal/timeline"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// Recover finds again what an earlier execd has left: every task that was
// recorded as started or ended goes to the stage that the evidence on disk
// says. It is called once, before the queue starts anything.
func (r *Runner) Recover() error {
	known := map[string]bool{}
	for _, t := range r.Store.Unfinished() {
		if t.Start.Remote != nil {
			r.Away.Recover(t)
			continue
		}
		known[t.RunID().ID().String()] = true
		if t.State != job.Over { // which has given it back
			r.GIDs.Use(t.Start.AddGID)
		}
		l, err := r.recoverTask(t)
		if err != nil {
			return fmt.Errorf("cannot recover job %v: %w", t, err)
		}
		if l == nil {
			continue
		}
		r.add(l)
		if l.flow.Over(exit.StepFree) {
			r.From(t).Over(t.Job, false)
		}
		if r.takeUp(l) {
			r.Launcher.Await(t.RunID(), r.Later, func() { r.reattached(l) }, func() { r.Exited(t.RunID()) })
		} else {
			r.advance(l, nil)
		}
	}
	return r.sweep(known)
}

// takeUp finds what was started in a run beside its job, makes the list of its processes, and
// reports whether the job has a shepherd. What has ended meanwhile leads the life on when all
// of that is done, and not before.
func (r *Runner) takeUp(l *life) (lives bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.task.State != job.Ended {
		l.tasks.Find()
	}
	r.setUp(l)
	return !l.exited && l.at >= runs
}

// recoverTask decides from the evidence where a task is, and returns its life;
// nil when it went back to the queue.
func (r *Runner) recoverTask(t *job.Task) (*life, error) {
	l := r.newLife(t)
	l.at, l.found, l.hooks.Found, l.end.Taken = runs, true, true, t.Started
	switch err := r.findAgain(l); {
	case spool.Unread(err):
		return nil, err
	case err != nil:
		r.Log.Warn(fmt.Sprintf("job %v: goes on without hooks: %v", t, err))
	}
	if t.State == job.Ended {
		l.exited = true
		l.flow.Set(exit.StepFree)
		return l, nil
	}
	if t.State == job.Over {
		l.exited = true
		l.flow.Set(exit.StepHook)
		l.flow.Set(exit.StepFree)
		if r.Store.Stuck(t) == nil && r.Output != nil && !r.Output.Async(t) {
			l.end.Keep(r.Queue.Adopt(t, t.Started))
		}
		return l, nil
	}
	run := t.RunID()
	d, finished, err := r.Launcher.Find(run)
	rebooted := t.Start.Boot != r.Boot
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !rebooted && !r.Launcher.KillLeft(run, t.Start.AddGID) {
			// The directory moves to active_jobs/ before a shepherd is
			// started, so none was.
			return nil, r.giveBackRecovered(t)
		}
		// After a power cut the directory itself may be lost; and somebody
		// may have removed it under a job that ran.
		l.exited = true
		l.flow.Set(exit.StepFree)
		return l, nil
	case err != nil:
		return nil, err
	case finished:
		l.exited = true
		r.holdAgain(l)
		return l, nil
	}
	e, err := launch.Look(d)
	if err != nil {
		return nil, err
	}
	v := e.Verdict()
	if v == launch.NeverStarted && rebooted {
		v = launch.ShepherdDied // nothing of the directory was ever synced
	}
	switch v {
	case launch.Lives:
		// execd may have ended before it asked the shepherd: steerable looks.
		l.steer.stopped, l.migrates = r.Launcher.Steered(run)
		l.steer.begun = true
		l.end.Slots = r.Queue.Adopt(t, r.Launcher.Since(run, t.Started))
	case launch.NeverStarted:
		if noted, err := jobhook.Read(d); len(noted) > 0 && err == nil && l.hooks.Any() {
			// It was being prepared: what is done is not done again.
			l.at = prepares
			l.end.Slots = r.Queue.Adopt(t, t.Started)
			r.Log.Info(fmt.Sprintf("job %v: found after the restart: is prepared", t))
			return l, nil
		}
		if err := r.Launcher.Discard(run); err != nil {
			return nil, err
		}
		return nil, r.giveBackRecovered(t)
	default:
		r.Log.Info(fmt.Sprintf("job %v: found after the restart: %v", t, v))
		l.exited = true
		r.holdAgain(l)
	}
	return l, nil
}

// findAgain finds out what a run has beside its job, and what of it an earlier
// execd has done.
func (r *Runner) findAgain(l *life) error {
	hooks := r.Hooks != nil && r.HookTable != nil && r.HookTable().Any()
	told := r.Journal != nil && r.Journal.Wants(l.task)
	fed := r.Input != nil && r.Input.Has(l.task)
	mailed := l.task.State == job.Ended && l.notices.Wants(mail.Aborted)
	if !hooks && !told && !fed && !mailed && r.From(l.task).Queued() {
		return nil
	}
	d, _, findErr := r.Launcher.Find(l.task.RunID())
	var list []jobhook.HookRun
	var readErr error
	switch {
	case findErr == nil:
		list, readErr = jobhook.Read(d)
	case mailed && errors.Is(findErr, fs.ErrNotExist) && l.task.Start.Boot == r.Boot:
		l.end.Marks.Set(finish.StepMail) // the directory went after it
	}
	err := r.findHooksAgain(l)
	l.recall(list)
	return errors.Join(err, readErr)
}

// recall takes over what an earlier execd has noted of a run.
func (l *life) recall(list []jobhook.HookRun) {
	for i := range list {
		h := &list[i]
		told := l.end.Recall(h)
		switch {
		case h.Step == "" || told:
		case strings.HasPrefix(h.Step, prepareStep):
			l.prep.Set(h.Step)
		default:
			l.flow.Set(h.Step)
		}
		l.hooks.Recall(h, stepPost)
	}
}

// findHooksAgain is findHooks for a run that an earlier execd has begun.
func (r *Runner) findHooksAgain(l *life) error {
	request, err := r.Store.Request(l.task.Job)
	if err != nil {
		return err
	}
	owner, err := r.Owner(l.task)
	_, later := errors.AsType[*exit.Retry](err)
	switch {
	case later: // the job must not lose its hooks by that
		r.Log.Warn(fmt.Sprintf("job %v: %v (asked again when a hook is called)", l.task, err))
		owner = &user.User{Name: l.task.Job.Owner, UID: l.task.Job.UID}
	case err != nil:
		return err
	}
	err = r.findHooks(l, request, owner)
	if later {
		l.hooks.Owner = nil
	}
	return err
}

// holdAgain takes back the slots of a run whose hook for the end has not been run:
// it has them until then.
func (r *Runner) holdAgain(l *life) {
	keeps := l.task.Start.Sandbox != nil && r.Output != nil && !r.Output.Async(l.task)
	if !keeps && (l.hooks.Exit == nil && l.hooks.Post == nil || l.flow.Over(exit.StepHook)) {
		l.flow.Set(exit.StepFree)
		return
	}
	l.end.Slots = r.Queue.Adopt(l.task, l.task.Started)
}

// giveBackRecovered puts a task back into the queue that no shepherd was
// started for.
func (r *Runner) giveBackRecovered(t *job.Task) error {
	r.Log.Info(fmt.Sprintf("job %v: found after the restart: not started yet", t))
	if err := r.Store.Withdraw(t); err != nil {
		return err
	}
	r.GIDs.Give(t.Start.AddGID)
	return nil
}

// reattached goes on with a run whose shepherd is watched again.
func (r *Runner) reattached(l *life) {
	run := l.task.RunID()
	since := r.Launcher.Since(run, l.task.Started)
	r.Found(run, since)
	r.Timeline.Note(run, timeline.Span{Kind: timeline.Job, Begin: since})
	r.steerable(l)
	l.hooks.StartUpdates(time.Since(since))
	r.advance(l, nil) // its time limits
}

// sweep deals with directories that no record speaks of: half-made ones go,
// those of runs that were collected and settled go, and where a job was lost a
// human must look.
func (r *Runner) sweep(known map[string]bool) error {
	root := r.Launcher.Root
	if err := sweepDir(r, spool.DirStaging, root.ListStaging, spool.ParseRunID, r.Launcher.DiscardStaged); err != nil {
		return err
	}
	if err := sweepDir(r, spool.DirActive, root.ListActive, spool.ParseID, func(id spool.ID) error {
		if known[id.String()] {
			return nil
		}
		return r.orphan(id)
	}); err != nil {
		return err
	}
	return sweepDir(r, spool.DirFinished, root.ListFinished, spool.ParseRunID, func(run spool.RunID) error {
		if known[run.ID().String()] {
			return nil
		}
		// Its task is settled, and only the removal was cut short, unless it is
		// kept.
		err := r.Launcher.Clean(run, false)
		if errors.Is(err, launch.ErrTmpdir) {
			r.Log.Warn(fmt.Sprintf("job %v: %v", run.ID(), err))
			return nil
		}
		return err
	})
}

// sweepDir settles what is in a directory of the spool, and sets aside what has no name of
// a run.
func sweepDir[I any](r *Runner, dir string, list func() ([]string, error), parse func(string) (I, error), settle func(I) error) error {
	names, err := list()
	if err != nil {
		return err
	}
	for _, name := range names {
		id, err := parse(name)
		if err != nil {
			_ = aside.Put(r.Launcher.Root, r.Log, r.Launcher.Root.Path(dir, name), err) // it was told
			continue
		}
		if err := settle(id); err != nil {
			return err
		}
	}
	return nil
}

// orphan deals with a directory in active_jobs/ whose job has no record. When
// its shepherd lives the job is left alone, and looked at again at the next
// start.
func (r *Runner) orphan(id spool.ID) error {
	d := r.Launcher.Root.Active(id)
	e, err := launch.Look(d)
	if spool.Unread(err) {
		return fmt.Errorf("cannot look at job %v, which has no record: %w", id, err)
	}
	if err == nil && e.Held {
		r.Log.Warn(fmt.Sprintf("job %v: runs, and has no record: it is left alone", id))
		// Others do not get what it holds.
		if config, err := d.Config(); err == nil {
			if gid, err := config.Int(spool.KeyAddGrpID); err == nil {
				r.GIDs.Use(gid)
			}
			if name, err := config.String(spool.KeyQueue); err == nil {
				r.Queue.Occupy(id.String(), name)
			}
		}
		return nil
	}
	kept, err := r.Launcher.SetAside(d)
	aside.Tell(r.Log, d.Path(), kept, errors.New("its job has no record"), err)
	return nil
}
