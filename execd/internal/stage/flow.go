package stage

import (
	"cmp"

	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/jobhook"
)

// The processes of a run, as its list of processes has them.
const (
	childPre  = "pre script"
	childJob  = "job"
	childPost = "post script"
	companion = "tasks"
)

// stepPost is noted beside the steps of package finish.
const stepPost = childPost

// setUp makes the list of a run's processes. It is called when it is known what the run
// has beside its job.
func (r *Runner) setUp(l *life) {
	l.hooks.FindSlot()
	r.watch(l)
	l.flow.Controller = &l.end
	keep := func(step string) error { return l.hooks.Note(jobhook.HookRun{Step: step}) }
	l.flow.Keep, l.end.Marks.Keep, l.prep.Keep = keep, keep, keep
	l.flow.Next = func(over exit.Process, active []exit.Process) exit.Process { return r.next(l, over, active) }
	if l.hooks.Pre != nil && l.at <= launches && !l.prep.Over(stepPre) {
		l.flow.Spawned(&exit.Script{Of: childPre})
	} else {
		l.flow.Spawned(newJob())
	}
	l.flow.Spawned(&exit.Companion{Of: companion, Other: func(child string, _ exit.Status) bool { return (child == childJob || l.exited) && l.tasks.Close() }})
	if l.exited {
		l.flow.Reap(childJob, exit.Status{})
	}
}

func newJob() exit.Process { return &exit.Job{Script: exit.Script{Of: childJob}} }

// next says what is started when a process of a run is over.
func (r *Runner) next(l *life, over exit.Process, active []exit.Process) exit.Process {
	switch {
	case over.Name() == childPre:
		return newJob()
	case over.Name() == childPost || len(active) > 0 || l.hooks.Post == nil || l.flow.Over(stepPost),
		r.Store.State(l.task) != job.Started, l.hooks.Unwelcome():
		return nil
	}
	return &exit.Script{Of: childPost}
}

// runPost runs the script that the job wants to be run after it, when its turn has
// come: it is the last.
func (l *life) runPost() error {
	if active := l.flow.Active(); len(active) != 1 || active[0].Name() != childPost {
		return errWait
	}
	if over, err := l.hooks.RunPost(stepPost, l.attempts); err != nil || !over {
		return cmp.Or(err, errWait)
	}
	l.flow.Set(stepPost)
	l.flow.Reap(childPost, l.hooks.PostStatus)
	return nil
}

// exit leads a run from the end of its processes to its own.
func (r *Runner) exit(l *life) error {
	result, err := l.flow.AllDone()
	if err == nil && !result.Over() {
		return errWait
	}
	return err
}
